"""Conditions at the sides of a box for incompressible flow."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..._checks import concrete
from .._conditions import AbstractWall, Dirichlet, Extrapolate, Neumann, SideValue, side_value


def components(name: str) -> Any:
    """The converter of a velocity at a side: one value for each component."""

    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, int | float) and value == 0:
            return ()
        if callable(value) or not (isinstance(value, Sequence) or np.ndim(value) >= 1):
            raise TypeError(
                f"`{name}` must have one value for each axis of the grid, each a number, an array along the side or a "
                f"function `(t, args)`, such as `(1.0, 0.0)`, but is {value!r}."
            )
        components: Any = value
        return tuple(side_value(name)(one) for one in components)

    return convert


class AbstractFlowSide(eqx.Module):
    """The conditions for velocity and pressure at a side of the box.

    If the velocity across the side is given, the pressure has no slope there; otherwise the pressure is given.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Dirichlet, Grid, Neumann, Periodic
        from sciml.spatial.staggered._flow_sides import AbstractFlowSide
        from sciml.spatial.staggered._velocity import StaggeredVelocity

        class Suction(AbstractFlowSide):  # a porous wall
            def velocity(self, component, axis):
                return Dirichlet(-0.1) if component == axis else Dirichlet(0.0)

            def pressure(self):
                return Neumann(0.0)

        velocity = StaggeredVelocity(Grid((4, 4)), {"x": Periodic(), "y": Suction()})
        assert jnp.allclose(velocity.faces(velocity.zeros())[1][:, 0], -0.1)
        ```
    """

    @abc.abstractmethod
    def velocity(self, component: int, axis: int) -> AbstractWall:
        """Returns what holds for a component of the velocity.

        Args:
            component: The component, as the number of its axis.
            axis: The axis across the side.
        """

    @abc.abstractmethod
    def pressure(self) -> AbstractWall:
        """Returns what holds for the pressure over the density: `Neumann(0.0)`, or a `Dirichlet`."""

    def transported(self, component: int, axis: int) -> AbstractWall:
        """Returns what holds for a component as something that is carried; by default `velocity`."""
        return self.velocity(component, axis)


class NoSlip(AbstractFlowSide):
    """A wall that the fluid sticks to. It may move along itself, as a lid or a belt does.

    Attributes:
        velocity_of_wall: Its velocity, one value for each axis of the grid: numbers, arrays along the side at the
            places of the component, or functions `(t, args)`; empty for a wall at rest.

    Args:
        velocity: Its velocity. The value for the axis across the side must be zero.

    Raises:
        TypeError: If it has not one value for each axis.
        ValueError: In use, if the wall moves through the fluid, where that is known.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import IncompressibleFlow
        from sciml.spatial import Grid, NoSlip

        grid = Grid((8, 8))
        sides = {"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}
        cavity = IncompressibleFlow(grid, sides, viscosity=0.01)
        assert jnp.max(cavity(0.0, cavity.start(), None).velocity[0]) > 0  # the lid pulls
        ```
    """

    velocity_of_wall: tuple[SideValue, ...]

    def __init__(self, velocity: Any = 0.0):
        self.velocity_of_wall = components("NoSlip(velocity=...)")(velocity)

    def velocity(self, component: int, axis: int) -> AbstractWall:
        """Returns that it is the velocity of the wall."""
        if not self.velocity_of_wall:
            return Dirichlet(0.0)
        value = component_of(self.velocity_of_wall, component, "NoSlip")
        if component != axis:
            return Dirichlet(value)
        if callable(value) or (concrete(value) and np.any(np.asarray(value) != 0)):
            raise ValueError(
                "the component of `NoSlip(velocity=...)` normal to the side must be 0.0, but "
                f"is {value!r}. For inflow use `VelocityInlet`."
            )
        if not concrete(value):  # what cannot be refused here is NaN
            return Dirichlet(jnp.where(value == 0, 0.0, jnp.nan))
        return Dirichlet(0.0)

    def pressure(self) -> AbstractWall:
        """Returns that it has no slope."""
        return Neumann(0.0)


class FreeSlip(AbstractFlowSide):
    """A wall without friction, or a plane of symmetry: nothing passes, and no shear acts.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow
        from sciml.spatial import FreeSlip, Grid, Periodic

        flow = IncompressibleFlow(Grid((8, 8)), {"x": Periodic(), "y": FreeSlip()}, viscosity=1.0)
        wind = flow.start((1.0, 0.0))
        assert jnp.allclose(flow(0.0, wind, None).velocity[0], 0.0, atol=1e-4)  # nothing slows it down
        ```
    """

    def velocity(self, component: int, axis: int) -> AbstractWall:
        """Returns that nothing passes, and that the velocity along the side has no slope."""
        return Dirichlet(0.0) if component == axis else Neumann(0.0)

    def pressure(self) -> AbstractWall:
        """Returns that it has no slope."""
        return Neumann(0.0)


class VelocityInlet(AbstractFlowSide):
    """A side with a given velocity: an inlet, or an outlet with a known velocity.

    Attributes:
        velocity_there: The velocity, one value for each axis of the grid: numbers, arrays along the side at the places
            of the component, or functions `(t, args)`.

    Args:
        velocity: The velocity.

    Raises:
        TypeError: If it has not one value for each axis.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow
        from sciml.spatial import Grid, NoSlip, PressureOutlet, VelocityInlet

        grid = Grid((16, 8), (0.0, 0.0), (2.0, 1.0))
        y = grid.centers[1][0]
        profile = 6 * y * (1 - y)  # at the places of the component across the side
        sides = {"x-": VelocityInlet((profile, 0.0)), "x+": PressureOutlet(), "y": NoSlip()}
        channel = IncompressibleFlow(grid, sides, viscosity=0.1)
        assert jnp.max(jnp.abs(channel.divergence(channel.start()))) < 1e-4
        ```
    """

    velocity_there: tuple[SideValue, ...]

    def __init__(self, velocity: Any):
        self.velocity_there = components("VelocityInlet(velocity=...)")(velocity)

    def velocity(self, component: int, axis: int) -> AbstractWall:
        """Returns that it is the given one."""
        del axis
        return Dirichlet(component_of(self.velocity_there, component, "VelocityInlet"))

    def pressure(self) -> AbstractWall:
        """Returns that it has no slope."""
        return Neumann(0.0)


class PressureOutlet(AbstractFlowSide):
    """A side where the pressure is given, through which the fluid leaves as it comes.

    There is no shear there, and carried fields are extrapolated beyond it by a line through the last two cells. If much
    of the fluid flows back in, the box is too short.

    Attributes:
        value: The pressure over the density there: a number, an array along the side, or a function `(t, args)`.

    Args:
        pressure: The pressure over the density.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow
        from sciml.spatial import Grid, NoSlip, PressureOutlet

        sides = {"x-": PressureOutlet(3.0), "x+": PressureOutlet(1.0), "y": NoSlip()}
        pipe = IncompressibleFlow(Grid((8, 8)), sides)
        assert jnp.allclose(pipe(0.0, pipe.start(), None).velocity[0], 2.0)  # the slope of the pressure
        ```
    """

    value: SideValue

    def __init__(self, pressure: Any = 0.0):
        self.value = side_value("PressureOutlet(pressure=...)")(pressure)

    def velocity(self, component: int, axis: int) -> AbstractWall:
        """Returns that it has no slope."""
        del component, axis
        return Neumann(0.0)

    def transported(self, component: int, axis: int) -> AbstractWall:
        """Returns that it is extrapolated by a line."""
        del component, axis
        return Extrapolate()

    def pressure(self) -> AbstractWall:
        """Returns that it is the given one."""
        return Dirichlet(self.value)


def component_of(values: tuple[SideValue, ...], component: int, name: str) -> SideValue:
    """Returns the value of a component.

    Raises:
        ValueError: If there are fewer values.
    """
    if component >= len(values):
        raise ValueError(
            f"`{name}(velocity=...)` must have one value for each axis of the grid, but has {len(values)} and none for "
            f"the component along {'xyz'[component]}."
        )
    return values[component]
