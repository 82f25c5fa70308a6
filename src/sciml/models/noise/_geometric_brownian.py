"""Geometric Brownian motion."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ..._interfaces._stochastic import AbstractStochastic
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class GeometricBrownian(AbstractStochastic):
    r"""A price, or whatever else grows by a random factor.

    $$\mathrm{d}S = \mu S \, \mathrm{d}t + \sigma S \, \mathrm{d}W$$

    in the sense of Ito. The state may have any shape; every element has a Brownian motion of its own.

    Good values: the defaults are those of a share in a year, `y0 = 100`, time from 0 to 1. The solution is
    $S_0 \exp((\mu - \sigma^2 / 2) t + \sigma W)$; its mean and variance are
    `sciml.verify.reference("geometric_brownian_moments", ...)`.

    Attributes:
        rate: $\mu$, at which the mean grows, 1/time.
        volatility: $\sigma$, 1/sqrt(time).

    Source:
        P. A. Samuelson, Ind. Manage. Rev. 6:13, 1965; F. Black and M. Scholes, J. Polit. Econ. 81:637, 1973. Values:
        J. C. Hull, Options, Futures, and Other Derivatives, the chapter on Wiener processes.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        share = sciml.models.GeometricBrownian()
        sol = sciml.solve(share, jnp.full(2000, 100.0), t0=0.0, t1=1.0, dt=0.05, key=jax.random.key(0))
        assert abs(sol.ys[-1].mean() - 100 * jnp.exp(0.15)) < 3.0
        ```
    """

    rate: Parameter = eqx.field(default=0.15, converter=parameter)
    volatility: Parameter = eqx.field(default=0.3, converter=parameter)
    noise: ClassVar[str] = "diagonal"

    def drift(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the growth; `t` and `args` are not used."""
        del t, args
        return with_dtype(self, y.dtype).rate * y

    def diffusion(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the size of the noise; `t` and `args` are not used."""
        del t, args
        return with_dtype(self, y.dtype).volatility * y
