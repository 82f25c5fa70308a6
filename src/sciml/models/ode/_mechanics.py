"""Mechanics: oscillators, orbits, and a ball that bounces."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._events import Event
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class HarmonicOscillator(AbstractModel):
    r"""A mass on a spring, with friction.

    $$\dot x = v, \qquad \dot v = -\omega^2 x - 2 \zeta \omega v$$

    The state is $(x, v)$, shape `(2,)`.

    Good values: the defaults, `y0 = (1, 0)`, time from 0 to 10; the period is $2\pi/\omega$.

    Attributes:
        omega: Angular frequency without friction $\omega$, 1/time.
        zeta: Damping ratio $\zeta$; 1 is critical.

    Source:
        L. D. Landau and E. M. Lifshitz, Mechanics, sections 21 and 25.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import HarmonicOscillator

        rates = HarmonicOscillator(omega=2.0, zeta=0.5)(0.0, jnp.array([1.0, 3.0]), None)
        assert jnp.all(rates == jnp.array([3.0, -10.0]))
        ```
    """

    omega: Parameter = eqx.field(default=1.0, converter=parameter)
    zeta: Parameter = eqx.field(default=0.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns velocity and acceleration; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        x, v = y[0], y[1]
        return jnp.stack([v, -(p.omega**2) * x - 2 * p.zeta * p.omega * v])

    def acceleration(self, t: RealScalarLike, q: Float[Array, " 1"], args: Args) -> Float[Array, " 1"]:
        """Returns the acceleration by the spring, for symplectic methods; `t` and `args` are not used."""
        del t, args
        return -(with_dtype(self, q.dtype).omega ** 2) * q

    def friction(self, args: Args) -> Float[Array, ""]:
        r"""Returns $2 \zeta \omega$, for symplectic methods; `args` is not used."""
        del args
        return 2 * self.zeta * self.omega

    def energy(self, y: Float[Array, " 2"]) -> Float[Array, ""]:
        r"""Returns $\frac12 v^2 + \frac12 \omega^2 x^2$, the energy per mass.

        It is constant without damping and falls at the rate $2 \zeta \omega v^2$ with it.
        """
        p = with_dtype(self, y.dtype)
        x, v = y[0], y[1]
        return (v**2 + (p.omega * x) ** 2) / 2


class Pendulum(AbstractModel):
    r"""A point mass on a rigid rod, with friction.

    $$\dot \theta = \omega, \qquad \dot \omega = -\frac{g}{\ell} \sin \theta - c\, \omega$$

    The state is $(\theta, \omega)$, shape `(2,)`: the angle from the lowest point in radians and
    its rate in rad/s.

    Good values: the defaults, `y0 = (1, 0)`, time from 0 to 10 s; `damping=0.2` comes to rest.

    Attributes:
        gravity: Acceleration of gravity $g$, m/s^2.
        length: Length of the rod $\ell$, m.
        damping: Friction per moment of inertia $c$, 1/s.

    Source:
        C. Huygens, Horologium Oscillatorium, 1673; L. D. Landau and E. M. Lifshitz, Mechanics,
        section 11.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Pendulum

        rates = Pendulum(gravity=10.0)(0.0, jnp.array([jnp.pi / 2, 0.5]), None)
        assert jnp.allclose(rates, jnp.array([0.5, -10.0]))
        ```
    """

    gravity: Parameter = eqx.field(default=9.81, converter=parameter)
    length: Parameter = eqx.field(default=1.0, converter=parameter)
    damping: Parameter = eqx.field(default=0.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of angle and rate; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        angle, rate = y[0], y[1]
        return jnp.stack([rate, -p.gravity / p.length * jnp.sin(angle) - p.damping * rate])

    def acceleration(self, t: RealScalarLike, q: Float[Array, " 1"], args: Args) -> Float[Array, " 1"]:
        """Returns the acceleration by gravity at an angle, for symplectic methods; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, q.dtype)
        return -p.gravity / p.length * jnp.sin(q)

    def friction(self, args: Args) -> Float[Array, ""]:
        """Returns $c$, for symplectic methods; `args` is not used."""
        del args
        return self.damping

    def energy(self, y: Float[Array, " 2"]) -> Float[Array, ""]:
        r"""Returns $\frac12 \ell^2 \omega^2 + g \ell (1 - \cos\theta)$, in J/kg.

        It is constant without damping and falls at the rate $c\,\ell^2 \omega^2$ with it.
        """
        p = with_dtype(self, y.dtype)
        angle, rate = y[0], y[1]
        # 1 - cos(angle) would lose all digits of a small angle.
        height = 2 * p.length * jnp.sin(angle / 2) ** 2
        return (p.length * rate) ** 2 / 2 + p.gravity * height


class Kepler(AbstractModel):
    r"""One body in the gravity of a fixed centre, in a plane.

    $$\dot q = v, \qquad \dot v = -\mu \frac{q}{|q|^3}$$

    The state is $(q_1, q_2, v_1, v_2)$, shape `(4,)`.

    Good values: with `mu=1`, the state $(1 - e, 0, 0, \sqrt{(1 + e)/(1 - e)})$ starts an ellipse of eccentricity $e$
    and semi-major axis 1 at its pericentre; its period is $2\pi$. `e = 0` is the unit circle; `e = 0.5` requires error
    control.

    Attributes:
        mu: Gravitational parameter $GM$, length^3/time^2.

    Source:
        J. Kepler, Astronomia Nova, 1609; E. Hairer, C. Lubich and G. Wanner, Geometric Numerical
        Integration, section I.2.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Kepler

        circle = jnp.array([1.0, 0.0, 0.0, 1.0])
        assert jnp.allclose(Kepler()(0.0, circle, None), jnp.array([0.0, 1.0, -1.0, 0.0]))
        assert Kepler().energy(circle) == -0.5
        ```
    """

    mu: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 4"], args: Args) -> Float[Array, " 4"]:
        """Returns velocity and acceleration; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        q1, q2, v1, v2 = y[0], y[1], y[2], y[3]
        square = q1**2 + q2**2
        pull = p.mu / (square * jnp.sqrt(square))
        return jnp.stack([v1, v2, -pull * q1, -pull * q2])

    def acceleration(self, t: RealScalarLike, q: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the pull of the centre at a position, for symplectic methods; `t` and `args` are not used."""
        del t, args
        square = q[0] ** 2 + q[1] ** 2
        return -with_dtype(self, q.dtype).mu / (square * jnp.sqrt(square)) * q

    def energy(self, y: Float[Array, " 4"]) -> Float[Array, ""]:
        r"""Returns $\frac12 |v|^2 - \mu/|q|$, the energy per mass, constant along an orbit."""
        p = with_dtype(self, y.dtype)
        q1, q2, v1, v2 = y[0], y[1], y[2], y[3]
        return (v1**2 + v2**2) / 2 - p.mu / jnp.sqrt(q1**2 + q2**2)

    def angular_momentum(self, y: Float[Array, " 4"]) -> Float[Array, ""]:
        """Returns $q_1 v_2 - q_2 v_1$, the angular momentum per mass, constant along an orbit."""
        q1, q2, v1, v2 = y[0], y[1], y[2], y[3]
        return q1 * v2 - q2 * v1

    def eccentricity_vector(self, y: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """Returns the vector to the pericentre whose length is the eccentricity, also constant."""
        p = with_dtype(self, y.dtype)
        q1, q2, v1, v2 = y[0], y[1], y[2], y[3]
        momentum = self.angular_momentum(y)
        distance = jnp.sqrt(q1**2 + q2**2)
        return jnp.stack([v2 * momentum / p.mu - q1 / distance, -v1 * momentum / p.mu - q2 / distance])


class RestrictedThreeBody(AbstractModel):
    r"""A satellite in the gravity of two bodies on circles, in the frame that rotates with them.

    $$\ddot x = x + 2 \dot y - (1 - \mu) \frac{x + \mu}{r_1^3} - \mu \frac{x - 1 + \mu}{r_2^3},
    \qquad
    \ddot y = y - 2 \dot x - (1 - \mu) \frac{y}{r_1^3} - \mu \frac{y}{r_2^3}$$

    with $r_1^2 = (x + \mu)^2 + y^2$ and $r_2^2 = (x - 1 + \mu)^2 + y^2$. The state is
    $(x, y, \dot x, \dot y)$, shape `(4,)`; the bodies are at $(-\mu, 0)$ and $(1 - \mu, 0)$ and
    go round once in $2\pi$.

    Good values: the default is earth and moon. `sciml.verify.problem("arenstorf")` holds a periodic orbit
    that comes close to both and needs error control.

    Attributes:
        mu: Mass of the lighter body over the mass of both.

    Source:
        R. F. Arenstorf, Amer. J. Math. 85:27, 1963; E. Hairer, S. P. Norsett and G. Wanner,
        Solving Ordinary Differential Equations I, p. 129.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import RestrictedThreeBody

        triangle = jnp.array([0.3, 0.75**0.5, 0.0, 0.0])  # the fourth Lagrange point
        rates = RestrictedThreeBody(mu=0.2)(0.0, triangle, None)
        assert jnp.allclose(rates, 0.0, atol=1e-6)
        ```
    """

    mu: Parameter = eqx.field(default=0.012277471, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 4"], args: Args) -> Float[Array, " 4"]:
        """Returns velocity and acceleration; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        x1, x2, v1, v2 = y[0], y[1], y[2], y[3]
        heavy, light = self._distances(y)
        pull_heavy = (1 - p.mu) / heavy**3
        pull_light = p.mu / light**3
        return jnp.stack(
            [
                v1,
                v2,
                x1 + 2 * v2 - pull_heavy * (x1 + p.mu) - pull_light * (x1 - 1 + p.mu),
                x2 - 2 * v1 - (pull_heavy + pull_light) * x2,
            ]
        )

    def jacobi_constant(self, y: Float[Array, " 4"]) -> Float[Array, ""]:
        r"""Returns $x^2 + y^2 + 2\frac{1-\mu}{r_1} + 2\frac{\mu}{r_2} - |v|^2$, a constant."""
        p = with_dtype(self, y.dtype)
        x1, x2, v1, v2 = y[0], y[1], y[2], y[3]
        heavy, light = self._distances(y)
        return x1**2 + x2**2 + 2 * ((1 - p.mu) / heavy + p.mu / light) - (v1**2 + v2**2)

    def _distances(self, y):
        p = with_dtype(self, y.dtype)
        x1, x2 = y[0], y[1]
        heavy = jnp.sqrt((x1 + p.mu) ** 2 + x2**2)
        light = jnp.sqrt((x1 - 1 + p.mu) ** 2 + x2**2)
        return heavy, light


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
        restitution: $e$, the share of the speed that remains after a bounce, between 0 and 1; the default is for a
            tennis ball, which by its rules must rise to between 1.35 and 1.47 m from 2.54 m.

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
    """The height condition of flights with little energy, which crosses zero at their top."""

    ball: BouncingBall
    height: Array

    def __call__(self, t: RealScalarLike, y: Array, args: Args) -> Array:
        p = with_dtype(self, y.dtype)
        return jnp.maximum(y[1], p.ball.energy(y) - p.ball.gravity * p.height)
