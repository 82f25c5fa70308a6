"""The contents of an SBML model, from sbmlode's analysis of it."""

import collections
import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ._formulas import Formula, names_in, suggestion
from ._program import StaticContent
from ._sbml_math import TIME, Mathematics

_MOST_OPERATIONS = 50_000
"""Operations of a formula with its function definitions put in: more take JAX longer than a few seconds to trace."""

_DEEPEST = 250
"""Formulas within formulas, with function definitions put in: about three times as many are beyond Python's stack."""


def read_document(source: str | os.PathLike) -> Any:
    """Returns a document of libsbml.

    Args:
        source: A file, or SBML as text.

    Raises:
        ValueError: If it is not SBML, or has an unsupported feature that the analysis would not detect.
    """
    import libsbml
    from sbmlode.io import read_document as read

    try:
        doc = read(pathlib.Path(source) if isinstance(source, os.PathLike) else source)
    except ValueError as error:
        raise ValueError(_first_error(source) or str(error)) from error
    if doc.getModel() is None:
        raise ValueError(_first_error(source) or "the SBML has no model.")
    comp = doc.getPlugin("comp")
    count = comp.getNumModelDefinitions() if comp else 0
    models = [doc.getModel(), *(comp.getModelDefinition(i) for i in range(count))]
    for model in models:
        if doc.getLevel() < 3:  # the analysis converts to Level 3 Version 2, which has no such attribute
            for reaction in model.getListOfReactions():
                if reaction.getFast():
                    raise ValueError(
                        f"the SBML model uses an unsupported feature: fast reaction (`{reaction.getId()}`)"
                        f"{place_of(reaction)}."
                    )
        _Sizes(model, libsbml.AST_FUNCTION).check()
    return doc


def place_of(element: Any) -> str:
    """Returns the position of an element, as a suffix of a text."""
    return f", line {element.getLine()}, column {element.getColumn()}" if element.getLine() else ""


def place_of_name(doc: Any, name: str) -> str:
    """Returns the position of the first formula with a name, as a suffix of a text; empty if there is none."""
    for element in doc.getListOfAllElements():
        math = _math_of(element)
        if math is not None and any(node.isName() and node.getName() == name for node in _nodes(math)):
            return place_of(element)
    return ""


def _first_error(source: str | os.PathLike) -> str:
    """Returns the first error of a document with its place; empty if there is none."""
    import libsbml

    text = str(source)
    doc = libsbml.readSBMLFromString(text) if text.lstrip().startswith("<") else libsbml.readSBMLFromFile(text)
    for number in range(doc.getNumErrors()):
        error = doc.getError(number)
        if error.getSeverity() >= libsbml.LIBSBML_SEV_ERROR:
            where = f"line {error.getLine()}, column {error.getColumn()}"
            return f"SBML, {where}: {' '.join(error.getMessage().split())}"
    return ""


def _math_of(element: Any) -> Any:
    return element.getMath() if hasattr(element, "getMath") and element.isSetMath() else None


def _nodes(math: Any) -> Iterator[Any]:
    open_ = [math]
    while open_:
        node = open_.pop()
        yield node
        open_ += [node.getChild(i) for i in range(node.getNumChildren())]


class _Size(NamedTuple):
    """The size of a formula with its functions put in: operations, how deep they are, and the uses of each argument."""

    operations: int
    depth: int
    names: "collections.Counter[str]"


class _Sizes:
    """The sizes of a model's formulas, each function counted once."""

    def __init__(self, model: Any, call: int):
        self.model, self.call = model, call
        self.functions = {f.getId(): f for f in model.getListOfFunctionDefinitions()}
        self.found: dict[str, _Size] = {}
        self.open: list[str] = []

    def check(self) -> None:
        """Checks all formulas.

        Raises:
            ValueError: If one is too large, or a function calls itself.
        """
        for element in self.model.getListOfAllElements():
            math = _math_of(element)
            if math is None:
                continue
            if element.getElementName() == "functionDefinition":
                self._of_function(element.getId(), [])
            else:
                self._check(self._of(math, frozenset()), element)

    def _of_function(self, name: str, given: list[_Size]) -> _Size:
        if name in self.open:
            circle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise ValueError(f"SBML{place_of(self.functions[name])}: the function `{name}` calls itself: {circle}.")
        element = self.functions[name]
        count = element.getNumArguments()
        arguments = [element.getArgument(i).getName() for i in range(count)]
        if name not in self.found:
            self.open.append(name)
            body = element.getBody()
            size = _Size(1, 1, collections.Counter()) if body is None else self._of(body, frozenset(arguments))
            self._check(size, element)
            self.found[name] = size
            self.open.pop()
        body = self.found[name]
        if given and len(given) != count:
            raise ValueError(
                f"SBML{place_of(element)}: the function `{name}` has {count} arguments, but is called with "
                f"{len(given)}."
            )
        names: collections.Counter[str] = collections.Counter()
        operations, depth = body.operations, body.depth
        for argument, size in zip(arguments, given):
            times = body.names[argument]
            operations += times * size.operations
            depth = max(depth, body.depth + size.depth) if times else depth
            names.update({x: n * times for x, n in size.names.items()})
        return _Size(operations, depth, names)

    def _of(self, math: Any, arguments: frozenset[str]) -> _Size:
        """Returns the size of a formula; a loop, since what is too deep for Python is to be found."""
        done: list[_Size] = []
        open_ = [(math, False)]
        while open_:
            node, ready = open_.pop()
            count = node.getNumChildren()
            if not ready:
                open_.append((node, True))
                open_ += [(node.getChild(i), False) for i in reversed(range(count))]
                continue
            parts = done[len(done) - count :]
            del done[len(done) - count :]
            if node.getType() == self.call and node.getName() in self.functions:
                done.append(self._of_function(node.getName(), parts))
                continue
            names: collections.Counter[str] = collections.Counter()
            for part in parts:
                names.update(part.names)
            if node.isName() and node.getName() in arguments:
                names[node.getName()] += 1
            depth = 1 + max((part.depth for part in parts), default=0)
            done.append(_Size(1 + sum(part.operations for part in parts), depth, names))
        return done[0]

    def _check(self, size: _Size, element: Any) -> None:
        for what, found, most in (("operations", size.operations, _MOST_OPERATIONS), ("levels", size.depth, _DEEPEST)):
            if found > most:
                name = element.getId() or element.getElementName()
                raise ValueError(
                    f"SBML{place_of(element)}: the formula of `{name}` has {found} {what} after its function "
                    f"definitions are inserted; more than {most} are not supported."
                )


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
    """

    name: str
    states: list[str]
    constants: dict[str, float]
    assignments: dict[str, Formula]
    rates: dict[str, Formula]
    initial: dict[str, Formula]
    events: list[SBMLEvent]
    reactions: list[str]

    @property
    def names(self) -> set[str]:
        """All that formulas may refer to."""
        return {TIME, *self.states, *self.constants, *self.assignments, *self.initial}

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
            )
        )


def sbml_described(static: StaticContent) -> SBMLDescription:
    """The model that `SBMLDescription.static` made a value of; constants without their values."""
    name, states, constants, assignments, rates, initial, events, reactions = static.content
    missing = dict.fromkeys(constants, math.nan)
    return SBMLDescription(
        name, list(states), missing, dict(assignments), dict(rates), dict(initial), list(events), list(reactions)
    )


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
    try:
        system = sbmlode.OdeSystem.from_sbml(doc)
    except (AttributeError, KeyError, TypeError) as error:  # what it says nothing of itself
        raise ValueError(f"the SBML is not a model that can be analysed: {type(error).__name__}, {error}.") from error
    unsupported = [(what, where) for what, where in system.unsupported if what != "event trigger"]
    if unsupported:
        found = ", ".join(f"{what} (`{where}`)" for what, where in unsupported)
        raise ValueError(f"the SBML model uses an unsupported feature: {found}.")
    description = _described(system)
    for owner, formulas in description.formulas():
        for name in (name for formula in formulas for name in names_in(formula)):
            if name not in description.names:
                close = suggestion(name, description.names)
                raise ValueError(
                    f"SBML{place_of_name(doc, name)}: the formula of `{owner}` has the unknown name `{name}`.{close}"
                )
    return description


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


def depends_on_any(formula: Formula, names: set[str]) -> bool:
    """Whether a formula has one of these names."""
    return any(name in names for name in names_in(formula))


def time_at_zero(formula: Formula) -> Formula | None:
    """The time at which a formula is zero, where it is linear in the time; None where it is not."""
    linear = _linear(formula)
    if linear is None or linear[0] == 0.0:
        return None
    slope, rest = linear
    if slope == 1.0:
        return ("neg", rest)
    return rest if slope == -1.0 else ("/", ("neg", rest), slope)


def _linear(formula: Formula) -> tuple[Formula, Formula] | None:
    """The factor of the time and the rest."""
    if formula == TIME:
        return 1.0, 0.0
    if not depends_on_any(formula, {TIME}):
        return 0.0, formula
    assert isinstance(formula, tuple)
    operation, *parts = formula
    found = [_linear(part) for part in parts]
    if any(x is None for x in found):
        return None
    slopes, rests = zip(*found)  # type: ignore[arg-type]
    if operation in ("+", "-", "neg"):
        slope = slopes[0] if operation == "neg" else None
        numbers = all(isinstance(x, float) for x in slopes)
        if not numbers:
            return (operation, *slopes), (operation, *rests)
        signs = [-1.0 if operation == "neg" or (operation == "-" and i) else 1.0 for i in range(len(parts))]
        slope = float(sum(s * x for s, x in zip(signs, slopes)))
        return slope, (operation, *rests)
    if operation == "*" and sum(depends_on_any(part, {TIME}) for part in parts) == 1:
        factors = [part for part in parts if not depends_on_any(part, {TIME})]
        (slope,), (rest,) = zip(*(x for x, part in zip(found, parts) if depends_on_any(part, {TIME})))  # type: ignore
        return ("*", slope, *factors), ("*", rest, *factors)
    if operation == "/" and slopes[1] == 0.0:
        return ("/", slopes[0], parts[1]), ("/", rests[0], parts[1])
    return None
