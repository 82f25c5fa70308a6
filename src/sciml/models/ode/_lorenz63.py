"""The Lorenz equations of 1963."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Lorenz63(AbstractModel):
    r"""Convection cut down to three modes; chaotic for the default values.

    $$\dot x = \sigma (y - x), \qquad \dot y = x (\rho - z) - y, \qquad \dot z = x y - \beta z$$

    The state is $(x, y, z)$, shape `(3,)`. Everything is dimensionless.

    Good values: the defaults, with `y0 = (1, 0, 0)`; time from 0 to 1 can be compared digit by
    digit, from 0 to 20 shows the attractor. For `rho < 1` the origin attracts everything, for
    `1 < rho < 24.74` so do the two fixed points.

    Attributes:
        sigma: Prandtl number.
        rho: Rayleigh number over its critical value.
        beta: Aspect ratio of the convection cells.

    Source:
        E. N. Lorenz, Deterministic Nonperiodic Flow, J. Atmos. Sci. 20:130, 1963.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import Lorenz63

        y = jnp.array([1.0, 2.0, 3.0])
        field = jax.vmap(lambda rho: Lorenz63(rho=rho)(0.0, y, None))
        assert field(jnp.array([0.0, 14.0, 28.0])).shape == (3, 3)
        ```
    """

    sigma: Parameter = eqx.field(default=10.0, converter=parameter)
    rho: Parameter = eqx.field(default=28.0, converter=parameter)
    beta: Parameter = eqx.field(default=8.0 / 3.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the time derivative of $(x, y, z)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        x1, x2, x3 = y[0], y[1], y[2]
        return jnp.stack(
            [
                p.sigma * (x2 - x1),
                x1 * (p.rho - x3) - x2,
                x1 * x2 - p.beta * x3,
            ]
        )
