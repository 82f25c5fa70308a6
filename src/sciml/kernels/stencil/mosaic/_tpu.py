r"""Several steps for each pass over memory, on a TPU, in two and three dimensions.

A kernel takes a strip of `rows` rows and the whole width, with `halo` more rows on either side, and keeps it in vector
memory for $k$ steps of radius $r$, $k r \le$ `halo` $\le 8$. The strip, the rows above and the rows below are three
block-aligned views of one array, whose index wraps; neighbours come by rotations, so that all shapes stay the
same, and what is wrong at the ends of the strip moves inwards by $r$ rows a step and is not written. In three
dimensions the rows are planes, of which a halo may have fewer than 8.

Rotations make all axes periodic. If the field does not fill whole tiles, or has walls, XLA first puts it into an array
that does: the field first, its upper ghost cells behind it, its lower ones at the very end, where rotations find them.
Ghost cells of walls are computed again before every step, according to a mask.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from ...._choices import choices
from ...._jax._vma import struct, vma_of
from .._ghost_weights import GhostWeights, NotForKernelsError, Sides
from .._update import Fields, StencilUpdate
from ._kernel import AbstractMosaicKernel, StencilCase
from ._packed_operands import PackedOperands

# `AbstractTpuKernel`: what kernels for TPUs have in common, strips of rows in vector memory for some steps.
#
# A kernel reads its strip, the rows above and the rows below as three block-aligned views of one array, whose index
# wraps. Neighbours come by rotations, so that all shapes stay the same.


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
        self, case: StencilCase, coefficients: Fields, plan: Any, operands: PackedOperands, interpret: Any
    ) -> Callable[[Fields, int], Fields]:
        update, _, _, _, sides = case
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


HALO = 8
"""Cells that stand in for those beyond the sides, and rows above and below a strip: the height of a TPU's tile."""


class TpuPlan(NamedTuple):
    """How a field is cut into strips.

    Attributes:
        shape: The shape of the field.
        radius: The radius of the update.
        steps: The stages for each pass.
        rows: The rows of a strip.
        halo: The rows above and below it.
        physical: The shape of the global arrays; the shape of the field if it fills whole strips periodically.
    """

    shape: tuple[int, ...]
    radius: int
    steps: int
    rows: int
    halo: int
    physical: tuple[int, ...]


class MosaicTpu(AbstractTpuKernel):
    """The kernel for TPUs in two and three dimensions; `rows` are the rows of a strip."""

    sizes: ClassVar[tuple[int, ...]] = (128, 64, 32, 16, 8, 4, 2, 1)
    takes_stages: ClassVar[bool] = True
    ndims: ClassVar[tuple[int, ...]] = (2, 3)
    reach: ClassVar[int] = HALO

    def usual_steps(self, radius: int, ndim: int) -> int:
        return max(1, (HALO if ndim == 2 else 2) // radius)

    def tiles(self, case: StencilCase, steps: int, sizes: tuple[int, ...]) -> TpuPlan:
        update, _, shape, _, sides = case
        ndim = len(shape)
        halo = HALO if ndim == 2 else next(n for n in (1, 2, 4, 8) if n >= steps * update.radius)

        def physical(axis: int, unit: int) -> int:
            walls = any(side[axis] is not None for side in sides)
            return -(-(shape[axis] + 2 * HALO) // unit) * unit if walls or shape[axis] % unit else shape[axis]

        rest = tuple(physical(axis, LANES if axis == ndim - 1 else HALO) for axis in range(1, ndim))
        arrays, fit = 4 * (len(update.fields) + len(update.coefficients) + len(update.inner)), []
        for size in sizes:
            if size >= halo and arrays * (size + 2 * halo) * math.prod(rest) * 4 <= choices().kernels.tpu_memory:
                fit.append((physical(0, size), size))
        if not fit:
            raise NotForKernelsError(f"a strip of a field of shape {shape} does not fit into vector memory")
        height, size = min(fit, key=lambda pair: (pair[0] * (1 + 2 * halo / pair[1]), -pair[1]))
        return TpuPlan(shape, update.radius, steps, size, halo, (height, *rest))

    def lay_out(self, x: Array, plan: TpuPlan, sides: Sides) -> Array:
        for axis in range(x.ndim):
            n, size = plan.shape[axis], plan.physical[axis]
            if size != n:
                x = jnp.take(x, padded_index(size, n, HALO, sides[axis] is None), axis=axis)
        return x

    def field_of(self, x: Array, plan: TpuPlan) -> Array:
        return x[tuple(slice(n) for n in plan.shape)]

    def strip(self, plan: TpuPlan, sides: tuple[Sides, ...], like: Array, interpreted: bool) -> "_Strip":
        return _Strip(plan, sides, like, interpreted)


class _Strip:
    """Moves cells within a strip; see `AbstractTpuKernel.strip`."""

    def __init__(self, plan: TpuPlan, sides: tuple[Sides, ...], like: Array, interpreted: bool):
        self.plan, self.sides, self.interpreted = plan, sides, interpreted
        if any(pair is not None for walls in sides for pair in walls):
            first = pl.program_id(0) * plan.rows - plan.halo + plan.physical[0]
            # rows count around the array, at whose end stand the ghosts of the lower wall
            row = jax.lax.broadcasted_iota(jnp.int32, like.shape, 0) + first
            height = jnp.asarray(plan.physical[0], row.dtype)
            others = (jax.lax.broadcasted_iota(jnp.int32, like.shape, axis) for axis in range(1, like.ndim))
            self.place = (jax.lax.rem(row, height), *others)

    def shifted(self, x: Array, shift: tuple[int, ...]) -> Array:
        """Returns a strip with what stands a shift further on in the place of each cell."""
        for axis, by in enumerate(shift):
            x = self._shifted_along(x, by, axis)
        return x

    def with_ghosts(self, f: int, x: Array) -> Array:
        """Returns a field with new ghost cells, axis by axis, so that those in corners are right as well."""
        for axis, pair in enumerate(self.sides[f]):
            if pair is not None:
                n, size = self.plan.shape[axis], self.plan.physical[axis]
                lower = self._beyond(x, axis, pair[0], lambda q: size - 1 - q, 1)  # noqa: B023
                upper = self._beyond(x, axis, pair[1], lambda q: n + q, -1)  # noqa: B023
                x = upper(lower(x))
        return x

    def _shifted_along(self, x: Array, by: int, axis: int) -> Array:
        by = -by % x.shape[axis]
        if not by:
            return x
        if x.ndim == 3 and axis == 0:  # whole tiles change places
            return jnp.concatenate([x[-by:], x[:-by]], axis=0)
        return rolled(x, by, axis, self.interpreted)

    def _beyond(
        self, x: Array, axis: int, weights: GhostWeights, place: Callable[[int], int], inwards: int
    ) -> Callable[[Array], Array]:
        def fill(out: Array) -> Array:
            for q in range(self.plan.radius):
                made = weights.ghost(q, lambda m: self._shifted_along(x, inwards * (m + q + 1), axis))  # noqa: B023
                out = jnp.where(self.place[axis] == place(q), made, out)
            return out

        return fill


# Several steps for each pass over memory, on a TPU, in one dimension.
#
# The field is folded into rows of 128 cells, one after the other. A kernel takes a strip of `rows` rows with 8 more on
# either side and keeps it in vector memory for $k$ steps of radius $r$. A neighbour is the strip, rotated along its
# rows, with the cells that leave a row taken from the next one. What is wrong at the ends of the strip moves inwards by
# $r$ cells a step and is not written.
#
# Rotations make the field periodic. Where it does not fill whole strips, or has walls, XLA first puts it into an array
# that does: the field first, its upper ghost cells behind it, its lower ones at the very end.


REACH = 64
"""Cells that stand in for those beyond either end, and the furthest that a pass may reach."""


class Tpu1dPlan(NamedTuple):
    """How a field of one axis is cut into strips.

    Attributes:
        shape: The number of cells.
        radius: The radius of the update.
        steps: The stages for each pass.
        rows: The rows of a strip.
        cells: The cells of the global arrays; the cells of the field if it fills whole strips periodically.
    """

    shape: tuple[int]
    radius: int
    steps: int
    rows: int
    cells: int

    @property
    def halo(self) -> int:
        """The rows above and below a strip."""
        return HALO

    @property
    def physical(self) -> tuple[int, int]:
        """The shape of the global arrays."""
        return self.cells // LANES, LANES


class MosaicTpu1d(AbstractTpuKernel):
    """The kernel for TPUs in one dimension; `rows` are the rows of a strip."""

    sizes: ClassVar[tuple[int, ...]] = (128, 64, 32, 16, 8)
    takes_stages: ClassVar[bool] = True
    ndims: ClassVar[tuple[int, ...]] = (1,)
    reach: ClassVar[int] = REACH

    def usual_steps(self, radius: int, ndim: int) -> int:
        return max(1, 8 // radius)

    def tiles(self, case: StencilCase, steps: int, sizes: tuple[int, ...]) -> Tpu1dPlan:
        update, _, shape, _, sides = case
        (n,), walls = shape, any(side[0] is not None for side in sides)
        arrays, fit = 4 * (len(update.fields) + len(update.coefficients) + len(update.inner)), []
        for size in sizes:
            unit = size * LANES
            cells = -(-(n + 2 * REACH) // unit) * unit if walls or n % unit else n
            if arrays * (size + 2 * HALO) * LANES * 4 <= choices().kernels.tpu_memory:
                fit.append((cells, size))
        if not fit:
            raise NotForKernelsError(f"strips of {len(update.fields)} fields do not fit into vector memory")
        cells, size = min(fit, key=lambda pair: (pair[0] * (1 + 2 * HALO / pair[1]), -pair[1]))
        return Tpu1dPlan((n,), update.radius, steps, size, cells)

    def lay_out(self, x: Array, plan: Tpu1dPlan, sides: Sides) -> Array:
        n, size = plan.shape[0], plan.cells
        if size != n:
            x = jnp.take(x, padded_index(size, n, REACH, sides[0] is None))
        return x.reshape(plan.physical)

    def field_of(self, x: Array, plan: Tpu1dPlan) -> Array:
        return x.reshape(-1)[: plan.shape[0]]

    def strip(self, plan: Tpu1dPlan, sides: tuple[Sides, ...], like: Array, interpreted: bool) -> "_FoldedStrip":
        return _FoldedStrip(plan, sides, like, interpreted)


class _FoldedStrip:
    """Moves cells within a strip; see `AbstractTpuKernel.strip`."""

    def __init__(self, plan: Tpu1dPlan, sides: tuple[Sides, ...], like: Array, interpreted: bool):
        self.plan, self.sides, self.interpreted = plan, sides, interpreted
        self.lane = jax.lax.broadcasted_iota(jnp.int32, like.shape, 1)

    def shifted(self, x: Array, shift: tuple[int, ...]) -> Array:
        """Returns a strip with what stands a shift further on in the place of each cell."""
        return self._shifted(x, shift[0])

    def with_ghosts(self, f: int, x: Array) -> Array:
        """Returns a field with new ghost cells."""
        (pair,) = self.sides[f]
        if pair is None:
            return x
        row = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0) + pl.program_id(0) * self.plan.rows - HALO
        cell = row * LANES + self.lane
        out, n = x, self.plan.shape[0]
        for q in range(self.plan.radius):
            lower = pair[0].ghost(q, lambda m: self._shifted(x, m + q + 1))  # noqa: B023
            upper = pair[1].ghost(q, lambda m: self._shifted(x, -(m + q + 1)))  # noqa: B023
            out = jnp.where(cell == -1 - q, lower, jnp.where(cell == n + q, upper, out))
        return out

    def _shifted(self, x: Array, by: int) -> Array:
        if not by:
            return x
        # a cell that leaves its row comes from the next one, so the rows are also rotated
        rows = self._rolled(x, -by, 1)
        inside = self.lane < LANES - by if by > 0 else self.lane >= -by
        return jnp.where(inside, rows, self._rolled(rows, -1 if by > 0 else 1, 0))

    def _rolled(self, x: Array, by: int, axis: int) -> Array:
        return rolled(x, by % x.shape[axis], axis, self.interpreted)
