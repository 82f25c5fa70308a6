"""What an SBML model is computed by."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ._formulas import COMPARISONS, Formula, names_in, renamed
from ._program import FormulaProgram, StaticContent, Sums, ordered
from ._sbml_description import SBMLDescription, sbml_described, sum_of_terms, time_at_zero
from ._sbml_math import TIME


class SBMLEquations(NamedTuple):
    """What a model is computed by.

    Attributes:
        formulas: What follows from states, the time and constants.
        program: The same as a program.
        sums: The right-hand side, of all these.
        initial: Of constants, what holds at the start.
        initial_slots: Where states stand among its results.
        times: Of constants, when something happens.
        jumps: Names of times at which the right-hand side jumps.
        scheduled: Events at given times, by number, with the names of these.
        sought: Numbers of events that are sought.
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
    program = FormulaProgram([*model.states, TIME, *constants], formulas)
    sums = Sums([{int(program.places[name]): x for name, x in row.items()} for row in rows])
    at_start = {name: start.of(name) for name in model.states}
    initial = FormulaProgram(constants, ordered(start.found))
    slots = initial.slots([name for name in at_start.values()])
    for name in [*model.initial, *model.assignments]:
        initial.places[name] = initial.places[start.of(name)] if start.of(name) in initial.places else -1
    times, jumps, scheduled, sought = _times(model, start)
    return SBMLEquations(formulas, program, sums, initial, slots, times, jumps, scheduled, sought)


class _Start:
    """What names mean at the start, as formulas of constants."""

    def __init__(self, model: SBMLDescription):
        self.model = model
        self.found: dict[str, Formula] = {}

    def of(self, name: str) -> str:
        """The name of a name's value at the start."""
        model = self.model
        if name in model.constants:
            return name
        own = name if name in model.initial and name not in model.states else f"{name} at the start"
        if own not in self.found:
            self.found[own] = 0.0  # against circles, which `ordered` finds
            formula = model.initial[name] if name in model.initial else model.assignments[name]
            self.found[own] = self.formula(formula)
        return own

    def formula(self, formula: Formula) -> Formula:
        """A formula at the start."""
        return renamed(formula, {n: 0.0 if n == TIME else self.of(n) for n in set(names_in(formula))})

    def constants(self) -> dict[str, Formula]:
        """Formulas of constants with an initial assignment, and of what they need."""
        for name in self.model.initial:
            if name not in self.model.states:
                self.of(name)
        return dict(self.found)


def _times(
    model: SBMLDescription, start: _Start
) -> tuple[FormulaProgram, tuple[str, ...], tuple[tuple[int, str], ...], tuple[int, ...]]:
    """When something happens: jumps, events at given times, and events that are sought."""
    unknown = {*model.states}
    for name, formula in ordered(model.assignments).items():
        if unknown.intersection(names_in(formula)) or TIME in names_in(formula):
            unknown.add(name)  # what changes on the way
    found: dict[str, Formula] = {}

    def noted(time: Formula | None) -> str | None:
        if time is None or unknown.intersection(names_in(time)) or TIME in names_in(time):
            return None
        if not any(True for _ in names_in(time)) and isinstance(time, str):
            return None
        for name, formula in found.items():
            if formula == time:
                return name
        found[f"time {len(found)}"] = ("+", time, 0.0) if isinstance(time, str) else time
        return f"time {len(found) - 1}"

    jumps = dict.fromkeys(
        name
        for formula in (*model.assignments.values(), *model.rates.values())
        for condition in _conditions(formula)
        if (name := noted(time_at_zero(("-", *condition[1:])))) is not None
    )
    scheduled, sought = [], []
    for number, event in enumerate(model.events):
        trigger, time = event.trigger, None
        if isinstance(trigger, tuple) and trigger[0] in ("<", "<=", ">", ">="):
            time = noted(time_at_zero(("-", *trigger[1:])))
        if time is not None and _rises(trigger):
            scheduled.append((number, time))
        else:
            sought.append(number)
    constant = {name: f for name, f in model.assignments.items() if name not in unknown}
    program = FormulaProgram(list(model.constants), ordered(start.constants() | constant | found))
    return program, tuple(jumps), tuple(scheduled), tuple(sought)


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
