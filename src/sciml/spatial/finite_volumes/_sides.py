"""Conditions at the sides of a box for flows that may cross them."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._checks import concrete
from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._jax._largest import largest
from ..._types import Args, RealScalarLike
from .._abstract_grid import AbstractGrid
from .._boundaries import pairs_of_sides
from .._conditions import Periodic, SideValue, callable_leaf, evaluated, side_value


class AbstractSide(eqx.Module):
    """The values beyond a side of the box, as ghost cells of the primitive variables.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Grid
        from sciml.spatial.finite_volumes._sides import AbstractSide

        class Vacuum(AbstractSide):  # almost
            def ghosts(self, law, layers, axis, at):
                return 1e-6 * layers

        law = Euler(Grid(8), Vacuum())
        assert law(0.0, jnp.ones((3, 8)), None)[0, 0] < 0  # gas escapes
        ```
    """

    @abc.abstractmethod
    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns ghost layers, as many as the layers of cells next to the side; both nearest first.

        Args:
            law: The conservation law.
            layers: The layers of cells, primitive states.
            axis: The axis of the grid across the side.
            at: The axis of the array.
        """

    def evaluated(self, t: RealScalarLike, args: Args) -> "AbstractSide":
        """Returns the side with its values that are functions as arrays."""
        return jax.tree.map(lambda value: evaluated(value, t, args), self, is_leaf=callable_leaf)


def _unless_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


class Inflow(AbstractSide):
    """A given state beyond the side, of which the flow uses the incoming part.

    The state is constant beyond the side, so if a viscous flow still varies at the side, the error there is of first
    order.

    Attributes:
        state: The primitive variables, such as density, velocities and pressure: of shape `(components,)`, or
            `(components, *side)` along the side, or a function `(t, args)` that returns one. A number for a scalar law.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Grid, Inflow, Outflow

        wind = Inflow(jnp.array([1.0, 3.0, 1.0]))
        law = Euler(Grid(16), {"x-": wind, "x+": Outflow()})
        rates = law(0.0, law.conserved(jnp.stack([jnp.ones(16), jnp.zeros(16), jnp.ones(16)])), None)
        assert rates[0, 0] > 0 and rates[0, 8] == 0
        ```
    """

    state: SideValue = eqx.field(converter=side_value("Inflow(state=...)"))

    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns the given state."""
        del axis
        lead, name = law.volumes.lead(layers), "Inflow(state=...)"
        count = jax.eval_shape(law.conserved, layers).shape[0] if lead else None
        state: Any = self.state
        given = jnp.shape(state)
        if lead and given[:1] != (count,):
            names = f" ({', '.join(law.primitive_names)})" if law.primitive_names else ""
            raise ValueError(
                f"`{name}` of `{type(law).__name__}` must have the {count} primitive variables{names} in its first "
                f"axis, but has shape {given}."
            )
        return law.outside(_along_side(self.state, name, lead, layers, at), layers)


class Outflow(AbstractSide):
    """Everything leaves: the state beyond the side is that in the cells next to it.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Grid, Outflow

        law = Euler(Grid(16), Outflow())
        gust = law.conserved(jnp.stack([jnp.ones(16), jnp.full(16, 0.3), jnp.ones(16)]))
        assert jnp.allclose(law(0.0, gust, None), 0.0, atol=1e-5)
        ```
    """

    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns the nearest layer."""
        del law, axis
        return jnp.broadcast_to(jax.lax.slice_in_dim(layers, 0, 1, axis=at), layers.shape)


class Reflecting(AbstractSide):
    """A wall at rest along which the flow slips: its mirror image is beyond it.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Grid, Reflecting

        grid = Grid(16)
        law = Euler(grid, Reflecting())
        sloshing = law.conserved(jnp.stack([jnp.ones(16), jnp.sin(3 * grid.centers[0]), jnp.ones(16)]))
        assert abs(grid.integrate(law(0.0, sloshing, None))[0]) < 1e-5  # no mass goes through the walls
        ```
    """

    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns the mirrored layers."""
        del at
        return law.mirrored(layers, axis, jnp.zeros((), layers.dtype))


class MovingWall(AbstractSide):
    """A wall that moves towards or away from the flow, as a piston does; the side stays where it is.

    It is valid if the wall moves by much less than a cell, or is the frame of reference.

    Attributes:
        velocity: Its velocity along the axis, positive upwards, or a function `(t, args)`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import Grid, MovingWall, Outflow

        law = Euler(Grid(16), {"x-": MovingWall(1.0), "x+": Outflow()})
        at_rest = law.conserved(jnp.stack([jnp.ones(16), jnp.zeros(16), jnp.ones(16)]))
        assert law(0.0, at_rest, None)[1, 0] > 0  # the piston pushes
        ```
    """

    velocity: SideValue = eqx.field(converter=side_value("MovingWall(velocity=...)"))

    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns the layers as the moving mirror shows them."""
        del at
        return law.mirrored(layers, axis, jnp.asarray(self.velocity, layers.dtype))


class NoSlipWall(AbstractSide):
    """A wall to which the flow sticks. It may move along itself, as a belt does, and have a temperature.

    A fluid sticks only with viscosity: for laws without it, such as `sciml.models.Euler`, it is a `Reflecting` wall.

    Attributes:
        velocity: Its velocity, of shape `(ndim,)`, or `(ndim, *side)` along the side, or a function `(t, args)` that
            returns one; None for a wall at rest. The value for the axis across the side must be zero.
        temperature: Its temperature as pressure over density, that is in units where the gas constant of a unit of
            mass is one: a number, of shape `(1, *side)` along the side, or a function `(t, args)`; None for a wall
            that lets no heat through.

    Raises:
        ValueError: In use, if `velocity` has not one value for each axis, or is known not to be along the wall.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import CompressibleNavierStokes
        from sciml.spatial import Grid, NoSlipWall, Periodic

        grid = Grid((4, 8))
        belt = NoSlipWall(jnp.array([0.3, 0.0]), temperature=1.0)
        law = CompressibleNavierStokes(grid, {"x": Periodic(), "y-": NoSlipWall(), "y+": belt}, viscosity=0.1)
        at_rest = law.conserved(jnp.stack([jnp.full(grid.shape, v) for v in (1.0, 0.0, 0.0, 1.0)]))
        rates = law(0.0, at_rest, None)
        assert rates[1, 0, -1] > 0 and rates[1, 0, 0] == 0  # the belt pulls the gas that is next to it
        ```
    """

    velocity: SideValue | None = eqx.field(default=None, converter=_unless_none(side_value("NoSlipWall(velocity=...)")))
    temperature: SideValue | None = eqx.field(
        default=None, converter=_unless_none(side_value("NoSlipWall(temperature=...)"))
    )

    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns the layers whose means with their mirror images are the values of the wall."""
        velocity = temperature = None
        if self.velocity is not None:
            wall: Any = self.velocity
            shape, ndim = jnp.shape(wall), law.volumes.grid.ndim
            if shape[:1] != (ndim,):
                raise ValueError(
                    f"`NoSlipWall(velocity=...)` must have one value for each of the {ndim} axes of the grid in its "
                    f"first axis, but has shape {shape}."
                )
            if concrete(self.velocity) and np.any(np.asarray(self.velocity)[axis] != 0):
                name = law.volumes.grid.names[axis]
                raise ValueError(
                    f"`NoSlipWall(velocity=...)` must be zero along {name}, normal to the wall, but is "
                    f"{self.velocity}. For a piston use `MovingWall`."
                )
            velocity = _along_side(self.velocity, "NoSlipWall(velocity=...)", 1, layers, at)
        if self.temperature is not None:
            heat: Any = self.temperature
            shape = jnp.shape(heat)
            if shape[:1] not in ((), (1,)):
                raise ValueError(
                    f"`NoSlipWall(temperature=...)` must be a number or of shape `(1, *side)`, but has shape {shape}."
                )
            given = _along_side(self.temperature, "NoSlipWall(temperature=...)", len(shape[:1]), layers, at)
            temperature = given[0] if shape else given
        return law.sticking(layers, axis, velocity, temperature)


class _AcrossAxis(AbstractSide):
    """The axis r = 0, which is not a side: beyond it is the flow on its other side, a mirror image."""

    def ghosts(
        self, law: AbstractConservationLaw, layers: Float[Array, "..."], axis: int, at: int
    ) -> Float[Array, "..."]:
        """Returns the mirrored layers; of a law without directions the layers."""
        if type(law).mirrored is AbstractConservationLaw.mirrored:
            return layers
        return law.mirrored(layers, axis, jnp.zeros((), layers.dtype))


class AbstractSides(eqx.Module):
    """The surroundings of the cells of a grid: of all cells, or of the block that a device holds.

    `Sides` is one for a whole grid; `sciml.parallel.Domain` makes one of it for blocks.

    Attributes:
        grid: The whole grid.

    Example:
        ```python
        from sciml import parallel
        from sciml.spatial import FiniteVolumes, Grid, Outflow, Sides
        from sciml.spatial.finite_volumes._sides import AbstractSides

        sides = Sides(Grid(8), Outflow())
        domain = parallel.Domain(("x",), boundary=sides)
        assert all(isinstance(FiniteVolumes(Grid(8), given).sides, AbstractSides) for given in (sides, domain))
        ```
    """

    grid: eqx.AbstractVar[AbstractGrid]

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """How many cells there are here along each axis."""

    @abc.abstractmethod
    def around(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """Returns the ghost cells beyond both ends of an axis, in the order of the axis.

        Args:
            law: The conservation law.
            w: The primitive states, with the grid's axes last.
            axis: The axis.
            width: How many layers at either end.
            t: The time, for values that are functions.
            args: Their second argument.
        """

    def pad(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> Float[Array, "..."]:
        """Returns primitive states with ghost cells along one axis; for the arguments see `around`."""
        low, high = self.around(law, w, axis, width, t, args)
        return jnp.concatenate([low, w, high], axis=w.ndim - self.grid.ndim + axis)

    @abc.abstractmethod
    def local(self, values: Array) -> Array:
        """Returns the part of an array over the whole grid that belongs to the cells here."""

    def along(self, values: Array, axis: int) -> Array:
        """Returns the part of a vector along an axis of the whole grid for the cells here, or for their faces.

        Args:
            values: A number for each cell or each face along the axis.
            axis: The axis.
        """
        del axis
        return values

    @abc.abstractmethod
    def largest(self, x: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns the largest number over all cells of the whole grid, NaN if one is."""

    @abc.abstractmethod
    def everywhere(self, holds: Bool[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether something holds in all cells of the whole grid."""


class Sides(AbstractSides):
    """The conditions beyond each side of a grid.

    Attributes:
        grid: The grid.
        pairs: Two sides for each axis, lower and upper.

    Args:
        grid: The grid.
        conditions: One for all sides, or by name: `{"x-": Inflow(state), "x+": Outflow(), "y": Periodic()}`.

    Raises:
        ValueError: If a side has none, or two, or if one end of an axis is periodic and the other is not.
        TypeError: If one is not one of these.

    Example:
        ```python
        from sciml.spatial import Grid, Outflow, Periodic, Reflecting, Sides

        sides = Sides(Grid((8, 8)), {"x": Periodic(), "y-": Reflecting(), "y+": Outflow()})
        assert isinstance(sides.pairs[1][0], Reflecting)
        ```
    """

    grid: AbstractGrid
    pairs: tuple[tuple[Periodic | AbstractSide, Periodic | AbstractSide], ...]

    def __init__(self, grid: AbstractGrid, conditions: Any):
        known = (
            "Periodic(), Inflow(state), Outflow(), Reflecting(), MovingWall(velocity), NoSlipWall() or another "
            "AbstractSide"
        )
        self.grid = grid
        self.pairs = pairs_of_sides(grid, conditions, AbstractSide, known, at_axis=_AcrossAxis())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid."""
        return self.grid.shape

    @property
    def periodic(self) -> tuple[bool, ...]:
        """The periodic axes."""
        return tuple(isinstance(pair[0], Periodic) for pair in self.pairs)

    def around(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """Returns the ghost cells beyond both ends of an axis."""
        if self.periodic[axis]:
            first, last = ends(w, width, w.ndim - self.grid.ndim + axis)
            return last, first
        return self.ghosts(law, w, axis, width, t, args)

    def ghosts(
        self,
        law: AbstractConservationLaw,
        w: Float[Array, "..."],
        axis: int,
        width: int,
        t: RealScalarLike,
        args: Args,
        here: Callable[[Array], Array] | None = None,
    ) -> tuple[Array, Array]:
        """Returns the ghost cells beyond both ends of an axis that is not periodic.

        Args:
            law: The conservation law.
            w: The primitive states, with the grid's axes last.
            axis: The axis.
            width: How many layers at either end.
            t: The time, for values that are functions.
            args: Their second argument.
            here: From a value at a side to that next to the cells in `w`; None where these are all cells.
        """
        at = w.ndim - self.grid.ndim + axis
        first, last = ends(w, width, at)
        below, above = (_evaluated(side, t, args, here) for side in self.pairs[axis])
        low = below.ghosts(law, first, axis, at)
        high = above.ghosts(law, jnp.flip(last, at), axis, at)
        return jnp.flip(low, at), high

    def local(self, values: Array) -> Array:
        """Returns all of an array."""
        return values

    def largest(self, x: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns the largest number, NaN if one is."""
        return largest(x)

    def everywhere(self, holds: Bool[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether something holds in all cells."""
        return jnp.all(holds)


def _along_side(value: Any, name: str, lead: int, layers: Array, at: int) -> Array:
    """Returns a value at a side, with a number of component axes, as one that broadcasts with the layers next to it."""
    given = jnp.asarray(value, layers.dtype)
    side = tuple(n for k, n in enumerate(layers.shape) if k >= lead and k != at)
    own = given.shape[lead:]
    if given.ndim < lead or (own and (len(own) != len(side) or any(n not in (1, m) for n, m in zip(own, side)))):
        each = f" or of shape {(*given.shape[:lead], *side)}" if side else ""
        one = f"of shape {given.shape[:lead]}" if lead else "a number"
        raise ValueError(f"`{name}` must be {one}{each}, but has shape {given.shape}.")
    if not own:
        return given.reshape(given.shape + (1,) * (layers.ndim - max(lead, 1)))
    return jnp.expand_dims(given, at)


def as_sides(grid: AbstractGrid, boundary: Any) -> AbstractSides:
    """Returns the surroundings of the cells for the boundary given to finite volumes.

    Raises:
        ValueError: If it belongs to another grid.
    """
    if hasattr(boundary, "sides_of"):  # a `parallel.Domain`
        boundary = boundary.sides_of(grid)
    if not isinstance(boundary, AbstractSides):
        return Sides(grid, boundary)
    if boundary.grid != grid:
        raise ValueError(f"`boundary` belongs to the grid {boundary.grid}, but must belong to {grid}.")
    return boundary


def ends(w: Array, width: int, at: int) -> tuple[Array, Array]:
    """Returns the first and the last layers along an axis of an array."""
    n = w.shape[at]
    return jax.lax.slice_in_dim(w, 0, width, axis=at), jax.lax.slice_in_dim(w, n - width, n, axis=at)


def _evaluated(
    side: Periodic | AbstractSide, t: RealScalarLike, args: Args, here: Callable[[Array], Array] | None
) -> AbstractSide:
    assert isinstance(side, AbstractSide)  # a periodic axis has no ghosts of sides
    side = side.evaluated(t, args)
    return side if here is None else jax.tree.map(here, side)
