"""Paths through measurements, for equations that they drive."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import concrete


def hermite_path(ts: Float[Array, " times"], xs: Float[Array, "times channels"]) -> diffrax.CubicInterpolation:
    """A smooth path through measurements, with time as its first channel: cubics with backward differences.

    What the path is at a time depends on measurements up to the next one alone, so that an equation that it drives
    can run while measurements come in. A missing value is NaN, and is passed over; before its first measurement a
    channel is constant. Records of several lengths have the same length when times that go on, with NaN beside them,
    are put at their end.

    Args:
        ts: The times, which ascend.
        xs: The measurements, a row for each time.

    Returns:
        A path of one channel more, for `NeuralCDE`, `sciml.Controlled` and diffrax.

    Raises:
        ValueError: If there is not a row for each of two or more ascending times, or a channel has no measurement. If
            the measurements are traced, the path of such a channel is NaN.

    Source:
        J. Morrill, P. Kidger, L. Yang and T. Lyons, On the Choice of Interpolation Scheme for Neural CDEs, TMLR 2022.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.neural import hermite_path

        ts = jnp.linspace(0.0, 1.0, 5)
        path = hermite_path(ts, jnp.sin(ts)[:, None])
        assert jnp.allclose(path.evaluate(0.25), jnp.array([0.25, jnp.sin(0.25)]), atol=1e-6)
        ```
    """
    ts, values = _checked(ts, xs, "hermite_path")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return diffrax.CubicInterpolation(ts, diffrax.backward_hermite_coefficients(ts, values))


def linear_path(ts: Float[Array, " times"], xs: Float[Array, "times channels"]) -> diffrax.LinearInterpolation:
    """A path through measurements on straight lines, with time as its first channel.

    Its derivative jumps at the times: `sciml.solve(..., events=sciml.Schedule(ts))` makes steps end there. Missing
    values are NaN, and are passed over, as in `hermite_path`.

    Args:
        ts: The times, which ascend.
        xs: The measurements, a row for each time.

    Returns:
        A path of one channel more.

    Raises:
        ValueError: If there is not a row for each of two or more ascending times, or a channel has no measurement. If
            the measurements are traced, the path of such a channel is NaN.

    Source:
        P. Kidger, J. Morrill, J. Foster and T. Lyons, Neural Controlled Differential Equations, NeurIPS 2020.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.neural import linear_path

        path = linear_path(jnp.array([0.0, 1.0, 3.0]), jnp.array([[0.0], [jnp.nan], [6.0]]))
        assert path.derivative(0.5)[1] == 2.0  # straight through the gap
        ```
    """
    ts, values = _checked(ts, xs, "linear_path")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return diffrax.LinearInterpolation(ts, diffrax.linear_interpolation(ts, values))


def _checked(ts: Any, xs: Any, where: str) -> tuple[Array, Array]:
    """Returns times, and measurements beside them."""
    xs = jnp.asarray(xs)
    ts = jnp.asarray(ts, xs.dtype)
    if ts.ndim != 1 or xs.ndim != 2 or len(ts) != len(xs) or len(ts) < 2:
        raise ValueError(
            f"`{where}` takes `ts` of shape (times,), two or more, and `xs` of shape (times, channels), but they have "
            f"the shapes {ts.shape} and {xs.shape}."
        )
    if concrete(ts) and not np.all(np.diff(np.asarray(ts)) > 0):
        raise ValueError(f"`{where}`: `ts` must ascend, but are {np.asarray(ts)}.")
    known = ~jnp.isnan(xs)
    if concrete(xs) and (empty := np.flatnonzero(~np.asarray(known).any(0))).size:
        raise ValueError(
            f"`{where}`: channel {empty[0]} of `xs` has no measurement, all of it is NaN. Leave it out, or give it one "
            "value, such as its mean over other records."
        )
    first = jnp.take_along_axis(xs, jnp.argmax(known, axis=0)[None], axis=0)
    begun = jax.lax.cummax(known.astype(jnp.int32), axis=0) > 0
    xs = jnp.where(begun, xs, jnp.broadcast_to(first, xs.shape))
    return ts, jnp.concatenate([ts[:, None], xs], axis=1)
