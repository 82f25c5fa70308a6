# %% [markdown]
# # A network split over devices
#
# A network that is the right side of an equation may be too large for one device. Its matrices can be split: the
# first by columns, the second by rows. Then each device has some of the hidden neurons, from their inputs to what
# they contribute to the output, and all that has to be sent is one sum. (Shoeybi and others, 2019, called it
# Megatron.)
#
# ## The network, and where it lies
#
# The mesh has two axes: members of an ensemble along `data`, hidden neurons along `model`.

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
# (With the input as a row, `x @ W`, these would be columns first and then rows; here states are columns, `W @ x`.)
#
# ## One layer


# %%
def network(weights, y):
    return weights["down"] @ jnp.tanh(weights["up"] @ y)


y = jnp.array([1.0, -0.5])
found = collections.Counter(c.kind for c in sciml.inspect.collectives(network, placed, y))
print(dict(found))
assert found == {"all-reduce": 1}
assert jnp.allclose(jax.device_get(jax.jit(network)(placed, y)), network(weights, y), atol=1e-6)

# %% [markdown]
# One all-reduce, of two numbers, whatever the width. Had the first matrix been split the other way, along its inputs,
# the hidden layer would be a sum over devices, before the `tanh`, and as wide as the network.
#
# ## As a vector field
#
# Pendulums with a network for what is missing. All sixteen are *one* state here, a matrix with a column for each, so
# that the network is seen by the compiler as what it is, matrix products:


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
# ## The gradient lies where the weights lie


# %%
def loss(weights, starts):
    return jnp.mean(solve(weights, starts) ** 2)


gradient = jax.jit(jax.grad(loss))(placed, split_starts)
reference = jax.jit(jax.grad(loss))(weights, starts)
for name in weights:
    print(name, gradient[name].sharding.spec)
    assert jnp.allclose(jax.device_get(gradient[name]), reference[name], atol=1e-5)

# %% [markdown]
# So an optimiser step is local, and its state can lie in the same way.
#
# ## Exercise
#
# Add biases, one for each hidden neuron and one for each output. Where should they lie, such that there is still one
# all-reduce?

# %% Answer
# The hidden one lies with the hidden neurons. The other is added after the sum, so every device has it whole.
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
# ## Where sciml uses it
#
# Nowhere by itself: it is your arrays that are split, and `sciml.solve` keeps them as they are, on automatic axes.
# Members of a `vmap` are run by each device for itself, with all that they share gathered there: for an ensemble that
# is right, and for a network that no device can hold it is not. So split the network and make the batch one state, as
# here, or split members and keep the network whole ([What members share](../guides/ensembles.md#what-members-share)),
# which needs no message at all:

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
