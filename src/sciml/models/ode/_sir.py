"""The SIR equations of an epidemic."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class SIR(AbstractModel):
    r"""An epidemic among susceptible, infected and recovered people.

    $$\dot S = -\beta \frac{S I}{N}, \qquad \dot I = \beta \frac{S I}{N} - \gamma I, \qquad
    \dot R = \gamma I, \qquad N = S + I + R$$

    The state is $(S, I, R)$, shape `(3,)`, in people or in fractions of the population. The
    basic reproduction number is $\beta / \gamma$.

    Good values: the defaults describe influenza in an English boarding school in 1978, with
    `y0 = (762, 1, 0)` and time from 0 to 14 days.

    Attributes:
        beta: Rate of infectious contacts, 1/day.
        gamma: Rate of recovery, 1/day.

    Source:
        W. O. Kermack and A. G. McKendrick, Proc. R. Soc. A 115:700, 1927. Values: J. D. Murray,
        Mathematical Biology, chapter on epidemic models (r = 2.18e-3 per person and day,
        relative removal rate 202, 763 boys).

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import SIR

        rates = SIR(beta=0.5, gamma=0.25)(0.0, jnp.array([0.5, 0.5, 0.0]), None)
        assert jnp.allclose(rates, jnp.array([-0.125, 0.0, 0.125]))
        ```
    """

    beta: Parameter = eqx.field(default=1.66, converter=parameter)
    gamma: Parameter = eqx.field(default=0.44, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the rates of change of the three groups; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        susceptible, infected = y[0], y[1]
        infection = p.beta * susceptible * infected / self.total(y)
        recovery = p.gamma * infected
        return jnp.stack([-infection, infection - recovery, recovery])

    def total(self, y: Float[Array, " 3"]) -> Float[Array, ""]:
        """Returns the population $N$, constant in time."""
        return y[0] + y[1] + y[2]

    def invariant(self, y: Float[Array, " 3"]) -> Float[Array, ""]:
        r"""Returns $S + I - N \frac{\gamma}{\beta} \ln S$, constant along an orbit."""
        p = with_dtype(self, y.dtype)
        susceptible, infected = y[0], y[1]
        return susceptible + infected - self.total(y) * p.gamma / p.beta * jnp.log(susceptible)
