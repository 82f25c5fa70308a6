"""A problem's data and priors as distributions of `sciml.inference`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Key
from ..inference import AbstractDistribution, Custom, Uniform
from ..training import AbstractTransform, Bounded
from ..training._transforms import Identity
from ._measured import Noise, Predicted, log_probability
from ._priors import log_prior_of, log_slope, on_scale_of
from ._tables import EstimatedParameter


class MeasuredData(AbstractDistribution):
    """The distribution of a problem's measurements."""

    prediction: Predicted
    noise: Any = eqx.field(static=True)

    def __init__(self, prediction: Predicted, noise: Noise):
        self.prediction = prediction
        self.noise = _Same(noise)

    @property
    def transform(self) -> AbstractTransform:
        """That of any number."""
        return Identity()

    def log_prob(self, x: Float[Array, " measurements"]) -> Float[Array, " measurements"]:
        """Returns the logarithm of the density of each measurement."""
        return log_probability(self.noise.value, self.prediction, x)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, " measurements"]:
        """Returns measurements as they might have been made."""
        del shape
        noise: Noise = self.noise.value
        value, sigma = self.prediction
        normal = jax.random.normal(key, value.shape, value.dtype)
        laplace = jax.random.laplace(key, value.shape, value.dtype)
        error = sigma * jnp.where(noise.laplace, laplace, normal)
        base = jnp.where(noise.scale == 2, 10.0, jnp.e).astype(value.dtype)
        return jnp.where(noise.scale > 0, value * base**error, value + error)

    def moments(self) -> tuple[Float[Array, " measurements"], Float[Array, " measurements"]]:
        """Returns prediction and variance, of noise on a logarithm to first order."""
        noise: Noise = self.noise.value
        value, sigma = self.prediction
        variance = sigma**2 * jnp.where(noise.laplace, 2.0, 1.0).astype(value.dtype)
        slope = jnp.where(noise.scale == 2, jnp.log(10.0), 1.0).astype(value.dtype) * value
        return value, jnp.where(noise.scale > 0, variance * slope**2, variance)


class _Same:
    """Wraps arrays that are compared by identity, so that a static field may hold them."""

    def __init__(self, value: Noise):
        self.value = value

    def __hash__(self) -> int:
        return hash((id(self.value.scale), id(self.value.laplace)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value.scale is self.value.scale


class _PriorOnScale(eqx.Module):
    """The density of a parameter on its scale."""

    row: EstimatedParameter = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        found = log_prior_of(self.row, x)
        scaled = self.row.prior is not None and self.row.prior[0].startswith("parameterScale")
        return found if scaled else found + log_slope(self.row, x)


class _BetweenBounds(eqx.Module):
    """Draws between bounds."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __call__(self, key: Key, shape: tuple[int, ...]) -> Array:
        return jax.random.uniform(key, shape, minval=self.lower, maxval=self.upper)


def prior_of(row: EstimatedParameter) -> AbstractDistribution:
    """Returns the prior of a parameter on its scale, within its bounds."""
    lower, upper = (on_scale_of(row, x) for x in (row.lower, row.upper))
    if row.prior is None:
        return Uniform(lower, upper)
    kind, numbers = row.prior
    if kind == "parameterScaleUniform":
        return Uniform(max(lower, numbers[0]), min(upper, numbers[1]))
    return Custom(_PriorOnScale(row), Bounded(lower, upper), _BetweenBounds(lower, upper))
