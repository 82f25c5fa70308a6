"""Distributions about a location: normal, Student's, and of logarithms and magnitudes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ..._types import Key
from ...training import AbstractTransform, Positive
from ...training._transforms import Identity
from ._abstract import AbstractDistribution, check_positive, default, like

_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


class Normal(AbstractDistribution):
    r"""The normal distribution, $p(x) \propto e^{-(x - \mu)^2 / 2 \sigma^2} / \sigma$.

    Attributes:
        location: $\mu$.
        scale: $\sigma > 0$.

    Raises:
        ValueError: If `scale` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Normal

        assert jnp.allclose(Normal(1.0, 2.0).log_prob(jnp.array(1.0)), -jnp.log(2.0) - 0.5 * jnp.log(2 * jnp.pi))
        ```
    """

    location: Parameter = eqx.field(converter=parameter)
    scale: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "scale")

    @property
    def transform(self) -> AbstractTransform:
        """Any number."""
        return Identity()

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        scale = like(self.scale, x)
        return -0.5 * ((x - like(self.location, x)) / scale) ** 2 - jnp.log(scale) - _HALF_LOG_2PI

    def log_cdf(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the probability of a smaller number, elementwise."""
        return jax.scipy.special.log_ndtr((x - like(self.location, x)) / like(self.scale, x))

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        noise = jax.random.normal(key, shape, jnp.result_type(float))
        return default(self.location, shape) + default(self.scale, shape) * noise

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $\mu$ and $\sigma^2$."""
        return self.location, self.scale**2

    def information(self) -> dict[str, Float[Array, "..."]]:
        r"""Returns the Fisher information of one number: $1 / \sigma^2$ about $\mu$, $2 / \sigma^2$ about $\sigma$."""
        return {"location": 1 / self.scale**2, "scale": 2 / self.scale**2}


class LogNormal(AbstractDistribution):
    r"""The distribution of a quantity with a normal logarithm, $\log x \sim N(\mu, \sigma^2)$; its median is $e^\mu$.

    Attributes:
        location: $\mu$, of the logarithm.
        scale: $\sigma > 0$, of the logarithm: 0.1 is a tenth.

    Raises:
        ValueError: If `scale` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import LogNormal

        mean, variance = LogNormal(jnp.log(2.0), 0.1).moments()
        assert abs(float(mean) - 2.01) < 1e-3
        ```
    """

    location: Parameter = eqx.field(converter=parameter)
    scale: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "scale")

    @property
    def transform(self) -> AbstractTransform:
        """Positive numbers."""
        return Positive()

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        log_x = jnp.log(x)
        return Normal(self.location, self.scale).log_prob(log_x) - log_x

    def log_cdf(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the probability of a smaller number, elementwise."""
        positive = x > 0
        under = Normal(self.location, self.scale).log_cdf(jnp.log(jnp.where(positive, x, 1)))
        return jnp.where(positive, under, -jnp.inf)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        return jnp.exp(Normal(self.location, self.scale).draw(key, shape))

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $m = e^{\mu + \sigma^2 / 2}$ and $m^2 (e^{\sigma^2} - 1)$."""
        location, scale = jnp.broadcast_arrays(self.location, self.scale)
        mean = jnp.exp(location + 0.5 * scale**2)
        return mean, mean**2 * jnp.expm1(scale**2)

    def information(self) -> dict[str, Float[Array, "..."]]:
        r"""Returns the Fisher information of one number: $1 / \sigma^2$ about $\mu$, $2 / \sigma^2$ about $\sigma$."""
        return {"location": 1 / self.scale**2, "scale": 2 / self.scale**2}


class HalfNormal(AbstractDistribution):
    r"""The distribution of a normal number's magnitude, $p(x) \propto e^{-x^2 / 2 \sigma^2}$ for $x > 0$.

    A prior of standard deviations, which may be close to zero.

    Attributes:
        scale: $\sigma > 0$.

    Raises:
        ValueError: If `scale` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import HalfNormal, Normal

        x = jnp.array(0.7)
        assert jnp.allclose(HalfNormal(2.0).log_prob(x), Normal(0.0, 2.0).log_prob(x) + jnp.log(2.0))
        ```
    """

    scale: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "scale")

    @property
    def transform(self) -> AbstractTransform:
        """Positive numbers."""
        return Positive()

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        inside = Normal(0.0, self.scale).log_prob(x) + float(np.log(2))
        return jnp.where(x >= 0, inside, -jnp.inf)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        return jnp.abs(Normal(0.0, self.scale).draw(key, shape))

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $\sigma \sqrt{2 / \pi}$ and $\sigma^2 (1 - 2 / \pi)$."""
        return self.scale * float(np.sqrt(2 / np.pi)), self.scale**2 * float(1 - 2 / np.pi)


class StudentT(AbstractDistribution):
    r"""Student's distribution, $p(x) \propto (1 + ((x - \mu) / \sigma)^2 / \nu)^{-(\nu + 1) / 2}$.

    As the distribution of observations it forgives outliers.

    Attributes:
        degrees: $\nu > 0$, the degrees of freedom: with 4 outliers are common, with 30 it is nearly normal.
        location: $\mu$.
        scale: $\sigma > 0$.

    Raises:
        ValueError: If `degrees` or `scale` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Normal, StudentT

        far = jnp.array(8.0)
        assert StudentT(4.0, 0.0, 1.0).log_prob(far) > Normal(0.0, 1.0).log_prob(far) + 20
        ```
    """

    degrees: Parameter = eqx.field(converter=parameter)
    location: Parameter = eqx.field(converter=parameter)
    scale: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_positive(self, "degrees", "scale")

    @property
    def transform(self) -> AbstractTransform:
        """Any number."""
        return Identity()

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, elementwise."""
        nu, scale = like(self.degrees, x), like(self.scale, x)
        z = (x - like(self.location, x)) / scale
        factor = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * jnp.log(nu * float(np.pi)) - jnp.log(scale)
        return factor - 0.5 * (nu + 1) * jnp.log1p(z**2 / nu)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape."""
        noise = jax.random.t(key, default(self.degrees, shape), shape, jnp.result_type(float))
        return default(self.location, shape) + default(self.scale, shape) * noise

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $\mu$, and $\sigma^2 \nu / (\nu - 2)$ where $\nu > 2$, infinity elsewhere."""
        shape = jnp.broadcast_shapes(self.degrees.shape, self.scale.shape)
        nu, scale = (jnp.broadcast_to(p, shape) for p in (self.degrees, self.scale))
        return self.location, scale**2 * jnp.where(nu > 2, nu / jnp.where(nu > 2, nu - 2, 1), jnp.inf)
