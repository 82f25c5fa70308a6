"""`Censored`: measurements of which some are only known to be below a limit."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._parameters import Parameter, parameter
from ..._types import Key
from ...training import AbstractTransform
from ._abstract import AbstractDistribution, like


class Censored(AbstractDistribution):
    r"""The distribution of measurements of which some are below a limit of quantification (BLQ), left-censored.

    A measurement below the limit $q$ contributes the probability of that, $P(x < q)$; others contribute their density.
    This is the method M3 of pharmacometrics. With `positive` all measurements are known to be positive, and both are
    divided by $P(x > 0)$: M4.

    Attributes:
        distribution: The distribution of measurements without a limit, with a method `log_cdf`: `Normal` or
            `LogNormal`.
        below: Whether a measurement is below the limit; its value is not used then, but must not be NaN, which is
            missing.
        limit: $q$; not used where `below` is false.
        positive: Whether measurements are positive.

    Raises:
        TypeError: If the distribution has no `log_cdf`.

    Source:
        S. L. Beal, Ways to fit a PK model with some data below the quantification limit, J. Pharmacokinet.
        Pharmacodyn. 28:481, 2001.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Censored, Normal

        levels = Censored(Normal(1.0, 0.5), below=jnp.array([False, True]), limit=1.0)
        log_p = levels.log_prob(jnp.array([1.2, 1.0]))
        assert jnp.allclose(log_p[1], jnp.log(0.5))  # half of the distribution is below the limit
        ```
    """

    distribution: AbstractDistribution
    below: Bool[Array, "..."] = eqx.field(converter=jnp.asarray)
    limit: Parameter = eqx.field(converter=parameter)
    positive: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        if not callable(getattr(self.distribution, "log_cdf", None)):
            raise TypeError(
                f"`Censored` requires a distribution with a method `log_cdf`, but `{type(self.distribution).__name__}` "
                "has none. Use `Normal` or `LogNormal`."
            )

    @property
    def transform(self) -> AbstractTransform:
        """The range of the distribution without a limit."""
        return self.distribution.transform

    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, or of the probability to be below the limit, elementwise."""
        below = jnp.broadcast_to(self.below, x.shape)
        limit = jnp.where(below, like(self.limit, x), x)
        under = self.distribution.log_cdf(limit)  # type: ignore[attr-defined]
        seen = self.distribution.log_prob(x)
        if not self.positive:
            return jnp.where(below, under, seen)
        zero = self.distribution.log_cdf(jnp.zeros_like(x))  # type: ignore[attr-defined]
        # the limit is positive where it counts; elsewhere any number below one keeps derivatives finite
        between = under + jnp.log1p(-jnp.exp(jnp.where(below, zero - under, -1.0)))
        return jnp.where(below, between, seen) - jnp.log1p(-jnp.exp(zero))

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape; those below a limit are replaced by the limit."""
        drawn = self.distribution.draw(key, shape)
        limit = like(self.limit, drawn)
        return jnp.where(drawn < limit, limit, drawn)

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns mean and variance without a limit."""
        return self.distribution.moments()
