# %% [markdown]
# # Tracing, caches and retraces: the cost of compilation
#
# Before a program runs, Python is traced, the trace is lowered, and the result is compiled. This takes seconds, while
# the run can take milliseconds. [Reading a jaxpr](../learn/jaxprs.md) shows a traced program, and
# [buckets](../learn/buckets.md) how to use one program for many sizes. This chapter is about the cost of compilation,
# and when it pays off.
#
# ## Compile time
#
# Each equation of the jaxpr is traced, lowered and compiled once. The time to the first result therefore grows with
# the length of the *program*, and unrolled Python loops make long programs. Two measured lengths predict a third:

# %%
import math
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from sciml import inspect
from timing import beside, duration, report, seconds

print(f"JAX {jax.__version__} on {inspect.rates().device}")


def lorenz(y):
    x, y, z = y
    return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])


def rk4(y):
    h = 0.01
    a = lorenz(y)
    b = lorenz(y + h / 2 * a)
    c = lorenz(y + h / 2 * b)
    d = lorenz(y + h * c)
    return y + h / 6 * (a + 2 * b + 2 * c + d)


def unrolled(y, count):
    for _ in range(count):
        y = rk4(y)
    return y


def scanned(y, count):
    return jax.lax.scan(lambda y, _: (rk4(y), None), y, None, length=count)[0]


def first_call(fn, count):
    """Equations, and seconds to trace, lower and compile."""
    found = report(jax.jit(fn, static_argnums=1), jnp.ones(3), count)
    times = found.times
    return found.program.equations, times.trace + times.lower + times.compile


first_call(unrolled, 1)
(short_size, short), (long_size, long) = first_call(unrolled, 4), first_call(unrolled, 8)
each = (long - short) / 4
size, spent = first_call(unrolled, 16)
print(f"{(long_size - short_size) // 4} equations a step, {duration(each)} a step")
beside(f"16 steps, {size} equations", long + 8 * each, spent)
for count in (16, 10_000):
    size, spent = first_call(scanned, count)
    print(f"scan of {count} steps: {size} equations, {duration(spent)}")

# %% [markdown]
# A scan contains the program of one step, for any number of steps.
#
# ## When compilation pays off
#
# Compilation takes the time $C$, and each call then takes $t$ instead of $t_0$. It pays off after $n$ calls:
#
# $$n > \frac{C}{t_0 - t}.$$
#
# Without compilation, each equation is a separate call from Python ([the overhead of a
# call](modules.md#the-overhead-of-a-call)), with additional Python code of JAX:

# %%
once = report(rk4, jnp.ones(3))
compiling = once.times.trace + once.times.lower + once.times.compile
saved = once.times.uncompiled - once.measured
equation = once.times.uncompiled / once.program.equations
print(f"{duration(equation)} for an equation from Python")
beside(
    "4 steps from Python", long_size / 2 * equation, seconds(lambda y: unrolled(y, 4), jnp.ones(3))
)
print(f"compiled {duration(once.measured)}: it pays after {math.ceil(compiling / saved)} steps")

# %% [markdown]
# ## The key of the cache
#
# `jax.jit` caches one program for each combination of the following, and recompiles if any of them is new:
#
# - the function object: a function that is created again, or a `lambda` in a loop, is a new object
# - shapes and dtypes of all leaves, and whether a dtype is weak (a Python number)
# - the structure of PyTrees, and the values of static arguments and fields
# - shardings, the current mesh, and JAX settings such as `jax_enable_x64`
#
# The values of arrays are not part of the key. `inspect.retraces` shows the part that changed:

# %%
advance = inspect.retraces(lambda y, dt: y + dt * lorenz(y))
for dt in (0.01, 0.02, jnp.float32(0.01), jnp.float32(0.02)):
    advance(jnp.ones(3), dt)
print(advance)
assert advance.traces == 3

# %% [markdown]
# ## The persistent compilation cache
#
# Compiled programs can be stored on disk for later processes. The lowered program is the key, so tracing and lowering
# are repeated:

# %%
folder = tempfile.TemporaryDirectory()  # for as long as this process runs
jax.config.update("jax_compilation_cache_dir", folder.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
for time in ("first", "again"):
    jax.clear_caches()
    found = report(jax.jit(scanned, static_argnums=1), jnp.ones(3), 100)
    print(f"{time}: {found.times}")
assert found.times.from_cache

# %% [markdown]
# ## Choosing buckets
#
# Time series of many lengths need one program per length, or padding to buckets. Let bucket sizes grow by a factor
# $g$, from $a$ to $b$; this needs $\ln(b/a) / \ln g$ programs. Lengths that are evenly distributed within a bucket
# have the mean $\tfrac12 (1 + 1/g)$ of its size, so the work is
#
# $$\frac{2g}{1+g} \text{ times the minimum: } 1.33 \text{ for } g = 2, \; 1.2 \text{ for } g = 1.5.$$
#
# For 2000 lengths between 32 and 1024:

# %%
lengths = np.random.default_rng(0).integers(32, 1024, 2000)


def buckets(g):
    """The number of programs, and the work over what is needed."""
    sizes = 1024 / g ** np.arange(math.ceil(math.log(1024 / 32) / math.log(g)) + 1)[::-1]
    of = sizes[np.searchsorted(sizes, lengths)]
    return len(set(of)), of.sum() / lengths.sum()


for g in (2.0, 1.5, 1.25):
    programs, work = buckets(g)
    print(
        f"g = {g}: {programs} programs, {work:.2f} times the work, by the formula {2 * g / (1 + g):.2f}"
    )

# %% [markdown]
# ## Exercise 1
#
# How many programs do these calls need, and why? Count before you run them: `y` is an array of three numbers, once of
# four, once in float16, once with the Python number 1 instead of 1.0 for `dt`, once with a NumPy array instead of a
# JAX array.

# %% Answer
# Three: the first, one for the other shape, one for the other dtype. The NumPy array has the shape and dtype of the
# first. The Python number is static, and 1 equals 1.0, so it uses the same program.
euler = inspect.retraces(lambda y, dt: y - dt * y)
euler(jnp.ones(3), 1.0)
euler(jnp.ones(4), 1.0)
euler(jnp.ones(3, jnp.float16), 1.0)
euler(jnp.ones(3), 1)
euler(np.ones(3, np.float32), 1.0)
print(euler)
assert euler.traces == 3

# %% [markdown]
# ## Exercise 2
#
# A program takes two seconds to compile, and a run for a time series of mean length takes 0.1 seconds. Which $g$ is
# best for the 2000 lengths above?

# %% Answer
# The sum of both: 2 s for each of ln 32 / ln g programs, and 200 s of work times 2 g / (1 + g).
grid = np.linspace(1.02, 3.0, 100)
total = 2.0 * math.log(32) / np.log(grid) + 200 * 2 * grid / (1 + grid)
best = grid[np.argmin(total)]
counted = [2.0 * buckets(g)[0] + 200 * buckets(g)[1] for g in grid]
least = grid[np.argmin(counted)]
print(
    f"by the formula g = {best:.2f} and {min(total):.0f} s, counted g = {least:.2f} and {min(counted):.0f} s"
)
assert 1.1 < best < 1.5 and abs(min(counted) / min(total) - 1) < 0.1

# %% [markdown]
# ## Exercise 3
#
# How many equations does `unrolled` have for 30 steps? Read them off two short ones.

# %% Answer
# The number per step is constant: a line through two points.
of = {
    n: len(jax.make_jaxpr(lambda y, n=n: unrolled(y, n))(jnp.ones(3)).jaxpr.eqns)
    for n in (1, 2, 30)
}
predicted = of[1] + 29 * (of[2] - of[1])
print(f"predicted {predicted}, counted {of[30]}")
assert predicted == of[30]

# %%
work = buckets(2.0)[1]
assert abs(work - 4 / 3) < 0.05
print(
    f"figure of merit: {abs(work - 4 / 3):.3f} < 0.05 (work in buckets of powers of two, off the formula)"
)
