r"""Several steps for each pass over memory, on a GPU, in two dimensions.

A block takes a tile of `rows` x 128 cells with the halo that $k$ steps of radius $r$ need, and keeps it in shared
memory: two buffers, read and written alternately, of which the good part shrinks by $r$ at every step. Its warpgroups
share the rows of each step. Rows that a step reads in the cell's own column stay in registers while the loop walks down
the tile; a read to the side is a window of the row, shifted. Global memory is read and written once for $k$ steps.

Global arrays are as large as whole tiles and stay so from pass to pass. Rows outside of the field are the rows of the
other side, or at walls the nearest. Columns cannot be had like that, because a row of a tile is one piece of memory:
the tiles whose columns leave the field read copies of them that XLA makes before each pass. If a tile reaches beyond a
wall, its ghost cells are computed again before every step.

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
from ._gpu import AbstractGpuKernel
from ._kernel import StencilCase
from ._launch_gpu import SHARED_BYTES, launch
from ._packed_operands import PackedOperands
from ._sums import new_values

LANES = 128
"""Cells of a row of a tile, one for each thread of a warpgroup."""

MARGIN = 32
"""Cells before and after a buffer that windows may touch; a multiple of what bulk copies start at."""


class Gpu2dPlan(NamedTuple):
    """How a field is cut into tiles.

    Attributes:
        shape: The rows and columns of the field.
        radius: The radius of the update.
        steps: The stages for each pass.
        rows: The rows that a tile writes.
        halo: The columns at either side of a tile that it does not write.
    """

    shape: tuple[int, int]
    radius: int
    steps: int
    rows: int
    halo: int

    @property
    def columns(self) -> int:
        """The columns that a tile writes."""
        return LANES - 2 * self.halo

    @property
    def grid(self) -> tuple[int, int]:
        """The number of tiles along each axis."""
        return -(-self.shape[0] // self.rows), -(-self.shape[1] // self.columns)

    @property
    def physical(self) -> tuple[int, int]:
        """The shape of the global arrays."""
        return self.grid[0] * self.rows, self.grid[1] * self.columns

    @property
    def right(self) -> int:
        """How many tiles, the first apart, have columns beyond the last one of the field."""
        inside = (self.shape[1] - LANES + self.halo) // self.columns  # the last tile that has none
        return self.grid[1] - 1 - max(0, min(inside, self.grid[1] - 1))


class MosaicGpu2d(AbstractGpuKernel):
    """The kernel for GPUs in two dimensions; `rows` are those that a tile writes."""

    sizes: ClassVar[tuple[int, ...]] = (32, 16, 8, 64)  # those to try first at the front
    takes_stages: ClassVar[bool] = True
    ndims: ClassVar[tuple[int, ...]] = (2,)
    reach: ClassVar[int] = MARGIN
    operand_lanes: ClassVar[int] = LANES

    def usual_steps(self, radius: int, ndim: int) -> int:
        return max(1, 8 // radius)

    def tiles(self, case: StencilCase, steps: int, sizes: tuple[int, ...]) -> Gpu2dPlan:
        update, _, shape, dtype, _ = case
        r = update.radius
        for rows in sizes:
            if rows >= steps * r and _bytes(update, rows, steps * r, dtype) <= SHARED_BYTES:
                return Gpu2dPlan((shape[0], shape[1]), r, steps, rows, -(-steps * r // 4) * 4)
        raise NotForKernelsError(f"tiles of {len(update.fields)} fields with {steps} steps for each pass do not fit")

    def first(self, plan: Gpu2dPlan) -> tuple[int, ...]:
        return (0, 0)

    def make_pass(
        self, case: StencilCase, coefficients: Fields, plan: Gpu2dPlan, operands: PackedOperands, interpret: Any
    ) -> Callable[[Fields, int], Fields]:
        update, _, _, _, sides = case
        fixed = tuple(_edges(x, plan, sides[0]) for x in coefficients)

        def one_pass(state: Fields, steps: int) -> Fields:
            edges = tuple(_edges(x, plan, walls) for x, walls in zip(state, sides)) + fixed
            body = _Body(update, plan._replace(steps=steps), operands)
            inputs = (*state, *coefficients, *edges, np.arange(LANES, dtype=np.int32), operands.rows)
            size, buffers = plan.physical, body.scratch()
            groups = choices().kernels.gpu_warpgroups
            return launch(body.run, inputs, size, len(state), plan.grid, buffers, interpret, warpgroups=groups)

        return one_pass


def _bytes(update: StencilUpdate, rows: int, halo: int, dtype: Any) -> int:
    buffers = 2 * len(update.fields) + len(update.coefficients) + len(update.inner)
    tile = (rows + 2 * halo + update.radius) * LANES + 2 * MARGIN
    return buffers * tile * jnp.dtype(dtype).itemsize


def _edges(x: Array, plan: Gpu2dPlan, sides: Sides) -> Array:
    """The columns of the tiles at the left and the right edge, of shape `(rows, tiles * 128)`."""
    tiles = [0, *range(plan.grid[1] - plan.right, plan.grid[1])]
    columns = np.concatenate([t * plan.columns - plan.halo + np.arange(LANES, dtype=np.int32) for t in tiles])
    width = plan.shape[1]
    return x[:, columns % width if sides[1] is None else np.clip(columns, 0, width - 1)]


class _Body:
    """The kernel; `run` gets references to memory and a `device` that provides its position and its operations."""

    def __init__(self, update: StencilUpdate, plan: Gpu2dPlan, operands: PackedOperands):
        self.update, self.plan, self.operands = update, plan, operands
        self.names = update.fields + update.coefficients
        self.high = plan.rows + 2 * plan.steps * plan.radius  # the rows of a tile
        self.stride = (self.high + plan.radius) * LANES  # ghost rows of an upper wall may stand beyond it

    def scratch(self) -> list[int]:
        """The sizes of the buffers in shared memory."""
        fields, rest = len(self.update.fields), len(self.update.coefficients)
        sizes = [fields * self.stride + 2 * MARGIN] * 2 + [rest * self.stride + 2 * MARGIN]
        if self.update.inner:
            sizes.append(len(self.update.inner) * self.stride)
        return sizes

    def run(self, device: Any, refs: Any) -> None:
        p, n, fields = self.plan, len(self.names), len(self.update.fields)
        mains, edges, lanes, packed = refs[:n], refs[n : 2 * n], refs[2 * n], refs[2 * n + 1]
        outs, (one, two, rest, *inner) = refs[2 * n + 2 : 2 * n + 2 + fields], refs[2 * n + 2 + fields :]
        i, j = device.place()

        (fn, params), sides = self.operands.unpack(lambda row: packed[row, pl.ds(0, LANES)])
        update = eqx.tree_at(lambda u: u.fn, self.update, fn)
        self._load(device, i, j, mains, edges, (one,) * fields + (rest,) * (n - fields), sides)
        device.sync()
        source, target = one, two
        for s in range(1, p.steps + 1):
            self._make_ghosts(device, i, j, source, lanes, sides)
            self._step(device, update.stage(s - 1), params, s, source, (rest, *inner), target)
            device.sync()
            source, target = target, source

        def store(t: Any, carry: None) -> None:
            for f in range(fields):
                part = pl.ds(self._at(f, t + p.steps * p.radius).start, p.columns)
                device.store(source, part, outs[f], (i * p.rows + t, pl.ds(j * p.columns, p.columns)))
            return carry

        jax.lax.fori_loop(*device.share(0, p.rows), store, None)
        device.finish()

    def _at(self, f: int, t: Any, shift: int = 0) -> Any:
        """The position of row `t` of an array in its buffer, shifted sideways."""
        f = f if f < len(self.update.fields) else f - len(self.update.fields)
        return pl.ds(MARGIN + f * self.stride + t * LANES + shift, LANES)

    def _load(
        self, device: Any, i: Any, j: Any, mains: Any, edges: Any, buffers: Any, sides: tuple[Sides, ...]
    ) -> None:
        p, halo = self.plan, self.plan.steps * self.plan.radius
        height, tiles = p.shape[0], p.grid[1]
        sides = sides + (sides[0],) * (len(mains) - len(sides))  # coefficients go on as the first field does

        def row(t: Any, f: int) -> Any:
            g = i * p.rows + t - halo
            if sides[f][0] is None:
                wraps = -(-halo // height)
                return jax.lax.rem(g + wraps * height, jnp.asarray(height, g.dtype))
            return jnp.clip(g, 0, height - 1)

        def copy(from_edges: bool) -> None:
            low, high = device.share(0, self.high)

            def one(f: int, t: Any) -> Array:
                if from_edges:
                    e = jnp.where(j == 0, 0, j - (tiles - p.right) + 1)
                    return edges[f][row(t, f), pl.ds(e * LANES, LANES)]
                return mains[f][row(t, f), pl.ds(j * p.columns - p.halo, LANES)]

            loads = choices().kernels.gpu_loads

            def some(n: Any, carry: None) -> None:
                rows = [jnp.minimum(low + n * loads + q, high - 1) for q in range(loads)]  # the last may be read again
                values = [(f, t, one(f, t)) for t in rows for f in range(len(buffers))]
                for f, t, value in values:
                    buffers[f][self._at(f, t)] = value
                return carry

            count = jnp.asarray(high - low + loads - 1, jnp.int32)
            jax.lax.fori_loop(0, jax.lax.div(count, jnp.asarray(loads, jnp.int32)), some, None)

        if p.right >= tiles - 1:
            copy(True)
            return
        at_edge = jnp.logical_or(j == 0, j >= tiles - p.right)
        pl.when(at_edge)(lambda: copy(True))
        pl.when(jnp.logical_not(at_edge))(lambda: copy(False))

    def _step(self, device: Any, update: Any, params: Any, s: int, source: Any, rest: Any, target: Any) -> None:
        p, r, fields = self.plan, self.plan.radius, len(self.update.fields)
        aligned = p.halo if s == p.steps else 0  # what is written to memory starts where bulk copies may
        tall = self._walked(update, params, source.dtype)
        rest, *inner = rest

        def row(f: int, t: Any, shift: int = 0) -> Array:
            return (source if f < fields else rest)[self._at(f, t, shift)]

        def own(number: int, t: Any) -> Any:
            return pl.ds(number * self.stride + t * LANES, LANES)

        def walk(t: Any, windows: tuple) -> tuple:
            windows = tuple((*rows, row(f, t + r)) for f, rows in zip(tall, windows))
            known = dict(zip(tall, windows))

            def nb(name: str, *shift: int) -> Array:
                dy, dx = update.check_shift(name, shift, 2)
                if name in update.inner:
                    return inner[0][own(update.inner.index(name), t)]
                f = self.names.index(name)
                return known[f][dy + r] if dx == 0 and f in known else row(f, t + dy, dx)

            like = row(0, t)
            for f, value in enumerate(new_values(update, nb, params, like)):
                if f >= fields:  # read at the cell itself alone, so it can be written where it was read
                    inner[0][own(f - fields, t)] = value
                else:
                    target[self._at(f, t, -aligned)] = value
            return tuple(rows[1:] for rows in windows)

        low, high = device.share(s * r, self.high - s * r)
        start = tuple(tuple(row(f, low - r + q) for q in range(2 * r)) for f in tall)
        jax.lax.fori_loop(low, high, walk, start)

    def _walked(self, update: Any, params: Any, dtype: Any) -> tuple[int, ...]:
        """The fields that are read above or below the cell, whose rows stay in registers."""
        fn, params = jax.tree.map(lambda x: jnp.zeros((), dtype) if eqx.is_array(x) else x, (update.fn, params))
        reads = eqx.tree_at(lambda u: u.fn, update, fn).reads(2, dtype, params)
        names = {name for (dy, dx), read in reads.items() if dy and not dx for name in read}
        return tuple(f for f, name in enumerate(self.names) if name in names)

    def _make_ghosts(self, device: Any, i: Any, j: Any, buffer: Any, lanes: Any, sides: tuple[Sides, ...]) -> None:
        p, r, halo = self.plan, self.plan.radius, self.plan.steps * self.plan.radius
        rows = [(f, side[0]) for f, side in enumerate(sides) if side[0] is not None]
        columns = [(f, side[1]) for f, side in enumerate(sides) if side[1] is not None]

        if rows:
            above = p.shape[0] + halo - i * p.rows  # where the first row beyond the upper wall stands

            def lower() -> None:
                for f, pair in rows:
                    for q in range(r):
                        value = pair[0].ghost(q, lambda m: buffer[self._at(f, halo + m)])  # noqa: B023
                        buffer[self._at(f, halo - 1 - q)] = value

            def upper() -> None:
                for f, pair in rows:
                    for q in range(r):
                        value = pair[1].ghost(q, lambda m: buffer[self._at(f, above - 1 - m)])  # noqa: B023
                        buffer[self._at(f, above + q)] = value

            pl.when(jnp.logical_and(i == 0, device.leads()))(lower)
            pl.when(jnp.logical_and(above < self.high, device.leads()))(upper)
            device.sync()
        if columns:
            beyond = p.shape[1] + p.halo - j * p.columns

            def fill(end: int) -> None:
                lane = lanes[pl.ds(0, LANES)]
                first, sign = (p.halo - 1, -1) if end == 0 else (beyond, 1)

                def one(t: Any, carry: None) -> None:
                    for f, pair in columns:
                        value = buffer[self._at(f, t)]
                        for q in range(r):
                            new = pair[end].ghost(q, lambda m: buffer[self._at(f, t, -sign * (m + q + 1))])  # noqa: B023
                            value = jnp.where(lane == first + sign * q, new, value)
                        buffer[self._at(f, t)] = value
                    return carry

                jax.lax.fori_loop(0, self.high + r, one, None)

            # a shifted row reads cells of the next ones, so one warpgroup does it
            pl.when(jnp.logical_and(j == 0, device.leads()))(lambda: fill(0))
            pl.when(jnp.logical_and(beyond < LANES, device.leads()))(lambda: fill(1))
            device.sync()
