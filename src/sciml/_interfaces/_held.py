"""`Held`: an input that is known at samples and keeps its value from one to the next."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from .._checks import concrete
from .._choices import choices
from .._types import RealScalarLike
from ._events import Schedule


class Held(eqx.Module):
    r"""An input that is sampled and held, $u(t) = u_i$ for $t_i \le t < t_{i+1}$.

    As controllers, logbooks and digital instruments give it. Before the first sample it has the first value, after the
    last the last. It jumps at its samples, which a step must not pass over: `events=u.jumps()` makes steps end there.
    With that it can be differentiated with respect to its values and sample times. For an input with linear or cubic
    interpolation between samples use `diffrax.LinearInterpolation` or `diffrax.CubicInterpolation`; a
    `sciml.Schedule(ts)` also makes steps end at its kinks.

    Attributes:
        ts: When it changes, of shape `(samples,)`, ascending.
        values: A PyTree of arrays with one row for each sample.

    Raises:
        TypeError: If the times are not real numbers.
        ValueError: If they do not ascend, or the values are of another number.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        valve = sciml.Held(jnp.array([0.0, 1.0, 3.0]), jnp.array([2.0, 0.0, 5.0]))
        tank = lambda t, level, valve: valve(t) - level
        sol = sciml.solve(tank, jnp.array(0.0), t0=0.0, t1=4.0, args=valve, events=valve.jumps())
        exact = 2 * (jnp.exp(-3.0) - jnp.exp(-4.0)) + 5 * (1 - jnp.exp(-1.0))
        assert abs(sol.ys[-1] - exact) < 1e-3
        ```
    """

    ts: Real[Array, " samples"]
    values: PyTree

    def __init__(self, ts: Any, values: PyTree):
        ts = jnp.asarray(ts)
        if not (jnp.issubdtype(ts.dtype, jnp.floating) or jnp.issubdtype(ts.dtype, jnp.integer)):
            raise TypeError(f"`ts` of `Held` must be real numbers, but have dtype {ts.dtype}.")
        if ts.ndim != 1 or ts.shape[0] == 0:
            raise ValueError(f"`ts` of `Held` must have shape `(samples,)` with at least one, but have {ts.shape}.")
        if concrete(ts) and not np.all(np.diff(np.asarray(ts, np.float64)) > 0):
            raise ValueError(f"`ts` of `Held` must be ascending, but are {np.asarray(ts)}.")
        values = jax.tree.map(jnp.asarray, values)
        for path, x in jax.tree_util.tree_leaves_with_path(values):
            if x.shape[:1] != ts.shape:
                where = jax.tree_util.keystr(path)
                raise ValueError(
                    f"`values{where}` of `Held` must have a row for each of its {ts.shape[0]} times, but has shape "
                    f"{x.shape}."
                )
        self.ts, self.values = ts, values

    def __call__(self, t: RealScalarLike) -> PyTree:
        """Returns the value at a time."""
        ts = self.ts.astype(jnp.result_type(float, t) if isinstance(t, float | int) else jnp.asarray(t).dtype)
        method = "compare_all" if ts.shape[0] <= choices().fields.compared_at_most else "scan"
        row = jnp.searchsorted(ts, t, side="right", method=method) - 1
        return jax.tree.map(lambda x: x[jnp.maximum(row, 0)], self.values)

    def jumps(self) -> Schedule:
        """Returns the times at which it changes, for `solve(..., events=...)`, forwards in time."""
        return Schedule(self.ts)
