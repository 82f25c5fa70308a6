"""The contents of an SBML model, from sbmlode's analysis of it."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._formulas import Formula, depends_on_any, names_in, suggestion
from ._program import StaticContent, needed
from ._sbml_delays import replace_delays
from ._sbml_document import place_of_name, read_document
from ._sbml_math import TIME, Mathematics


class SBMLChange(NamedTuple):
    """An assignment of an event, `variable := value * scale / divisor`.

    Attributes:
        variable: The state that it changes.
        value: Its formula; one for a concentration whose amount stays.
        scale: A formula of the values just before the assignments of the event.
        divisor: A compartment, whose size just after the assignments without a divisor it is; or None.
    """

    variable: str
    value: Formula
    scale: Formula
    divisor: str | None


class SBMLEvent(NamedTuple):
    """An event of a model.

    Attributes:
        name: Its identifier.
        trigger: A condition.
        at_start: Whether it happens at the start if the trigger holds there.
        changes: Its assignments.
        delay: The time from the trigger to the assignments; None for no delay.
        priority: The priority among events of the same time: the largest comes first; None without a priority.
        persistent: Whether it happens even if the trigger has become false in the meantime.
        from_trigger: Whether assigned values are those at the time of the trigger, and not at the assignments.
    """

    name: str
    trigger: Formula
    at_start: bool
    changes: tuple[SBMLChange, ...]
    delay: Formula | None
    priority: Formula | None
    persistent: bool
    from_trigger: bool

    @property
    def writes(self) -> set[str]:
        """The states that it changes."""
        return {change.variable for change in self.changes}

    @property
    def formulas(self) -> list[Formula]:
        """All formulas that it reads."""
        own: list[Formula] = [self.trigger, *(f for f in (self.delay, self.priority) if f is not None)]
        for change in self.changes:
            own += [change.value, change.scale, *([change.divisor] if change.divisor else [])]
        return own


@dataclasses.dataclass
class SBMLDescription:
    """A model.

    Attributes:
        name: Its name.
        states: The variables that change in time by a rate or an event.
        constants: The constants that are not results of formulas, with their values.
        assignments: Formulas of what follows from states, constants and the time; rates of reactions too.
        rates: The time derivatives of states; of others it is zero.
        initial: Formulas of what has one at the start: states, and constants with an initial assignment.
        events: The events.
        reactions: Identifiers of the reactions.
        delayed: The states and lags that names stand for: `S(t - lag)`.
    """

    name: str
    states: list[str]
    constants: dict[str, float]
    assignments: dict[str, Formula]
    rates: dict[str, Formula]
    initial: dict[str, Formula]
    events: list[SBMLEvent]
    reactions: list[str]
    delayed: dict[str, tuple[str, Formula]] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """All that formulas may refer to."""
        return {TIME, *self.states, *self.constants, *self.assignments, *self.initial, *self.delayed}

    def formulas(self) -> list[tuple[str, list[Formula]]]:
        """All formulas, with their owners."""
        named = [*self.assignments.items(), *self.rates.items(), *self.initial.items()]
        return [(name, [f]) for name, f in named] + [(event.name, event.formulas) for event in self.events]

    def static(self) -> StaticContent:
        """All but the values of constants, as a value that is compared and hashed."""
        return StaticContent(
            (
                self.name,
                tuple(self.states),
                tuple(self.constants),
                tuple(self.assignments.items()),
                tuple(self.rates.items()),
                tuple(self.initial.items()),
                tuple(self.events),
                tuple(self.reactions),
                tuple(self.delayed.items()),
            )
        )


def sbml_described(static: StaticContent) -> SBMLDescription:
    """The model that `SBMLDescription.static` made a value of; constants without their values."""
    name, states, constants, assignments, rates, initial, events, reactions, delayed = static.content
    missing = dict.fromkeys(constants, math.nan)
    return SBMLDescription(
        name, list(states), missing, dict(assignments), dict(rates), dict(initial), list(events), list(reactions),
        dict(delayed),
    )  # fmt: skip


def read_description(source: str | os.PathLike) -> SBMLDescription:
    """Reads a model from a file, or from SBML as text.

    Raises:
        ImportError: If sbmlode is not installed.
        ValueError: If it cannot be read, or has an unsupported feature.
    """
    try:
        import sbmlode
    except ImportError as error:
        raise ImportError(
            "reading SBML requires sbmlode, which needs Python 3.12 or newer: `pip install 'sciml-jax[sbml]'`."
        ) from error
    is_text = isinstance(source, str) and source.lstrip().startswith("<")
    if not is_text and not pathlib.Path(source).is_file():
        raise FileNotFoundError(f"there is no file {str(source)!r}.")
    doc = read_document(source)
    delayed = replace_delays(doc)
    try:
        system = sbmlode.OdeSystem.from_sbml(doc)
    except (AttributeError, KeyError, TypeError) as error:  # what it says nothing of itself
        raise ValueError(f"the SBML is not a model that can be analysed: {type(error).__name__}, {error}.") from error
    unsupported = [(what, where) for what, where in system.unsupported if what != "event trigger"]
    if unsupported:
        found = ", ".join(f"{what} (`{where}`)" for what, where in unsupported)
        raise ValueError(f"the SBML model uses an unsupported feature: {found}.")
    description = _described(system)
    description.constants = {name: x for name, x in description.constants.items() if name not in delayed}
    description.delayed = delayed
    _check_delays(description)
    for owner, formulas in description.formulas():
        for name in (name for formula in formulas for name in names_in(formula)):
            if name not in description.names:
                close = suggestion(name, description.names)
                raise ValueError(
                    f"SBML{place_of_name(doc, name)}: the formula of `{owner}` has the unknown name `{name}`.{close}"
                )
    return description


def _check_delays(description: SBMLDescription) -> None:
    """Checks that delays are of states, and that no event depends on them."""
    for name, (state, _) in description.delayed.items():
        if state not in description.states:
            raise ValueError(f"the SBML model uses an unsupported feature: delay of `{state}`, which is not a state.")
        for event in description.events:
            used = [*event.formulas, *needed(event.formulas, description.assignments).values()]
            if any(depends_on_any(formula, {name}) for formula in used):
                raise ValueError(f"the SBML model uses an unsupported feature: delay (`{event.name}`).")


def _described(system: Any) -> SBMLDescription:
    read = Mathematics({f.symbol.sid: (f.arguments, f.body) for f in system.functions}).formula
    changed = {a.variable for event in system.events for a in event.assignments}
    states = list(system.states)
    states += [sid for sid in system.constants if sid in changed]
    initial = {a.variable: read(a.math) for a in system.initial}
    assignments = {a.variable: read(a.math) for a in system.assignments}
    constants: dict[str, float] = {}
    for sid in system.constants:
        value = system.quantity(sid).value
        if sid in states:
            initial.setdefault(sid, math.nan if value is None else float(value))
        elif sid not in initial:
            constants[sid] = math.nan if value is None else float(value)
    # derived values do not have a separate formula at the start
    initial = {sid: formula for sid, formula in initial.items() if sid not in assignments}
    rates = {ode.variable: read(ode.rhs) for ode in system.odes}
    events = [_event(event, read, states) for event in system.events]
    reactions = [r.symbol.sid for r in system.reactions]
    name = system.info.name or system.info.sid or "model"
    return SBMLDescription(name, states, constants, assignments, rates, initial, events, reactions)


def _event(event: Any, read: Any, states: Sequence[str]) -> SBMLEvent:
    sid = event.symbol.sid
    if wrong := [a.variable for a in event.assignments if a.variable not in states]:
        raise ValueError(f"the event `{sid}` assigns `{wrong[0]}`, which is computed from other values.")

    def optional(math_: Any, other: Formula | None) -> Formula | None:
        return other if math_ is None else read(math_)

    changes = tuple(
        SBMLChange(a.variable, optional(a.math, 1.0), optional(a.scale, 1.0), a.divisor)  # type: ignore[arg-type]
        for a in event.assignments
    )
    delay = optional(event.delay, None)
    delay = None if delay == 0.0 else delay
    priority, early = optional(event.priority, None), event.use_values_from_trigger_time
    trigger, at_start = read(event.trigger), not event.initial_value
    return SBMLEvent(sid, trigger, at_start, changes, delay, priority, event.persistent, early)


def sum_of_terms(formula: Formula) -> dict[Formula, float]:
    """A formula as a sum of multiples of others: `2*v1 - v2/V` is 2 of `v1` and -1 of `v2/V`."""
    found: dict[Formula, float] = {}

    def add(part: Formula, factor: float, divisors: tuple[Formula, ...]) -> None:
        if isinstance(part, tuple):
            operation, *inner = part
            if operation in ("+", "-"):
                for i, term in enumerate(inner):
                    add(term, -factor if operation == "-" and i else factor, divisors)
                return
            if operation == "neg":
                return add(inner[0], -factor, divisors)
            if operation == "*":
                numbers = [x for x in inner if isinstance(x, float)]
                rest = [x for x in inner if not isinstance(x, float)]
                if numbers and rest:
                    return add(rest[0] if len(rest) == 1 else ("*", *rest), factor * math.prod(numbers), divisors)
            if operation == "/" and _is_sum(inner[0]):
                return add(inner[0], factor, (*divisors, inner[1]))
        elif isinstance(part, float) and part == 0.0:
            return None
        for divisor in divisors:
            part = ("/", part, divisor)
        found[part] = found.get(part, 0.0) + factor

    add(formula, 1.0, ())
    return found


def _is_sum(formula: Formula) -> bool:
    if isinstance(formula, str):
        return True
    return isinstance(formula, tuple) and formula[0] in ("+", "-", "neg", "*")
