"""Measurements as smooth curves, whose derivatives are known."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._types import RealScalarLike
from ._smoothing_spline import smoothing_spline
from .shooting._windows import check_trajectory

_LEAST = 5
"""Fewer observations do not determine a smoothing spline."""


class Smoothed(NamedTuple):
    """Smooth curves through measurements, at some times.

    Attributes:
        ts: The times, shape `(times,)`.
        states: The values of the curves, each leaf of shape `(times, ...)`.
        rates: Their time derivatives, likewise.
    """

    ts: Float[Array, " times"]
    states: PyTree[Float[Array, "times ..."]]
    rates: PyTree[Float[Array, "times ..."]]


def smooth(ts: Any, ys: PyTree, *, at: Any = None, smoothing: RealScalarLike | None = None) -> Smoothed:
    r"""Returns smooth curves through measurements with noise and gaps, and their derivatives, without any model.

    Each component is a cubic spline $s$ that minimises

    $$\sum_i (y_i - s(t_i))^2 + \lambda \int \ddot s(t)^2 \, \mathrm{d}t.$$

    $\lambda$ is chosen for each by generalised cross-validation, which foretells how well every measurement is told
    by the others. Derivatives are less certain than values, and least so at the ends.

    Args:
        ts: The times of the measurements, which ascend and need not be even, shape `(times,)`.
        ys: What was measured, a PyTree of arrays of shape `(times, ...)`; NaN where nothing was.
        at: The times at which to give the curves; by default `ts`.
        smoothing: $\lambda$ for all components, in units of time cubed; 0 interpolates.

    Returns:
        A `Smoothed`: states and rates.

    Raises:
        ValueError: If the times do not ascend, or a component was measured fewer than five times.
        TypeError: If measurements are no real numbers.

    Source:
        P. Craven and G. Wahba, Smoothing noisy data with spline functions, Numer. Math. 31:377, 1978.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml import training

        ts = jnp.linspace(0.0, 6.0, 61)
        noise = 0.02 * np.random.default_rng(0).normal(size=61)
        found = training.smooth(ts, jnp.sin(ts) + noise)
        inner = slice(5, -5)
        assert jnp.max(jnp.abs(found.rates - jnp.cos(ts))[inner]) < 0.1
        ```
    """
    times, values = check_trajectory(ts, ys, "smooth")
    if smoothing is not None and not (np.isfinite(smoothing) and smoothing >= 0):
        raise ValueError(f"`smooth(smoothing=...)` must not be negative, but is {smoothing}.")
    places = times if at is None else np.asarray(at, np.float64)
    if places.ndim != 1 or len(places) == 0:
        raise ValueError(f"`smooth(at=...)` must be times of shape (times,), but has shape {places.shape}.")
    curves = [_curves(times, y, places, smoothing) for y in jax.tree.leaves(values)]
    treedef = jax.tree.structure(values)
    states, rates = (jax.tree.unflatten(treedef, [curve[i] for curve in curves]) for i in range(2))
    return Smoothed(jnp.asarray(places, times.dtype), states, rates)


def _curves(ts: np.ndarray, y: np.ndarray, at: np.ndarray, smoothing: Any) -> tuple[Array, Array]:
    columns = y.reshape(len(ts), -1).astype(np.float64)
    found = np.empty((2, len(at), columns.shape[1]))
    for j, column in enumerate(columns.T):
        seen = np.isfinite(column)
        if seen.sum() < _LEAST:
            raise ValueError(
                f"`smooth`: a component of `ys` was measured {seen.sum()} times, a curve through it needs {_LEAST}. "
                "Leave it out."
            )
        curve = smoothing_spline(
            ts[seen].astype(np.float64), column[seen], None if smoothing is None else float(smoothing)
        )
        found[:, :, j] = curve(at), curve(at, 1)
    shape = (len(at), *y.shape[1:])
    return jnp.asarray(found[0].reshape(shape), y.dtype), jnp.asarray(found[1].reshape(shape), y.dtype)
