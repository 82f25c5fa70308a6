# %% [markdown]
# # PyTrees
#
# A simulation has many arrays: positions and velocities, parameters, a step size, a counter. JAX accepts any nested
# container of tuples, lists, dictionaries and registered classes as *one* argument, a PyTree. Its arrays are the
# leaves; the rest is the structure. JAX transformations apply to all leaves: the gradient with respect to a model is
# a model of the same class, with derivatives as leaves.
#
# ## Named states
#
# The state of two planets around a star is a dictionary:

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
# `jax.tree.map` applies a function to all leaves, so an Euler step is one line for any state:


# %%
def pull(position):
    return -position / jnp.sum(position**2) ** 1.5


def field(t, state, args):
    return {"position": state["velocity"], "velocity": jax.tree.map(pull, state["position"])}


def euler(state, dt):
    return jax.tree.map(lambda y, slope: y + dt * slope, state, field(0.0, state, None))


print(euler(state, 0.1)["position"]["inner"])

# %% [markdown]
# ## None and is_leaf
#
# `None` is an empty subtree, not a leaf: `jax.tree.map` skips it, and `jax.grad` returns none for it. Use it for an
# optional part of a state. To treat a container, or `None`, as a leaf, pass `is_leaf`:

# %%
optional = {"position": jnp.ones(2), "charge": None}
print(jax.tree.leaves(optional), jax.tree.map(jnp.zeros_like, optional))
print(jax.tree.map(lambda x: x is None, optional, is_leaf=lambda x: x is None))
pairs = {"inner": (1.0, 2.0), "outer": (3.0, 4.0)}
print(jax.tree.map(sum, pairs, is_leaf=lambda x: isinstance(x, tuple)))
assert len(jax.tree.leaves(optional)) == 1

# %% [markdown]
# ## Custom classes as PyTrees
#
# One line registers a dataclass as a PyTree and specifies which fields are data (leaves) and which belong to the
# structure. `sciml.AbstractModel` and Equinox modules are already registered.


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
# ## Key paths of leaves
#
# The path from the root to a leaf is its key path. Use it to select leaves by name, for example for fitting, printing
# or storing:

# %%
for path, leaf in jax.tree.leaves_with_path(state):
    print(jax.tree_util.keystr(path), leaf)


def only(tree, word):
    """The PyTree with zeros in all leaves whose path does not contain a word."""
    return jax.tree.map_with_path(
        lambda path, x: x if word in jax.tree_util.keystr(path) else jnp.zeros_like(x), tree
    )


assert not only(state, "inner")["position"]["outer"].any()

# %% [markdown]
# ## Lists of models and stacked models
#
# Ten stars in a list are ten PyTrees. `vmap` needs *one* PyTree whose leaves have an additional axis. Convert by
# stacking the corresponding leaves:

# %%
stars = [Star(jnp.array(mass), jnp.array(0.0), "sun") for mass in jnp.linspace(0.8, 1.2, 10)]
stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *stars)
print(stacked.mass.shape, jax.jit(jax.vmap(distance))(stacked).shape)

back = [jax.tree.map(lambda leaf: leaf[i], stacked) for i in range(10)]
assert all(a.mass == b.mass for a, b in zip(stars, back))

# %% [markdown]
# The structures must be equal: two stars with different names have different structures, and JAX reports the
# difference.
#
# ## Exercise
#
# Compute the gradients of the ten stars, one by one from the list and all at once from the stacked model, and show
# that they are equal: the gradient of the stack is the stacked list of gradients.

# %% Answer
gradient = jax.jit(jax.grad(distance))
one_by_one = [gradient(star) for star in stars]
at_once = jax.jit(jax.vmap(jax.grad(distance)))(stacked)
transposed = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one)
gaps = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b) / jnp.abs(b)), at_once, transposed)
error = float(jnp.max(jnp.stack(jax.tree.leaves(gaps))))
print(f"{len(jax.tree.leaves(gaps))} kinds of leaves, largest relative difference {error:.1e}")

# %% [markdown]
# ## Use in sciml
#
# The state, the model and `args` of `sciml.solve` are PyTrees, and `sol.ys` has the structure of the state with time
# as the first axis. Parameters are leaves, so gradients, ensembles (`vmap` over a stacked model) and fits
# (`sciml.fit(..., where=lambda model: model.mass)`) need no other interface. `sciml.stores` names the arrays on disk
# by their key paths.

# %%
assert error < 1e-3
print(
    f"figure of merit: {error:.1e} < 1e-03 (gradients of a list of models and of the stacked model)"
)
