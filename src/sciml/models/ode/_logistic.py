"""Logistic growth."""

import equinox as eqx
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Logistic(AbstractModel):
    r"""Growth that saturates at a capacity.

    $$\dot y = r y \left(1 - \frac{y}{K}\right)$$

    The state may have any shape; every element grows for itself.

    Good values: the defaults, `y0 = 0.1`, time from 0 to 10.

    Attributes:
        rate: Growth rate of a small population $r$, 1/time.
        capacity: The population that can live $K$.

    Source:
        P.-F. Verhulst, Correspondance mathematique et physique 10:113, 1838. The solution is
        $K / (1 + (K/y_0 - 1) e^{-r t})$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Logistic

        rates = Logistic(rate=2.0, capacity=4.0)(0.0, jnp.array([0.0, 2.0, 4.0]), None)
        assert jnp.all(rates == jnp.array([0.0, 2.0, 0.0]))
        ```
    """

    rate: Parameter = eqx.field(default=1.0, converter=parameter)
    capacity: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the growth of every element; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        return p.rate * y * (1 - y / p.capacity)
