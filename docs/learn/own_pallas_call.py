# %% [markdown]
# # A Pallas kernel: pallas_call
#
# XLA decides how a program accesses memory. With Pallas you decide: you write the computation of one block in the
# fast memory of a GPU or TPU core, and specify the blocks. For a stencil this pays off if several time steps are
# computed on a block before it is written back. On a CPU JAX interprets such a kernel (`interpret=True`): slowly, but
# with correct values, which is enough for learning.
#
# ## Refs, a grid, and blocks
#
# A kernel receives *refs*: memory locations that you read with `ref[...]` and write with `ref[...] = ...`. It returns
# nothing. The *grid* gives the number of times it runs. A *BlockSpec* gives, for each array, the block size and the
# block of each grid index. This is a step of 1024 pendulums in four blocks:

# %%
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from sciml.kernels.stencil import StencilUpdate, evolve

DT = 0.01


def step_kernel(angle_ref, speed_ref, new_angle_ref, new_speed_ref):
    speed = speed_ref[...] - DT * jnp.sin(angle_ref[...])
    new_speed_ref[...] = speed
    new_angle_ref[...] = angle_ref[...] + DT * speed


block = pl.BlockSpec(
    (256,), lambda i: (i,)
)  # at place i of the grid: block i, cells 256 i to 256 i + 255
array = jax.ShapeDtypeStruct((1024,), jnp.float32)
step = pl.pallas_call(
    step_kernel,
    grid=(4,),
    in_specs=[block, block],
    out_specs=[block, block],
    out_shape=[array, array],
    interpret=True,
)
angle, speed = jnp.linspace(0.1, 3.0, 1024), jnp.zeros(1024)
new_angle, new_speed = step(angle, speed)
assert jnp.allclose(new_speed, -DT * jnp.sin(angle), atol=1e-6)
print("a step of", new_angle.shape, "in 4 blocks")

# %% [markdown]
# ## A stencil kernel with halos
#
# A cell at the edge of a block needs a cell of the next block. The simplest solution passes the same array three
# times with three index maps: the left block, the block itself, and the right block. Heat conduction on a periodic
# ring:

# %%
N, B = 512, 64
BLOCKS = N // B


def heat_kernel(left_ref, here_ref, right_ref, out_ref):
    wide = jnp.concatenate([left_ref[-1:], here_ref[...], right_ref[:1]])
    out_ref[...] = wide[1:-1] + 0.25 * (wide[2:] - 2 * wide[1:-1] + wide[:-2])


def ring_of_blocks(kernel):
    """The kernel at every block of a ring, with its neighbours."""
    specs = [
        pl.BlockSpec((B,), lambda i, shift=shift: ((i + shift) % BLOCKS,)) for shift in (-1, 0, 1)
    ]
    call = pl.pallas_call(
        kernel,
        grid=(BLOCKS,),
        in_specs=specs,
        out_specs=pl.BlockSpec((B,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct((N,), jnp.float32),
        interpret=True,
    )
    return jax.jit(lambda u: call(u, u, u))


def plain(u):
    return u + 0.25 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))


u = jnp.exp(-(((jnp.arange(N) - 130.0) / 8) ** 2))
heat = ring_of_blocks(heat_kernel)
assert jnp.allclose(heat(u), plain(u), atol=1e-6)

# %% [markdown]
# ## Several steps per pass (temporal blocking)
#
# This kernel reads and writes the field once per step, as XLA does. The gain comes from more steps per pass: read `K`
# cells from either neighbour, compute `K` steps, and drop one cell per step at both ends. Two blocks compute the halo
# redundantly, which is cheaper than memory traffic:

# %%
K = 16


def heat_many_kernel(left_ref, here_ref, right_ref, out_ref):
    wide = jnp.concatenate([left_ref[-K:], here_ref[...], right_ref[:K]])
    for _ in range(K):  # unrolled: each turn has two cells less
        wide = wide[1:-1] + 0.25 * (wide[2:] - 2 * wide[1:-1] + wide[:-2])
    out_ref[...] = wide


heat_many = ring_of_blocks(heat_many_kernel)
by_steps = u
for _ in range(K):
    by_steps = plain(by_steps)
error = float(jnp.max(jnp.abs(heat_many(u) - by_steps)))
traffic = K * 2 / (1 + (B + 2 * K) / B)  # reads and writes of K passes, and of one with its halo
print(f"{K} steps in one pass: {traffic:.1f} times less traffic, differs by {error:.1e}")

# %% [markdown]
# ## Derivatives of kernels
#
# JAX does not differentiate such a kernel; define the rule yourself: see [custom derivative rules](custom_rules.md).
#
# ## Exercise
#
# Give `heat_many` a `custom_vjp`. On a ring the step is a symmetric matrix $A$. What is the transpose of sixteen
# steps?


# %% Answer
# $(A^{16})^T = A^{16}$: the kernel itself.
@jax.custom_vjp
def differentiable(u):
    return heat_many(u)


differentiable.defvjp(lambda u: (heat_many(u), None), lambda _, cotangent: (heat_many(cotangent),))


def by_plain(u):
    return jax.lax.fori_loop(0, K, lambda _, u: plain(u), u)


gradients = [
    jax.grad(lambda u, run=run: jnp.sum(run(u)[:150] ** 2))(u) for run in (differentiable, by_plain)
]
assert jnp.allclose(*gradients, atol=1e-5)

# %% [markdown]
# ## GPU and TPU
#
# Without `interpret=True` the kernel is compiled for the GPU or TPU. Each has constraints: TPU blocks are multiples
# of 8 x 128 numbers, GPU blocks are powers of two, and fast memory holds a few hundred KiB on a GPU and many MiB on a
# TPU. The interpreter does not check them: test a kernel on the real hardware.
#
# ## Use in sciml
#
# `sciml.kernels.stencil` contains such kernels for one to three dimensions, walls and several fields, generated from
# the rule of one cell, with gradients ([kernels](../guides/kernels.md), [a custom
# stencil](../tutorials/own_stencil.md)). The same sixteen steps with its GPU kernel, interpreted:


# %%
def rule(nb, rate):
    return nb("u") + rate * (nb("u", 1) - 2 * nb("u") + nb("u", -1))


by_sciml = evolve(StencilUpdate(rule), u, K, 0.25, impl="pallas", interpret=True)
assert jnp.allclose(by_sciml, by_steps, atol=1e-5)

# %%
assert error < 1e-5
print(
    f"figure of merit: {error:.1e} < 1e-05 (sixteen steps in one pass of a kernel, and one by one)"
)
