# %% [markdown]
# # The machine in numbers
#
# How long *should* your simulation take? Without an answer nobody can say that it is slow. The answer is arithmetic
# with three prices: what it costs to compute, what it costs to move a number, and what it costs to start something.
# This chapter measures the three on your machine and predicts programs with them; the other chapters use nothing
# else.
#
# Times on these pages are those of the machine that made them. Run the script, and they are yours.
#
# ## Three prices

# %%
import os

import jax
import jax.numpy as jnp

from sciml import inspect
from timing import beside, duration, report, seconds

rates = inspect.rates()
print(f"JAX {jax.__version__} on {rates.device}, {os.cpu_count()} cores")
print(rates)
print(
    f"an iteration of a small loop takes {duration(rates.iteration)}, starting an operation "
    f"{duration(rates.launch)}, a call from Python {duration(rates.call)}"
)

# %% [markdown]
# `inspect.rates` runs small programs and takes less than a second. Where its numbers come from:
#
# - **Computing.** A core adds and multiplies vectors of numbers, some billion times a second. Cores, numbers in a
#   vector, vectors a cycle and cycles a second, multiplied, are the most that there is. Products of matrices come near
#   to it; `exp` and `sin` are a dozen operations and more each.
# - **Moving.** Numbers come from memory by way of caches, each smaller and faster than the next. A loop over an array
#   that fits a cache reads it from there; over a larger one it waits for memory.
# - **Starting.** A call from Python, an operation within a compiled program, an iteration of a loop: each takes its
#   time before it does anything. On a GPU these are the largest of all.

# %%
for size, rate in rates.copies:
    print(
        f"a loop over {size / 2**20:6.2f} MiB moves {rate / 1e9:5.0f} GB/s: a float32 in {duration(4 / rate)}"
    )
print(f"in that time {4 * rates.flops / rates.bandwidth:.0f} additions or products")

# %% [markdown]
# ## The roofline
#
# A pass over an array computes and moves at the same time, and takes as long as the slower of the two:
#
# $$t = \max\left(\frac{\text{operations}}{\text{rate}}, \frac{\text{bytes}}{\text{bandwidth}}\right)
#     + t_\text{start}.$$
#
# Operations for each byte are called the *intensity* of a program. Below the machine's own ratio, its *ridge*, memory
# decides and computing costs nothing; above it, the other way round. Drawn over the intensity that is a roof with one
# slope, hence the name (Williams, Waterman and Patterson, 2009).
#
# Here is a pass with a number of terms to choose. Each is one product and one sum, and each pass reads and writes
# every number once, whatever the number of terms:

# %%
N, PASSES = 2**22, 32


def passes(x, terms):
    def one(_, x):
        for _ in range(terms):
            x = x * 0.999 + 0.001
        return x

    return jax.lax.fori_loop(0, PASSES, one, x)


x = jnp.ones(N)
print(f"ridge: {rates.flops / rates.copied(8 * N):.1f} operations for each byte")
for terms in (1, 4, 16):
    compute, move = 2 * terms * N / rates.flops, 8 * N / rates.copied(8 * N)
    measured = seconds(jax.jit(passes, static_argnums=1), x, terms)
    beside(
        f"{terms:2} terms, {2 * terms / 8:4.2f} for a byte", PASSES * max(compute, move), measured
    )

# %% [markdown]
# One term or four: about the same time, since memory decides. With sixteen, computing does.
#
# There is a fourth price, which one forgets. A result needs memory, and on a CPU the system gives a large piece of it
# page by page. That takes longer than writing to it:

# %%
size = 2**26
beside(
    "64 MiB of new ones",
    size / rates.given(size),
    seconds(jax.jit(lambda one: jnp.full(size // 4, one)), 1.0),
)
print(f"to read and to write as many of old ones takes {duration(size / rates.copied(size))}")

# %% [markdown]
# So keep loops *inside* of what is compiled, where memory is used again, and donate arguments that you do not need any
# more ([Purity, PyTrees and modules](modules.md)).
#
# ## The library counts for you
#
# `inspect.report` does this for every operation of a compiled program, loops as often as they run, and prints the sum
# beside the time that it measures. A product of matrices has $2n^3$ operations on $3n^2$ numbers:

# %%
n = 512
square = jnp.full((n, n), 1 / n)
found = report(jax.jit(lambda a: a @ a), square)
assert found.cost.flops == 2 * n**3
beside(f"product of matrices, n = {n}, by hand", 2 * n**3 / rates.products, found.measured)
beside("the same by inspect.report", found.predicted.total, found.measured)

# %% [markdown]
# If a program takes ten times as long as its sum, find out why: [Why is it slow](../guides/insight.md). If it takes
# what it should, nobody makes it faster but by changing the arithmetic: fewer bytes, fewer operations, fewer starts.
#
# ## Exercise 1
#
# What is the intensity of $x \leftarrow a x + y$, where $a$ is a number and $x$ and $y$ are arrays? Does computing or
# moving decide?


# %% Answer
# Two operations for two numbers that are read and one that is written, twelve bytes: a sixth. Moving decides on every
# machine that there is, as long as the arrays fit no cache.
def axpy(x, y, count):
    return jax.lax.fori_loop(0, count, lambda _, x: 0.5 * x + y, x)


found = report(jax.jit(axpy, static_argnums=2), x, jnp.ones(N), PASSES)
print(f"intensity {found.intensity:.3f}, ridge {rates.flops / rates.copied(12 * N):.1f}")
assert abs(found.intensity - 1 / 6) < 0.01
beside("a x + y", PASSES * 12 * N / rates.copied(12 * N), found.measured)

# %% [markdown]
# ## Exercise 2
#
# From which size on does computing decide in a product of two square matrices, if each number is moved once?

# %% Answer
# 2 n^3 operations over 12 n^2 bytes are n / 6 operations a byte: from n = 6 x the ridge on.
print(f"from n = {6 * rates.ridge:.0f} on")
for n in (48, 384):
    shape = jax.ShapeDtypeStruct((n, n), jnp.float32)  # shapes alone: nothing is run
    assert abs(report(lambda a, b: a @ b, shape, shape).intensity / (n / 6) - 1) < 0.01

# %% [markdown]
# ## Exercise 3
#
# A population on four million cells in float32, ten thousand steps. Each step reads and writes every cell once and
# computes little. How long, at least, and how long in float64? Test it with fifty steps of a logistic growth.


# %% Answer
# 8 bytes for a cell and step, and twice as many in float64: twice as long, since memory decides.
def grow(u, count):
    return jax.lax.fori_loop(0, count, lambda _, u: u + 0.01 * u * (1 - u), u)


cells, count = 4_000_000, 50
found = report(jax.jit(grow, static_argnums=1), jnp.full(cells, 0.1), count)
moved = found.cost.bytes_accessed / count / cells
step = 8 * cells / rates.copied(8 * cells)
print(f"counted {moved:.1f} bytes for a cell and step")
print(f"ten thousand steps take {1e4 * step:.0f} s, in float64 {2e4 * step:.0f} s")
beside("fifty steps", count * step, found.measured)
ratio = moved / 8
assert ratio < 1.1

# %%
assert ratio < 1.1
print(f"figure of merit: {ratio:.2f} < 1.1 (bytes that are moved, over those that have to be)")
