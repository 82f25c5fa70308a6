"""Methods for reactions of single molecules: Gillespie's direct method, and tau leaping."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...._types import RealScalarLike
from ...noise._random_bits import uniforms
from .._stepper import Step
from ._abstract import AbstractReactionStepper, ReactionState, one_reaction, waiting_time, wide


class Gillespie(AbstractReactionStepper):
    r"""Gillespie's direct method, which is exact: each step is one reaction.

    The time until the next reaction has an exponential law with the rate $\sum_j a_j$, and it is reaction $j$ with
    probability $a_j / \sum_k a_k$.

    Source:
        D. T. Gillespie, Journal of Physical Chemistry 81 (1977) 2340.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        decay = sciml.Reactions([[-1]], lambda x, args: args * x)
        sol = sciml.solve(
            decay, jnp.array([50.0]), t0=0.0, t1=100.0, args=jnp.array(1.0), key=jax.random.key(0),
            solver=sciml.solvers.Gillespie(),
        )
        assert sol.ys[-1, 0] == 0 and sol.stats.accepted == 51  # fifty decays, and then nothing
        ```
    """

    traits = AbstractReactionStepper.traits._replace(dense=True)

    def plan(self, field: Any, t: RealScalarLike, counts: ReactionState) -> tuple[Array, Array]:
        """Returns the time until the next reaction."""
        del t
        return waiting_time(field, counts), jnp.zeros_like(counts.leaps)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: Any) -> Step:
        """Waits for the next reaction, which happens if the step is long enough."""
        del memory
        return self.after(field, t, h, y, one_reaction(field, y), h >= y.left)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Any, y1: Any, dense: Any) -> Any:
        """Returns the state at the start: between reactions nothing changes."""
        del h, dense
        return jax.tree.map(lambda a, b: jnp.where(jnp.asarray(theta, a.dtype) >= 1, b, a), y0, y1)


# Poisson numbers by inversion, one uniform number for each, with the same work for any mean.
#
# Of a mean $\lambda < 10$ the law is summed up until it exceeds the uniform number. Of a larger one the distribution
# function is $Q(n + 1, \lambda)$, an incomplete gamma function, and its inverse, with $w$ the normal number of the same
# probability,
#
# $$n = \lfloor x \rfloor, \qquad x = \lambda r + c_0(r) - \frac{0.0218}{x + 0.065 \lambda}, \qquad
# \tfrac12 \frac{w^2}{\lambda} = 1 - r + r \log r, \qquad
# c_0 = \frac{1}{\log r} \log \frac{w \sqrt{r}}{\sqrt{\lambda} (r - 1)}.$$
#
# The distribution function is right to 4e-6. No lane waits for another, as with rejection.
#
# Source: M. B. Giles, Algorithm 955: approximation of the inverse Poisson cumulative distribution function, ACM
# Transactions on Mathematical Software 42 (2016) 7.


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


_FEW_REACTIONS = 10.0  # reactions for which a leap is not worth while
_HIGHEST = 3.0  # by how much a propensity may change, relatively, for a small change of a count of at least one


class TauLeaping(AbstractReactionStepper):
    r"""Tau leaping with steps such that propensities change only by a small fraction.

    Over a step of length $\tau$ reaction $j$ happens a number of times that has a Poisson law with mean $a_j \tau$.
    With $\mu_i = \sum_j \nu_{ji} a_j$ and $\sigma_i^2 = \sum_j \nu_{ji}^2 a_j$,

    $$\tau = \min_i \min\Big(\frac{\max(\epsilon x_i / g, 1)}{|\mu_i|},
    \frac{\max(\epsilon x_i / g, 1)^2}{\sigma_i^2}\Big)$$

    with $g = 3$, enough for reactions of second order. If that is less than the time for ten reactions, they are
    simulated one by one, exactly. A step that leads to a negative count is tried again, half as long.

    Attributes:
        epsilon: $\epsilon$, how much propensities may change.

    Source:
        Y. Cao, D. T. Gillespie, L. R. Petzold, Efficient step size selection for the tau-leaping simulation method,
        Journal of Chemical Physics 124 (2006) 044109.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        decay = sciml.Reactions([[-1]], lambda x, args: x)
        sol = sciml.solve(
            decay, jnp.array([1e5]), t0=0.0, t1=1.0, key=jax.random.key(0), solver=sciml.solvers.TauLeaping()
        )
        assert abs(sol.ys[-1, 0] - 1e5 * jnp.exp(-1.0)) < 2000 and sol.stats.accepted < 1000
        ```
    """

    epsilon: float = eqx.field(static=True, default=0.03)

    def __check_init__(self):
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, float | int) or not 0 < self.epsilon < 1:
            raise ValueError(f"`epsilon` of `TauLeaping` must be a number between 0 and 1, but is {self.epsilon!r}.")

    def plan(self, field: Any, t: RealScalarLike, counts: ReactionState) -> tuple[Array, Array]:
        """Returns the length of a leap, or the time until the next reaction."""
        del t
        rates, changes = field["rates"](counts.x), field["changes"](counts.x)
        mean = jnp.abs(jnp.sum(changes * rates[:, None], axis=0))
        variance = jnp.sum(changes**2 * rates[:, None], axis=0)
        allowed = jnp.maximum(self.epsilon * counts.x / _HIGHEST, 1.0)

        def least(bound: Array, of: Array) -> Array:
            moves = of > 0
            return jnp.min(jnp.where(moves, bound / jnp.where(moves, of, jnp.ones_like(of)), jnp.inf))

        leap = jnp.minimum(least(allowed, mean), least(allowed**2, variance))
        worth = leap * jnp.sum(rates) > _FEW_REACTIONS
        return jnp.where(worth, leap, waiting_time(field, counts)), worth.astype(counts.leaps.dtype)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: Any) -> Step:
        """Takes a leap, of the planned length or shorter, or waits for the next reaction."""
        del memory
        leaps = y.leaps > 0.5
        # numbers that belong to the draw and to the length, which is another where a leap is tried again
        length = jnp.asarray(h, jnp.float32)
        length = jax.lax.bitcast_convert_type(length, jnp.uint32)
        words = field["bits"](y.number.astype(jnp.uint32) ^ (y.rounds.astype(jnp.uint32) << 24), length)
        means = jnp.where(leaps, jnp.maximum(field["rates"](y.x) * jnp.asarray(h, y.x.dtype), 0), 0)
        means = means.astype(wide(y.x))
        uniform = uniforms(jnp.stack(words), jnp.zeros((), jnp.uint32), means.shape[0], means.dtype)
        times = poisson(means, uniform).astype(y.x.dtype)
        leapt = y.x + jnp.sum(field["changes"](y.x) * times[:, None], axis=0)
        x = jnp.where(leaps, leapt, one_reaction(field, y))
        step = self.after(field, t, h, y, x, leaps | (h >= y.left))
        return step._replace(admissible=jnp.all(x >= 0) | ~leaps)
