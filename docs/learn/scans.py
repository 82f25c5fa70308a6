# %% [markdown]
# # unroll and associative_scan
#
# `lax.scan` runs its turns one after the other. Two variants can be faster: `unroll=` puts several short turns into
# one, and `lax.associative_scan` computes all turns of a *linear* recurrence in parallel, on a device with many lanes.
#
# ## unroll
#
# A turn of a scan has a fixed cost: a condition, a counter, and reads and writes of the rows. If the turn itself is
# short, this cost dominates. `unroll=k` compiles `k` turns as a block, which the compiler can fuse. The program and
# its compile time grow with `k`:

# %%
import time

import jax
import jax.numpy as jnp
import numpy as np

import sciml

STEPS, DT = 10_000, 1e-3


def fall(unroll):
    """Falls through air, by Euler's method; returns all speeds."""

    def step(speed, _):
        return speed + DT * (9.81 - 0.1 * speed**2), speed

    return jax.jit(lambda v: jax.lax.scan(step, v, None, length=STEPS, unroll=unroll)[1])


def operations(fn, *args):
    """The number of operations in the optimised program."""
    return sum(" = " in line for line in fn.lower(*args).compile().as_text().splitlines())


start = jnp.asarray(0.0)
sizes = {unroll: operations(fall(unroll), start) for unroll in (1, 8, 64)}
speeds = [fall(unroll)(start) for unroll in sizes]
print(sizes, "operations;", "largest difference", float(jnp.max(jnp.abs(speeds[0] - speeds[-1]))))

# %% [markdown]
# The numbers stay the same up to rounding. Measure before you keep an `unroll`, here on a CPU:

# %%


def milliseconds(fn, *args):
    """The shortest time of five calls, without compilation."""
    fn(*args).block_until_ready()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        fn(*args).block_until_ready()
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


for unroll in sizes:
    print(f"unroll={unroll}: {milliseconds(fall(unroll), start):.3f} ms")

# %% [markdown]
# Blocks of a few turns help if a turn has few operations on one small state. Large blocks take long to compile and gain
# nothing more, and a turn with a stencil or a matrix product gains nothing at all.
#
# ## associative_scan
#
# A linear recurrence $y_{n+1} = a_n y_n + b_n$ is a chain of maps $y \mapsto a y + b$. Two maps in succession are one
# such map, with $(a, b)$ then $(a', b')$ giving $(a' a,\; a' b + b')$. Composition is associative, so the chain can be
# evaluated as a tree: `associative_scan` needs about $2 \log_2 n$ rounds, each of them parallel, instead of $n$
# turns. It does about twice the arithmetic and passes over memory in each round, so it pays on devices with many idle
# lanes: one long series on a GPU, not ten thousand short ones. On a CPU the loop is usually faster.
#
# A room follows the temperature outside, $\dot T = k(t) \, (A(t) - T)$. With $k$ and $A$ held at their values in the
# middle of each step, the solution of the step is exact and linear in $T$:

# %%
ts = jnp.linspace(0.0, 48.0, 4097)
h = ts[1] - ts[0]
T0 = 20.0


def conductance(t):
    return 0.3 + 0.1 * jnp.sin(t)


def outside(t):
    return 15.0 + 8.0 * jnp.sin(2 * jnp.pi * t / 24.0)


middle = ts[:-1] + h / 2
k, air = conductance(middle), outside(middle)


def compose(first, second):
    """The map of `first`, then of `second`."""
    (a, b), (c, d) = first, second
    return c * a, c * b + d


@jax.jit
def in_parallel(k, air):
    a = jnp.exp(-k * h)
    slopes, offsets = jax.lax.associative_scan(compose, (a, (1 - a) * air))
    return slopes * T0 + offsets


@jax.jit
def one_by_one(k, air):
    def step(T, inputs):
        k, air = inputs
        T = air + (T - air) * jnp.exp(-k * h)
        return T, T

    return jax.lax.scan(step, T0, (k, air))[1]


apart = float(jnp.max(jnp.abs(in_parallel(k, air) - one_by_one(k, air))))
print(f"tree and chain differ by {apart:.1e} of {T0} degrees")
text = in_parallel.lower(k, air).as_text()
print("loops in the program of the tree:", text.count("stablehlo.while"))
tree_ms, chain_ms = milliseconds(in_parallel, k, air), milliseconds(one_by_one, k, air)
print(f"on this CPU: tree {tree_ms:.3f} ms, chain {chain_ms:.3f} ms")

# %% [markdown]
# `compose` must be associative, and takes stacks of maps: write it with elementwise operations. Sums, products and
# maxima are special cases (`jnp.cumsum`, `jnp.cumprod`, `lax.cummax`). A matrix recurrence composes with `@` on the
# last two axes; this is how state space layers and Kalman filters run in parallel. Both loops have gradients:

# %%
by_tree, by_chain = (
    jax.grad(lambda k: jnp.mean(run(k, air)))(k) for run in (in_parallel, one_by_one)
)
print(f"gradients differ by {float(jnp.max(jnp.abs(by_tree - by_chain))):.1e}")
assert jnp.allclose(by_tree, by_chain, atol=1e-5)

# %% [markdown]
# ## Exercise
#
# The discounted sum $s_n = x_n + \gamma s_{n+1}$ runs backwards in time. Compute it with `associative_scan` (it has
# an argument `reverse`) for `x = [1, 2, 3]` and $\gamma = 0.5$, where $s_4 = 0$. With `reverse=True` the first argument
# of `compose` is the later time.

# %% Answer
# Each element is the map from s to gamma s + x_n. The offset of the composed maps is the sum.
x = jnp.array([1.0, 2.0, 3.0])
_, sums = jax.lax.associative_scan(compose, (jnp.full(3, 0.5), x), reverse=True)
print(sums)
assert np.allclose(sums, [1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3])

# %% [markdown]
# ## Use in sciml
#
# Steps of a nonlinear equation are not linear maps, so `sciml.solve` runs them one after the other and finds its
# parallelism in members and cells ([lanes](../scale/lanes.md)). A long linear series with given inputs is the case for
# `associative_scan`. A solve of the same room, with adaptive steps and no held values, agrees:


# %%
def room(t, T, args):
    return conductance(t) * (outside(t) - T)


options = dict(t0=0.0, t1=48.0, saveat=ts[1:], rtol=1e-5, atol=1e-5)
sol = sciml.solve(room, jnp.asarray(T0), **options)
error = float(jnp.max(jnp.abs(sol.ys - in_parallel(k, air))))
assert error < 5e-3
print(f"figure of merit: {error:.1e} < 5e-03 (degrees between a solve and the tree of exact steps)")
