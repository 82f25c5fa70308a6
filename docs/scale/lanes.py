# %% [markdown]
# # Lanes: vectorised ensembles
#
# An ensemble solves a small model for many members at once. [`vmap`](../learn/vmap.md) generates the program; this
# chapter predicts its run time. The arithmetic of one step gives the roofline, the launch overhead gives the number
# of members that it needs, and the member with the most steps determines how long the others wait.
#
# ## Counting the operations of a step
#
# The example is the classical fourth-order Runge-Kutta method for the Lorenz equations, with one array per component.
# A *lane* is one position in these arrays: the numbers of one member.

# %%
from typing import ClassVar

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import inspect
from timing import beside, duration, report, seconds

H = 0.01
rates = inspect.rates()
print(f"JAX {jax.__version__} on {rates.device}")


def lorenz(x, y, z):
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - (8 / 3) * z


def rk4(s):
    a = lorenz(*s)
    b = lorenz(*(u + H / 2 * k for u, k in zip(s, a)))
    c = lorenz(*(u + H / 2 * k for u, k in zip(s, b)))
    d = lorenz(*(u + H * k for u, k in zip(s, c)))
    return tuple(u + H / 6 * (p + 2 * q + 2 * r + w) for u, p, q, r, w in zip(s, a, b, c, d))


counted = len(jax.make_jaxpr(rk4)((1.0, 1.0, 1.0)).jaxpr.eqns)
print(
    f"a field: 2 + 3 + 3 = 8; a step: 4 x 8 + 9 x 2 + 3 x 7 = {4 * 8 + 9 * 2 + 3 * 7}, counted {counted}"
)
assert counted == 71

# %% [markdown]
# There are four evaluations of the field, nine stage inputs with a product and a sum each, and seven operations for
# each component of the result. Three numbers are read and three written: 24 bytes. The intensity of a step is
# therefore 71 / 24, about three operations per byte. For arrays that fit into a cache it is compute-bound, if the
# step is *one pass*: it reads a state, keeps all intermediate values in registers, and writes the next state.
#
# $$t_\text{step} = \max\left(\frac{71\,N}{\text{rate}}, \frac{24\,N}{\text{bandwidth}}\right) + t_\text{start}$$
#
# ## Three implementations
#
# The same loop in three ways: states as rows of a matrix under `vmap`; one array per component; and `sciml.solve`
# under `vmap`, which reads the method from a diffrax tableau.


# %%
def rows(y):
    def field(y):
        return jnp.stack(lorenz(y[0], y[1], y[2]))

    a = field(y)
    b = field(y + H / 2 * a)
    c = field(y + H / 2 * b)
    d = field(y + H * c)
    return y + H / 6 * (a + 2 * b + 2 * c + d)


class RK4(diffrax.AbstractERK):
    tableau: ClassVar[diffrax.ButcherTableau] = diffrax.ButcherTableau(
        c=np.array([0.5, 0.5, 1.0]),
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1.0, 2.0, 2.0, 1.0]) / 6,
        b_error=np.zeros(4),  # none: for fixed steps only
    )
    interpolation_cls = diffrax.LocalLinearInterpolation

    def order(self, terms):
        return 4


def by_rows(y, count):
    return jax.lax.fori_loop(0, count, lambda _, y: jax.vmap(rows)(y), y)


def by_components(s, count):
    return jax.lax.fori_loop(0, count, lambda _, s: rk4(s), s)


def by_solve(y, count):
    def end(y0):
        options = dict(t0=0.0, t1=count * H, dt=H, solver=RK4(), throw=False)
        return sciml.solve(lambda t, y, args: jnp.stack(lorenz(*y)), y0, **options).ys[-1]

    return jax.vmap(end)(y)


N, COUNT = 4096, 200
split = tuple(jnp.full(N, value) for value in (1.0, 2.0, 20.0))
matrix = jnp.stack(split, axis=1)
best = COUNT * (max(71 * N / rates.flops, 24 * N / rates.copied(24 * N)) + rates.launch)
print(f"one pass a step would take {duration(best)} for {COUNT} steps")
moved, taken = {}, {}
for name, fn, argument in (
    ("rows of a matrix", by_rows, matrix),
    ("an array a component", by_components, split),
    ("vmap of sciml.solve", by_solve, matrix),
):
    found = report(jax.jit(fn, static_argnums=1), argument, COUNT)
    moved[name], taken[name] = found.cost.bytes_accessed / N / COUNT, found.measured
    print(f"{name}: {moved[name]:.0f} bytes for a member and step")
    beside(name, found.predicted.total, found.measured)

# %% [markdown]
# Rows of a matrix are taken apart and put together in every stage, and each of these is a pass over memory. With one
# array per component, XLA generates a loop for each *result*, which on a CPU recomputes much of the step: three
# passes instead of one. `sciml.solve` stores members along lanes and makes XLA generate one loop for all three
# results, so it moves only the necessary bytes. Check the number of bytes of any implementation.
#
# ## The number of members
#
# Launching an operation takes the same time for one lane as for thousands. If the work of a step equals its launch
# overhead, half of the time is lost:

# %%
per_lane = found.measured / COUNT / N
few = seconds(jax.jit(by_solve, static_argnums=1), matrix[:32], COUNT) / COUNT
print(f"a member and step: {duration(few / 32)} for 32 members, {duration(per_lane)} for {N}")
print(f"what starts is worth the work of {few / per_lane - 32:.0f} lanes")

# %% [markdown]
# On a GPU, a launch costs microseconds, and the work of a lane nanoseconds divided by thousands of cores. The same
# number is then in the tens of thousands, so GPUs need many members.
#
# ## Lockstep and lane efficiency
#
# With error control, members take different numbers of steps, $n_i$. One loop for all of them runs $\max n_i$ times,
# and a lane that is done waits. The useful share of the work is the lane efficiency
#
# $$\eta = \frac{\text{mean}(n_i)}{\max(n_i)}$$
#
# The example is an ensemble of van der Pol oscillators, from harmonic to stiff:


# %%
def oscillator(mu, batching="lockstep"):
    def field(t, y, args):
        return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    options = dict(t0=0.0, t1=10.0, rtol=1e-3, atol=1e-4, batching=batching, throw=False)
    return sciml.solve(field, jnp.array([2.0, 0.0]), **options)


MEMBERS, BLOCK = 4096, 1024
mus = np.random.default_rng(0).permutation(np.logspace(-1.0, 1.5, MEMBERS)).astype(np.float32)
lockstep = jax.jit(jax.vmap(oscillator))
stats = lockstep(jnp.asarray(mus)).stats
steps = np.asarray(stats.accepted + stats.rejected)
share = steps.mean() / steps.max()
print(f"steps: mean {steps.mean():.0f}, most {steps.max()}; share {share:.2f}")
assert abs(float(stats.lane_efficiency) - share) < 1e-3

# %% [markdown]
# An iteration costs its launch overhead and the work of its lanes, $a + bN$. The first 1024 members and all members
# determine $a$ and $b$. These predict the time if members are sorted by their number of steps and run in four blocks,
# each until its own slowest member is done:

# %%
part = jnp.asarray(np.append(mus[: BLOCK - 1], mus[np.argmax(steps)]))  # with the slowest of all
times = [seconds(lambda mu: lockstep(mu).ys, mu) / steps.max() for mu in (part, jnp.asarray(mus))]
work = (times[1] - times[0]) / (MEMBERS - BLOCK)
start = times[0] - BLOCK * work
blocks = jax.jit(lambda mu: jax.lax.map(jax.vmap(oscillator), mu.reshape(-1, BLOCK)).ys)
in_order = np.argsort(steps)
turns = steps[in_order].reshape(-1, BLOCK).max(axis=1)
beside(
    f"sorted blocks, share {steps.mean() / turns.mean():.2f}",
    float(turns.sum()) * (start + BLOCK * work),
    seconds(blocks, jnp.asarray(mus[in_order])),
)
print(f"lockstep took {duration(times[1] * steps.max())}")

# %% [markdown]
# ## Refill: dynamic scheduling
#
# Refill does not need the numbers of steps in advance. There are fewer lanes than members, and a lane whose member is
# done starts the next one, like a queue with several counters. With $L$ lanes none is idle before the queue is empty,
# so the loop runs at most about
#
# $$\frac{\sum n_i}{L} + \max n_i \text{ times, and the efficiency is close to one if } \sum n_i \gg L \max n_i.$$

# %%
refill = jax.jit(jax.vmap(lambda mu: oscillator(mu, "refill")))
shared = float(refill(jnp.asarray(mus)).stats.lane_efficiency)
time = seconds(lambda mu: refill(mu).ys, jnp.asarray(mus))
print(f"share {shared:.2f} in place of {share:.2f}; {duration(time)}")
assert shared > 2 * share

# %% [markdown]
# Testing which members are done, and loading the next ones, costs time in each iteration, so the time decreases less
# than the number of steps. A gradient runs in lockstep: sort its members. See also
# [ensembles](../guides/ensembles.md#unequal-members-lockstep-and-refill) and the tutorial [ten thousand
# members](../tutorials/ten_thousand_members.md).
#
# ## Exercise 1
#
# For Heun's method and the Lotka-Volterra equations, $\dot x = a x - b x y$, $\dot y = d x y - c y$: how many
# operations and how many bytes does a step of a lane need, and what is the intensity?


# %% Answer
# The field: x y (1); a x, b x y and their difference (3); d x y, c y and theirs (3): 7. Two fields; two inputs of the
# second stage with a product and a sum each (4); for each result a sum, a product and a sum (6): 24 operations. Two
# numbers read, two written: 16 bytes. That is 1.5 operations a byte.
def heun(s):
    def field(x, y):
        met = x * y
        return 1.1 * x - 0.4 * met, 0.1 * met - 0.4 * y

    first = field(*s)
    second = field(*(u + H * k for u, k in zip(s, first)))
    return tuple(u + H / 2 * (p + q) for u, p, q in zip(s, first, second))


found = len(jax.make_jaxpr(heun)((1.0, 1.0)).jaxpr.eqns)
print(f"{found} operations, 16 bytes, intensity {found / 16:.1f}")
assert found == 2 * 7 + 2 * 2 + 2 * 3

# %% [markdown]
# ## Exercise 2
#
# The numbers of steps often have an exponential distribution: many are short, few are long. What is the lane
# efficiency in lockstep for 100 and for 10,000 members?

# %% Answer
# The largest of N has the mean 1 + 1/2 + ... + 1/N times that of one: it grows with ln N.
rng = np.random.default_rng(1)
for n in (100, 10_000):
    predicted = 1 / np.sum(1 / np.arange(1, n + 1))
    drawn = rng.exponential(size=(400, n))
    counted = np.mean(drawn.mean(axis=1) / drawn.max(axis=1))
    print(f"{n} members: predicted {predicted:.3f}, drawn {counted:.3f}")
    assert abs(counted / predicted - 1) < 0.1

# %% [markdown]
# ## Exercise 3
#
# What is the efficiency of the same members, sorted, in ten blocks of a thousand?

# %% Answer
# Block k of ten ends at the (k/10)-quantile, -ln(1 - k/10), and the last one at the largest of all.
n, count = 10_000, 10
ends = [-np.log(1 - k / count) for k in range(1, count)] + [np.sum(1 / np.arange(1, n + 1))]
predicted = 1 / np.mean(ends)
drawn = np.sort(rng.exponential(size=(100, n)), axis=1)
counted = np.mean(drawn.mean(axis=1) / drawn.reshape(100, count, -1).max(axis=2).mean(axis=1))
print(f"predicted {predicted:.2f}, drawn {counted:.2f}")
assert abs(counted / predicted - 1) < 0.05

# %%
ratio = moved["vmap of sciml.solve"] / 24
assert ratio < 1.5 < moved["an array a component"] / 24
print(
    f"figure of merit: {ratio:.2f} < 1.5 (bytes of a step of sciml.solve, over those that have to be moved)"
)
