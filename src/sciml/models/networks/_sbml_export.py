"""Reaction networks as SBML and as Antimony text, for other programs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ._description import TIME, Description
from ._formulas import Formula, names_in, renamed
from ._sbml_math import TIME as SBML_TIME, syntax_tree

_RESERVED = frozenset(
    "after assert at avogadro compartment const constraint delete end event exponentiale extent false formula "
    "function gene has identical import in inf infinity is model module nan notanumber objective operator pi priority "
    "reaction species substanceOnly time true unit var abs acos acosh acot acoth acsc acsch and arccos arccosh arccot "
    "arccoth arccsc arccsch arcsec arcsech arcsin arcsinh arctan arctanh asec asech asin asinh atan atanh ceil "
    "ceiling cos cosh cot coth csc csch delay divide eq exp factorial floor geq gt implies leq ln log log10 lt max "
    "min minus mod modulo neq not or piecewise plus pow power quotient rateOf root sec sech sin sinh sqr sqrt tan "
    "tanh times xor bernoulli binomial cauchy chisquare exponential gamma laplace lognormal normal poisson rayleigh "
    "truncatedExponential truncatedGamma truncatedNormal truncatedPoisson uniform".split()
)
"""Words of Antimony and names of its functions."""


def sbml_document(network: Description, parameters: Mapping[str, float]) -> Any:
    """Returns a network as a document of libsbml, of Level 3 Version 2.

    Species are amounts in one compartment of size one. Identifiers are the names, with underscores for what SBML does
    not allow, and numbers behind names that occur twice; elements keep their names.

    Args:
        network: The network.
        parameters: The values of its parameters.

    Raises:
        ImportError: If libsbml is not installed.
        ValueError: If SBML does not have a function of a formula.
    """
    try:
        import libsbml
    except ImportError as error:
        raise ImportError(
            "writing SBML requires libsbml, which needs Python 3.12 or newer: `pip install 'sciml-jax[sbml]'`."
        ) from error
    doc = libsbml.SBMLDocument(3, 2)
    model = doc.createModel()
    model.setId("network")
    reactions = [f"reaction {r.name}" if r.name.isdigit() else r.name for r in network.reactions]
    names = [*network.species, *network.parameters, *network.derived]
    ids = _identifiers([*names, *reactions, "the compartment"])
    known: dict[str, Formula] = {**dict(zip(names, ids)), TIME: SBML_TIME}
    compartment = model.createCompartment()
    compartment.setId(ids[-1])
    compartment.setSize(1.0)
    compartment.setSpatialDimensions(3)
    compartment.setConstant(True)

    def named(element: Any, name: str, own: Any) -> Any:
        element.setId(own)
        if name != own:
            element.setName(name)
        return element

    for name in network.species:
        species = named(model.createSpecies(), name, known[name])
        species.setCompartment(ids[-1])
        species.setHasOnlySubstanceUnits(True)
        species.setBoundaryCondition(name in network.fixed)
        species.setConstant(name in network.fixed)
        amount = network.initial.get(name, 0.0)
        if isinstance(amount, float):
            species.setInitialAmount(amount)
        else:
            initial = model.createInitialAssignment()
            initial.setSymbol(species.getId())
            initial.setMath(syntax_tree(renamed(amount, known)))
    for name in (*network.parameters, *network.derived):
        parameter = named(model.createParameter(), name, known[name])
        parameter.setConstant(name not in network.derived)
        if name in network.derived:
            rule = model.createAssignmentRule()
            rule.setVariable(parameter.getId())
            rule.setMath(syntax_tree(renamed(network.derived[name], known)))
        else:
            parameter.setValue(parameters[name])
    for one, name, own in zip(network.reactions, reactions, ids[len(names) :]):
        reaction = named(model.createReaction(), name, own)
        reaction.setReversible(False)
        for create, side in ((reaction.createReactant, one.reactants), (reaction.createProduct, one.products)):
            for species, count in side:
                reference = create()
                reference.setSpecies(known[species])
                reference.setStoichiometry(count)
                reference.setConstant(True)
        changed = {species for species, _ in (*one.reactants, *one.products)}
        for name in dict.fromkeys(names_in(one.rate)):
            if name in network.species and name not in changed:
                reaction.createModifier().setSpecies(known[name])
        reaction.createKineticLaw().setMath(syntax_tree(renamed(one.rate, known)))
    return doc


def _identifiers(names: Iterable[str]) -> list[str]:
    """Returns a different identifier for each name: letters, digits and underscores, and no reserved word."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name.replace("]", ""), flags=re.ASCII)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
        own, number = plain, 1
        while own in found or own in _RESERVED:
            own, number = f"{plain}_{number}", number + 1
        found.append(own)
    return found


def sbml_text(doc: Any) -> str:
    """Returns a document of libsbml as text."""
    import libsbml

    return libsbml.writeSBMLToString(doc)


def antimony_text(doc: Any) -> str:
    """Returns the document of a network as Antimony text."""
    import libsbml

    model = doc.getModel()
    species, compartment = model.getListOfSpecies(), model.getCompartment(0).getId()
    fixed = {s.getId() for s in species if s.getBoundaryCondition()}

    def side(references: Any) -> str:
        counts = [(r.getStoichiometry(), r.getSpecies()) for r in references]
        marked = [(count, f"${name}" if name in fixed else name) for count, name in counts]
        return " + ".join(name if count == 1 else f"{count!r} {name}" for count, name in marked)

    def text(element: Any) -> str:
        return libsbml.formulaToL3String(element.getMath())

    lines = [f"compartment {compartment} = 1"]
    lines += [f"substanceOnly species {'$' * (s.getId() in fixed)}{s.getId()} in {compartment}" for s in species]
    for reaction in model.getListOfReactions():
        taken, made = side(reaction.getListOfReactants()), side(reaction.getListOfProducts())
        lines.append(f"{reaction.getId()}: {taken} => {made}; {text(reaction.getKineticLaw())}")
    lines += [f"{s.getId()} = {s.getInitialAmount()!r}" for s in species if s.isSetInitialAmount()]
    lines += [f"{x.getSymbol()} = {text(x)}" for x in model.getListOfInitialAssignments()]
    lines += [f"{p.getId()} = {p.getValue()!r}" for p in model.getListOfParameters() if p.getConstant()]
    lines += [f"{rule.getVariable()} := {text(rule)}" for rule in model.getListOfRules()]
    body = "".join(f"  {line};\n" for line in lines)
    return f"model {model.getId()}()\n{body}end\n"
