"""The FitzHugh-Nagumo equations of an excitable cell."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class FitzHughNagumo(AbstractModel):
    r"""An excitable nerve cell with a fast voltage and a slow recovery.

    $$\dot v = v - \frac{v^3}{3} - w + I, \qquad \dot w = \varepsilon (v + a - b w)$$

    The state is $(v, w)$, voltage and recovery, shape `(2,)`. Everything is dimensionless.

    Good values: the defaults spike repeatedly from `y0 = (-1, 1)`, time from 0 to 100; with
    `current=0` the cell comes to rest.

    Attributes:
        a: Offset of the recovery.
        b: Damping of the recovery.
        epsilon: Speed of the recovery over the speed of the voltage.
        current: The stimulus $I$.

    Source:
        R. FitzHugh, Biophysical Journal 1:445, 1961; J. Nagumo, S. Arimoto and S. Yoshizawa,
        Proc. IRE 50:2061, 1962.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import FitzHughNagumo

        rates = FitzHughNagumo()(0.0, jnp.array([0.0, 0.0]), None)
        assert jnp.allclose(rates, jnp.array([0.5, 0.056]))
        ```
    """

    a: Parameter = eqx.field(default=0.7, converter=parameter)
    b: Parameter = eqx.field(default=0.8, converter=parameter)
    epsilon: Parameter = eqx.field(default=0.08, converter=parameter)
    current: Parameter = eqx.field(default=0.5, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(v, w)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        v, w = y[0], y[1]
        return jnp.stack([v - v**3 / 3 - w + p.current, p.epsilon * (v + p.a - p.b * w)])
