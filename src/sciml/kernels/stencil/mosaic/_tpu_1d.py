r"""Several steps for each pass over memory, on a TPU, in one dimension.

The field is folded into rows of 128 cells, one after the other. A kernel takes a strip of `rows` rows with 8 more on
either side and keeps it in vector memory for $k$ steps of radius $r$. A neighbour is the strip, rotated along its rows,
with the cells that leave a row taken from the next one. What is wrong at the ends of the strip moves inwards by $r$
cells a step and is not written.

Rotations make the field periodic. Where it does not fill whole strips, or has walls, XLA first puts it into an array
that does: the field first, its upper ghost cells behind it, its lower ones at the very end.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._choices import choices
from .._ghost_weights import NotForKernelsError, Sides
from .._update import StencilUpdate
from ._tpu_strips import LANES, AbstractTpuKernel, padded_index, rolled

HALO = 8
"""Rows above and below a strip: the height of a TPU's tile."""

REACH = 64
"""Cells that stand in for those beyond either end, and the furthest that a pass may reach."""


class Tpu1dPlan(NamedTuple):
    """How a field of one axis is cut into strips.

    Attributes:
        shape: The number of cells.
        radius: The radius of the update.
        steps: The stages for each pass.
        rows: The rows of a strip.
        cells: The cells of the global arrays; those of the field where it fills whole strips periodically.
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
    """The kernel for TPUs in one dimension; `rows` are those of a strip."""

    sizes: ClassVar[tuple[int, ...]] = (128, 64, 32, 16, 8)
    takes_stages: ClassVar[bool] = True
    ndims: ClassVar[tuple[int, ...]] = (1,)
    reach: ClassVar[int] = REACH

    def usual_steps(self, radius: int, ndim: int) -> int:
        return max(1, 8 // radius)

    def tiles(
        self,
        update: StencilUpdate,
        params: PyTree,
        shape: tuple[int, ...],
        dtype: Any,
        steps: int,
        sizes: tuple[int, ...],
        sides: tuple[Sides, ...],
    ) -> Tpu1dPlan:
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
        # a cell that leaves its row comes from the next one, so the rows are rotated, too
        rows = self._rolled(x, -by, 1)
        inside = self.lane < LANES - by if by > 0 else self.lane >= -by
        return jnp.where(inside, rows, self._rolled(rows, -1 if by > 0 else 1, 0))

    def _rolled(self, x: Array, by: int, axis: int) -> Array:
        return rolled(x, by % x.shape[axis], axis, self.interpreted)
