# %% [markdown]
# # A gradient for each example
#
# The gradient of a mean loss says where to go. The gradients of the single examples, before the mean, say more: which
# example pulls hardest, and whether one of them is wrong. In most frameworks that is a loop over the data; in JAX it
# is `vmap` of `grad`, and costs about as much as the gradient of the mean.
#
# ## Thirty-two cooling curves, one of them in the wrong unit
#
# A body cools at a rate that is to be found. Each record has ten temperatures, and somebody wrote one record in
# Fahrenheit:

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
# The loss is written for one example. `grad` makes it a gradient, `vmap` runs it for all, with the parameter shared
# (`None`):


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
# Where the parameter is a PyTree, as a network, `gradients` is one with an axis more, and the norm of an example is
# over all leaves: `jax.vmap(optax.global_norm)(gradients)`.
#
# ## Clipping
#
# Scale every example's gradient down to a norm that is usual, and take the mean then. The wrong record still votes,
# but no louder than the others. (With noise added to the sum this is how models are trained on data that must not be
# revealed.)


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
# At the rate that the fit without clipping found, how many of the 32 examples want a larger rate (their gradient is
# negative), and how many a smaller one? What does the mean say?

# %% Answer
at_end = each(jnp.log(plain), starts, data)
larger, smaller = int((at_end < 0).sum()), int((at_end > 0).sum())
print(f"{larger} want a larger rate, {smaller} a smaller one")
print(f"mean {jnp.mean(at_end):.0f}, of example 11 alone {at_end[11]:.0f}")
assert smaller == 1 and at_end[11] > 0

# %% [markdown]
# The mean is small beside its parts: one wrong record holds the balance against thirty-one.
#
# ## Where sciml uses it
#
# `jax.vmap(jax.grad(...))` of a solve runs members over lanes, forwards and backwards
# ([Ensembles](../guides/ensembles.md#what-members-share)); asked for the gradient of a *sum* over members instead, it
# adds up on the way and keeps one copy. A failed member's gradient is NaN for itself alone
# ([Failures](../guides/failures.md)). And `sciml.fit` weighs records by what you divide their residuals by.

# %%
error = abs(float(clipped) / RATE - 1)
assert error < 0.02 < abs(float(plain) / RATE - 1)
print(f"figure of merit: {error:.4f} < 0.02 (relative error of the rate, with clipped gradients)")
