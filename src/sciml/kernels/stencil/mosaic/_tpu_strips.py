"""`AbstractTpuKernel`: what kernels for TPUs have in common, strips of rows in vector memory for some steps.

A kernel reads its strip, the rows above and the rows below as three block-aligned views of one array, whose index
wraps. Neighbours come by rotations, so that all shapes stay the same.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, PyTree

from ...._jax._vma import struct, vma_of
from .._ghost_weights import Sides
from .._update import Fields, StencilUpdate
from ._kernel import AbstractMosaicKernel
from ._packed_operands import PackedOperands

LANES = 128
"""The width of a TPU's tile."""


class AbstractTpuKernel(AbstractMosaicKernel):
    """A kernel whose plans say by `rows` and `halo` how high a strip is, by `physical` how large the global arrays."""

    name: ClassVar[str] = "mosaic_tpu"
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    operand_lanes: ClassVar[int] = LANES

    @abc.abstractmethod
    def lay_out(self, x: Array, plan: Any, sides: Sides) -> Array:
        """Returns a field in an array of whole strips: the field, its upper ghost cells, its lower ones at the end."""

    @abc.abstractmethod
    def field_of(self, x: Array, plan: Any) -> Array:
        """Returns the field in such an array."""

    @abc.abstractmethod
    def strip(self, plan: Any, sides: tuple[Sides, ...], like: Array, interpreted: bool) -> Any:
        """Returns what moves cells within a strip: `shifted(x, shift)`, and `with_ghosts(f, x)` of field `f`.

        Args:
            plan: The plan.
            sides: The weights of ghost cells, unpacked.
            like: A strip.
            interpreted: Whether XLA runs the body.
        """

    def enter(self, x: Array, plan: Any) -> Array:
        return x

    def leave(self, x: Array, plan: Any) -> Array:
        return x

    def make_pass(
        self,
        update: StencilUpdate,
        params: PyTree,
        coefficients: Fields,
        plan: Any,
        sides: tuple[Sides, ...],
        operands: PackedOperands,
        interpret: Any,
    ) -> Callable[[Fields, int], Fields]:
        fixed = tuple(self.lay_out(x, plan, sides[0]) for x in coefficients)

        def one_pass(state: Fields, steps: int) -> Fields:
            laid = tuple(self.lay_out(x, plan, walls) for x, walls in zip(state, sides))
            found = self._launch(update, plan._replace(steps=steps), operands, (*laid, *fixed), interpret)
            return tuple(self.field_of(x, plan) for x in found)

        return one_pass

    def _launch(
        self, update: StencilUpdate, plan: Any, operands: PackedOperands, arrays: Fields, interpret: Any
    ) -> Fields:
        (height, *rest), rows, halo = plan.physical, plan.rows, plan.halo
        blocks, ratio, zeros = height // halo, rows // halo, (0,) * len(rest)
        # one array, three views; indices wrap, so the first strip has the end of the array above it
        above = pl.BlockSpec((halo, *rest), lambda i: ((i * ratio - 1 + blocks) % blocks, *zeros))
        middle = pl.BlockSpec((rows, *rest), lambda i: (i, *zeros))
        below = pl.BlockSpec((halo, *rest), lambda i: ((i + 1) * ratio % blocks, *zeros))
        count = len(update.fields)
        packed = pl.BlockSpec(operands.rows.shape, lambda i: (0, 0))
        return pl.pallas_call(
            lambda *refs: self._body(update, plan, operands, interpret is True, refs),
            out_shape=(struct(plan.physical, arrays[0].dtype, vma_of((arrays, operands.rows))),) * count,
            grid=(height // rows,),
            in_specs=[above, middle, below] * len(arrays) + [packed],
            out_specs=(middle,) * count,
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
            interpret=interpret,
        )(*(x for x in arrays for _ in range(3)), operands.rows)

    def _body(self, update: StencilUpdate, plan: Any, operands: PackedOperands, interpreted: bool, refs: Any) -> None:
        names, count = update.fields + update.coefficients, len(update.fields)
        parts, packed, outs = refs[: 3 * len(names)], refs[3 * len(names)], refs[3 * len(names) + 1 :]
        (fn, params), sides = operands.unpack(lambda row: packed[row, 0])
        update = eqx.tree_at(lambda u: u.fn, update, fn)
        values = [jnp.concatenate([x[...] for x in parts[3 * f : 3 * f + 3]], axis=0) for f in range(len(names))]
        strip = self.strip(plan, sides, values[0], interpreted)
        names = names + update.inner
        values += [jnp.zeros_like(values[0])] * len(update.inner)
        for s in range(plan.steps):
            # coefficients keep theirs: they do not change
            values[:count] = [strip.with_ghosts(f, x) for f, x in enumerate(values[:count])]

            def nb(name: str, *shift: int, values: list = values) -> Array:
                value = values[names.index(name)]
                return strip.shifted(value, update.check_shift(name, shift, len(plan.shape)))

            new = update.stage(s).new_values(nb, params, values[0])
            # what a stage hands on follows the fields in `new`, and the coefficients here
            values = [*new[:count], *values[count : len(values) - len(update.inner)], *new[count:]]
        for f in range(count):
            outs[f][...] = values[f][plan.halo : plan.halo + plan.rows]


def padded_index(size: int, n: int, ghosts: int, periodic: bool) -> np.ndarray:
    """Returns which cell of `n` stands in each of `size` places, the last `ghosts` of which are lower ghost cells.

    Beyond the field it repeats the other side, where that is periodic, or else the nearest cell.
    """
    index = np.arange(size, dtype=np.int32)
    index = np.where(index < size - ghosts, index, index - size)
    return index % n if periodic else np.clip(index, 0, n - 1)


def rolled(x: Array, by: int, axis: int, interpreted: bool) -> Array:
    """Returns a strip rotated along an axis."""
    return jnp.roll(x, by, axis) if interpreted else pltpu.roll(x, np.int32(by), axis)  # type: ignore[arg-type]
