"""Reads a `diffrax.SaveAt` with more than states at given times."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._checks import concrete
from ..._jax._shards import on_mesh_of
from ..._jax._vma import on_explicit_axes
from ..._status import Status
from .._solution import Solution

_SAVES_STATE = diffrax.SubSaveAt(t1=True).fn


class Asked(NamedTuple):
    """The requested outputs.

    Attributes:
        subs: The `diffrax.SubSaveAt`s, one for each output.
        structure: Their structure.
        dense: Whether dense output is requested.
    """

    subs: list[diffrax.SubSaveAt]
    structure: Any
    dense: bool

    @property
    def steps(self) -> bool:
        """Whether it has to be known where steps begin and end."""
        return self.dense or any(sub.steps for sub in self.subs)


def asks_for_more(saveat: Any) -> bool:
    """Returns whether more than states at given times is requested."""
    if not isinstance(saveat, diffrax.SaveAt):
        return False
    sub = saveat.subs
    return saveat.dense or not isinstance(sub, diffrax.SubSaveAt) or bool(sub.steps) or sub.fn is not _SAVES_STATE


def read(saveat: diffrax.SaveAt) -> Asked:
    """Returns the request.

    Raises:
        TypeError: If an output is not a `diffrax.SubSaveAt`.
    """
    subs, structure = jax.tree.flatten(saveat.subs, is_leaf=lambda x: isinstance(x, diffrax.SubSaveAt))
    for sub in subs:
        if not isinstance(sub, diffrax.SubSaveAt):
            raise TypeError(
                f"`saveat=diffrax.SaveAt(subs=...)` must be a PyTree of `diffrax.SubSaveAt`, but holds "
                f"{type(sub).__name__}."
            )
    return Asked(subs, structure, saveat.dense)


class Rows(NamedTuple):
    """The times of all outputs, in the direction of time.

    Attributes:
        times: All of them, sorted.
        places: For each output the places of its times among these, and last those that belong to none.
        ts: For each output its times; infinite where there was no step to save.
    """

    times: Any
    places: list
    ts: list


def rows_of(subs: list[diffrax.SubSaveAt], t0: Any, t1: Any, steps: Any, knots: Any, dtype: Any) -> Rows:
    """Returns the times of outputs.

    Args:
        subs: The outputs.
        t0: The start.
        t1: The end.
        steps: The times at the ends of steps, infinite beyond the last; None if no output needs these.
        knots: More times to save at, which belong to no output, or None.
        dtype: The dtype of time.
    """
    given = jax.tree.leaves((t0, t1, steps, knots, [sub.ts for sub in subs]))
    known = all(map(concrete, given))
    xp: Any = np if known else jnp
    of_members = next(filter(on_explicit_axes, given), None)
    # JAX joins no arrays that are sharded by their type if the tangent of one of them is zero
    nothing = (
        0 if of_members is None else sum(0 * _finite(jnp.ravel(jnp.asarray(x, dtype))[0]) for x in given if np.size(x))
    )

    def array(x: Any) -> Any:
        return np.asarray(x, np.float64) if known else on_mesh_of(of_members, jnp.asarray(x, dtype)) + nothing

    backwards = array(t1) < array(t0)

    def sorting(x: Any) -> Any:
        return xp.argsort(xp.where(backwards & xp.isfinite(x), -x, x), stable=True)

    ts = []
    for sub in subs:
        parts = [] if sub.ts is None else [array(sub.ts)]
        if sub.steps:
            parts.append(array(steps)[sub.steps - 1 :: sub.steps])
        if sub.t1 and sub.steps != 1:  # the last step ends there
            end = array(t1)[None]
            if sub.steps:  # which may be an n-th one
                count = xp.sum(xp.isfinite(array(steps)))
                end = xp.where((count % sub.steps == 0) & (count > 0), xp.full_like(end, np.inf), end)
            parts.append(end)
        parts = ([array(t0)[None]] if sub.t0 else []) + parts
        found = xp.concatenate(parts)
        ts.append(found[sorting(found)] if sub.steps else found)
    every = xp.concatenate(ts + ([] if knots is None else [array(knots)]))
    every = xp.where(xp.isfinite(every), every, array(t1))
    order = sorting(every)
    places = np.cumsum([0] + [len(x) for x in ts])
    inverse = xp.argsort(order)
    return Rows(every[order], [inverse[a:b] for a, b in zip(places, [*places[1:], None])], ts)


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))


def saves_end_apart(saveat: Any) -> bool:
    """Returns whether a solve saves the end after other times, and nothing but states."""
    if not isinstance(saveat, diffrax.SaveAt) or asks_for_more(saveat):
        return False
    return saveat.subs.t1 and (saveat.subs.t0 or saveat.subs.ts is not None)


def with_end(sol: Solution, ts: Array, ys: PyTree) -> tuple[Array, PyTree]:
    """Returns saved times and states, the last finite time of which is the end, as an event has left it.

    The solve stops before it reaches `t1`, so the state there is NaN.

    Args:
        sol: The solution.
        ts: The saved times.
        ys: The states at these times.
    """
    events = sol.events
    if events is None or not events.times.shape[0]:
        return ts, ys
    count = jax.lax.stop_gradient(events.count)
    latest = jnp.arange(events.times.shape[0], dtype=count.dtype) == count - 1  # none if it was not kept
    finite = jnp.isfinite(ts)
    last = jnp.cumsum(finite, dtype=count.dtype) == jnp.sum(finite, dtype=count.dtype)
    here = finite & last & (sol.status == int(Status.event))

    def of_leaf(y: Array, after: Array) -> Array:
        end = jnp.sum(jnp.where(_beside(latest, after), after, jnp.zeros_like(after)), 0)
        end = jnp.where(jnp.any(latest), end, jnp.full_like(end, jnp.nan))
        return jnp.where(_beside(here, y), end[None], y)

    return jnp.where(here, sol.t_reached, ts), jax.tree.map(of_leaf, ys, events.states_after)


def _beside(rows: Array, y: Array) -> Array:
    return rows.reshape(rows.shape + (1,) * (y.ndim - 1))


def output_of(sub: diffrax.SubSaveAt, ts: Array, ys: PyTree, args: Any) -> PyTree:
    """Returns what an output keeps of its states; NaN where there was no step to save."""
    fn: Callable = sub.fn
    there = jnp.isfinite(ts)
    kept = ys
    if fn is not _SAVES_STATE:
        kept = jax.vmap(lambda t, y: fn(t, y, args))(jnp.where(there, ts, jnp.zeros_like(ts)), ys)

    def of_leaf(x: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.inexact) or not sub.steps:
            return x
        return jnp.where(_beside(there, x), x, jnp.full_like(x, jnp.nan))

    return jax.tree.map(of_leaf, kept)


def padded(x: Array, length: int, value: float) -> Array:
    """Returns an array with rows of a value after its own."""
    value = value if jnp.issubdtype(x.dtype, jnp.inexact) else 0
    return jnp.pad(x, [(0, length - x.shape[0])] + [(0, 0)] * (x.ndim - 1), constant_values=value)
