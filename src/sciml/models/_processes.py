"""Processes with noise whose laws are known."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._interfaces._stochastic import AbstractStochastic
from .._parameters import Parameter, parameter, with_dtype
from .._types import Args, RealScalarLike


class GeometricBrownian(AbstractStochastic):
    r"""A price, or another quantity that grows by a random factor.

    $$\mathrm{d}S = \mu S \, \mathrm{d}t + \sigma S \, \mathrm{d}W$$

    in the sense of Ito. The state may have any shape; every element has a separate Brownian motion.

    Good values: the defaults are for a share price over a year, `y0 = 100`, time from 0 to 1. The solution is
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


class OrnsteinUhlenbeck(AbstractStochastic):
    r"""A process driven by noise that returns to its mean.

    $$\mathrm{d}x = \theta (m - x) \, \mathrm{d}t + \sigma \, \mathrm{d}W$$

    The state may have any shape; every element has a separate Brownian motion. It is normal at every time, in the long
    run with the variance $\sigma^2 / 2 \theta$; see `sciml.verify.reference("ornstein_uhlenbeck_moments")`.

    Good values: the defaults are the estimates for interest, the rate of one-month US Treasury bills from 1964 to 1989,
    in parts a year: `y0 = 0.0867`, time from 0 to 25. The velocity of a particle in a bath is `mean=0`.

    Attributes:
        rate: $\theta$, at which it returns, 1/time.
        mean: $m$.
        volatility: $\sigma$, in units of the state per sqrt(time).

    Source:
        G. E. Uhlenbeck and L. S. Ornstein, Phys. Rev. 36:823, 1930. Values: O. Vasicek, J. Financ. Econ. 5:177, 1977,
        as fitted by K. C. Chan, G. A. Karolyi, F. A. Longstaff and A. B. Sanders, J. Finance 47:1209, 1992, table III.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        velocity = sciml.models.OrnsteinUhlenbeck(rate=1.0, mean=0.0, volatility=2**0.5)
        sol = sciml.solve(velocity, jnp.zeros(2000), t0=0.0, t1=8.0, dt=0.1, key=jax.random.key(0))
        assert abs(sol.ys[-1].var() - 1.0) < 0.15
        ```
    """

    rate: Parameter = eqx.field(default=0.1779, converter=parameter)
    mean: Parameter = eqx.field(default=0.0866, converter=parameter)
    volatility: Parameter = eqx.field(default=0.02, converter=parameter)
    noise: ClassVar[str] = "additive"

    def drift(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the way back to the mean; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        return p.rate * (p.mean - y)

    def diffusion(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the size of the noise; `t` and `args` are not used."""
        del t, args
        return with_dtype(self, y.dtype).volatility * jnp.ones_like(y)
