"""The interface of a distribution: a density, draws, moments, and the transform to free variables for a prior."""

import abc
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import concrete
from ..._types import Key
from ...training import AbstractTransform

if TYPE_CHECKING:  # type checkers do not know the abstract kind
    from typing import ClassVar as AbstractVar
else:
    from equinox import AbstractVar


class AbstractDistribution(eqx.Module):
    """A distribution of independent numbers, for priors of parameters or for observations.

    Its parameters are leaves, and broadcast against its values.

    Example:
        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml import inference
        from sciml.inference.distributions._abstract import AbstractDistribution

        class Rayleigh(AbstractDistribution):
            scale: jax.Array = eqx.field(converter=sciml.parameter)

            @property
            def transform(self):
                return sciml.training.Positive()

            def log_prob(self, x):
                return jnp.log(x / self.scale**2) - 0.5 * (x / self.scale) ** 2

            def draw(self, key, shape=()):
                return self.scale * jnp.sqrt(-2 * jnp.log(jax.random.uniform(key, shape, minval=1e-7)))

            def moments(self):
                return 1.2533 * self.scale, 0.4292 * self.scale**2

        model = {"speed": jnp.array(3.0)}
        priors = [(lambda m: m["speed"], Rayleigh(2.0))]
        density = inference.log_density(model, lambda m: inference.Normal(m["speed"], 1.0), jnp.array([2.5]), priors)
        assert jnp.isfinite(density(density.unconstrain(model)))
        ```
    """

    transform: AbstractVar[AbstractTransform]
    """How a parameter that has this prior becomes a free variable: its range."""

    @property
    def values_shape(self) -> tuple[int, ...]:
        """The shape of its values, to which its parameters broadcast."""
        return jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves(self)))

    @abc.abstractmethod
    def log_prob(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logarithm of the density, or of the probability of a count, elementwise."""

    @abc.abstractmethod
    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns draws of a shape that the parameters broadcast to."""

    @abc.abstractmethod
    def moments(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Returns mean and variance, in the shapes of the parameters."""


def like(parameter: Array, x: Array) -> Array:
    """Returns a parameter in the dtype and the shape of the values.

    Raises:
        ValueError: If the shapes do not fit.
    """
    if parameter.shape != x.shape:
        try:
            fits = jnp.broadcast_shapes(parameter.shape, x.shape) == x.shape
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"the parameters of a distribution must broadcast to the shape of its values, {x.shape}, but one has "
                f"shape {parameter.shape}."
            )
    return jnp.broadcast_to(parameter.astype(x.dtype), x.shape)


def default(parameter: Array, shape: tuple[int, ...]) -> Array:
    """Returns a parameter for draws of a shape: in its dtype, which is a strong one, or in the default one."""
    return jnp.broadcast_to(parameter.astype(jnp.result_type(float)), shape)


def known(parameter: Array) -> np.ndarray | None:
    """Returns a parameter whose numbers are known here and now; None where it is traced or of other processes."""
    return np.asarray(parameter) if concrete(parameter) and parameter.is_fully_addressable else None


def check_positive(distribution: AbstractDistribution, *names: str, zero: bool = False) -> None:
    """Checks parameters of a distribution whose numbers are known.

    Args:
        distribution: The distribution.
        names: The names of its parameters.
        zero: Whether they may be zero.

    Raises:
        ValueError: If one is not positive and finite.
    """
    for name in names:
        x = known(getattr(distribution, name))
        if x is None:
            continue
        right = np.isreal(x) & np.isfinite(x) & (np.real(x) >= 0 if zero else np.real(x) > 0)
        if not np.all(right):
            kind = "not negative" if zero else "positive"
            raise ValueError(
                f"`{name}` of `{type(distribution).__name__}` must be {kind} and finite, but is {x[~right].flat[0]}."
            )
