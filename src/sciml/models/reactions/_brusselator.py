"""The Brusselator, a chemical oscillator."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Brusselator(AbstractModel):
    r"""A chemical oscillator, well stirred.

    $$\dot u = a + u^2 v - (b + 1) u, \qquad \dot v = b u - u^2 v$$

    The state is the concentrations $(u, v)$, shape `(2,)`. The steady state $(a, b/a)$ is
    unstable, and a limit cycle surrounds it, when $b > 1 + a^2$.

    Good values: the defaults, `y0 = (1.5, 3)`, time from 0 to 20.

    Attributes:
        a: Rate of the supply.
        b: Rate of the conversion of $u$ to $v$.

    Source:
        I. Prigogine and R. Lefever, J. Chem. Phys. 48:1695, 1968; values from E. Hairer,
        S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, section II.4.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Brusselator

        assert jnp.all(Brusselator(a=2.0, b=3.0)(0.0, jnp.array([2.0, 1.5]), None) == 0.0)
        ```
    """

    a: Parameter = eqx.field(default=1.0, converter=parameter)
    b: Parameter = eqx.field(default=3.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(u, v)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        u, v = y[0], y[1]
        autocatalysis = u**2 * v
        conversion = p.b * u
        return jnp.stack([p.a + autocatalysis - conversion - u, conversion - autocatalysis])
