"""A pendulum with damping."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


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
