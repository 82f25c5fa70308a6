r"""Several steps for each pass over memory, on a GPU, in one dimension.

One warpgroup takes a tile of `rows` cells with 64 more at either side, of which $k$ steps of radius $r$ need $k r$, and
keeps it in shared memory: two buffers, read and written alternately. A neighbour is the whole tile, shifted; wrong
values at the ends of the tile move inwards by $r$ cells a step and are not written. Global memory is read and written
once for $k$ steps.

Global arrays are as large as whole tiles, with a halo at either end, and stay so from pass to pass. Before each pass
XLA refreshes the ghost cells of a periodic field; the kernel computes the ghost cells of walls again for every step.

The same body runs interpreted, by `pallas_call` without a GPU. That proves its numbers, not its synchronisation.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...._choices import choices
from .._ghost_weights import NotForKernelsError, Sides
from .._update import Fields, StencilUpdate
from ._gpu import AbstractGpuKernel, refreshed
from ._kernel import StencilCase
from ._launch_gpu import SHARED_BYTES, launch
from ._packed_operands import PackedOperands
from ._sums import new_values

HALO = 64
"""Cells at either side of a tile that it does not write; a tile is then a multiple of a warpgroup's threads."""


class Gpu1dPlan(NamedTuple):
    """How a field of one axis is cut into tiles.

    Attributes:
        shape: The number of cells.
        radius: The radius of the update.
        steps: The stages for each pass.
        rows: The cells that a tile writes.
    """

    shape: tuple[int]
    radius: int
    steps: int
    rows: int

    @property
    def grid(self) -> tuple[int]:
        """The number of tiles."""
        return (-(-self.shape[0] // self.rows),)

    @property
    def physical(self) -> tuple[int]:
        """The size of the global arrays."""
        return (self.grid[0] * self.rows + 2 * HALO,)


class MosaicGpu1d(AbstractGpuKernel):
    """The kernel for GPUs in one dimension; `rows` are the cells of a tile."""

    sizes: ClassVar[tuple[int, ...]] = (1024, 512, 256, 2048)  # those to try first at the front
    takes_stages: ClassVar[bool] = True
    ndims: ClassVar[tuple[int, ...]] = (1,)
    reach: ClassVar[int] = HALO
    operand_lanes: ClassVar[int] = 1

    def usual_steps(self, radius: int, ndim: int) -> int:
        return max(1, 8 // radius)

    def tiles(self, case: StencilCase, steps: int, sizes: tuple[int, ...]) -> Gpu1dPlan:
        update, _, shape, dtype, _ = case
        sizes = tuple(n for n in sizes if _bytes(update, n, dtype) <= SHARED_BYTES)
        if not sizes:
            raise NotForKernelsError(f"tiles of {len(update.fields)} fields do not fit")
        busy = [n for n in sizes if -(-shape[0] // n) >= choices().kernels.gpu_tiles]
        return Gpu1dPlan((shape[0],), update.radius, steps, busy[0] if busy else min(sizes))

    def first(self, plan: Gpu1dPlan) -> tuple[int, ...]:
        return (HALO,)

    def make_pass(
        self, case: StencilCase, coefficients: Fields, plan: Gpu1dPlan, operands: PackedOperands, interpret: Any
    ) -> Callable[[Fields, int], Fields]:
        update, _, _, _, sides = case
        fixed = tuple(refreshed(x, (HALO,), plan.shape, sides[0]) for x in coefficients)

        def one_pass(state: Fields, steps: int) -> Fields:
            fresh = tuple(refreshed(x, (HALO,), plan.shape, walls) for x, walls in zip(state, sides))
            body = _Body(update, plan, steps, operands)
            inputs = (*fresh, *fixed, np.arange(body.size, dtype=np.int32), operands.rows[:, 0])
            return launch(body.run, inputs, plan.physical, len(fresh), plan.grid, body.scratch(), interpret)

        return one_pass


def _bytes(update: StencilUpdate, cells: int, dtype: Any) -> int:
    buffers = 2 * len(update.fields) + len(update.coefficients)
    return buffers * (cells + 2 * HALO + 4 * update.radius) * jnp.dtype(dtype).itemsize


class _Body:
    """The kernel; `run` gets references to memory and a `device` that provides its position and its operations."""

    def __init__(self, update: StencilUpdate, plan: Gpu1dPlan, steps: int, operands: PackedOperands):
        self.update, self.plan, self.steps, self.operands = update, plan, steps, operands
        self.names = update.fields + update.coefficients
        self.size = plan.rows + 2 * HALO
        self.margin = 2 * update.radius  # cells before and after a tile that shifted reads touch
        self.stride = self.size + 2 * self.margin

    def scratch(self) -> list[int]:
        """The sizes of the buffers in shared memory."""
        fields = len(self.update.fields)
        return [fields * self.stride, fields * self.stride, max(1, len(self.names) - fields) * self.stride]

    def run(self, device: Any, refs: Any) -> None:
        n, fields = len(self.names), len(self.update.fields)
        mains, cells, packed = refs[:n], refs[n], refs[n + 1]
        outs, (source, target, rest) = refs[n + 2 : n + 2 + fields], refs[n + 2 + fields :]
        (tile,) = device.place()
        (fn, params), sides = self.operands.unpack(lambda row: packed[row])
        update = eqx.tree_at(lambda u: u.fn, self.update, fn)
        for f, main in enumerate(mains):
            buffer = source if f < fields else rest
            buffer[self._at(f)] = main[pl.ds(tile * self.plan.rows, self.size)]
        device.sync()
        inner = [jnp.zeros((self.size,), source.dtype)] * len(update.inner)
        for s in range(self.steps):
            self._make_ghosts(device, tile, source, cells, sides)

            def nb(name: str, *shift: int, source: Any = source, inner: list = inner) -> Array:
                (by,) = update.check_shift(name, shift, 1)
                if name in update.inner:
                    return inner[update.inner.index(name)]
                f = self.names.index(name)
                return (source if f < fields else rest)[self._at(f, by)]

            like = jax.ShapeDtypeStruct((self.size,), source.dtype)
            new = new_values(update.stage(s), nb, params, like)
            for f, value in enumerate(new[:fields]):
                target[self._at(f)] = value
            inner = list(new[fields:])  # read at the cell itself alone, so they stay in registers
            device.sync()  # a step reads what neighbouring threads wrote
            source, target = target, source
        for f, out in enumerate(outs):
            here = pl.ds(HALO + tile * self.plan.rows, self.plan.rows)
            out[here] = source[pl.ds(f * self.stride + self.margin + HALO, self.plan.rows)]

    def _at(self, f: int, shift: int = 0) -> Any:
        """The position of the tile of an array in its buffer, shifted."""
        fields = len(self.update.fields)
        return pl.ds((f if f < fields else f - fields) * self.stride + self.margin + shift, self.size)

    def _make_ghosts(self, device: Any, tile: Any, buffer: Any, cells: Any, sides: tuple[Sides, ...]) -> None:
        walls = [(f, side[0]) for f, side in enumerate(sides) if side[0] is not None]
        if not walls:
            return
        beyond = self.plan.shape[0] + HALO - tile * self.plan.rows  # where the first cell beyond the upper wall stands

        def fill(end: int, first: Any, sign: int) -> None:
            cell = cells[pl.ds(0, self.size)]
            for f, pair in walls:
                value = buffer[self._at(f)]
                for q in range(self.plan.radius):
                    made = pair[end].ghost(q, lambda m: buffer[self._at(f, -sign * (m + q + 1))])  # noqa: B023
                    value = jnp.where(cell == first + sign * q, made, value)
                buffer[self._at(f)] = value

        pl.when(tile == 0)(lambda: fill(0, HALO - 1, -1))
        pl.when(beyond < self.size)(lambda: fill(1, beyond, 1))
        device.sync()
