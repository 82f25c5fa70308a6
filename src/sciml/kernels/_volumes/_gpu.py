r"""A pass of finite volumes on a GPU.

A block takes a tile of `rows` x 128 cells. It reads it with the cells around into shared memory, as primitive
variables, which are so computed once for each cell. Each warpgroup then walks down its share of the rows: what flows
through the faces between rows stays in registers from one row to the next; what flows through those between columns
goes to the neighbouring thread by shared memory. So each face is computed once, but for those between tiles and between
shares. In three dimensions a block goes on through `planes`, and what flows between planes is kept in shared
memory for the tile; it reads the cells of other planes from global memory, where they are in a cache.

A row of a tile has 128 lanes, the first and last of which are cells around. All of them are written, by each tile
separately, because threads cannot be left out and bulk copies do not support float64; XLA cuts off the meaningless
cells.

The same body runs interpreted, by `pallas_call` without a GPU. That proves its numbers, not its synchronisation.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..ensemble._flat import Flat
from ..stencil._ghost_weights import NotForKernelsError
from ..stencil.mosaic._launch_gpu import SHARED_BYTES, launch
from ..stencil.mosaic._packed_operands import PackedOperands
from ._divergence import FluxDivergence, GhostLayers, Programs, surrounded

LANES = 128
"""Cells of a row of a tile, one for each thread of a warpgroup."""

MARGIN = 32
"""Cells before and after a buffer that shifted rows may touch."""


DTYPES = ("float32", "float64")


class GpuVolumesPlan(NamedTuple):
    """How a field is cut into tiles.

    Attributes:
        shape: Its shape, with three axes; those in front that it does not have are 1.
        ndim: How many it has.
        width: The cells that a face reads at either side.
        rows: The rows that a tile writes.
        planes: The planes that a block goes through.
        warpgroups: How many share a tile.
    """

    shape: tuple[int, int, int]
    ndim: int
    width: int
    rows: int
    planes: int
    warpgroups: int

    @property
    def halo(self) -> int:
        """The columns at either side of a tile that are not its own; what its rows start at is a multiple of four."""
        return -(-self.width // 4) * 4

    @property
    def columns(self) -> int:
        """The columns of a tile that are its own."""
        return LANES - 2 * self.halo

    @property
    def grid(self) -> tuple[int, int, int]:
        """The number of tiles along each axis."""
        sizes = (self.planes, self.rows, self.columns)
        return tuple(-(-n // size) for n, size in zip(self.shape, sizes))  # type: ignore[return-value]

    @property
    def written(self) -> tuple[int, int, int]:
        """The shape of the fields that all tiles together write."""
        sizes = (self.planes, self.rows, self.columns)
        return tuple(count * size for count, size in zip(self.grid, sizes))  # type: ignore[return-value]

    @property
    def first(self) -> tuple[int, int, int]:
        """The position of the first cell in the array that is read."""
        return (self.width * (self.ndim > 2), self.width * (self.ndim > 1), self.halo)

    @property
    def physical(self) -> tuple[int, int, int]:
        """The shape of the fields that are read."""
        return tuple(n + 2 * at for n, at in zip(self.written, self.first))  # type: ignore[return-value]

    @property
    def high(self) -> int:
        """The rows of a tile with those around."""
        return self.rows + 2 * self.first[1]


class GpuVolumes:
    """A divergence as a kernel for GPUs.

    Args:
        problem: The computation.
        operands: The numbers that all cells share, or their shapes and dtypes.
        shape: The shape of the fields.
        dtype: Their dtype.
        rows: The height of a tile; None for what should suit.

    Raises:
        NotForKernelsError: If the kernel does not support it.
    """

    name = "mosaic_gpu"

    def __init__(
        self, problem: FluxDivergence, operands: PyTree, shape: tuple[int, ...], dtype: Any, rows: int | None = None
    ):
        if jnp.dtype(dtype).name not in DTYPES:
            raise NotForKernelsError(f"the state has dtype {jnp.dtype(dtype)}, but the kernel supports {DTYPES}")
        self.problem = problem
        self.dtype = jnp.dtype(dtype)
        self.programs = Programs(problem, operands, dtype, self.name)
        self.plan = self._plan(shape, choices().kernels.volumes_rows if rows is None else (rows,))
        self._primitive = self.programs.primitive((LANES,))
        self._fluxes = tuple(self.programs.flux(axis, (LANES,)) for axis in range(problem.ndim))

    def _plan(self, shape: tuple[int, ...], sizes: tuple[int, ...]) -> GpuVolumesPlan:
        ndim = len(shape)
        whole = (1,) * (3 - ndim) + tuple(shape)
        planes = min(choices().kernels.volumes_planes, whole[0])
        sizes = (1,) if ndim == 1 else sizes
        plans = [
            GpuVolumesPlan(whole, ndim, self.problem.width, rows, planes, max(1, min(4, rows // 4))) for rows in sizes
        ]
        fit = [plan for plan in plans if self._bytes(plan) <= SHARED_BYTES]
        if not fit:
            raise NotForKernelsError(f"tiles of {self.programs.states} fields do not fit into shared memory")
        busy = [plan for plan in fit if math.prod(plan.grid) >= choices().kernels.volumes_tiles]
        return busy[0] if busy else fit[-1]

    def _bytes(self, plan: GpuVolumesPlan) -> int:
        return sum(scratch_of(plan, self.programs)) * self.dtype.itemsize

    def __call__(self, y: Array, ghosts: GhostLayers, operands: PyTree, interpret: Any = False) -> Array:
        """Returns the rates of a state.

        Args:
            y: The state, `(*components, *shape)`.
            ghosts: The cells beyond each end of each axis.
            operands: The numbers that all cells share.
            interpret: False; True to run the body without a GPU; or JAX's parameters of its interpreter of GPUs.
        """
        plan, count = self.plan, self.programs.conserved
        state = y.reshape(count, *plan.shape)
        layers = [tuple(self._three_axes(x) for x in pair) for pair in ghosts]
        x = surrounded(state, layers, plan.width, self.programs.slots, plan.first, plan.physical)
        packed = PackedOperands(operands, self.dtype, LANES)
        body = _Body(self.problem, self.programs, plan, self._primitive, self._fluxes)
        inputs = (x.reshape(-1, plan.physical[2]), np.arange(LANES, dtype=np.int32), packed.rows)
        planes, rows, _ = plan.written
        size = count * planes * rows, plan.grid[2] * LANES
        how = {"interpret": interpret, "warpgroups": plan.warpgroups}
        (found,) = launch(body.run, inputs, size, 1, plan.grid, scratch_of(plan, self.programs), **how)
        found = found.reshape(count, planes, rows, plan.grid[2], LANES)
        found = jax.lax.slice_in_dim(found, plan.halo, plan.halo + plan.columns, axis=4)
        found = jax.lax.slice(found.reshape(count, *plan.written), (0, 0, 0, 0), (count, *plan.shape))
        return found.reshape(y.shape)

    def _three_axes(self, layers: Array) -> Array:
        ndim = self.plan.ndim
        return layers.reshape(self.programs.states, *(1,) * (3 - ndim), *layers.shape[layers.ndim - ndim :])


def scratch_of(plan: GpuVolumesPlan, programs: Programs) -> list[int]:
    """The sizes of the buffers in shared memory: the tile, a row of every warpgroup, and what crosses planes."""
    tile = programs.states * plan.high * LANES + 2 * MARGIN
    sizes = [tile, plan.warpgroups * programs.conserved * (LANES + MARGIN)]
    return sizes + ([programs.conserved * plan.rows * LANES] if plan.ndim > 2 else [])


class _Body:
    """The kernel; `run` gets references to memory and a `device` that provides its position and its operations."""

    def __init__(
        self,
        problem: FluxDivergence,
        programs: Programs,
        plan: GpuVolumesPlan,
        primitive: Flat,
        fluxes: tuple[Flat, ...],
    ):
        self.plan, self.programs, self.primitive, self.fluxes = plan, programs, primitive, fluxes
        self.scale = [1 / h for h in problem.spacing]
        self.count, self.states = programs.conserved, programs.states
        self.stride = plan.high * LANES  # of a field of the tile

    def run(self, device: Any, refs: Any) -> None:
        p = self.plan
        main, lanes, packed, out, tile, across, *between = refs
        here = _Tile(self, device, main, lanes, packed, tile)
        block, i, j = device.place()
        low, high = device.share(0, p.rows)
        own = device.number() * self.count * (LANES + MARGIN)

        def plane(number: Any, carry: Any) -> Any:
            z = block * p.planes + number + p.first[0]
            here.load(z)
            if p.ndim == 1:
                row(z, 0, ())
            else:
                start = here.between_rows(low) if p.ndim > 1 else ()
                jax.lax.fori_loop(low, high, lambda t, lower: row(z, t, lower), start)
            return carry

        def row(z: Any, t: Any, lower: tuple) -> tuple:
            """Writes a row of rates; `lower` is what flows through the faces below it, and those above are returned."""
            upper: tuple = ()
            left = here.between_columns(t)
            for c, value in enumerate(left):
                across[pl.ds(own + c * (LANES + MARGIN), LANES)] = value
            device.publish()
            rates = []
            for c, value in enumerate(left):
                right = across[pl.ds(own + c * (LANES + MARGIN) + 1, LANES)]
                rates.append((value - right) * self.scale[-1])
            if p.ndim > 1:
                upper = here.between_rows(t + 1)
                rates = [x + (a - b) * self.scale[-2] for x, a, b in zip(rates, lower, upper)]
            if p.ndim > 2:
                behind = here.between_planes(z + 1, t)
                for c, value in enumerate(behind):
                    kept = pl.ds((c * p.rows + t) * LANES, LANES)
                    rates[c] = rates[c] + (between[0][kept] - value) * self.scale[-3]
                    between[0][kept] = value
            for c, value in enumerate(rates):
                at = (c * p.written[0] + z - p.first[0]) * p.written[1] + i * p.rows + t
                out[at, pl.ds(j * LANES, LANES)] = value
            return upper

        if p.ndim > 2:

            def before(t: Any, carry: None) -> None:
                for c, value in enumerate(here.between_planes(block * p.planes + p.first[0], t)):
                    between[0][pl.ds((c * p.rows + t) * LANES, LANES)] = value
                return carry

            jax.lax.fori_loop(low, high, before, None)
            jax.lax.fori_loop(0, p.planes, plane, None)
        else:
            plane(0, None)


class _Tile:
    """A tile in shared memory, and what flows through its faces."""

    def __init__(self, body: _Body, device: Any, main: Any, lanes: Any, packed: Any, tile: Any):
        self.body, self.device, self.main, self.tile = body, device, main, tile
        self.plan = body.plan
        _, self.i, self.j = device.place()
        self.lane = lanes[pl.ds(0, LANES)]
        self.operands = [packed[k, pl.ds(0, LANES)] for k in range(body.programs.shared)]

    def load(self, z: Any) -> None:
        """Reads the tile of a plane, with the cells around, as primitive variables."""
        low, high = self.device.share(0, self.plan.high)
        self.device.sync()  # others may still read the plane before

        loads = choices().kernels.gpu_loads

        def some(n: Any, carry: None) -> None:
            rows = [jnp.minimum(low + n * loads + q, high - 1) for q in range(loads)]  # the last may be read again
            values = [(t, self._values(z, self.i * self.plan.rows + t)) for t in rows]
            for t, row in values:
                for s, value in enumerate(self._states(z, self.i * self.plan.rows + t, row)):
                    self.tile[self._at(s, t)] = value
            return carry

        if self.plan.high == 1:
            for s, value in enumerate(self._states(z, 0, self._values(z, 0))):
                self.tile[self._at(s, 0)] = value
        else:
            count = jnp.asarray(high - low + loads - 1, jnp.int32)
            jax.lax.fori_loop(0, jax.lax.div(count, jnp.asarray(loads, jnp.int32)), some, None)
        self.device.sync()

    def between_columns(self, t: Any) -> tuple:
        """The flux through the face below each cell of a row, along the row."""
        p = self.plan
        cells = range(-p.width, p.width)
        return self._flux(
            -1, [self.tile[self._at(s, t + p.first[1], k)] for k in cells for s in range(self.body.states)]
        )

    def between_rows(self, t: Any) -> tuple:
        """The flux through the faces below a row."""
        cells = range(2 * self.plan.width)
        return self._flux(-2, [self.tile[self._at(s, t + k)] for k in cells for s in range(self.body.states)])

    def between_planes(self, z: Any, t: Any) -> tuple:
        """The flux through the faces below a row of a plane, from the plane before."""
        p = self.plan
        y = self.i * p.rows + t + p.first[1]
        rows = [(z + k, self._values(z + k, y)) for k in range(-p.width, p.width)]
        return self._flux(-3, [w for plane, row in rows for w in self._states(plane, y, row)])

    def _flux(self, axis: int, cells: list) -> tuple:
        return tuple(self.body.fluxes[axis](*self.operands, *cells, pin=self.device.pin))

    def _at(self, s: int, t: Any, shift: int = 0) -> Any:
        """The position of a row of a field in the tile, shifted sideways."""
        return pl.ds(MARGIN + s * self.body.stride + t * LANES + shift, LANES)

    def _values(self, z: Any, y: Any) -> list:
        """A row of global memory."""
        p, (planes, rows, _) = self.plan, self.plan.physical
        here = pl.ds(self.j * p.columns, LANES)
        return [self.main[(c * planes + z) * rows + y, here] for c in range(self.body.programs.slots)]

    def _states(self, z: Any, y: Any, values: list) -> list:
        """The primitive variables of a row of global memory; ghost cells hold them already."""
        p = self.plan
        inside = None
        for axis, at in ((0, z), (1, y)):
            if p.first[axis]:
                holds = jnp.logical_and(at >= p.first[axis], at < p.first[axis] + p.shape[axis])
                inside = holds if inside is None else jnp.logical_and(inside, holds)
        first = p.halo - self.j * p.columns
        beyond = first + p.shape[2]
        if inside is not None:
            first = jnp.where(inside, first, LANES)  # no lane of a row of ghosts is inside
        cell = jnp.logical_and(self.lane >= first, self.lane < beyond)
        found = self.body.primitive(*self.operands, *values[: self.body.count], pin=self.device.pin)
        return [jnp.where(cell, a, b) for a, b in zip(found, values)]
