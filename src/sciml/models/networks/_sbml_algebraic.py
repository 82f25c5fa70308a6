r"""Algebraic rules of SBML as assignment rules.

A rule $0 = f(x, \ldots)$ determines one variable that nothing else does: no other rule, no reaction, and no
`constant`. If $f$ is linear in it, $f = a x + b$, the assignment rule $x = -b / a$ replaces the algebraic one, and the
system stays one of ordinary differential equations. Further rules have $-b / a$ in place of $x$ before they are solved,
so that rules that share variables are eliminated one after another, as in Gauss' method.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ._formulas import Formula, names_in, renamed, zero_of
from ._program import needed, ordered
from ._sbml_math import Mathematics, syntax_tree


def solve_algebraic_rules(doc: Any) -> None:
    """Replaces the algebraic rules of a document by assignment rules.

    Raises:
        ValueError: If one is not linear in any variable that it may determine.
    """
    if not any(element.getElementName() == "algebraicRule" for element in doc.getListOfAllElements()):
        return
    model = doc.getModel()
    read = reader_of(model)
    rules = [rule for rule in model.getListOfRules() if rule.isSetMath()]
    assigned = {rule.getVariable(): read(rule.getMath()) for rule in rules if rule.isAssignment()}
    free = _free(model)
    expand = _expansions(assigned, free)
    # a rule without a formula is ignored; rules with the fewest variables are solved first
    left = [(rule, renamed(read(rule.getMath()), expand)) for rule in rules if rule.isAlgebraic()]
    found: dict[str, Formula] = {}
    while left:
        left.sort(key=lambda pair: sum(name in set(names_in(pair[1])) for name in free))
        rule, formula = left.pop(0)
        for name in free:
            value = zero_of(formula, name)
            if value is not None:
                break
        else:
            label = rule.getIdAttribute() or rule.getMetaId() or "algebraicRule"
            candidates = [f"`{name}`" for name in free if name in set(names_in(formula))]
            why = f"is not linear in {' or '.join(candidates)}" if candidates else "has no variable left to determine"
            raise ValueError(f"SBML{place_of(rule)}: the algebraic rule `{label}` {why}, which is not supported.")
        free.remove(name)
        found[name] = value
        left = [(other, renamed(formula, {name: value})) for other, formula in left]
    for index in reversed(range(model.getNumRules())):
        if model.getRule(index).isAlgebraic():
            model.removeRule(index)
    for name, value in found.items():
        model.removeInitialAssignment(name)  # a guess: the rule holds at the start, too
        rule = model.createAssignmentRule()
        rule.setVariable(name)
        rule.setMath(syntax_tree(value))


def reader_of(model: Any) -> Callable[[Any], Formula]:
    """Returns a function that reads the syntax trees of a model."""
    bodies = {f.getId(): f for f in model.getListOfFunctionDefinitions() if f.getBody() is not None}
    arguments = {n: tuple(f.getArgument(i).getName() for i in range(f.getNumArguments())) for n, f in bodies.items()}
    return Mathematics({name: (arguments[name], f.getBody()) for name, f in bodies.items()}).formula


def place_of(element: Any) -> str:
    """Returns the position of an element, as a suffix of a text."""
    return f", line {element.getLine()}, column {element.getColumn()}" if element.getLine() else ""


def _free(model: Any) -> list[str]:
    """Returns the variables that an algebraic rule may determine, the likeliest first."""
    ruled = {rule.getVariable() for rule in model.getListOfRules()}
    reactions = model.getListOfReactions()
    references = [r for x in reactions for r in (*x.getListOfReactants(), *x.getListOfProducts())]
    reacting = {r.getSpecies() for r in references}
    by_events = {a.getVariable() for event in model.getListOfEvents() for a in event.getListOfEventAssignments()}
    at_start = {a.getSymbol() for a in model.getListOfInitialAssignments()}
    elements = [*model.getListOfCompartments(), *model.getListOfParameters()]
    elements += [s for s in model.getListOfSpecies() if s.getBoundaryCondition() or s.getId() not in reacting]
    elements += [r for r in references if r.getId() and model.getLevel() > 2]
    names = [x.getId() for x in elements if not x.getConstant() and x.getId() not in ruled]
    return sorted(names, key=lambda name: (name in by_events, name in at_start))


def _expansions(assigned: Mapping[str, Formula], free: list[str]) -> dict[str, Formula]:
    """Returns the formulas of assigned variables that depend on free ones, down to these."""
    found: dict[str, Formula] = {}
    for name, formula in ordered(assigned).items():
        used = {*names_in(formula), *(n for f in needed([formula], assigned).values() for n in names_in(f))}
        if used.intersection(free):
            found[name] = renamed(formula, found)
    return found
