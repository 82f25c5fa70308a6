# %% [markdown]
# # PyTrees
#
# A simulation has more than one array: positions and velocities, parameters, a step size, a counter. JAX takes any
# nest of tuples, lists, dictionaries and registered classes as *one* argument, a PyTree. Its arrays are the leaves;
# the rest is the structure. Everything that JAX does to an array, it does to the leaves: a gradient with respect to a
# model is a model of the same kind, with derivatives for leaves.
#
# ## A state with names
#
# Two planets around a star, with a dictionary as the state:

# %%
from dataclasses import dataclass

import jax
import jax.numpy as jnp

import sciml

state = {
    "position": {"inner": jnp.array([1.0, 0.0]), "outer": jnp.array([0.0, 2.0])},
    "velocity": {"inner": jnp.array([0.0, 1.0]), "outer": jnp.array([-(0.5**0.5), 0.0])},
}
print(jax.tree.structure(state))

# %% [markdown]
# `jax.tree.map` applies a function to all leaves, so an Euler step is one line, whatever the state is made of:


# %%
def pull(position):
    return -position / jnp.sum(position**2) ** 1.5


def field(t, state, args):
    return {"position": state["velocity"], "velocity": jax.tree.map(pull, state["position"])}


def euler(state, dt):
    return jax.tree.map(lambda y, slope: y + dt * slope, state, field(0.0, state, None))


print(euler(state, 0.1)["position"]["inner"])

# %% [markdown]
# ## A class of your own
#
# A dataclass becomes a node of trees by one line, which says which of its fields are data and which are part of the
# structure. `sciml.AbstractModel` and Equinox modules are registered already.


# %%
@dataclass
class Star:
    mass: jax.Array
    drag: jax.Array
    name: str

    def __call__(self, t, y, args):
        position, velocity = y
        distance = jnp.sqrt(jnp.sum(position**2))
        return velocity, -self.mass * position / distance**3 - self.drag * velocity


jax.tree_util.register_dataclass(Star, data_fields=["mass", "drag"], meta_fields=["name"])
start = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])


def distance(star):
    sol = sciml.solve(star, start, t0=0.0, t1=2.0, dt=0.02)
    return jnp.sqrt(jnp.sum(sol.ys[0][-1] ** 2))


slope = jax.grad(distance)(Star(jnp.array(1.0), jnp.array(0.01), "sun"))
print(slope)

# %% [markdown]
# ## Leaves have addresses
#
# The way from the root to a leaf is its key path. With it you can pick leaves by name: which to fit, which to print,
# which to store in which file:

# %%
for path, leaf in jax.tree.leaves_with_path(state):
    print(jax.tree_util.keystr(path), leaf)


def only(tree, word):
    """The tree with zeros in all leaves whose path does not contain a word."""
    return jax.tree.map_with_path(
        lambda path, x: x if word in jax.tree_util.keystr(path) else jnp.zeros_like(x), tree
    )


assert not only(state, "inner")["position"]["outer"].any()

# %% [markdown]
# ## A list of models, or a model of stacked leaves
#
# Ten stars in a list are ten trees. `vmap` wants *one* tree whose leaves have an axis more. To go from one to the
# other is to transpose: stack the first leaf of all, then the second, and so on.

# %%
stars = [Star(jnp.array(mass), jnp.array(0.0), "sun") for mass in jnp.linspace(0.8, 1.2, 10)]
stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *stars)
print(stacked.mass.shape, jax.jit(jax.vmap(distance))(stacked).shape)

back = [jax.tree.map(lambda leaf: leaf[i], stacked) for i in range(10)]
assert all(a.mass == b.mass for a, b in zip(stars, back))

# %% [markdown]
# Structures must be equal for that: two stars of different names have no common structure, and JAX says where they
# differ.
#
# ## Exercise
#
# Give the ten stars their gradients, one by one from the list and all at once from the stack, and show that they are
# the same: the gradient of the stack is the transposed list of the gradients.

# %% Answer
gradient = jax.jit(jax.grad(distance))
one_by_one = [gradient(star) for star in stars]
at_once = jax.jit(jax.vmap(jax.grad(distance)))(stacked)
transposed = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one)
gaps = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b) / jnp.abs(b)), at_once, transposed)
error = float(jnp.max(jnp.stack(jax.tree.leaves(gaps))))
print(f"{len(jax.tree.leaves(gaps))} kinds of leaves, largest relative difference {error:.1e}")

# %% [markdown]
# ## Where sciml uses it
#
# A state, a model, and `args` of `sciml.solve` are any PyTrees, and `sol.ys` has the structure of the state with time
# as the first axis. Parameters are leaves, so there is no other interface for gradients, ensembles (`vmap` over a
# stacked model, as above) and fits (`sciml.fit(..., where=lambda model: model.mass)` picks leaves). A folder written
# by `sciml.stores` names its arrays by key paths.

# %%
assert error < 1e-3
print(
    f"figure of merit: {error:.1e} < 1e-03 (gradients of a list of models and of the stacked model)"
)
