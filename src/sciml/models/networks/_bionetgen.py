"""Networks in the `.net` files of BioNetGen."""

import os
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from ._description import TIME, Description, Reaction
from ._formulas import Formula, names_in, renamed, value_of
from ._parse import Line, parse_formula

_LAWS = ("Sat", "MM", "Hill", "Arrhenius", "FunctionProduct")
_NAMES: dict[str, Formula] = {"_pi": 3.141592653589793, "_e": 2.718281828459045}


class _Row(NamedTuple):
    number: int
    text: str


def read_net(path: str | os.PathLike) -> tuple[Description, dict[str, float]]:
    """Reads a network and the numbers of its parameters from a `.net` file.

    Raises:
        ValueError: If it cannot be read.
    """
    return _Reader(pathlib.Path(path)).read()


class _Reader:
    def __init__(self, path: pathlib.Path):
        self.what = path.name
        self.blocks: dict[str, list[_Row]] = {}
        block: str | None = None
        for number, text in enumerate(path.read_text().splitlines(), 1):
            text = text.partition("#")[0].strip()
            if found := re.fullmatch(r"(begin|end)\s+([\w ]+)", text):
                block = found[2] if found[1] == "begin" else None
                if block is not None:
                    self.blocks.setdefault(block, [])
            elif text and block is not None:
                self.blocks[block].append(_Row(number, text))
        if "reactions" not in self.blocks or "species" not in self.blocks:
            raise ValueError(
                f"{self.what} is no network of BioNetGen: it needs the blocks `species` and `reactions`, as "
                "`generate_network` writes them."
            )
        self.numbers: dict[str, float] = {}
        self.derived: dict[str, Formula] = {}
        self.species: list[str] = []

    def read(self) -> tuple[Description, dict[str, float]]:
        for row in self.blocks.get("parameters", []):
            name, text = self._fields(row, 2)
            self._define(name, self._formula(row, text))
        initial, fixed = {}, set()
        for row in self.blocks["species"]:
            name, text = self._fields(row, 2)
            if name.startswith("$"):
                name = name[1:]
                fixed.add(name)
            if name in self.species:
                raise ValueError(f"{self.what}, line {row.number}: there are two species `{name}`.")
            self.species.append(name)
            initial[name] = self._formula(row, text)
        for row in self.blocks.get("groups", []):
            name, *rest = self._fields(row, 1)
            self.derived[name] = self._group(row, rest[0] if rest else "")
        for row in self.blocks.get("functions", []):
            name, text = self._fields(row, 2)
            self.derived[name.removesuffix("()")] = self._formula(row, text.removeprefix("="))
        reactions = [self._reaction(row, i) for i, row in enumerate(self.blocks["reactions"], 1)]
        description = Description(self.species, reactions, [], self.derived, initial, frozenset(fixed))
        self._check_names(description)
        return description, self.numbers

    def _fields(self, row: _Row, least: int) -> list[str]:
        """What stands in a row after its number: a name and the rest."""
        parts = row.text.split(None, 2)
        if not parts[0].isdigit():
            parts = ["", *row.text.split(None, 1)]
        if len(parts) < 1 + least:
            raise ValueError(f"{self.what}, line {row.number}: `{row.text}` is too short.")
        return parts[1:]

    def _formula(self, row: _Row, text: str) -> Formula:
        # functions are called without arguments
        line = Line(re.sub(r"\b(time|t)\(\)", TIME, text).replace("()", ""), row.number, self.what)
        found = parse_formula(line)
        line.end()
        return renamed(found, _NAMES)

    def _define(self, name: str, formula: Formula) -> None:
        if any(True for _ in names_in(formula)):
            self.derived[name] = formula
        else:
            self.numbers[name] = value_of(formula, {})

    def _members(self, row: _Row, text: str) -> Iterator[str]:
        for number in text.split(","):
            if not number.strip().isdigit() or not 0 <= int(number) <= len(self.species):
                raise ValueError(f"{self.what}, line {row.number}: there is no species number `{number}`.")
            if int(number):
                yield self.species[int(number) - 1]

    def _group(self, row: _Row, text: str) -> Formula:
        terms: list[Formula] = []
        for part in text.replace(" ", "").split(",") if text else []:
            factor, star, number = part.rpartition("*")
            (species,) = self._members(row, number)
            terms.append(("*", float(factor), species) if star else species)
        if not terms:
            return 0.0
        return ("+", *terms) if len(terms) > 1 else terms[0]

    def _reaction(self, row: _Row, count: int) -> Reaction:
        parts = row.text.split(None, 3)
        if len(parts) < 4:
            raise ValueError(f"{self.what}, line {row.number}: a reaction is a number, reactants, products and a rate.")
        if parts[3].split()[0] in _LAWS:
            raise ValueError(
                f"{self.what}, line {row.number}: laws of the kind `{parts[3].split()[0]}` are not read; write them as "
                "a function."
            )
        sides = [tuple((name, 1.0) for name in self._members(row, parts[i])) for i in (1, 2)]
        left, right = (tuple({n: float(sum(m == n for m, _ in s)) for n, _ in s}.items()) for s in sides)
        return Reaction(str(count), left, right, self._formula(row, parts[3]), True)

    def _check_names(self, network: Description) -> None:
        known = {*self.numbers, *self.derived, *self.species, TIME}
        formulas = [*network.derived.values(), *network.initial.values(), *(r.law for r in network.reactions)]
        for formula in formulas:
            for name in names_in(formula):
                if name not in known:
                    raise ValueError(f"{self.what}: `{name}` is used and has no value.")
