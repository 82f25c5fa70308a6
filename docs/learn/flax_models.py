# %% [markdown]
# # Flax (Linen and NNX) networks as models
#
# sciml's own models are Equinox modules, but a model can be any function `f(t, y, args)`, and parameters can be any
# PyTree. A Flax network therefore works directly: pass its parameters as `args`. This lesson needs `pip install
# flax`.
#
# ## Flax Linen
#
# A Linen module has no arrays. `init` creates them as a dictionary, and `apply` is a pure function of them:

# %%
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import sciml

ts = jnp.linspace(0.0, 5.0, 26)
start = jnp.array([1.2, 0.0])
truth = sciml.solve(
    lambda t, y, args: jnp.stack([y[1], -jnp.sin(y[0]) - 0.2 * y[1]]),
    start,
    t0=0.0,
    t1=5.0,
    dt=0.05,
    saveat=ts,
).ys


class Force(nn.Module):
    """The unknown force of a pendulum, by angle and speed."""

    @nn.compact
    def __call__(self, y):
        hidden = nn.tanh(nn.Dense(16)(y))
        return nn.Dense(1)(hidden)[0]


network = Force()
params = network.init(jax.random.key(0), start)
print(jax.tree.map(jnp.shape, params))


def linen_field(t, y, params):
    return jnp.stack([y[1], network.apply(params, y)])


def run(params):
    return sciml.solve(linen_field, start, t0=0.0, t1=5.0, dt=0.1, args=params, saveat=ts).ys


# %% [markdown]
# The gradient is a dictionary with the same structure, as optax expects. All optimiser steps run in one compiled
# loop:


# %%
def loss(params):
    return jnp.mean((run(params) - truth) ** 2)


optimiser = optax.adam(0.02)


@jax.jit
def train(params):
    def step(carry, _):
        params, memory = carry
        value, gradient = jax.value_and_grad(loss)(params)
        change, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(params, change), memory), value

    (params, _), values = jax.lax.scan(step, (params, optimiser.init(params)), None, length=400)
    return params, values


fitted, values = train(params)
print(f"loss {values[0]:.3f} before, {values[-1]:.1e} after 400 steps")

# %% [markdown]
# ## Flax NNX
#
# An NNX module is a Python object with references, which JAX cannot trace. `nnx.split` separates it into a
# description and a PyTree of arrays; `nnx.merge` combines them again inside the vector field:


# %%
class ForceNNX(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 16, rngs=rngs)
        self.second = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, y):
        return self.second(jnp.tanh(self.first(y)))[0]


description, arrays = nnx.split(ForceNNX(nnx.Rngs(1)))


def nnx_field(t, y, arrays):
    return jnp.stack([y[1], nnx.merge(description, arrays)(y)])


def nnx_loss(arrays):
    ys = sciml.solve(nnx_field, start, t0=0.0, t1=5.0, dt=0.1, args=arrays, saveat=ts).ys
    return jnp.mean((ys - truth) ** 2)


value, gradient = jax.jit(jax.value_and_grad(nnx_loss))(arrays)
print(
    f"loss {value:.3f}; the gradient has the structure of the arrays:",
    jax.tree.structure(gradient) == jax.tree.structure(arrays),
)

# %% [markdown]
# ## Exercise
#
# Copy the parameters of the Linen network into the NNX network, and show that both are the same vector field. (Dense
# and Linear each have a `kernel` and a `bias`.)

# %% Answer
module = nnx.merge(description, arrays)
for layer, name in ((module.first, "Dense_0"), (module.second, "Dense_1")):
    layer.kernel[...] = fitted["params"][name]["kernel"]
    layer.bias[...] = fitted["params"][name]["bias"]
_, moved = nnx.split(module)
assert jnp.allclose(nnx_field(0.0, start, moved), linen_field(0.0, start, fitted), atol=1e-6)
assert jnp.allclose(nnx_loss(moved), loss(fitted), atol=1e-5)

# %% [markdown]
# ## Use in sciml
#
# `args` of `sciml.solve`, and the parameters of `sciml.fit`, are any PyTree of arrays: [parameter
# estimation](../guides/fitting.md). Under `jax.vmap` over initial states with `in_axes=None` for the parameters,
# these remain one array, and their products are matrix products ([shared
# values](../guides/ensembles.md#shared-weights-and-tables)).

# %%
end = float(values[-1])
assert end < 1e-2
print(f"figure of merit: {end:.1e} < 1e-02 (mean square error of the fitted network)")
