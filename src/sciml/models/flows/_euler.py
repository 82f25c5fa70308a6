"""The Euler equations of an ideal gas."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._conservation_law import AbstractConservationLaw, Waves
from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ...spatial import HLLC, AbstractFlux, AbstractReconstruction, FiniteVolumes, Muscl, PositivityLimiter
from ...spatial._abstract_grid import AbstractGrid
from ...spatial.finite_volumes._variables import AbstractVariables, Componentwise


class Euler(AbstractConservationLaw):
    r"""Flow of an ideal gas without viscosity, in one to three dimensions.

    $$\partial_t \begin{pmatrix} \rho \\ \rho v \\ E \end{pmatrix} + \nabla \cdot
      \begin{pmatrix} \rho v \\ \rho v \otimes v + p \\ (E + p) v \end{pmatrix} = s,
      \qquad E = \frac{p}{\gamma - 1} + \tfrac12 \rho |v|^2$$

    The state is density, momentum and energy of a unit of volume, of shape `(ndim + 2, *grid)`; `primitive` makes
    density, velocity and pressure of it, and `conserved` the state of these.

    On an `OrthogonalGrid` in `Axisymmetric` coordinates the velocity is that along $r$ and $z$: a jet, or an explosion,
    that does not depend on the angle. The pressure on the sides of a ring is a source, $p / r$ along $r$, such that gas
    at rest stays so to rounding; the axis $r = 0$ needs no condition. `Spherical` coordinates, and `Polar` coordinates
    of one axis, are also supported.

    Good values: the defaults, the shock tube of Sod: $(\rho, v, p) = (1, 0, 1)$ on the left and $(0.125, 0, 0.1)$ on
    the right, time from 0 to 0.2.

    Attributes:
        volumes: The discretisation.
        gamma: $\gamma$, the ratio of specific heats.
        forces: $s$, or None.

    Args:
        grid: The grid.
        boundary: The conditions beyond the sides: `Periodic()`, `Inflow(state)`, `Outflow()`, `Reflecting()`,
            `MovingWall(velocity)`, or several by name.
        gamma: $\gamma$.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states.
        variables: The variables that are reconstructed.
        limiter: The limiter that keeps density and pressure positive, or None.
        forces: $s$ as a function `(t, y, args)` of the conserved state, or None. Arrays among the leaves of a module
            are parameters.

    Source:
        E. F. Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, Springer, 2009.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Euler
        from sciml.spatial import Grid, Outflow

        grid = Grid(100)
        (x,) = grid.centers
        law = Euler(grid, Outflow())
        left, right = jnp.array([[1.0], [0.0], [1.0]]), jnp.array([[0.125], [0.0], [0.1]])
        sol = sciml.solve(law, law.conserved(jnp.where((x < 0.5)[None], left, right)), t0=0.0, t1=0.2)
        density, velocity, pressure = law.primitive(sol.ys[-1])
        assert abs(velocity[60] - 0.92745) < 2e-3 and abs(pressure[60] - 0.30313) < 1e-3
        ```
    """

    volumes: FiniteVolumes
    gamma: Parameter
    forces: Callable[[RealScalarLike, Array, Any], Array] | None
    positive_components: ClassVar[tuple[int, ...]] = (0, -1)
    primitive_names: ClassVar[tuple[str, ...]] = ("density", "velocity", "pressure")

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        gamma: Any = 1.4,
        *,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux = HLLC(),
        variables: AbstractVariables = Componentwise(),
        limiter: PositivityLimiter | None = PositivityLimiter(),
        forces: Callable[[RealScalarLike, Array, Any], Array] | None = None,
    ):
        self.volumes = FiniteVolumes(grid, boundary, reconstruction, flux, variables, limiter)
        self.gamma = parameter(gamma)
        if forces is not None and not callable(forces):
            raise TypeError(f"`Euler(forces=...)` must be a function `(t, y, args)`, but is {forces!r}.")
        self.forces = forces

    def primitive(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns density, velocity and pressure of density, momentum and energy."""
        self._check(y)
        density, *momentum, energy = y
        velocity = [m / density for m in momentum]
        return jnp.stack([density, *velocity, self._pressure(density, momentum, energy)])

    def conserved(self, w: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns density, momentum and energy of density, velocity and pressure."""
        self._check(w)
        density, *velocity, pressure = w
        momentum = [density * v for v in velocity]
        return jnp.stack([density, *momentum, self._energy(density, velocity, pressure)])

    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the flux along an axis, from density, velocity and pressure."""
        density, *velocity, pressure = w
        mass = density * velocity[axis]
        momentum = [mass * v + pressure if k == axis else mass * v for k, v in enumerate(velocity)]
        return jnp.stack([mass, *momentum, (self._energy(density, velocity, pressure) + pressure) * velocity[axis]])

    def speeds(self, w: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns the speeds of sound against and with the flow along an axis."""
        density, *velocity, pressure = w
        sound = jnp.sqrt(self.gamma * pressure / density)
        return velocity[axis] - sound, velocity[axis] + sound

    def pressing(self, w: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the pressure, for the momentum along the first axis."""
        return jnp.stack([w[-1] if k == 1 else jnp.zeros_like(w[-1]) for k in range(len(w))])

    def positive(self, y: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns density and pressure."""
        density, *momentum, energy = y
        return density, self._pressure(density, momentum, energy)

    def bounds(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns the slower and faster of the speeds at either side and at the mean of Roe, as Einfeldt."""
        velocity, _, sound = self._mean_of_roe(left, right)
        low, _ = self.speeds(left, axis)
        _, high = self.speeds(right, axis)
        return jnp.minimum(low, velocity[axis] - sound), jnp.maximum(high, velocity[axis] + sound)

    def contact(
        self, left: Float[Array, "..."], right: Float[Array, "..."], low: Array, high: Array, axis: int
    ) -> Float[Array, "..."]:
        """Returns the speed of the contact between both sounds."""
        (density_left, *before, pressure_left), (density_right, *behind, pressure_right) = left, right
        from_left = density_left * (low - before[axis])
        from_right = density_right * (high - behind[axis])
        pressed = pressure_right - pressure_left + from_left * before[axis] - from_right * behind[axis]
        return pressed / (from_left - from_right)

    def behind(self, w: Float[Array, "..."], speed: Array, contact: Array, axis: int) -> Float[Array, "..."]:
        """Returns the conserved state between a wave of sound and the contact."""
        density, *velocity, pressure = w
        passing = density * (speed - velocity[axis])
        dense = passing / (speed - contact)
        momentum = [dense * (contact if k == axis else v) for k, v in enumerate(velocity)]
        work = (contact - velocity[axis]) * (contact + pressure / passing)
        energy = dense * (self._energy(density, velocity, pressure) / density + work)
        return jnp.stack([dense, *momentum, energy])

    def waves(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> Waves:
        """Returns both sounds, entropy and shear between two states, from the mean of Roe."""
        velocity, enthalpy, sound = self._mean_of_roe(left, right)
        normal = velocity[axis]
        across = [k for k in range(len(velocity)) if k != axis]
        square = _product(velocity, velocity)

        def project(state: Array) -> Array:
            density, *momentum, energy = state
            heat = (enthalpy - square) * density + _product(velocity, momentum) - energy
            entropy = (self.gamma - 1) / sound**2 * heat
            push = (momentum[axis] - normal * density) / sound
            shear = [momentum[k] - velocity[k] * density for k in across]
            return jnp.stack([(density - entropy - push) / 2, entropy, *shear, (density - entropy + push) / 2])

        def combine(amounts: Array) -> Array:
            back, entropy, *shear, forth = amounts
            density = back + entropy + forth
            push = sound * (forth - back)
            momentum = [v * density for v in velocity]
            momentum[axis] = momentum[axis] + push
            energy = enthalpy * (back + forth) + square / 2 * entropy + normal * push
            for k, amount in zip(across, shear):
                momentum[k] = momentum[k] + amount
                energy = energy + velocity[k] * amount
            return jnp.stack([density, *momentum, energy])

        speeds = jnp.stack([normal - sound, *[normal] * len(velocity), normal + sound])
        return Waves(speeds, project, combine)

    def mirrored(self, w: Float[Array, "..."], axis: int, velocity: Array) -> Float[Array, "..."]:
        """Returns the state with the velocity along an axis that a moving mirror shows."""
        parts = [2 * velocity - v if k == 1 + axis else v for k, v in enumerate(w)]
        return jnp.stack(parts)

    def source(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."] | None:
        """Returns the contribution of the forces to the rates."""
        return None if self.forces is None else self.forces(t, y, args)

    def _pressure(self, density: Array, momentum: list[Array], energy: Array) -> Array:
        # one formula for all: another, rounded otherwise, could be negative where this one is positive
        return (self.gamma - 1) * (energy - _product(momentum, momentum) / density / 2)

    def _energy(self, density: Array, velocity: list[Array], pressure: Array) -> Array:
        return pressure / (self.gamma - 1) + density * _product(velocity, velocity) / 2

    def _mean_of_roe(self, left: Array, right: Array) -> tuple[list[Array], Array, Array]:
        """Returns velocity, enthalpy of a unit of mass and speed of sound between two states."""
        states = [(density, velocity, pressure) for density, *velocity, pressure in (left, right)]
        root = [jnp.sqrt(density) for density, _, _ in states]
        share = root[0] / (root[0] + root[1])
        below, above = (velocity for _, velocity, _ in states)
        velocity = [share * a + (1 - share) * b for a, b in zip(below, above)]
        each = [self.gamma / (self.gamma - 1) * p / density + _product(v, v) / 2 for density, v, p in states]
        enthalpy = share * each[0] + (1 - share) * each[1]
        # without the cancellation of enthalpy and kinetic energy, which may leave less than nothing
        sounds = [self.gamma * p / density for density, _, p in states]
        jumps = [b - a for a, b in zip(below, above)]
        square = share * sounds[0] + (1 - share) * sounds[1]
        square = square + (self.gamma - 1) / 2 * share * (1 - share) * _product(jumps, jumps)
        return velocity, enthalpy, jnp.sqrt(square)

    def _check(self, state: Array) -> None:
        count = self.volumes.grid.ndim + 2
        if state.shape[0] != count:
            raise ValueError(
                f"the state of `Euler` in {count - 2} dimensions must have {count} components, density, momentum and "
                f"energy, in its first axis, but has shape {state.shape}."
            )


def _product(a: Any, b: Any) -> Array:
    """The scalar product of two vectors."""
    terms = [x * y for x, y in zip(a, b)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
