# %% [markdown]
# # Compiled once: static arguments and buckets
#
# A compiled program is for one shape and one dtype of every argument. Called with another, JAX traces and compiles
# again, which takes a thousand times as long as a step. A simulator meets this whenever things have different sizes:
# rods of different lengths, molecules of different numbers of atoms, records of different numbers of samples.
#
# ## Every length is a program
#
# Heat in insulated rods, thirty of them, no two alike:

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
# Four rods, four programs, and `sciml.inspect.retraces` says what changed. JAX itself writes this to its log, with
# `jax.config.update("jax_explain_cache_misses", True)`, or `JAX_LOG_COMPILES=1` in the environment.
#
# ## Buckets
#
# Pad every rod to the next power of two, and say how much of it is real by a *number*, which is traced. Insulation
# has to be at the true end, so neighbours are clipped there:


# %%
def relax_padded(u, n):
    """The same of the first `n` cells; what lies behind them is never read."""
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
# Powers of two waste at most half of the work. Finer buckets waste less and compile more: choose by how often each
# length comes. Within one bucket rods have equal shapes, so `vmap` can run them together.
#
# ## Static arguments
#
# Some arguments decide *which program* it is: an order, a name, a number of steps of a Python loop. They are not
# traced but named as static: each new value compiles anew. They must be hashable and few:


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
# The mistake in the other direction is to make a number static that changes all the time, such as a step size: a
# sweep over a thousand of them compiles a thousand programs. Pass it as an array. The same happens with a function
# made anew in every iteration of a loop, since to JAX each is another one.
#
# ## Exercise
#
# How many programs do these five calls of `relax` compile, and why? Think first: `ones(8)` in float32, `ones(8)` in
# float32 again, `ones(8)` in float16, `2 * ones(8)` in float32, `ones((8,))` as a NumPy array of float32.

# %% Answer
# Two: values do not matter, nor whether an array is JAX's or NumPy's; dtype and shape do.
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
# ## Where sciml uses it
#
# `sciml.solve` compiles once for each vector field, structure and dtype; times, tolerances, parameters and `args` are
# traced ([Compiled once](../guides/solve.md#compilation-and-recompilation)). A table of doses of varying length is padded with
# infinite times ([Events](../guides/events.md#doses-at-given-times)): a bucket. A sweep runs blocks of a fixed
# number of members, the last one padded, so that a million members are one program.

# %%
assert error < 1e-5
print(
    f"figure of merit: {error:.1e} < 1e-05 (rods in buckets and rods alone; {bucketed.traces} programs for 30)"
)
