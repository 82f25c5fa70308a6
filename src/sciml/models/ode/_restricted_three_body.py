"""The restricted three-body problem in a plane."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class RestrictedThreeBody(AbstractModel):
    r"""A satellite in the gravity of two bodies on circles, in the frame that rotates with them.

    $$\ddot x = x + 2 \dot y - (1 - \mu) \frac{x + \mu}{r_1^3} - \mu \frac{x - 1 + \mu}{r_2^3},
    \qquad
    \ddot y = y - 2 \dot x - (1 - \mu) \frac{y}{r_1^3} - \mu \frac{y}{r_2^3}$$

    with $r_1^2 = (x + \mu)^2 + y^2$ and $r_2^2 = (x - 1 + \mu)^2 + y^2$. The state is
    $(x, y, \dot x, \dot y)$, shape `(4,)`; the bodies are at $(-\mu, 0)$ and $(1 - \mu, 0)$ and
    go round once in $2\pi$.

    Good values: the default is earth and moon. `sciml.verify.problem("arenstorf")` holds a periodic orbit
    that comes close to both and needs error control.

    Attributes:
        mu: Mass of the lighter body over the mass of both.

    Source:
        R. F. Arenstorf, Amer. J. Math. 85:27, 1963; E. Hairer, S. P. Norsett and G. Wanner,
        Solving Ordinary Differential Equations I, p. 129.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import RestrictedThreeBody

        triangle = jnp.array([0.3, 0.75**0.5, 0.0, 0.0])  # the fourth Lagrange point
        rates = RestrictedThreeBody(mu=0.2)(0.0, triangle, None)
        assert jnp.allclose(rates, 0.0, atol=1e-6)
        ```
    """

    mu: Parameter = eqx.field(default=0.012277471, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 4"], args: Args) -> Float[Array, " 4"]:
        """Returns velocity and acceleration; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        x1, x2, v1, v2 = y[0], y[1], y[2], y[3]
        heavy, light = self._distances(y)
        pull_heavy = (1 - p.mu) / heavy**3
        pull_light = p.mu / light**3
        return jnp.stack(
            [
                v1,
                v2,
                x1 + 2 * v2 - pull_heavy * (x1 + p.mu) - pull_light * (x1 - 1 + p.mu),
                x2 - 2 * v1 - (pull_heavy + pull_light) * x2,
            ]
        )

    def jacobi_constant(self, y: Float[Array, " 4"]) -> Float[Array, ""]:
        r"""Returns $x^2 + y^2 + 2\frac{1-\mu}{r_1} + 2\frac{\mu}{r_2} - |v|^2$, a constant."""
        p = with_dtype(self, y.dtype)
        x1, x2, v1, v2 = y[0], y[1], y[2], y[3]
        heavy, light = self._distances(y)
        return x1**2 + x2**2 + 2 * ((1 - p.mu) / heavy + p.mu / light) - (v1**2 + v2**2)

    def _distances(self, y):
        p = with_dtype(self, y.dtype)
        x1, x2 = y[0], y[1]
        heavy = jnp.sqrt((x1 + p.mu) ** 2 + x2**2)
        light = jnp.sqrt((x1 - 1 + p.mu) ** 2 + x2**2)
        return heavy, light
