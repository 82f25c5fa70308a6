"""Custom distributions, and distributions of other libraries."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import Key
from ...training import AbstractTransform
from ...training._transforms import Identity
from ._abstract import AbstractDistribution


class Custom(AbstractDistribution):
    """A distribution given by functions: your own, or one of NumPyro, distrax or TensorFlow Probability.

    Attributes:
        fn: `fn(x)`, the logarithm of the density, elementwise or summed.
        transform: The range, for a prior: `Identity()`, `Positive()` or `Bounded(lower, upper)` of
            `sciml.training`.
        drawn: `drawn(key, shape)` gives draws; None if nothing is drawn.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.inference import Custom
        from sciml.training import Positive

        # Jeffreys' prior of a scale; of NumPyro it would be Custom(d.log_prob, Positive(), d.sample)
        prior = Custom(lambda x: -jnp.log(x), Positive())
        assert prior.log_prob(jnp.array(1.0)) == 0
        ```
    """

    fn: Any
    transform: AbstractTransform = eqx.field(default_factory=Identity)
    drawn: Any = None

    def __check_init__(self) -> None:
        """Checks that functions are functions."""
        for name, value in (("fn", self.fn), ("drawn", self.drawn)):
            if not callable(value) and not (name == "drawn" and value is None):
                raise TypeError(f"`Custom({name}=...)` must be a function, but is {value!r}.")

    def log_prob(self, x: Any) -> Float[Array, "..."]:
        """Returns the result of the function."""
        return self.fn(x)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape.

        Raises:
            ValueError: If no function draws.
        """
        if self.drawn is None:
            raise ValueError("sampling from `Custom` requires a sampling function: `Custom(fn, transform, drawn)`.")
        return jnp.asarray(self.drawn(key, shape))

    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Raises: they are not known."""
        raise ValueError("the mean and variance of a `Custom` distribution are not known.")
