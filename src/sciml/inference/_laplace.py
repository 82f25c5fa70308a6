"""Laplace's approximation of a posterior: a normal distribution about its maximum."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PyTree

from .._checks import check_count, check_key
from .._same_code import filter_jit
from .._types import Key
from .._warn import warn
from ._climb import Peak, inverse_curvature
from ._maximum import check_peak, find, numbers


class WeightedDraws(eqx.Module):
    """Draws with weights; returned by `LaplaceApproximation.weighted`.

    Attributes:
        positions: The draws, with a leading axis of length `n`.
        log_weights: Logarithms of the weights, which sum to one, shape `(n,)`.
        log_evidence: The logarithm of the posterior's integral, by the mean weight.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = jnp.array(1.0)
        priors = [(lambda m: m, inference.Gamma(2.0, 1.0))]
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m), jnp.array([3.0, 4.0]), priors)
        draws = density.laplace().weighted(jax.random.key(0), 100)
        assert 50 < draws.effective <= 100 and draws.resample(jax.random.key(1), 7).shape == (7,)
        ```
    """

    positions: PyTree
    log_weights: Float[Array, " n"]
    log_evidence: Float[Array, ""]

    @property
    def weights(self) -> Float[Array, " n"]:
        """The weights, which sum to one."""
        return jnp.exp(self.log_weights)

    @property
    def effective(self) -> Float[Array, ""]:
        r"""How many draws of equal weight they are worth, $1 / \sum_i w_i^2$."""
        return jnp.exp(-logsumexp(2 * self.log_weights))

    def resample(self, key: Key, n: int) -> PyTree:
        """Returns `n` of the draws, picked with their weights, so that they count alike."""
        chosen = jax.random.categorical(key, self.log_weights, shape=(n,))
        return jax.tree.map(lambda x: x[chosen], self.positions)


class LaplaceApproximation(eqx.Module):
    r"""A normal distribution of the free variables about their maximum; returned by `LogDensity.laplace`.

    Attributes:
        density: The approximated density.
        mode: The position of the maximum.
        covariance: The inverse of minus the Hessian there, in the free variables, shape `(p, p)`; infinite in rows and
            columns of undetermined parameters.
        standard_errors: Standard deviations in the parameters' own units, to first order, in the structure of the model
            with None at leaves that are not sampled.
        log_evidence: The logarithm of $\int p(d \mid x) p(x) dx$ that it gives, $\log p + \frac{p}{2} \log 2 \pi +
            \frac12 \log \det \Sigma$; infinite if a direction is not determined.
        names: The parameters' names, in the order of the covariance.
        undetermined: Directions that data and priors do not determine, in words.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = jnp.array(1.0)
        priors = [(lambda m: m, inference.Gamma(2.0, 1.0))]
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m), jnp.array([3.0, 4.0]), priors)
        draws = density.laplace().weighted(jax.random.key(0), 2000)
        mean = jnp.sum(draws.weights * jax.vmap(density.constrain)(draws.positions))
        assert abs(mean - 3.0) < 0.1  # that of a Gamma(9, 3)
        ```
    """

    density: Any
    mode: PyTree
    covariance: Float[Array, "p p"]
    standard_errors: PyTree
    log_evidence: Float[Array, ""]
    names: tuple[str, ...] = eqx.field(static=True)
    undetermined: tuple[str, ...] = eqx.field(static=True)
    _factor: Float[Array, "p p"] | None

    def __str__(self) -> str:
        width = max(9, *(len(name) for name in self.names[:30]))
        lines = [f"{'parameter':<{width}}  {'maximum':>12}  {'std. error':>12}"]
        best, errors = (numbers(x) for x in (self.density.sampled(self.model), self.standard_errors))
        rows = list(zip(self.names, best, errors, strict=True))
        lines += [f"{name:<{width}}  {value:>12.6g}  {error:>12.3g}" for name, value, error in rows[:30]]
        lines += [f"... and {len(rows) - 30} more"] if len(rows) > 30 else []
        return "\n".join([*lines, f"logarithm of the evidence {float(self.log_evidence):.6g}"])

    @property
    def model(self) -> PyTree:
        """The model at the maximum."""
        return self.density.constrain(self.mode)

    @property
    def factor(self) -> Float[Array, "p p"]:
        """Returns $L$ of the covariance $L L^T$, shape `(p, p)`, by the free variables.

        It is not triangular: its columns are directions along which the variables vary independently of one another.

        Raises:
            ValueError: If a direction is not determined.

        Example:
            ```python
            import jax.numpy as jnp
            from sciml import inference

            priors = [(lambda m: m["a"], inference.Normal(0.0, 1.0)), (lambda m: m["b"], inference.Normal(0.0, 2.0))]
            model = dict(a=jnp.array(0.1), b=jnp.array(0.1))
            density = inference.log_density(
                model, lambda m: inference.Normal(m["a"] + m["b"], 0.5), jnp.array([1.0, 1.2]), priors
            )
            approximation = density.laplace()
            spread = approximation.factor @ approximation.factor.T
            assert jnp.allclose(spread, approximation.covariance, rtol=1e-4)
            assert spread[0, 1] < 0  # data know the sum alone
            ```
        """
        if self._factor is None:
            raise ValueError(
                "`sample` requires a finite covariance, but data and priors do not determine "
                f"{'; '.join(self.undetermined)}. Add informative priors, or leave out some of these parameters."
            )
        return self._factor

    def sample(self, key: Key, n: int) -> PyTree:
        """Draws positions, with a leading axis of length `n`; `jax.vmap(density.constrain)` makes them models.

        Raises:
            ValueError: If a direction is not determined.
        """
        factor = self.factor
        noise = _noise(check_key(key, "sample"), check_count(n, "n", "sample"), factor)
        return jax.vmap(self.density.unravel)(self.density.ravel(self.mode)[None] + noise @ factor.T)

    def log_prob(self, position: PyTree) -> Float[Array, ""]:
        """Returns the logarithm of the density of the approximation at a position."""
        factor = self.factor
        away = self.density.ravel(position) - self.density.ravel(self.mode)
        scaled = jnp.linalg.solve(factor, away)
        size = jnp.linalg.slogdet(factor)[1]
        return -0.5 * scaled @ scaled - size - 0.5 * away.size * float(np.log(2 * np.pi))

    def weighted(self, key: Key, n: int) -> WeightedDraws:
        """Draws positions with weights by which they are draws from the posterior itself.

        Importance sampling: the weight of a draw is the posterior's density over the approximation's. If the posterior
        has wider tails than a normal distribution, a few draws have most of the weight, which `WeightedDraws.effective`
        shows.

        Raises:
            ValueError: If a direction is not determined.
        """
        positions = self.sample(key, n)
        return _weighted(self, positions)


@filter_jit
def _weighted(approximation: LaplaceApproximation, positions: PyTree) -> WeightedDraws:
    def excess(position):
        return approximation.density(position) - approximation.log_prob(position)

    found = jax.vmap(excess)(positions)
    total = logsumexp(found)
    return WeightedDraws(positions, found - total, total - float(np.log(found.size)))


def _noise(key: Key, n: int, factor: Array) -> Float[Array, "n p"]:
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(n))
    return jax.vmap(lambda k: jax.random.normal(k, factor.shape[:1], factor.dtype))(keys)


def laplace(
    density: Any, start: PyTree, *, starts: int, key: Key | None, max_steps: int, rtol: float | None
) -> LaplaceApproximation:
    """`LogDensity.laplace`."""
    peak = find(density, start, own_units=False, starts=starts, key=key, max_steps=max_steps, rtol=rtol, what="laplace")
    check_peak(peak, density, "laplace")
    return _approximation(density, peak)


def _approximation(density: Any, peak: Peak) -> LaplaceApproximation:
    names = density.names
    inverse = inverse_curvature(peak.hessian, names, density.dtype)
    factor, undetermined, covariance = inverse.factor, inverse.undetermined, inverse.covariance()
    log_evidence = np.inf
    if undetermined:
        warn(
            f"`laplace`: data and priors do not determine {'; '.join(undetermined)} (in free variables: logarithms of "
            "positive parameters, logits of bounded ones), so the covariance is infinite there. Add informative "
            "priors, or leave out some of these parameters.",
        )
    else:
        size = np.linalg.slogdet(factor)[1]
        log_evidence = peak.value + 0.5 * len(names) * np.log(2 * np.pi) + size
    z = jnp.asarray(peak.z, density.dtype)
    with np.errstate(invalid="ignore"):
        errors = np.sqrt(np.diagonal(covariance)) * np.abs(np.asarray(density.slope(z), np.float64))
    dtype = density.dtype
    return LaplaceApproximation(
        density=density,
        mode=density.unravel(z),
        covariance=jnp.asarray(covariance, dtype),
        standard_errors=density.unravel(jnp.asarray(errors, dtype)),
        log_evidence=jnp.asarray(log_evidence, dtype),
        names=names,
        undetermined=undetermined,
        _factor=None if undetermined else jnp.asarray(factor, dtype),
    )
