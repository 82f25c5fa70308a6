r"""Several steps for each pass over memory, on a GPU, in three dimensions.

One warpgroup takes a tile of `rows` x 128 cells in the last two axes, with the halo that $k$ steps of radius $r$ need,
and walks along the first axis. Planes arrive in shared memory one ahead of their use, by bulk copies. When plane $z$ of
the state before a step is there, plane $z - r$ of the state after it is computed, so the $k$ steps follow each other at
a distance of $r$ planes, and a plane that the last of them makes goes to memory. Global memory is read and written
once for $k$ steps.

A tile of a plane is one piece of memory, so a read to the side is the whole tile, shifted; wrong values at its edges
move inwards by $r$ cells a step and are not written. A field that is read along the first axis only straight above and
below keeps those planes in registers, and in shared memory the planes that are read sideways; any other field keeps
$2r + 1$ planes in shared memory.

Global arrays have ghost cells on all sides, as many as a pass needs. XLA refreshes the ghost cells of periodic axes
before each pass; the kernel computes the ghost cells of walls again for every step.

The same body runs interpreted, by `pallas_call` without a GPU. That proves its numbers, not its synchronisation.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._choices import choices
from .._ghost_weights import GhostWeights, NotForKernelsError, Sides
from .._update import Fields, StencilUpdate
from ._gpu import AbstractGpuKernel, refreshed
from ._kernel import StencilCase
from ._launch_gpu import SHARED_BYTES, launch
from ._packed_operands import PackedOperands
from ._sums import new_values

LANES = 128
"""Cells of a row of a tile."""


class Gpu3dPlan(NamedTuple):
    """How a field is cut into tiles.

    Attributes:
        shape: The shape of the field.
        radius: The radius of the update.
        steps: The stages for each pass.
        planes: The planes that a tile writes.
        rows: The rows of each that it writes.
    """

    shape: tuple[int, int, int]
    radius: int
    steps: int
    planes: int
    rows: int

    @property
    def halo(self) -> int:
        """The planes and rows at either side of a tile that it does not write."""
        return self.steps * self.radius

    @property
    def margin(self) -> int:
        """The columns at either side that it does not write; a bulk copy moves multiples of 16 bytes."""
        return -(-self.halo // 4) * 4

    @property
    def high(self) -> int:
        """The rows of a tile."""
        return self.rows + 2 * self.halo

    @property
    def columns(self) -> int:
        """The columns that a tile writes."""
        return LANES - 2 * self.margin

    @property
    def first(self) -> tuple[int, int, int]:
        """The position of the first cell of the field in the global arrays."""
        return self.halo, self.halo, self.margin

    @property
    def grid(self) -> tuple[int, int, int]:
        """The number of tiles along each axis."""
        sizes = (self.planes, self.rows, self.columns)
        return tuple(-(-n // size) for n, size in zip(self.shape, sizes))  # type: ignore[return-value]

    @property
    def physical(self) -> tuple[int, int, int]:
        """The shape of the global arrays."""
        sizes = (self.planes, self.rows, self.columns)
        return tuple(n * size + 2 * b for n, size, b in zip(self.grid, sizes, self.first))  # type: ignore[return-value]


class PlaneStorage(NamedTuple):
    """The positions of the planes of an array while a tile walks.

    Attributes:
        below: The planes behind the one that is computed which are read sideways.
        above: The planes ahead of it which are there.
        window: Whether those straight above and below are in registers.
        aside: Whether it is read at neighbours in the same plane, or in another but not straight above or below.
    """

    below: int
    above: int
    window: bool
    aside: bool


def _storage_of(update: StencilUpdate, params: PyTree, dtype: Any) -> tuple[PlaneStorage, ...]:
    """The positions of the planes of each field and coefficient."""
    r = update.radius
    shifts: dict[str, list] = {name: [] for name in update.fields + update.coefficients}
    for shift, names in update.reads(3, dtype, params).items():
        for name in names:
            shifts[name].append(shift)

    def one(name: str) -> PlaneStorage:
        aside = any(dy or dx for _, dy, dx in shifts[name])
        moved = [shift for shift in shifts[name] if shift[0]]
        if not moved:
            return PlaneStorage(0, 0, False, aside)
        if name in update.coefficients or any(dy or dx for _, dy, dx in moved):
            return PlaneStorage(r, r, False, True)
        return PlaneStorage(0, r, True, aside)

    return tuple(map(one, shifts))


class _Slots(NamedTuple):
    """The planes in shared memory of one array after one number of steps."""

    first: int
    size: int


def _layout(storage: tuple[PlaneStorage, ...], fields: int, radius: int, steps: int) -> tuple[list[list[_Slots]], int]:
    """The slots of each array for each number of steps, and their sum."""
    found, total = [], 0
    for f, one in enumerate(storage):
        mine = []
        for s in range(steps if f < fields else 1):
            count = one.below + (radius if s else one.above) + 1 + (s == 0)
            if f >= fields:
                count += (steps - 1) * radius
            mine.append(_Slots(total, count))
            total += count
        found.append(mine)
    return found, total


class MosaicGpu3d(AbstractGpuKernel):
    """The kernel for GPUs in three dimensions; `rows` are the rows of a plane that a tile writes."""

    sizes: ClassVar[tuple[int, ...]] = (16, 8, 4, 2)  # those to try first at the front
    takes_stages: ClassVar[bool] = False
    ndims: ClassVar[tuple[int, ...]] = (3,)
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)  # bulk copies of float64 into shared memory are refused by Mosaic
    reach: ClassVar[int] = 8
    operand_lanes: ClassVar[int] = 1

    def usual_steps(self, radius: int, ndim: int) -> int:
        return 2 if radius == 1 else 1

    def tiles(self, case: StencilCase, steps: int, sizes: tuple[int, ...]) -> Gpu3dPlan:
        update, params, shape, dtype, _ = case
        r, storage, table = update.radius, _storage_of(update, params, dtype), choices().kernels
        for rows in sizes:
            fits = rows >= steps * r and _bytes(update, storage, rows, steps, dtype) <= SHARED_BYTES
            if fits and (
                rows < 2 * steps * r or _registers(update, storage, rows, steps, dtype) <= table.gpu_registers
            ):
                flat = -(-shape[1] // rows) * -(-shape[2] // (LANES - 2 * (-(-steps * r // 4) * 4)))
                parts = max(1, min(-(-table.gpu_tiles // flat), shape[0] // (8 * steps * r)))
                return Gpu3dPlan((shape[0], shape[1], shape[2]), r, steps, -(-shape[0] // parts), rows)
        raise NotForKernelsError(f"tiles of {len(storage)} fields with {steps} steps for each pass do not fit")

    def first(self, plan: Gpu3dPlan) -> tuple[int, ...]:
        return plan.first

    def make_pass(
        self, case: StencilCase, coefficients: Fields, plan: Gpu3dPlan, operands: PackedOperands, interpret: Any
    ) -> Callable[[Fields, int], Fields]:
        update, params, _, _, sides = case
        fixed = tuple(refreshed(x, plan.first, plan.shape, sides[0]) for x in coefficients)
        storage = _storage_of(update, params, operands.rows.dtype)

        def one_pass(state: Fields, steps: int) -> Fields:
            fresh = tuple(refreshed(x, plan.first, plan.shape, walls) for x, walls in zip(state, sides))
            body = _Body(update, plan, steps, storage, operands)
            columns = np.tile(np.arange(LANES, dtype=np.int32), plan.high)
            inputs = (*fresh, *fixed, columns, operands.rows[:, 0])
            copies = len(body.names) * plan.high
            return launch(body.run, inputs, plan.physical, len(fresh), plan.grid, body.scratch(), interpret, copies)

        return one_pass


def _bytes(update: StencilUpdate, storage: tuple[PlaneStorage, ...], rows: int, steps: int, dtype: Any) -> int:
    slots = _layout(storage, len(update.fields), update.radius, steps)[1]
    tile = (rows + 2 * steps * update.radius) * LANES
    ends = 2 * (update.radius + 1) * LANES
    return (slots * tile + ends + len(update.fields) * (rows + 1) * LANES) * jnp.dtype(dtype).itemsize


def _registers(update: StencilUpdate, storage: tuple[PlaneStorage, ...], rows: int, steps: int, dtype: Any) -> int:
    """The registers that planes use in each thread, including the arithmetic."""
    r, windows = update.radius, sum(one.window for one in storage[: len(update.fields)])
    arrays = [2 * r * windows * (rows + 2 * r * (steps - s)) for s in range(1, steps + 1)]
    words = sum(arrays) + (3 + windows) * (rows + 2 * r * (steps - 1))
    return words * jnp.dtype(dtype).itemsize // 4


class _Body:
    """The kernel; `run` gets references to memory and a `device` that provides its position and its operations."""

    def __init__(
        self,
        update: StencilUpdate,
        plan: Gpu3dPlan,
        steps: int,
        storage: tuple[PlaneStorage, ...],
        operands: PackedOperands,
    ):
        self.update, self.plan, self.steps, self.storage, self.operands = update, plan, steps, storage, operands
        self.names = update.fields + update.coefficients
        self.fields = len(update.fields)
        self.slots, self.count = _layout(storage, self.fields, update.radius, steps)
        self.tile = plan.high * LANES
        self.end = (update.radius + 1) * LANES  # cells before and after the slots that shifted reads touch

    def scratch(self) -> list[int]:
        """The sizes of the two buffers in shared memory: planes that are read, and those on their way out."""
        return [self.count * self.tile + 2 * self.end, self.fields * (self.plan.rows + 1) * LANES]

    def run(self, device: Any, refs: Any) -> None:
        p, n, r = self.plan, len(self.names), self.plan.radius
        mains, columns, packed = refs[:n], refs[n], refs[n + 1]
        outs = refs[n + 2 : n + 2 + self.fields]
        ring, written, barrier = refs[n + 2 + self.fields :]
        place = device.place()
        (fn, params), sides = self.operands.unpack(lambda row: packed[row])
        update = eqx.tree_at(lambda u: u.fn, self.update, fn)
        reach, total = self.steps * r, p.planes + 2 * self.steps * r
        spare = p.halo - reach  # a pass of fewer steps has that much more halo than it needs

        def fetch(t: Any) -> None:
            for f, main in enumerate(mains):
                plane = place[0] * p.planes + spare + jnp.clip(t - r + self.storage[f].above, 0, total - 1)
                at = self._at(f, 0, t - r + self.storage[f].above)

                def row(y: Any, carry: None, main: Any = main, plane: Any = plane, at: Any = at) -> None:
                    y = jnp.asarray(y, jnp.int32)
                    source = (plane, place[1] * p.rows + y, pl.ds(place[2] * p.columns, LANES))
                    device.load(main, source, ring, pl.ds(at + y * LANES, LANES), barrier)
                    return carry

                jax.lax.fori_loop(0, p.high, row, None)

        def walk(t: Any, windows: tuple) -> tuple:
            t = jnp.asarray(t, jnp.int32)
            device.wait(barrier)  # the plane that was asked for one iteration ago
            pl.when(t + 1 < total)(lambda: fetch(t + 1))
            kept = []
            for s in range(1, self.steps + 1):
                z = t - s * r  # the plane that is computed, of those that the tile reads
                plane = place[0] * p.planes - reach + z  # the same, of the field
                self._fill(device, place, ring, columns, sides, s - 1, z)
                window = self._window(ring, windows[s - 1], sides, s, z, plane)
                self._mend(device, place, ring, columns, sides, s - 1, z, plane)
                like = jax.ShapeDtypeStruct((self._rows(s)[1],), ring.dtype)
                new = new_values(update, self._reader(update, ring, window, s, z), params, like)
                kept.append(tuple(x[1:] for x in window))
                if s < self.steps:
                    for f, value in enumerate(new):
                        ring[pl.ds(self._at(f, s, z) + self._rows(s)[0], value.size)] = value
                    device.sync()
                else:
                    self._store(device, place, new, written, outs, z, reach, spare)
            return tuple(kept)

        start = []
        for s in range(1, self.steps + 1):
            # the first planes have no owner: their values are computed with, but never written
            anything = ring[pl.ds(self.end, self._rows(s)[1])]
            start.append(tuple((anything,) * (2 * r) for one in self.storage[: self.fields] if one.window))
        device.sync()
        fetch(jnp.int32(0))
        jax.lax.fori_loop(0, total, walk, tuple(start))
        device.finish()

    def _at(self, f: int, s: int, z: Any) -> Any:
        """The position of the tile of plane `z` of an array after `s` steps."""
        first, count = self.slots[f][s]
        ahead = -(-(self.steps + 2) * self.plan.radius // count) * count  # planes before the first are below zero
        slot = jax.lax.rem(z + ahead, jnp.asarray(count, z.dtype))
        return self.end + (first + slot) * self.tile

    def _rows(self, s: int) -> tuple[int, int]:
        """The cells of a tile that step `s` computes: where they start and their number."""
        edge = (self.plan.halo - (self.steps - s) * self.plan.radius) * LANES
        return edge, self.tile - 2 * edge

    def _reader(self, update: StencilUpdate, ring: Any, window: tuple, s: int, z: Any) -> Any:
        low, size = self._rows(s)
        names = [name for name, one in zip(self.names, self.storage[: self.fields]) if one.window]
        known = dict(zip(names, window))

        def nb(name: str, *shift: int) -> Array:
            dz, dy, dx = update.check_shift(name, shift, 3)
            if name in known and not dy and not dx:
                return known[name][dz + self.plan.radius]
            f = self.names.index(name)
            at = self._at(f, s - 1 if f < self.fields else 0, z + dz)
            return ring[pl.ds(at + low + dy * LANES + dx, size)]

        return nb

    def _window(self, ring: Any, windows: tuple, sides: tuple, s: int, z: Any, plane: Any) -> tuple:
        """The planes around one that are in registers, the new one and ghosts of walls included."""
        r, found = self.plan.radius, []
        low, size = self._rows(s)
        fields = [f for f, one in enumerate(self.storage[: self.fields]) if one.window]
        for f, planes in zip(fields, windows):
            planes = (*planes, ring[pl.ds(self._at(f, s - 1, z + r) + low, size)])
            if sides[f][0] is not None:
                planes = self._beyond(planes, sides[f][0], plane)
            found.append(planes)
        return tuple(found)

    def _beyond(self, planes: tuple, pair: tuple[GhostWeights, GhostWeights], plane: Any) -> tuple:
        """Planes of which those beyond the walls of the first axis are made of those before them."""
        r, last = self.plan.radius, self.plan.shape[0] - 1

        def lower() -> tuple:
            return tuple(pair[0].ghost(q, lambda m: planes[r + m]) for q in reversed(range(r))) + planes[r:]

        planes = jax.lax.cond(plane == 0, lower, lambda: planes)
        for q in range(r):  # the newest is one beyond the wall
            below = planes[: 2 * r]

            def upper(q: int = q, below: tuple = below) -> Array:
                return pair[1].ghost(q, lambda m: below[2 * r - 1 - q - m])

            newest = jax.lax.cond(plane + r == last + 1 + q, upper, lambda newest=planes[-1]: newest)
            planes = (*below, newest)
        return planes

    def _fill(self, device: Any, place: Any, ring: Any, columns: Any, sides: tuple, s: int, z: Any) -> None:
        """Makes the ghost cells of the newest planes of the state after `s` steps, at the walls of rows and columns."""
        for f, walls in enumerate(sides):
            ahead = self.plan.radius if s else self.storage[f].above
            if self.storage[f].aside:
                self._fill_plane(device, place, ring, columns, walls, self._at(f, s, z + ahead))

    def _fill_plane(self, device: Any, place: Any, ring: Any, columns: Any, walls: Sides, at: Any) -> None:
        p, r = self.plan, self.plan.radius
        down, across = walls[1], walls[2]
        if down is not None:
            beyond = p.shape[1] + p.halo - place[1] * p.rows  # the first row beyond the upper wall

            def fill_rows(first: Any, sign: int, rule: GhostWeights) -> None:
                for q in range(r):

                    def make(q: int = q) -> None:
                        value = rule.ghost(q, lambda m: ring[pl.ds(at + (first - sign * (m + 1)) * LANES, LANES)])
                        ring[pl.ds(at + (first + sign * q) * LANES, LANES)] = value

                    pl.when(first + sign * q < p.high)(make)

            pl.when(place[1] == 0)(lambda: fill_rows(jnp.int32(p.halo - 1), -1, down[0]))
            pl.when(beyond < p.high)(lambda: fill_rows(beyond, 1, down[1]))
            device.sync()
        if across is not None:
            beyond = p.shape[2] + p.margin - place[2] * p.columns

            def fill_columns(first: Any, sign: int, rule: GhostWeights) -> None:
                column = columns[pl.ds(0, self.tile)]
                value = ring[pl.ds(at, self.tile)]
                for q in range(r):
                    new = rule.ghost(q, lambda m: ring[pl.ds(at - sign * (m + q + 1), self.tile)])  # noqa: B023
                    value = jnp.where(column == first + sign * q, new, value)
                ring[pl.ds(at, self.tile)] = value

            pl.when(place[2] == 0)(lambda: fill_columns(p.margin - 1, -1, across[0]))
            pl.when(beyond < LANES)(lambda: fill_columns(beyond, 1, across[1]))
            device.sync()

    def _mend(self, device: Any, place: Any, ring: Any, columns: Any, sides: tuple, s: int, z: Any, plane: Any) -> None:
        """Makes the planes in shared memory that are beyond the walls of the first axis."""
        r, last = self.plan.radius, self.plan.shape[0] - 1
        for f, walls in enumerate(sides):
            one = self.storage[f]
            if walls[0] is None or one.window or not one.above:
                continue

            def make(to: Any, rule: GhostWeights, q: int, sign: int, f: int = f, walls: Any = walls) -> None:
                def layer(m: int) -> Array:
                    return ring[pl.ds(self._at(f, s, to - sign * (m + q + 1)), self.tile)]

                at = self._at(f, s, to)
                ring[pl.ds(at, self.tile)] = rule.ghost(q, layer)
                device.sync()
                self._fill_plane(device, place, ring, columns, (None, *walls[1:]), at)

            def lower(make: Any = make, rule: GhostWeights = walls[0][0]) -> None:
                for q in range(r):
                    make(z - 1 - q, rule, q, -1)

            pl.when(plane == 0)(lower)
            for q in range(r):
                pl.when(plane + r == last + 1 + q)(lambda make=make, q=q, rule=walls[0][1]: make(z + r, rule, q, 1))

    def _store(
        self, device: Any, place: Any, new: Fields, written: Any, outs: Any, z: Any, reach: int, spare: int
    ) -> None:
        p = self.plan
        size = p.rows * LANES
        device.free()
        for f, value in enumerate(new):
            # rows then start, margin apart, where bulk copies may
            written[pl.ds(f * (size + LANES) + LANES - p.margin, value.size)] = value
        device.sync()
        plane = place[0] * p.planes + spare + z

        def row(y: Any, carry: None) -> None:
            y = jnp.asarray(y, jnp.int32)
            for f, out in enumerate(outs):
                part = pl.ds(f * (size + LANES) + LANES + y * LANES, p.columns)
                target = (plane, p.halo + place[1] * p.rows + y, pl.ds(p.margin + place[2] * p.columns, p.columns))
                device.store(written, part, out, target)
            return carry

        pl.when(z >= reach)(lambda: jax.lax.fori_loop(0, p.rows, row, None))
