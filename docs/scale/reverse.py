# %% [markdown]
# # Loops, and why a while_loop has no reverse mode
#
# [Loops and branches](../learn/loops.md) lists which loops have gradients, and [rematerialisation](../learn/remat.md)
# reduces their memory. This chapter computes how many bytes a loop stores for its gradient, explains why this number
# must be known in advance, and gives the cost of storing fewer (checkpointing).
#
# ## Residuals of a step
#
# Reverse mode runs the steps $y_{n+1} = f(y_n)$ backwards and multiplies by the transposed Jacobian of each,
#
# $$\bar y_n = \left(\frac{\partial f}{\partial y}(y_n)\right)^T \bar y_{n+1}.$$
#
# This Jacobian consists of values that the step computed, its *residuals*. `jax.vjp` returns a function that contains
# the residuals. It is a PyTree, so you can count them without running anything:

# %%
import jax
import jax.numpy as jnp

import sciml
from sciml import inspect
from timing import beside, report

print(f"JAX {jax.__version__} on {inspect.rates().device}")
CELLS, STEPS = 1000, 4096


def step(u):
    spread = jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)
    return u + 0.2 * spread + 0.1 * jnp.sin(u)


def bytes_of(tree):
    """Bytes of all arrays; single numbers, such as the 0.2, are the same in all steps and stored once."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree) if leaf.ndim)


u = jax.ShapeDtypeStruct((CELLS,), jnp.float32)
kept = bytes_of(jax.eval_shape(lambda u: jax.vjp(step, u)[1], u))
print(f"a state {bytes_of(u)} bytes, residuals of a step {kept} bytes")

# %% [markdown]
# The spread is linear: its Jacobian is constant, and nothing is stored. The sine stores its cosine, one number per
# cell.
#
# ## Memory of a scan
#
# A scan stores one row of residuals per step, in an array that is allocated before the first step. The number of rows
# is part of its shape, and shapes are part of the program. A `scan` knows this number. A `while_loop` only knows it
# at the end, so its array has no shape, and there is no program. This is the whole reason. The compiler's memory plan
# for the scan:


# %%
def end(u, scan):
    return jnp.sum(scan(lambda u, _: (step(u), None), u, None, length=STEPS)[0] ** 2)


def temporaries(scan):
    return inspect.memory(jax.grad(lambda u: end(u, scan)), u).temporaries


planned = temporaries(jax.lax.scan)
print(f"predicted {STEPS * kept} bytes, planned {planned}")
assert 1 <= planned / (STEPS * kept) < 1.02
jaxpr = jax.make_jaxpr(jax.grad(lambda u: end(u, jax.lax.scan)))(u)
for eqn in jaxpr.jaxpr.eqns:
    if eqn.primitive.name == "scan":
        way = "backwards" if eqn.params["reverse"] else "forwards"
        stacked = [
            v.aval.str_short() for v in (*eqn.invars, *eqn.outvars) if f"[{STEPS}," in str(v.aval)
        ]
        print(f"scan {way}: {stacked}")

# %% [markdown]
# The forward loop writes the cosines of all steps, and the backward loop reads them.
#
# ## Checkpointing: less memory for more passes
#
# With $L$ levels of nested loops, store only the states at which the loops of a level start, and run a loop again
# when the gradient reaches it. For $n = c_1 c_2 \cdots c_L$ steps this stores $c_1 + \dots + c_L$ states at a time,
# which is smallest if all are equal:
#
# $$\text{states} \approx L \, n^{1/L}, \qquad \text{forward passes} = L.$$
#
# (The current step also stores its residuals.) `checkpointed_scan` implements this. The compiled programs give its
# memory, and the number of operations of its gradient compared with the loop itself:


# %%
def by_levels(levels):
    return lambda *args, **how: sciml.checkpointed_scan(*args, **how, levels=levels)


start = jnp.sin(jnp.linspace(0.0, 6.0, CELLS))
forward = report(jax.jit(lambda u: end(u, jax.lax.scan)), start)
sines = CELLS * STEPS
ratios, measured = {}, {}
for levels in (1, 2, 3):
    gradient = report(jax.jit(jax.grad(lambda u, levels=levels: end(u, by_levels(levels)))), start)
    states = levels * STEPS ** (1 / levels)
    measured[levels] = gradient.measured
    ratios[levels] = gradient.compiled.memory.temporaries / bytes_of(u) / states
    print(
        f"{levels} levels: {states:6.0f} states predicted, {ratios[levels] * states:6.0f} planned;"
        f" {levels} passes predicted, {gradient.cost.transcendentals / sines - 1:.1f} counted"
    )

# %% [markdown]
# A pass computes one sine per cell, and the differentiated step a sine and a cosine: the count above is the number of
# sines and cosines per cell and step, minus one.
#
# To predict the time: if a pass of the loop takes $t$, and the backward pass of a step about as long as two steps, a
# gradient with $L$ levels takes $(L + 2)\,t$:

# %%
for levels in (1, 2, 3):
    beside(f"{levels} levels", (levels + 2) * forward.measured, measured[levels])

# %% [markdown]
# ## Gradients of loops with unknown length
#
# | Method | Cost |
# |---|---|
# | a scan to an upper bound, which does nothing once it is done | bound divided by mean, in time and in memory |
# | a record of bounded size, as in `solve`: a table of states that is thinned when full | one or two more passes |
# | forward mode: tangents are carried along | one pass per parameter |
# | a fixed point: the implicit function theorem | one linear solve, for any path |
#
# The first one is a single line of code. Its cost, counted:


# %%
def newton(a, turns):
    """The square root of a, by a loop of fixed length."""
    return jax.lax.fori_loop(0, turns, lambda _, x: 0.5 * (x + a / x), a)


def until(a, bound):
    """The same with a fixed number of iterations; it stops changing once it has converged."""

    def turn(x, _):
        new = 0.5 * (x + a / x)
        return jnp.where(jnp.abs(x * x - a) < 1e-6 * a, x, new), None

    return jax.lax.scan(turn, a, None, length=bound)[0]


a = jnp.linspace(1.1, 2.0, 1000)
needed = report(jax.jit(lambda a: newton(a, 5)), a).cost.flops
bounded = report(jax.jit(lambda a: until(a, 50)), a).cost.flops
print(f"a bound of 50 for 5 turns, with a test in each: {bounded / needed:.0f} times the work")
slope = jax.vmap(jax.grad(lambda a: until(a, 50)))(a)
assert jnp.allclose(slope, 0.5 / jnp.sqrt(a), rtol=1e-2)

# %% [markdown]
# ## Exercise 1
#
# A step is `u * jnp.exp(-u)` on $10^5$ cells in float32. How much memory does the gradient of a scan of 1000 steps
# need?

# %% Answer
# By the product rule the derivative needs both factors, u and exp(-u); the derivative of the exponential is
# itself. JAX stores more, because each operation stores its own residuals.
cells = jax.ShapeDtypeStruct((100_000,), jnp.float32)


def decay(u):
    return u * jnp.exp(-u)


row = bytes_of(jax.eval_shape(lambda u: jax.vjp(decay, u)[1], cells))


def thousand(u):
    return jnp.sum(jax.lax.scan(lambda u, _: (decay(u), None), u, None, length=1000)[0])


found = inspect.memory(jax.grad(thousand), cells).temporaries
print(
    f"{row / bytes_of(cells):.0f} numbers a cell and step; "
    f"predicted {1000 * row / 1e6:.0f} MB, planned {found / 1e6:.0f} MB"
)
assert 1 <= found / (1000 * row) < 1.02

# %% [markdown]
# ## Exercise 2
#
# A run has a million steps, and the memory holds 300 states. How many levels does the gradient need?

# %% Answer
# Two levels store 2 x 1000 states, three levels 3 x 100 = 300: three passes.
least = next(levels for levels in range(1, 9) if levels * 1e6 ** (1 / levels) <= 300.5)


def million(u, **how):
    return jnp.sum(
        sciml.checkpointed_scan(lambda u, _: (step(u), None), u, length=10**6, **how)[0] ** 2
    )


kept_by = inspect.memory(jax.grad(lambda u: million(u, levels=least)), u).temporaries
print(f"{least} levels, planned {kept_by / bytes_of(u):.0f} states")
assert least == 3 and kept_by < 320 * bytes_of(u)

# %% [markdown]
# ## Exercise 3
#
# How much memory does forward mode of `end` with respect to the amplitude of the initial state need, for any number
# of steps?

# %% Answer
# The state and its tangent, for any number of steps; this also works with a while loop.


def tangent(u, count):
    def turn(c):
        return step(c[0]), c[1] + 1

    def run(scale):
        return jnp.sum(jax.lax.while_loop(lambda c: c[1] < count, turn, (scale * u, 0))[0] ** 2)

    return jax.jvp(run, (1.0,), (1.0,))[1]


sizes = [
    inspect.memory(lambda u, count=count: tangent(u, count), u).temporaries / bytes_of(u)
    for count in (100, 10_000)
]
print(f"{sizes[0]:.0f} states for 100 steps, {sizes[1]:.0f} for 10 000")
assert sizes[0] == sizes[1] < 8

# %%
worst = max(abs(ratio - 1) for ratio in ratios.values())
assert worst < 0.1
print(f"figure of merit: {worst:.2f} < 0.1 (memory that was planned, off the formula)")
