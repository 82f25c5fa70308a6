"""Distributions of counts."""

from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ..._types import Key
from ._abstract import AbstractDistribution, check_positive, default, like


def _refuse(name: str) -> NoReturn:
    raise TypeError(
        f"`{name}` is a distribution of counts, which have no derivative, so it is not a prior for a parameter, only "
        "a distribution of observations. For positive parameters use `Gamma`."
    )


def _counted(x: Array) -> tuple[Array, Array]:
    """Numbers that may be counts, zero instead of others, and a mask of the valid ones."""
    counts = (x >= 0) & (x == jnp.floor(x))
    return jnp.where(counts | jnp.isnan(x), x, 0), counts | jnp.isnan(x)  # of NaN comes NaN


class PoissonCounts(AbstractDistribution):
    r"""Counts of independent events, $P(n) = \lambda^n e^{-\lambda} / n!$.

    Attributes:
        mean: $\lambda \ge 0$, which is also the variance.

    Raises:
        ValueError: If `mean` is known, and is negative or not finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import PoissonCounts

        assert jnp.allclose(PoissonCounts(2.0).log_prob(jnp.array(1.0)), jnp.log(2.0) - 2.0)
        ```
    """

    mean: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "mean", zero=True)

    @property
    def transform(self) -> NoReturn:
        """Counts are not free variables."""
        _refuse("PoissonCounts")

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the probability, elementwise: minus infinity if `x` is not a nonnegative integer."""
        mean, (n, counts) = like(self.mean, x), _counted(x)
        return jnp.where(counts, xlogy(n, mean) - mean - gammaln(n + 1), -jnp.inf)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape, as floating-point numbers."""
        mean = default(self.mean, shape)
        return jax.random.poisson(key, mean, shape).astype(mean.dtype)

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $\lambda$ twice."""
        return self.mean, self.mean

    def information(self) -> dict[str, Float[Array, "..."]]:
        r"""Returns the Fisher information of one count: $1 / \lambda$ about $\lambda$."""
        return {"mean": 1 / self.mean}


class NegativeBinomial(AbstractDistribution):
    r"""Counts that vary more than Poisson's, with the mean $\mu$ and the variance $\mu + \mu^2 / k$.

    $$P(n) = \frac{\Gamma(n + k)}{\Gamma(k)\, n!} \left(\frac{k}{k + \mu}\right)^{k}
    \left(\frac{\mu}{k + \mu}\right)^{n}$$

    They are Poisson counts of a mean that is itself drawn from a gamma distribution.

    Attributes:
        mean: $\mu \ge 0$.
        concentration: $k > 0$: the larger, the closer to Poisson's; often written $1 / \phi$.

    Raises:
        ValueError: If `mean` is known and negative, or `concentration` known and not positive.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import NegativeBinomial, PoissonCounts

        n = jnp.array(7.0)
        assert jnp.allclose(NegativeBinomial(5.0, 1e4).log_prob(n), PoissonCounts(5.0).log_prob(n), atol=5e-3)
        ```
    """

    mean: Parameter = eqx.field(converter=parameter)
    concentration: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "mean", zero=True)
        check_positive(self, "concentration")

    @property
    def transform(self) -> NoReturn:
        """Counts are not free variables."""
        _refuse("NegativeBinomial")

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the probability, elementwise: minus infinity if `x` is not a nonnegative integer."""
        mean, k, (n, counts) = like(self.mean, x), like(self.concentration, x), _counted(x)
        ways = gammaln(n + k) - gammaln(k) - gammaln(n + 1)
        return jnp.where(counts, ways - k * jnp.log1p(mean / k) + xlogy(n, mean / (k + mean)), -jnp.inf)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape, as floating-point numbers."""
        mean, k = default(self.mean, shape), default(self.concentration, shape)
        first, second = jax.random.split(key)
        means = mean * jax.random.gamma(first, k, shape, mean.dtype) / k
        return jax.random.poisson(second, means, shape).astype(mean.dtype)

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $\mu$ and $\mu + \mu^2 / k$."""
        mean, k = jnp.broadcast_arrays(self.mean, self.concentration)
        return mean, mean + mean**2 / k
