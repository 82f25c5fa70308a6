"""A vector field with its events, closed over no traced value."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._interfaces._event_system import Happened
from ..._interfaces._events import Event, Schedule
from ..._jax._shards import sign_of
from ..._structure_words import first_difference, structure_words
from ..._types import Args, RealScalarLike, Y
from ..terms._field import AbstractField, Program, close, parameters_of
from ._event import Layout, ModelWithEvents, SystemPart
from ._event_state import EventState, ShiftedState


class ClosedEvents(NamedTuple):
    """The functions of events as programs, and where their operands stand.

    Attributes:
        conditions: All conditions of events, `(t, y)`.
        updates: The update of each event, `(t, y)`, or schedule, `(t, row, y)`; None where it has none.
        clock: The event times so far, `()`.
        booleans: The conditions that are booleans.
        start: The memory of a system of events, `(t, y)`; None without one.
        happen: The update of a system at a time; see `AbstractEventSystem.happen`.
    """

    conditions: "ClosedProgram | None"
    updates: "tuple[ClosedProgram | None, ...]"
    clock: "ClosedProgram"
    booleans: tuple[bool, ...]
    start: "ClosedProgram | None"
    happen: "ClosedProgram | None"


class ClosedProgram(NamedTuple):
    """A program, and which of the operands are what it closes over."""

    program: Program
    consts: slice


class Clock(NamedTuple):
    """The event times so far.

    Attributes:
        direction: 1 forwards in time, -1 backwards.
        resolution: A few times what they are rounded by.
        given: The times of all schedules.
        t1: The end of the solve.
    """

    direction: Array
    resolution: Array
    given: tuple[Array, ...]
    t1: Array


class FieldWithEvents(AbstractField):
    """A closed vector field with closed events.

    Attributes:
        base: The vector field.
        events: The events.
        layout: Their static description.
        own: The operands of the vector field.
        shared: The parameters of the events and of `args`.
    """

    def __init__(self, base: AbstractField, events: ClosedEvents, layout: Layout, own: slice, shared: slice):
        self.base, self.events, self.layout, self.own, self.shared = base, events, layout, own, shared
        self.reads_time, self.has_rules, self.on_arrays = True, base.has_rules, base.on_arrays

    def of_one(self) -> "FieldWithEvents":
        """Returns vector field and events for a single member."""
        return FieldWithEvents(self.base.of_one(), self.events, self.layout, self.own, self.shared)

    def __call__(self, t: RealScalarLike, y: Any, operands: list) -> Any:
        """Returns the rate of a state: what is known of events does not change between them."""
        return self.bind(operands)(t, y)

    def bind(self, operands: list, whole: bool = True) -> "BoundFieldWithEvents":
        """Returns vector field and events with their operands."""
        return BoundFieldWithEvents(self, self.base.bind(operands[self.own], whole), operands)


class BoundFieldWithEvents:
    """A vector field and its events with their operands.

    Attributes:
        base: The vector field, as the method itself takes it.
        booleans: The conditions that are booleans.
    """

    def __init__(self, field: FieldWithEvents, base: Any, operands: list):
        self._field, self.base, self._operands = field, base, operands
        self.booleans = field.events.booleans

    def __call__(self, t: RealScalarLike, y: Any) -> Any:
        """Returns the rate of a state of a loop."""
        if isinstance(y, EventState):
            return jax.tree.map(jnp.zeros_like, y)._replace(saved=self(t, y.saved))
        if isinstance(y, ShiftedState):
            return ShiftedState(self.base(t, y.y), jnp.zeros_like(y.shift))
        return self.base(t, y)

    def conditions(self, t: Array, y: Y) -> tuple[Array, ...]:
        """Returns the values of all conditions; a boolean is 1 or -1."""
        part = self._field.events.conditions
        return () if part is None else self._run(part, t, y)

    def updated(self, number: int, t: Array, row: Array, y: Y) -> Y:
        """Returns the state after an event, or after the given row of a schedule."""
        part = self._field.events.updates[number]
        assert part is not None  # see `Layout.updates`
        return self._run(part, t, row, y) if self._field.layout.is_schedule[number] else self._run(part, t, y)

    def start(self, t: Array, y: Y) -> PyTree:
        """Returns the memory of a system of events before anything happened; None without one."""
        part = self._field.events.start
        return None if part is None else self._run(part, t, y)

    def happen(self, *inputs: Any) -> Happened:
        """Returns what a system of events makes of a time; see `AbstractEventSystem.happen`."""
        part = self._field.events.happen
        assert part is not None
        return self._run(part, *inputs)

    @property
    def clock(self) -> "Clock":
        """The event times so far."""
        return self._run(self._field.events.clock)

    def _run(self, part: ClosedProgram, *inputs: Any) -> Any:
        return part.program(self._operands[self._field.shared], self._operands[part.consts], *inputs)


def close_events(
    base: AbstractField, operands: list[Array], model: ModelWithEvents, layout: Layout, t: Array, y: Y, args: Args
) -> tuple[FieldWithEvents, list[Array]]:
    """Returns a closed vector field with the events of its model, and all operands.

    Raises:
        ValueError: If a condition is not a number, or an update returns another structure, shape or dtype than `y0`.
        TypeError: If a condition is neither real nor a boolean.
    """
    parameters, rebuild = parameters_of(dataclasses.replace(model, model=_nothing), args)
    all_operands = [*operands, *parameters]
    own, shared = slice(0, len(operands)), slice(len(operands), len(all_operands))
    booleans: list[bool] = []

    def closed(function: Callable, *inputs: Any) -> tuple[ClosedProgram, PyTree]:
        def flat(*arguments):
            events, args = rebuild(arguments[-1])
            return function(events, args, *arguments[:-1])

        program, out, consts = close(flat, inputs, parameters)
        part = ClosedProgram(program, slice(len(all_operands), len(all_operands) + len(consts)))
        all_operands.extend(consts)
        return part, out

    def conditions(model, args, t, y):
        booleans.clear()
        found = []
        for n, e in enumerate(model.events):
            if isinstance(e, Event):
                found.append(_condition(e.condition(t, y, args), n))
            elif isinstance(e, SystemPart) and e.system is not None and e.system.count:
                found += list(e.system.conditions(t, y, args))
        booleans.extend(x.dtype == bool for x in found)
        return tuple(sign_of(x, t.dtype) if x.dtype == bool else x.astype(t.dtype) for x in found)

    def clock(model, args):
        del args
        given = tuple(
            jnp.asarray(e.times, t.dtype) if isinstance(e, Schedule) else jnp.full((1,), jnp.inf, t.dtype)
            for e, is_schedule in zip(model.events, layout.is_schedule)
            if is_schedule
        )
        never = model.direction * jnp.inf  # whatever the sign of an infinite time
        given = tuple(jnp.where(jnp.isinf(x), never, x) for x in given)
        return Clock(model.direction, model.resolution, given, model.t1)

    sought = None if all(layout.is_schedule) else closed(conditions, t, y)[0]
    given = closed(clock)[0]
    updates = []
    for number, event in enumerate(model.events):
        if isinstance(event, SystemPart) or event.update is None:
            updates.append(None)
            continue
        if isinstance(event, Schedule):
            row = jnp.zeros((), jnp.int32)

            def update(model, args, t, row, y, number=number):
                event = model.events[number]
                if event.values is None:
                    return event.update(t, y, args)
                value = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, row, 0, False), event.values)
                return event.update(t, y, args, value)

            part, out = closed(update, t, row, y)
        else:
            part, out = closed(lambda model, args, t, y, n=number: model.events[n].update(t, y, args), t, y)
        _check_update(y, out, number)
        updates.append(part)
    start = happen = None
    for event in model.events:
        if isinstance(event, SystemPart) and event.system is not None:
            start, happen = _close_system(closed, model.events.index(event), t, y, event.system.count)
    events = ClosedEvents(sought, tuple(updates), given, tuple(booleans), start, happen)
    return FieldWithEvents(base, events, layout, own, shared), all_operands


def _close_system(closed: Callable, number: int, t: Array, y: Y, count: int) -> tuple[ClosedProgram, ClosedProgram]:
    """Returns the programs of a system of events: its memory at the start, and what happens at a time."""

    def start(model, args, t, y):
        return model.events[number].system.start(t, y, args)

    def happen(model, args, *inputs):
        return model.events[number].system.happen(*inputs, args)

    first, memory = closed(start, t, y)
    memory = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), memory)
    signs = jnp.zeros((count,), t.dtype)
    return first, closed(happen, t, y, memory, signs, signs, jnp.zeros((), bool), jnp.zeros_like(t))[0]


def _nothing(t: Any, y: Any, args: Any) -> Any:
    """Stands for a model that has been closed by itself."""
    raise NotImplementedError


def _condition(value: Any, number: int) -> Array:
    value = jnp.asarray(value)
    if value.shape != ():
        raise ValueError(
            f"The condition of event {number} must return one number, but returns an array of shape {value.shape}. For "
            "several conditions, pass an event for each, or return their product or minimum."
        )
    if value.dtype != bool and not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"The condition of event {number} must return a real number or a boolean, but returns {value.dtype.name}."
        )
    return value


def _check_update(y: Y, out: PyTree, number: int) -> None:
    kinds = [[(jnp.shape(x), jnp.result_type(x).name) for x in jax.tree.leaves(tree)] for tree in (y, out)]
    if jax.tree.structure(y) != jax.tree.structure(out) or kinds[0] != kinds[1]:
        raise ValueError(
            f"The update of event {number} must return a state like `y0`, {structure_words(y)}, but returns "
            f"{structure_words(out)}.{first_difference(y, out, arrays=True)}"
        )
