"""A harmonic oscillator with damping."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

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
