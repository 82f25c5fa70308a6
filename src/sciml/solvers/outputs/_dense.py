"""Dense output: the solution as a function of time."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from ..._jax._members_apart import members_apart
from ..._types import Y
from .._calls import Static
from .._request import Request
from .._solution import Solution
from ..events._occurrences import Occurrences
from ..events._sides import BEYOND

# A function of time at one time or many.


def at_times(fn: Callable[[Any, Array], Y], output: Any, t: Any, no_forward_mode: str | None = None) -> Y:
    """Returns `fn(output, t)` at one time or many; `output.ts` are the times of the solution.

    Args:
        fn: The function.
        output: Its other input, in addition to the time.
        t: The times.
        no_forward_mode: The error of forward mode, if the function only has reverse mode.

    Raises:
        ValueError: If the solution holds many members.
        TypeError: If the times are not real numbers.
    """
    ts = output.ts
    if ts.ndim != 1:
        raise ValueError(
            "This solution holds many members. Write `jax.vmap(lambda sol: sol.evaluate(t))(sol)` to evaluate each "
            "of them."
        )
    if not jnp.issubdtype(jnp.result_type(t), jnp.floating) and not jnp.issubdtype(jnp.result_type(t), jnp.integer):
        raise TypeError(f"`t` must be real numbers, but has dtype {jnp.result_type(t)}.")
    t = jnp.asarray(t, ts.dtype)
    found = members_apart(jax.vmap(fn, in_axes=(None, 0)), no_forward_mode)(output, t.reshape(-1))
    return jax.tree.map(lambda x: x.reshape(t.shape + x.shape[1:]), found)


_ACCEPTS = 1e6
"""A tolerance by which any step is accepted that has been accepted before."""

_SLACK = 64.0
"""Roundings of a time within which the end of a step and an event are the same."""

PIECES = 5
"""The number of pieces of a step that depends on the steps before it. The states at their ends give a polynomial of
degree five, the highest degree by which such methods interpolate: `BDF` by its order, `Switching` by four."""


Solve = Callable[[Any, Y, Request], Solution]
"""`run(model, y0, request)`: a solve of the request, which does not raise if it fails."""


class DenseOutput(eqx.Module):
    """The solution of one member between its start and its end; see `Solution.evaluate`.

    It holds the states where steps begin. Between them the step is taken once more, and the method interpolates within
    it: so it needs no memory for stages, and every method of sciml's own loops has it. A step that depends on the steps
    before it cannot be repeated by itself. There the method has interpolated in the solve, at the ends of equal pieces.

    Attributes:
        ts: The starts of the steps and the end of the last one.
        ys: The states there.
        events: The events, or None.
        direction: 1 forwards in time, -1 backwards.
        arrays: The arrays of the model and of the request for a step.
        static: All else of these.
        run: The solve, which takes a step once more.
        fixed_steps: Whether that step has no error.
        by_line: Whether the solution between steps is a line.
        no_forward_mode: The error of forward mode, if the step only has reverse mode.
        pieces: The number of rows for each step.
    """

    ts: Real[Array, "*members steps"]
    ys: PyTree
    events: Occurrences | None
    direction: Real[Array, "*members"]
    arrays: list[Array]
    static: Static = eqx.field(static=True)
    run: Solve = eqx.field(static=True)
    fixed_steps: bool = eqx.field(static=True)
    by_line: bool = eqx.field(static=True)
    no_forward_mode: str | None = eqx.field(static=True)
    pieces: int = eqx.field(static=True, default=1)

    def evaluate(self, t: Any) -> Y:
        """Returns the states at one time or many."""
        return at_times(DenseOutput._state, self, t, self.no_forward_mode)

    def derivative(self, t: Any) -> Y:
        """Returns the rates at one time or many.

        Raises:
            ValueError: If the model has noise.
        """
        if self.by_line:
            raise ValueError("A solution with noise has no time derivative. `evaluate` returns its states.")
        return at_times(DenseOutput._rate, self, t, self.no_forward_mode)

    def _rate(self, t: Array) -> Y:
        """Returns the rate at one time."""
        model, request = self.static.combine(self.arrays)
        return model(t, self._state(t), request.args)

    def _state(self, t: Array) -> Y:
        """Returns the state at one time."""
        steps = self.ts[:: self.pieces]
        row = jnp.clip(jnp.sum(self.direction * (steps - t) < 0) - 1, 0, steps.shape[0] - 2)
        start, end, first = steps[row], steps[row + 1], row * self.pieces
        y0, y1 = (jax.tree.map(lambda x: x[i], self.ys) for i in (first, first + self.pieces))
        end = jnp.where(end == start, start + self.direction, end)  # of a solve of no length, whose start is known
        sides = jnp.zeros_like(start), jnp.zeros_like(start)
        if self.events is not None:
            start, end, y0, y1, sides = self._beside_events(t, start, end, y0, y1)
        if self.by_line:
            place = (t - start) / (end - start)
            found = jax.tree.map(lambda a, b: a + place.astype(a.dtype) * (b - a), y0, y1)
        elif self.pieces > 1:
            inside = [jax.tree.map(lambda x: x[first + i], self.ys) for i in range(1, self.pieces)]
            found = _polynomial((t - start) / (end - start), [y0, *inside, y1])
        else:
            found = self._step(t, start, end, y0, sides)
        outside = (self.direction * (t - self.ts[0]) < 0) | (self.direction * (t - self.ts[-1]) > 0)
        return jax.tree.map(lambda x: jnp.where(outside, jnp.full_like(x, jnp.nan), x), found)

    def _beside_events(
        self, t: Array, start: Array, end: Array, y0: Y, y1: Y
    ) -> tuple[Array, Array, Y, Y, tuple[Array, Array]]:
        """Returns where a step begins and ends, with the states there as they are between events.

        The last item is by how much start and end have to move to be strictly between events.
        """
        events = self.events
        assert events is not None
        near = _SLACK * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(start), jnp.abs(end))
        passed = self.direction * (events.times - t) < 0
        begins = passed & (self.direction * (events.times - start) >= -near)
        ends = ~passed & (jnp.abs(events.times - end) <= near)
        last = jnp.max(jnp.where(begins, jnp.arange(begins.shape[0]), -1))
        first = jnp.argmax(ends)
        start = jnp.where(last >= 0, events.times[last], start)
        end = jnp.where(ends[first], events.times[first], end)  # the next step begins a few roundings later
        y0 = jax.tree.map(lambda x, of: jnp.where(last >= 0, of[last], x), y0, events.states_after)
        y1 = jax.tree.map(lambda x, of: jnp.where(ends[first], of[first], x), y1, events.states_before)
        # of events that were not kept nothing is known
        kept = events.times.shape[0]
        lost = (events.count > kept) & (self.direction * (t - events.times[kept - 1]) > 0)
        y0, y1 = jax.tree.map(lambda x: jnp.where(lost, jnp.full_like(x, jnp.nan), x), (y0, y1))
        beside = self.direction * BEYOND * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(start), jnp.abs(end))
        sides = jnp.where(last >= 0, beside, 0), jnp.where(ends[first], -beside, 0)
        return start, end, y0, y1, sides

    def _step(self, t: Array, start: Array, end: Array, y0: Y, sides: tuple[Array, Array]) -> Y:
        """Returns the state at a time within a step that is taken once more.

        At an event the vector field may jump, and at the very time of the event it may be on either side. So the step
        begins strictly after an event and ends strictly before one.

        Args:
            t: The time.
            start: The start of the step.
            end: Its end.
            y0: The state at its start.
            sides: By how much both move.
        """
        later, earlier = jax.lax.stop_gradient(sides)
        room = self.direction * (end + earlier - start - later) > 0
        start, end = start + jnp.where(room, later, 0), end + jnp.where(room, earlier, 0)
        within = jnp.clip(t, jnp.minimum(start, end), jnp.maximum(start, end))
        t = t + jax.lax.stop_gradient(within - t)
        model, request = self.static.combine(self.arrays)
        request = request._replace(t0=start, t1=end, saveat=t[None])
        if self.fixed_steps:
            request = request._replace(dt=end - start)
        else:
            request = request._replace(dt0=end - start, rtol=_ACCEPTS, atol=_ACCEPTS)
        sol = self.run(model, y0, request)
        return jax.tree.map(lambda x: x[0], sol.ys)


def _polynomial(place: Array, ys: list[Y]) -> Y:
    """Returns the polynomial through states at equal distances, at a place from 0 to 1."""
    nodes = np.linspace(0.0, 1.0, len(ys))
    weights = [
        math.prod((place - other) / float(node - other) for other in nodes if other != node) for node in nodes
    ]  # by Lagrange
    return jax.tree.map(lambda *x: sum(w.astype(a.real.dtype) * a for w, a in zip(weights, x)), *ys)
