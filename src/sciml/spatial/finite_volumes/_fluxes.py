r"""Numerical fluxes: what flows through a face between two states.

Source:
    E. F. Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, Springer, 2009, chapters 10 and 11.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._conservation_law import AbstractConservationLaw, over_components
from ..._parameters import Parameter, parameter


class AbstractFlux(eqx.Module):
    """Numerical fluxes through a face between two states; elementwise over the faces.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Transport
        from sciml.spatial import AbstractFlux, Grid, Periodic

        class FromTheLeft(AbstractFlux):
            def __call__(self, law, left, right, axis):
                return law.flux(left, axis)

        law = Transport(Grid(8), Periodic(), 1.0)
        assert FromTheLeft()(law, jnp.ones(3), jnp.zeros(3), 0)[0] == 1.0
        ```
    """

    @abc.abstractmethod
    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis, of conserved components.

        Args:
            law: The conservation law.
            left: The primitive state on the lower side of the face.
            right: That on the upper side.
            axis: The axis across the face.
        """


class Rusanov(AbstractFlux):
    r"""The mean of both fluxes, and a jump that is damped by the fastest wave; the local Lax-Friedrichs flux.

    $$F = \tfrac12 (f_L + f_R) - \tfrac12 \max|\lambda| (u_R - u_L)$$

    The simplest and most diffusive. Any law has all that it needs.

    Source:
        V. V. Rusanov, USSR Comput. Math. Math. Phys. 1:304, 1962.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import InviscidBurgers
        from sciml.spatial import Grid, Periodic, Rusanov

        law = InviscidBurgers(Grid(8), Periodic())
        assert Rusanov()(law, jnp.array(1.0), jnp.array(0.0), 0) == 0.75
        ```
    """

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        jump = law.conserved(right) - law.conserved(left)
        speed = over_components(fastest(law, left, right, axis), jump)
        return (law.flux(left, axis) + law.flux(right, axis) - speed * jump) / 2


class HLL(AbstractFlux):
    """One mean state between the slowest and the fastest wave.

    It keeps density and pressure positive if the bounds of the speeds are correct, and smears contacts.

    Source:
        A. Harten, P. D. Lax, B. van Leer, SIAM Review 25:35, 1983; B. Einfeldt, SIAM J. Numer. Anal. 25:294, 1988.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import HLL, Grid, Outflow

        law = Euler(Grid(8), Outflow())
        sod = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.125, 0.0, 0.1])
        assert 0.3 < HLL()(law, *sod, 0)[0] < 0.6
        ```
    """

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        low, high = law.bounds(left, right, axis)
        low, high = jnp.minimum(low, jnp.zeros_like(low)), jnp.maximum(high, jnp.zeros_like(high))
        width = high - low
        moves = width > 0  # not where nothing moves, as on dry land
        share = jnp.where(moves, high, jnp.ones_like(high)) / jnp.where(moves, width, jnp.ones_like(width))
        jump = law.conserved(right) - law.conserved(left)
        share, low = over_components(share, jump), over_components(low, jump)
        return share * law.flux(left, axis) + (1 - share) * law.flux(right, axis) + share * low * jump


class HLLC(AbstractFlux):
    """Two mean states with the contact between them: sharp contacts and shear layers.

    For laws that define their contact wave, `sciml.models.Euler` and `sciml.models.ShallowWater`.

    Source:
        E. F. Toro, M. Spruce, W. Speares, Shock Waves 4:25, 1994.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Euler
        from sciml.spatial import HLLC, Grid, Outflow

        law = Euler(Grid(8), Outflow())
        contact = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.125, 0.0, 1.0])
        assert jnp.allclose(HLLC()(law, *contact, 0), jnp.array([0.0, 1.0, 0.0]))  # it stays where it is
        ```
    """

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        low, high = law.bounds(left, right, axis)
        contact = law.contact(left, right, low, high, axis)
        from_left = contact >= 0
        near = jnp.where(over_components(from_left, left), left, right)
        outer = jnp.where(from_left, low, high)
        # a wave that runs away from the face does not reach it
        reaches = jnp.where(from_left, jnp.minimum(low, jnp.zeros_like(low)), jnp.maximum(high, jnp.zeros_like(high)))
        change = law.behind(near, outer, contact, axis) - law.conserved(near)
        return law.flux(near, axis) + over_components(reaches, change) * change


class Roe(AbstractFlux):
    r"""The mean of both fluxes, and each wave damped by its own speed.

    $$F = \tfrac12 (f_L + f_R) - \tfrac12 \sum_k |\lambda_k|\, \alpha_k r_k$$

    It resolves every wave, and without a fix treats jumps that should spread as shocks. Near zero $|\lambda|$ is
    replaced by $(\lambda^2 + \delta^2) / 2 \delta$, where $\delta$ is `fix` times the largest speed. For one linear
    equation it is the upwind flux.

    Attributes:
        fix: How wide the fix of the entropy is.

    Source:
        P. L. Roe, J. Comput. Phys. 43:357, 1981; A. Harten, J. Comput. Phys. 49:357, 1983.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import InviscidBurgers
        from sciml.spatial import Grid, Periodic, Roe

        law = InviscidBurgers(Grid(8), Periodic())
        assert Roe()(law, jnp.array(1.0), jnp.array(0.0), 0) == 0.5
        ```
    """

    fix: Parameter = eqx.field(default=0.1, converter=parameter)

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        waves = law.waves(left, right, axis)
        size = jnp.abs(waves.speeds)
        width = jnp.broadcast_to(over_components(self.fix * fastest(law, left, right, axis), size), size.shape)
        slow = size < width
        rounded = (size**2 / jnp.where(slow, width, jnp.ones_like(width)) + width) / 2
        amounts = waves.project(law.conserved(right) - law.conserved(left))
        damped = waves.combine(jnp.where(slow, rounded, size) * amounts)
        return (law.flux(left, axis) + law.flux(right, axis) - damped) / 2


class LaxWendroff(AbstractFlux):
    r"""The flux at the middle of a step: second order in space and time with one evaluation, and no limiter.

    $$F = f\big(\tfrac12 (u_L + u_R) - \tfrac12 r (f_R - f_L)\big)$$

    with the step over the spacing, $r$. It is for `Constant`, `diffrax.Euler()` and steps of that length, and
    oscillates behind shocks.

    Attributes:
        ratio: $r$.

    Source:
        P. D. Lax, B. Wendroff, Commun. Pure Appl. Math. 13:217, 1960; R. D. Richtmyer's form.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml
        from sciml.models import Transport
        from sciml.spatial import Constant, Grid, LaxWendroff, Periodic

        grid = Grid(64)
        (x,) = grid.centers
        law = Transport(grid, Periodic(), 1.0, reconstruction=Constant(), flux=LaxWendroff(ratio=0.8))
        y0 = jnp.sin(2 * jnp.pi * x)
        sol = sciml.solve(law, y0, t0=0.0, t1=1.0, dt=0.8 / 64, solver=diffrax.Euler())
        assert jnp.max(jnp.abs(sol.ys[-1] - y0)) < 5e-3
        ```
    """

    ratio: Parameter = eqx.field(converter=parameter)

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        mean = (law.conserved(left) + law.conserved(right)) / 2
        middle = mean - self.ratio / 2 * (law.flux(right, axis) - law.flux(left, axis))
        return law.flux(law.primitive(middle), axis)


def fastest(
    law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
) -> Float[Array, "..."]:
    """Returns the speed of the fastest wave of both states, in either direction."""
    speeds = [jnp.abs(speed) for state in (left, right) for speed in law.speeds(state, axis)]
    return jnp.maximum(jnp.maximum(speeds[0], speeds[1]), jnp.maximum(speeds[2], speeds[3]))
