# %% [markdown]
# # Precision, stiffness, horizons
#
# Three limits hold on every machine: the number of digits (floating-point precision), the longest stable step
# (stiffness), and the time for which a derivative is meaningful (predictability of chaos). Each follows from a short
# calculation, and each determines the cost of a run. [Choosing a solver, adjoint and
# precision](../guides/decisions.md) has the resulting tables.
#
# ## Truncation and rounding errors
#
# A method of order $p$ with $n$ steps has a truncation error $\sim n^{-p}$. Every step rounds randomly by
# $\varepsilon$ = 6e-8 in float32, so the rounding error grows as $\varepsilon \sqrt n$. The sum has a minimum; beyond
# it, more steps increase the error. For the oscillator $\dot y = iy$ until $t = 10$ the error of Heun's method is $t
# h^2 / 6$:

# %%
import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import inspect
from timing import beside, seconds

EPS = 2.0**-24
print(
    f"JAX {jax.__version__} on {inspect.rates().device}; rounding {EPS:.1e} in float32, {2.0**-53:.1e} in float64"
)


@jax.jit
def heun_error(n):
    def step(_, y):
        x, v = y
        half = x + h * v, v - h * x
        return x + h / 2 * (v + half[1]), v - h / 2 * (x + half[0])

    h = 10.0 / n
    x, v = jax.lax.fori_loop(0, n, step, (jnp.float32(1.0), jnp.float32(0.0)))
    return jnp.hypot(x - np.cos(10.0), v + np.sin(10.0))


for n in 10 ** np.arange(2, 7):
    truncation, rounding = 10 * (10 / n) ** 2 / 6, EPS * n**0.5
    print(
        f"{n:8} steps: truncation {truncation:.0e}, rounding {rounding:.0e}; found {heun_error(n):.0e}"
    )
least = (10**3 / 3 / EPS * 2) ** 0.4  # where the derivative of the sum is zero
print(f"predicted: best with about {least:.0f} steps")

# %% [markdown]
# A method of higher order reaches the same error with much longer steps, and therefore with less rounding. More
# digits than that need float64.
#
# ## The cost of float64
#
# A float64 has twice the bytes, and a processor vector holds half as many: twice the time for memory-bound and for
# compute-bound programs. (On a GPU float64 runs at between 1/2 and 1/64 of the rate, on a TPU it is emulated in
# software.)


# %%
def decay(y):
    return jax.lax.fori_loop(0, 2000, lambda _, y: y - 0.001 * y * y, y)


single = seconds(jax.jit(decay), jnp.ones(2**14))
with jax.enable_x64(True):
    double = seconds(jax.jit(decay), jnp.ones(2**14, jnp.float64))
beside("2000 steps of 16384 numbers in float64", 2 * single, double)

# %% [markdown]
# ## Stiffness: the longest stable step
#
# On $\dot y = -\lambda y$ a Runge-Kutta step multiplies by the stability function $R(-h\lambda)$, a polynomial for
# explicit methods:
#
# $$R(z) = 1 + z\, b^T (1 - z A)^{-1} \mathbf 1 .$$
#
# If $|R| > 1$ the numerical solution grows without bound, however smooth the exact one is. A problem with a rate
# $\lambda$ therefore needs at least $\lambda T / S$ steps, where $S$ is the length of the interval on which $|R| \le
# 1$, for any tolerance:


# %%
def stable_length(tableau):
    """The length of the stability interval on the negative real axis."""
    stages = len(tableau.b_sol)
    a = np.zeros((stages, stages))
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    b = np.asarray(tableau.b_sol)
    for z in np.arange(0.01, 20.0, 0.01):
        if abs(1 - z * b @ np.linalg.solve(np.eye(stages) + z * a, np.ones(stages))) > 1:
            return z


length = stable_length(diffrax.Tsit5.tableau)
heun = stable_length(diffrax.Heun.tableau)
print(f"S: Heun {heun:.2f}, Tsit5 {length:.2f}")
assert abs(heun - 2) < 0.02


def relax(t, y, rate):
    return -rate * (y - jnp.cos(t))


def solved(rate, solver, t1=10.0):
    options = dict(t0=0.0, t1=t1, args=rate, rtol=1e-3, atol=1e-5, max_steps=100_000)
    return sciml.solve(relax, jnp.ones(1), solver=solver, **options)


explicit = jax.jit(lambda rate: solved(rate, diffrax.Tsit5()))
implicit = jax.jit(lambda rate: solved(rate, sciml.solvers.Rodas5P()))
counted = {}
for rate in (100.0, 1000.0, 10_000.0):
    counted[rate] = int(explicit(rate).stats.accepted)
    print(
        f"rate {rate:7.0f}: {rate * 10 / length:7.0f} steps predicted, {counted[rate]:6} taken by Tsit5,"
        f" {int(implicit(rate).stats.accepted):3} by Rodas5P"
    )

# %% [markdown]
# You can therefore predict the time of an explicit solve: the number of steps times the time of a step.

# %%
one = seconds(lambda rate: explicit(rate).ys, 1000.0) / (1000 * 10 / length)
beside(
    "Tsit5 at a rate of 10 000",
    10_000 * 10 / length * one,
    seconds(lambda r: explicit(r).ys, 10_000.0),
)

# %% [markdown]
# An implicit step has no such limit, but needs a Jacobian and a linear solve: for $n$ unknowns about $\tfrac23 n^3$
# operations, compared with $n$ or more for an explicit stage. It pays off if the number of steps decreases by this
# factor.
#
# ## Horizons: the limit of derivatives in chaos
#
# If nearby solutions diverge as $e^{\lambda t}$ (Lyapunov exponent $\lambda$), a derivative with respect to the start
# grows at the same rate, and so does the rounding error of each step. In a number format with rounding $\varepsilon$,
# a gradient has lost all digits at
#
# $$t^* = \frac{\ln(1 / \varepsilon)}{\lambda}.$$

# %%
lorenz = sciml.models.Lorenz63()
start = np.array([-3.0, -3.0, 20.0], np.float32)
found = inspect.horizon(lorenz, jnp.asarray(start), t1=40.0, error=EPS, dt=0.01)
growth = float(found.rate)
print(
    f"growth {growth:.2f} a unit of time: predicted {np.log(1 / EPS) / growth:.0f}, found {found.time:.0f}"
)


TIMES = (10.0, 20.0, 40.0)


def slopes(dtype):
    """The derivative of x at some times with respect to x at the start."""

    def at_times(x):
        y0 = jnp.stack([x, jnp.asarray(start[1], dtype), jnp.asarray(start[2], dtype)])
        options = dict(saveat=jnp.asarray(TIMES, dtype), dt=0.01, adjoint=sciml.adjoints.Direct())
        return sciml.solve(lorenz, y0, t0=0.0, t1=40.0, **options).ys[:, 0]

    return jax.jvp(jax.jit(at_times), (jnp.asarray(start[0], dtype),), (jnp.ones((), dtype),))[1]


single = slopes(jnp.float32)
with jax.enable_x64(True):
    double = np.asarray(slopes(jnp.float64))
for t, low, high in zip(TIMES, np.asarray(single), double):
    print(f"t = {t:2.0f}: float32 {low:9.2e}, float64 {high:9.2e}")
assert abs(single[0] / double[0] - 1) < 0.1 < abs(single[2] / double[2] - 1)

# %% [markdown]
# Beyond the horizon a gradient is meaningless for every adjoint: the *problem* has no answer there. Train on shorter
# intervals, or cut the data into windows ([how long a solve can be differentiated
# through](../guides/adjoints.md#chaotic-systems-gradients-over-long-times)).
#
# ## Exercise 1
#
# A run advances time in float32 by `t = t + dt` with `dt = 1e-3`. At which time does it stop?

# %% Answer
# When dt is less than half of the distance to the next number: at 2^15 that is 2^-9, half of it 0.00195. Before, from
# 2^14 on, each step is rounded up to 0.00195, and time runs twice as fast.
dt = np.float32(1e-3)
for t in (np.float32(2**14), np.float32(2**15)):
    print(f"{t:.0f} + {dt:.3f} = {t + dt:.6f}")
assert np.float32(2**15) + dt == 2**15 and np.float32(2**14) + dt == np.float32(2**14 + 2**-9)

# %% [markdown]
# ## Exercise 2
#
# The heat equation on the unit interval has rates up to $4 n^2$ for $n$ cells. How many steps does Heun's method need
# at least until $t = 0.1$ with 64 cells? Test slightly fewer and slightly more.

# %% Answer
# 4 n^2 T / S, with S = 2 for Heun's method: some 800.
needed = 4 * 64**2 * 0.1 / heun
print(f"predicted {needed:.0f} steps")


def heat(t, u, args):
    wide = jnp.pad(u, 1)
    return 64**2 * (wide[2:] - 2 * u + wide[:-2])


def largest(steps):
    noise = jax.random.normal(jax.random.key(0), (64,))
    options = dict(t0=0.0, t1=0.1, dt=0.1 / steps, solver=diffrax.Heun(), throw=False)
    return float(jnp.max(jnp.abs(sciml.solve(heat, noise, **options).ys[-1])))


less, more = largest(round(0.9 * needed)), largest(round(1.05 * needed))
print(f"{less:.0e} with a tenth less, {more:.0e} with a twentieth more")
assert not less < 1e3 and more < 1

# %% [markdown]
# ## Exercise 3
#
# Weather with the growth rate of the Lorenz system is measured to one part in a thousand. For how long can it be
# predicted, and how much longer with ten times better measurements?

# %% Answer
# ln(1000) / 0.9 = 7.6, and ln(10) / 0.9 = 2.5 more for each digit.
predicted = np.log(1e3) / growth
thousand = float(found.ts[jnp.argmax(found.growth > 1e3)])
print(
    f"predicted {predicted:.1f}, and {np.log(10) / growth:.1f} for each digit more; found {thousand:.1f}"
)
assert 0.5 < thousand / predicted < 1.7

# %%
factor = counted[10_000.0] / (10_000 * 10 / length)
assert max(factor, 1 / factor) < 1.2
print(
    f"figure of merit: {max(factor, 1 / factor):.2f} < 1.2 (steps that a stiff problem takes, beside predicted)"
)
