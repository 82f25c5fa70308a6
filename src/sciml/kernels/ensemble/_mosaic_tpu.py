"""The launcher for TPUs: a tile of 8 x 128 members for each block."""

from typing import Any, ClassVar

import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from ..._jax._vma import struct, vma_of
from ._body import Body, KernelOperands, kinds_of
from ._flat import Flat
from ._launcher import AbstractLauncher

LANES = (8, 128)
"""The lanes of a block."""

_BLOCK = LANES[0] * LANES[1]


class _TpuDevice:
    """A TPU."""

    def own(self, ref: Any, row: Any) -> Array:
        return ref[row]

    def shared(self, ref: Any, row: Any) -> Array:
        return ref[row]

    def write(self, ref: Any, row: Any, values: Array) -> None:
        ref[row] = values

    def call(self, program: Flat, *elements: Array) -> list[Array]:
        return program(*elements, pin=lambda x: x)

    def any(self, condition: Array) -> Array:
        return jnp.max(jnp.where(condition, np.float32(1), np.float32(0))) > 0


class TpuLauncher(AbstractLauncher):
    """Runs bodies on TPUs."""

    lanes: ClassVar[tuple[int, ...]] = LANES

    def launch(
        self, body: Body, operands: KernelOperands, count: int, interpret: Any = False
    ) -> tuple[list[Array], list[Array]]:
        blocks = -(-count // _BLOCK)
        more = blocks * _BLOCK - count

        def tiled(x: Array) -> Array:
            x = jnp.pad(x, ((0, 0), (0, more)), mode="edge") if more else x
            return x.reshape(x.shape[0], blocks * LANES[0], LANES[1])

        def spread(x: Array) -> Array:
            return jnp.broadcast_to(x[:, None, None], (x.shape[0], *LANES))

        def blocked(rows: int) -> pl.BlockSpec:
            return pl.BlockSpec((rows, *LANES), lambda i: (0, i, 0))

        def common(rows: int) -> pl.BlockSpec:
            return pl.BlockSpec((rows, *LANES), lambda i: (0, 0, 0))

        batched = operands.targets is not None and operands.targets.ndim == 2
        targets = [] if operands.targets is None else [(tiled if batched else spread)(operands.targets)]
        inputs = [*map(tiled, operands.own), *map(spread, operands.shared), *targets]
        own, shared, kept = len(operands.own), len(operands.shared), len(kinds_of(body.results))
        specs = [(blocked if k < own or (batched and k == len(inputs) - 1) else common)(x.shape[0])
                 for k, x in enumerate(inputs)]  # fmt: skip
        shapes = body.outputs()
        axes = vma_of(inputs)

        def run(*refs: Any) -> None:
            ins, outs = refs[: len(inputs)], refs[len(inputs) :]
            target = ins[own + shared] if targets else None
            body.run(_TpuDevice(), ins[:own], ins[own : own + shared], target, outs[:kept], outs[kept:])

        found = pl.pallas_call(
            run,
            out_shape=tuple(struct((rows, blocks * LANES[0], LANES[1]), kind, axes) for rows, kind in shapes),
            grid=(blocks,),
            in_specs=specs,
            out_specs=tuple(blocked(rows) for rows, _ in shapes),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
            interpret=interpret,
        )(*inputs)
        found = [x.reshape(x.shape[0], blocks * _BLOCK)[:, :count] for x in found]
        return found[:kept], found[kept:]
