r"""Several steps for each pass over memory, on a TPU, in two and three dimensions.

A kernel takes a strip of `rows` rows and the whole width, with `halo` more rows on either side, and keeps it in vector
memory for $k$ steps of radius $r$, $k r \le$ `halo` $\le 8$. The strip, the rows above and the rows below are three
block-aligned views of one array, whose index wraps; neighbours come by rotations, so that all shapes stay the
same, and what is wrong at the ends of the strip moves inwards by $r$ rows a step and is not written. In three
dimensions the rows are planes, of which a halo may have fewer than 8.

Rotations make all axes periodic. Where the field does not fill whole tiles, or has walls, XLA first puts it into an
array that does: the field first, its upper ghost cells behind it, its lower ones at the very end, where rotations find
them. Ghost cells of walls are made anew before every step, where a mask says.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._choices import choices
from .._ghost_weights import GhostWeights, NotForKernelsError, Sides
from .._update import StencilUpdate
from ._tpu_strips import LANES, AbstractTpuKernel, padded_index, rolled

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
        physical: The shape of the global arrays; that of the field where it fills whole strips periodically.
    """

    shape: tuple[int, ...]
    radius: int
    steps: int
    rows: int
    halo: int
    physical: tuple[int, ...]


class MosaicTpu(AbstractTpuKernel):
    """The kernel for TPUs in two and three dimensions; `rows` are those of a strip."""

    sizes: ClassVar[tuple[int, ...]] = (128, 64, 32, 16, 8, 4, 2, 1)
    takes_stages: ClassVar[bool] = True
    ndims: ClassVar[tuple[int, ...]] = (2, 3)
    reach: ClassVar[int] = HALO

    def usual_steps(self, radius: int, ndim: int) -> int:
        return max(1, (HALO if ndim == 2 else 2) // radius)

    def tiles(
        self,
        update: StencilUpdate,
        params: PyTree,
        shape: tuple[int, ...],
        dtype: Any,
        steps: int,
        sizes: tuple[int, ...],
        sides: tuple[Sides, ...],
    ) -> TpuPlan:
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
