r"""Fluxes that preserve positivity.

Along axis $k$ let $\alpha_k$ be the fastest speed. If $u_i - F_{i+1/2} / \alpha_k$ and $u_{i+1} + F_{i+1/2} / \alpha_k$
are admissible at every face, an Euler step of Courant number up to 1/2 ends at a mean of such states: admissible, since
these form a convex set. Rusanov's flux between the cells has this property. So the flux is moved towards it, as far as
necessary, at each face separately; in smooth flow nothing is moved.

Source:
    X. Y. Hu, N. A. Adams, C.-W. Shu, J. Comput. Phys. 242:169, 2013; here with the speed at the face instead of the
    step.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._conservation_law import AbstractConservationLaw, over_components
from ..._jax._barrier import held_back

_SHARE_OF_CELL = 1e-6
"""Below which share of its value in the cell nothing positive falls, unless Rusanov's flux takes it there."""


class Neighbour(NamedTuple):
    """The values that the limiter reads of the cells on one side of faces.

    Attributes:
        state: The conserved state.
        flux: Its flux across the faces.
        speed: The speed of its fastest wave across them.
    """

    state: Array
    flux: Array
    speed: Array


class PositivityLimiter(eqx.Module):
    """Keeps density and pressure, or depth, positive: of states at faces, and of cells after a step.

    `AbstractConservationLaw.positive` defines the positive quantities of a law. States at faces are moved towards the
    states in the cells, and fluxes towards the first-order `Rusanov` flux, each as far as necessary. With a method that
    preserves strong stability, such as `sciml.solvers.SSPRK33`, no step of a Courant number up to 1/2 makes a state
    inadmissible.

    Source:
        X. Y. Hu, N. A. Adams, C.-W. Shu, J. Comput. Phys. 242:169, 2013.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Euler
        from sciml.spatial import Grid, Outflow, PositivityLimiter, WENO5Z

        grid = Grid(64)
        law = Euler(grid, Outflow(), reconstruction=WENO5Z(), limiter=PositivityLimiter())
        (x,) = grid.centers
        apart = jnp.stack([jnp.ones(64), jnp.where(x < 0.5, -2.0, 2.0), jnp.full(64, 0.4)])
        sol = sciml.solve(law, law.conserved(apart), t0=0.0, t1=0.15)
        assert jnp.min(law.primitive(sol.ys[-1])[jnp.array([0, 2])]) > 0  # almost a vacuum in the middle
        ```
    """

    def scaled(
        self, law: AbstractConservationLaw, face: Float[Array, "..."], cell: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """Returns a primitive state at a face, moved towards that in the cell as far as it must be.

        Args:
            law: The conservation law.
            face: The state at the face.
            cell: The state in the cell.
        """
        share, parts = None, (tuple(cell), tuple(face)) if law.positive_components else ()
        for number in law.positive_components:
            here, there = (part[number] for part in parts)
            least = _SHARE_OF_CELL * here
            low = there < least
            room = jnp.where(low, here - there, jnp.ones_like(here))
            one = jnp.where(low, (here - least) / room, jnp.ones_like(here))
            share = one if share is None else jnp.minimum(share, one)
        return face if share is None else cell + over_components(share, face) * (face - cell)

    def limited(
        self, law: AbstractConservationLaw, flux: Float[Array, "..."], lower: Neighbour, upper: Neighbour
    ) -> Float[Array, "..."]:
        """Returns the flux at faces, moved towards Rusanov's as far as it must be.

        Args:
            law: The conservation law.
            flux: The flux.
            lower: The cells on the lower side of the faces.
            upper: Those on the upper side.
        """
        here = law.positive(lower.state), law.positive(upper.state)
        if not here[0]:
            return flux
        speed = jnp.maximum(lower.speed, upper.speed)
        still = speed <= 0
        slowness = jnp.where(still, jnp.zeros_like(speed), 1 / jnp.where(still, jnp.ones_like(speed), speed))
        speed, slowness = over_components(speed, flux), over_components(slowness, flux)
        safe = (lower.flux + upper.flux - speed * (upper.state - lower.state)) / 2
        surely = law.positive(lower.state - slowness * safe), law.positive(upper.state + slowness * safe)
        # where nothing moves at either side, as on dry land, no flux does that was interpolated from further away
        kept = jnp.where(still, jnp.zeros_like(here[0][0]), jnp.ones_like(here[0][0]))
        moved = jnp.where(over_components(still, flux), safe, flux)
        for number in range(len(here[0])):
            share, step = jnp.ones_like(kept), slowness * moved
            reached = law.positive(lower.state - step)[number], law.positive(upper.state + step)[number]
            for now, there, sure in zip(here, reached, surely):
                least = jnp.minimum(_SHARE_OF_CELL * now[number], sure[number])
                low = there < least
                room = jnp.where(low, sure[number] - there, jnp.ones_like(there))
                share = jnp.minimum(share, jnp.where(low, (sure[number] - least) / room, jnp.ones_like(there)))
            kept = kept * share
            moved = safe + over_components(kept, flux) * (flux - safe)
        if kept.ndim:  # all components read it; at one face alone it is a number
            (kept,) = held_back(kept)
        kept = over_components(kept, flux)
        return jnp.where(kept < 1, safe + kept * (flux - safe), flux)
