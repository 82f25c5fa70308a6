"""Parts of an incompressible flow: quantities that it carries, eddy viscosity, and forces."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries, Grid
from ...spatial._conditions import Condition, SideValue, evaluated, side_value
from ...spatial._diffusion import _strip
from ...spatial.staggered._friction import magnitude
from ...spatial.staggered._velocity import StaggeredVelocity, Velocity, mean


class Carried(eqx.Module):
    r"""A temperature, or the concentration of something: $\partial_t c + \nabla \cdot (u c) = \kappa \nabla^2 c + q$.

    Attributes:
        boundary: Its conditions at the sides of the box, `sciml.spatial.Boundaries` or the conditions of one; at an
            outlet `Extrapolate()` or `Neumann(0.0)`.
        diffusivity: $\kappa$, a number.
        source: $q$, a function `(t, c, args)` of the concentration that returns an array over the grid; or None.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Carried, IncompressibleFlow
        from sciml.spatial import Grid, Periodic

        grid = Grid((16, 16))
        dye = Carried(Periodic(), diffusivity=1e-3, source=lambda t, c, args: -0.1 * c)
        flow = IncompressibleFlow(grid, Periodic(), carried={"dye": dye})
        y0 = flow.start((1.0, 0.0), {"dye": jnp.ones(grid.shape)})
        assert jnp.allclose(flow(0.0, y0, None).carried["dye"], -0.1)
        ```
    """

    boundary: Any
    diffusivity: Parameter
    source: Callable[[RealScalarLike, Array, Args], Array] | None

    def __init__(
        self,
        boundary: Boundaries | Condition | dict[str, Condition],
        diffusivity: Any = 0.0,
        source: Callable[[RealScalarLike, Array, Args], Array] | None = None,
    ):
        self.boundary, self.diffusivity, self.source = boundary, parameter(diffusivity), source
        if self.diffusivity.ndim:
            raise ValueError(f"`Carried(diffusivity=...)` must be a number, but has shape {self.diffusivity.shape}.")


class AbstractEddyViscosity(eqx.Module):
    """An eddy viscosity, which models eddies below the size of a cell from the strain rate of the flow.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import AbstractEddyViscosity, IncompressibleFlow
        from sciml.spatial import Grid, Periodic

        class WhereItStretches(AbstractEddyViscosity):
            def __call__(self, velocity, strain):
                return 0.01 * jnp.maximum(strain[0, 0], 0.0)

        flow = IncompressibleFlow(Grid((8, 8)), Periodic(), eddies=WhereItStretches())
        assert jnp.all(flow(0.0, flow.start((1.0, 0.0)), None).velocity[0] == 0)
        ```
    """

    @abc.abstractmethod
    def __call__(self, velocity: StaggeredVelocity, strain: dict[tuple[int, int], Array]) -> Float[Array, "..."]:
        """Returns the viscosity at the centres of cells.

        Args:
            velocity: The faces.
            strain: How the flow deforms, the symmetric part of its gradient.
        """


class Smagorinsky(AbstractEddyViscosity):
    r"""Smagorinsky's viscosity of eddies, $\nu_t = (C \Delta)^2 |S|$, with $|S| = \sqrt{2 S_{ij} S_{ij}}$.

    $\Delta$ is the size of a cell, the root of its volume.

    Attributes:
        constant: $C$: 0.17 for isotropic turbulence, 0.1 where the mean flow shears.

    Source:
        J. Smagorinsky, Mon. Weather Rev. 91:99, 1963; D. K. Lilly, Proc. IBM Scientific Computing Symposium on
        Environmental Sciences, 1967, for the constant.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow, Smagorinsky
        from sciml.spatial import Grid, Periodic

        grid = Grid((16, 16))
        flow = IncompressibleFlow(grid, Periodic(), viscosity=0.0, eddies=Smagorinsky(0.17))
        shear = flow.start(lambda x, y: (jnp.sin(2 * jnp.pi * y) + 0 * x, 0 * x * y))
        rate = flow(0.0, shear, None).velocity[0]
        assert jnp.sum(rate * shear.velocity[0]) < 0  # eddies take energy out
        ```
    """

    constant: Parameter = eqx.field(default=0.17, converter=parameter)

    def __call__(self, velocity: StaggeredVelocity, strain: dict[tuple[int, int], Array]) -> Float[Array, "..."]:
        """Returns the viscosity at the centres of cells."""
        grid = velocity.grid
        volume = grid.volume if isinstance(grid, Grid) else grid.volumes().astype(self.constant.dtype)
        return (self.constant * volume ** (1 / grid.ndim)) ** 2 * magnitude(velocity, strain)


_AIRY = 1.3717212
"""Ai(0) / |Ai'(0)|: the apparent depth of the start of a friction line for the adjacent velocity, in its own length."""


class AbstractFlowForce(eqx.Module):
    """A force over the density that acts on an `IncompressibleFlow`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import AbstractFlowForce, IncompressibleFlow
        from sciml.spatial import Grid, Periodic

        class Drag(AbstractFlowForce):  # of a rough bottom
            rate: jax.Array

            def __call__(self, flow, t, y, args):
                return tuple(-self.rate * u for u in y.velocity)

        flow = IncompressibleFlow(Grid((8, 8)), Periodic(), forces=[Drag(jnp.array(2.0))])
        wind = flow.start((1.0, 0.0))
        assert jnp.allclose(flow(0.0, wind, None).velocity[0], -2.0)
        ```
    """

    @abc.abstractmethod
    def __call__(self, flow: Any, t: RealScalarLike, y: Any, args: Args) -> tuple[Array, ...]:
        """Returns the force at the unknown faces, an array for each component.

        Args:
            flow: The `IncompressibleFlow`, with its grid and conditions in the precision of the state.
            t: The time.
            y: The state, a `FlowState`.
            args: Whatever was given to `solve`.
        """

    def decay(self) -> Array | float:
        """Returns the largest rate at which it brings anything to rest, which limits explicit steps; by default 0."""
        return 0.0


class BodyForce(AbstractFlowForce):
    """A force that does not depend on the flow, such as the pressure gradient that drives a periodic channel.

    Attributes:
        acceleration: Force over density, one value for each axis: numbers, arrays over the unknown faces of the
            component, or functions `(t, args)`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import BodyForce, IncompressibleFlow
        from sciml.spatial import Grid, NoSlip, Periodic

        grid = Grid((4, 16))
        channel = IncompressibleFlow(grid, {"x": Periodic(), "y": NoSlip()}, 0.5, forces=[BodyForce((1.0, 0.0))])
        y = grid.centers[1]
        laminar = channel.start(lambda x, y: (y * (1 - y) + 0 * x, 0 * x * y))
        assert jnp.max(jnp.abs(channel(0.0, laminar, None).velocity[0])) < 1.0  # of order h / h in the cells at a wall
        assert jnp.max(jnp.abs(channel(0.0, laminar, None).velocity[0][:, 1:-1])) < 1e-3
        ```
    """

    acceleration: tuple[SideValue, ...]

    def __init__(self, acceleration: Any):
        self.acceleration = tuple(side_value("BodyForce(acceleration=...)")(one) for one in acceleration)

    def __call__(self, flow: Any, t: RealScalarLike, y: Any, args: Args) -> tuple[Array, ...]:
        """Returns the force, at the unknown faces."""
        values = [evaluated(value, t, args) for value in self.acceleration]
        return flow.velocity.sample(values, y.velocity[0].dtype)


class Buoyancy(AbstractFlowForce):
    r"""The buoyancy of a carried field that changes the density slightly: $a\, (c - c_0)$ (Boussinesq).

    For a temperature $T$ it is $-\beta g\, (T - T_0)$ with the gravity vector $g$ and the thermal expansion coefficient
    $\beta$.

    Attributes:
        of: The name of the carried field.
        acceleration: $a$, the acceleration per unit of $c$, of shape `(ndim,)`: upwards for a temperature.
        reference: $c_0$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Buoyancy, Carried, IncompressibleFlow
        from sciml.spatial import Grid, Neumann, NoSlip

        grid = Grid((8, 8))
        flow = IncompressibleFlow(
            grid,
            NoSlip(),
            carried={"temperature": Carried(Neumann(0.0), diffusivity=0.01)},
            forces=[Buoyancy("temperature", (0.0, 1.0))],
        )
        x, y = grid.centers
        warm = flow.start(carried={"temperature": jnp.exp(-20 * (x - 0.5) ** 2) + 0 * y})
        assert flow(0.0, warm, None).velocity[1][4, 3] > 0  # it rises
        ```
    """

    of: str = eqx.field(static=True)
    acceleration: Parameter = eqx.field(converter=parameter)
    reference: Parameter = eqx.field(default=0.0, converter=parameter)

    def __call__(self, flow: Any, t: RealScalarLike, y: Any, args: Args) -> tuple[Array, ...]:
        """Returns the force, at the unknown faces."""
        if self.of not in flow.carried:
            raise ValueError(
                f"`Buoyancy({self.of!r})` must name a carried field of the flow, one of {sorted(flow.carried)}."
            )
        ndim, velocity = flow.velocity.grid.ndim, flow.velocity
        if self.acceleration.shape != (ndim,):
            raise ValueError(
                f"`Buoyancy(acceleration=...)` must have one value for each of {ndim} axes, but has shape "
                f"{self.acceleration.shape}."
            )
        wide = flow.carried[self.of].boundary.pad(y.carried[self.of], 1, t=t, args=args)
        found = []
        for axis in range(ndim):
            at_faces = velocity.to_unknown(mean(_strip(wide, ndim, 1, axis), axis), axis)
            found.append(self.acceleration[axis] * (at_faces - self.reference))
        return tuple(found)


class Obstacle(AbstractFlowForce):
    r"""A body in the way of the flow, as a porous one of small permeability: $-\tfrac{\chi}{\eta} (u - u_b)$.

    $\chi$ is the share of each cell that the body fills. Within it the flow comes to rest against it in the time
    $\eta$. The walls are smeared over the boundary layer of thickness $\sqrt{\nu \eta}$ and the cells they cross;
    where these do not fit one another the body is too thick or too thin, an error of first order in the spacing.
    `Obstacle.of_distance` fits them. Everything is differentiable by $\chi$, the shape. An explicit step may not be
    longer than about $2 \eta$.

    Good values: the values of `Obstacle.of_distance`; or $\eta$ of one or two steps, and $\chi$ of a body with the
    signed distance $d$ from its surface (negative within) as `jnp.clip(0.5 - d / h, 0, 1)`.

    Attributes:
        share: $\chi$, an array over the grid, between 0 and 1.
        time: $\eta$.
        velocity: $u_b$, the velocity of the body, of shape `(ndim,)`, or 0.

    Source:
        P. Angot, C.-H. Bruneau, P. Fabrie, Numer. Math. 81:497, 1999.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow, Obstacle
        from sciml.spatial import Grid, Periodic

        grid = Grid((16, 16))
        x, y = grid.centers
        disc = Obstacle(jnp.clip(0.5 - (jnp.hypot(x - 0.5, y - 0.5) - 0.2) * 16, 0.0, 1.0), time=0.1)
        flow = IncompressibleFlow(grid, Periodic(), forces=[disc])
        wind = flow.start((1.0, 0.0))
        assert disc.force(flow, wind)[0] > 0  # the wind pushes it along
        ```
    """

    share: Parameter = eqx.field(converter=parameter)
    time: Parameter = eqx.field(converter=parameter)
    velocity: Parameter = eqx.field(default=0.0, converter=parameter)

    @staticmethod
    def of_distance(distance: Any, width: Any, viscosity: Any, time: Any, velocity: Any = 0.0) -> "Obstacle":
        r"""Returns a body whose smeared walls act at the intended positions.

        $\chi$ falls from 1 to 0 along a line of the width $w$. Near such a wall the velocity solves
        $\nu u'' = \chi u / \eta$, with Airy's function, and outside it behaves as with a wall a distance

        $$s = \frac{w}{2} - \frac{\mathrm{Ai}(0)}{|\mathrm{Ai}'(0)|} (w \nu \eta)^{1/3}$$

        beyond the middle of the line. So the line is drawn within the body by as much. The remaining error is of second
        order in the width, and of first order in $\eta$: like a porous body, it transmits a share of about $\eta$ over
        the time in which the flow passes it.

        Args:
            distance: The signed distance from the surface at the centres of cells, negative within.
            width: $w$, one or two times the spacing there.
            viscosity: $\nu$, the viscosity of the flow.
            time: $\eta$, at most a hundredth of the time in which the flow passes the body, and so short that
                $\sqrt{\nu \eta}$ is no more than a quarter of the width.
            velocity: The velocity of the body, one value for each axis, or 0.

        Source:
            E. W. Hester, G. M. Vasil, K. J. Burns, J. Comput. Phys. 430:110043, 2021, for walls that are shifted to
            compensate for smearing.

        Example:
            ```python
            import jax.numpy as jnp
            from sciml.models import IncompressibleFlow, Obstacle
            from sciml.spatial import Grid, Periodic

            grid = Grid((16, 16))
            x, y = grid.centers
            disc = Obstacle.of_distance(jnp.hypot(x - 0.5, y - 0.5) - 0.2, 2 / 16, viscosity=0.01, time=0.01)
            flow = IncompressibleFlow(grid, Periodic(), 0.01, forces=[disc])
            assert disc.force(flow, flow.start((1.0, 0.0)))[0] > 0
            ```
        """
        width = jnp.asarray(width)
        shift = width / 2 - _AIRY * (width * jnp.asarray(viscosity) * jnp.asarray(time)) ** (1 / 3)
        return Obstacle(jnp.clip(0.5 - (jnp.asarray(distance) + shift) / width, 0.0, 1.0), time, velocity)

    def __call__(self, flow: Any, t: RealScalarLike, y: Any, args: Args) -> tuple[Array, ...]:
        """Returns the force on the fluid, at the unknown faces."""
        del t, args
        return tuple(-part for part in self._push(flow.velocity, y.velocity))

    def force(self, flow: Any, y: Any) -> Float[Array, " ndim"]:
        r"""Returns the force of the fluid on the body over the density, $\int \tfrac{\chi}{\eta} (u - u_b)\, dV$.

        Args:
            flow: The `IncompressibleFlow`.
            y: A state, a `FlowState`.
        """
        velocity = flow.velocity.in_blocks(flow.blocks)
        push = self._push(velocity, y.velocity)
        return jnp.stack([_integral(velocity, part, i) for i, part in enumerate(push)])

    def decay(self) -> Array:
        r"""Returns $\max \chi / \eta$."""
        return jnp.max(self.share) / self.time

    def _push(self, velocity: StaggeredVelocity, u: Velocity) -> Velocity:
        if self.share.shape != velocity.cells or self.velocity.shape not in ((), (velocity.grid.ndim,)):
            raise ValueError(
                f"`Obstacle` requires a `share` of the grid's shape {velocity.cells} and a `velocity` with one "
                f"value for each axis, but they have shapes {self.share.shape} and {self.velocity.shape}."
            )
        dtype, found = u[0].dtype, []
        share, time, moves = (x.astype(dtype) for x in (self.share, self.time, self.velocity))
        share = velocity.at_centers(share)
        moves = jnp.broadcast_to(moves, (velocity.grid.ndim,))
        for i, part in enumerate(u):
            found.append(velocity.from_centers(share, i) / time * (part - moves[i]))
        return tuple(found)


def _integral(velocity: StaggeredVelocity, u: Array, component: int) -> Array:
    """The integral of what is at the unknown faces of a component, of all blocks."""
    boundary = velocity.component(component)
    if velocity.blocks is None:
        return velocity.grid.integrate(u, boundary.location)
    volumes = velocity.blocks.grid.volumes(boundary.whole.location).astype(u.dtype)
    return velocity.sum(jnp.sum(boundary.unknown(u) * boundary.part(volumes)))
