"""The velocity at the faces of cells: the unknown faces, and the values of the others."""

import functools as ft
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import Args, RealScalarLike
from .._abstract_grid import LOCATIONS, AbstractGrid, Location
from .._blocks import AbstractBlocks
from .._boundaries import Boundaries, pairs_of_sides
from .._conditions import Condition, Periodic, callable_leaf
from .._diffusion import _strip
from ..geometry._coordinates import Cartesian
from ..geometry._orthogonal_grid import OrthogonalGrid
from ._balance import check_balance
from ._differences import cut as cut, difference as difference, mean as mean
from ._flow_sides import AbstractFlowSide
from ._spacing import over_gaps, over_widths
from ._split_boundaries import SplitBoundaries, local_grid

Velocity = tuple[Float[Array, "..."], ...]


class StaggeredVelocity(eqx.Module):
    r"""A velocity whose components are at the faces of cells that they cross, between the sides of a box.

    It is a tuple of arrays, one for the faces across each axis. Faces on a side where the velocity across it is given
    are left out: `faces` puts them back. A component across $n$ cells along its axis has

    | sides | unknown faces |
    |---|---|
    | periodic | $n$ |
    | velocity given at both | $n - 1$ |
    | given at one, an outlet at the other | $n$ |
    | outlets at both | $n + 1$ |

    Attributes:
        grid: The grid; of a block its cells, without a position.
        sides: A pair for each axis, lower and upper.
        blocks: How the whole grid is split, within a block; None for a whole grid.

    Args:
        grid: The grid, of two or three axes: a `Grid`, or an `OrthogonalGrid` in `Cartesian` coordinates, on which
            differences use the distances of the places, and carried fields the widths of cells.
        boundary: One side for all, or by name: `{"x-": VelocityInlet((1.0, 0.0)), "x+": PressureOutlet(),
            "y": NoSlip()}`.
        blocks: The split of the grid over devices; within `sciml.parallel.Domain.run` the faces belong to a block.

    Raises:
        ValueError: If a side has none, or two, if one end of an axis is periodic and the other is not, if the grid
            has one axis or turns, or if no side is an outlet and more enters than leaves.
        TypeError: If one is not a side.

    Source:
        F. H. Harlow, J. E. Welch, Phys. Fluids 8:2182, 1965.

    Example:
        ```python
        from sciml.spatial import Grid, NoSlip, Periodic
        from sciml.spatial.staggered._velocity import StaggeredVelocity

        velocity = StaggeredVelocity(Grid((8, 6)), {"x": Periodic(), "y": NoSlip()})
        u, v = velocity.zeros()
        assert u.shape == (8, 6) and v.shape == (8, 5)
        assert velocity.faces((u, v))[1].shape == (8, 7)
        ```
    """

    grid: AbstractGrid
    sides: tuple[tuple[Periodic | AbstractFlowSide, Periodic | AbstractFlowSide], ...]
    blocks: AbstractBlocks | None

    def __init__(self, grid: AbstractGrid, boundary: Any, blocks: AbstractBlocks | None = None):
        if grid.ndim == 1:
            raise ValueError(
                "an incompressible flow requires a grid of two or three axes; along a single axis it is uniform."
            )
        if isinstance(grid, OrthogonalGrid) and not isinstance(grid.system, Cartesian):
            raise ValueError(
                f"an incompressible flow requires Cartesian coordinates, but the grid has "
                f"{type(grid.system).__name__} coordinates."
            )
        known = (
            "Periodic(), NoSlip(), FreeSlip(), VelocityInlet(velocity), PressureOutlet() or another AbstractFlowSide"
        )
        self.blocks = blocks if blocks is not None and blocks.inside else None
        self.grid = grid if self.blocks is None else local_grid(self.blocks)
        self.sides = pairs_of_sides(grid, boundary, AbstractFlowSide, known)
        for component in range(grid.ndim):
            self.component(component)  # refuses what does not fit
        check_balance(self)

    def _conditions(self, choose: Callable[[Any, int], Condition]) -> dict[str, Condition]:
        found = {}
        for axis, (name, pair) in enumerate(zip(self.grid.names, self.sides)):
            for end, side in zip("-+", pair):
                found[name + end] = side if isinstance(side, Periodic) else choose(side, axis)
        return found

    def in_blocks(self, blocks: AbstractBlocks | None) -> "StaggeredVelocity":
        """Returns the faces of a block, where the code that is traced runs within one."""
        if self.blocks is not None or blocks is None or not blocks.inside:
            return self
        sides = {name + end: side for name, pair in zip(self.grid.names, self.sides) for end, side in zip("-+", pair)}
        return StaggeredVelocity(self.grid, sides, blocks)

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells of the whole grid."""
        return self.grid.shape if self.blocks is None else self.blocks.grid.shape

    def at_centers(self, values: Array) -> Array:
        """Returns the local part of values given over the cells of the whole grid."""
        return values if self.blocks is None or values.ndim == 0 else self.pressure.part(values)

    def unknown(self, velocity: Velocity) -> Velocity:
        """Returns a velocity, or its rates, with zero at places of a block that are not unknowns."""
        if self.blocks is None:
            return velocity
        return tuple(self.component(i).unknown(u) for i, u in enumerate(velocity))

    def mean(self, u: Array, component: int) -> Float[Array, ""]:
        """Returns the mean of a field over the unknown faces of a component, of all blocks."""
        if self.blocks is None:
            return jnp.mean(u)
        boundary = self.component(component)
        return self.blocks.sum(boundary.unknown(u)) / math.prod(boundary.whole.shape)

    def max(self, u: Array) -> Float[Array, ""]:
        """Returns the largest of all elements, of all blocks."""
        return jnp.max(u) if self.blocks is None else self.blocks.max(u)

    def sum(self, u: Array) -> Float[Array, ""]:
        """Returns the sum of what each block has."""
        return u if self.blocks is None else self.blocks.sum(u)

    def component(self, component: int, *, transported: bool = False) -> Any:
        """Returns the conditions of a component, at its faces.

        Args:
            component: The component, as the number of its axis.
            transported: Whether as something that is carried, or as something that diffuses.
        """
        names = tuple("node" if axis == component else "center" for axis in range(self.grid.ndim))
        if transported:
            conditions = self._conditions(lambda side, axis: side.transported(component, axis))
        else:
            conditions = self._conditions(lambda side, axis: side.velocity(component, axis))
        return self._boundaries(conditions, names)

    @property
    def pressure(self) -> Any:
        """The conditions of the pressure over the density, at centres."""
        return self._boundaries(self._conditions(lambda side, axis: side.pressure()), "center")

    def _boundaries(self, conditions: dict[str, Condition], at: Location) -> Any:
        if self.blocks is None:
            return Boundaries(self.grid, conditions, at)
        return SplitBoundaries(Boundaries(self.blocks.grid, conditions, at), self.blocks)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the components."""
        return tuple(self.component(i).shape for i in range(self.grid.ndim))

    def coordinates(self, component: int) -> tuple[Array, ...]:
        """Returns the coordinates of a component's faces, arrays that broadcast."""
        return self.component(component).coordinates

    def zeros(self, dtype: Any = None) -> Velocity:
        """Returns a velocity of zero, in the default floating type or another."""
        return tuple(jnp.zeros(shape, jnp.result_type(float) if dtype is None else dtype) for shape in self.shapes)

    def sample(self, velocity: Callable | Sequence[Any], dtype: Any = None) -> Velocity:
        """Returns a velocity at the faces.

        Args:
            velocity: A function of the coordinates that returns the components, or a number or an array for each.
            dtype: The dtype; by default the default floating type.

        Raises:
            ValueError: If there is not one for each axis, or an array does not fit.
        """
        dtype, found = jnp.result_type(float) if dtype is None else dtype, []
        for component, shape in enumerate(self.shapes):
            values = velocity(*self.coordinates(component)) if callable(velocity) else velocity
            if len(values) != self.grid.ndim:
                raise ValueError(f"`velocity` must have {self.grid.ndim} components, but has {len(values)}.")
            value = jnp.asarray(values[component], dtype)
            if self.blocks is not None and value.ndim == self.grid.ndim:
                value = self.component(component).part(value)
            if value.ndim not in (0, self.grid.ndim) or any(a not in (1, b) for a, b in zip(value.shape, shape)):
                raise ValueError(
                    f"the component of `velocity` along {self.grid.names[component]} must be a number or have the "
                    f"shape {shape} of its unknown faces, but has {value.shape}."
                )
            found.append(jnp.broadcast_to(value, shape))
        return tuple(found)

    def padded(
        self,
        component: int,
        u: Array,
        width: int = 1,
        *,
        t: RealScalarLike | None = None,
        args: Args = None,
        transported: bool = False,
    ) -> Array:
        """Returns a component with ghost layers around it."""
        return self.component(component, transported=transported).pad(u, width, t=t, args=args)

    def to_all(self, padded: Array, component: int, width: int) -> Array:
        """Returns a padded component at all faces along its axis, the walls' included; other axes stay padded."""
        first = int(LOCATIONS[self.component(component).location[component]][0])
        n = self.grid.shape[component]
        return jax.lax.slice_in_dim(padded, width - first, width - first + n + 1, axis=component)

    def to_unknown(self, at_all: Array, component: int, axis: int | None = None) -> Array:
        """Returns of values at all faces across an axis those at the unknown faces of a component."""
        first, extra = LOCATIONS[self.component(component).location[component]]
        n = self.grid.shape[component] + extra
        axis = component if axis is None else axis
        return jax.lax.slice_in_dim(at_all, int(first), int(first) + n, axis=axis)

    def from_centers(self, u: Float[Array, "..."], component: int) -> Float[Array, "..."]:
        """Returns a field of no condition, such as a coefficient, at the unknown faces of a component."""
        wide = _strip(self.pressure.extend(u, 1, accuracy=1), self.grid.ndim, 1, component)
        return self.to_unknown(mean(wide, component), component)

    def faces(self, velocity: Velocity, *, t: RealScalarLike | None = None, args: Args = None) -> Velocity:
        """Returns the velocity at all faces, as `StaggeredDivergence` takes it.

        Args:
            velocity: The velocity at the unknown faces.
            t: The time, for values at sides that are functions.
            args: Their second argument.
        """
        return self._faces(velocity, [self.component(i).pad for i in range(self.grid.ndim)], t, args)

    def face_rates(self, rates: Velocity, *, t: RealScalarLike | None = None, args: Args = None) -> Velocity:
        """Returns the rates of the velocity at all faces, from those at the unknown ones.

        On a side they are the time derivatives of the given velocity, which are zero but where that is a function.
        """
        moving = [_rate_of(self.component(i), t, args, u.dtype) for i, u in enumerate(rates)]
        return self._faces(rates, [boundary.pad for boundary in moving], t, args)

    def closed_faces(self, velocity: Velocity) -> Velocity:
        """Returns the velocity at all faces, zero on sides where it is given: the linear part of `faces`."""
        pads = [self.component(i).homogeneous().pad for i in range(self.grid.ndim)]
        return self._faces(velocity, pads, None, None)

    def _faces(self, velocity: Velocity, pads: list, t: RealScalarLike | None, args: Args) -> Velocity:
        found = []
        for component, (u, pad) in enumerate(zip(velocity, pads)):
            wide = self.to_all(_strip(pad(u, 1, t=t, args=args), u.ndim, 1, component), component, 1)
            if self.pressure.periodic[component]:  # the last face is the first
                wide = jax.lax.slice_in_dim(wide, 0, u.shape[component], axis=component)
            found.append(wide)
        return tuple(found)

    def centers(self, velocity: Velocity, *, t: RealScalarLike | None = None, args: Args = None) -> Float[Array, "..."]:
        """Returns the velocity at the centres of cells, the mean of both faces: of shape `(ndim, *grid)`."""
        found = []
        for component, u in enumerate(velocity):
            wide = _strip(self.padded(component, u, t=t, args=args), u.ndim, 1, component)
            found.append(mean(self.to_all(wide, component, 1), component))
        return jnp.stack(found)

    def strain(
        self, velocity: Velocity, *, t: RealScalarLike | None = None, args: Args = None
    ) -> dict[tuple[int, int], Array]:
        r"""Returns how the velocity deforms, $S_{ij} = \tfrac12 (\partial_j u_i + \partial_i u_j)$, for $i \leq j$.

        The components with $i = j$ are at centres, the others at the edges where faces of both axes meet.
        """
        return self._products_of_slopes(velocity, t, args, lambda a, b: (a + b) / 2, diagonal=True)

    def vorticity(
        self, velocity: Velocity, *, t: RealScalarLike | None = None, args: Args = None
    ) -> dict[tuple[int, int], Array]:
        r"""Returns how the velocity turns, $\partial_i u_j - \partial_j u_i$ for $i < j$, at edges."""
        return self._products_of_slopes(velocity, t, args, lambda a, b: b - a, diagonal=False)

    def _products_of_slopes(
        self, velocity: Velocity, t: Any, args: Args, combine: Callable, diagonal: bool
    ) -> dict[tuple[int, int], Array]:
        ndim, found = self.grid.ndim, {}
        wide = [self.to_all(self.padded(i, u, t=t, args=args), i, 1) for i, u in enumerate(velocity)]

        def slope(component: int, axis: int) -> Array:
            kept = wide[component]
            for other in range(ndim):
                if other not in (component, axis):
                    kept = cut(kept, (other,), 1)
            change = difference(kept, axis)
            if axis == component:
                return over_widths(self.grid, change, axis)
            return over_gaps(self.grid, change, axis, self.pressure.periodic[axis])

        for i in range(ndim):
            if diagonal:
                found[i, i] = slope(i, i)
            for j in range(i + 1, ndim):
                found[i, j] = combine(slope(i, j), slope(j, i))
        return found


def _rate_of(boundary: Any, t: RealScalarLike | None, args: Args, dtype: Any) -> Any:
    """Returns conditions whose values are the time derivatives of those given."""

    def rate(value: Any) -> Array:
        if not callable(value):
            return jnp.zeros((), dtype)
        if t is None:
            raise ValueError("a velocity at a side is a function of time, but no `t` was given. Call with `t=...`.")
        now = jnp.asarray(t, dtype)
        at = ft.partial(lambda value, t: jnp.asarray(value(t, args), dtype), value)
        return jax.jvp(at, (now,), (jnp.ones_like(now),))[1]

    return jax.tree.map(rate, boundary, is_leaf=callable_leaf)
