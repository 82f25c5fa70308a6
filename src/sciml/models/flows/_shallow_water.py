"""The shallow-water equations, over a bed of any shape, wet or dry."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._conservation_law import AbstractConservationLaw, Waves
from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ...spatial import HLLC, AbstractFlux, AbstractReconstruction, FiniteVolumes, LaxWendroff, Muscl, PositivityLimiter
from ...spatial._abstract_grid import AbstractGrid
from ...spatial.finite_volumes._variables import AbstractVariables, Componentwise


class ShallowWater(AbstractConservationLaw):
    r"""Water that is shallow against the length of its waves, in one or two dimensions, over a bed $b$.

    $$\partial_t \begin{pmatrix} h \\ h v \end{pmatrix} + \nabla \cdot
      \begin{pmatrix} h v \\ h v \otimes v + \tfrac12 g h^2 \end{pmatrix} =
      \begin{pmatrix} 0 \\ -g h \nabla b - k |v| v \end{pmatrix}$$

    The state is depth and discharge, of shape `(ndim + 1, *grid)`; `primitive` makes depth, velocity and level $h + b$
    of it. A lake at rest stays at rest to rounding, over any bed and with dry land around it (hydrostatic
    reconstruction), and the depth stays positive.

    Good values: the defaults, a dam of 10 m above 5 m over 1000 m, time from 0 to 20 s.

    Attributes:
        volumes: The discretisation.
        bed: $b$, of the grid's shape.
        gravity: $g$.
        friction: $k$, of quadratic friction, a number without units.
        dry: The depth below which velocities fade out, so that thin films do not race.

    Args:
        grid: The grid.
        boundary: The conditions beyond the sides: `Periodic()`, `Inflow((depth, velocity))`, `Outflow()`,
            `Reflecting()`, `MovingWall(velocity)`, or several by name.
        bed: $b$: a number, or an array of the grid's shape.
        gravity: $g$.
        friction: $k$.
        dry: The depth below which velocities fade out.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states.
        variables: The variables that are reconstructed.
        limiter: The limiter that keeps the depth positive, or None.

    Raises:
        ValueError: If the grid has three axes, the bed has another shape than the grid, or a reconstruction whose
            fluxes are corrected is to run over a bed that is not level: it would not keep a lake at rest.

    Source:
        E. Audusse, F. Bouchut, M.-O. Bristeau, R. Klein, B. Perthame, A fast and stable well-balanced scheme with
        hydrostatic reconstruction for shallow water flows, SIAM J. Sci. Comput. 25:2050, 2004; velocities of thin
        films by A. Kurganov, G. Petrova, Commun. Math. Sci. 5:133, 2007.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import verify
        from sciml.models import ShallowWater
        from sciml.spatial import Grid, Outflow

        grid = Grid(200, -500.0, 500.0)
        (x,) = grid.centers
        dam = jnp.stack([jnp.where(x < 0, 10.0, 5.0), jnp.zeros(200)])
        sol = sciml.solve(ShallowWater(grid, Outflow()), dam, t0=0.0, t1=20.0)
        depth, _ = verify.reference("dam_break", x, 20.0, upstream=10.0, downstream=5.0)
        assert jnp.mean(jnp.abs(sol.ys[-1][0] - depth)) < 0.05
        ```
    """

    volumes: FiniteVolumes
    bed: Parameter
    gravity: Parameter
    friction: Parameter
    dry: Parameter
    positive_components: ClassVar[tuple[int, ...]] = (0,)
    primitive_names: ClassVar[tuple[str, ...]] = ("depth", "velocity")

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        bed: Any = 0.0,
        *,
        gravity: Any = 9.81,
        friction: Any = 0.0,
        dry: Any = 1e-3,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux = HLLC(),
        variables: AbstractVariables = Componentwise(),
        limiter: PositivityLimiter | None = PositivityLimiter(),
    ):
        if grid.ndim > 2:
            raise ValueError(f"`ShallowWater(grid=...)` must have one or two axes, but has {grid.ndim}.")
        self.volumes = FiniteVolumes(grid, boundary, reconstruction, flux, variables, limiter)
        self.bed = parameter(bed)
        if self.bed.shape not in ((), grid.shape):
            raise ValueError(
                f"`ShallowWater(bed=...)` must be a number or have shape {grid.shape}, but has shape {self.bed.shape}."
            )
        if self.bed.ndim and (not isinstance(variables, Componentwise) or isinstance(flux, LaxWendroff)):
            raise ValueError(
                "`ShallowWater` with a varying `bed` requires `Componentwise()` variables and a flux other than "
                "`LaxWendroff`, because the others ignore the bed at faces."
            )
        if self.bed.ndim and reconstruction.correction:
            raise ValueError(
                f"`{type(reconstruction).__name__}` corrects fluxes, which would not balance the slope of `bed`. Use "
                "`Constant`, `Muscl` or `PPM`, or a flat bed (a number)."
            )
        self.gravity, self.friction, self.dry = parameter(gravity), parameter(friction), parameter(dry)

    def primitive(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns depth, velocity and level of depth and discharge."""
        self._check(y)
        depth, *discharge = y
        velocity = [self._velocity(depth, q) for q in discharge]
        bed = self.volumes.sides.local(self.bed) if self.bed.ndim else self.bed
        return jnp.stack([depth, *velocity, depth + bed])

    def conserved(self, w: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns depth and discharge of depth and velocity, and of the level, if it is there, nothing."""
        depth, *velocity = w[: self.volumes.grid.ndim + 1]
        return jnp.stack([depth, *(depth * v for v in velocity)])

    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        depth, *velocity, _ = w
        passing = depth * velocity[axis]
        pressure = self.gravity / 2 * depth**2
        return jnp.stack([passing, *(passing * v + (pressure if k == axis else 0.0) for k, v in enumerate(velocity))])

    def speeds(self, w: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns the speeds of small waves against and with the flow along an axis."""
        wave = self._wave(w[0])
        return w[1 + axis] - wave, w[1 + axis] + wave

    def positive(self, y: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns the depth."""
        return (y[0],)

    def admissible(self, y: Float[Array, "..."]) -> Array:
        """Returns whether no depth is negative, but by rounding."""
        sides = self.volumes.sides
        return sides.everywhere(y[0] >= -4 * jnp.finfo(y.dtype).eps * sides.largest(jnp.abs(y[0])))

    def bounds(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns bounds of the speeds of both waves: Einfeldt's, and at the shore the speed of the front."""
        velocity, wave = self._mean_of_roe(left, right)
        (low, most), (least, high) = self.speeds(left, axis), self.speeds(right, axis)
        low, high = jnp.minimum(low, velocity[axis] - wave), jnp.maximum(high, velocity[axis] + wave)
        front_left = right[1 + axis] - 2 * self._wave(right[0])
        front_right = left[1 + axis] + 2 * self._wave(left[0])
        left_is_dry, right_is_dry = left[0] <= 0, right[0] <= 0
        return (
            jnp.where(left_is_dry, jnp.minimum(front_left, least), low),
            jnp.where(right_is_dry, jnp.maximum(front_right, most), high),
        )

    def contact(
        self, left: Float[Array, "..."], right: Float[Array, "..."], low: Array, high: Array, axis: int
    ) -> Float[Array, "..."]:
        """Returns the speed at which carried quantities move between both waves."""
        from_left, from_right = left[0] * (left[1 + axis] - low), right[0] * (high - right[1 + axis])
        total = from_left + from_right
        wet = total > 0
        moved = low * from_right + high * from_left
        return jnp.where(wet, moved / jnp.where(wet, total, jnp.ones_like(total)), jnp.zeros_like(total))

    def behind(self, w: Float[Array, "..."], speed: Array, contact: Array, axis: int) -> Float[Array, "..."]:
        """Returns the conserved state between an outer wave and the contact."""
        depth, *velocity, _ = w
        room = speed - contact
        apart = room != 0  # not where both sides are dry
        ratio = jnp.where(apart, (speed - velocity[axis]) / jnp.where(apart, room, jnp.ones_like(room)), 1.0)
        inner = depth * ratio
        return jnp.stack([inner, *(inner * (contact if k == axis else v) for k, v in enumerate(velocity))])

    def waves(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> Waves:
        """Returns both waves and shear between two states, from the mean of Roe."""
        velocity, wave = self._mean_of_roe(left, right)
        wave = jnp.maximum(wave, jnp.finfo(wave.dtype).eps)  # on dry land
        normal = velocity[axis]
        across = [k for k in range(len(velocity)) if k != axis]

        def project(state: Array) -> Array:
            depth, *discharge = state
            push = (discharge[axis] - normal * depth) / wave
            shear = [discharge[k] - velocity[k] * depth for k in across]
            return jnp.stack([(depth - push) / 2, *shear, (depth + push) / 2])

        def combine(amounts: Array) -> Array:
            back, *shear, forth = amounts
            depth = back + forth
            discharge = [v * depth for v in velocity]
            discharge[axis] = discharge[axis] + wave * (forth - back)
            for k, amount in zip(across, shear):
                discharge[k] = discharge[k] + amount
            return jnp.stack([depth, *discharge])

        return Waves(jnp.stack([normal - wave, *[normal] * len(across), normal + wave]), project, combine)

    def mirrored(self, w: Float[Array, "..."], axis: int, velocity: Array) -> Float[Array, "..."]:
        """Returns the state with the velocity along an axis that a moving mirror shows."""
        return jnp.stack([2 * velocity - v if k == 1 + axis else v for k, v in enumerate(w)])

    def outside(self, given: Float[Array, "..."], inside: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns a depth and velocity that were given at a side, over the bed of the cells next to it."""
        given = jnp.broadcast_to(given, (given.shape[0], *inside.shape[1:]))
        return jnp.stack([*given, given[0] + (inside[-1] - inside[0])])

    def balanced(
        self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Returns the states above the higher of both beds, and the pressure on the steps down from it."""
        if not self.bed.ndim:
            return left, right, None, None
        high = jnp.maximum(left[-1] - left[0], right[-1] - right[0])
        met, pressed = [], []
        for state in (left, right):
            depth = jnp.maximum(state[-1] - high, jnp.zeros_like(high))
            met.append(jnp.stack([depth, *state[1:]]))
            step = self.gravity / 2 * (state[0] ** 2 - depth**2)
            parts = [step if k == 1 + axis else jnp.zeros_like(step) for k in range(state.shape[0] - 1)]
            pressed.append(jnp.stack(parts))
        return met[0], met[1], pressed[0], pressed[1]

    def within(self, lower: Float[Array, "..."], upper: Float[Array, "..."], axis: int) -> Float[Array, "..."] | None:
        """Returns the push of the bed between the faces of a cell."""
        if not self.bed.ndim:
            return None
        rise = (upper[-1] - upper[0]) - (lower[-1] - lower[0])
        push = -self.gravity / 2 * (lower[0] + upper[0]) * rise
        return jnp.stack([push if k == 1 + axis else jnp.zeros_like(push) for k in range(lower.shape[0] - 1)])

    def source(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."] | None:
        """Returns the loss of discharge by friction."""
        del t, args
        depth, *discharge = y
        velocity = [self._velocity(depth, q) for q in discharge]
        square = sum((v**2 for v in velocity[1:]), velocity[0] ** 2)
        moves = square > 0
        speed = jnp.where(moves, jnp.sqrt(jnp.where(moves, square, jnp.ones_like(square))), jnp.zeros_like(square))
        return jnp.stack([jnp.zeros_like(depth), *(-self.friction * speed * v for v in velocity)])

    def _velocity(self, depth: Array, discharge: Array) -> Array:
        """The velocity, which fades out where there is hardly water."""
        thick = jnp.maximum(depth, self.dry)
        return 2 * depth * discharge / (depth**2 + thick**2)

    def _wave(self, depth: Array) -> Array:
        wet = depth > 0
        return jnp.where(
            wet, jnp.sqrt(self.gravity * jnp.where(wet, depth, jnp.ones_like(depth))), jnp.zeros_like(depth)
        )

    def _mean_of_roe(self, left: Array, right: Array) -> tuple[list[Array], Array]:
        """Velocity and speed of small waves between two states."""
        roots = [self._wave(w[0]) for w in (left, right)]
        total = roots[0] + roots[1]
        wet = total > 0
        share = jnp.where(wet, roots[0] / jnp.where(wet, total, jnp.ones_like(total)), jnp.full_like(total, 0.5))
        velocity = [share * a + (1 - share) * b for a, b in zip(left[1:-1], right[1:-1])]
        return velocity, self._wave((left[0] + right[0]) / 2)

    def _check(self, state: Array) -> None:
        count = self.volumes.grid.ndim + 1
        if state.shape[0] != count:
            raise ValueError(
                f"the state of `ShallowWater` in {count - 1} dimensions must have {count} components, depth and "
                f"discharge, "
                f"in its first axis, but has shape {state.shape}."
            )
