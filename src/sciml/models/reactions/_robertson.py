"""Robertson's reaction, the standard stiff problem."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Robertson(AbstractModel):
    r"""Three species whose reactions differ in speed by nine orders of magnitude.

    $$A \xrightarrow{k_1} B, \qquad B + B \xrightarrow{k_2} C + B, \qquad
    B + C \xrightarrow{k_3} A + C$$

    $$\dot a = -k_1 a + k_3 b c, \qquad \dot b = k_1 a - k_3 b c - k_2 b^2, \qquad
    \dot c = k_2 b^2$$

    The state is the concentrations $(a, b, c)$, shape `(3,)`; their sum is constant.

    Good values: the defaults, `y0 = (1, 0, 0)`, time from 0 to 40 or, to test a solver, to 1e11.
    It is stiff, and takes an absolute tolerance below the size of $b$, about 1e-5 and falling.

    Attributes:
        k1: Rate of the slow reaction, 1/time.
        k2: Rate of the fast reaction, 1/(concentration x time).
        k3: Rate of the reaction back, 1/(concentration x time).

    Source:
        H. H. Robertson, The solution of a set of reaction rate equations, 1966; problem ROBER of
        the Test Set for IVP Solvers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Robertson

        rates = Robertson()(0.0, jnp.array([1.0, 0.0, 0.0]), None)
        assert jnp.allclose(rates, jnp.array([-0.04, 0.04, 0.0]))
        ```
    """

    stiff: ClassVar[bool] = True
    k1: Parameter = eqx.field(default=0.04, converter=parameter)
    k2: Parameter = eqx.field(default=3e7, converter=parameter)
    k3: Parameter = eqx.field(default=1e4, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the time derivative of $(a, b, c)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        a, b, c = y[0], y[1], y[2]
        slow = p.k1 * a
        fast = p.k2 * b**2
        back = p.k3 * b * c
        return jnp.stack([back - slow, slow - back - fast, fast])

    def total(self, y: Float[Array, " 3"]) -> Float[Array, ""]:
        """Returns the sum of the concentrations, constant in time."""
        return y[0] + y[1] + y[2]
