# %% [markdown]
# # Debugging a compiled simulation
#
# A compiled program has no lines to stop at and no `print`. What goes wrong in a simulation is mostly one thing:
# somewhere a number becomes NaN or infinite, spreads, and the end is NaN. This page makes one such run and finds the
# step, the operation, and the reason, by five means.
#
# ## A cloud collapses
#
# A particle falls from rest towards a mass in the origin. After $\pi / \sqrt 8 \approx 1.11$ it arrives, where the
# force is infinite:

# %%
import contextlib
import io
import math
import re

import jax
import jax.numpy as jnp
from jax.experimental import checkify

import sciml

START = jnp.array([1.0, 0.0])  # distance and speed
EXACT = math.pi / 8**0.5


def fall(y, dt):
    r, v = y
    inner = jnp.sqrt(r)  # of a negative number, once it has passed the origin
    v = v - dt / (inner * r * inner)
    return jnp.stack([r + dt * v, v])


def run(y, steps=1300, dt=0.001):
    return jax.lax.fori_loop(0, steps, lambda _, y: fall(y, dt), y)


print("at the end:", jax.jit(run)(START))

# %% [markdown]
# ## 1. Keep the trajectory, and look
#
# The cheapest: a scan that returns every state. The first row that is not finite says when.

# %%
rows = jax.lax.scan(lambda y, _: (fall(y, 0.001), y), START, None, length=1300)[1]
first = int(jnp.argmin(jnp.isfinite(rows).all(axis=1)))
print(f"first NaN after step {first}; before it {rows[first - 1]}, {rows[first - 2]}")

# %% [markdown]
# ## 2. jax.debug.print
#
# It prints at run time, under `jit`, `vmap` and in loops. Print what is rare, or the output is as long as the run:


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
jax.effects_barrier()  # what was printed is out

# %% [markdown]
# ## 3. Which operation: debug_nans
#
# With `jax_debug_nans` JAX looks at the result of every compiled function, and where it has a NaN runs it again,
# operation by operation, until one makes it. The traceback ends at your line. It is slow, so switch it on for the run
# that fails, with `JAX_DEBUG_NANS=1` in the environment or for a block:

# %%
with jax.debug_nans(True):
    try:
        jax.jit(fall)(rows[first - 1], 0.001)
    except FloatingPointError as error:
        print(str(error).splitlines()[0][:80])
    else:
        raise AssertionError("a NaN that was not seen")

# %% [markdown]
# ## 4. Python again: disable_jit
#
# `with jax.disable_jit():` runs everything as Python, loops too, so that `breakpoint()`, `print` and a debugger see
# numbers. Take few steps, from just before the trouble:

# %%
printed = io.StringIO()
with jax.disable_jit(), contextlib.redirect_stdout(printed):
    jax.lax.fori_loop(0, 2, lambda i, y: print(i, float(y[0])) or fall(y, 0.001), rows[first - 2])
print(printed.getvalue().strip())

# %% [markdown]
# ## 5. Say what must hold: checkify
#
# A check in a compiled function cannot raise. `checkify` collects errors as values, which you throw when the program
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
# `checkify.checkify(f, errors=checkify.float_checks)` adds such checks for NaN and division by zero everywhere by
# itself.
#
# ## Exercise
#
# The run is right until it is near the origin, where steps of a fixed size are too long. Find by bisection the
# largest number of steps that ends with a positive distance. How far from the exact time of arrival is it?

# %% Answer
low, high = 0, 1300
ends = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda _, y: fall(y, 0.001), START)[0])
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if ends(middle) > 0 else (low, middle)
print(f"{low} steps, arrival at {low * 0.001:.3f}, exactly {EXACT:.4f}")
assert abs(low * 0.001 - EXACT) < 0.01 and abs(low + 1 - first) <= 1

# %% [markdown]
# ## Where sciml uses it
#
# A solve looks at its own states: it ends where they are no longer finite, or where its steps become too short for
# the dtype, and says *when* and why, for each member by itself ([Failures and status](../guides/failures.md)). So
# look at `status` and `t_reached` before you hunt. For what you wrote yourself, `sciml.inspect.first_nan` runs the
# function and follows its first NaN back to the step, the operation and the line, in gradients too
# ([insight](../guides/insight.md)):

# %%
found = sciml.inspect.first_nan(run, START)
print(found)
assert found.operation == "sqrt"

# %% [markdown]
# And a solve of the same fall says when it stopped:


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
