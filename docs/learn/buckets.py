# %% [markdown]
# # Static arguments and buckets: avoid recompilation
#
# A compiled program is specific to the shape and dtype of every argument. For another shape, JAX traces and compiles
# again (recompilation), which takes a thousand times as long as a step. This affects simulations with different
# sizes: rods of different lengths, molecules with different numbers of atoms, time series of different lengths.
#
# ## Each shape is a program
#
# The example is heat conduction in thirty insulated rods, all of different lengths:

# %%
import jax
import jax.numpy as jnp
import numpy as np

import sciml


def relax(u):
    """A hundred explicit steps of the heat equation with insulated ends."""

    def step(u, _):
        wide = jnp.pad(u, 1, mode="edge")
        return u + 0.25 * (wide[2:] - 2 * u + wide[:-2]), None

    return jax.lax.scan(step, u, None, length=100)[0]


lengths = [int(n) for n in np.random.default_rng(0).permutation(np.arange(20, 256))[:30]]
rods = [jnp.asarray(np.random.default_rng(n).normal(size=n), jnp.float32) for n in lengths]

counted = sciml.inspect.retraces(jax.jit(relax))
for rod in rods[:4]:
    counted(rod)
print(counted)

# %% [markdown]
# Four rods need four programs, and `sciml.inspect.retraces` shows the changed argument. JAX writes this to its log
# with `jax.config.update("jax_explain_cache_misses", True)`, or with `JAX_LOG_COMPILES=1` in the environment.
#
# The key of a compiled program contains
#
# | Part of the key | A change that compiles again |
# |---|---|
# | the function object | a new `lambda` or `functools.partial` in each turn of a loop |
# | shape and dtype of each array | one more row; `float64` instead of `float32` |
# | weak type | a Python number instead of an array |
# | structure of each PyTree | a list with one more element; another key of a dictionary |
# | value of each static argument | `n=10` and `n=11` |
# | sharding and device of each array | data on another device |
# | configuration of JAX | `jax_enable_x64`, matmul precision |
#
# Values of traced arguments are not in the key.
#
# ## Padding to buckets
#
# Pad every rod to the next power of two, and pass its true length as a traced *number*. The insulation must be at the
# true end, so neighbour indices are clipped there:


# %%
def relax_padded(u, n):
    """The same for the first `n` cells; the other cells are never read."""
    i = jnp.arange(u.size)
    left, right = jnp.maximum(i - 1, 0), jnp.minimum(i + 1, n - 1)

    def step(u, _):
        return u + 0.25 * (u[right] - 2 * u + u[left]), None

    return jax.lax.scan(step, u, None, length=100)[0]


def bucket(n):
    return 1 << (n - 1).bit_length()


bucketed = sciml.inspect.retraces(jax.jit(relax_padded))
ends = [
    bucketed(jnp.pad(rod, (0, bucket(rod.size) - rod.size)), jnp.asarray(rod.size))[: rod.size]
    for rod in rods
]
print(f"{len(rods)} rods, {bucketed.traces} programs")
error = max(float(jnp.max(jnp.abs(end - relax(rod)))) for end, rod in list(zip(ends, rods))[:4])
assert bucketed.traces == len({bucket(n) for n in lengths}) == 4

# %% [markdown]
# Powers of two waste at most half of the work. Finer buckets waste less and compile more; choose them by the
# frequency of the lengths. Within one bucket rods have equal shapes, so `vmap` can run them together.
#
# ## Static arguments
#
# Some arguments determine *which program* to run: an order, a name, the number of steps of a Python loop. Declare
# them as static: they are not traced, and each new value recompiles. Static arguments must be hashable and have few
# values:


# %%
@jax.jit
def power(x, order):
    for _ in range(order):
        x = x * x
    return x


try:
    power(jnp.ones(3), 3)
except TypeError as error_of_jax:
    print(type(error_of_jax).__name__, "-", str(error_of_jax).splitlines()[0][:90])
else:
    raise AssertionError("a traced number of turns of a Python loop")

static = sciml.inspect.retraces(jax.jit(power.__wrapped__, static_argnames="order"))
for order in (2, 3, 2, 3):
    static(jnp.ones(3), order=order)
assert static.traces == 2

# %% [markdown]
# The opposite mistake is a static argument that changes often, such as a step size: a sweep over a thousand values
# compiles a thousand programs. Pass it as an array. A function that is created in every iteration of a loop causes
# the same problem, because for JAX each is a different function.
#
# ## Exercise
#
# How many programs do these five calls of `relax` compile, and why? Think first: `ones(8)` in float32, `ones(8)` in
# float32 again, `ones(8)` in float16, `2 * ones(8)` in float32, `ones((8,))` as a NumPy array of float32.

# %% Answer
# Two: only dtype and shape matter, not the values or the array library.
calls = [
    jnp.ones(8),
    jnp.ones(8),
    jnp.ones(8, jnp.float16),
    2 * jnp.ones(8),
    np.ones(8, np.float32),
]
asked = sciml.inspect.retraces(jax.jit(relax))
for u in calls:
    asked(u)
print(asked)
assert asked.traces == 2

# %% [markdown]
# ## Use in sciml
#
# `sciml.solve` compiles once per vector field, structure and dtype; times, tolerances, parameters and `args` are
# traced ([compilation](../guides/solve.md#compilation-and-recompilation)). Dose tables of different lengths are
# padded with infinite times ([events](../guides/events.md#doses-at-given-times)), which makes them a bucket. A sweep
# runs blocks of a fixed number of members and pads the last one, so a million members are one program.

# %%
assert error < 1e-5
print(
    f"figure of merit: {error:.1e} < 1e-05 (rods in buckets and rods alone; {bucketed.traces} programs for 30)"
)
