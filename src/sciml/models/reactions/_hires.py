"""HIRES, a stiff reaction of plant physiology."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class HIRES(AbstractModel):
    r"""High irradiance responses: how a plant grows and differentiates under light.

    $$\begin{aligned}
    \dot y_1 &= -k_1 y_1 + k_2 y_2 + k_6 y_3 + o \\
    \dot y_2 &= k_1 y_1 - (k_2 + k_3) y_2 \\
    \dot y_3 &= -(k_1 + k_6) y_3 + k_2 y_4 + k_5 y_5 \\
    \dot y_4 &= k_3 y_2 + k_1 y_3 - (k_2 + k_4) y_4 \\
    \dot y_5 &= -(k_1 + k_5) y_5 + k_2 (y_6 + y_7) \\
    \dot y_6 &= -k_+ y_6 y_8 + k_4 y_4 + k_1 y_5 - k_2 y_6 + k_- y_7 \\
    \dot y_7 &= k_+ y_6 y_8 - (k_2 + k_- + k_*) y_7 \\
    \dot y_8 &= -\dot y_7
    \end{aligned}$$

    The state is eight concentrations, shape `(8,)`; $y_7 + y_8$ is constant.

    Good values: the defaults, `y0 = (1, 0, 0, 0, 0, 0, 0, 0.0057)`, time from 0 to 321.8122. It is
    moderately stiff.

    Attributes:
        k1: Rate of the conversion by red light, as all other rates in 1/time.
        k2: Rate of the conversion by far-red light.
        k3: Rate of the first transport.
        k4: Rate of the binding.
        k5: Rate of the release of the third species.
        k6: Rate of the return to the first species.
        k_plus: Rate of the second-order reaction, 1/(concentration x time).
        k_minus: Rate of its reverse.
        k_star: Rate of the loss from the seventh species.
        source: Supply of the first species $o$, concentration/time.

    Source:
        E. Schaefer, J. Math. Biol. 2:41, 1975; problem HIRES of the Test Set for IVP Solvers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import HIRES

        y = jnp.zeros(8).at[0].set(1.0)
        assert jnp.allclose(HIRES()(0.0, y, None)[:2], jnp.array([-1.7093, 1.71]))
        ```
    """

    stiff: ClassVar[bool] = True
    k1: Parameter = eqx.field(default=1.71, converter=parameter)
    k2: Parameter = eqx.field(default=0.43, converter=parameter)
    k3: Parameter = eqx.field(default=8.32, converter=parameter)
    k4: Parameter = eqx.field(default=0.69, converter=parameter)
    k5: Parameter = eqx.field(default=0.035, converter=parameter)
    k6: Parameter = eqx.field(default=8.32, converter=parameter)
    k_plus: Parameter = eqx.field(default=280.0, converter=parameter)
    k_minus: Parameter = eqx.field(default=0.69, converter=parameter)
    k_star: Parameter = eqx.field(default=0.69, converter=parameter)
    source: Parameter = eqx.field(default=0.0007, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 8"], args: Args) -> Float[Array, " 8"]:
        """Returns the time derivative of the concentrations; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        y1, y2, y3, y4, y5, y6, y7, y8 = (y[i] for i in range(8))
        binding = p.k_plus * y6 * y8
        release = (p.k2 + p.k_minus + p.k_star) * y7
        return jnp.stack(
            [
                -p.k1 * y1 + p.k2 * y2 + p.k6 * y3 + p.source,
                p.k1 * y1 - (p.k2 + p.k3) * y2,
                -(p.k1 + p.k6) * y3 + p.k2 * y4 + p.k5 * y5,
                p.k3 * y2 + p.k1 * y3 - (p.k2 + p.k4) * y4,
                -(p.k1 + p.k5) * y5 + p.k2 * (y6 + y7),
                -binding + p.k4 * y4 + p.k1 * y5 - p.k2 * y6 + p.k_minus * y7,
                binding - release,
                release - binding,
            ]
        )

    def bound(self, y: Float[Array, " 8"]) -> Float[Array, ""]:
        """Returns $y_7 + y_8$, constant in time."""
        return y[6] + y[7]
