r"""Minus the logarithm of a posterior about a vector of parameters: its value, its gradient and a curvature.

A measurement with the prediction $m$ and the scale $\sigma$ of its noise adds, with $r = (d - m) / \sigma$,

$$\log \sigma + \tfrac12 r^2 \quad \text{(normal)}, \qquad \log \sigma + |r| \quad \text{(Laplace)},$$

and both $m$ and $\log \sigma$ depend on the parameters. The curvature is the Gauss-Newton (Fisher) curvature,

$$\frac{\nabla m\, \nabla m^T}{\sigma^2} + c\, \nabla \log \sigma\, \nabla \log \sigma^T$$

with what needs second derivatives of $m$ and $\sigma$ left out. By Fisher $c$ is 2 (1 for Laplace's noise). Here it is
$1 + r^2$ (half of $1 + |r|$), whose mean that is where the model is right: where $\sigma$ is far too small, a step of
Newton's changes it by a factor of $e$, and not by one of $e^{r^2 / 2}$.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._measured import Noise, Predicted, log_probability, on_scale
from ._priors import log_prior
from ._tables import EstimatedParameter


class Expansion(NamedTuple):
    """A function about a vector; infinite, with derivatives of zero, where it has no value.

    Attributes:
        value: The function.
        gradient: Its gradient.
        curvature: A matrix that stands for its Hessian, without negative eigenvalues.
    """

    value: Float[Array, ""]
    gradient: Float[Array, " p"]
    curvature: Float[Array, "p p"]


def expansion(
    x: Float[Array, " p"],
    rows: list[EstimatedParameter],
    noise: Noise,
    data: Float[Array, " measurements"],
    sensitivities: Callable[[Array], tuple[Array, Array]],
    observed: Callable[[Array, Array], Predicted],
) -> Expansion:
    """Returns minus the logarithm of a posterior about a vector, by one solve with a tangent for each of its numbers.

    Args:
        x: The vector.
        rows: The parameters that it holds, with their priors.
        noise: The noise of the measurements.
        data: The measurements.
        sensitivities: The states at which these were taken, and their derivatives by `x`.
        observed: The observables of such states: `observed(states, x)`.
    """
    value, gradient, curvature = _prior(rows, x)
    prediction, by_prediction, by_log_sigma = _slopes(noise, sensitivities, observed, x)
    r = (on_scale(noise, data) - on_scale(noise, prediction.value)) / prediction.noise
    scaled = by_prediction / prediction.noise[:, None]
    pull = jnp.where(noise.laplace, jnp.sign(r), r)
    push = jnp.where(noise.laplace, jnp.abs(r), r**2)
    value = value - jnp.sum(log_probability(noise, prediction, data))
    gradient = gradient + (1 - push) @ by_log_sigma - pull @ scaled
    weights = jnp.where(noise.laplace, 0.5, 1.0).astype(r.dtype) * (1 + push)
    curvature = curvature + scaled.T @ scaled + (by_log_sigma * weights[:, None]).T @ by_log_sigma
    good = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)) & jnp.all(jnp.isfinite(curvature))
    return Expansion(
        jnp.where(good, value, jnp.inf),
        jnp.where(good, gradient, jnp.zeros_like(gradient)),
        jnp.where(good, curvature, jnp.zeros_like(curvature)),
    )


def _slopes(noise: Noise, sensitivities: Callable, observed: Callable, x: Float[Array, " p"]) -> tuple:
    """Returns predictions, and the Jacobians of them, on the scales of their noise, and of the logarithm of it."""
    states, columns = sensitivities(x)

    def measure(states: Array, x: Array) -> tuple:
        found = observed(states, x)
        return (on_scale(noise, found.value), jnp.log(found.noise)), found

    def along(column: Array, unit: Array) -> tuple:
        _, tangents, found = jax.jvp(measure, (states, x), (column, unit), has_aux=True)
        return tangents, found

    tangents, found = jax.vmap(along, out_axes=(1, None))(columns, jnp.eye(x.size, dtype=x.dtype))
    return found, *tangents


def _prior(rows: list[EstimatedParameter], x: Float[Array, " p"]) -> tuple[Array, Array, Array]:
    """Returns the part of the priors, each of one parameter."""

    def slopes(x: Array) -> tuple[Array, tuple[Array, Array]]:
        value, slopes = jax.value_and_grad(lambda x: -log_prior(rows, x))(x)
        return jnp.sum(slopes), (value, slopes)

    curvatures, (value, first) = jax.grad(slopes, has_aux=True)(x)
    return value, first, jnp.diag(jnp.maximum(curvatures, 0))
