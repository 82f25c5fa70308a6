# %% [markdown]
# # A kernel of your own: pallas_call
#
# XLA decides how a program walks through memory. Pallas lets you decide: you write what happens to one block, in the
# fast memory of a GPU's or TPU's core, and say which blocks there are. For a stencil that pays when several time
# steps are done on a block before it is written back. On a CPU JAX interprets such a kernel (`interpret=True`):
# slowly, but with the right numbers, which is enough to learn on.
#
# ## Refs, a grid, and blocks
#
# A kernel gets *refs*: places in memory, from which `ref[...]` reads, and to which `ref[...] = ...` writes. It
# returns nothing. The *grid* says how often it runs; a *BlockSpec* says, for each array, how large a block is and
# which one belongs to a place in the grid. A step of 1024 pendulums in four blocks:

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
# ## A stencil looks at the blocks beside it
#
# A cell at the edge of a block needs a cell of the next block. The simplest way: the same array is given three times,
# with three index maps: the block to the left, the block itself, the block to the right. Heat on a periodic ring:

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
# ## Several steps for one pass over memory
#
# That kernel reads the field once and writes it once for *one* step, as XLA does. The gain comes from doing more
# while the block is here: take `K` cells from either neighbour, do `K` steps, and throw away one cell a step at both
# ends. The halo is computed twice, by two blocks, and that is cheaper than memory:

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
# ## It has no derivative
#
# JAX does not transpose what a kernel reads and writes. The rule is yours: see [A derivative rule of your
# own](custom_rules.md).
#
# ## Exercise
#
# Give `heat_many` a `custom_vjp`. The step is a matrix $A$ that is symmetric on a ring, so what is the transpose of
# sixteen steps?


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
# ## On a machine
#
# Without `interpret=True` the kernel is compiled for the GPU or TPU that is there. Each has rules: blocks of a TPU
# are multiples of 8 x 128 numbers, those of a GPU powers of two, and what fits in fast memory is a few hundred KiB on
# a GPU, many MiB on a TPU. The interpreter knows none of that: a kernel is right only when it has run on the machine.
#
# ## Where sciml uses it
#
# `sciml.kernels.stencil` has such kernels for two and three dimensions, walls and several fields, from the rule of
# one cell, and their gradients ([Kernels](../guides/kernels.md), [A stencil of your
# own](../tutorials/own_stencil.md)). The same sixteen steps by its GPU kernel, interpreted:


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
