"""The contents of a reaction network, whatever its source format."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ._formulas import Formula, names_in, product_of
from ._program import FormulaProgram, StaticContent, Sums, needed, ordered

TIME = "t"

_FEW = 16
"""Up to this number of molecules of a species a rate is written as products, for more as a power."""


class Reaction(NamedTuple):
    """One direction of a reaction.

    Attributes:
        name: Its name, or its number.
        reactants: Species and how many of each it takes.
        products: Species and how many of each it makes.
        law: Its rate; by mass action the factor of the product of the reactants.
        mass_action: Whether it is multiplied by these.
    """

    name: str
    reactants: tuple[tuple[str, float], ...]
    products: tuple[tuple[str, float], ...]
    law: Formula
    mass_action: bool

    @property
    def rate(self) -> Formula:
        """Its rate."""
        if not self.mass_action:
            return self.law
        powers: list[Formula] = []
        for species, count in self.reactants:
            few = float(count).is_integer() and count <= _FEW
            powers += [species] * int(count) if few else [("^", species, float(count))]
        return product_of(self.law, *powers)

    @property
    def change(self) -> dict[str, float]:
        """By how much it changes each species, where it does."""
        found: dict[str, float] = {}
        for sign, side in ((-1.0, self.reactants), (1.0, self.products)):
            for species, count in side:
                found[species] = found.get(species, 0.0) + sign * count
        return {species: count for species, count in found.items() if count != 0}

    def __str__(self) -> str:
        """The reaction as text."""
        return self.text()

    def text(self, fixed: frozenset[str] = frozenset()) -> str:
        """The reaction as text, with a mark at species that are held constant."""
        arrow = "->" if self.mass_action else "=>"
        return f"{_side(self.reactants, fixed)} {arrow} {_side(self.products, fixed)}, {text_of(self.law)}"


@dataclasses.dataclass
class Description:
    """A network.

    Attributes:
        species: Their names, in the order of the state.
        reactions: The reactions.
        parameters: Their names, which formulas use; one of an array is `name[i]`.
        derived: Formulas of parameters, species and the time, by name.
        initial: Formulas of parameters for initial amounts, zero for other species.
        fixed: Species that stay as they are.
    """

    species: list[str]
    reactions: list[Reaction]
    parameters: list[str]
    derived: dict[str, Formula] = dataclasses.field(default_factory=dict)
    initial: dict[str, Formula] = dataclasses.field(default_factory=dict)
    fixed: frozenset[str] = frozenset()

    def static(self) -> StaticContent:
        """The same as a value that is compared and hashed."""
        return StaticContent(
            (
                tuple(self.species),
                tuple(self.reactions),
                tuple(self.parameters),
                tuple(ordered(self.derived).items()),
                tuple(self.initial.items()),
                tuple(sorted(self.fixed)),
            )
        )


def described(static: StaticContent) -> Description:
    """The network that `Description.static` made a value of."""
    species, reactions, parameters, derived, initial, fixed = static.content
    return Description(list(species), list(reactions), list(parameters), dict(derived), dict(initial), frozenset(fixed))


class Equations(NamedTuple):
    """The program of the rate equations.

    Attributes:
        program: Of species, the time and parameters; its results are rates, and the derived values that these need. A
            sum over hundreds of species that is only observed would be hundreds of operations at every step.
        rates: The positions of the rates among these.
        sums: The right-hand side, of the same.
        stoichiometry: An array of shape `(reactions, species)`.
    """

    program: FormulaProgram
    rates: np.ndarray
    sums: Sums
    stoichiometry: np.ndarray


def rate_name(number: int) -> str:
    """The name of a rate in a program, which no text can have."""
    return f"rate {number}"


@functools.lru_cache(maxsize=64)
def equations_of(static: StaticContent) -> Equations:
    """The rate equations of a network."""
    network = described(static)
    rates = {rate_name(i): reaction.rate for i, reaction in enumerate(network.reactions)}
    # a rate that is a bare name would not be a separate result
    rates = {name: ("*", rate, 1.0) if isinstance(rate, str) else rate for name, rate in rates.items()}
    used = needed(rates.values(), network.derived)
    used = {name: formula for name, formula in network.derived.items() if name in used}  # in their order
    program = FormulaProgram([*network.species, TIME, *network.parameters], used | rates)
    slots = program.slots(list(rates))
    place = {species: i for i, species in enumerate(network.species)}
    rows: list[dict[int, float]] = [{} for _ in network.species]
    stoichiometry = np.zeros((len(network.reactions), len(network.species)))
    for i, reaction in enumerate(network.reactions):
        for species, count in reaction.change.items():
            if species not in network.fixed:
                rows[place[species]][int(slots[i])] = count
                stoichiometry[i, place[species]] = count
    return Equations(program, slots, Sums(rows), stoichiometry)


@functools.lru_cache(maxsize=256)
def program_of_value(static: StaticContent, name: str) -> FormulaProgram:
    """The program of a derived value, with the same inputs as the rates."""
    network = described(static)
    used = {name, *needed([network.derived[name]], network.derived)}
    formulas = {other: formula for other, formula in network.derived.items() if other in used}
    return FormulaProgram([*network.species, TIME, *network.parameters], formulas)


def depends_on(formula: Formula, names: set[str], derived: Mapping[str, Formula]) -> str | None:
    """The first of some names that a formula depends on, through derived ones too."""
    looked_at: set[str] = set()
    left = [names_in(formula)]
    while left:
        name = next(left[-1], None)
        if name is None:
            left.pop()
        elif name in names:
            return name
        elif name in derived and name not in looked_at:
            looked_at.add(name)
            left.append(names_in(derived[name]))
    return None


def _side(side: Sequence[tuple[str, float]], fixed: frozenset[str]) -> str:
    named = [(f"${species}" if species in fixed else species, count) for species, count in side]
    terms = [species if count == 1 else f"{count:g} {species}" for species, count in named]
    return " + ".join(terms) if terms else "0"


_LOOSE = {"+": 1, "-": 1, "neg": 1, "*": 2, "/": 2, "^": 3}


def text_of(formula: Formula, within: int = 0) -> str:
    """A formula as text."""
    if isinstance(formula, str):
        return formula
    if not isinstance(formula, tuple):
        return f"{formula:g}"
    operation, *parts = formula
    if operation == "neg":
        found, own = f"-{text_of(parts[0], 2)}", 1
    elif operation in _LOOSE:
        own = _LOOSE[operation]
        right = own + (operation in ("-", "/"))
        texts = [text_of(parts[0], own + (operation == "^")), *(text_of(p, right) for p in parts[1:])]
        found = f" {operation} ".join(texts) if own == 1 else operation.join(texts)
    elif operation == "where":
        return f"if({', '.join(map(text_of, parts))})"
    elif not operation[0].isalpha() or operation in ("and", "or"):
        sign = {"and": "&&", "or": "||"}.get(operation, operation)
        return f"({f' {sign} '.join(map(text_of, parts))})"
    else:
        shown = parts[:3] if operation == "arrhenius" else parts
        name = {"where": "if"}.get(operation, operation)
        return f"{name}({', '.join(map(text_of, shown))})"
    return f"({found})" if own < within else found
