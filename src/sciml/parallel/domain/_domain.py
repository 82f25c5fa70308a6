"""`Domain`: a field of which every device holds a part."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Inexact, Int, PyTree, Real

from ..._checks import check_count
from ..._jax._vma import vma_of
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries, Grid, OrthogonalGrid, Sides
from ...spatial._abstract_grid import AbstractGrid
from ...spatial._blocks import AbstractBlocks
from .._blocks import split_static
from ..members._pytree import is_array
from . import _cg, _collectives, _fft, _halo
from ._flow_sides import SplitSides, sides_of
from ._sharding import (
    Axes,
    along,
    are_manual,
    check_cells,
    check_field,
    choose_domain_mesh,
    gathered,
    part_of,
    place,
    spec_of,
    suggestion,
)

# A grid with unknowns at centres and at nodes, of which every device holds a block.


class SplitBlocks(AbstractBlocks):
    """The blocks of a grid on the devices of a domain.

    Attributes:
        grid: The whole grid.
        axes: For each axis of the grid the mesh axis that splits it, or None.
        mesh: The mesh; None for the one that is set.
    """

    grid: Grid
    axes: Axes = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)

    def devices(self, axis: int) -> int:
        """Returns over how many devices an axis is split where this is traced."""
        return self._halo().devices(axis)

    def planned(self, axis: int) -> int:
        """Returns over how many devices an axis is split within `Domain.run`.

        Raises:
            ValueError: If there is no mesh, or it does not divide the cells.
        """
        axes = self.axes
        name = axes[axis]
        if name is None:
            return 1
        mesh = choose_domain_mesh(self.mesh, axes)
        if self.grid.shape[axis] % mesh.shape[name]:
            raise ValueError(
                f"`Domain`: the {self.grid.shape[axis]} cells along {self.grid.names[axis]} of {self.grid} cannot be "
                f'divided by mesh axis "{name}" into {mesh.shape[name]} equal parts. '
                f"{suggestion(self.grid.shape, axes, mesh, 1)}"
            )
        return mesh.shape[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The mesh axes over which it is split where this is traced."""
        return tuple(name for name in self._halo().axes if name)

    def first_cell(self, axis: int) -> Int[Array, ""]:
        """Returns which of the cells of the whole grid is the first of the block."""
        name = self.axes[axis]
        assert name is not None  # it is asked of axes that are split
        return jax.lax.axis_index(name) * (self.grid.shape[axis] // self.devices(axis))

    def neighbours(self, first: Array, last: Array, axis: int, closed: bool) -> tuple[Array, Array]:
        """Sends the first layers of a block down and its last ones up; returns what came from below and from above."""
        return _halo.exchange(first, last, axis, self._halo(), closed)

    def at_edges(self, made: tuple[Array, Array], others: tuple[Array, Array], axis: int) -> tuple[Array, Array]:
        """Returns the first pair at the two edges of the whole grid, and the second elsewhere."""
        return _halo.at_edges(made, others, axis, self._halo())

    def edges(self, axis: int) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Returns whether the block is the first along an axis, and whether it is the last."""
        return _halo.edges(axis, self._halo())

    def sum(self, x: Inexact[Array, "..."]) -> Inexact[Array, ""]:
        """Returns the sum over all elements of all blocks."""
        return _collectives.total(x, self.names)

    def max(self, x: Inexact[Array, "..."]) -> Inexact[Array, ""]:
        """Returns the largest of all elements of all blocks."""
        return _collectives.largest(x, self.names)

    def whole(self, x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns a field at centres of which every device holds all, from the blocks that they hold."""
        return gathered(x, self._halo().axes)

    def exchange_all(self, x: Array, axis: int, *, split: int, whole: int) -> Array:
        """Makes an array whole along one of its axes, which the devices along an axis of the grid share, by another."""
        name = self.axes[axis]
        assert name is not None  # it is asked of axes that are split
        return _fft.all_to_all(x, (name,), split=split, concat=whole)

    def part_of(self, x: Array, axis: int, at: int) -> Array:
        """Returns the part of an array along its axis `at` that belongs to this device's place along an axis."""
        return part_of(x, self.axes[axis], at)

    def _halo(self) -> _halo.Halo:
        axes = self.axes
        return _halo.Halo(axes if are_manual(axes) else (None,) * len(axes), None)


# Running a function once on every device, each with its block of the fields.


@eqx.filter_jit
def run_split(
    fn: Callable[..., PyTree],
    fields: PyTree,
    shared: PyTree,
    *,
    axes: Axes,
    mesh: Mesh | AbstractMesh,
    out_specs: PyTree,
) -> PyTree:
    """Runs `fn(fields, shared)` on every device; see `Domain.run`.

    `check_vma` is on: the types prove that a result declared as one number for all devices is the same everywhere, and
    that loops with communication iterate equally often everywhere. A derivative with respect to shared values is summed
    over the devices, inside `fn` as well as outside of it, because the devices compute one result together.

    The layout of the results is read from their types, for which `fn` is traced once before.
    """
    ambient = jax.sharding.get_abstract_mesh()
    names = frozenset(mesh.axis_names) - frozenset(ambient.manual_axes)
    fields, fields_static = eqx.partition(jax.tree.map(_as_array, fields), is_array)
    common, common_static = eqx.partition((fn, shared), is_array)
    fields = jax.tree.map(jnp.asarray, fields)
    static = None

    def on_device(fields, common):
        nonlocal static
        fn, shared = eqx.combine(common, common_static)
        fields = eqx.combine(fields, fields_static)
        out, static = split_static(fn(fields) if shared is None else fn(fields, shared))
        return out

    def call(body, specs):
        return jax.shard_map(
            body,
            mesh=None if ambient.manual_axes else mesh,
            in_specs=(jax.tree.map(lambda x: spec_of(axes, x.ndim), fields), PartitionSpec()),
            out_specs=specs,
            axis_names=names,
        )

    if not ambient.manual_axes:
        fields = place(fields, mesh, axes)
    elif AxisType.Explicit in ambient.axis_types:  # a field's type says where it lies, and its cotangent's type too
        fields = place(fields, ambient, axes)
    if out_specs is None:
        found = None

        def look(fields, common):
            nonlocal found
            blocks = {x.shape[x.ndim - len(axes) :] for x in jax.tree.leaves(fields)}
            out = on_device(fields, common)
            found = jax.tree_util.tree_map_with_path(lambda path, x: _spec(path, x, axes, blocks), out)
            return ()

        jax.eval_shape(call(look, ()), fields, common)
        out_specs = found
    return eqx.combine(call(on_device, out_specs)(fields, common), static)


def _as_array(x: Any) -> Any:
    return jnp.asarray(x) if eqx.is_array_like(x) else x


def _spec(path: Any, x: jax.Array, axes: Axes, blocks: set) -> PartitionSpec:
    """Returns the layout of a result: whole if the same on all devices, otherwise like a field."""
    if not vma_of(x) & {axis for axis in axes if axis}:
        return PartitionSpec()
    where = "the result" + jax.tree_util.keystr(path)
    if x.ndim < len(axes):
        raise ValueError(
            f"`Domain.run`: {where} of `fn` has shape {x.shape} and differs between devices, but is not a field. "
            "Combine the devices' parts with `Domain.sum`, `mean`, `max` or `norm`, or pass `out_specs`."
        )
    if x.shape[x.ndim - len(axes) :] not in blocks:
        raise ValueError(
            f"`Domain.run`: {where} of `fn` has shape {x.shape} on each device, and the blocks of the fields end with "
            f"{' or '.join(map(str, sorted(blocks)))}. Set its layout with `out_specs`; for a spectrum use "
            "`out_specs=PartitionSpec(*domain.spectral_axes)`."
        )
    return spec_of(axes, x.ndim)


# Sums, means and root mean squares over all elements of all fields of a PyTree, on all devices that hold parts.
@dataclasses.dataclass(frozen=True)
class Rms:
    """The root of the mean of squares over all devices that hold parts of a field; equal if the names are.

    Attributes:
        names: The mesh axes that split the field.
    """

    names: tuple[str, ...]

    def __call__(self, u: PyTree) -> Real[Array, ""]:
        """Returns the root mean square."""
        return jnp.sqrt(mean(jax.tree.map(square, u), self.names if are_manual(self.names) else ()))


def total(u: PyTree, names: _collectives.Names) -> Array:
    """Returns the sum of all elements of all fields."""
    first, *rest = [_collectives.total(x, names) for x in jax.tree.leaves(u)]
    return sum(rest, first)


def mean(u: PyTree, names: _collectives.Names) -> Array:
    """Returns the mean of all elements of all fields."""
    return total(u, names) / sum(_collectives.count(x, names) for x in jax.tree.leaves(u))


def square(x: Array) -> Array:
    """Returns the squares of moduli."""
    return jnp.real(jnp.conj(x) * x)


class Domain(eqx.Module):
    """A field split over devices: each holds a block and a few layers of its neighbours' cells (halo).

    Code written with a `Domain` runs on one device and on many. Outside of `run`, `pad` adds ghost cells to the whole
    field, `sum` adds up its elements, and `fftn` transforms it. Inside `run` the same calls are made on every device
    with its block: `pad` gets the outermost layers of the neighbouring devices, axis by axis (halo exchange), and
    applies the boundary conditions only at the edges of the field; `sum` adds up all blocks; `fftn` redistributes
    blocks. All of them can be differentiated.

    A field's last dimensions are the dimensions of space; dimensions before them (components, times) are not split.

    Attributes:
        boundary: The conditions at the edges of the field, or the `Sides` of a flow; None for a periodic field.
        axes: For each dimension of space the mesh axis that splits it, or None.
        mesh: The devices, from `sciml.parallel.mesh`; None for the mesh set by `jax.set_mesh`.
        exchange: The unit of one halo exchange in a solve of a conservation law, a "stage" of its method or a "step".

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import parallel

        n = len(jax.devices())
        domain = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=n))


        def heat(u, rate):
            p = domain.pad(u, 1)
            u = u + rate * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
            return u, domain.sum(u)


        u0 = jnp.zeros((8 * n, 8)).at[3, 3].set(1.0)
        u, total = domain.run(heat, u0, 0.1)
        assert jnp.allclose(u, heat(u0, 0.1)[0]) and jnp.allclose(total, 1.0)
        ```
    """

    boundary: Boundaries | Sides | None
    axes: Axes = eqx.field(static=True)
    mesh: Mesh | AbstractMesh | None = eqx.field(static=True)
    exchange: str = eqx.field(static=True)

    def __init__(
        self,
        axes: Sequence[str | None],
        *,
        boundary: Boundaries | Sides | None = None,
        mesh: Mesh | AbstractMesh | None = None,
        exchange: Literal["stage", "step"] = "stage",
    ):
        """Describes the layout of fields on a mesh.

        Args:
            axes: For each dimension of space the name of the mesh axis that splits it, or None.
            boundary: The conditions at the edges, or the `Sides` of a flow, for the conservation laws of
                `sciml.models`; None for a periodic field.
            mesh: The devices; None for the mesh set by `jax.set_mesh`.
            exchange: The unit of one halo exchange of the conservation laws of `sciml.models` in `sciml.solve`. With
                "step" a device fetches as many layers as all stages of its method read, and computes what these become
                as well: fewer and larger messages for more work, and the same results. For explicit Runge-Kutta
                methods; the `forces` of a law must then support blocks of any size.

        Raises:
            ValueError: If there is no dimension, their number differs from `boundary`, or a mesh axis occurs twice or
                is missing in the mesh; if `boundary` has a body, or on an `OrthogonalGrid` unknowns that are not at
                centres, or split angles around the axis $r = 0$; if there is no such `exchange`, or not on such a grid.
        """
        if exchange not in ("stage", "step"):
            raise ValueError(f"`Domain(exchange=...)` must be 'stage' or 'step', but is {exchange!r}.")
        self.exchange = exchange
        self.boundary = boundary
        self.axes = tuple(axes)
        self.mesh = mesh
        if not self.axes:
            raise ValueError(
                "`Domain`: `axes` must contain a mesh axis, or None, for each dimension of space, but is empty."
            )
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"`Domain`: `axes={self.axes}` contains a mesh axis twice, but each may appear only once.")
        if boundary is not None and len(boundary.shape) != len(self.axes):
            raise ValueError(
                f"`Domain`: `axes={self.axes}` must contain a mesh axis, or None, for each of the "
                f"{len(boundary.shape)} dimensions of `boundary`."
            )
        if getattr(boundary, "body", None) is not None:
            raise ValueError("`Domain`: `boundary` must belong to a grid without a body.")
        if boundary is not None and isinstance(boundary.grid, OrthogonalGrid):
            check_cells(boundary, self.axes)
            if exchange == "step":
                raise ValueError(
                    "`Domain(exchange='step')` requires a uniform `Grid`. On an `OrthogonalGrid` use exchange='stage'."
                )
        if mesh is not None:
            choose_domain_mesh(mesh, self.axes)

    @property
    def grid(self) -> AbstractGrid | None:
        """The whole grid, if `boundary` defines it."""
        return None if self.boundary is None else self.boundary.grid

    @property
    def periodic(self) -> tuple[bool, ...]:
        """The periodic dimensions of space."""
        return (True,) * len(self.axes) if self.boundary is None else self.boundary.periodic

    @property
    def uniform(self) -> bool:
        """Whether all cells are alike; not on an `OrthogonalGrid`."""
        return not isinstance(self.grid, OrthogonalGrid)

    @property
    def names(self) -> tuple[str, ...]:
        """The mesh axes that split the field."""
        return tuple(axis for axis in self.axes if axis)

    @property
    def inside(self) -> bool:
        """Whether code is being traced that runs once per device, with that device's block."""
        return are_manual(self.axes)

    # Running

    def run(
        self, fn: Callable[..., PyTree], fields: PyTree, shared: PyTree = None, *, out_specs: PyTree = None
    ) -> PyTree:
        """Runs `fn` once on every device, with the blocks that the device holds.

        Works in `jax.jit`, `jax.grad` and inside a member of `ensemble`, and can be called directly. `fn` is
        run by `jax.shard_map` with all its checks: what `fn` returns is known to be the same on all
        devices, or is a field.

        Args:
            fn: The function to run: `fn(fields)`, or `fn(fields, shared)` where `shared` is given.
            fields: A PyTree of fields, arrays whose last dimensions are the dimensions of space.
            shared: Values that every device needs whole, a PyTree: parameters, a model.
            out_specs: The layout of the results, as for `jax.shard_map`. By default results that differ between devices
                are fields, and the others are the same everywhere. A spectrum needs it, see `spectral_axes`.

        Returns:
            The results of `fn`, as whole arrays.

        Raises:
            ValueError: If a field cannot be split evenly, a result of `fn` is neither whole nor a field, or there is no
                mesh.
        """
        if not callable(fn):
            raise TypeError(f"`Domain.run`: `fn` must be callable, got {type(fn).__name__}.")
        if self.inside:
            return fn(fields) if shared is None else fn(fields, shared)
        mesh = choose_domain_mesh(self.mesh, self.axes)
        for path, leaf in jax.tree_util.tree_leaves_with_path(fields):
            if eqx.is_array_like(leaf):
                check_field(np.shape(leaf), self.axes, mesh, name="fields" + jax.tree_util.keystr(path))
        return run_split(fn, fields, shared, axes=self.axes, mesh=mesh, out_specs=out_specs)

    def split(self, fields: PyTree) -> PyTree:
        """Returns whole fields as arrays of which every device holds its block.

        From Python; with several processes each gives the whole field and keeps its part.

        Args:
            fields: A PyTree of arrays, JAX's or NumPy's.
        """
        mesh = choose_domain_mesh(self.mesh, self.axes)
        mesh = mesh if isinstance(mesh, Mesh) else jax.sharding.get_mesh()

        def put(path, x):
            check_field(x.shape, self.axes, mesh, name="fields" + jax.tree_util.keystr(path))
            sharding = NamedSharding(mesh, spec_of(self.axes, x.ndim))
            if sharding.is_fully_addressable:
                return jax.device_put(x, sharding)
            whole = np.asarray(x)
            return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

        return jax.tree_util.tree_map_with_path(put, fields)

    def gather(self, fields: PyTree) -> PyTree:
        """Returns split fields as whole NumPy arrays, in every process."""
        from jax.experimental import multihost_utils  # only needed here, and not quick to import

        def fetch(x):
            if isinstance(x, jax.Array) and not x.is_fully_addressable:
                return np.asarray(multihost_utils.process_allgather(x, tiled=True))
            return np.asarray(x)

        return jax.tree.map(fetch, fields)

    # Neighbours

    def pad(
        self, u: PyTree, width: int, *, accuracy: int = 2, t: RealScalarLike | None = None, args: Args = None
    ) -> PyTree:
        """Returns fields with `width` ghost layers on every side of every dimension of space.

        In a device's block these are the neighbours' outermost layers, and beyond the edges of the field the values of
        the boundary conditions. Operators of `sciml.spatial` take a `Domain` as their boundary for the sake of this
        method.

        Args:
            u: A field, or a PyTree of fields.
            width: The number of layers.
            accuracy: The order of the error of the ghost values at walls.
            t: The time, for values at walls that are functions.
            args: Their second argument.

        Raises:
            ValueError: If a device holds fewer layers than are needed, or a value needs `t`.
        """
        halo = self._halo(accuracy)._replace(t=t, args=args)
        return jax.tree.map(lambda x: _halo.pad(x, width, halo), u)

    def extend(self, u: PyTree, width: int, *, accuracy: int = 2) -> PyTree:
        """Returns fields that are subject to no condition, such as coefficients, with ghost layers.

        Args:
            u: A field, or a PyTree of fields.
            width: The number of layers.
            accuracy: The order of the error of the values extrapolated beyond walls.
        """
        halo = self._halo(accuracy)._replace(free=True)
        return jax.tree.map(lambda x: _halo.pad(x, width, halo), u)

    def homogeneous(self) -> "Domain":
        """Returns the domain with conditions whose values are zero, for the linear part of an operator."""
        boundary = self._halo(2).boundary
        boundary = None if boundary is None else boundary.homogeneous()
        exchange: Any = self.exchange
        return Domain(self.axes, boundary=boundary, mesh=self.mesh, exchange=exchange)

    def map(
        self, stencil: Callable[..., PyTree], *, width: int = 1, steps_per_exchange: int = 1, accuracy: int = 2
    ) -> Callable[..., PyTree]:
        """Makes a function that advances fields by a stencil, several times for each exchange with the neighbours.

        One exchange of `width * steps_per_exchange` layers serves that many steps: fewer and larger messages,
        for some work that two devices do alike. The results are the same.

        Args:
            stencil: `stencil(padded, *args)` takes fields with `width` ghost layers on all sides and returns
                them advanced, without.
            width: The number of layers that the stencil reads on every side.
            steps_per_exchange: How often the stencil is applied.
            accuracy: The order of the error of the ghost values at walls.

        Returns:
            `advance(u, *args, t=None)`, which applies the stencil `steps_per_exchange` times; `t` is the time
            of the boundary conditions, or one time for each step.
        """
        check_count(width, "width", "Domain.map")
        check_count(steps_per_exchange, "steps_per_exchange", "Domain.map")

        def advance(u: PyTree, *args: Any, t: Any = None) -> PyTree:
            times = [t] * steps_per_exchange if t is None or np.ndim(t) == 0 else [t[i] for i in range(len(t))]
            if len(times) != steps_per_exchange:
                raise ValueError(
                    f"`t` must be one time, or {steps_per_exchange} times, one for each step, but got {len(times)}."
                )
            return _halo.advance(lambda p: stencil(p, *args), u, width, self._halo(accuracy), times)

        return advance

    def local(self, values: Array, axis: int) -> Array:
        """Returns the part of a whole array that belongs to this device's block.

        For values that depend on the place: coordinates, coefficients. Outside of `run` it is all of it.

        Args:
            values: An array of any number of dimensions, the same on all devices, whose axis `axis - d` (counted
                from the end like the `d` dimensions of space) runs along dimension `axis`; a vector is taken
                to run along it.
            axis: The dimension of space, from 0.
        """
        along = 0 if values.ndim == 1 else values.ndim - len(self.axes) + axis
        return part_of(values, self.axes[axis], along) if self.inside else values

    def along(self, values: Array, axis: int) -> Array:
        """Returns the part of a vector along a dimension that belongs to this device's block, or to its faces.

        Args:
            values: A number for each cell of the whole grid along the dimension, or for each face, or for each cell
                with those beyond the ends; the same on all devices.
            axis: The dimension of space, from 0.

        Raises:
            ValueError: If there is no `boundary`, which defines the grid.
        """
        if self.grid is None:
            raise ValueError("`Domain.along` requires a `Domain` with `boundary=`, which defines the grid.")
        return along(values, self.axes[axis] if self.inside else None, self.grid.shape[axis])

    def whole(self, u: Array) -> Array:
        """Returns a field of which every device holds all, from the blocks that they hold; not split outside of `run`.

        For computations that need the whole field and are not worth splitting. It takes a message along each split
        dimension.

        Args:
            u: The field.
        """
        return gathered(u, self.axes) if self.inside else u

    def part(self, u: Array) -> Array:
        """Returns the block that this device holds of a field of which every device holds all.

        Args:
            u: The field.
        """
        for dim in range(len(self.axes)):
            u = self.local(u, dim)
        return u

    def sides_of(self, grid: AbstractGrid) -> SplitSides:
        """Returns the surroundings of the cells of a flow, for `sciml.spatial.FiniteVolumes`.

        Args:
            grid: The grid.

        Raises:
            TypeError: If `boundary` are the conditions of fields, and not periodic.
            ValueError: If the grid differs from the grid of `boundary`, or has another number of axes.
        """
        return sides_of(self.axes, self.boundary, grid, self.exchange)

    def blocks_of(self, grid: Grid) -> SplitBlocks:
        """Returns the blocks of a grid with unknowns at centres and nodes, for models of waves.

        Args:
            grid: The grid.

        Raises:
            ValueError: If the domain has a `boundary`, or another number of axes.
        """
        if self.boundary is not None:
            raise ValueError("a wave or flow model defines its own sides. Pass it a `Domain` without `boundary`.")
        if grid.ndim != len(self.axes):
            raise ValueError(
                f"`Domain`: `axes={self.axes}` must contain a mesh axis, or None, for each axis of the grid {grid!r}."
            )
        mesh: Any = self.mesh
        return SplitBlocks(grid, self.axes, mesh)

    # The whole field

    def sum(self, u: PyTree) -> Array:
        """Returns the sum of all elements of all fields in `u`."""
        return total(u, self._collective())

    def mean(self, u: PyTree) -> Array:
        """Returns the mean of all elements of all fields in `u`."""
        return mean(u, self._collective())

    def max(self, u: PyTree) -> Real[Array, ""]:
        """Returns the largest of all elements of all fields in `u`, NaN if one is."""
        names = self._collective()
        return jnp.max(jnp.stack([_collectives.largest(x, names) for x in jax.tree.leaves(u)]))

    def min(self, u: PyTree) -> Real[Array, ""]:
        """Returns the smallest of all elements of all fields in `u`, NaN if one is."""
        return -self.max(jax.tree.map(jnp.negative, u))

    def dot(self, a: PyTree, b: PyTree) -> Inexact[Array, ""]:
        r"""Returns $\sum \bar a b$ over all elements of all fields."""
        return self.sum(jax.tree.map(lambda x, y: jnp.conj(x) * y, a, b))

    def norm(self, u: PyTree) -> Real[Array, ""]:
        r"""Returns $\sqrt{\sum |u|^2}$ over all elements of all fields."""
        return jnp.sqrt(self.sum(jax.tree.map(square, u)))

    @property
    def rms(self) -> Rms:
        r"""The function $u \mapsto \sqrt{\mathrm{mean} |u|^2}$, over all elements of all fields.

        It is the norm that `sciml.solve` uses, over all devices: `sciml.solve(..., norm=domain.rms)`. With
        it all devices take the same steps.
        """
        return Rms(self.names)

    def cg(
        self,
        operator: Callable[[PyTree], PyTree],
        b: PyTree,
        *,
        rtol: RealScalarLike,
        atol: RealScalarLike = 0.0,
        accept: RealScalarLike = 0.0,
        max_steps: int = 1000,
    ) -> _cg.LinearSolution:
        r"""Solves $A x = b$ for a symmetric positive definite $A$ by conjugate gradients, over all devices.

        Derivatives in reverse mode, by `b` and by what `operator` closes over, take one more solve.

        Args:
            operator: $x \mapsto A x$ for fields like `b`. With values at walls it is linear only if they are zero: see
                `homogeneous`.
            b: The right-hand side, a PyTree of fields.
            rtol: The required norm of the residual, relative to the norm of `b`.
            atol: How small it must become at least.
            accept: The accepted norm of the residual, relative to the norm of `b`, if rounding prevents a smaller one:
                about the dtype's precision times the condition number of $A$.
            max_steps: The limit on iterations.

        Returns:
            A `LinearSolution`, with `value`, `status`, `n_steps` and `residual`. The residual is computed from the
            solution: the residual of the iteration drifts away by rounding. If it stops decreasing and is too large,
            the status is `stagnated`; in float32 that happens to systems with a condition number above `rtol` over the
            precision.
        """
        check_count(max_steps, "max_steps", "Domain.cg")
        return _cg.cg(operator, b, _cg.CGOptions(self.dot, rtol, atol, accept, max_steps, self._collective()))

    # Fourier transforms

    @property
    def spectral_axes(self) -> tuple[str | tuple[str, ...] | None, ...]:
        """The mesh axes that split the dimensions of a spectrum, like `axes` for a field.

        To return spectra from `run`, give `out_specs=PartitionSpec(*domain.spectral_axes)`.
        """
        return tuple(names if len(names) > 1 else (names or (None,))[0] for names in _fft.plan(self.axes)[1])

    def fftn(self, u: Array) -> Array:
        """Returns the discrete Fourier transform of a field over the dimensions of space, as `jnp.fft.fftn`.

        Inside `run` the spectrum is split according to `spectral_axes`. A field split along one dimension takes one
        all-to-all, a field of three dimensions split along two takes two.

        Raises:
            ValueError: If the number of devices does not divide the extents.
        """
        steps, _ = _fft.plan(self.axes if self.inside else (None,) * len(self.axes))
        return _fft.run(steps, u, lambda x, dim: jnp.fft.fft(x, axis=dim))

    def ifftn(self, spectrum: Array) -> Array:
        """Returns the field of a spectrum, as `jnp.fft.ifftn`: the inverse of `fftn`, complex."""
        steps, _ = _fft.plan(self.axes if self.inside else (None,) * len(self.axes))
        return _fft.run(_fft.reverse(steps), spectrum, lambda x, dim: jnp.fft.ifft(x, axis=dim))

    def wavenumbers(
        self, shape: Sequence[int], spacing: RealScalarLike | Sequence[RealScalarLike] = 1.0
    ) -> tuple[Array, ...]:
        r"""Returns $2\pi m / (n h)$ for each dimension, in the order and the place of the spectrum.

        Args:
            shape: The extents of the whole field.
            spacing: The distance $h$ between grid points, for all dimensions or for each.

        Returns:
            An array for each dimension that broadcasts against the spectrum, inside `run` its part on this device.
        """
        if len(shape) != len(self.axes):
            raise ValueError(f"`shape` must have the {len(self.axes)} extents of space, got {tuple(shape)}.")
        spacings = tuple(spacing) if isinstance(spacing, Sequence) else (spacing,) * len(shape)
        found = []
        for dim, (n, h, axes) in enumerate(zip(shape, spacings, self.spectral_axes, strict=True)):
            k = _fft.wavenumbers(n, jnp.asarray(h, jnp.result_type(float)), dim, len(shape))
            if self.inside and axes:
                size = n // jax.lax.axis_size(axes)
                k = jax.lax.dynamic_slice_in_dim(k, jax.lax.axis_index(axes) * size, size, dim)
            found.append(k)
        return tuple(found)

    def _halo(self, accuracy: int) -> _halo.Halo:
        if isinstance(self.boundary, Sides):
            raise TypeError(
                "`Domain`: `boundary` are the `Sides` of a flow, for conservation laws, but a field needs "
                "`Boundaries`, or None if it is periodic."
            )
        return _halo.Halo(self.axes if self.inside else (None,) * len(self.axes), self.boundary, accuracy)

    def _collective(self) -> tuple[str, ...]:
        return self.names if self.inside else ()
