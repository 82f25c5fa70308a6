"""The divergence of fluxes through the faces of cells."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._jax._barrier import held_back
from ..._jax.programs import used_inputs
from ..._parameters import with_dtype
from ..._types import Args, RealScalarLike
from ...kernels._backends import KernelRequest
from ...kernels._volumes import FluxDivergence, choose, divergence, refused
from ...kernels.stencil import NotForKernelsError
from .._abstract_grid import AbstractGrid
from .._grid import Grid
from ..geometry import _metric
from ..geometry._coordinates import Cartesian
from ..geometry._orthogonal_grid import OrthogonalGrid
from ._fluxes import AbstractFlux, Rusanov
from ._positivity import Neighbour, PositivityLimiter
from ._reconstruction import AbstractReconstruction, Muscl
from ._sides import AbstractSides, as_sides, ends
from ._variables import AbstractVariables, Componentwise


class _AtOneFace:
    """The cells around one face, each a state without axes of a grid."""

    def __init__(self, law: AbstractConservationLaw, cells: Sequence[Array], axis: int):
        self._law, self._axis, self.cells = law, axis, list(cells)

    def hold(self, *arrays: Array) -> tuple[Array, ...]:
        """Returns arrays as they are: registers are computed once."""
        return arrays

    def fluxes(self) -> list[Array]:
        """Returns the fluxes of all cells."""
        return [self._law.flux(cell, self._axis) for cell in self.cells]

    def neighbours(self, fluxes: list[Array]) -> list[Neighbour]:
        """Returns the cells on either side of the face."""
        middle, found = len(self.cells) // 2, []
        for k in (middle - 1, middle):
            slow, fast = self._law.speeds(self.cells[k], self._axis)
            speed = jnp.maximum(jnp.abs(slow), jnp.abs(fast))
            found.append(Neighbour(self._law.conserved(self.cells[k]), fluxes[k], speed))
        return found


class _NoSides(NamedTuple):
    """In place of the sides of the law at one cell, whose parameters are numbers."""

    def local(self, values: Array) -> Array:
        return values


class _Law(NamedTuple):
    """A law at one cell and one face: a divergence, and the operands that it needs.

    Attributes:
        problem: The divergence.
        operands: The leaves of the law that it reads.
    """

    problem: FluxDivergence
    operands: list[Array]


def choose_kernel(volumes: Any, law: AbstractConservationLaw, y: Any, request: KernelRequest) -> Any:
    """Returns the kernel that runs a law, or None for XLA; see `FiniteVolumes.with_kernel`."""
    if not isinstance(request.impl, str):
        return None  # somebody's own kernel of stencils
    law = with_dtype(law, y.dtype)
    shape = volumes.sides.shape
    if y.shape[y.ndim - len(shape) :] != shape or y.ndim - len(shape) > 1:
        return None  # `rates` says what is wrong, and members that are not mapped have no kernel
    try:
        found = _at_one_face(volumes, law, y.shape[: y.ndim - len(shape)], y.dtype)
    except NotForKernelsError as error:
        refused(request, error)
        return None
    chosen = choose(request, found.problem, found.operands, shape, y.dtype)
    return None if chosen.backend == "xla" else chosen


def _at_one_face(volumes: Any, law: AbstractConservationLaw, components: tuple[int, ...], dtype: Any) -> _Law:
    """Returns the law at one cell and one face.

    Raises:
        NotForKernelsError: If it has none.
    """
    if not isinstance(volumes.grid, Grid):
        raise NotForKernelsError("the grid is not uniform, and the kernel requires a `Grid`")
    alone = eqx.tree_at(lambda x: x.volumes.sides, law, _NoSides())
    leaves, static = eqx.partition(alone, eqx.is_array)
    flat, structure = jax.tree.flatten(leaves)

    def whole(arrays: Sequence[Any]) -> AbstractConservationLaw:
        return eqx.combine(jax.tree.unflatten(structure, arrays), static)

    def primitive(arrays: Sequence[Any], y: Array) -> Array:
        return whole(arrays).primitive(y)

    def flux(arrays: Sequence[Any], cells: Sequence[Array], axis: int) -> Array:
        one = whole(arrays)
        found, left, right, *seen = one.volumes.through(one, _AtOneFace(one, cells, axis), axis)
        if any(x is not None for x in (*seen, one.within(left, right, axis))):
            raise NotForKernelsError("a term balances its flux, such as a varying bed")
        return found

    width, spacing = volumes.reconstruction.radius, volumes.grid.spacing
    try:
        used = _used(primitive, flux, flat, components, dtype, width, len(spacing))
    except (TypeError, ValueError) as error:  # whatever its functions say of shapes
        said = str(error).splitlines()[0]
        raise NotForKernelsError(
            f"it does not support a single cell, for example a varying parameter: {said}"
        ) from error

    def filled(operands: Sequence[Any]) -> list[Any]:
        """All leaves; unused ones may be anything of the same shape."""
        given = iter(operands)
        return [next(given) if u else np.broadcast_to(np.zeros((), x.dtype), x.shape) for u, x in zip(used, flat)]

    problem = FluxDivergence(
        lambda operands, y: primitive(filled(operands), y),
        lambda operands, cells, axis: flux(filled(operands), cells, axis),
        width,
        components,
        spacing,
    )
    return _Law(problem, [x for u, x in zip(used, flat) if u])


def _used(
    primitive: Any, flux: Any, flat: list[Array], components: tuple[int, ...], dtype: Any, width: int, ndim: int
) -> list[bool]:
    """Returns which leaves of a law the programs read."""

    def both(arrays: Sequence[Any], y: Array) -> list[Array]:
        w = primitive(arrays, y)
        return [w, *(flux(arrays, [w] * (2 * width), axis) for axis in range(ndim))]

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat]
    jaxpr = jax.make_jaxpr(both)(shapes, jax.ShapeDtypeStruct(components, dtype)).jaxpr
    return used_inputs(jaxpr)[: len(flat)]


def rates_by_kernel(volumes: Any, law: AbstractConservationLaw, t: RealScalarLike, y: Array, args: Args) -> Array:
    """Returns the rates of a conserved state, without sources, by the kernel that was chosen.

    Derivatives in both modes are the derivatives of the rates by XLA.
    """
    arrays, static = eqx.partition((volumes, law, t, args), eqx.is_array)

    def by_xla(arrays: PyTree, y: Array) -> Array:
        volumes, law, t, args = eqx.combine(arrays, static)
        return volumes._rates(law, t, y, args)

    @jax.custom_jvp
    def run(arrays: PyTree, y: Array) -> Array:
        volumes, law, t, args = eqx.combine(arrays, static)
        if hasattr(volumes.sides, "renewed"):  # a block that has its neighbours' cells with it
            y = volumes.sides.renewed(law, y, t, args)
        found = _at_one_face(volumes, law, y.shape[: volumes.lead(y)], y.dtype)
        ghosts = [_around(volumes, law, y, axis, t, args) for axis in range(volumes.grid.ndim)]
        return divergence(volumes.chosen, found.problem, y, ghosts, found.operands)

    @run.defjvp
    def derivative(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return run(*primals), jax.jvp(by_xla, primals, tangents)[1]

    return run(arrays, y)


def _around(
    volumes: Any, law: AbstractConservationLaw, y: Array, axis: int, t: RealScalarLike, args: Args
) -> tuple[Array, Array]:
    """Returns the ghost cells beyond both ends of an axis, from the cells next to the ends only."""
    width = volumes.reconstruction.radius
    near = jnp.concatenate(ends(y, width, volumes.lead(y) + axis), axis=volumes.lead(y) + axis)
    return volumes.sides.around(law, law.primitive(near), axis, width, t, args)


class FiniteVolumes(eqx.Module):
    r"""The discretisation of a conservation law: cells exchange fluxes through their faces, and nothing is lost.

    $$\dot u_i = - \sum_k \frac{F_{i + 1/2, k} - F_{i - 1/2, k}}{h_k}$$

    Along each axis the values in cells are continued to either side of a face (`reconstruction`, in `variables`), and
    `flux` determines the flow between the two states.

    On an `OrthogonalGrid` what flows through a face counts by its area, and adds to a cell by its volume; then
    `Constant` and `Muscl` keep their order on faces from a smooth mapping, and other reconstructions are refused. In
    coordinates that are not `Cartesian` it supports only laws of one component, because the directions of vectors
    change.

    Attributes:
        grid: The grid.
        sides: The conditions beyond its sides.
        reconstruction: `Constant`, `Muscl`, `PPM`, `WENO3`, `WENO5`, `WENO5Z` or `TENO5`.
        flux: `Rusanov`, `HLL`, `HLLC`, `Roe` or `LaxWendroff`.
        variables: `Componentwise` or `Characteristic`.
        limiter: A `PositivityLimiter`, or None.
        chosen: The kernel that computes rates, by `with_kernel`; None for XLA.

    Args:
        grid: The grid.
        boundary: One condition for all sides, or by name: `{"x-": Inflow(state), "x+": Outflow(), "y": Periodic()}`;
            or a `sciml.parallel.Domain` that splits the grid over devices.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states.
        variables: In which variables.
        limiter: The limiter that keeps the state positive.

    Raises:
        ValueError: If the grid has too few cells for the reconstruction, or is not uniform for one of high order, or if
            `boundary` does not cover every side once, or belongs to another grid.
        TypeError: If an argument has the wrong type.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import InviscidBurgers
        from sciml.spatial import FiniteVolumes, Grid, Muscl, Periodic, Roe

        grid = Grid(64)
        volumes = FiniteVolumes(grid, Periodic(), Muscl(), Roe())
        law = InviscidBurgers(grid, Periodic())
        y = jnp.sin(2 * jnp.pi * grid.centers[0])
        assert abs(jnp.sum(volumes.rates(law, 0.0, y, None))) < 1e-4  # nothing is lost
        ```
    """

    grid: AbstractGrid
    sides: AbstractSides
    reconstruction: AbstractReconstruction
    flux: AbstractFlux
    variables: AbstractVariables
    limiter: PositivityLimiter | None
    chosen: Any = eqx.field(static=True)

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux = Rusanov(),
        variables: AbstractVariables = Componentwise(),
        limiter: PositivityLimiter | None = None,
    ):
        self.grid = grid
        self.sides = as_sides(grid, boundary)
        self.reconstruction = reconstruction
        self.flux = flux
        self.variables = variables
        self.limiter = limiter
        self.chosen = None

    def __check_init__(self):
        kinds = {
            "reconstruction": AbstractReconstruction,
            "flux": AbstractFlux,
            "variables": AbstractVariables,
            "limiter": PositivityLimiter | None,
        }
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(
                    f"`FiniteVolumes({name}=...)` must be a `{getattr(kind, '__name__', 'PositivityLimiter')}` such as "
                    f"`{_EXAMPLES[name]}`, but is {value!r}."
                )
        width = self.reconstruction.radius
        if not isinstance(self.grid, Grid) and (width > 2 or self.reconstruction.correction):
            raise ValueError(
                f"`{type(self.reconstruction).__name__}` requires a uniform `Grid`. On an `OrthogonalGrid` use "
                "`Muscl()` or `Constant()`."
            )
        for name, n in zip(self.grid.names, self.grid.shape):
            if n < width:
                raise ValueError(
                    f"`{type(self.reconstruction).__name__}` reads {width} cells on either side of a face, but the "
                    f"grid has {n} along {name}. Refine the grid or use another reconstruction."
                )

    def with_kernel(
        self, law: AbstractConservationLaw, y: Float[Array, "..."], request: KernelRequest
    ) -> "FiniteVolumes":
        """Returns finite volumes whose rates a kernel computes, or the same where none is taken.

        Derivatives, in both modes, are the derivatives of the rates by XLA.

        Args:
            law: The conservation law.
            y: A state of it, or its shape and dtype.
            request: The requested backend.

        Raises:
            ValueError: If a kernel was requested that cannot run the law.
        """
        chosen = choose_kernel(self, law, y, request)
        new = copy.copy(self)
        object.__setattr__(new, "chosen", chosen)  # of a module that nobody else has
        return new

    def lead(self, state: Float[Array, "..."]) -> int:
        """Returns the number of a state's axes before the grid's: one of components, or none for a scalar law."""
        return state.ndim - self.grid.ndim

    def rates(
        self, law: AbstractConservationLaw, t: RealScalarLike, y: Float[Array, "..."], args: Args
    ) -> Float[Array, "..."]:
        """Returns the rates of a conserved state, without sources.

        Args:
            law: The conservation law.
            t: The time, for values at sides that are functions.
            y: The conserved state.
            args: The second argument of these functions.

        Raises:
            ValueError: If the state has the wrong shape.
        """
        if y.shape[-self.grid.ndim :] != self.sides.shape:
            whose = " of" if self.sides.shape == self.grid.shape else " (a device's block) of"
            raise ValueError(
                f"the state must end with the axes {self.sides.shape}{whose} {self.grid}, but has shape {y.shape}. The "
                "components come first, the grid's axes last."
            )
        return self._rates(law, t, y, args) if self.chosen is None else rates_by_kernel(self, law, t, y, args)

    def _rates(
        self, law: AbstractConservationLaw, t: RealScalarLike, y: Float[Array, "..."], args: Args
    ) -> Float[Array, "..."]:
        """The same by XLA."""
        w = law.primitive(y)
        total = self._pressed(law, w)
        for axis in range(self.grid.ndim):
            term = self._along(law, w, axis, t, args)
            total = term if total is None else total + term
        assert total is not None
        return total

    def _pressed(self, law: AbstractConservationLaw, w: Float[Array, "..."]) -> Float[Array, "..."] | None:
        """Returns what presses along a radius, since faces are larger on the outside; None where nothing does.

        It is a pressure times the difference of the areas: what the fluxes of a gas at rest leave.
        """
        grid = self.grid
        if not isinstance(grid, OrthogonalGrid) or isinstance(grid.system, Cartesian) or not self.lead(w):
            return None
        turning, pressing = grid.system.turning, law.pressing(w) if grid.system.radial else None
        if pressing is None or (turning is not None and turning < grid.ndim):
            raise ValueError(
                f"in {type(grid.system).__name__} coordinates the components of `{type(law).__name__}` rotate with the "
                "axes. Finite volumes there support laws of one component, and `Euler` if nothing depends on an angle: "
                "in `Axisymmetric`, and in `Spherical` and `Polar` coordinates of one axis."
            )
        areas = _metric.areas(grid, 0)[0]
        factors = _metric.combined({0: np.diff(areas)}, self._beside(0))
        return _metric.times(pressing, grid.ndim, factors, self.sides.along)

    def _along(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, t: RealScalarLike, args: Args
    ) -> Float[Array, "..."]:
        """Returns what flows into each cell along an axis."""
        width, at, n = self.reconstruction.radius, self.lead(w) + axis, self.sides.shape[axis]
        (padded,) = held_back(self.sides.pad(law, w, axis, width, t, args))
        found = self.through(law, _EachCellOnce(law, padded, axis, self.grid.ndim, width, n), axis)
        flux, left, right, seen_left, seen_right = found
        if not isinstance(self.grid, Grid):
            # one in Cartesian coordinates, the only ones where `seen` and `within` are not None
            areas = {axis: _metric.areas(self.grid, axis)[axis]}
            flux = _metric.times(flux, self.grid.ndim, areas, self.sides.along)
        (flux,) = held_back(flux)  # it is read twice
        into = _lower(flux, seen_right, at, n) - _upper(flux, seen_left, at, n)
        within = law.within(_lower(right, None, at, n), _upper(left, None, at, n), axis)
        into = into if within is None else into + within
        if isinstance(self.grid, Grid):
            return into / self.grid.spacing[axis]
        return _metric.times(into, self.grid.ndim, self._beside(axis), self.sides.along)

    def through(self, law: AbstractConservationLaw, around: Any, axis: int) -> tuple:
        """Returns the fluxes through faces, the states at both sides, and the additional flux of either side.

        Args:
            law: The conservation law.
            around: The cells around the faces: `cells`, `hold`, `fluxes` and `neighbours` as `_EachCellOnce` has them.
            axis: The axis across the faces.
        """
        width, cells = self.reconstruction.radius, around.cells
        left, right = around.hold(*self.variables.at_faces(law, self.reconstruction, cells, axis))
        if self.limiter is not None:
            left = self.limiter.scaled(law, left, cells[width - 1])
            right = self.limiter.scaled(law, right, cells[width])
        meets_left, meets_right, seen_left, seen_right = law.balanced(left, right, axis)
        flux = self.flux(law, meets_left, meets_right, axis)
        if self.reconstruction.correction or self.limiter is not None:
            fluxes = around.fluxes()
            if self.reconstruction.correction:
                flux = flux + _weighted(fluxes, self.reconstruction.correction)
            if self.limiter is not None:
                (flux,) = around.hold(flux)
                flux = self.limiter.limited(law, flux, *around.neighbours(fluxes))
        return flux, left, right, seen_left, seen_right

    def _beside(self, axis: int) -> _metric.Factors:
        """The areas of the faces across an axis, but for its own factor, over the volumes of cells."""
        factors = _metric.combined(_metric.areas(self.grid, axis), {})
        del factors[axis]
        return _metric.combined(factors, _metric.inverse(_metric.volumes(self.grid)))

    def crossing_rate(self, law: AbstractConservationLaw, y: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns how many cells the fastest wave crosses in a unit of time."""
        w = law.primitive(y)
        total = None
        for axis in range(self.grid.ndim):
            speed = fastest_of(law, w, axis)
            if isinstance(self.grid, Grid):
                term = speed / self.grid.spacing[axis]
            else:
                own = _metric.areas(self.grid, axis)[axis]
                larger = {axis: np.maximum(own[1:], own[:-1])}
                factors = _metric.combined(larger, self._beside(axis))
                term = _metric.times(speed, self.grid.ndim, factors, self.sides.along)
            total = term if total is None else total + term
        assert total is not None
        return self.sides.largest(total)


class _EachCellOnce:
    """The cells around the faces along an axis of a whole field; values of a cell are computed once."""

    def __init__(self, law: AbstractConservationLaw, padded: Array, axis: int, ndim: int, width: int, n: int):
        self._law, self._padded, self._axis = law, padded, axis
        self._ndim, self._width, self._n = ndim, width, n
        self.cells = [self._seen(padded, k) for k in range(2 * width)]
        self.hold = held_back

    def fluxes(self) -> list[Array]:
        """Returns the fluxes of all cells around each face."""
        (fluxes,) = held_back(self._law.flux(self._padded, self._axis))
        return [self._seen(fluxes, k) for k in range(2 * self._width)]

    def neighbours(self, fluxes: list[Array]) -> list[Neighbour]:
        """Returns the cells on either side of each face."""
        states, speeds = held_back(self._law.conserved(self._padded), fastest_of(self._law, self._padded, self._axis))
        near = (self._width - 1, self._width)
        return [Neighbour(self._seen(states, k), fluxes[k], self._seen(speeds, k)) for k in near]

    def _seen(self, x: Array, k: int) -> Array:
        """The values that faces read `width - k` cells below them."""
        return jax.lax.slice_in_dim(x, k, k + self._n + 1, axis=x.ndim - self._ndim + self._axis)


_EXAMPLES = {
    "reconstruction": "Muscl()",
    "flux": "Rusanov()",
    "variables": "Componentwise()",
    "limiter": "PositivityLimiter()",
}


def _lower(flux: Array, seen: Array | None, at: int, n: int) -> Array:
    """The states of cells at their lower faces."""
    return jax.lax.slice_in_dim(flux if seen is None else flux + seen, 0, n, axis=at)


def _upper(flux: Array, seen: Array | None, at: int, n: int) -> Array:
    """The states of cells at their upper faces."""
    return jax.lax.slice_in_dim(flux if seen is None else flux + seen, 1, n + 1, axis=at)


def fastest_of(law: AbstractConservationLaw, w: Array, axis: int) -> Array:
    """Returns the speed of the fastest wave of each cell, in either direction along an axis."""
    slow, fast = law.speeds(w, axis)
    return jnp.maximum(jnp.abs(slow), jnp.abs(fast))


def _weighted(terms: Sequence[Array], weights: tuple[float, ...]) -> Array:
    products = [weight * term for weight, term in zip(weights, terms)]
    return sum(products[1:], products[0])
