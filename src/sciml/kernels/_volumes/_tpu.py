r"""A pass of finite volumes on a TPU.

A block reads `tpu_rows` x `tpu_columns` cells, of the table of choices, into vector memory, with 8 rows above and below
and 128 columns at either side, in views of one array that are aligned as tiles are. Neighbours come by rotations. The
flux through the faces of a block along an axis is computed once, for the block and one more tile; the flux between
planes, in three dimensions, twice.
"""

from typing import Any, NamedTuple

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..._jax._vma import struct, vma_of
from ..ensemble._flat import Flat
from ..stencil._ghost_weights import NotForKernelsError
from ..stencil.mosaic._packed_operands import PackedOperands
from ..stencil.mosaic._tpu import rolled
from ._divergence import FluxDivergence, GhostLayers, Programs, surrounded

LANES = 128
"""The width of a TPU's tile."""

ABOVE = 8
"""The height of a TPU's tile, and the rows above and below a block."""


class TpuVolumesPlan(NamedTuple):
    """How a field is cut into blocks.

    Attributes:
        shape: Its shape, with three axes; those in front that it does not have are 1.
        ndim: How many it has.
        width: The cells that a face reads at either side.
    """

    shape: tuple[int, int, int]
    ndim: int
    width: int

    @property
    def block(self) -> tuple[int, int, int]:
        """The shape of a block."""
        table = choices().kernels
        return (1, table.tpu_rows if self.ndim > 1 else 1, table.tpu_columns)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The number of blocks along each axis."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.block))  # type: ignore[return-value]

    @property
    def written(self) -> tuple[int, int, int]:
        """The shape of the fields that are written."""
        return tuple(count * size for count, size in zip(self.grid, self.block))  # type: ignore[return-value]

    @property
    def first(self) -> tuple[int, int, int]:
        """The position of the first cell in the array that is read: whole blocks and planes from its ends."""
        table = choices().kernels
        return (self.width * (self.ndim > 2), table.tpu_rows * (self.ndim > 1), table.tpu_columns)

    @property
    def physical(self) -> tuple[int, int, int]:
        """The shape of the fields that are read."""
        return tuple(n + 2 * at for n, at in zip(self.written, self.first))  # type: ignore[return-value]


class TpuVolumes:
    """A divergence as a kernel for TPUs.

    Args:
        problem: The computation.
        operands: The numbers that all cells share, or their shapes and dtypes.
        shape: The shape of the fields.
        dtype: Their dtype.

    Raises:
        NotForKernelsError: If the kernel does not support it.
    """

    name = "mosaic_tpu"

    def __init__(self, problem: FluxDivergence, operands: PyTree, shape: tuple[int, ...], dtype: Any):
        if jnp.dtype(dtype) != jnp.float32:
            raise NotForKernelsError(f"the state has dtype {jnp.dtype(dtype)}, but the kernel supports float32")
        if problem.width > ABOVE:
            raise NotForKernelsError(f"a face reads {problem.width} cells at either side, and the kernel {ABOVE}")
        ndim = len(shape)
        self.problem = problem
        self.plan = plan = TpuVolumesPlan((1,) * (3 - ndim) + tuple(shape), ndim, problem.width)
        self.programs = programs = Programs(problem, operands, dtype, self.name)
        _, rows, columns = plan.block
        # along each axis the cells that a block reads, and the faces that it computes
        self._read = [(rows, columns), (rows + 2 * ABOVE, columns), (rows, columns + 2 * LANES)][3 - ndim :]
        self._faces = [(rows, columns), (rows + ABOVE, columns), (rows, columns + LANES)][3 - ndim :]
        self._primitives = [programs.primitive(lanes) for lanes in self._read]
        self._fluxes = [programs.flux(axis, lanes) for axis, lanes in enumerate(self._faces)]

    def __call__(self, y: Array, ghosts: GhostLayers, operands: PyTree, interpret: Any = False) -> Array:
        """Returns the rates of a state.

        Args:
            y: The state, `(*components, *shape)`.
            ghosts: The cells beyond each end of each axis.
            operands: The numbers that all cells share.
            interpret: False; True to run the body without a TPU; or JAX's parameters of its interpreter of TPUs.
        """
        plan, count, slots = self.plan, self.programs.conserved, self.programs.slots
        state = y.reshape(count, *plan.shape)
        layers = [
            tuple(
                x.reshape(self.programs.states, *(1,) * (3 - plan.ndim), *x.shape[x.ndim - plan.ndim :]) for x in pair
            )
            for pair in ghosts
        ]
        x = surrounded(state, layers, plan.width, slots, plan.first, plan.physical)
        packed = PackedOperands(operands, jnp.float32, LANES).rows
        views = self._views()
        (_, rows, columns), axes = plan.block, vma_of((x, packed))
        found = pl.pallas_call(
            lambda *refs: self._body(interpret is True, refs),
            out_shape=struct((count, *plan.written), x.dtype, axes),
            grid=plan.grid,
            in_specs=[*views, pl.BlockSpec(packed.shape, lambda z, i, j: (0, 0))],
            out_specs=pl.BlockSpec((count, 1, rows, columns), lambda z, i, j: (0, z, i, j)),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 3),
            interpret=interpret,
        )(*[x] * len(views), packed)
        found = jax.lax.slice(found, (0, 0, 0, 0), (count, *plan.shape))
        return found.reshape(y.shape)

    def _views(self) -> list[pl.BlockSpec]:
        """The block, what is to its left and right, above and below, and in other planes."""
        plan, slots = self.plan, self.programs.slots
        (_, rows, columns), (deep, high, _) = plan.block, plan.first
        i0, j0 = int(high > 0), 1  # blocks before the first

        def view(shape: tuple[int, int], index: Any, plane: int = deep) -> pl.BlockSpec:
            return pl.BlockSpec((slots, 1, *shape), lambda z, i, j: (0, z + plane, *index(i + i0, j + j0)))

        wide, tall = columns // LANES, rows // ABOVE
        views = [
            view((rows, columns), lambda i, j: (i, j)),
            view((rows, LANES), lambda i, j: (i, j * wide - 1)),
            view((rows, LANES), lambda i, j: (i, (j + 1) * wide)),
        ]
        if plan.ndim > 1:
            views += [
                view((ABOVE, columns), lambda i, j: (i * tall - 1, j)),
                view((ABOVE, columns), lambda i, j: ((i + 1) * tall, j)),
            ]
        if plan.ndim > 2:
            others = [k for k in range(-plan.width, plan.width + 1) if k]
            views += [view((rows, columns), lambda i, j: (i, j), deep + k) for k in others]
        return views

    def _body(self, interpreted: bool, refs: Any) -> None:
        plan, w, ndim = self.plan, self.plan.width, self.plan.ndim
        *views, packed, out = refs
        (_, rows, columns), slots = plan.block, range(self.programs.slots)
        # asked here, since it cannot be where a branch is
        z, i, j = (pl.program_id(axis) for axis in range(3))
        corner = (z, i * rows, j * columns)
        block, left, right, *more = [[view[s, 0] for s in slots] for view in views]

        def shared(lanes: tuple[int, ...]) -> list[Array]:
            return [jnp.full(lanes, packed[k, 0]) for k in range(self.programs.shared)]

        def states(axis: int, values: list[Array], at: tuple[Any, Any, Any]) -> list[Array]:
            """Primitive variables of cells, the first of which stands at a place of the field."""
            lanes = values[0].shape
            found = _call(self._primitives[axis], [*shared(lanes), *values[: self.programs.conserved]])
            inside = None
            for k in range(3 - ndim, 3):
                if k == 0:
                    where = jnp.full(lanes, at[0], jnp.int32)
                else:
                    where = jax.lax.broadcasted_iota(jnp.int32, lanes, k - 1) + at[k]
                holds = (where >= 0) & (where < plan.shape[k])
                inside = holds if inside is None else inside & holds
            return [jnp.where(inside, a, b) for a, b in zip(found, values)]

        def along(axis: int, cells: list[Array], across: int, keep: Any) -> list[Array]:
            """The flux through the faces of a row of cells, from its first tile on."""
            shifts = [(w - k) % cells[0].shape[across] for k in range(2 * w)]
            around = [keep(rolled(x, by, across, interpreted)) for by in shifts for x in cells]
            return _call(self._fluxes[axis], [*shared(around[0].shape), *around])

        wide = [jnp.concatenate(x, 1) for x in zip(left, block, right)]
        cells = states(ndim - 1, wide, (z, corner[1], corner[2] - LANES))
        faces = along(ndim - 1, cells, 1, lambda x: x[:, LANES:])
        size = faces[0].shape[1]
        rates = [(x - rolled(x, size - 1, 1, interpreted))[:, :columns] / self.problem.spacing[-1] for x in faces]
        if ndim > 1:
            above, below, *more = more
            tall = [jnp.concatenate(x, 0) for x in zip(above, block, below)]
            cells = states(ndim - 2, tall, (z, corner[1] - ABOVE, corner[2]))
            faces = along(ndim - 2, cells, 0, lambda x: x[ABOVE:])
            size = faces[0].shape[0]
            into = [(x - rolled(x, size - 1, 0, interpreted))[:rows] / self.problem.spacing[-2] for x in faces]
            rates = [a + b for a, b in zip(rates, into)]
        if ndim > 2:
            planes = [*more[:w], block, *more[w:]]
            cells = [states(0, plane, (z + k - w, corner[1], corner[2])) for k, plane in enumerate(planes)]
            lower, upper = (
                _call(self._fluxes[0], [*shared((rows, columns)), *(x for cell in cells[k : k + 2 * w] for x in cell)])
                for k in (0, 1)
            )
            rates = [x + (a - b) / self.problem.spacing[0] for x, a, b in zip(rates, lower, upper)]
        for c, rate in enumerate(rates):
            out[c, 0] = rate


def _call(program: Flat, elements: list[Array]) -> list[Array]:
    return program(*elements, pin=lambda x: x)
