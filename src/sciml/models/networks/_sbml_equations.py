"""The program of an SBML model."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ._formulas import COMPARISONS, Formula, names_in, renamed, zero_of
from ._program import FormulaProgram, StaticContent, Sums, needed, ordered
from ._sbml_description import SBMLDescription, SBMLEvent, sbml_described, sum_of_terms
from ._sbml_math import TIME


class SBMLEquations(NamedTuple):
    """The program of a model.

    Attributes:
        formulas: The formulas of values derived from states, the time and constants.
        program: The same as a program.
        sums: The right-hand side, of all these.
        initial: Of constants, what holds at the start.
        initial_slots: The positions of states among its results.
        times: Of constants, when something happens.
        jumps: Names of times at which the right-hand side jumps.
        scheduled: Events at given times, by number, with the names of these.
        sought: Numbers of events that are sought.
        together: Numbers of events that may decide about one another, or that have a delay.
        triggers: Their triggers, with names, `comparison 0`, for comparisons that change between events.
        comparisons: These comparisons.
        known: Names of times at which triggers of these events may change.
    """

    formulas: dict[str, Formula]
    program: FormulaProgram
    sums: Sums
    initial: FormulaProgram
    initial_slots: np.ndarray
    times: FormulaProgram
    jumps: tuple[str, ...]
    scheduled: tuple[tuple[int, str], ...]
    sought: tuple[int, ...]
    together: tuple[int, ...]
    triggers: tuple[Formula, ...]
    comparisons: tuple[tuple, ...]
    known: tuple[str, ...]


@functools.lru_cache(maxsize=64)
def sbml_equations(static: StaticContent) -> SBMLEquations:
    """The equations of a model."""
    model = sbml_described(static)
    constants = list(model.constants)
    start = _Start(model)
    terms: dict[Formula, str] = {}
    rows: list[dict[str, float]] = []
    for state in model.states:
        row: dict[str, float] = {}
        for term, factor in sum_of_terms(model.rates.get(state, 0.0)).items():
            name = term if isinstance(term, str) else terms.setdefault(term, f"term {len(terms)}")
            row[name] = row.get(name, 0.0) + factor
        rows.append(row)
    formulas = ordered(model.assignments | start.constants() | {name: term for term, name in terms.items()})
    program = FormulaProgram([*model.states, TIME, *constants, *model.delayed], formulas)
    sums = Sums([{int(program.places[name]): x for name, x in row.items()} for row in rows])
    at_start = {name: start.of(name) for name in model.states}
    initial = FormulaProgram(constants, ordered(start.found))
    slots = initial.slots([name for name in at_start.values()])
    for name in [*model.initial, *model.assignments]:
        initial.places[name] = initial.places[start.of(name)] if start.of(name) in initial.places else -1
    return SBMLEquations(formulas, program, sums, initial, slots, *_times(model, start))


class SBMLPast(NamedTuple):
    """The past of a model with delays.

    Attributes:
        lags: Of constants, the lags.
        lag_slots: The positions of different lags among its results.
        which: Of each name for a past state, which of these lags.
        states: Of each, the position in the state.
        before: Of the time and constants, the state before the start.
        before_slots: The positions of states among its results.
    """

    lags: FormulaProgram
    lag_slots: np.ndarray
    which: np.ndarray
    states: np.ndarray
    before: FormulaProgram
    before_slots: np.ndarray


@functools.lru_cache(maxsize=64)
def past_of(static: StaticContent) -> SBMLPast:
    """The past of a model with delays."""
    model = sbml_described(static)
    different = list(dict.fromkeys(lag for _, lag in model.delayed.values()))
    named = {f"lag {i}": ("+", lag, 0.0) for i, lag in enumerate(different)}
    lags = FormulaProgram(list(model.constants), ordered(_Start(model).constants() | named))
    then = _Start(model, TIME)
    names = [then.of(state) for state in model.states]
    before = FormulaProgram([TIME, *model.constants], ordered(then.found))
    return SBMLPast(
        lags, lags.slots(list(named)), np.array([different.index(lag) for _, lag in model.delayed.values()]),
        np.array([model.states.index(state) for state, _ in model.delayed.values()]), before, before.slots(names),
    )  # fmt: skip


class _Start:
    """The meaning of names at the start, as formulas of constants; or at a time before it."""

    def __init__(self, model: SBMLDescription, time: Formula = 0.0):
        self.model, self.time = model, time
        self.found: dict[str, Formula] = {}

    def of(self, name: str) -> str:
        """The name of a name's value at the start."""
        model = self.model
        if name in model.constants:
            return name
        own = name if name in model.initial and name not in model.states else f"{name} at the start"
        if own not in self.found:
            self.found[own] = 0.0  # against circles, which `ordered` finds
            if name in model.delayed:
                state, lag = model.delayed[name]
                formula = renamed(model.initial[state], {TIME: ("-", TIME, lag)})
            else:
                formula = model.initial[name] if name in model.initial else model.assignments[name]
            self.found[own] = self.formula(formula)
        return own

    def formula(self, formula: Formula) -> Formula:
        """A formula at the start."""
        return renamed(formula, {n: self.time if n == TIME else self.of(n) for n in set(names_in(formula))})

    def constants(self) -> dict[str, Formula]:
        """Formulas of constants with an initial assignment, and of what they need."""
        for name in self.model.initial:
            if name not in self.model.states:
                self.of(name)
        return dict(self.found)


def _times(model: SBMLDescription, start: _Start) -> tuple:
    """When something happens: the last items of `SBMLEquations`, from `times` on."""
    unknown = _following(model, {*model.states, TIME, *model.delayed})  # what changes on the way
    found: dict[str, Formula] = {}

    def noted(time: Formula | None) -> str | None:
        if time is None or unknown.intersection(names_in(time)):
            return None
        if not any(True for _ in names_in(time)) and isinstance(time, str):
            return None
        for name, formula in found.items():
            if formula == time:
                return name
        found[f"time {len(found)}"] = ("+", time, 0.0) if isinstance(time, str) else time
        return f"time {len(found) - 1}"

    def time_of(condition: Any) -> str | None:
        return noted(zero_of(("-", *condition[1:]), TIME)) if condition[0] in _ORDERS else None

    def jumps_of(formula: Formula) -> list[str]:
        return [time for x in _conditions(formula) if (time := time_of(x)) is not None]

    jumps = dict.fromkeys(x for f in (*model.assignments.values(), *model.rates.values()) for x in jumps_of(f))
    times = [time_of(x) if _is_order(x) and _rises(x) else None for x in (e.trigger for e in model.events)]
    reads = [_all_names(event.formulas, model.assignments) for event in model.events]
    moving = {TIME, *(name for name in model.states if model.rates.get(name, 0.0) != 0.0)}
    comparisons = _Comparisons(_following(model, moving), lambda x: time_of(x) is not None)
    scheduled, sought, together, triggers, known = [], [], [], [], {}
    for number, event in enumerate(model.events):
        others = [other for other in range(len(model.events)) if other != number]
        if _by_itself(event) and not any(_interact(model, reads, found, times, number, other) for other in others):
            if times[number] is not None:
                scheduled.append((number, times[number]))
                continue
            if _is_order(event.trigger) and comparisons.moves(event.trigger) and not event.at_start:
                sought.append(number)
                continue
        together.append(number)
        known |= dict.fromkeys(jumps_of(event.trigger))
        triggers.append(comparisons.named(event.trigger))
        if comparisons.moves(triggers[-1]):
            raise ValueError(
                f"the trigger of the event `{event.name}` tests a time-dependent value for equality, or is itself a "
                "time-dependent number, which is not supported."
            )
    constant = {name: f for name, f in model.assignments.items() if name not in unknown}
    program = FormulaProgram(list(model.constants), ordered(start.constants() | constant | found))
    lists = (jumps, scheduled, sought, together, triggers, comparisons.found, known)
    return program, *map(tuple, lists)


_ORDERS = ("<", "<=", ">", ">=")


def _is_order(formula: Formula) -> bool:
    return isinstance(formula, tuple) and formula[0] in _ORDERS and len(formula) == 3


class _Comparisons:
    """The comparisons in triggers that change between events other than at known times."""

    def __init__(self, moving: set[str], known: Callable[[tuple], bool]):
        self.moving, self.known = moving, known
        self.found: dict[tuple, str] = {}

    def moves(self, formula: Formula) -> bool:
        """Whether a formula changes between events other than by comparisons of the time at times that are known."""
        if isinstance(formula, str):
            return formula in self.moving
        if not isinstance(formula, tuple) or (TIME in names_in(formula) and _is_order(formula) and self.known(formula)):
            return False
        return any(map(self.moves, formula[1:]))

    def named(self, formula: Formula) -> Formula:
        """Returns a formula with names for its comparisons."""
        if not isinstance(formula, tuple) or not self.moves(formula):
            return formula
        parts = [self.named(part) for part in formula[1:]]
        if not _is_order(formula):
            return (formula[0], *parts)
        return self.found.setdefault(formula, f"comparison {len(self.found)}")


def _by_itself(event: SBMLEvent) -> bool:
    """Whether an event has no delay, and changes no compartment of concentrations."""
    return event.delay is None and all(change.divisor is None for change in event.changes)


def _interact(
    model: SBMLDescription, reads: list[set[str]], found: dict[str, Formula], times: list[str | None], i: int, j: int
) -> bool:
    """Whether it may matter that two events happen at one time, or one may make the other happen."""
    one, other = model.events[i], model.events[j]
    if not (one.writes & (reads[j] | other.writes) or other.writes & reads[i]):
        return False
    at = [found[time] for time in (times[i], times[j]) if time is not None]
    apart = len(at) == 2 and at[0] != at[1] and not any(True for f in at for _ in names_in(f))
    return not (apart and other.delay is None)


def _all_names(formulas: Iterable[Formula], assignments: Mapping[str, Formula]) -> set[str]:
    """All names that formulas depend on, through assignments too."""
    own = {name for formula in formulas for name in names_in(formula)}
    return own.union(*(names_in(f) for f in needed(formulas, assignments).values()))


def _following(model: SBMLDescription, names: set[str]) -> set[str]:
    """Returns names and the names of all values computed from them."""
    found = {*names}
    for name, formula in ordered(model.assignments).items():
        if found.intersection(names_in(formula)):
            found.add(name)
    return found


def _rises(trigger: Formula) -> bool:
    """Whether a comparison of the time with a constant becomes true, rather than false."""
    assert isinstance(trigger, tuple)
    operation, left, right = trigger
    return (operation in (">", ">=")) == (left == TIME) and (left == TIME) != (right == TIME)


def _conditions(formula: Formula) -> Iterator[tuple]:
    """The comparisons in a formula with the time in them."""
    if not isinstance(formula, tuple):
        return
    if formula[0] in COMPARISONS and TIME in names_in(formula):
        yield formula
    for part in formula[1:]:
        yield from _conditions(part)
