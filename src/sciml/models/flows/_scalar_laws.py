"""Conservation laws of one quantity: transport, Burgers' equation without viscosity, traffic."""

import abc
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._conservation_law import AbstractConservationLaw, Waves
from ..._parameters import Parameter, parameter
from ...spatial import AbstractFlux, AbstractReconstruction, FiniteVolumes, Muscl, Roe
from ...spatial._abstract_grid import AbstractGrid


class AbstractScalarLaw(AbstractConservationLaw):
    r"""A conservation law of one quantity, $\partial_t u + \nabla \cdot f(u) = 0$; its state has the grid's shape."""

    @abc.abstractmethod
    def slope(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the derivative of the flux, the speed of the only wave."""

    def speeds(self, w: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns the speed of the only wave, twice."""
        speed = self.slope(w, axis)
        return speed, speed

    def waves(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> Waves:
        """Returns the only wave between two states, whose speed is the speed of a shock."""
        jump = right - left
        small = jnp.abs(jump) <= 1e3 * jnp.finfo(jump.dtype).eps * (jnp.abs(left) + jnp.abs(right))
        secant = (self.flux(right, axis) - self.flux(left, axis)) / jnp.where(small, jnp.ones_like(jump), jump)
        speeds = jnp.where(small, self.slope((left + right) / 2, axis), secant)
        return Waves(speeds, lambda state: state, lambda amounts: amounts)


class Transport(AbstractScalarLaw):
    r"""Transport with a constant velocity, in conserved form and with limiters.

    $$\partial_t u + \nabla \cdot (v u) = 0$$

    A jump stays a jump, without overshoots; `Advection` is the same for smooth fields and velocities that vary.

    Good values: a periodic box of length 1, time from 0 to 1.

    Attributes:
        volumes: The discretisation.
        velocity: $v$, of shape `(ndim,)`.

    Args:
        grid: The grid.
        boundary: The conditions beyond the sides: `Periodic()`, `Inflow(value)`, `Outflow()`, or several by name.
        velocity: $v$; a number in one dimension.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states; by default upwind, `Roe(0.0)`.

    Raises:
        ValueError: If the velocity has the wrong shape.

    Source:
        R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, Cambridge, 2002, chapter 6.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Transport
        from sciml.spatial import Grid, Periodic

        grid = Grid(100)
        (x,) = grid.centers
        step = jnp.where(jnp.abs(x - 0.5) < 0.2, 1.0, 0.0)
        sol = sciml.solve(Transport(grid, Periodic(), 1.0), step, t0=0.0, t1=1.0)
        assert -1e-4 < sol.ys.min() and sol.ys.max() < 1 + 1e-4
        ```
    """

    volumes: FiniteVolumes
    velocity: Parameter

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        velocity: Any = 1.0,
        *,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux | None = None,
    ):
        self.volumes = FiniteVolumes(grid, boundary, reconstruction, Roe(0.0) if flux is None else flux)
        self.velocity = jnp.atleast_1d(parameter(velocity))
        if self.velocity.shape != (grid.ndim,):
            raise ValueError(
                f"`Transport(velocity=...)` must have shape ({grid.ndim},), but has {self.velocity.shape}. For a "
                "velocity that varies over the grid use `Advection`."
            )

    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        return self.velocity[axis] * w

    def slope(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the velocity."""
        return jnp.broadcast_to(self.velocity[axis], w.shape)


class InviscidBurgers(AbstractScalarLaw):
    r"""Burgers' equation without viscosity: waves steepen and break, and shocks form.

    $$\partial_t u + \sum_k \partial_k \tfrac12 u^2 = 0$$

    A smooth field breaks at $t = 1 / \max(-\sum_k \partial_k u_0)$; then shocks move with half the sum of the values on
    either side.

    Good values: a periodic box of length 1, $u_0 = \sin 2 \pi x$, time from 0 to 0.5.

    Attributes:
        volumes: The discretisation.

    Args:
        grid: The grid.
        boundary: The conditions beyond the sides: `Periodic()`, `Inflow(value)`, `Outflow()`, or several by name.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states; by default `Roe()`.

    Source:
        J. M. Burgers, Adv. Appl. Mech. 1:171, 1948.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import InviscidBurgers
        from sciml.spatial import Grid, Outflow

        grid = Grid(100)
        (x,) = grid.centers
        sol = sciml.solve(InviscidBurgers(grid, Outflow()), jnp.where(x < 0.2, 1.0, 0.0), t0=0.0, t1=1.0)
        assert abs(grid.integrate(sol.ys[-1]) - 0.7) < 0.01  # a shock of speed 1/2
        ```
    """

    volumes: FiniteVolumes

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        *,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux | None = None,
    ):
        self.volumes = FiniteVolumes(grid, boundary, reconstruction, Roe() if flux is None else flux)

    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        del axis
        return w**2 / 2

    def slope(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the field itself."""
        del axis
        return w


class Traffic(AbstractScalarLaw):
    r"""Cars on a road, which drive slower where they are denser: the model of Lighthill, Whitham and Richards.

    $$\partial_t \rho + \partial_x \Big( v \rho \big(1 - \tfrac{\rho}{\rho_m}\big) \Big) = 0$$

    The end of a queue is a shock; where a light turns green, cars drive off in a fan.

    Good values: the defaults (a road of 1 in units of the length, densities in shares of a jam), time from 0 to 1.

    Attributes:
        volumes: The discretisation.
        speed: $v$, the speed of a single car.
        jam: $\rho_m$, at which nothing moves.

    Args:
        grid: The road, a grid of one axis.
        boundary: The conditions beyond its ends: `Periodic()` for a ring, `Inflow(density)`, `Outflow()`, or several by
            name.
        speed: $v$.
        jam: $\rho_m$.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states; by default `Roe()`.

    Raises:
        ValueError: If the grid has more than one axis.

    Source:
        M. J. Lighthill, G. B. Whitham, Proc. R. Soc. A 229:317, 1955; P. I. Richards, Oper. Res. 4:42, 1956.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Traffic
        from sciml.spatial import Grid, Outflow

        road = Grid(200, -1.0, 1.0)
        (x,) = road.centers
        red = jnp.where(x < 0, 1.0, 0.0)  # a queue at a light, which turns green
        sol = sciml.solve(Traffic(road, Outflow()), red, t0=0.0, t1=0.5)
        fan = jnp.clip((1 - x / 0.5) / 2, 0.0, 1.0)
        assert jnp.mean(jnp.abs(sol.ys[-1] - fan)) < 5e-3
        ```
    """

    volumes: FiniteVolumes
    speed: Parameter
    jam: Parameter

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        speed: Any = 1.0,
        jam: Any = 1.0,
        *,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux | None = None,
    ):
        if grid.ndim != 1:
            raise ValueError(f"`Traffic(grid=...)` must be a road, a grid of one axis, but has {grid.ndim}.")
        self.volumes = FiniteVolumes(grid, boundary, reconstruction, Roe() if flux is None else flux)
        self.speed, self.jam = parameter(speed), parameter(jam)

    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns how many cars pass in a unit of time."""
        del axis
        return self.speed * w * (1 - w / self.jam)

    def slope(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the speed of a small change of density."""
        del axis
        return self.speed * (1 - 2 * w / self.jam)
