"""Derivatives through events by an adjoint that has no steps to repeat: of one solve from each event to the next.

The events are found first, and nothing of that is differentiated. Between two of them the adjoint is the same as
without events; at each the state jumps, and the transpose of that is the jump of its cotangent. The rate just before an
event is the one that the first solve found; the rate after it is the one that the next solve starts with.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._checks import check_saved_times, check_state
from ..._interfaces._events import Schedule
from ..._jax._branches import switch
from ..._jax._loops import scan
from ..._jax._members_apart import members_apart
from ..._jax._shards import sign_of
from ..._jax._vma import on_explicit_axes
from ..._status import Status
from ..._types import Args, Y
from .._read_diffrax import read_saveat
from .._request import Interval, Request
from .._solution import Solution
from ..adjoints._checkpointed import Checkpointed
from ..adjoints._discrete_rule import IN_FORWARD_MODE
from ..events._event import GivenEvents
from ..events._event_state import derivatives_alone
from ..events._sides import advanced
from ..methods.around._admissible import known_flags


class _Piece(NamedTuple):
    """The start of the next solve.

    Attributes:
        t: The time.
        y: The state.
        first: Time and state just before the first of the events that have happened at this time.
        ys: The states at saved times so far, or None.
    """

    t: Array
    y: Y
    first: tuple[Array, Y]
    ys: PyTree


class _Found(NamedTuple):
    """An event, as the first solve found it.

    Attributes:
        number: How many happened before.
        t: Its time.
        which: The index of the event.
        rate: The rate of the state just before it.
        at_once: Whether it happens at the time of the one before.
        rank: How often the same event happened before.
        begun: When it first happened.
    """

    number: Array
    t: Array
    which: Array
    rate: Y
    at_once: Array
    rank: Array
    begun: Array


class _Jump(NamedTuple):
    """An event, as a solution has it: its time, and the states before and after it."""

    t: Array
    before: Y
    after: Y


def solve_between_events(
    run: Callable[[Callable, Y, Request], Solution], model: Callable, y0: Y, request: Request, events: GivenEvents
) -> Solution:
    r"""Solves with events, so that an adjoint without support for events differentiates it.

    With $\phi$ the flow from an event at $t_k$ to the next, at which $g = 0$, and $u$ the update,

    $$y^- = \phi(t_k, y_k; t^*), \quad dt^* = -\frac{g_y \, dy^- + g_p \, dp}{g_t + g_y f}, \quad
    y_{k+1} = u(t^*, y^- + f \, dt^*) .$$

    Args:
        run: The solve, `run(model, y0, request)`.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
        events: The events.

    Raises:
        ValueError: If some events share a memory, whose cotangent this does not carry.
    """
    if any(events.layout.parts):
        raise ValueError(
            "A continuous adjoint does not support `events` of an SBML model that influence one another or have a "
            "delay. Use `sciml.adjoints.Checkpointed()`, `Direct()` or `Forward()`."
        )

    def whole(model: Callable, y0: Y, request: Request, each: tuple) -> Solution:
        return _solved(run, model, y0, request, events._replace(each=each))

    # flags stay known where the program of one member is traced
    request = request._replace(events=None, max_events=None, positive=known_flags(request.positive))
    given = model, check_state(y0), request, events.each
    if on_explicit_axes(given):  # there members are sharded by their type, and JAX batches little
        whole = members_apart(whole, IN_FORWARD_MODE)
    return whole(*given)


def _solved(
    run: Callable[[Callable, Y, Request], Solution], model: Callable, y0: Y, request: Request, events: GivenEvents
) -> Solution:
    """Solves for one member; see `solve_between_events`."""
    interval, args = Interval.of(request, y0), request.args
    dtype = interval.t0.dtype
    saves = read_saveat(request.saveat, request.t0, request.t1).ts
    if saves is not None:
        saves = check_saved_times(saves, request.t0, request.t1, dtype)
    # each by its place among those that are sought, with the rate before it
    layout = events.layout._replace(numbers=tuple(range(len(events.each))), rates=True)
    sought = request._replace(
        t0=_held(request.t0),
        t1=_held(request.t1),
        args=_held(args),
        saveat=_held(request.saveat),
        events=GivenEvents(_held(events.each), layout),
        adjoint=Checkpointed(),
    )
    found = _held(run(_held(model), _held(y0), sought))
    # each event once more, and the rest of the way
    numbers = jnp.arange(layout.kept + 1, dtype=jnp.int32)
    sign = sign_of(interval.t1 >= interval.t0, dtype)
    ended = found.status == int(Status.event)
    times, which, rates = jax.tree.map(
        lambda x: jnp.concatenate([x, x[-1:]]), (found.events.times, found.events.which, found.events.rates_before)
    )
    at_once = jnp.append(False, times[1:] == times[:-1]) & (numbers < found.events.count)

    def go_on(piece: _Piece, item: _Found) -> tuple[_Piece, _Jump]:
        happens = item.number < found.events.count
        # Up to an event the end moves with the start, and then the recorded rate moves the state back. An adjoint would
        # take the field at the end, where an error of the state may be beyond the event's surface.
        moved = derivatives_alone(piece.t)
        stop = jnp.where(happens, item.t + moved, jnp.where(ended, piece.t, interval.t1))
        start = jax.lax.stop_gradient(piece.t)
        if saves is None:
            y, ys = _end(run(model, piece.y, request._replace(t0=piece.t, t1=stop))), None
        else:
            early, late = sign * (saves - start) < 0, (sign * (saves - stop) >= 0) & (happens | (saves != stop))
            last = jax.lax.stop_gradient(stop)
            # where the solve is not asked for a state it begins or ends
            asked = jnp.append(jnp.where(early, start, jnp.where(late, last, saves)), stop)
            sol = run(model, piece.y, request._replace(t0=piece.t, t1=stop, saveat=asked))
            y, here = _end(sol), ~(early | late)
            ys = jax.tree.map(lambda new, old: jnp.where(_over(here, old), new[:-1], old), sol.ys, piece.ys)
        rate = jax.tree.map(lambda r: jnp.where(happens, r, jnp.zeros_like(r)), jax.lax.stop_gradient(item.rate))
        y, stop = advanced(y, rate, -moved), jnp.where(happens, item.t, stop)
        first = _where(item.at_once, piece.first, (stop, y))
        t, y = _where(item.at_once, (piece.t, piece.y), (stop, y))
        jump = _jump(model, args, events, item, happens, first, t, y)
        return _Piece(jump.t, jump.after, first, ys), jump

    blank = None
    if saves is not None:
        blank = jax.tree.map(lambda x: jnp.zeros((len(saves), *x.shape), x.dtype), y0)
    start = _Piece(interval.t0, y0, (interval.t0, y0), blank)
    # rows of a schedule may have equal times, so they are counted from the first one that happened
    same = which[:, None] == which[None]
    rank, begun = jnp.sum(jnp.tril(same, -1), axis=1), times[jnp.argmax(same, axis=1)]
    each = _Found(numbers, times, which, rates, at_once, rank, begun)
    last, jumps = scan(go_on, start, each, like=(model, args, request.t0, request.t1, request.saveat, events.each))
    ys = jax.tree.map(lambda x: x[None], last.y) if saves is None else last.ys
    # of events beyond those that are kept no derivative is known
    known = jnp.where(found.events.count > events.layout.kept, jnp.nan, 1.0).astype(dtype)
    jumps = jax.tree.map(lambda x: x[:-1], jumps)
    tied = (found.ys, found.events.times, found.events.states_before, found.events.states_after)
    tied = jax.tree.map(lambda x, d: x + derivatives_alone(d * known.astype(d.dtype)), tied, (ys, *jumps))
    sol = eqx.tree_at(lambda s: (s.ys, s.events.times, s.events.states_before, s.events.states_after), found, tied)
    moved = derivatives_alone(jnp.where(ended, last.t, interval.t1))
    sol = eqx.tree_at(lambda s: s.t_reached, sol, sol.t_reached + moved)
    numbers = jnp.asarray((*events.layout.numbers, -1), which.dtype)  # a schedule may have been sought in parts
    occurrences = dataclasses.replace(sol.events, which=numbers[sol.events.which], rates_before=None)
    sol = dataclasses.replace(sol, events=occurrences)
    if saves is None:
        return eqx.tree_at(lambda s: s.ts, sol, sol.ts + moved)
    return eqx.tree_at(lambda s: s.ts, sol, sol.ts + derivatives_alone(saves))


def _jump(
    model: Callable,
    args: Args,
    events: GivenEvents,
    found: _Found,
    happens: Bool[Array, ""],
    first: tuple,
    t: Array,
    y: Y,
) -> _Jump:
    """Returns an event; without one, the end of a solve.

    Args:
        model: The model.
        args: Its third argument.
        events: The events.
        found: The index of the event, and its time.
        happens: Whether one happens.
        first: Time and state before the first event at this time.
        t: The time at the end of the solve that comes before it, or after the event before it at this time.
        y: The state there.
    """
    time = jax.lax.stop_gradient(jnp.where(happens, found.t, t))
    rate = jax.tree.map(lambda r: jnp.where(happens, r, jnp.zeros_like(r)), jax.lax.stop_gradient(found.rate))

    def of(number: int) -> Callable[[Array, Y], _Jump]:
        event = events.each[number]

        def jump(t: Array, y: Y) -> _Jump:
            value: tuple = ()
            if isinstance(event, Schedule):
                given = jnp.asarray(event.times, t.dtype)
                row = jnp.argmin(jnp.abs(jax.lax.stop_gradient(given) - found.begun)) + found.rank
                moved = derivatives_alone(given[row])
                if event.values is not None:
                    value = (jax.tree.map(lambda x: x[row], event.values),)
            else:
                moved = _delay(event.condition, time, first[1], rate, args, happens & (found.which == number))
            later = moved - derivatives_alone(t)
            before = advanced(y, rate, later)
            after = before if event.update is None else event.update(t + later, before, args, *value)
            return _Jump(t + later, before, jax.tree.map(lambda a, b: a.astype(b.dtype), after, before))

        return jump

    nothing = lambda t, y: _Jump(t, y, y)  # noqa: E731
    branches = [nothing, *map(of, range(len(events.each)))]
    like = (model, args, events.each, happens, first, found, t, y)
    return switch(jnp.where(happens, found.which + 1, 0), [partial(branch, t, y) for branch in branches], like=like)


def _delay(condition: Callable, t: Array, y: Y, rate: Y, args: Args, happens: Bool[Array, ""]) -> Array:
    """Returns zero, with the derivatives that the time of an event has by the state at a time that stays."""
    value = condition(t, y, args)
    if value.dtype == bool:
        return jnp.zeros_like(t)
    held = _held((y, args))
    _, slope = jax.jvp(lambda t, y: condition(t, y, held[1]), (t, held[0]), (jnp.ones_like(t), rate))
    slope = jax.lax.stop_gradient(jnp.where(happens, slope, jnp.ones_like(slope)))
    return derivatives_alone(-value / slope).astype(t.dtype)


def _held(tree: Any) -> Any:
    """Returns a tree whose arrays have no derivatives."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)


def _where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def _end(sol: Solution) -> Y:
    return jax.tree.map(lambda x: x[-1], sol.ys)


def _over(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - 1))
