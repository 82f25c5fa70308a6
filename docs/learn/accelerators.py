# %% [markdown]
# # CPU, GPU and TPU: memory, matrix units, layout
#
# The same JAX program runs on all three. Its speed differs, for reasons that you can compute before you rent a
# machine: the bandwidth of the memory, the rate of the arithmetic units, and the layout of arrays.
#
# ## Rates
#
# The vendors' data sheets give peak rates. The ratio of the two, in operations per byte, is the ridge of the
# [roofline](../scale/machine.md): a program with fewer operations per byte is limited by memory, whatever the peak of
# its arithmetic.

# %%
import math

import jax
import jax.numpy as jnp
import numpy as np

import sciml

# NVIDIA data sheets (SXM, without sparsity) and Google's TPU system architecture pages: in TB/s and TFLOP/s
RATES = {
    "A100 80 GB": {"memory": 2.04, "float32": 19.5, "bfloat16 matrix": 312},
    "H100": {"memory": 3.35, "float32": 67, "bfloat16 matrix": 989},
    "H200": {"memory": 4.8, "float32": 67, "bfloat16 matrix": 989},
    "TPU v5e": {"memory": 0.82, "bfloat16 matrix": 197},
    "TPU v5p": {"memory": 2.77, "bfloat16 matrix": 459},
}
for name, rates in RATES.items():
    vector = f"{rates['float32'] / rates['memory']:3.0f}" if "float32" in rates else "  -"
    print(
        f"{name:12} ridge: {vector} for float32, {rates['bfloat16 matrix'] / rates['memory']:4.0f} for matrices"
    )

here = sciml.inspect.rates()
print("this machine, measured:", here.device)

# %% [markdown]
# A step of a stencil does about 10 operations for each 8 bytes that it reads and writes in float32: it is limited by
# memory on every machine in the table, and its time is bytes over bandwidth. A step of an ensemble of small systems
# keeps the state in registers and does hundreds of operations per byte: it is limited by arithmetic. A neural network
# is limited by the matrix units, if its matrices are large.
#
# | | CPU | GPU | TPU |
# |---|---|---|---|
# | Parallel units | cores with vectors of 4 to 16 | lanes in groups of 32 | one or two cores, vectors of 8 x 128 |
# | Matrix unit | small or none | tensor cores | 128 x 128 or 256 x 256 systolic array |
# | float64 | half the rate of float32 | 1/2 to 1/64 | emulated in software |
# | float32 products | float32 | float32, or TF32: three digits | bfloat16 by default: three digits |
# | Branches of members | cheap | each group runs both | all run both |
# | Fast memory | caches, automatic | registers, shared memory | VMEM, managed by the compiler |
# | Between devices | shared memory, network | NVLink, network | torus links between neighbours |
#
# ## Layout: tiles and padding
#
# A TPU stores the last two dimensions of an array in tiles: 8 x 128 numbers in float32, 16 x 128 in bfloat16. A
# dimension that does not fill its tiles is padded, in memory and in arithmetic (arrays of one dimension have tiles of
# one dimension):


# %%
def padded_share(shape, dtype=np.float32):
    """The stored size of an array on a TPU, over its own size."""
    rows = 32 // np.dtype(dtype).itemsize
    *outer, second, last = (1, *shape)[-max(len(shape), 2) :]
    stored = math.prod(outer) * math.ceil(second / rows) * rows * math.ceil(last / 128) * 128
    return stored / math.prod(shape)


for shape in [(1024, 1024), (1000, 1000), (100_000, 3), (3, 100_000)]:
    print(f"{shape!s:16} takes {padded_share(shape):6.2f} times its size")

# %% [markdown]
# Put the long axis last: `(3, members)` instead of `(members, 3)`. `jax.vmap(..., in_axes=-1, out_axes=-1)` does so
# for any function of one member. GPUs have no tiles in memory, but neighbouring lanes must read neighbouring numbers
# (coalesced access), which gives the same rule. The compiler chooses layouts within a program; the order of axes of
# arguments and results, and of a `scan`'s carry, is yours.
#
# ## Precision of matrix products
#
# On a TPU and with TF32 on a GPU, `jnp.matmul` of float32 arrays rounds its inputs. `precision=` controls it for one
# operation, `jax.default_matmul_precision` for a block. The effect of rounding to bfloat16 can be computed anywhere:

# %%
A = jax.random.normal(jax.random.key(0), (256, 256))
B = jax.random.normal(jax.random.key(1), (256, 256))
with jax.default_matmul_precision("highest"):
    exact = np.asarray(A, np.float64) @ np.asarray(B, np.float64)
    once = (A.astype(jnp.bfloat16) @ B.astype(jnp.bfloat16)).astype(jnp.float32)
    full = A @ B


def distance(product):
    return float(np.linalg.norm(product - exact) / np.linalg.norm(exact))


print(f"float32 {distance(full):.0e}, inputs in bfloat16 {distance(once):.0e}")

# %% [markdown]
# Three digits are enough for the layers of a network, and too few for an implicit solver or a Fourier transform. Set
# `highest` there.
#
# ## A first run on a Cloud TPU
#
# 1. Create a machine: `gcloud compute tpus tpu-vm create NAME --zone=ZONE --accelerator-type=v5litepod-1
#    --version=v2-alpha-tpuv5-lite`, then `gcloud compute tpus tpu-vm ssh NAME --zone=ZONE`.
# 2. Install: `pip install "jax[tpu]"`, then sciml from a clone ([installation](../install.md)).
# 3. Check: `python -c "import jax; print(jax.devices())"`, then `sciml.inspect.environment()`.
# 4. Run your script with `JAX_COMPILATION_CACHE_DIR` on a disk that survives the machine.
# 5. Delete the machine: `gcloud compute tpus tpu-vm delete NAME --zone=ZONE`. It costs money until then.
#
# A slice of several hosts runs the same script on each; see [several processes](processes.md).
#
# ## Exercise
#
# An ensemble of a million Lorenz systems takes 1000 steps of a method with 6 stages, in float32. Each stage has about
# 150 operations. Estimate the time on an H100 if it keeps every state in registers and reaches half of the peak. How
# long would its memory take if each step read and wrote the state?

# %% Answer
# The memory alone takes less than the arithmetic. If both overlap, the time stays the same; if not, it is the sum.
members, steps = 1e6, 1000
arithmetic = members * steps * 6 * 150 / (0.5 * RATES["H100"]["float32"] * 1e12)
memory = members * steps * 2 * 3 * 4 / (RATES["H100"]["memory"] * 1e12)
print(f"arithmetic {1e3 * arithmetic:.0f} ms, memory {1e3 * memory:.0f} ms")
assert 0.02 < arithmetic < 0.04 and 0.005 < memory < 0.01

# %% [markdown]
# ## Use in sciml
#
# `sciml.inspect.report` prints the share of the measured rates that a solve reaches, on the device where it runs.
# `jax.vmap(solve)` stores members along the last axis inside its loop, so that you need not. Ensembles and stencils
# have kernels for GPU and TPU ([kernels](../guides/kernels.md)); [GPU measurements](../gpu.md) has the numbers that
# were measured, and [precision](../scale/precision.md) the choice of dtypes.

# %%
error = abs(padded_share((100_000, 3)) / (128 / 3) - 1)
assert error < 1e-3
print(f"figure of merit: {error:.1e} < 1e-03 (padding of three numbers per row, and 128 / 3)")
