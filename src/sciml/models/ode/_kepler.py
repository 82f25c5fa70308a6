"""The Kepler problem in a plane."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Kepler(AbstractModel):
    r"""One body in the gravity of a fixed centre, in a plane.

    $$\dot q = v, \qquad \dot v = -\mu \frac{q}{|q|^3}$$

    The state is $(q_1, q_2, v_1, v_2)$, shape `(4,)`.

    Good values: with `mu=1`, the state
    $(1 - e, 0, 0, \sqrt{(1 + e)/(1 - e)})$ starts an ellipse of eccentricity $e$ and semi-major
    axis 1 at its pericentre; its period is $2\pi$. `e = 0` is the unit circle; `e = 0.5` asks
    for error control.

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
