# %% [markdown]
# # Debugging a compiled simulation: finding NaNs
#
# A compiled program has no lines to stop at and no `print`. The most common failure of a simulation is a number that
# becomes NaN or infinite and spreads. This lesson makes such a run fail, and finds the step, the operation and the
# reason in five ways.
#
# ## Example: gravitational collapse
#
# A particle falls from rest towards a mass at the origin. It arrives after $\pi / \sqrt 8 \approx 1.11$, where the
# force is infinite:

# %%
import contextlib
import io
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

import sciml

START = jnp.array([1.0, 0.0])  # distance and speed
EXACT = math.pi / 8**0.5


def fall(y, dt):
    r, v = y
    inner = jnp.sqrt(r)  # a negative argument after it has passed the origin
    v = v - dt / (inner * r * inner)
    return jnp.stack([r + dt * v, v])


def run(y, steps=1300, dt=0.001):
    return jax.lax.fori_loop(0, steps, lambda _, y: fall(y, dt), y)


print("at the end:", jax.jit(run)(START))

# %% [markdown]
# ## 1. Store the trajectory
#
# The cheapest way is a scan that returns every state. The first row that is not finite gives the step:

# %%
rows = jax.lax.scan(lambda y, _: (fall(y, 0.001), y), START, None, length=1300)[1]
first = int(jnp.argmin(jnp.isfinite(rows).all(axis=1)))
print(f"first NaN after step {first}; before it {rows[first - 1]}, {rows[first - 2]}")

# %% [markdown]
# ## 2. jax.debug.print
#
# It prints at run time, under `jit`, `vmap` and in loops. Print only rare cases, or the output is as long as the run:


# %%
def watched(y, dt):
    new = fall(y, dt)
    trouble = (y[0] > 0) & (new[0] <= 0)
    jax.lax.cond(
        trouble, lambda: jax.debug.print("passed the origin: {} -> {}", y, new), lambda: None
    )
    return new


jax.block_until_ready(
    jax.jit(lambda y: jax.lax.fori_loop(0, 1300, lambda _, y: watched(y, 0.001), y))(START)
)
jax.effects_barrier()  # waits for the printed text

# %% [markdown]
# ## 3. debug_nans: find the operation
#
# With `jax_debug_nans`, JAX checks the result of every compiled function. If it contains a NaN, JAX runs the function
# again, operation by operation, until one produces it. The traceback ends at your line. This is slow, so enable it
# only for the failing run, with `JAX_DEBUG_NANS=1` in the environment or in a block:

# %%
with jax.debug_nans(True):
    try:
        jax.jit(fall)(rows[first - 1], 0.001)
    except FloatingPointError as error:
        print(str(error).splitlines()[0][:80])
    else:
        raise AssertionError("a NaN that was not seen")

# %% [markdown]
# ## 4. disable_jit: run as Python
#
# `with jax.disable_jit():` runs everything as Python, including loops, so that `breakpoint()`, `print` and a debugger
# show values. Run a few steps from just before the failure:

# %%
printed = io.StringIO()
with jax.disable_jit(), contextlib.redirect_stdout(printed):
    jax.lax.fori_loop(0, 2, lambda i, y: print(i, float(y[0])) or fall(y, 0.001), rows[first - 2])
print(printed.getvalue().strip())

# %% [markdown]
# ## 5. checkify: assertions in compiled code
#
# A check in a compiled function cannot raise. `checkify` returns errors as values, which you raise after the program
# has returned:


# %%
def checked(y):
    def step(_, y):
        new = fall(y, 0.001)
        checkify.check(new[0] > 0, "distance {r} is not positive", r=new[0])
        return new

    return jax.lax.fori_loop(0, 1300, step, y)


error, _ = jax.jit(checkify.checkify(checked))(START)
message = error.get()
print(re.sub(r" \(.*", "", message.splitlines()[0]))
assert "is not positive" in message

# %% [markdown]
# `checkify.checkify(f, errors=checkify.float_checks)` adds checks for NaN and division by zero to all operations.
#
# ## Error messages of JAX
#
# These errors occur during tracing, before the program runs. Each has one usual cause:
#
# | Error | Usual cause | Remedy |
# |---|---|---|
# | `TracerBoolConversionError` | `if x > 0` with a traced `x` | `jnp.where`, `lax.cond` |
# | `ConcretizationTypeError` | `float(x)` | `jnp.asarray(x)`, a static argument |
# | `TracerArrayConversionError` | `np.dot(x, x)` | the function of `jax.numpy` |
# | `TracerIntegerConversionError` | `a_list[i]` with a traced `i` | `jnp.stack(a_list)[i]` |
# | `NonConcreteBooleanIndexError` | `x[x > 0]`, of unknown shape | `jnp.where(x > 0, x, 0)` |
# | `UnexpectedTracerError` | a traced value in a global or in `self` | return it |
# | "carry input and carry output must have equal types" | a `scan` changes a dtype | `astype` |
# | "grad requires real- or complex-valued inputs" | `jax.grad` by an integer | a float |
# | "Reverse-mode differentiation does not work" | `jax.grad` of `while_loop` | [loops](loops.md) |
#
# [Common pitfalls](../guides/sharp_bits.md) has examples. This code raises the first five:

# %%
examples = {
    "TracerBoolConversionError": lambda x: x if x > 0 else -x,
    "ConcretizationTypeError": float,
    "TracerArrayConversionError": lambda x: np.dot(x, x),
    "TracerIntegerConversionError": lambda x: [1.0, 2.0][x.astype(int)],
    "NonConcreteBooleanIndexError": lambda x: x[x > 0],
}
for name, fn in examples.items():
    try:
        jax.jit(fn)(jnp.asarray(1.0))
    except Exception as refused:
        assert type(refused).__name__ == name, (name, type(refused))

# %% [markdown]
# ## Exercise
#
# The run is accurate until it is close to the origin, where fixed steps are too long. Find by bisection the largest
# number of steps that ends with a positive distance. How far is it from the exact arrival time?

# %% Answer
low, high = 0, 1300
ends = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda _, y: fall(y, 0.001), START)[0])
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if ends(middle) > 0 else (low, middle)
print(f"{low} steps, arrival at {low * 0.001:.3f}, exactly {EXACT:.4f}")
assert abs(low * 0.001 - EXACT) < 0.01 and abs(low + 1 - first) <= 1

# %% [markdown]
# ## Use in sciml
#
# A solve checks its own states: it ends when they are not finite, or when its steps become too short for the dtype,
# and reports the time and the reason for each member ([failures and status codes](../guides/failures.md)). Check
# `status` and `t_reached` first. For your own functions, `sciml.inspect.first_nan` traces the first NaN back to the
# step, the operation and the line, also in gradients ([profiling and debugging](../guides/insight.md)):

# %%
found = sciml.inspect.first_nan(run, START)
print(found)
assert found.operation == "sqrt"

# %% [markdown]
# A solve of the same fall reports the time at which it stopped:


# %%
def field(t, y, args):
    return jnp.stack([y[1], -1.0 / y[0] ** 2])


sol = sciml.solve(field, START, t0=0.0, t1=1.3, rtol=1e-5, atol=1e-6, throw=False)
print(f"{sciml.Status(int(sol.status)).name} at t = {float(sol.t_reached):.4f}")
print(sciml.Status(int(sol.status)).message)

# %%
error = abs(float(sol.t_reached) - EXACT)
assert error < 5e-3
print(
    f"figure of merit: {error:.1e} < 5e-03 (time at which the solve stops, and the exact time of arrival)"
)
