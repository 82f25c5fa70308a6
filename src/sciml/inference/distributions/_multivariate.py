"""`MultivariateNormal`: normal vectors with a full covariance matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..._parameters import Parameter, parameter
from ..._types import Key
from ...training import AbstractTransform
from ...training._transforms import Identity
from ._abstract import AbstractDistribution, check_positive, default, like


class MultivariateNormal(AbstractDistribution):
    r"""The normal distribution of vectors, $x \sim N(\mu, \Omega)$, such as the effects of a subject (OMEGA BLOCK).

    The covariance is $\Omega = L L^T$ with $L = \text{diag}(\sigma)\, C$. The rows of $C$ are the rows of a lower
    triangle with ones on its diagonal and the entries `lower`, each divided by its length. All values of `lower` are
    valid, zeros for no correlation, and $\sigma$ are the standard deviations. Both can be estimated.

    Attributes:
        location: $\mu$, shape `(..., q)`; with several rows, each is an independent vector.
        scale: $\sigma > 0$, shape `(q,)`.
        lower: The entries below the diagonal, row by row, shape `(q (q - 1) / 2,)`.

    Raises:
        ValueError: If shapes do not fit, or `scale` is known, and is not positive and finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import MultivariateNormal

        both = MultivariateNormal(jnp.zeros(2), jnp.array([0.3, 0.2]), jnp.array([0.75]))
        assert jnp.allclose(both.correlation[1, 0], 0.6)  # 0.75 / sqrt(1 + 0.75**2)
        assert jnp.allclose(both.covariance, jnp.array([[0.09, 0.036], [0.036, 0.04]]))
        assert jnp.allclose(MultivariateNormal.from_covariance(both.location, both.covariance).lower, 0.75)
        ```
    """

    location: Parameter = eqx.field(converter=parameter)
    scale: Parameter = eqx.field(converter=parameter)
    lower: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        shapes = [jnp.shape(x) for x in (self.location, self.scale, self.lower)]
        q = shapes[1][0] if len(shapes[1]) == 1 else -1
        if q < 1 or shapes[0][-1:] != (q,) or shapes[2] != (q * (q - 1) // 2,):
            raise ValueError(
                "`MultivariateNormal` of q numbers requires `location` of shape (..., q), `scale` of shape (q,) and "
                f"`lower` of shape (q (q - 1) / 2,), but shapes are {', '.join(map(str, shapes))}."
            )
        check_positive(self, "scale")

    @classmethod
    def from_covariance(cls, location: ArrayLike, covariance: ArrayLike) -> "MultivariateNormal":
        r"""Returns the distribution with a covariance matrix $\Omega$, shape `(q, q)`."""
        covariance = jnp.asarray(covariance)
        scale = jnp.sqrt(jnp.diagonal(covariance))
        factor = jnp.linalg.cholesky(covariance / jnp.outer(scale, scale))
        rows = factor / jnp.diagonal(factor)[:, None]
        return cls(jnp.asarray(location), scale, rows[np.tril_indices(scale.size, -1)])

    @property
    def transform(self) -> AbstractTransform:
        """Any numbers."""
        return Identity()

    @property
    def values_shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return jnp.shape(self.location)

    @property
    def correlation(self) -> Float[Array, "q q"]:
        """The correlation matrix."""
        factor = self._factor()
        return factor @ factor.T

    @property
    def covariance(self) -> Float[Array, "q q"]:
        r"""The covariance matrix $\Omega$."""
        return jnp.outer(self.scale, self.scale) * self.correlation

    def _triangle(self) -> tuple[Float[Array, "q q"], Float[Array, "q 1"]]:
        """Returns the triangle with ones on its diagonal, and the lengths of its rows."""
        q = self.scale.size
        rows = jnp.eye(q, dtype=self.lower.dtype).at[np.tril_indices(q, -1)].set(self.lower)
        return rows, jnp.sqrt(jnp.sum(rows**2, axis=1, keepdims=True))

    def _factor(self) -> Float[Array, "q q"]:
        rows, lengths = self._triangle()
        return rows / lengths

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density of each vector in the last axis."""
        rows, lengths = self._triangle()
        inverse = jax.scipy.linalg.solve_triangular(rows, jnp.diag(lengths[:, 0]), lower=True, unit_diagonal=True)
        scale = like(self.scale, x)
        away = (x - like(self.location, x)) / scale
        # the inverse depends on parameters only, so that members of a batch share it; sums, as products may round
        z = jnp.sum(jnp.expand_dims(away, -2) * jnp.broadcast_to(inverse, (*x.shape, x.shape[-1])), axis=-1)
        size = jnp.sum(jnp.log(lengths)) - 0.5 * x.shape[-1] * float(np.log(2 * np.pi))
        return size.astype(x.dtype) - 0.5 * jnp.sum(z**2, axis=-1) - jnp.sum(jnp.log(scale), axis=-1)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape, whose last axis are vectors; of the shape of `location` by default."""
        shape = shape or self.values_shape
        noise = jax.random.normal(key, shape, jnp.result_type(float)) @ self._factor().T.astype(jnp.result_type(float))
        return default(self.location, shape) + default(self.scale, shape) * noise

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        r"""Returns $\mu$ and $\sigma^2$."""
        return self.location, self.scale**2
