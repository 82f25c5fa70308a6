"""A linear system with constant coefficients."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import parameter, with_dtype
from ..._types import Args, RealScalarLike


class Linear(AbstractModel):
    r"""A linear system with constant coefficients, $\dot y = A y$.

    The state has shape `(n,)`.

    Good values: `matrix = [[-1, 4], [-4, -1]]`, `y0 = (1, 0)`, time from 0 to 2.

    Attributes:
        matrix: The matrix $A$, shape `(n, n)`, 1/time.

    Source:
        Any textbook; the solution is $e^{A t} y_0$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Linear

        rotation = Linear([[0.0, 1.0], [-1.0, 0.0]])
        assert jnp.all(rotation(0.0, jnp.array([1.0, 0.0]), None) == jnp.array([0.0, -1.0]))
        ```
    """

    matrix: Float[Array, "... n n"] = eqx.field(converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns $A y$; `t` and `args` are not used."""
        del t, args
        return jnp.matmul(with_dtype(self, y.dtype).matrix, y)
