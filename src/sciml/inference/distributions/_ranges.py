"""Distributions on a range: uniform, gamma, beta, and the flat one."""

from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaln, xlog1py, xlogy
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ..._types import Key
from ...training import AbstractTransform, Bounded, Positive
from ...training._transforms import Identity
from ._abstract import AbstractDistribution, check_positive, default, known, like


class Uniform(AbstractDistribution):
    r"""Any number of a range alike, $p(x) = 1 / (b - a)$ for $a \le x \le b$.

    Attributes:
        lower: $a$.
        upper: $b > a$.

    Raises:
        ValueError: If the bounds are known, and `lower` is not below `upper`, or one is infinite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Uniform

        assert jnp.allclose(Uniform(1.0, 3.0).log_prob(jnp.array([0.0, 2.0])), jnp.array([-jnp.inf, -jnp.log(2.0)]))
        ```
    """

    lower: Parameter = eqx.field(converter=parameter)
    upper: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        lower, upper = known(self.lower), known(self.upper)
        if lower is None or upper is None:
            return
        if not np.all(np.isfinite(upper - lower) & (lower < upper)):
            raise ValueError(
                f"`lower` of `Uniform` must be below `upper`, and both finite, but they are {lower} and {upper}. For "
                "an infinite range use `Improper(Positive())`."
            )

    @property
    def transform(self) -> AbstractTransform:
        """Numbers between the bounds."""
        return Bounded(self.lower, self.upper)

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        lower, upper = like(self.lower, x), like(self.upper, x)
        return jnp.where((x >= lower) & (x <= upper), -jnp.log(upper - lower), -jnp.inf)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        dtype = jnp.result_type(float)
        share = jax.random.uniform(key, shape, dtype, minval=float(jnp.finfo(dtype).eps))
        lower = default(self.lower, shape)
        return lower + (default(self.upper, shape) - lower) * share

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns the middle, and a twelfth of the width's square."""
        lower, upper = jnp.broadcast_arrays(self.lower, self.upper)
        return 0.5 * (lower + upper), (upper - lower) ** 2 / 12


class Gamma(AbstractDistribution):
    r"""The gamma distribution, $p(x) \propto x^{k - 1} e^{-\lambda x}$ for $x > 0$; exponential for $k = 1$.

    Attributes:
        shape: $k > 0$.
        rate: $\lambda > 0$; the mean is $k / \lambda$.

    Raises:
        ValueError: If `shape` or `rate` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Gamma

        assert jnp.allclose(Gamma(1.0, 2.0).log_prob(jnp.array(3.0)), jnp.log(2.0) - 6.0)
        ```
    """

    shape: Parameter = eqx.field(converter=parameter)
    rate: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "shape", "rate")

    @property
    def transform(self) -> AbstractTransform:
        """Positive numbers."""
        return Positive()

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        k, rate = like(self.shape, x), like(self.rate, x)
        return k * jnp.log(rate) - gammaln(k) + xlogy(k - 1, x) - rate * x

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        found = jax.random.gamma(key, default(self.shape, shape), shape, jnp.result_type(float))
        return found / default(self.rate, shape)

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $k / \lambda$ and $k / \lambda^2$."""
        k, rate = jnp.broadcast_arrays(self.shape, self.rate)
        return k / rate, k / rate**2


class Beta(AbstractDistribution):
    r"""The beta distribution of a share, $p(x) \propto x^{a - 1} (1 - x)^{b - 1}$ for $0 < x < 1$.

    Attributes:
        a: $a > 0$: like $a - 1$ successes in $a + b - 2$ trials.
        b: $b > 0$.

    Raises:
        ValueError: If `a` or `b` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Beta

        assert jnp.allclose(Beta(2.0, 1.0).log_prob(jnp.array(0.25)), jnp.log(0.5))
        ```
    """

    a: Parameter = eqx.field(converter=parameter)
    b: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "a", "b")

    @property
    def transform(self) -> AbstractTransform:
        """Numbers between 0 and 1."""
        return Bounded(0.0, 1.0)

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        a, b = like(self.a, x), like(self.b, x)
        return xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        return jax.random.beta(key, default(self.a, shape), default(self.b, shape), shape, jnp.result_type(float))

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $m = a / (a + b)$ and $m (1 - m) / (a + b + 1)$."""
        a, b = jnp.broadcast_arrays(self.a, self.b)
        mean = a / (a + b)
        return mean, mean * (1 - mean) / (a + b + 1)


class Improper(AbstractDistribution):
    """No preference: the density is one for all values in the range of a transform, and there is nothing to draw from.

    With it a posterior is a likelihood, and its maximum is the maximum of the likelihood.

    Attributes:
        transform: The range: `Identity()`, `Positive()` or `Bounded(lower, upper)` of `sciml.training`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Improper
        from sciml.training import Positive

        assert Improper(Positive()).log_prob(jnp.array(5.0)) == 0
        ```
    """

    transform: AbstractTransform = eqx.field(default_factory=Identity)

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns zeros."""
        return jnp.zeros_like(x)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> NoReturn:
        """Raises: there is nothing to draw from."""
        raise ValueError(
            "an `Improper` prior cannot be sampled. Use a proper prior, such as `Normal` or `LogNormal`, or start from "
            "your own position, such as `density.unconstrain(model)`."
        )

    def moments(self) -> NoReturn:
        """Raises: it has none."""
        raise ValueError("an `Improper` prior has neither a mean nor a variance.")
