"""Diagnostics of a population: predictions, weighted residuals, shrinkage, and normalised prediction errors."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._derivatives import hessian_of
from .distributions._abstract import AbstractDistribution
from .distributions._censored import Censored
from .distributions._normal import LogNormal


class PopulationDiagnostics(eqx.Module):
    r"""Predictions, residuals and shrinkage of a population, returned by `Hierarchical.diagnostics`.

    Predictions are means of data, and medians of `LogNormal` data, whose residuals are in logarithms. The first
    four have the structure and the shapes of the data; residuals of missing and of censored data are NaN.

    Attributes:
        pred: Predictions at typical effects (PRED).
        ipred: Predictions at the most probable effects of each subject (IPRED).
        iwres: Residuals of `ipred`, divided by the standard deviation there (IWRES).
        cwres: Conditional weighted residuals (CWRES): with the prediction linearised about the most probable effects,
            $V^{-1/2} (y - E[y])$ with the covariance $V$ of a subject's data and its symmetric root, as in NONMEM.
        effects: The most probable effects of each subject (empirical Bayes estimates, ETA).
        eta_shrinkage: $1 - \text{SD}(\hat\eta) / \omega$ of each effect, in the structure of one subject's effects; of
            the logarithms of positive effects.
        epsilon_shrinkage: $1 - \text{SD}(\text{IWRES})$, in the structure of the data.
    """

    pred: PyTree
    ipred: PyTree
    iwres: PyTree
    cwres: PyTree
    effects: PyTree
    eta_shrinkage: PyTree
    epsilon_shrinkage: PyTree


def _residual_of(distribution: AbstractDistribution, x: Array) -> tuple[Array, Array, Array, Array]:
    """Returns data, their means and variances on the scale of residuals, and predictions on the scale of data."""
    if isinstance(distribution, Censored):
        below = jnp.broadcast_to(distribution.below, x.shape)
        return _residual_of(distribution.distribution, jnp.where(below, jnp.nan, x))
    if isinstance(distribution, LogNormal):
        mean, variance = jnp.broadcast_to(distribution.location, x.shape), distribution.scale**2
        return jnp.log(x), mean, jnp.broadcast_to(variance, x.shape), jnp.exp(mean)
    mean, variance = (jnp.broadcast_to(m, x.shape) for m in distribution.moments())
    return x, mean, variance, mean


def _flat(parts: Sequence[Array]) -> Array:
    return jnp.concatenate([part.reshape(-1) for part in parts])


def gaussian_of(log_prior: Any, size: int) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
    """Returns mean and covariance of effects by their free variables; exact if these are normal."""
    zero = jnp.zeros(size, jnp.result_type(float))
    covariance = jnp.linalg.inv(-hessian_of(log_prior, zero)(zero))
    return covariance @ jax.grad(log_prior)(zero), covariance


def residuals_of_subject(population: Any, model: Any, subject: Any, own: Any, z: Float[Array, " q"]) -> tuple:
    """Returns `pred`, `ipred`, `iwres` and `cwres` of one subject.

    Args:
        population: The population.
        model: Its parameters.
        subject: The subject.
        own: Its data.
        z: The free variables of its most probable effects.
    """
    leaves, treedef = jtu.tree_flatten(own)
    typical, omega = gaussian_of(lambda z: population.log_prior(model, z), z.size)

    def moments(z: Array) -> tuple[Array, list[Array]]:
        parts = [_residual_of(d, x) for d, x in zip(population.observed(model, z, subject), leaves, strict=True)]
        seen, mean, variance, prediction = (_flat(part) for part in zip(*parts, strict=True))
        return mean, [seen, mean, variance, prediction]

    slopes, (seen, mean, variance, ipred) = jax.jacfwd(moments, has_aux=True)(z)
    pred = moments(typical)[1][3]
    there = jnp.isfinite(seen)
    residual = jnp.where(there, seen - mean, 0)
    slopes = jnp.where(there[:, None], slopes, 0)
    covariance = slopes @ omega @ slopes.T + jnp.diag(jnp.where(there, variance, 1))
    values, vectors = jnp.linalg.eigh(covariance)
    away = jnp.where(there, residual - slopes @ (typical - z), 0)
    cwres = vectors @ ((vectors.T @ away) * jax.lax.rsqrt(values))

    def split(flat: Array) -> Any:
        ends = np.cumsum([x.size for x in leaves])[:-1]
        parts = [part.reshape(x.shape) for part, x in zip(jnp.split(flat, ends), leaves, strict=True)]
        return jtu.tree_unflatten(treedef, parts)

    iwres = jnp.where(there, residual / jnp.sqrt(variance), jnp.nan)
    return split(pred), split(ipred), split(iwres), split(jnp.where(there, cwres, jnp.nan))


def shrinkages(population: Any, model: Any, zs: Float[Array, "subjects q"], iwres: PyTree) -> tuple[PyTree, PyTree]:
    """Returns the shrinkage of effects and of residuals."""
    _, omega = gaussian_of(lambda z: population.log_prior(model, z), zs.shape[1])
    of_effects = 1 - jnp.std(zs, axis=0, ddof=1) / jnp.sqrt(jnp.diagonal(omega))
    of_residuals = jtu.tree_map(lambda x: 1 - jnp.sqrt(jnp.nanvar(x, ddof=1)), iwres)
    return population.split(model, of_effects), of_residuals


def npde(dv: Any, simulated: Any) -> Float[np.ndarray, "subjects records"]:
    r"""Returns normalised prediction distribution errors (NPDE).

    If the model is right, they are independent and standard normal. The data of a subject and its simulated data are
    decorrelated by the Cholesky factor of the covariance of the simulated ones. The share of simulated values below a
    datum is then converted to a quantile of the standard normal distribution.

    Args:
        dv: The data (DV), shape `(subjects, records)`; NaN if they are missing or below a limit.
        simulated: Simulated data, shape `(replicates, subjects, records)`: a thousand replicates are usual, and there
            must be more than records.

    Returns:
        The NPDE, NaN for missing data.

    Raises:
        ValueError: If shapes do not fit together, or there are too few replicates.

    Source:
        E. Comets, K. Brendel and F. Mentré, Computing normalised prediction distribution errors to evaluate nonlinear
        mixed-effect models: the npde add-on package for R, Comput. Methods Programs Biomed. 90:154, 2008.

    Example:
        ```python
        import numpy as np
        from sciml import inference

        drawn = np.random.default_rng(0).normal(2.0, 0.5, (1001, 30, 4))
        errors = inference.npde(drawn[0], drawn[1:])
        assert errors.shape == (30, 4) and abs(errors.mean()) < 0.3
        ```
    """
    import scipy.special  # late: its import changes the filters of warnings

    dv, simulated = np.asarray(dv, np.float64), np.asarray(simulated, np.float64)
    if dv.ndim != 2 or simulated.shape[1:] != dv.shape:
        raise ValueError(
            "`npde` requires data of shape (subjects, records) and simulated data of shape (replicates, subjects, "
            f"records), but shapes are {dv.shape} and {simulated.shape}."
        )
    count = len(simulated)
    if count <= dv.shape[1]:
        raise ValueError(f"`npde` requires more replicates than the {dv.shape[1]} records, but got {count}.")
    found = np.full(dv.shape, np.nan)
    for i, own in enumerate(dv):
        seen = np.isfinite(own)
        drawn = simulated[:, i, seen]
        mean = drawn.mean(axis=0)
        factor = np.linalg.cholesky(np.cov(drawn.T).reshape(drawn.shape[1], -1))
        own, drawn = (np.linalg.solve(factor, (x - mean).T).T for x in (own[seen], drawn))
        share = np.clip(np.mean(drawn < own, axis=0), 0.5 / count, 1 - 0.5 / count)
        found[i, seen] = scipy.special.ndtri(share)
    return found
