# %% [markdown]
# # Callbacks: pure_callback for black-box code
#
# Some parts of a model are not written in JAX: a steam table, a Fortran library with a Python interface, another
# group's model. `jax.pure_callback` calls Python from a compiled program, with NumPy arrays. Each call costs a round
# trip to the host. JAX cannot see inside, so you specify the shape of the result, the behaviour under `vmap`, and the
# derivative.
#
# ## The black box
#
# The black box is the drag coefficient of a ball as a function of the Reynolds number, from a NumPy library:

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
# ## Calling it from a compiled function
#
# The second argument is the shape and dtype of the result. `vmap_method="expand_dims"` or `"broadcast_all"` declares
# that the function accepts arrays, so `vmap` calls it *once* for all members; `"sequential"` calls it for each.


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
# *Pure* is your promise: the same input gives the same output, without side effects. JAX may call the function twice,
# or not at all if the result is unused. For side effects, such as a log line, use `jax.experimental.io_callback` or
# `jax.debug.callback`.
#
# ## Derivatives of a callback
#
# JAX raises an error if you differentiate a callback. Define a `custom_jvp`: call the derivative of the library if it
# has one, otherwise use finite differences. In float32 a step of about one percent suits a central difference:

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
# ## Callbacks in a solve
#
# A steel ball sinks in oil. Compute its speed after a tenth of a second, and the derivative with respect to the
# viscosity:


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
# ## Cost and limits
#
# - A call stops the device and runs Python. In a cheap vector field this takes nearly all of the time.
# - A program with a callback cannot be [exported](aot_and_export.md), is not stored in JAX's cache on disk, and
#   cannot run in a kernel.
# - Do not call JAX inside the callback: on a CPU it can wait for the thread that is waiting for it. Use NumPy only.
#
# A table can often be moved into JAX: use `jnp.interp`, or a spline that you fit once. C and C++ code can be called
# without Python: [C through the FFI](ffi.md).
#
# ## Exercise
#
# Replace the callback by a table of 200 values at logarithmically spaced Reynolds numbers, and `jnp.interp`. How
# large is the error of the speed, and of its slope?

# %% Answer
# The callback is gone, and JAX differentiates the straight lines between the values.
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
# ## Use in sciml
#
# sciml uses no callbacks in compiled code. Progress bars and files of long runs are handled *between* compiled
# segments ([long runs](../guides/long_runs.md#how-it-works)). Your vector field can contain callbacks, as above.

# %%
assert error < 0.02
print(
    f"figure of merit: {error:.4f} < 0.02 (slope by viscosity, through the box and by two more solves)"
)
