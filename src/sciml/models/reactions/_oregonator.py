"""The Oregonator, a stiff chemical oscillator."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Oregonator(AbstractModel):
    r"""The Belousov-Zhabotinskii reaction in three species.

    $$\dot y_1 = s (y_2 + y_1 (1 - q y_1 - y_2)), \qquad
    \dot y_2 = \frac{y_3 - (1 + y_1) y_2}{s}, \qquad
    \dot y_3 = w (y_1 - y_3)$$

    The state is scaled concentrations, shape `(3,)`. They swing over five orders of magnitude.

    Good values: the defaults, `y0 = (1, 2, 3)`, time from 0 to 360 (one period is about 303). It
    needs a stiff solver.

    Attributes:
        s: Ratio of the fast rates.
        q: Strength of the saturation.
        w: Rate of the third species.

    Source:
        R. J. Field and R. M. Noyes, J. Chem. Phys. 60:1877, 1974; problem OREGO of the Test Set for
        IVP Solvers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Oregonator

        rates = Oregonator(s=2.0, q=0.5, w=0.1)(0.0, jnp.array([1.0, 2.0, 3.0]), None)
        assert jnp.allclose(rates, jnp.array([1.0, -0.5, -0.2]))
        ```
    """

    stiff: ClassVar[bool] = True
    s: Parameter = eqx.field(default=77.27, converter=parameter)
    q: Parameter = eqx.field(default=8.375e-6, converter=parameter)
    w: Parameter = eqx.field(default=0.161, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the time derivative of the concentrations; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        y1, y2, y3 = y[0], y[1], y[2]
        return jnp.stack(
            [
                p.s * (y2 + y1 * (1 - p.q * y1 - y2)),
                (y3 - (1 + y1) * y2) / p.s,
                p.w * (y1 - y3),
            ]
        )
