"""A ball that falls and bounces."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._events import Event
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class BouncingBall(AbstractModel):
    r"""A ball in free flight over a floor, which throws it back.

    $$\dot h = v, \qquad \dot v = -g, \qquad v \to -e v \text{ where } h = 0$$

    The state is $(h, v)$, height and velocity, shape `(2,)`. The vector field is the flight; the floor is an event,
    `events=ball.bounce()`.

    Good values: the defaults, `y0 = (1, 0)`, time from 0 to 3. Bounces follow one another ever faster, and infinitely
    many of them are over 3.16 s after such a start: stop before that, by `at_rest`. All flights in closed
    form are `sciml.verify.reference("bouncing_ball", ...)`.

    Attributes:
        gravity: $g$, m/s^2; the default is the standard acceleration of free fall, rounded.
        restitution: $e$, the part of the speed that a bounce leaves, between 0 and 1; the default is that of a tennis
            ball, which by its rules has to rise to between 1.35 and 1.47 m from 2.54 m.

    Source:
        I. Newton, Principia, 1687, scholium to the laws of motion. Values: ITF, Rules of Tennis, appendix I.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        ball = sciml.models.BouncingBall(restitution=0.5)
        sol = sciml.solve(ball, jnp.array([1.0, 0.0]), t0=0.0, t1=1.2, events=ball.bounce())
        assert sol.events.count == 3
        assert jnp.allclose(sol.events.states_after[:3, 1], -0.5 * sol.events.states_before[:3, 1], rtol=1e-4)
        ```
    """

    gravity: Parameter = eqx.field(default=9.81, converter=parameter)
    restitution: Parameter = eqx.field(default=0.75, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns velocity and acceleration in flight; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        return jnp.stack([y[1], -p.gravity])

    def bounce(self) -> Event:
        """Returns the event in which the ball hits the floor and flies up again."""
        return Event(_height, self.rebound, direction=-1)

    def rebound(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the state after a bounce."""
        del t, args
        return jnp.stack([y[0], -with_dtype(self, y.dtype).restitution * y[1]])

    def at_rest(self, height: RealScalarLike = 1e-3) -> Event:
        """Returns the event that ends a solve at the top of the first flight that is lower than this.

        Args:
            height: The height in m, above zero.

        Example:
            ```python
            import jax.numpy as jnp
            import sciml

            ball = sciml.models.BouncingBall()
            events = [ball.bounce(), ball.at_rest(0.02)]
            sol = sciml.solve(ball, jnp.array([1.0, 0.0]), t0=0.0, t1=10.0, events=events)
            assert sol.status == sciml.Status.event and sol.events.count == 8
            ```
        """
        return Event(_LowTop(self, parameter(height)), direction=-1)

    def energy(self, y: Float[Array, " 2"]) -> Float[Array, ""]:
        r"""Returns $g h + v^2 / 2$, the energy over the mass; a bounce leaves $e^2$ of it."""
        return with_dtype(self, y.dtype).gravity * y[0] + y[1] ** 2 / 2


def _height(t, y, args):
    return y[0]


class _LowTop(eqx.Module):
    """What falls through zero at the top of a flight with little energy."""

    ball: BouncingBall
    height: Array

    def __call__(self, t: RealScalarLike, y: Array, args: Args) -> Array:
        p = with_dtype(self, y.dtype)
        return jnp.maximum(y[1], p.ball.energy(y) - p.ball.gravity * p.height)
