"""Networks in the `.net` files of BioNetGen."""

import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from ._description import TIME, Description, Reaction
from ._formulas import Formula, names_in, renamed, value_of
from ._parse import Line, parse_formula
from ._program import in_a_circle, ordered

_LAWS = ("Sat", "MM", "Hill", "Arrhenius", "FunctionProduct")
_FACTOR = re.compile(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")
_NAMES: dict[str, Formula] = {"_pi": 3.141592653589793, "_e": 2.718281828459045}


class _Row(NamedTuple):
    """A line of a file: its number, its text without a comment, and the words of it with their columns."""

    number: int
    text: str

    @property
    def words(self) -> list[tuple[str, int]]:
        return [(found.group(), found.start()) for found in re.finditer(r"\S+", self.text)]


def read_net(path: str | os.PathLike) -> tuple[Description, dict[str, float]]:
    """Reads a network and the numbers of its parameters from a `.net` file.

    Raises:
        ValueError: If it cannot be read; the message shows the place.
    """
    return _Reader(pathlib.Path(path)).read()


class _Reader:
    def __init__(self, path: pathlib.Path):
        self.what = path.name
        self.blocks: dict[str, list[_Row]] = {}
        block: str | None = None
        for number, text in enumerate(self._text(path.read_bytes()).splitlines(), 1):
            text = text.partition("#")[0].rstrip()
            if found := re.fullmatch(r"\s*(begin|end)\s+(\w[\w ]*)", text):
                block = found[2] if found[1] == "begin" else None
                if block is not None:
                    self.blocks.setdefault(block, [])
            elif text.strip() and block is not None:
                self.blocks[block].append(_Row(number, text))
        if "reactions" not in self.blocks or "species" not in self.blocks:
            raise ValueError(
                f"{self.what}, line 1, column 1: this is not a BioNetGen network: it needs the blocks `species` and "
                "`reactions`, as written by `generate_network`."
            )
        self.numbers: dict[str, float] = {}
        self.derived: dict[str, Formula] = {}
        self.species: dict[str, None] = {}
        self.rows: dict[str, _Row] = {}  # where derived values are defined
        self.formulas: list[tuple[Formula, _Row, int]] = []

    def _text(self, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            before = content[: error.start].splitlines() or [b""]
            raise ValueError(
                f"{self.what}, line {len(before)}, column {len(before[-1]) + 1}: the file is not UTF-8 text."
            ) from error

    def _fail(self, row: _Row, column: int, problem: str) -> NoReturn:
        Line("", row.number, self.what, row.text).fail(problem, column)

    def read(self) -> tuple[Description, dict[str, float]]:
        for row in self.blocks.get("parameters", []):
            self._define(row, *self._fields(row))
        initial, fixed = {}, set()
        for row in self.blocks["species"]:
            name, column, text, at = self._fields(row)
            if name.startswith("$"):
                name = name[1:]
                fixed.add(name)
            if name in self.species:
                self._fail(row, column, f"there are two species `{name}`")
            self.species[name] = None
            initial[name] = self._formula(row, text, at)
        names = list(self.species)
        for row in self.blocks.get("groups", []):
            name, _, text, at = self._fields(row, 1)
            self.derived[name], self.rows[name] = self._group(row, text, at, names), row
        for row in self.blocks.get("functions", []):
            name, _, text, at = self._fields(row)
            equals = text.startswith("=")
            name = name.removesuffix("()")
            self.derived[name], self.rows[name] = self._formula(row, text[equals:], at + equals), row
        reactions = [self._reaction(row, i, names) for i, row in enumerate(self.blocks["reactions"], 1)]
        self._check_names()
        ordered(self.derived, lambda names: self._fail(self.rows[names[0]], 0, in_a_circle(names)))
        return Description(names, reactions, [], self.derived, initial, frozenset(fixed)), self.numbers

    def _fields(self, row: _Row, least: int = 2) -> tuple[str, int, str, int]:
        """A name and its column, and what follows it in a row and the column of that."""
        words = row.words
        if words[0][0].isdigit():
            words = words[1:]
        if len(words) < least:
            self._fail(row, len(row.text), f"`{row.text.strip()}` is too short")
        name, column = words[0]
        at = words[1][1] if len(words) > 1 else len(row.text)
        return name, column, row.text[at:], at

    def _formula(self, row: _Row, text: str, at: int) -> Formula:
        # functions are called without arguments; every sign stays at its column
        text = re.sub(r"\b(time|t)\(\)", lambda found: TIME.ljust(len(found.group())), text).replace("()", "  ")
        line = Line(text, row.number, self.what, row.text, at)
        found = parse_formula(line)
        line.end()
        found = renamed(found, _NAMES)
        self.formulas.append((found, row, at))
        return found

    def _define(self, row: _Row, name: str, column: int, text: str, at: int) -> None:
        del column
        formula = self._formula(row, text, at)
        if any(True for _ in names_in(formula)):
            self.derived[name], self.rows[name] = formula, row
        else:
            self.numbers[name] = value_of(formula, {})

    def _members(self, row: _Row, text: str, at: int, names: list[str]) -> Iterator[str]:
        for number in text.split(","):
            if not number.strip().isdecimal() or len(number) > 18 or not 0 <= int(number) <= len(names):
                self._fail(row, at, f"there is no species number `{number:.20}`")
            if int(number):
                yield names[int(number) - 1]
            at += len(number) + 1

    def _group(self, row: _Row, text: str, at: int, names: list[str]) -> Formula:
        terms: list[Formula] = []
        for part in text.split(",") if text.strip() else []:
            factor, star, number = part.rpartition("*")
            members = list(self._members(row, number, at + len(factor) + len(star), names))
            if not members:
                self._fail(row, at, "a group has no species number `0`")
            if star and not _FACTOR.fullmatch(factor.strip()):
                self._fail(row, at, f"`{factor.strip():.20}` is not a number of molecules")
            terms.append(("*", float(factor), members[0]) if star else members[0])
            at += len(part) + 1
        if not terms:
            return 0.0
        return ("+", *terms) if len(terms) > 1 else terms[0]

    def _reaction(self, row: _Row, count: int, names: list[str]) -> Reaction:
        words = row.words
        if len(words) < 4:
            self._fail(row, len(row.text), "a reaction must have a number, reactants, products and a rate")
        law, at = words[3]
        if law in _LAWS:
            self._fail(row, at, f"rate laws of type `{law}` are not supported; write the rate as a function")
        sides = [Counter(self._members(row, *words[i], names)) for i in (1, 2)]
        left, right = (tuple((name, float(n)) for name, n in side.items()) for side in sides)
        return Reaction(str(count), left, right, self._formula(row, row.text[at:], at), True)

    def _check_names(self) -> None:
        known = {*self.numbers, *self.derived, *self.species, TIME}
        for formula, row, at in self.formulas:
            for name in names_in(formula):
                if name not in known:
                    place = re.search(rf"\b{re.escape(name)}\b", row.text[at:])
                    self._fail(row, at + (place.start() if place else 0), f"`{name}` is used but has no value")
