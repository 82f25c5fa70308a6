# %% [markdown]
# # Tensor parallelism: a network split over devices
#
# A neural network in an equation can be too large for one device. Tensor (model) parallelism splits its matrices: the
# first by columns, the second by rows. Each device then computes some of the hidden neurons, from their inputs to
# their contribution to the output, and the only communication is one sum (Megatron; Shoeybi et al., 2019).
#
# ## Sharded weights
#
# The mesh has two axes: `data` for members of an ensemble, `model` for hidden neurons.

# %%
import collections

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
WIDTH = 64
keys = jax.random.split(jax.random.key(0), 3)
weights = {
    "up": jax.random.normal(keys[0], (WIDTH, 2)) / 2**0.5,
    "down": jax.random.normal(keys[1], (2, WIDTH)) / WIDTH**0.5,
}
specs = {"up": P("model", None), "down": P(None, "model")}  # both along the hidden neurons
placed = jax.tree.map(lambda w, spec: jax.device_put(w, NamedSharding(mesh, spec)), weights, specs)
print({name: w.addressable_shards[0].data.shape for name, w in placed.items()}, "on each device")

# %% [markdown]
# (For row vectors, `x @ W`, these would be columns and then rows; here states are columns, `W @ x`.)
#
# ## Communication of one layer


# %%
def network(weights, y):
    return weights["down"] @ jnp.tanh(weights["up"] @ y)


y = jnp.array([1.0, -0.5])
found = collections.Counter(c.kind for c in sciml.inspect.collectives(network, placed, y))
print(dict(found))
assert found == {"all-reduce": 1}
assert jnp.allclose(jax.device_get(jax.jit(network)(placed, y)), network(weights, y), atol=1e-6)

# %% [markdown]
# There is one all-reduce of two numbers, for any width. If the first matrix were split along its inputs, the hidden
# layer would need a sum over devices before the `tanh`, as wide as the network.
#
# ## The network as a vector field
#
# The network models a missing term of pendulums. All sixteen pendulums form *one* state, a matrix with one column
# each, so that the compiler sees the network as matrix products:


# %%
def field(t, y, weights):
    return jnp.stack([y[1], -jnp.sin(y[0])]) + 0.1 * network(weights, y)


def solve(weights, starts):
    return sciml.solve(field, starts, t0=0.0, t1=1.0, dt=0.05, args=weights).ys[-1]


starts = jax.random.normal(keys[2], (2, 16))
split_starts = jax.device_put(starts, NamedSharding(mesh, P(None, "data")))
ends, whole = jax.jit(solve)(placed, split_starts), jax.jit(solve)(weights, starts)
error = float(jnp.max(jnp.abs(jax.device_get(ends) - whole)))
print("ends lie along", ends.sharding.spec, f"and differ by {error:.1e} from one device's")
print(
    "messages within the loop:",
    {c.kind for c in sciml.inspect.collectives(solve, placed, split_starts) if c.in_loop},
)

# %% [markdown]
# ## The gradient has the sharding of the weights


# %%
def loss(weights, starts):
    return jnp.mean(solve(weights, starts) ** 2)


gradient = jax.jit(jax.grad(loss))(placed, split_starts)
reference = jax.jit(jax.grad(loss))(weights, starts)
for name in weights:
    print(name, gradient[name].sharding.spec)
    assert jnp.allclose(jax.device_get(gradient[name]), reference[name], atol=1e-5)

# %% [markdown]
# An optimiser step is therefore local, and its state can have the same sharding.
#
# ## Exercise
#
# Add biases, one for each hidden neuron and one for each output. Which sharding keeps a single all-reduce?

# %% Answer
# Shard the hidden bias like the hidden neurons. The other is added after the sum, so replicate it.
biases = {"hidden": jnp.full(WIDTH, 0.1), "output": jnp.array([0.2, 0.3])}
lie = {"hidden": P("model"), "output": P()}
placed_biases = jax.tree.map(
    lambda b, spec: jax.device_put(b, NamedSharding(mesh, spec)), biases, lie
)


def with_biases(weights, biases, y):
    hidden = jnp.tanh(weights["up"] @ y + biases["hidden"])
    return weights["down"] @ hidden + biases["output"]


kinds = [c.kind for c in sciml.inspect.collectives(with_biases, placed, placed_biases, y)]
print(kinds)
assert kinds == ["all-reduce"]

# %% [markdown]
# ## Use in sciml
#
# sciml does not split networks itself: you shard your arrays, and `sciml.solve` keeps their sharding on automatic
# axes. Under `vmap` each device runs its own members, and gathers the values that they share. This is right for an
# ensemble, but not for a network that exceeds one device. Either split the network and make the batch one state, as
# here, or split members and keep the network whole ([shared values](../guides/ensembles.md#shared-weights-and-tables)),
# which needs no communication:

# %%
by_members = jax.vmap(solve, in_axes=(None, 1), out_axes=1)
each = jax.device_put(starts, NamedSharding(mesh, P(None, ("data", "model"))))
print("messages with whole networks:", sciml.inspect.collectives(by_members, weights, each))
assert jnp.allclose(jax.device_get(jax.jit(by_members)(weights, each)), whole, atol=1e-5)

# %%
assert error < 1e-5
print(
    f"figure of merit: {error:.1e} < 1e-05 (sixteen pendulums with a network on 2 x 4 devices, and on one)"
)
