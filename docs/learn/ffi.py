# %% [markdown]
# # C through the FFI (foreign function interface)
#
# You can use existing C code, such as a force field, without rewriting it and without calling it through Python.
# XLA's *foreign function interface* calls a compiled function directly with pointers to the arrays, without copies.
# This lesson builds a small library, which needs a C++ compiler (`c++`: the headers are C++, your code can be C).
#
# ## The C code
#
# The example is the Morse potential of a diatomic molecule, $V = (1 - e^{-(r - 1)})^2$. The function computes force
# and stiffness of `n` bonds:

# %%
import ctypes
import pathlib
import re
import subprocess
import tempfile

import jax
import jax.numpy as jnp

import sciml

C = """
#include <cmath>
#include <cstdint>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;

// What a C programmer would have written.
extern "C" void morse(int64_t n, const float *r, float *force, float *stiffness) {
  for (int64_t i = 0; i < n; ++i) {
    float e = std::exp(1.0f - r[i]);
    force[i] = -2.0f * (1.0f - e) * e;
    stiffness[i] = -2.0f * e * (2.0f * e - 1.0f);
  }
}

// What XLA calls: buffers in, buffers out, and an error or none.
static ffi::Error morse_impl(ffi::Buffer<ffi::F32> r, ffi::ResultBuffer<ffi::F32> force,
                             ffi::ResultBuffer<ffi::F32> stiffness) {
  morse(r.element_count(), r.typed_data(), force->typed_data(), stiffness->typed_data());
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Morse, morse_impl, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>()
                              .Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""

# %% [markdown]
# ## Build, load, register
#
# JAX includes the headers. Register a target once per platform, by name:

# %%
with tempfile.TemporaryDirectory() as folder:
    source, library = pathlib.Path(folder) / "morse.cc", pathlib.Path(folder) / "morse.so"
    source.write_text(C)
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{jax.ffi.include_dir()}"]
    subprocess.run(
        ["c++", *flags, str(source), "-o", str(library)], check=True, capture_output=True
    )
    loaded = ctypes.CDLL(str(library))  # stays loaded when the file is gone
jax.ffi.register_ffi_target("morse", jax.ffi.pycapsule(loaded.Morse), platform="cpu")


def call(r):
    """Force and stiffness."""
    like = jax.ShapeDtypeStruct(jnp.shape(r), jnp.float32)
    return jax.ffi.ffi_call("morse", (like, like), vmap_method="broadcast_all")(r)


print([float(x) for x in call(jnp.float32(1.5))])
print(
    "in HLO:", re.findall(r'custom_call_target="(\w+)"', sciml.inspect.hlo(call, jnp.float32(1.5)))
)

# %% [markdown]
# ## Derivatives in C
#
# As for any [callback](callbacks.md), you define the derivative rule. Here the C code also computes the derivative:


# %%
@jax.custom_jvp
def force(r):
    return call(r)[0]


@force.defjvp
def _(primals, tangents):
    value, stiffness = call(primals[0])
    return value, stiffness * tangents[0]


def in_jax(r):
    e = jnp.exp(1.0 - r)
    return -2.0 * (1.0 - e) * e


r = jnp.linspace(0.6, 3.0, 100)
assert jnp.allclose(force(r), in_jax(r), atol=1e-5)
assert jnp.allclose(jax.vmap(jax.grad(force))(r), jax.vmap(jax.grad(in_jax))(r), atol=1e-5)

# %% [markdown]
# `broadcast_all` declares that the C code accepts an array of any shape, elementwise, so a `vmap` is one call with a
# longer array.
#
# ## Solving for one molecule and for a thousand


# %%
def swing(start, force):
    def field(t, y, args):
        return jnp.stack([y[1], force(y[0])])

    return sciml.solve(field, jnp.stack([start, 0.0 * start]), t0=0.0, t1=10.0, dt=0.05).ys[-1, 0]


def ends(force):
    return jax.jit(jax.vmap(lambda start: swing(start, force)))(jnp.linspace(0.8, 1.5, 1000))


by_c, by_jax = ends(force), ends(in_jax)
error = float(jnp.max(jnp.abs(by_c - by_jax)))
slopes = [jax.jit(jax.grad(lambda start, f=f: swing(start, f)))(1.4) for f in (force, in_jax)]
print(f"differ by {error:.1e}; slopes {slopes[0]:.4f} and {slopes[1]:.4f}")
assert jnp.allclose(*slopes, rtol=1e-3)

# %% [markdown]
# ## Exercise
#
# You export a function with an FFI call. Does the program run where the library is not loaded? What does
# `platforms=["cpu", "cuda"]` require?

# %% Answer
# The program only contains the name `morse`: to run it, register a target with that name, for
# each platform that it runs on. JAX requires an explicit permission, because it cannot guarantee that the target
# stays the same.
shape = jax.ShapeDtypeStruct((), jnp.float32)
try:
    jax.export.export(jax.jit(call))(shape)
except ValueError as refused:
    print(str(refused).splitlines()[0][:80])
allowed = jax.export.DisabledSafetyCheck.custom_call("morse")
stored = jax.export.export(jax.jit(call), disabled_checks=[allowed])(shape).serialize()
assert jnp.allclose(
    jax.export.deserialize(bytearray(stored)).call(jnp.float32(1.5))[0], in_jax(1.5), atol=1e-6
)

# %% [markdown]
# ## Use in sciml
#
# sciml itself uses no FFI calls. Your vector field can contain them, as above, also in ensembles and gradients. XLA
# cannot fuse them with other operations, so use them for functions that do much work per call: a force field of many
# particles, a table look-up, a library.

# %%
assert error < 1e-3
print(
    f"figure of merit: {error:.1e} < 1e-03 (a thousand molecules with the force in C, and in JAX)"
)
