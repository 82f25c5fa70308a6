"""The launcher for GPUs: a warpgroup for each block of 128 members, a thread for each member."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from ..._jax._vma import struct, to_varying, vma_of
from ._body import Body, KernelOperands, kinds_of
from ._flat import Flat
from ._launcher import AbstractLauncher

LANES = (128,)
"""The lanes of a block, one for each thread of a warpgroup."""


class _GpuDevice:
    """A GPU; `block` is the number of the block that runs."""

    def __init__(self, block: Any, pin: Callable[[Array], Array]):
        self._here = pl.ds(block * LANES[0], LANES[0])
        self._pin = pin

    def own(self, ref: Any, row: Any) -> Array:
        return _of_no_mesh(ref[row, self._here])

    def shared(self, ref: Any, row: Any) -> Array:
        return _of_no_mesh(ref[row, pl.ds(0, LANES[0])])

    def write(self, ref: Any, row: Any, values: Array) -> None:
        ref[row, self._here] = values

    def call(self, program: Flat, *elements: Array) -> list[Array]:
        return program(*elements, pin=self._pin)

    def any(self, condition: Array) -> Array:
        return jnp.max(jnp.where(condition, np.int32(1), np.int32(0))) > 0


def _of_no_mesh(x: Array) -> Array:
    """The same without the mesh axes that it varies over, which no result of an operation in a kernel has."""
    return jax.lax.max(x, x) if vma_of(x) else x


def _one_a_thread(x: Array) -> Array:
    """Says that a thread holds one lane. JAX would find that out, in a time that is quadratic in the program's size."""
    return plgpu.layout_cast(x, plgpu.Layout.WG_STRIDED(LANES, vec_size=1))


class GpuLauncher(AbstractLauncher):
    """Runs bodies on GPUs."""

    lanes: ClassVar[tuple[int, ...]] = LANES

    def launch(
        self, body: Body, operands: KernelOperands, count: int, interpret: Any = False
    ) -> tuple[list[Array], list[Array]]:
        blocks = -(-count // LANES[0])
        more = blocks * LANES[0] - count

        def padded(x: Array) -> Array:
            # members that fill the last block take the steps of the last member
            return jnp.pad(x, ((0, 0), (0, more)), mode="edge") if more else x

        def spread(x: Array) -> Array:
            return jnp.broadcast_to(x[:, None], (x.shape[0], LANES[0]))

        batched = operands.targets is not None and operands.targets.ndim == 2
        targets = [] if operands.targets is None else [(padded if batched else spread)(operands.targets)]
        inputs = [*map(padded, operands.own), *map(spread, operands.shared), *targets]
        shapes = body.outputs()
        axes = vma_of(inputs)
        out = tuple(struct((rows, blocks * LANES[0]), kind, axes) for rows, kind in shapes)
        own, shared, kept = len(operands.own), len(operands.shared), len(kinds_of(body.results))

        def run(device: Any, refs: Any) -> None:
            ins, outs = refs[: len(inputs)], refs[len(inputs) :]
            target = ins[own + shared] if targets else None
            body.run(device, ins[:own], ins[own : own + shared], target, outs[:kept], outs[kept:])

        if interpret is True:
            anywhere = pl.BlockSpec(memory_space=pl.ANY)
            found = pl.pallas_call(
                lambda *refs: run(_GpuDevice(pl.program_id(0), lambda x: x), refs),
                out_shape=out,
                grid=(blocks,),
                in_specs=[anywhere] * len(inputs),
                out_specs=(anywhere,) * len(out),
                interpret=True,
            )(*inputs)
        else:
            pin = (lambda x: x) if interpret else _one_a_thread
            found = plgpu.kernel(
                lambda *refs: run(_GpuDevice(jax.lax.axis_index("block"), pin), refs),
                out_type=out,
                grid=(blocks,),
                grid_names=("block",),
                compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
                interpret=interpret or None,
            )(*inputs)
        found = [x[:, :count] for x in to_varying(found, axes)]  # JAX forgets it
        return found[:kept], found[kept:]
