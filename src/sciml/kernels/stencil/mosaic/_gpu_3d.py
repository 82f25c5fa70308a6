r"""Several steps for each pass over memory, on a GPU, in three dimensions.

One warpgroup takes a tile of `rows` x 128 cells in the last two axes, with the halo that $k$ steps of radius $r$ need,
and walks along the first axis. Planes arrive in shared memory one ahead of their use, by bulk copies. When plane $z$ of
the state before a step is there, plane $z - r$ of the state after it is computed, so the $k$ steps follow each other at
a distance of $r$ planes, and a plane that the last of them makes goes to memory. Global memory is read and written
once for $k$ steps.

A tile of a plane is one piece of memory, so a read to the side is the whole tile, shifted; what is wrong at its edges
moves inwards by $r$ cells a step and is not written. A field that is read along the first axis only straight above and
below holds those planes in registers, and shared memory the planes that are read sideways; any other field keeps
$2r + 1$ planes in shared memory.

Global arrays have ghost cells on all sides, as many as a pass needs. XLA refreshes those of periodic axes before each
pass; those of walls are made by the kernel, anew for every step.

The same body runs interpreted, by `pallas_call` without a GPU. That proves its numbers, not its synchronisation.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._jax._loops import scan
from .._ghost_weights import NotForKernelsError, Rule, Sides, rules_of
from .._update import Fields, StencilUpdate
from ._check_supported import check_held
from ._launch_gpu import SHARED_BYTES, launch
from ._packed_operands import Numbers
from ._sums import new_values

TAKES_TURNS = False
"""It runs no updates whose functions take turns."""

LANES = 128
"""Cells of a row of a tile."""

SIZES = (16, 8, 4, 2)
"""The rows of a plane that a tile writes, the sizes to try first at the front."""

REGISTERS = 160
"""Registers for each thread that the planes of a tile may take, by the estimate of `_registers`."""

BLOCKS = 528
"""Tiles that keep a large GPU busy, four for each of its processors."""


class Plan(NamedTuple):
    """How a field is cut into tiles.

    Attributes:
        shape: The shape of the field.
        radius: The radius of the update.
        steps: The steps for each pass.
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
    def before(self) -> tuple[int, int, int]:
        """Where the first cell of the field stands in the global arrays."""
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
        return tuple(n * size + 2 * b for n, size, b in zip(self.grid, sizes, self.before))  # type: ignore[return-value]


class Held(NamedTuple):
    """How an array is held while a tile walks.

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


def _held(update: StencilUpdate, params: PyTree, dtype: Any) -> tuple[Held, ...]:
    """How each field and coefficient is held."""
    r = update.radius
    shifts: dict[str, list] = {name: [] for name in update.fields + update.coefficients}
    for shift, names in update.reads(3, dtype, params).items():
        for name in names:
            shifts[name].append(shift)

    def one(name: str) -> Held:
        aside = any(dy or dx for _, dy, dx in shifts[name])
        moved = [shift for shift in shifts[name] if shift[0]]
        if not moved:
            return Held(0, 0, False, aside)
        if name in update.coefficients or any(dy or dx for _, dy, dx in moved):
            return Held(r, r, False, True)
        return Held(0, r, True, aside)

    return tuple(map(one, shifts))


class _Slots(NamedTuple):
    """The planes in shared memory of one array after one number of steps."""

    first: int
    size: int


def _layout(held: tuple[Held, ...], fields: int, radius: int, steps: int) -> tuple[list[list[_Slots]], int]:
    """The slots of each array for each number of steps, and their sum."""
    found, total = [], 0
    for f, one in enumerate(held):
        mine = []
        for s in range(steps if f < fields else 1):
            count = one.below + (radius if s else one.above) + 1 + (s == 0)
            if f >= fields:
                count += (steps - 1) * radius
            mine.append(_Slots(total, count))
            total += count
        found.append(mine)
    return found, total


def plan(
    update: StencilUpdate,
    params: PyTree,
    shape: tuple[int, ...],
    dtype: Any,
    steps: int | None,
    rows: int | None = None,
) -> Plan:
    """Returns how the kernel would run an update; see `_gpu_2d.plan`.

    Raises:
        NotForKernelsError: If it cannot.
    """
    check_held(update, params, shape, dtype, "mosaic_gpu", ("float32", "float64"), 3)
    r, held = update.radius, _held(update, params, dtype)
    steps = (2 if r == 1 else 1) if steps is None else steps
    if steps * r > 8:
        raise NotForKernelsError(f"{steps} steps of radius {r} for each pass reach further than 8 cells")
    for rows in SIZES if rows is None else (rows,):
        fits = rows >= steps * r and _bytes(update, held, rows, steps, dtype) <= SHARED_BYTES
        if fits and (rows < 2 * steps * r or _registers(update, held, rows, steps, dtype) <= REGISTERS):
            flat = -(-shape[1] // rows) * -(-shape[2] // (LANES - 2 * (-(-steps * r // 4) * 4)))
            parts = max(1, min(-(-BLOCKS // flat), shape[0] // (8 * steps * r)))
            return Plan((shape[0], shape[1], shape[2]), r, steps, -(-shape[0] // parts), rows)
    raise NotForKernelsError(f"tiles of {len(held)} fields with {steps} steps for each pass do not fit")


def _bytes(update: StencilUpdate, held: tuple[Held, ...], rows: int, steps: int, dtype: Any) -> int:
    slots = _layout(held, len(update.fields), update.radius, steps)[1]
    tile = (rows + 2 * steps * update.radius) * LANES
    ends = 2 * (update.radius + 1) * LANES
    return (slots * tile + ends + len(update.fields) * (rows + 1) * LANES) * jnp.dtype(dtype).itemsize


def _registers(update: StencilUpdate, held: tuple[Held, ...], rows: int, steps: int, dtype: Any) -> int:
    """What the planes in registers take in each thread, those of the arithmetic included."""
    r, windows = update.radius, sum(one.window for one in held[: len(update.fields)])
    arrays = [2 * r * windows * (rows + 2 * r * (steps - s)) for s in range(1, steps + 1)]
    words = sum(arrays) + (3 + windows) * (rows + 2 * r * (steps - 1))
    return words * jnp.dtype(dtype).itemsize // 4


def advance(
    update: StencilUpdate,
    params: PyTree,
    state: Fields,
    coefficients: Fields,
    n_steps: int,
    plan: Plan,
    interpret: Any = False,
) -> Fields:
    """Returns the state after a number of steps; see `_gpu_2d.advance`."""
    passes, rest = divmod(n_steps, plan.steps)
    more = [(b, size - b - n, 0) for b, size, n in zip(plan.before, plan.physical, plan.shape)]
    state, coefficients = (
        tuple(jax.lax.pad(x, jnp.zeros((), x.dtype), more) for x in xs) for xs in (state, coefficients)
    )
    dtype = state[0].dtype
    rules = rules_of(update, 3, dtype)
    numbers = Numbers(((update.fn, params), rules), dtype, 1)
    fixed = tuple(_refreshed(x, plan, rules[0]) for x in coefficients)
    held = _held(update, params, dtype)

    def one_pass(state: Fields, steps: int) -> Fields:
        fresh = tuple(_refreshed(x, plan, sides) for x, sides in zip(state, rules))
        body = _Body(update, plan, steps, held, numbers)
        columns = np.tile(np.arange(LANES, dtype=np.int32), plan.high)
        inputs = (*fresh, *fixed, columns, numbers.rows[:, 0])
        copies = len(body.names) * plan.high
        return launch(body.run, inputs, plan.physical, len(fresh), plan.grid, body.scratch(), interpret, copies)

    like = (numbers.rows, coefficients)
    if passes:
        state, _ = scan(lambda s, _: (one_pass(s, plan.steps), None), state, length=passes, like=like)
    if rest:
        state = one_pass(state, rest)
    return tuple(jax.lax.slice(x, plan.before, [b + n for b, n in zip(plan.before, plan.shape)]) for x in state)


def _refreshed(x: Array, plan: Plan, sides: Sides) -> Array:
    """A global array with new ghost cells along its periodic axes, axis by axis."""
    for axis, (width, n) in enumerate(zip(plan.before, plan.shape)):
        if sides[axis] is None:
            for start in (0, width + n):
                index = width + (np.arange(start, start + width, dtype=np.int32) - width) % n
                x = jax.lax.dynamic_update_slice_in_dim(x, jnp.take(x, index, axis=axis), start, axis)
    return x


class _Body:
    """The kernel; `run` is given references to memory and a `machine` that says where and how it runs."""

    def __init__(self, update: StencilUpdate, plan: Plan, steps: int, held: tuple[Held, ...], numbers: Numbers):
        self.update, self.plan, self.steps, self.held, self.numbers = update, plan, steps, held, numbers
        self.names = update.fields + update.coefficients
        self.fields = len(update.fields)
        self.slots, self.count = _layout(held, self.fields, update.radius, steps)
        self.tile = plan.high * LANES
        self.end = (update.radius + 1) * LANES  # cells before and after the slots that shifted reads touch

    def scratch(self) -> list[int]:
        """The sizes of the two buffers in shared memory: planes that are read, and those on their way out."""
        return [self.count * self.tile + 2 * self.end, self.fields * (self.plan.rows + 1) * LANES]

    def run(self, machine: Any, refs: Any) -> None:
        p, n, r = self.plan, len(self.names), self.plan.radius
        mains, columns, packed = refs[:n], refs[n], refs[n + 1]
        outs = refs[n + 2 : n + 2 + self.fields]
        ring, written, barrier = refs[n + 2 + self.fields :]
        place = machine.place()
        (fn, params), rules = self.numbers.unpack(lambda row: packed[row])
        update = eqx.tree_at(lambda u: u.fn, self.update, fn)
        reach, total = self.steps * r, p.planes + 2 * self.steps * r
        spare = p.halo - reach  # a pass of fewer steps has that much more halo than it needs

        def fetch(t: Any) -> None:
            for f, main in enumerate(mains):
                plane = place[0] * p.planes + spare + jnp.clip(t - r + self.held[f].above, 0, total - 1)
                at = self._at(f, 0, t - r + self.held[f].above)

                def row(y: Any, carry: None, main: Any = main, plane: Any = plane, at: Any = at) -> None:
                    y = jnp.asarray(y, jnp.int32)
                    source = (plane, place[1] * p.rows + y, pl.ds(place[2] * p.columns, LANES))
                    machine.load(main, source, ring, pl.ds(at + y * LANES, LANES), barrier)
                    return carry

                jax.lax.fori_loop(0, p.high, row, None)

        def turn(t: Any, windows: tuple) -> tuple:
            t = jnp.asarray(t, jnp.int32)
            machine.wait(barrier)
            pl.when(t + 1 < total)(lambda: fetch(t + 1))
            kept = []
            for s in range(1, self.steps + 1):
                z = t - s * r  # the plane that is computed, of those that the tile reads
                plane = place[0] * p.planes - reach + z  # the same, of the field
                self._fill(machine, place, ring, columns, rules, s - 1, z)
                window = self._window(ring, windows[s - 1], rules, s, z, plane)
                self._mend(machine, place, ring, columns, rules, s - 1, z, plane)
                like = jax.ShapeDtypeStruct((self._rows(s)[1],), ring.dtype)
                new = new_values(update, self._reader(update, ring, window, s, z), params, like)
                kept.append(tuple(x[1:] for x in window))
                if s < self.steps:
                    for f, value in enumerate(new):
                        ring[pl.ds(self._at(f, s, z) + self._rows(s)[0], value.size)] = value
                    machine.sync()
                else:
                    self._store(machine, place, new, written, outs, z, reach, spare)
            return tuple(kept)

        start = []
        for s in range(1, self.steps + 1):
            anything = ring[pl.ds(self.end, self._rows(s)[1])]
            start.append(tuple((anything,) * (2 * r) for one in self.held[: self.fields] if one.window))
        machine.sync()
        fetch(jnp.int32(0))
        jax.lax.fori_loop(0, total, turn, tuple(start))
        machine.finish()

    def _at(self, f: int, s: int, z: Any) -> Any:
        """Where the tile of plane `z` of an array after `s` steps stands."""
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
        names = [name for name, one in zip(self.names, self.held[: self.fields]) if one.window]
        known = dict(zip(names, window))

        def nb(name: str, *shift: int) -> Array:
            dz, dy, dx = update.check_shift(name, shift, 3)
            if name in known and not dy and not dx:
                return known[name][dz + self.plan.radius]
            f = self.names.index(name)
            at = self._at(f, s - 1 if f < self.fields else 0, z + dz)
            return ring[pl.ds(at + low + dy * LANES + dx, size)]

        return nb

    def _window(self, ring: Any, windows: tuple, rules: tuple, s: int, z: Any, plane: Any) -> tuple:
        """The planes around one that are in registers, the new one and ghosts of walls included."""
        r, found = self.plan.radius, []
        low, size = self._rows(s)
        fields = [f for f, one in enumerate(self.held[: self.fields]) if one.window]
        for f, planes in zip(fields, windows):
            planes = (*planes, ring[pl.ds(self._at(f, s - 1, z + r) + low, size)])
            if rules[f][0] is not None:
                planes = self._beyond(planes, rules[f][0], plane)
            found.append(planes)
        return tuple(found)

    def _beyond(self, planes: tuple, pair: tuple[Rule, Rule], plane: Any) -> tuple:
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

    def _fill(self, machine: Any, place: Any, ring: Any, columns: Any, rules: tuple, s: int, z: Any) -> None:
        """Makes the ghost cells of the newest planes of the state after `s` steps, at the walls of rows and columns."""
        for f, sides in enumerate(rules):
            ahead = self.plan.radius if s else self.held[f].above
            if self.held[f].aside:
                self._fill_plane(machine, place, ring, columns, sides, self._at(f, s, z + ahead))

    def _fill_plane(self, machine: Any, place: Any, ring: Any, columns: Any, sides: Sides, at: Any) -> None:
        p, r = self.plan, self.plan.radius
        down, across = sides[1], sides[2]
        if down is not None:
            beyond = p.shape[1] + p.halo - place[1] * p.rows  # the first row beyond the upper wall

            def fill_rows(first: Any, sign: int, rule: Rule) -> None:
                for q in range(r):

                    def make(q: int = q) -> None:
                        value = rule.ghost(q, lambda m: ring[pl.ds(at + (first - sign * (m + 1)) * LANES, LANES)])
                        ring[pl.ds(at + (first + sign * q) * LANES, LANES)] = value

                    pl.when(first + sign * q < p.high)(make)

            pl.when(place[1] == 0)(lambda: fill_rows(jnp.int32(p.halo - 1), -1, down[0]))
            pl.when(beyond < p.high)(lambda: fill_rows(beyond, 1, down[1]))
            machine.sync()
        if across is not None:
            beyond = p.shape[2] + p.margin - place[2] * p.columns

            def fill_columns(first: Any, sign: int, rule: Rule) -> None:
                column = columns[pl.ds(0, self.tile)]
                value = ring[pl.ds(at, self.tile)]
                for q in range(r):
                    new = rule.ghost(q, lambda m: ring[pl.ds(at - sign * (m + q + 1), self.tile)])  # noqa: B023
                    value = jnp.where(column == first + sign * q, new, value)
                ring[pl.ds(at, self.tile)] = value

            pl.when(place[2] == 0)(lambda: fill_columns(p.margin - 1, -1, across[0]))
            pl.when(beyond < LANES)(lambda: fill_columns(beyond, 1, across[1]))
            machine.sync()

    def _mend(
        self, machine: Any, place: Any, ring: Any, columns: Any, rules: tuple, s: int, z: Any, plane: Any
    ) -> None:
        """Makes the planes in shared memory that are beyond the walls of the first axis."""
        r, last = self.plan.radius, self.plan.shape[0] - 1
        for f, sides in enumerate(rules):
            one = self.held[f]
            if sides[0] is None or one.window or not one.above:
                continue

            def make(to: Any, rule: Rule, q: int, sign: int, f: int = f, sides: Any = sides) -> None:
                def layer(m: int) -> Array:
                    return ring[pl.ds(self._at(f, s, to - sign * (m + q + 1)), self.tile)]

                at = self._at(f, s, to)
                ring[pl.ds(at, self.tile)] = rule.ghost(q, layer)
                machine.sync()
                self._fill_plane(machine, place, ring, columns, (None, *sides[1:]), at)

            def lower(make: Any = make, rule: Rule = sides[0][0]) -> None:
                for q in range(r):
                    make(z - 1 - q, rule, q, -1)

            pl.when(plane == 0)(lower)
            for q in range(r):
                pl.when(plane + r == last + 1 + q)(lambda make=make, q=q, rule=sides[0][1]: make(z + r, rule, q, 1))

    def _store(
        self, machine: Any, place: Any, new: Fields, written: Any, outs: Any, z: Any, reach: int, spare: int
    ) -> None:
        p = self.plan
        size = p.rows * LANES
        machine.free()
        for f, value in enumerate(new):
            # rows then start, margin apart, where bulk copies may
            written[pl.ds(f * (size + LANES) + LANES - p.margin, value.size)] = value
        machine.sync()
        plane = place[0] * p.planes + spare + z

        def row(y: Any, carry: None) -> None:
            y = jnp.asarray(y, jnp.int32)
            for f, out in enumerate(outs):
                part = pl.ds(f * (size + LANES) + LANES + y * LANES, p.columns)
                target = (plane, p.halo + place[1] * p.rows + y, pl.ds(p.margin + place[2] * p.columns, p.columns))
                machine.store(written, part, out, target)
            return carry

        pl.when(z >= reach)(lambda: jax.lax.fori_loop(0, p.rows, row, None))
