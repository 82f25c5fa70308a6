"""Signals in time, and the points that they come from."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Points


class Ricker(eqx.Module):
    r"""The Ricker wavelet, the second derivative of a Gaussian with its sign turned.

    $$s(t) = A\, (1 - 2 a)\, e^{-a}, \qquad a = \pi^2 f^2 (t - t_0)^2$$

    Its spectrum has its maximum at $f$ and is below a thousandth of that above $3.1 f$; its integral is zero.

    Attributes:
        frequency: $f$, 1/time.
        delay: $t_0$, the time of the maximum; by default $1.5 / f$, before which $|s|$ is below 1e-8 of $A$ at $t = 0$.
        amplitude: $A$.

    Source:
        N. Ricker, Geophysics 18:10, 1953.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Ricker

        wavelet = Ricker(10.0)
        assert wavelet(0.15) == 1.0
        assert wavelet(jnp.linspace(0.0, 0.3, 7)).shape == (7,)
        ```
    """

    frequency: Parameter
    delay: Parameter
    amplitude: Parameter

    def __init__(self, frequency: Any, delay: Any = None, amplitude: Any = 1.0):
        self.frequency = parameter(frequency)
        self.delay = 1.5 / self.frequency if delay is None else parameter(delay)
        self.amplitude = parameter(amplitude)

    def __call__(self, t: RealScalarLike | Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the signal at a time, or at each of an array."""
        t = jnp.asarray(t)
        t = t if jnp.issubdtype(t.dtype, jnp.floating) else t.astype(jnp.result_type(float))
        p = with_dtype(self, t.dtype)
        a = (math.pi * p.frequency * (t - p.delay)) ** 2
        return p.amplitude * (1 - 2 * a) * jnp.exp(-a)


class Sampled(eqx.Module):
    """A signal given by samples at equal distances, with cubic polynomials through four of them between.

    Before the first sample and after the last it is zero.

    Attributes:
        values: The samples, of shape `(times,)`, or `(times, points)` for several signals.
        dt: The time between two samples.
        start: The time of the first.

    Raises:
        ValueError: If the values have another number of axes.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Sampled

        ts = jnp.linspace(0.0, 1.0, 101)
        signal = Sampled(jnp.sin(3 * ts), dt=0.01)
        assert jnp.isclose(signal(0.123), jnp.sin(0.369), atol=1e-5) and signal(1.5) == 0.0
        ```
    """

    values: Parameter = eqx.field(converter=parameter)
    dt: Parameter = eqx.field(converter=parameter)
    start: Parameter = eqx.field(default=0.0, converter=parameter)

    def __check_init__(self):
        """Refuses fields of more axes."""
        if self.values.ndim not in (1, 2):
            raise ValueError(
                f"`Sampled(values=...)` must have shape (times,) or (times, points), but has shape {self.values.shape}."
            )

    def __call__(self, t: RealScalarLike) -> Float[Array, "..."]:
        """Returns the signals at a time, a scalar or an array of shape `(points,)`."""
        p = with_dtype(self, self.values.dtype)
        at = (jnp.asarray(t, p.values.dtype) - p.start) / p.dt
        first = jnp.floor(at)
        x = at - first
        weights = (-x * (x - 1) * (x - 2) / 6, (x + 1) * (x - 1) * (x - 2) / 2)
        weights = (*weights, -(x + 1) * x * (x - 2) / 2, (x + 1) * x * (x - 1) / 6)
        last = p.values.shape[0] - 1
        total = jnp.zeros(p.values.shape[1:], p.values.dtype)
        for shift, weight in zip((-1, 0, 1, 2), weights):
            index = first + shift
            inside = (index >= 0) & (index <= last)
            value = jnp.take(p.values, jnp.clip(index, 0, last).astype(jnp.int32), axis=0)
            total = total + jnp.where(inside, weight, 0) * value
        return jnp.where((at >= 0) & (at <= last), total, jnp.zeros_like(total))


class PointSources(eqx.Module):
    r"""A density $\sum_i s_i(t)\, \delta(x - x_i)$ over a grid, the source of an `Acoustic` model.

    Under `jax.vmap` over positions or signals each member has separate sources.

    Attributes:
        points: The places; see `sciml.spatial.Points`.
        signal: A function of time: it returns an array of shape `(points,)`, or a scalar, which all places share.

    Args:
        grid: The grid.
        positions: The places, of shape `(points, ndim)`, or `(ndim,)` for one.
        signal: A `Ricker`, a `Sampled`, or another function.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import PointSources, Ricker
        from sciml.spatial import Grid

        grid = Grid((8, 8))
        source = PointSources(grid, [0.5, 0.5], Ricker(10.0))
        assert jnp.isclose(grid.integrate(source(0.15, None)), 1.0)
        ```
    """

    points: Points
    signal: Callable[[Any], Any]

    def __init__(self, grid: Grid, positions: Any, signal: Callable[[Any], Any]):
        self.points = Points(grid, positions)
        self.signal = signal

    def __call__(self, t: RealScalarLike, args: Args) -> Float[Array, "..."]:
        """Returns the density at a time."""
        del args
        values = jnp.asarray(self.signal(t))
        return self.points.spread(jnp.broadcast_to(values, self.points.positions.shape[:-1]))
