# %% [markdown]
# # Per-example gradients and gradient clipping
#
# The gradient of a mean loss gives the direction of descent. The gradients of the single examples, before the mean,
# contain more information: which example has the largest influence, and whether one of them is wrong. In most
# frameworks this needs a loop over the data; in JAX it is `vmap` of `grad`, and costs about as much as the gradient
# of the mean.
#
# ## Example: cooling curves with one wrong unit
#
# The unknown is the cooling rate of a body. Each of 32 time series has ten temperatures, and one was recorded in
# Fahrenheit by mistake:

# %%
import diffrax
import jax
import jax.numpy as jnp

import sciml

ts = jnp.linspace(0.5, 5.0, 10)
RATE = 0.6


OPTIONS = dict(t0=0.0, t1=5.0, dt=0.1, saveat=ts, solver=diffrax.Heun())


def decay(t, y, rate):
    return -rate * y


def cool(log_rate, start):
    one_parameter = sciml.adjoints.Forward()  # its tangent is carried along
    rate = jnp.exp(log_rate)
    return sciml.solve(decay, start, args=rate, adjoint=one_parameter, **OPTIONS).ys


starts = jnp.linspace(40.0, 90.0, 32)
noise = 0.5 * jax.random.normal(jax.random.key(0), (32, 10))
data = starts[:, None] * jnp.exp(-RATE * ts) + noise
data = data.at[11].set(1.8 * data[11] + 32)

# %% [markdown]
# ## vmap of grad
#
# Write the loss for one example. `grad` gives its gradient, and `vmap` runs it for all examples with the same
# parameter (`None`):


# %%
def loss(log_rate, start, record):
    return jnp.mean((cool(log_rate, start) - record) ** 2)


each = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
guess = jnp.log(0.5)
gradients = each(guess, starts, data)
mean = jax.grad(lambda p: jnp.mean(jax.vmap(loss, (None, 0, 0))(p, starts, data)))(guess)
assert gradients.shape == (32,) and jnp.allclose(jnp.mean(gradients), mean, rtol=1e-3)

norms = jnp.abs(gradients)
worst = int(jnp.argmax(norms))
print(f"largest: example {worst} with {norms[worst]:.0f}; median {jnp.median(norms):.0f}")
assert worst == 11

# %% [markdown]
# If the parameter is a PyTree, such as a neural network, `gradients` is a PyTree with an additional axis. The norm of
# an example then covers all leaves: `jax.vmap(optax.global_norm)(gradients)`.
#
# ## Gradient clipping
#
# Scale the gradient of every example down to a typical norm, and then take the mean. The wrong example still
# contributes, but no more than the others. (With noise added to the sum, this is differentially private training,
# DP-SGD.)


# %%
@jax.jit
def fitted(clip):
    def descend(log_rate, _):
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(log_rate, starts, data)
        norms = jnp.abs(gradients)
        limit = clip * jnp.median(norms)
        gradients = gradients * jnp.minimum(1.0, limit / norms)
        return log_rate - 2e-4 * jnp.mean(gradients), None

    return jnp.exp(jax.lax.scan(descend, guess, None, length=60)[0])


plain, clipped = fitted(jnp.inf), fitted(2.0)
print(f"true rate {RATE}, without clipping {plain:.3f}, with clipping {clipped:.3f}")

# %% [markdown]
# ## Exercise
#
# At the rate that the fit without clipping found, how many of the 32 examples have a negative gradient (a larger rate
# is better), and how many a positive one? What is the mean?

# %% Answer
at_end = each(jnp.log(plain), starts, data)
larger, smaller = int((at_end < 0).sum()), int((at_end > 0).sum())
print(f"{larger} want a larger rate, {smaller} a smaller one")
print(f"mean {jnp.mean(at_end):.0f}, of example 11 alone {at_end[11]:.0f}")
assert smaller == 1 and at_end[11] > 0

# %% [markdown]
# The mean is small compared with its parts: one wrong example balances thirty-one others.
#
# ## Use in sciml
#
# `jax.vmap(jax.grad(...))` of a solve runs members over lanes, forwards and backwards
# ([ensembles](../guides/ensembles.md#shared-weights-and-tables)). The gradient of a *sum* over members accumulates
# instead and stores one copy. The gradient of a failed member is NaN for this member only
# ([failures](../guides/failures.md)). In `sciml.fit`, the scale of the residuals is the weight of an example.

# %%
error = abs(float(clipped) / RATE - 1)
assert error < 0.02 < abs(float(plain) / RATE - 1)
print(f"figure of merit: {error:.4f} < 0.02 (relative error of the rate, with clipped gradients)")
