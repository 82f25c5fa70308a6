# %% [markdown]
# # The machine in numbers: the roofline model
#
# How long *should* your simulation take? Without an answer you cannot tell whether it is slow. The answer follows
# from three costs: computing, moving a number, and launching an operation. This chapter measures them on your machine
# and predicts the run time of programs; the other chapters use the same three numbers.
#
# The times on these pages were measured on one machine. Run the script to get yours.
#
# ## Three costs

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
# `inspect.rates` runs small programs and takes less than a second. It measures:
#
# - **Computing.** A core adds and multiplies vectors of numbers, several billion times per second. The peak rate is
#   cores x numbers per vector x vectors per cycle x cycles per second. Matrix products come close to it; `exp` and
#   `sin` count as a dozen operations or more.
# - **Moving.** Numbers come from memory through caches, each smaller and faster than the next. A loop over an array
#   that fits into a cache reads from there; over a larger array it waits for memory (bandwidth).
# - **Launching.** A call from Python, an operation in a compiled program and an iteration of a loop each have a fixed
#   overhead (latency). On a GPU this is the largest of the three.

# %%
for size, rate in rates.copies:
    print(
        f"a loop over {size / 2**20:6.2f} MiB moves {rate / 1e9:5.0f} GB/s: a float32 in {duration(4 / rate)}"
    )
print(f"in that time {4 * rates.flops / rates.bandwidth:.0f} additions or products")

# %% [markdown]
# ## The roofline
#
# A pass over an array computes and moves data at the same time, and takes as long as the slower of the two:
#
# $$t = \max\left(\frac{\text{operations}}{\text{rate}}, \frac{\text{bytes}}{\text{bandwidth}}\right)
#     + t_\text{start}.$$
#
# The number of operations per byte is the *arithmetic intensity* of a program. Below the machine's own ratio, its
# *ridge point*, the program is memory-bound and computing is free; above it, it is compute-bound. Plotted against
# intensity, this looks like a roof, hence the name (Williams, Waterman and Patterson, 2009).
#
# This program has a variable number of terms. Each term is one product and one sum, and each pass reads and writes
# every number once, for any number of terms:

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
# One and four terms take about the same time, because memory limits both. With sixteen terms, computing limits.
#
# ![The rates of the three programs and the roof of this machine, over operations for a byte](../figures/roofline.svg)
#
# A fourth cost is easy to overlook: allocating memory. On a CPU, the operating system provides a large piece of
# memory page by page, which takes longer than writing to it:

# %%
size = 2**26
beside(
    "64 MiB of new ones",
    size / rates.given(size),
    seconds(jax.jit(lambda one: jnp.full(size // 4, one)), 1.0),
)
print(f"to read and to write as many of old ones takes {duration(size / rates.copied(size))}")

# %% [markdown]
# Therefore keep loops *inside* compiled code, where memory is reused, and donate arguments that you no longer need
# ([purity, PyTrees and modules](modules.md)).
#
# ## Automatic counting with inspect.report
#
# `inspect.report` does this for every operation of a compiled program, including the iterations of loops, and prints
# the predicted and the measured time. A matrix product has $2n^3$ operations on $3n^2$ numbers:

# %%
n = 512
square = jnp.full((n, n), 1 / n)
found = report(jax.jit(lambda a: a @ a), square)
assert found.cost.flops == 2 * n**3
beside(f"product of matrices, n = {n}, by hand", 2 * n**3 / rates.products, found.measured)
beside("the same by inspect.report", found.predicted.total, found.measured)

# %% [markdown]
# If a program takes ten times as long as predicted, find the reason: [profiling and debugging](../guides/insight.md).
# If it takes the predicted time, only different arithmetic makes it faster: fewer bytes, fewer operations, fewer
# launches.
#
# ## Exercise 1
#
# What is the intensity of $x \leftarrow a x + y$, where $a$ is a number and $x$ and $y$ are arrays? Is it
# compute-bound or memory-bound?


# %% Answer
# Two operations for two numbers read and one written, twelve bytes: a sixth. This is memory-bound on every
# machine, unless the arrays fit into a cache.
def axpy(x, y, count):
    return jax.lax.fori_loop(0, count, lambda _, x: 0.5 * x + y, x)


found = report(jax.jit(axpy, static_argnums=2), x, jnp.ones(N), PASSES)
print(f"intensity {found.intensity:.3f}, ridge {rates.flops / rates.copied(12 * N):.1f}")
assert abs(found.intensity - 1 / 6) < 0.01
beside("a x + y", PASSES * 12 * N / rates.copied(12 * N), found.measured)

# %% [markdown]
# ## Exercise 2
#
# From which size on is a product of two square matrices compute-bound, if each number is moved once?

# %% Answer
# 2 n^3 operations over 12 n^2 bytes are n / 6 operations a byte: from n = 6 x the ridge on.
print(f"from n = {6 * rates.ridge:.0f} on")
for n in (48, 384):
    shape = jax.ShapeDtypeStruct((n, n), jnp.float32)  # only shapes: nothing is run
    assert abs(report(lambda a, b: a @ b, shape, shape).intensity / (n / 6) - 1) < 0.01

# %% [markdown]
# ## Exercise 3
#
# A population model has four million cells in float32 and ten thousand steps. Each step reads and writes every cell
# once and computes little. What is the minimum run time in float32 and in float64? Test it with fifty steps of
# logistic growth.


# %% Answer
# 8 bytes per cell and step, and twice as many in float64: twice as long, because it is memory-bound.
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
