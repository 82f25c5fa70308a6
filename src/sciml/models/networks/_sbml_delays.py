r"""The function `delay` of SBML: the past of a document as constants and formulas.

`delay(f, lag)` is the value of a formula a time ago. Its names are replaced one by one: the time by the time then, a
variable with an assignment rule by its formula then, and a state `S` by a constant that stands for $S(t - lag)$, which
the solve of a delay equation provides. Before the start a variable has its initial value, or the value of its initial
assignment at that time.
"""

from typing import Any

from ._formulas import Formula, names_in
from ._program import needed
from ._sbml_algebraic import reader_of
from ._sbml_math import TIME, syntax_tree


def replace_delays(doc: Any) -> dict[str, tuple[str, Formula]]:
    """Replaces the delays in the rules and rates of a document, if all of them can be replaced.

    Returns:
        The states and the lags that new constants stand for. Delays of events, of rates of change, and of states with
        a lag that changes stay in the document; the analysis refuses them.
    """
    import libsbml

    elements = [x for x in doc.getListOfAllElements() if hasattr(x, "getMath") and x.isSetMath()]
    with_delay = [x for x in elements if _has(x.getMath(), libsbml.AST_FUNCTION_DELAY)]
    places = ("assignmentRule", "rateRule", "kineticLaw")
    if not with_delay or any(x.getElementName() not in places for x in with_delay):
        return {}
    past = _Past(doc.getModel())
    try:
        found = [(x, past.now(past.read(x.getMath()))) for x in with_delay]
    except _Unsupported:
        return {}
    for element, formula in found:
        element.setMath(syntax_tree(formula))
    for name in past.found.values():
        constant = doc.getModel().createParameter()
        constant.setId(name)
        constant.setConstant(True)
    return {name: pair for pair, name in past.found.items()}


def _has(math: Any, kind: int) -> bool:
    return math.getType() == kind or any(_has(math.getChild(i), kind) for i in range(math.getNumChildren()))


class _Unsupported(Exception):
    """A delay that stays."""


class _Past:
    """Formulas of the past.

    Attributes:
        found: The names of constants that stand for a state and a lag.
    """

    def __init__(self, model: Any):
        self.read = reader_of(model)
        rules = [rule for rule in model.getListOfRules() if rule.isSetMath()]
        self.assigned = {rule.getVariable(): self.read(rule.getMath()) for rule in rules if rule.isAssignment()}
        initial = [x for x in model.getListOfInitialAssignments() if x.isSetMath()]
        self.initial = {x.getSymbol(): self.read(x.getMath()) for x in initial}
        reactions = model.getListOfReactions()
        changed = {r.getSpecies() for x in reactions for r in (*x.getListOfReactants(), *x.getListOfProducts())}
        species = [s for s in model.getListOfSpecies() if not s.getConstant()]
        self.states = {rule.getVariable() for rule in rules if rule.isRate()}
        self.states |= {s.getId() for s in species if s.getId() in changed and not s.getBoundaryCondition()}
        self.states |= {a.getVariable() for event in model.getListOfEvents() for a in event.getListOfEventAssignments()}
        self.states -= set(self.assigned)
        # rates of reactions have parameters of their own, and in a volume that changes every concentration is a state
        self.refused = {x.getId() for x in reactions}
        laws = [x.getKineticLaw() for x in reactions if x.getKineticLaw() is not None]
        self.refused |= {
            p.getId() for law in laws for p in (*law.getListOfParameters(), *law.getListOfLocalParameters())
        }
        if not all(compartment.getConstant() for compartment in model.getListOfCompartments()):
            self.refused |= {s.getId() for s in species} - self.states
        self.found: dict[tuple[str, Formula], str] = {}
        self.taken = {element.getId() for element in model.getListOfAllElements()}

    def now(self, formula: Formula) -> Formula:
        """Returns a formula without delays."""
        if not isinstance(formula, tuple):
            return formula
        if formula[0] == "delay":
            return self.then(formula[1], self.now(formula[2]))
        return (formula[0], *map(self.now, formula[1:]))

    def then(self, formula: Formula, lag: Formula) -> Formula:
        """Returns the value of a formula some time ago."""
        if lag == 0.0:
            return self.now(formula)
        if isinstance(formula, tuple):
            if formula[0] == "delay":
                return self.then(formula[1], ("+", lag, self.then(formula[2], lag)))
            if formula[0] == "rateOf":
                raise _Unsupported
            return (formula[0], *(self.then(part, lag) for part in formula[1:]))
        if not isinstance(formula, str):
            return formula
        if formula in self.refused:
            raise _Unsupported
        if formula == TIME:
            return ("-", TIME, lag)
        if formula in self.assigned:
            return self.then(self.assigned[formula], lag)
        if formula in self.states:
            return self._state(formula, lag)
        start = self.initial.get(formula, 0.0)
        if TIME in names_in(start):  # a constant since the start, and not before
            return ("where", ("<", TIME, lag), self.then(start, lag), formula)
        return formula

    def _state(self, name: str, lag: Formula) -> str:
        used = {*names_in(lag), *(n for f in needed([lag], self.assigned).values() for n in names_in(f))}
        if used & {TIME, *self.states, *self.assigned, *self.refused}:
            raise _Unsupported
        if (name, lag) not in self.found:
            own = f"{name}_delayed_{len(self.found) + 1}"
            while own in self.taken:
                own += "_"
            self.found[name, lag] = own
        return self.found[name, lag]
