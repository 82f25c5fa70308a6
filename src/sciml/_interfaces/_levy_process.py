r"""Levy processes, which drive an equation in place of Brownian motion: their increments from uniform random numbers.

The increment of a step, like an increment of Brownian motion, is a function of the step's length and of random numbers
that belong to its index. No number is rejected: increments are computed element by element, and have derivatives with
respect to the parameters of the process.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import concrete
from .._parameters import Parameter, parameter, with_dtype


class AbstractLevy(eqx.Module):
    r"""A Levy process: independent increments, with jumps, whose law depends on the length of the step.

    `driver=` of a `sciml.Stochastic` accepts one; $dW$ is then its increment. A custom process computes its increment
    from uniform random numbers.

    Attributes:
        draws: How many uniform numbers an increment takes, at most 4.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        class Cauchy(sciml.AbstractLevy):
            '''The process whose increments have a Cauchy distribution.'''

            draws = 1

            def increment(self, h, u):
                return h * jnp.tan(jnp.pi * (u - 0.5))

        walk = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: 0.1, driver=Cauchy())
        sol = sciml.solve(walk, jnp.zeros(16), t0=0.0, t1=1.0, dt=0.01, key=jax.random.key(0))
        assert sol.ys.shape == (1, 16)
        ```
    """

    draws: ClassVar[int] = 1

    @abc.abstractmethod
    def increment(self, h: Float[Array, ""], *uniform: Float[Array, " count"]) -> Float[Array, " count"]:
        """Returns independent increments over a step.

        Args:
            h: The length of the step, positive.
            uniform: Independent numbers that are uniform between 0 and 1, both excluded.
        """


class AlphaStable(AbstractLevy):
    r"""A stable Levy process, whose increments have tails $P(|L| > x) \sim x^{-\alpha}$: a Levy flight.

    $$E\, e^{i u L_h} = \exp\!\Big(-h \, |\sigma u|^\alpha
    \big(1 - i \beta \tan\tfrac{\pi \alpha}{2} \operatorname{sign} u\big)\Big)$$

    An increment scales with $h^{1 / \alpha}$. For $\alpha = 2$ it is $\sqrt 2 \, \sigma$ times Brownian motion. The
    variance is infinite for $\alpha < 2$, and the mean for $\alpha \le 1$. In float32 the largest jump is about
    $(10^7)^{1 / \alpha}$ times the usual one.

    Attributes:
        alpha: $\alpha$, the stability, above 0 and at most 2.
        beta: $\beta$, the skewness, from -1 to 1. It must be 0 if $\alpha = 1$.
        scale: $\sigma$.

    Raises:
        ValueError: If a known parameter is outside its range.

    Source:
        J. M. Chambers, C. L. Mallows, B. W. Stuck, A method for simulating stable random variables, Journal of the
        American Statistical Association 71 (1976) 340.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        flight = sciml.Stochastic(
            lambda t, y, args: -y, lambda t, y, args: 1.0, driver=sciml.AlphaStable(1.5, scale=0.1)
        )
        sol = sciml.solve(flight, jnp.zeros(1000), t0=0.0, t1=5.0, dt=0.05, key=jax.random.key(0))
        assert jnp.median(jnp.abs(sol.ys[-1])) < 0.2 < 1.0 < jnp.max(jnp.abs(sol.ys[-1]))
        ```
    """

    alpha: Parameter = eqx.field(converter=parameter)
    beta: Parameter = eqx.field(default=0.0, converter=parameter)
    scale: Parameter = eqx.field(default=1.0, converter=parameter)
    draws: ClassVar[int] = 2

    def __check_init__(self):
        if concrete(self.alpha) and not jnp.all((self.alpha > 0) & (self.alpha <= 2)):
            raise ValueError(f"`alpha` of `AlphaStable` must be above 0 and at most 2, but is {self.alpha}.")
        if not concrete(self.beta):
            return
        if not jnp.all(jnp.abs(self.beta) <= 1):
            raise ValueError(f"`beta` of `AlphaStable` must be from -1 to 1, but is {self.beta}.")
        if concrete(self.alpha) and jnp.any((self.alpha == 1) & (self.beta != 0)):
            raise ValueError("`beta` of `AlphaStable` must be 0 if `alpha` is 1. Use an `alpha` such as 1.01.")

    def increment(self, h: Float[Array, ""], *uniform: Float[Array, " count"]) -> Float[Array, " count"]:
        """Returns independent increments over a step; see `AbstractLevy.increment`."""
        u, v = uniform
        p = with_dtype(self, u.dtype)
        alpha, at_one = p.alpha, p.alpha == 1  # where the tangent is infinite, and there is no skewness
        skewness = p.beta * jnp.where(at_one, 0.0, jnp.tan(0.5 * jnp.pi * jnp.where(at_one, 0.5, alpha)))
        shift = jnp.arctan(skewness) / alpha
        turn = jnp.pi * (u - 0.5)
        exponential = -jnp.log(v)
        cosine = jnp.sin(jnp.pi * jnp.minimum(u, 1 - u))  # of the turn, without cancellation at both ends
        inner = alpha * (turn + shift)
        other = jnp.maximum(jnp.cos(turn - inner), jnp.finfo(u.dtype).eps)  # positive but for rounding
        power = jnp.log(other / exponential) * ((1 - alpha) / alpha) - jnp.log(cosine) / alpha
        size = p.scale * (h * jnp.sqrt(1 + skewness**2)) ** (1 / alpha)
        return size * jnp.sin(inner) * jnp.exp(power)


class NormalInverseGaussian(AbstractLevy):
    r"""Brownian motion in random time, with jumps of all sizes and exponential tails: returns of assets, turbulence.

    $$L_h = \beta \tau + W_\tau, \qquad E\, e^{i u L_h} = \exp\!\Big(h \, \delta \big(\sqrt{\alpha^2 - \beta^2}
    - \sqrt{\alpha^2 - (\beta + i u)^2}\big)\Big)$$

    with a time $\tau$ that has an inverse Gaussian distribution. With $\gamma = \sqrt{\alpha^2 - \beta^2}$ the mean is
    $h \delta \beta / \gamma$ and the variance $h \delta \alpha^2 / \gamma^3$. Derivatives move each time $\tau$ along
    its quantile, so means of smooth functions have their exact derivatives.

    Attributes:
        alpha: $\alpha$, the steepness of the tails.
        beta: $\beta$, the skewness, between $-\alpha$ and $\alpha$.
        scale: $\delta$, the size of the process in a unit of time.

    Raises:
        ValueError: If a known parameter is outside its range.

    Source:
        O. E. Barndorff-Nielsen, Processes of normal inverse Gaussian type, Finance and Stochastics 2 (1998) 41. The
        random time: J. R. Michael, W. R. Schucany, R. W. Haas, The American Statistician 30 (1976) 88; its derivative:
        M. Figurnov, S. Mohamed, A. Mnih, Implicit reparameterization gradients, NeurIPS (2018).

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        driver = sciml.NormalInverseGaussian(alpha=10.0, beta=-3.0, scale=0.5)
        price = sciml.Stochastic(lambda t, y, args: 0.2 * y, lambda t, y, args: y, driver=driver)
        sol = sciml.solve(price, jnp.ones(1000), t0=0.0, t1=1.0, dt=0.02, key=jax.random.key(0))
        assert abs(sol.ys[-1].mean() - 1.04) < 0.05
        ```
    """

    alpha: Parameter = eqx.field(converter=parameter)
    beta: Parameter = eqx.field(default=0.0, converter=parameter)
    scale: Parameter = eqx.field(default=1.0, converter=parameter)
    draws: ClassVar[int] = 3

    def __check_init__(self):
        known = concrete(self.alpha) and concrete(self.beta)
        if known and not jnp.all(jnp.abs(self.beta) < self.alpha):
            raise ValueError(
                "`beta` of `NormalInverseGaussian` must be between `-alpha` and `alpha`, but `alpha` is "
                f"{self.alpha} and `beta` is {self.beta}."
            )

    def increment(self, h: Float[Array, ""], *uniform: Float[Array, " count"]) -> Float[Array, " count"]:
        """Returns independent increments over a step; see `AbstractLevy.increment`."""
        p = with_dtype(self, h.dtype)
        first, choice, second = uniform
        z, w = (math.sqrt(2) * jax.lax.erf_inv(2 * x - 1) for x in (first, second))
        gamma = jnp.sqrt((p.alpha - p.beta) * (p.alpha + p.beta))
        mean = h * p.scale / gamma
        time = mean * _inverse_gaussian(h * p.scale * gamma, z, choice)
        return p.beta * time + jnp.sqrt(time) * w


@jax.custom_jvp
def _inverse_gaussian(shape: Array, z: Array, choice: Array) -> Array:
    r"""Returns numbers of the inverse Gaussian distribution of mean one, from a normal and a uniform number each.

    The normal number fixes $(s - 1)^2 / s$, which two $s$ share; the uniform number chooses one of them.
    """
    half = z**2 / (2 * shape)
    larger = 1 + half + jnp.sqrt(half * (2 + half))
    return jnp.where(choice * (1 + 1 / larger) < 1, 1 / larger, larger)


@_inverse_gaussian.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    r"""The derivative at a fixed quantile, $\partial_\phi s = -\partial_\phi F / \partial_s F$.

    With $b = \sqrt{\phi / s} \, (s + 1)$ and Mills' ratio $R$ it is $s / \phi - 2 R(b) \sqrt{s^3 / \phi}$.
    """
    shape, *_ = primals
    s = _inverse_gaussian(*primals)
    b = jnp.sqrt(shape / s) * (s + 1)
    far = b > _FAR
    near, inverse = jnp.where(far, 1.0, b), jnp.where(far, b, _FAR) ** -2
    ratio = math.sqrt(math.pi / 2) * jnp.exp(near**2 / 2) * jax.lax.erfc(near / math.sqrt(2))
    series = (1 - inverse * (1 - inverse * (3 - inverse * (15 - 105 * inverse)))) / jnp.where(far, b, _FAR)
    slope = s / shape - 2 * jnp.where(far, series, ratio) * jnp.sqrt(s**3 / shape)
    return s, slope * tangents[0]


_FAR = 8.0
"""From here Mills' ratio is its asymptotic series, whose error is below 1e-6; the quotient overflows in float32."""
