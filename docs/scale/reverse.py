# %% [markdown]
# # Loops, and why a while_loop has no reverse mode
#
# [Loops and branches](../learn/loops.md) says which loop has a gradient, and [Memory of a gradient](../learn/remat.md)
# how to keep less. Here is the arithmetic behind: how many bytes a loop keeps for its gradient, why that number has to
# be known, and what it costs to get by with fewer.
#
# ## What a step keeps
#
# Reverse mode runs the steps $y_{n+1} = f(y_n)$ backwards and multiplies by the transposed Jacobian of each,
#
# $$\bar y_n = \left(\frac{\partial f}{\partial y}(y_n)\right)^T \bar y_{n+1}.$$
#
# That Jacobian is made of numbers which the step computed: they are its *residuals*. `jax.vjp` returns a function with
# the residuals in it, and it is a PyTree, so they can be counted, without running anything:

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
    """Of all arrays; single numbers, such as the 0.2, are the same in all steps and kept once."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree) if leaf.ndim)


u = jax.ShapeDtypeStruct((CELLS,), jnp.float32)
kept = bytes_of(jax.eval_shape(lambda u: jax.vjp(step, u)[1], u))
print(f"a state {bytes_of(u)} bytes, residuals of a step {kept} bytes")

# %% [markdown]
# The spread is linear: its Jacobian is made of constants, and nothing is kept. The sine keeps its cosine, one number
# for each cell.
#
# ## What a scan keeps
#
# One row of residuals for each step, in an array that has to be made before the first step: its number of rows is
# part of its shape, and shapes are part of the program. A `scan` knows the number. A `while_loop` finds out when it is
# through: there is no shape for its array, and so no program. That is the whole reason. The compiler's plan for the
# scan:


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
# The loop forwards writes the cosines of all steps, the loop backwards reads them.
#
# ## Fewer bytes for more passes
#
# With $L$ levels of loops in loops, one keeps the states at which the loops of a level start, and runs a loop again
# when the gradient comes to it. Of $n = c_1 c_2 \cdots c_L$ steps it keeps $c_1 + \dots + c_L$ states at once, least
# where all are equal:
#
# $$\text{states} \approx L \, n^{1/L}, \qquad \text{forward passes} = L.$$
#
# (The step that the gradient is at keeps its residuals, too.) `checkpointed_scan` does so. Its memory, and how many
# operations its gradient has beside those of the loop itself, counted in the compiled programs:


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
# A pass takes a sine for each cell, and the step that is differentiated takes a sine and a cosine: the count above is
# of sines and cosines over the cells and steps, less one.
#
# What does that cost in time? If a pass of the loop takes $t$ and the backward pass of a step about as long as two
# steps, a gradient of $L$ levels takes $(L + 2)\,t$:

# %%
for levels in (1, 2, 3):
    beside(f"{levels} levels", (levels + 2) * forward.measured, measured[levels])

# %% [markdown]
# ## Four ways around for a loop of unknown length
#
# | | cost |
# |---|---|
# | a scan to an upper bound, which does nothing once it is done | bound over mean, in time and in memory |
# | a record of bounded size, as `solve` has it: a table of states, thinned out when full | a pass or two more |
# | forward mode: tangents are carried along | a pass for each parameter |
# | a fixed point: the implicit function theorem | one linear solve, whatever the path |
#
# The first can be written in a line. Its price, counted:


# %%
def newton(a, turns):
    """The square root of a, by a loop of fixed length."""
    return jax.lax.fori_loop(0, turns, lambda _, x: 0.5 * (x + a / x), a)


def until(a, bound):
    """The same, which stops to change anything once it is near."""

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
# A step is `u * jnp.exp(-u)` on $10^5$ cells in float32. How much does the gradient of a scan of 1000 steps keep?

# %% Answer
# What the derivative needs: by the product rule one factor each, u and exp(-u); the exponential's derivative is
# itself. JAX counts more than that, since each operation keeps its own; ask it.
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
# A million steps, and memory for 300 states. How many levels does that take?

# %% Answer
# Two keep 2 x 1000 states, three 3 x 100 = 300: three passes.
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
# How much does forward mode of `end` by the initial state's amplitude keep, for any number of steps?

# %% Answer
# The state and its tangent: nothing that grows with the number of steps, and it goes through a while loop as well.


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
