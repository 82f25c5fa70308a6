# %% [markdown]
# # A black box in a simulation: pure_callback
#
# Some of what a model needs is no JAX: a table of steam, a Fortran library behind Python, a model of somebody else.
# `jax.pure_callback` calls Python from a compiled program, with NumPy arrays. It costs a trip to the host each time,
# and JAX cannot see inside: it needs to be told the shape of the result, how to run many at once, and what the
# derivative is.
#
# ## The box
#
# The drag coefficient of a ball by its Reynolds number, somewhere in a library of NumPy:

# %%
import jax
import jax.numpy as jnp
import numpy as np

import sciml

calls = []


def drag_of_library(reynolds):
    """Not JAX: NumPy in, NumPy out."""
    calls.append(np.shape(reynolds))
    x = np.asarray(reynolds, np.float64)
    return (24 / x + 6 / (1 + np.sqrt(x)) + 0.4).astype(np.float32)


# %% [markdown]
# ## Call it from a compiled function
#
# The second argument is what comes back: shape and dtype. `vmap_method="expand_dims"` or `"broadcast_all"` says that
# the box takes arrays, so that under `vmap` it is called *once* for all members; `"sequential"` would call it for
# each.


# %%
def call(reynolds):
    result = jax.ShapeDtypeStruct(jnp.shape(reynolds), jnp.float32)
    return jax.pure_callback(drag_of_library, result, reynolds, vmap_method="broadcast_all")


print("one:", jax.jit(call)(100.0))
calls.clear()
many = jax.jit(jax.vmap(call))(jnp.logspace(0, 4, 50))
print("fifty members, calls:", calls)
assert len(calls) == 1

# %% [markdown]
# *Pure* is a promise of yours: the same input gives the same output, and nothing else happens. JAX may call it twice,
# or not at all if nobody needs the result. For what has to happen, such as a line in a log, there are
# `jax.experimental.io_callback` and `jax.debug.callback`.
#
# ## Its derivative
#
# JAX refuses to differentiate a box. The rule is a `custom_jvp`; if the library has a derivative, call that, else
# take a difference. In float32 a step of about one percent is right for a central difference:

# %%
try:
    jax.grad(call)(100.0)
except ValueError as error:
    print(str(error).splitlines()[0][:90])
else:
    raise AssertionError("the gradient of a box")

coefficient = jax.custom_jvp(call)


@coefficient.defjvp
def _(primals, tangents):
    (reynolds,), (change,) = primals, tangents
    h = 0.01 * reynolds
    slope = (call(reynolds + h) - call(reynolds - h)) / (2 * h)
    return coefficient(reynolds), slope * change


by_rule = jax.grad(coefficient)(100.0)
exact = -24 / 100.0**2 - 3 / (100**0.5 * (1 + 100**0.5) ** 2)
print(f"slope {by_rule:.6f}, exact {exact:.6f}")
assert jnp.allclose(by_rule, exact, rtol=1e-2)

# %% [markdown]
# ## In a solve
#
# A steel ball sinks in oil. How fast is it after a tenth of a second, and how does that depend on the viscosity?


# %%
def speed(viscosity, coefficient):
    def sinking(t, v, viscosity):
        reynolds = 900 * 0.01 * jnp.maximum(v, 1e-3) / viscosity
        return 9.81 * (1 - 900 / 7800) - coefficient(reynolds) * 3 * 900 / (4 * 7800 * 0.01) * v**2

    return sciml.solve(sinking, jnp.array(0.01), t0=0.0, t1=0.1, dt=0.01, args=viscosity).ys[-1]


calls.clear()
value, slope = jax.jit(jax.value_and_grad(lambda viscosity: speed(viscosity, coefficient)))(0.5)
print(f"{value:.4f} m/s, slope {slope:.4f} by the rule, with {len(calls)} calls of the box")
run = jax.jit(lambda viscosity: speed(viscosity, coefficient))
difference = (run(0.505) - run(0.495)) / 0.01
print(f"slope {difference:.4f} by two more solves")
error = abs(float(slope / difference) - 1)

# %% [markdown]
# Under `jax.vmap` all members share each call:

# %%
calls.clear()
viscosities = jnp.linspace(0.3, 1.0, 200)
speeds = jax.jit(jax.vmap(lambda viscosity: speed(viscosity, coefficient)))(viscosities)
jax.block_until_ready(speeds)
print(f"200 members, {len(calls)} calls, the last with {calls[-1]}")
assert len(calls) < 200

# %% [markdown]
# ## What it costs
#
# - A call stops the device, and wakes Python. In a vector field of a few operations that is nearly all of the time.
# - A program with a callback cannot be [exported](aot_and_export.md), nor kept in JAX's cache on disk, and a kernel
#   cannot hold it.
# - Do not call JAX within the box: on a CPU it may wait for the very thread that is waiting for it. NumPy only.
#
# A table can often be moved into JAX: `jnp.interp`, or a spline fitted once. C and C++ code can be called without
# Python at all: [C through the FFI](ffi.md).
#
# ## Exercise
#
# Replace the box by a table of 200 values at logarithmically spaced Reynolds numbers, and `jnp.interp`. How far is
# the speed off? What about its slope?

# %% Answer
# The callback is gone, and JAX has the derivative: that of straight lines between the values.
nodes = jnp.linspace(-4.0, 4.0, 200)
logarithms = jnp.log(jnp.asarray(drag_of_library(10 ** np.linspace(-4.0, 4.0, 200))))


def table(reynolds):
    return jnp.exp(jnp.interp(jnp.log10(reynolds), nodes, logarithms))


by_table, slope_by_table = jax.jit(jax.value_and_grad(lambda viscosity: speed(viscosity, table)))(
    0.5
)
print(
    f"speed off by {abs(by_table / value - 1):.1e}, slope by {abs(slope_by_table / slope - 1):.1e}"
)
assert abs(by_table / value - 1) < 1e-3 and abs(slope_by_table / slope - 1) < 0.05

# %% [markdown]
# ## Where sciml uses it
#
# Nowhere: there is no callback in what it compiles. Bars and files of long runs stand *between* compiled segments
# ([Long runs](../guides/long_runs.md#how-it-works)). Yours may stand in a vector field, as above.

# %%
assert error < 0.02
print(
    f"figure of merit: {error:.4f} < 0.02 (slope by viscosity, through the box and by two more solves)"
)
