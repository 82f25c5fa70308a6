"""The events of an SBML model that decide about one another, after section 4.11 of SBML Level 3 Version 2.

At one time there are rounds. All triggers are evaluated. Each that has become true makes an execution pending, with the
values from now if these are to be assigned; one that has become false removes the executions that do not persist. Of
the executions that are due, the one with the largest priority, as it is now, assigns its values. Then comes the next
round, until a round changes nothing. Events of equal priorities come in a random order, as SBML asks for, which is the
same in every run: it is a hash of the number of executions so far. Events without a priority come after all others, and
in the order of the file.
"""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._event_system import AbstractEventSystem, Happened, never_of
from ..._parameters import Parameter
from ..._status import Status
from ..._types import Args
from ._program import FormulaProgram, StaticContent, Sums, scalars, taken_from
from ._sbml_description import sbml_described
from ._sbml_equations import sbml_equations
from ._sbml_events import evaluated, program_of_events

_SPARE_ROUNDS = 6
"""Rounds at one time beside two for each event: more are events that make one another happen without end."""


class SBMLEventSystem(AbstractEventSystem):
    """Events of an SBML model; see `SBMLModel.events`.

    Attributes:
        parameters: The constants of the model.
        pending: The number of executions of one event that may be pending.
    """

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)
    pending: int = eqx.field(static=True)

    @property
    def count(self) -> int:
        """The number of conditions."""
        return len(_plan(self._static).differences)

    def conditions(self, t: Array, y: Float[Array, " n"], args: Args) -> Float[Array, " conditions"]:
        """Returns the differences of what triggers compare."""
        del args
        program, slots = _plan(self._static).conditions
        return taken_from(evaluated(program, t, y, self.parameters), slots).astype(t.dtype)

    def start(self, t: Array, y: Float[Array, " n"], args: Args) -> "_Memory":
        """Returns the memory at the start, which says of triggers what `initialValue` does."""
        del args
        plan = _plan(self._static)
        kept = self.pending if plan.delayed else 0
        never = jnp.full((kept, plan.count), never_of(t.dtype), t.dtype)
        held = jnp.zeros((kept, len(plan.event)), y.dtype)
        return _Memory(jnp.asarray(plan.before, y.dtype), never, held, jnp.zeros((), y.dtype))

    def happen(
        self,
        t: Array,
        y: Float[Array, " n"],
        memory: "_Memory",
        sides: Array,
        zeros: Array,
        started: Array,
        resolution: Array,
        args: Args,
    ) -> Happened:
        """Returns what happens at a time."""
        del args
        plan = _plan(self._static)
        setting = _Setting(self.parameters, t, sides, zeros, resolution)
        if plan.delayed:
            due, held = memory.due, memory.held
        else:
            due = jnp.full((self.pending, plan.count), never_of(t.dtype), t.dtype)
            held = jnp.zeros((self.pending, len(plan.event)), y.dtype)
        # just after the time, where a comparison with the time has become true; at the start it has not yet
        later = jnp.full((2 * plan.count + _SPARE_ROUNDS,), jax.lax.stop_gradient(resolution))
        later = later.at[0].set(jnp.where(started, later[0], jnp.zeros_like(later[0])))
        none = jnp.zeros((), bool)
        first = _Round(y, memory.holds > 0.5, jnp.zeros_like(sides), due, held, memory.executed, none, none, none)
        last, _ = jax.lax.scan(lambda x, ahead: (plan.round_after(x, ahead, setting), None), first, later)
        code = jnp.where(last.going, int(Status.crowded_events), 0)
        code = jnp.where(last.lost, int(Status.pending_events), code)
        kept = (last.due, last.held) if plan.delayed else (memory.due, memory.held)
        next_ = jnp.min(jnp.append(last.due, self._next(t, resolution)))
        memory = _Memory(last.holds.astype(y.dtype), *kept, last.executed)
        return Happened(last.y, memory, next_, last.any, last.signs, code)

    def _next(self, t: Array, resolution: Array) -> Array:
        """Returns the next time at which a trigger that compares the time may change."""
        equations = sbml_equations(self._static)
        if not equations.known:
            return jnp.full((), never_of(t.dtype), t.dtype)
        values = equations.times(scalars(list(self.parameters.values()), t.dtype))
        times = taken_from(values, equations.times.slots(equations.known))
        return jnp.min(jnp.where(times > t + 4 * resolution, times, never_of(t.dtype)))


class _Memory(NamedTuple):
    """What is known between events.

    Attributes:
        holds: One for each trigger that holds, zero for the others.
        due: When executions are due, `(pending, events)`; `never_of` where there are none.
        held: The values that they assign, `(pending, assignments)`.
        executed: The number of executions so far.
    """

    holds: Array
    due: Array
    held: Array
    executed: Array


class _Round(NamedTuple):
    """What is known after a round, as in `_Memory`, with the sign of each condition.

    And three facts: has anything been done, is more to be done, was there no place for an execution.
    """

    y: Array
    holds: Array
    signs: Array
    due: Array
    held: Array
    executed: Array
    any: Array
    going: Array
    lost: Array


class _Setting(NamedTuple):
    """What is the same in all rounds of a time."""

    parameters: dict[str, Parameter]
    t: Array
    sides: Array
    zeros: Array
    resolution: Array


class _Plan:
    """What is static of the events of a model.

    Attributes:
        count: The number of events.
        before: What triggers are said to be before the start.
        delayed: Whether any has a delay.
        event: Of each assignment, the event.
        differences: What is compared, of each condition.
        condition: Of each comparison, the condition.
        greater: Which comparisons hold where their condition is positive.
        first: Of each condition, its first comparison.
    """

    def __init__(self, static: StaticContent):
        model, equations = sbml_described(static), sbml_equations(static)
        events = [model.events[number] for number in equations.together]
        changes = [(i, change) for i, event in enumerate(events) for change in event.changes]
        self.count = len(events)
        self.before = np.array([not event.at_start for event in events], float)
        self.persistent = np.array([event.persistent for event in events])
        self.delayed = any(event.delay is not None for event in events)
        self.ranked = sum(event.priority is not None for event in events) > 1
        self.event = np.array([i for i, _ in changes], np.int64)
        self.from_trigger = np.array([events[i].from_trigger for i, _ in changes], bool)
        comparisons = equations.comparisons
        self.differences = list(dict.fromkeys(pair for _, *pair in comparisons for pair in [tuple(pair)]))
        self.condition = np.array([self.differences.index(tuple(pair)) for _, *pair in comparisons], np.int64)
        self.greater = np.array([operation in (">", ">=") for operation, *_ in comparisons], bool)
        self.first = np.array([list(self.condition).index(i) for i in range(len(self.differences))], np.int64)
        named = [f"comparison {i}" for i in range(len(comparisons))]
        triggers = {f"trigger {i}": trigger for i, trigger in enumerate(equations.triggers)}
        self.triggers = program_of_events(model, equations.formulas, triggers, named)
        formulas: dict[str, Any] = {f"the comparison {i}": comparison for i, comparison in enumerate(comparisons)}
        differences = {f"difference {i}": ("-", *pair) for i, pair in enumerate(self.differences)}
        formulas |= differences
        formulas |= {f"delay {i}": event.delay or 0.0 for i, event in enumerate(events)}
        formulas |= {
            f"priority {i}": -np.inf if event.priority is None else event.priority for i, event in enumerate(events)
        }
        formulas |= {f"value {i}": change.value for i, (_, change) in enumerate(changes)}
        formulas |= {f"scale {i}": change.scale for i, (_, change) in enumerate(changes)}
        self.program, slots = program_of_events(model, equations.formulas, formulas)
        ends = np.cumsum([len(comparisons), len(differences), self.count, self.count, len(changes)])
        self.slots = np.split(slots, ends)
        self.conditions = program_of_events(model, equations.formulas, differences)
        states = {name: i for i, name in enumerate(model.states)}
        self.writes: list[Sums] = []  # assignments without a divisor, and with one
        for divided in (False, True):
            rows: list[dict[int, float]] = [{} for _ in states]
            for i, (_, change) in enumerate(changes):
                if (change.divisor is not None) == divided:
                    rows[states[change.variable]][i] = 1.0
            self.writes.append(Sums(rows))
        divisors = {f"divisor {i}": change.divisor or 1.0 for i, (_, change) in enumerate(changes)}
        self.sizes: tuple[FormulaProgram, np.ndarray] | None = None
        if any(change.divisor is not None for _, change in changes):
            self.sizes = program_of_events(model, equations.formulas, divisors)

    def compared(self, found: Array, differences: Array, setting: _Setting) -> Array:
        """Returns which comparisons hold; where one is just changing, rounding does not decide."""
        near = (setting.sides != 0) & (jnp.abs(differences) <= setting.zeros)
        near, above = (taken_from(x, self.condition) for x in (near, setting.sides > 0))
        return jnp.where(near, above == self.greater, found > 0.5)

    def round_after(self, last: _Round, ahead: Array, setting: _Setting) -> _Round:
        """Returns what is known after one more round."""
        t, dtype = setting.t, last.y.dtype
        values = evaluated(self.program, t + ahead, last.y, setting.parameters)
        found, differences, delays, priorities, assigned, scales = (taken_from(values, x) for x in self.slots)
        compared = self.compared(found, differences.astype(t.dtype), setting)
        program, slots = self.triggers
        values = evaluated(program, t + ahead, last.y, setting.parameters, compared.astype(dtype))
        holds = taken_from(values, slots) > 0.5
        signs = jnp.where(taken_from(compared == self.greater, self.first), 1.0, -1.0).astype(t.dtype)
        never = never_of(t.dtype)
        due = jnp.where((self.persistent | holds)[None], last.due, never)
        waits, held, rows = holds & ~last.holds, last.held, []
        for row in range(due.shape[0]):
            free = (due[row] >= never) & waits
            rows.append(jnp.where(free, t + delays.astype(t.dtype), due[row]))
            new = jnp.where(taken_from(free, self.event), assigned, held[row])
            held, waits = held.at[row].set(new), waits & ~free
        due = jnp.stack(rows)
        comes = due <= t + 4 * setting.resolution
        ranked = jnp.where(jnp.isnan(priorities), -jnp.inf, priorities)[None]
        largest = jnp.max(jnp.where(comes, ranked, -jnp.inf))
        first = comes & (ranked >= largest)
        if self.ranked:
            hashed = _hashed(last.executed, due.shape)
            shuffled = jnp.min(jnp.where(first, hashed, _HASHES))
            first = first & ((hashed == shuffled) | (largest == -jnp.inf))
        order = np.arange(due.size, dtype=dtype).reshape(due.shape[::-1]).T
        order = jnp.where(first, order, jnp.inf)
        chosen = first & (order == jnp.min(order))
        y = self._assigned(last.y, chosen, held, assigned, scales, setting)
        due = jnp.where(chosen, never, due)
        going = jnp.any(comes)
        executed = last.executed + going.astype(dtype)
        return _Round(y, holds, signs, due, held, executed, last.any | going, going, last.lost | jnp.any(waits))

    def _assigned(
        self, y: Array, chosen: Array, held: Array, assigned: Array, scales: Array, setting: _Setting
    ) -> Array:
        """Returns the state after the execution that was chosen, if any."""
        if not len(self.event):
            return y
        mine = jnp.stack([taken_from(row, self.event) for row in chosen])
        on = jnp.any(mine, axis=0)
        value = jnp.where(self.from_trigger, jnp.sum(jnp.where(mine, held, 0.0), axis=0), assigned) * scales
        y = self._written(0, y, on, value)
        if self.sizes is not None:
            program, slots = self.sizes
            value = value / taken_from(evaluated(program, setting.t, y, setting.parameters), slots)
            y = self._written(1, y, on, value)
        return y

    def _written(self, number: int, y: Array, on: Array, value: Array) -> Array:
        write = self.writes[number]
        if not write.parts:
            return y
        return jnp.where(write(on.astype(y.dtype)) > 0, write(jnp.where(on, value, 0.0)), y)


_HASHES = 2**24
"""Hashes are whole numbers below this, which float32 has all of."""


def _hashed(number: Array, shape: tuple[int, ...]) -> Array:
    """Returns hashes of a number, one for each place of an array, by the mixer of MurmurHash3."""
    places = np.arange(math.prod(shape), dtype=np.uint32).reshape(shape) * np.uint32(0x9E3779B1)
    x = jnp.asarray(places) + jax.lax.stop_gradient(number).astype(jnp.uint32) * np.uint32(0x85EBCA77)
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return ((x ^ (x >> 16)) >> 8).astype(number.dtype)


@functools.lru_cache(maxsize=64)
def _plan(static: StaticContent) -> _Plan:
    return _Plan(static)
