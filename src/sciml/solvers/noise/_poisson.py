r"""Poisson numbers by inversion, one uniform number for each, with the same work for any mean.

Of a mean $\lambda < 10$ the law is summed up until it exceeds the uniform number. Of a larger one the distribution
function is $Q(n + 1, \lambda)$, an incomplete gamma function, and its inverse, with $w$ the normal number of the same
probability,

$$n = \lfloor x \rfloor, \qquad x = \lambda r + c_0(r) - \frac{0.0218}{x + 0.065 \lambda}, \qquad
\tfrac12 \frac{w^2}{\lambda} = 1 - r + r \log r, \qquad
c_0 = \frac{1}{\log r} \log \frac{w \sqrt{r}}{\sqrt{\lambda} (r - 1)}.$$

The distribution function is right to 4e-6. No lane waits for another, as with rejection.

Source:
    M. B. Giles, Algorithm 955: approximation of the inverse Poisson cumulative distribution function, ACM Transactions
    on Mathematical Software 42 (2016) 7.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SUMMED_UP_TO = 10.0
"""The mean up to which the law is summed up."""

_MOST_OF_FEW = 32
"""The end of the table: less than the distance of two uniform numbers lies beyond it."""

_NEAR = 0.1
"""How near to one $r$ is for its series."""

_RATIO = (-0.0013314, 1 / 270, -1 / 72, 1 / 6, 1.0)
_SHIFT = (0.00164, -0.0035243, 7 / 810, -1 / 36)
"""Series in the normal number over the root of the mean: of $r - 1$ over that number, and of $c_0 - 1/3$ over it."""


def poisson(mean: Float[Array, "..."], uniform: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns numbers of a Poisson law.

    Args:
        mean: The means, not negative.
        uniform: Numbers between 0 and 1, neither of them included, of the shape and dtype of the means.
    """
    small = mean < SUMMED_UP_TO
    few = _by_sums(jnp.where(small, mean, jnp.zeros_like(mean)), uniform)
    return jnp.where(small, few, _by_expansion(jnp.where(small, jnp.full_like(mean, SUMMED_UP_TO), mean), uniform))


def _by_sums(mean: Array, uniform: Array) -> Array:
    term = jnp.exp(-mean)
    left, count = uniform - term, jnp.zeros_like(mean)
    for n in range(1, _MOST_OF_FEW + 1):
        count = count + (left > 0).astype(mean.dtype)
        term = term * mean * (1 / n)
        left = left - term
    return count


def _by_expansion(mean: Array, uniform: Array) -> Array:
    s = math.sqrt(2) * jax.lax.erf_inv(2 * uniform - 1) / jnp.sqrt(mean)
    near = jnp.abs(s) < _NEAR
    rise = s * _polynomial(_RATIO, s)
    ratio = jnp.maximum(1 + rise, jnp.full_like(s, 0.02))
    far = jnp.where(near, jnp.full_like(s, 2.0), ratio)
    for _ in range(2):  # Newton's method
        slope = jnp.log(far)
        far = jnp.maximum(far - (1 - far + far * slope - s * s / 2) / slope, far / 5)
    at = jnp.where(near, jnp.full_like(s, 1.0), s)
    shift = jnp.log(at * jnp.sqrt(far) / (far - 1)) / jnp.log(far)
    shift = jnp.where(near, 1 / 3 + s * _polynomial(_SHIFT, s), shift)
    # the mean is added last, so that small values are not lost before
    moved = mean * jnp.where(near, rise, far - 1) + shift
    moved = moved - 0.0218 / jnp.maximum(moved + 1.065 * mean, jnp.ones_like(mean))
    return jnp.maximum(jnp.floor(mean + moved), jnp.zeros_like(mean))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    total = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total
