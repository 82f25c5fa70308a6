"""Boundary conditions of a whole grid: a field goes in, the field with its ghost cells comes out."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from .._types import Args, RealScalarLike
from ._abstract_grid import LOCATIONS, AbstractGrid, Location
from ._conditions import AbstractWall, Condition, Dirichlet, Extrapolate, Neumann, Periodic
from ._grid import Grid
from .geometry._coordinates import Cartesian
from .geometry._ghosts import KINDS, pad_axis
from .geometry._immersed import Immersed
from .geometry._orthogonal_grid import OrthogonalGrid


class Boundaries(eqx.Module):
    r"""The conditions at all sides of a grid.

    `pad` surrounds a field with ghost cells, axis by axis, so that those in the corners are right as well. At a wall
    the ghost values belong to the polynomial that satisfies the condition and runs through the nearest unknowns. With
    `accuracy=2` and unknowns at centres these are the reflections $2 g - u_0$ and $u_0 + h s$, which keep second
    differences symmetric; an operator of higher order requires more.

    Wherever operators accept a boundary, they also accept the `conditions` of this class, or any object with methods
    `pad` and `extend` of these signatures, such as one that fetches ghost cells from other devices.

    Attributes:
        grid: The grid.
        sides: A pair of conditions for each axis, lower and upper.
        location: The positions of the unknowns along each axis, see `Grid`.
        body: Cells that are not part of the field, with the condition on their surface; None without a body.

    Args:
        grid: The grid.
        conditions: One condition for all sides; or by name, `{"x": Periodic(), "y-": Dirichlet(1.0), "y+": Neumann()}`.
            The axis $r = 0$ of an `OrthogonalGrid` has no condition, and a full circle of angles is automatically
            `Periodic`.
        at: The positions of the unknowns, `"center"` or `"node"`, or one for each axis. An unknown at a node on the
            wall is left out if `Dirichlet` sets its value, and `location` is then `"inner"`, `"lower"` or `"upper"`.
        body: An `Immersed`, for unknowns at centres.

    Raises:
        ValueError: If a side has no condition, or two, or if one end of an axis is periodic and the other is not; if a
            body, or a grid that is not Cartesian, has unknowns at nodes, or a body another shape than the grid.
        TypeError: If a condition is not a condition, or is a custom one on a non-uniform grid.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, Grid, Neumann, Periodic

        grid = Grid((4, 3))
        boundary = Boundaries(grid, {"x": Periodic(), "y-": Dirichlet(1.0), "y+": Neumann(0.0)})
        assert boundary.pad(jnp.ones((4, 3)), 2).shape == (8, 7)

        def total(boundary):  # values at the walls are leaves
            return boundary.pad(jnp.ones((4, 3)), 1).sum()

        assert jax.grad(total)(boundary).sides[1][0].value == 2 * 6
        ```
    """

    grid: AbstractGrid
    sides: tuple[tuple[Condition, Condition], ...]
    location: tuple[str, ...] = eqx.field(static=True)
    body: Immersed | None

    def __init__(self, grid: AbstractGrid, conditions: Any, at: Location = "center", *, body: Immersed | None = None):
        self.grid = grid
        self.sides = pairs_of_sides(grid, conditions, AbstractWall, _KNOWN, at_axis=Neumann(0.0))
        self.location = tuple(_resolve(name, pair) for name, pair in zip(grid.locations(at), self.sides))
        self.body = body
        _check_geometry(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a field, without axes in front."""
        return self.grid.shape_at(self.location)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """The periodic axes."""
        return tuple(isinstance(pair[0], Periodic) for pair in self.sides)

    @property
    def uniform(self) -> bool:
        """Whether the grid is uniform, without a body."""
        return self.body is None and isinstance(self.grid, Grid)

    @property
    def coordinates(self) -> tuple[Array, ...]:
        """The coordinates of the unknowns, one array for each axis that broadcasts against the others."""
        return self.grid.coordinates(self.location)

    def offsets(self, axis: int) -> tuple[float, float]:
        """Returns how far the first and last unknowns are from the walls, in units of the spacing."""
        first, extra = LOCATIONS[self.location[axis]]
        return first, 1.0 - first - extra

    def homogeneous(self) -> "Boundaries":
        """Returns the conditions with all values zero, for the linear part of an operator."""
        linear = eqx.tree_at(lambda b: b.sides, self, tuple((a.homogeneous(), b.homogeneous()) for a, b in self.sides))
        if self.body is None:
            return linear
        return eqx.tree_at(lambda b: b.body.condition, linear, self.body.condition.homogeneous())

    def check(self, width: int, accuracy: int = 2) -> None:
        """Checks that the grid is large enough for ghost cells.

        Raises:
            ValueError: If an axis has too few unknowns; the message names the axis.
        """
        if not isinstance(self.grid, Grid):
            if width != 1:
                raise ValueError(
                    f"an `OrthogonalGrid` has one ghost layer, but {width} are needed. Use `order=2`, and for "
                    "incompressible flow `Central()` transport."
                )
            return
        for axis, (name, n) in enumerate(zip(self.grid.names, self.shape)):
            for condition, offset in zip(self.sides[axis], self.offsets(axis)):
                least = width if isinstance(condition, Periodic) else condition.points(offset, accuracy)
                if n < least:
                    raise ValueError(
                        f"{width} ghost layers of accuracy {accuracy} at a {type(condition).__name__} side require at "
                        f"least {least} unknowns along {name}, but the grid has {n}. Refine the grid or lower the "
                        "order."
                    )

    def pad(
        self,
        u: Inexact[Array, "..."],
        width: int,
        *,
        accuracy: int = 2,
        t: RealScalarLike | None = None,
        args: Args = None,
    ) -> Inexact[Array, "..."]:
        """Returns a field with ghost cells around it.

        Args:
            u: The field, with the grid's axes last.
            width: The number of ghost layers at every side.
            accuracy: The order of the error of the ghost values.
            t: The time, for values that are functions.
            args: Their second argument.

        Raises:
            ValueError: If the field has the wrong shape, the grid is too small, or a value needs `t`.
        """
        self._check_field(u)
        self.check(width, accuracy)
        # Axis by axis, the padded ones included: so the corners are ghosts of ghosts.
        for axis, pair in enumerate(self.sides):
            pair = [side.at(t, args) if isinstance(side, AbstractWall) else side for side in pair]
            pair = [jax.tree.map(lambda v: self._over_side(v, u, axis, width, accuracy), side) for side in pair]
            u = self._pad_axis(u, width, axis, pair, accuracy)
        return u

    def extend(self, u: Inexact[Array, "..."], width: int, *, accuracy: int = 2) -> Inexact[Array, "..."]:
        """Returns a field that is subject to no condition, such as a coefficient, with ghost cells around it.

        Along periodic axes it is continued periodically, and extrapolated beyond walls.

        Args:
            u: The field, with the grid's axes last.
            width: The number of ghost layers at every side.
            accuracy: The order of the error of the extrapolated values.
        """
        self._check_field(u)
        for axis, pair in enumerate(self.sides):
            pair = [side if isinstance(side, Periodic) else Extrapolate() for side in pair]
            u = self._pad_axis(u, width, axis, pair, min(accuracy, self.shape[axis]))
        return u

    def _check_field(self, u: Array) -> None:
        if u.shape[-self.grid.ndim :] != self.shape:
            raise ValueError(
                f"the field must end with the axes {self.shape} of {self.grid} at {self.location}, but has shape "
                f"{u.shape}. Components come first, the grid's axes last."
            )

    def _pad_axis(self, u: Array, width: int, axis: int, pair: Any, accuracy: int) -> Array:
        at = u.ndim - self.grid.ndim + axis
        if isinstance(self.grid, OrthogonalGrid) and self.location[axis] == "center":
            return pad_axis(u, self.grid, axis, pair, accuracy)
        if isinstance(pair[0], Periodic):
            n = u.shape[at]
            low = jax.lax.slice_in_dim(u, n - width, n, axis=at)
            high = jax.lax.slice_in_dim(u, 0, width, axis=at)
            return jnp.concatenate([low, u, high], axis=at)
        below, above = self.offsets(axis)
        rest = {"axis": at, "accuracy": accuracy}
        first, last = self._spacing_at_ends(axis)
        # Layers and ghosts are ordered away from the wall: at the lower end the ghosts, at the upper end the layers run
        # against the axis.
        near = pair[0].points(below, accuracy), pair[1].points(above, accuracy)
        n = u.shape[at]
        layers = jax.lax.slice_in_dim(u, 0, near[0], axis=at)
        low = jnp.flip(pair[0].ghosts(layers, width, offset=below, spacing=first, **rest), at)
        layers = jnp.flip(jax.lax.slice_in_dim(u, n - near[1], n, axis=at), at)
        high = pair[1].ghosts(layers, width, offset=above, spacing=last, **rest)
        return jnp.concatenate([low, u, high], axis=at)

    def _spacing_at_ends(self, axis: int) -> tuple[float, float]:
        """The widths of the first and last cell along an axis; beyond a wall they go on."""
        if isinstance(self.grid, OrthogonalGrid):
            widths = self.grid.widths(axis)
            return float(widths[0]), float(widths[-1])
        return self.grid.spacing[axis], self.grid.spacing[axis]

    def _over_side(self, value: Any, u: Array, axis: int, width: int, accuracy: int) -> Array:
        """A value at a side in the shape of its ghost cells, continued along the axes that are padded already."""
        value = jnp.asarray(value)
        if value.ndim == 0:
            return value
        ndim = self.grid.ndim
        full = (*u.shape[: u.ndim - ndim], *self.shape)
        at = u.ndim - ndim + axis
        side = full[:at] + full[at + 1 :]
        shape = (1,) * (len(side) - value.ndim) + value.shape
        if len(shape) != len(side) or any(n not in (1, m) for n, m in zip(shape, side)):
            name = self.grid.names[axis]
            raise ValueError(f"a value at a side across {name} must broadcast to {side}, but has shape {value.shape}.")
        value = value.reshape(shape[:at] + (1,) + shape[at:])
        for other in range(axis):
            where = u.ndim - ndim + other
            if value.shape[where] > 1:
                pair = [side if isinstance(side, Periodic) else Extrapolate() for side in self.sides[other]]
                value = self._pad_axis(value, width, other, pair, min(accuracy, self.shape[other]))
        return value


def as_boundary(grid: AbstractGrid, boundary: Any, at: Location = "center") -> Any:
    """Returns what an operator was given for its boundary as an object with `pad`.

    Raises:
        ValueError: If it belongs to another grid.
    """
    if isinstance(boundary, Boundaries) and boundary.grid != grid:
        raise ValueError(f"`boundary` belongs to the grid {boundary.grid}, but the operator to {grid}.")
    if isinstance(grid, OrthogonalGrid) and hasattr(boundary, "along") and boundary.grid != grid:
        raise ValueError(f"`boundary` belongs to the grid {boundary.grid}, but the operator to {grid}.")
    return boundary if hasattr(boundary, "pad") else Boundaries(grid, boundary, at)


def _resolve(name: str, pair: tuple[Condition, Condition]) -> str:
    """The location of the unknowns along an axis: nodes at a wall are left out where their value is given."""
    if name != "node":
        return name
    if isinstance(pair[0], Periodic):
        return "lower"
    below, above = (isinstance(side, Dirichlet) for side in pair)
    return ("inner" if above else "upper") if below else ("lower" if above else "node")


_KNOWN = "Periodic(), Dirichlet(value), Neumann(slope), Robin(a, b, c) or another AbstractWall"


def _check_geometry(boundary: Boundaries) -> None:
    grid, body = boundary.grid, boundary.body
    if body is not None and not isinstance(body, Immersed):
        raise TypeError(f"`Boundaries(body=...)` must be an `Immersed`, but is {body!r}.")
    system: Any = getattr(grid, "system", None)
    curved = isinstance(grid, OrthogonalGrid) and not isinstance(system, Cartesian)
    if (body is not None or curved) and set(boundary.location) != {"center"}:
        where = "a body" if body is not None else f"a grid in {type(system).__name__} coordinates"
        raise ValueError(f"{where} requires unknowns at centres, but they are at {boundary.location}.")
    if body is not None and body.levels.shape != grid.shape:
        raise ValueError(f"`Immersed(body=...)` must have the grid's shape {grid.shape}, but has {body.levels.shape}.")
    if isinstance(grid, OrthogonalGrid):
        for pair in boundary.sides:
            for side in pair:
                if not isinstance(side, KINDS):
                    raise TypeError(
                        f"on an `OrthogonalGrid` a condition must be Periodic, Dirichlet, Neumann, Robin or "
                        f"Extrapolate, but is {side!r}."
                    )


def pairs_of_sides(
    grid: AbstractGrid, conditions: Any, kind: type, known_kinds: str, at_axis: Any = None
) -> tuple[tuple[Any, Any], ...]:
    """Returns the conditions at both ends of each axis.

    Args:
        grid: The grid.
        conditions: One for all sides, or by name.
        kind: The required type of a condition that is not periodic.
        known_kinds: The known conditions, for the error.
        at_axis: The placeholder for a side if the grid begins at the axis r = 0, which is not a side.

    Raises:
        ValueError: If a side has none, or two, or if one end of an axis is periodic and the other is not.
        TypeError: If one is not one of these.
    """
    if isinstance(grid, OrthogonalGrid):
        conditions = _of_curved(grid, conditions, at_axis)
    if not isinstance(conditions, Mapping):
        conditions = dict.fromkeys(grid.names, conditions)
    known = {f"{name}{end}" for name in grid.names for end in ("", "-", "+")}
    if unknown := sorted(set(conditions) - known):
        raise ValueError(f"`conditions` contains {', '.join(unknown)}, but the sides are {', '.join(sorted(known))}.")
    found = []
    for name in grid.names:
        ends = [name + "-", name + "+"]
        given = [key for key in ends if key in conditions]
        if name in conditions:
            if given:
                raise ValueError(
                    f"`conditions` has both {name!r} and {given[0]!r}. Pass either the axis or its two ends."
                )
            pair = (conditions[name], conditions[name])
        elif len(given) == 2:
            pair = (conditions[ends[0]], conditions[ends[1]])
        else:
            missing = ", ".join(repr(key) for key in ends if key not in conditions)
            raise ValueError(f"`conditions` lacks {missing}: every side of the grid needs a condition.")
        for condition in pair:
            if not isinstance(condition, (Periodic, kind)):
                raise TypeError(f"a condition along {name} must be {known_kinds}, but is {condition!r}.")
        if isinstance(pair[0], Periodic) != isinstance(pair[1], Periodic):
            raise ValueError(f"along {name} only one end is periodic, but either both must be periodic or neither.")
        found.append(pair)
    return tuple(found)


def _of_curved(grid: OrthogonalGrid, conditions: Any, at_axis: Any) -> Any:
    """Conditions by name, with what needs none: the axis, and the ends of a full circle."""
    given = dict(conditions) if isinstance(conditions, Mapping) else dict.fromkeys(grid.names, conditions)
    if grid.turns and not (isinstance(conditions, Mapping) and any(key.startswith("theta") for key in given)):
        given["theta"] = Periodic()
    if grid.on_axis:
        if "r-" in given:
            raise ValueError(
                "`conditions` contains 'r-', but the grid begins at the axis r = 0, which has no condition."
            )
        if "r" in given:
            given["r+"] = given.pop("r")
        if isinstance(given.get("r+"), Periodic):
            raise ValueError("along r the grid begins at the axis r = 0 and cannot be periodic. Pass a wall at 'r+'.")
        given["r-"] = at_axis
    return given
