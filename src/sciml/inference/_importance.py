"""Importance sampling of the marginal likelihood of a population."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float

from .._same_code import filter_jit
from .._types import Key
from ._effects_integral import cholesky, of_subjects, solve_lower

# The proposal's tails are heavier than those of a normal distribution, so that weights are bounded.
_DEGREES = 5.0


@filter_jit
def importance(
    population: Any, model: Any, key: Key, n: int
) -> tuple[Float[Array, " subjects"], Float[Array, " subjects"]]:
    r"""Returns the logarithm of the likelihood of each subject, and the variance of this estimate.

    The mean of $p(d, z) / q(z)$ over draws from $q$: Student's distribution about the most probable effects.
    """
    true = dataclasses.replace(population, method="laplace")  # FOCE without interaction has another density

    def one(model: Any, subject: Any, own: Any, key: Key) -> tuple[Array, Array]:
        z, curvature = population.mode(model, subject, own)
        factor, joint, q = cholesky(curvature), true.joint(model, subject, own), z.size
        of_normal, of_chi = jax.random.split(key)
        chi = jax.random.chisquare(of_chi, _DEGREES, (n, 1), z.dtype)
        x = jax.random.normal(of_normal, (n, q), z.dtype) * jnp.sqrt(_DEGREES / chi)
        constant = gammaln(0.5 * (_DEGREES + q)) - gammaln(0.5 * _DEGREES) - 0.5 * q * float(np.log(_DEGREES * np.pi))
        size = constant.astype(z.dtype) + jnp.sum(jnp.log(jnp.diagonal(factor)))
        log_q = size - 0.5 * (_DEGREES + q) * jnp.log1p(jnp.sum(x**2, axis=1) / _DEGREES)
        log_p = jax.vmap(lambda x: joint(z + solve_lower(factor, x, transposed=True)))(x)
        log_w = jnp.where(jnp.isnan(log_p), -jnp.inf, log_p) - log_q
        total = logsumexp(log_w)
        # of the mean weight, relative to it
        variance = jnp.exp(logsumexp(2 * log_w) - 2 * total) - 1 / n
        return jnp.where(jnp.isfinite(z[0]), total - float(np.log(n)), jnp.nan), variance

    count = jax.tree.leaves(population.data)[0].shape[0]
    return of_subjects(one, model, population.subjects, population.data, jax.random.split(key, count))
