"""Models in SBML.

The events of an SBML model that decide about one another, after section 4.11 of SBML Level 3 Version 2.

At one time there are rounds. All triggers are evaluated. Each that has become true makes an execution pending, with the
values from now if these are to be assigned; one that has become false removes the executions that do not persist. Of
the executions that are due, the one with the largest priority, as it is now, assigns its values. Then comes the next
round, until a round changes nothing. Events of equal priorities come in a random order, as SBML requires, which is the
same in every run: it is a hash of the number of executions so far. Events without a priority come after all others, and
in the order of the file.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._interfaces._event_system import AbstractEventSystem, Happened, never_of
from ..._interfaces._events import Event, Schedule
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter
from ..._status import Status
from ..._types import Args, RealScalarLike
from ._formulas import Formula, suggestion
from ._program import FormulaProgram, StaticContent, Sums, check_real, needed, ordered, scalars, taken_from
from ._sbml_description import SBMLDescription, sbml_described
from ._sbml_equations import sbml_equations
from ._sbml_math import TIME
from ._with_parameters import with_parameters


class EventRoot(eqx.Module):
    """A function that is positive where the trigger of an event holds."""

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)
    _number: int = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, ""]:
        """Returns its value."""
        del args
        program, slots = _root_of(self._static, self._number)
        return evaluated(program, t, y, self.parameters)[slots[0]]


class EventChange(eqx.Module):
    """The state after an event."""

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)
    _number: int = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns it."""
        del args
        program, slots = _change_of(self._static, self._number)
        return taken_from(evaluated(program, t, y, self.parameters), slots)


def evaluated(program: FormulaProgram, t: Any, y: Array, parameters: dict[str, Parameter], *more: Array) -> Array:
    """Returns the results of a program for time, state, constants and its other inputs."""
    return program(jnp.concatenate([y, scalars([t, *parameters.values(), *more], y.dtype)]))


@functools.lru_cache(maxsize=64)
def _root_of(static: StaticContent, number: int) -> tuple[FormulaProgram, np.ndarray]:
    operation, left, right = sbml_described(static).events[number].trigger  # type: ignore[misc]
    return _program(static, {"the root": ("-", left, right) if operation in (">", ">=") else ("-", right, left)})


@functools.lru_cache(maxsize=64)
def _change_of(static: StaticContent, number: int) -> tuple[FormulaProgram, np.ndarray]:
    model = sbml_described(static)
    changes = {change.variable: ("*", change.value, change.scale) for change in model.events[number].changes}
    program, slots = _program(static, {f"change of {name}": formula for name, formula in changes.items()})
    after = program.slots(model.states)  # those that are not assigned stay
    after[[model.states.index(name) for name in changes]] = slots
    return program, after


def _program(static: StaticContent, extra: dict[str, Formula]) -> tuple[FormulaProgram, np.ndarray]:
    return program_of_events(sbml_described(static), sbml_equations(static).formulas, extra)


def program_of_events(
    model: SBMLDescription, formulas: Mapping[str, Formula], extra: Mapping[str, Formula], inputs: Sequence[str] = ()
) -> tuple[FormulaProgram, np.ndarray]:
    """Returns a program of some formulas with all their dependencies, and the positions of their results.

    Args:
        model: The model.
        formulas: The formulas that these may need.
        extra: The formulas.
        inputs: Their inputs in addition to states, time and constants.
    """
    own = {name: ("*", f, 1.0) if isinstance(f, str) else f for name, f in extra.items()}
    formulas = ordered(needed(own.values(), formulas) | own)
    program = FormulaProgram([*model.states, TIME, *model.constants, *inputs], formulas)
    return program, program.slots(list(own))


_SPARE_ROUNDS = 6
"""Additional rounds at one time, besides two for each event: more mean events that trigger one another endlessly."""


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
        """Returns the memory at the start, in which triggers have their `initialValue`."""
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
    """The memory between events.

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
    """The memory after a round, as in `_Memory`, with the sign of each condition.

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
    """The values that are the same in all rounds of a time."""

    parameters: dict[str, Parameter]
    t: Array
    sides: Array
    zeros: Array
    resolution: Array


class _Plan:
    """The static description of the events of a model.

    Attributes:
        count: The number of events.
        before: The values of triggers before the start.
        delayed: Whether any has a delay.
        event: Of each assignment, the event.
        differences: The compared difference of each condition.
        condition: Of each comparison, the condition.
        greater: The comparisons that hold if their condition is positive.
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
        """Returns the memory after one more round."""
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


class SBMLModel(AbstractModel):
    r"""A model in SBML, the Systems Biology Markup Language; returned by `read_sbml`.

    $$\dot y = f(t, y, p)$$

    The state is an array of the quantities that reactions, rate rules and events change, in the order of `states`; a
    species is there as the amount or the concentration that the model has it as. The constants $p$, with the sizes of
    compartments and species that nothing changes, are leaves.

    Attributes:
        parameters: The constants by their identifiers, leaves that can be differentiated, batched and fitted. A value
            that the file does not give is NaN.

    Source:
        M. Hucka et al., Bioinformatics 19:524, 2003.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        text = '''<?xml version="1.0"?>
        <sbml xmlns="http://www.sbml.org/sbml/level3/version2/core" level="3" version="2">
          <model id="decay">
            <listOfParameters>
              <parameter id="x" value="2" constant="false"/> <parameter id="k" value="0.5" constant="true"/>
            </listOfParameters>
            <listOfRules>
              <rateRule variable="x"><math xmlns="http://www.w3.org/1998/Math/MathML">
                <apply><minus/><apply><times/><ci>k</ci><ci>x</ci></apply></apply>
              </math></rateRule>
            </listOfRules>
          </model>
        </sbml>'''
        try:
            model = sciml.models.read_sbml(text)
        except ImportError as error:  # without the extra
            assert "sciml-jax[sbml]" in str(error)
        else:
            sol = sciml.solve(model, model.y0, t0=0.0, t1=1.0)
            assert abs(sol.ys[-1, model.index("x")] - 2 * jnp.exp(-0.5)) < 1e-4
        ```
    """

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)

    def __init__(self, description: Any, parameters: dict[str, Any] | None = None):
        if not isinstance(description, SBMLDescription):
            raise TypeError("an `SBMLModel` must be created with `sciml.models.read_sbml`.")
        values = description.constants if parameters is None else parameters
        self.parameters = {name: parameter(values[name]) for name in sorted(values)}
        description.constants = dict.fromkeys(self.parameters, math.nan)
        self._static = description.static()

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the time derivative of the state; `args` is not used."""
        del args
        return sbml_equations(self._static).sums(self.values(t, y))

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._static.content[0]

    @property
    def states(self) -> tuple[str, ...]:
        """The identifiers of the state's components."""
        return self._static.content[1]

    @property
    def reactions(self) -> tuple[str, ...]:
        """The identifiers of the reactions, whose rates `value` returns."""
        return self._static.content[7]

    @property
    def y0(self) -> Float[Array, " n"]:
        """The state at the start, of the default dtype; parameters that it depends on are differentiated."""
        return self.state()

    def state(self, **values: RealScalarLike) -> Float[Array, " n"]:
        """Returns the state at the start with some of it replaced: `model.state(S=2.0)`.

        Raises:
            ValueError: If nothing of that name is part of the state.
        """
        dtype = jnp.result_type(float)
        places = {name: self.index(name) for name in values}
        equations = sbml_equations(self._static)
        found = equations.initial(scalars(list(self.parameters.values()), dtype))
        found = taken_from(found, equations.initial_slots)
        for name, value in values.items():
            found = found.at[places[name]].set(jnp.asarray(value, dtype))
        return found

    def index(self, name: str) -> int:
        """Returns the position of a component in the state.

        Raises:
            ValueError: If it is not part of it.
        """
        if name not in self.states:
            raise ValueError(f"`{name}` is not part of the state of `{self.name}`.{suggestion(name, self.states)}")
        return self.states.index(name)

    def value(self, name: str, t: RealScalarLike, y: Float[Array, " n"]) -> Float[Array, ""]:
        """Returns anything by its identifier: a state, a constant, the result of a rule, the rate of a reaction.

        Raises:
            ValueError: If there is nothing of that name.
        """
        return self.values(t, y)[self.place(name)]

    def place(self, name: str) -> int:
        """Returns the place of anything among `values`, by its identifier.

        Raises:
            ValueError: If there is nothing of that name.
        """
        places = sbml_equations(self._static).program.places
        if name not in places:
            raise ValueError(f"there is no `{name}` in `{self.name}`.{suggestion(name, places)}")
        return places[name]

    def values(self, t: RealScalarLike, y: Float[Array, " n"]) -> Float[Array, " m"]:
        """Returns all that `value` returns single ones of, in an order of its own."""
        equations = sbml_equations(self._static)
        if jnp.shape(y) != (len(self.states),):
            raise ValueError(f"the state must have shape ({len(self.states)},), like `model.y0`, not {jnp.shape(y)}.")
        check_real(self.parameters, y.dtype)
        return equations.program(jnp.concatenate([y, scalars([t, *self.parameters.values()], y.dtype)]))

    def events(self, pending: int = 8) -> list[Event | Schedule | AbstractEventSystem]:
        """Returns the events of the model, for `solve(..., events=)`.

        The list also has the times at which a `piecewise` of the time jumps: steps end there. An event that no other
        event can influence, without a delay and with one comparison for its trigger, is a `Schedule` if that compares
        the time with constants, and an `Event` otherwise. All others are one item, the last: they follow the rules of
        SBML for triggers, priorities, delays and persistence, and `sol.events` has one row for all of them that happen
        at one time.

        Args:
            pending: The number of executions of one event that may be pending at one time. If there are more,
                the solve ends with `Status.pending_events`.

        Raises:
            ValueError: If `pending` is not a positive integer.
        """
        if isinstance(pending, bool) or not isinstance(pending, int) or pending < 1:
            raise ValueError(f"`pending` must be a positive integer, but is {pending!r}.")
        equations = sbml_equations(self._static)
        found: list[Event | Schedule | AbstractEventSystem] = []
        if equations.jumps or equations.scheduled:
            values = equations.times(scalars(list(self.parameters.values()), jnp.result_type(float)))
            if equations.jumps:
                found.append(Schedule(_ascending(taken_from(values, equations.times.slots(equations.jumps)))))
            for number, time in equations.scheduled:
                event = sbml_described(self._static).events[number]
                at = values[equations.times.places[time]]
                if not event.at_start:  # what holds at the start has not become true there
                    at = jnp.where(at <= 0, jnp.inf, at)
                found.append(Schedule(at[None], EventChange(self.parameters, self._static, number)))
        for number in equations.sought:
            root = EventRoot(self.parameters, self._static, number)
            found.append(Event(root, EventChange(self.parameters, self._static, number), direction=1))
        if equations.together:
            found.append(SBMLEventSystem(self.parameters, self._static, pending))
        return found

    def with_parameters(self, **values: Any) -> "SBMLModel":
        """Returns the model with other values of some parameters: `model.with_parameters(k1=0.5)`.

        Everything else stays: the state at the start and rules, which follow, and the compiled programs.

        Raises:
            ValueError: If a name is not a parameter, or a value has another shape.
            TypeError: If a value is complex.
        """
        description = sbml_described(self._static)
        return with_parameters(self, values, {*description.initial, *description.assignments}, self.states)

    def with_initial_parameters(self, *names: str) -> "SBMLModel":
        """Returns the model with something that a formula gives at the start made a parameter.

        A constant with an initial assignment becomes a parameter of its name. A state `S` gets the parameter `S(0)`,
        its value at the start. Their values are those that the formulas give now.

        Raises:
            ValueError: If nothing of that name has a formula at the start.
        """
        description = sbml_described(self._static)
        equations = sbml_equations(self._static)
        start = equations.initial(scalars(list(self.parameters.values()), jnp.result_type(float)))
        values: dict[str, Any] = dict(self.parameters)
        for name in names:
            if name not in description.initial:
                raise ValueError(
                    f"`{name}` has no formula for its initial value in `{self.name}`, or is already a parameter."
                )
            if name in description.states:
                description.initial[name] = f"{name}(0)"
                values[f"{name}(0)"] = start[equations.initial.places[name]]
            else:
                del description.initial[name]
                values[name] = start[equations.initial.places[name]]
        return SBMLModel(description, values)


def _ascending(times: Float[Array, " n"]) -> Float[Array, " n"]:
    """Times in their order, each once, and infinite ones behind."""
    times = jnp.sort(times)
    again = jnp.concatenate([jnp.zeros(1, bool), times[1:] <= times[:-1]])
    return jnp.sort(jnp.where(again, jnp.inf, times))
