"""The Lorenz equations of 1996 on a ring."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Lorenz96(AbstractModel):
    r"""A quantity advected, damped and forced on a ring of $n$ sites, like weather on a latitude.

    $$\dot x_i = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F, \qquad i \bmod n$$

    The state has shape `(n,)` with $n \ge 4$. One unit of time is about five days of weather.

    Good values: `forcing=8` and `n=40` are chaotic; start from `y0 = 8` everywhere and `8.01` at
    one site, time from 0 to 5. Below `forcing = 8/9` the rest state attracts.

    Attributes:
        forcing: The constant forcing $F$.

    Source:
        E. N. Lorenz, Predictability: a problem partly solved, ECMWF seminar, 1996.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Lorenz96

        y = jnp.full(40, 8.0)
        assert jnp.all(Lorenz96()(0.0, y, None) == 0.0)  # rest is an unstable steady state
        ```
    """

    forcing: Parameter = eqx.field(default=8.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the time derivative at every site; `t` and `args` are not used.

        Raises:
            ValueError: If there are fewer than four sites.
        """
        del t, args
        if y.shape[0] < 4:
            raise ValueError(f"Lorenz96 needs at least four sites, but `y` has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + p.forcing
