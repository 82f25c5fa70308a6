r"""Several steps for each pass over memory, on a GPU, in one dimension.

One warpgroup takes a tile of `rows` cells with 64 more at either side, of which $k$ steps of radius $r$ need $k r$, and
keeps it in shared memory: two buffers, read and written in turn. A neighbour is the whole tile, shifted; what is wrong
at the ends of the tile moves inwards by $r$ cells a step and is not written. Global memory is read and written once for
$k$ steps.

Global arrays are as large as whole tiles, with a halo at either end, and stay so from pass to pass. Before each pass
XLA refreshes the ghost cells of a periodic field; those of walls are made by the kernel, anew for every step.

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
from .._ghost_weights import NotForKernelsError, Sides, rules_of
from .._update import Fields, StencilUpdate
from ._check_supported import check_held
from ._launch_gpu import SHARED_BYTES, launch
from ._packed_operands import Numbers
from ._sums import new_values

TAKES_TURNS = True
"""It runs updates whose functions take turns."""

HALO = 64
"""Cells at either side of a tile that it does not write; a tile is then a multiple of a warpgroup's threads."""

SIZES = (1024, 512, 256, 2048)
"""The cells that a tile writes, the sizes to try first at the front."""

BLOCKS = 528
"""Tiles that keep a large GPU busy, four for each of its processors."""


class Plan(NamedTuple):
    """How a field is cut into tiles.

    Attributes:
        shape: The number of cells.
        radius: The radius of the update.
        steps: The steps for each pass.
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


def plan(
    update: StencilUpdate,
    params: PyTree,
    shape: tuple[int, ...],
    dtype: Any,
    steps: int | None,
    rows: int | None = None,
) -> Plan:
    """Returns how the kernel would run an update; see `_gpu_2d.plan`, with `rows` the cells of a tile.

    Raises:
        NotForKernelsError: If it cannot.
    """
    check_held(update, params, shape, dtype, "mosaic_gpu", ("float32", "float64"), 1)
    r = update.radius
    steps = max(1, 8 // r) if steps is None else steps
    if steps * r > HALO:
        raise NotForKernelsError(f"{steps} steps of radius {r} for each pass reach further than {HALO} cells")
    sizes = [n for n in (SIZES if rows is None else (rows,)) if _bytes(update, n, dtype) <= SHARED_BYTES]
    if not sizes:
        raise NotForKernelsError(f"tiles of {len(update.fields)} fields do not fit")
    busy = [n for n in sizes if -(-shape[0] // n) >= BLOCKS]
    return Plan((shape[0],), r, steps, busy[0] if busy else min(sizes))


def _bytes(update: StencilUpdate, cells: int, dtype: Any) -> int:
    buffers = 2 * len(update.fields) + len(update.coefficients)
    return buffers * (cells + 2 * HALO + 4 * update.radius) * jnp.dtype(dtype).itemsize


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
    more = [(HALO, plan.physical[0] - HALO - plan.shape[0], 0)]
    state, coefficients = (
        tuple(jax.lax.pad(x, jnp.zeros((), x.dtype), more) for x in xs) for xs in (state, coefficients)
    )
    rules = rules_of(update, 1, state[0].dtype)
    numbers = Numbers(((update.fn, params), rules), state[0].dtype, 1)
    fixed = tuple(_refreshed(x, plan, rules[0]) for x in coefficients)

    def one_pass(state: Fields, steps: int) -> Fields:
        fresh = tuple(_refreshed(x, plan, sides) for x, sides in zip(state, rules))
        body = _Body(update, plan, steps, numbers)
        inputs = (*fresh, *fixed, np.arange(body.size, dtype=np.int32), numbers.rows[:, 0])
        return launch(body.run, inputs, plan.physical, len(fresh), plan.grid, body.scratch(), interpret)

    if passes:
        like = (numbers.rows, coefficients)
        state, _ = scan(lambda s, _: (one_pass(s, plan.steps), None), state, length=passes, like=like)
    if rest:
        state = one_pass(state, rest)
    return tuple(jax.lax.slice(x, (HALO,), (HALO + plan.shape[0],)) for x in state)


def _refreshed(x: Array, plan: Plan, sides: Sides) -> Array:
    """A global array with new ghost cells, where it is periodic."""
    if sides[0] is not None:
        return x
    n = plan.shape[0]
    for start in (0, HALO + n):
        index = HALO + (np.arange(start, start + HALO, dtype=np.int32) - HALO) % n
        x = jax.lax.dynamic_update_slice_in_dim(x, jnp.take(x, index), start, 0)
    return x


class _Body:
    """The kernel; `run` is given references to memory and a `machine` that says where and how it runs."""

    def __init__(self, update: StencilUpdate, plan: Plan, steps: int, numbers: Numbers):
        self.update, self.plan, self.steps, self.numbers = update, plan, steps, numbers
        self.names = update.fields + update.coefficients
        self.size = plan.rows + 2 * HALO
        self.margin = 2 * update.radius  # cells before and after a tile that shifted reads touch
        self.stride = self.size + 2 * self.margin

    def scratch(self) -> list[int]:
        """The sizes of the buffers in shared memory."""
        fields = len(self.update.fields)
        return [fields * self.stride, fields * self.stride, max(1, len(self.names) - fields) * self.stride]

    def run(self, machine: Any, refs: Any) -> None:
        n, fields = len(self.names), len(self.update.fields)
        mains, cells, packed = refs[:n], refs[n], refs[n + 1]
        outs, (source, target, rest) = refs[n + 2 : n + 2 + fields], refs[n + 2 + fields :]
        (tile,) = machine.place()
        (fn, params), rules = self.numbers.unpack(lambda row: packed[row])
        update = eqx.tree_at(lambda u: u.fn, self.update, fn)
        for f, main in enumerate(mains):
            buffer = source if f < fields else rest
            buffer[self._at(f)] = main[pl.ds(tile * self.plan.rows, self.size)]
        machine.sync()
        inner = [jnp.zeros((self.size,), source.dtype)] * len(update.inner)
        for s in range(self.steps):
            self._make_ghosts(machine, tile, source, cells, rules)

            def nb(name: str, *shift: int, source: Any = source, inner: list = inner) -> Array:
                (by,) = update.check_shift(name, shift, 1)
                if name in update.inner:
                    return inner[update.inner.index(name)]
                f = self.names.index(name)
                return (source if f < fields else rest)[self._at(f, by)]

            like = jax.ShapeDtypeStruct((self.size,), source.dtype)
            new = new_values(update.turn(s), nb, params, like)
            for f, value in enumerate(new[:fields]):
                target[self._at(f)] = value
            inner = list(new[fields:])
            machine.sync()
            source, target = target, source
        for f, out in enumerate(outs):
            here = pl.ds(HALO + tile * self.plan.rows, self.plan.rows)
            out[here] = source[pl.ds(f * self.stride + self.margin + HALO, self.plan.rows)]

    def _at(self, f: int, shift: int = 0) -> Any:
        """Where the tile of an array stands in its buffer, shifted."""
        fields = len(self.update.fields)
        return pl.ds((f if f < fields else f - fields) * self.stride + self.margin + shift, self.size)

    def _make_ghosts(self, machine: Any, tile: Any, buffer: Any, cells: Any, rules: tuple[Sides, ...]) -> None:
        walls = [(f, side[0]) for f, side in enumerate(rules) if side[0] is not None]
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
        machine.sync()
