"""Networks of reactions as text: equations such as "A + B -> C", and BioNetGen's .net files."""

import math
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from ..._warn import warn
from ._description import TIME, Description, Reaction, depends_on
from ._formulas import Formula, names_in, renamed, suggestion, value_of
from ._parse import Line, parse_formula
from ._program import in_a_circle, ordered

_ARROWS = ("->", "<->", "=>", "<=>")
_CONSTANTS = {"pi": math.pi}

_MOST = 1000
"""The maximum number of molecules of one species in a reaction: a rate by mass action has a factor for each."""


def read_text(text: str, given: Mapping[str, Any]) -> tuple[Description, dict[str, Any]]:
    """Reads a network, and the numbers of its parameters.

    Args:
        text: The text.
        given: Parameters that are given separately; they override the parameters in the text.
    """
    return _Reader(text, given).read()


class _Reader:
    """Reads lines twice: first the names, then their definitions."""

    def __init__(self, text: str, given: Mapping[str, Any]):
        self.given = given
        self.lines = [line for i, row in enumerate(text.splitlines(), 1) for line in _lines(row, i)]
        self.species: dict[str, None] = {}
        self.assigned: dict[str, Line] = {}
        self.numbers: dict[str, float] = {}
        self.derived: dict[str, Formula] = {}
        self.initial: dict[str, Formula] = {}
        self.reactions: list[Reaction] = []
        self.fixed: set[str] = set()

    def read(self) -> tuple[Description, dict[str, Any]]:
        reactions, assignments = [], []
        for line in self.lines:
            if any(token.text in _ARROWS for token in line.tokens):
                reactions.append((line, self._sides(line)))
            else:
                assignments.append(line)
                self._name(line)
        if not reactions:
            raise ValueError("reaction network, line 1, column 1: the text has no reaction, such as `A + B -> C, k`.")
        for line in assignments:
            self._assignment(line)
        ordered(self.derived, self._circle)
        for line, sides in reactions:
            self._rates(line, *sides)
        self._check_given()
        parameters = {**self.numbers, **self.given}
        names = list(parameters)
        fixed = frozenset(self.fixed)
        return Description(list(self.species), self.reactions, names, self.derived, self.initial, fixed), parameters

    def _circle(self, names: list[str]) -> NoReturn:
        self.assigned[names[0]].fail(in_a_circle(names), self.assigned[names[0]].tokens[0].column)

    def _check_given(self) -> None:
        """Warns of a given name that is not in the text, but similar to a name whose number in the text is then used.

        All else may be given: what one network has and another has not, as initial amounts.
        """
        laws = [reaction.law for reaction in self.reactions]
        formulas = [*laws, *self.derived.values(), *self.initial.values()]
        named = {name for formula in formulas for name in names_in(formula)} | {*self.assigned, *self.species}
        for name in self.given:
            if name not in named and (meant := suggestion(name, self.numbers)):
                warn(
                    f"`parameters` has `{name}`, which does not occur in the text and has no effect.{meant}",
                )

    def _name(self, line: Line) -> None:
        """Records the value that a line without an arrow assigns."""
        held = line.take("$") is not None
        name = line.take_kind("name")
        if name is None:
            line.fail("expected a reaction, such as `A + B -> C, k`, or a value, such as `k = 0.1` or `A(0) = 1`")
        initial = line.take("(") is not None
        if initial:
            zero = line.take_kind("number")
            if zero is None or float(zero.text) != 0:
                line.fail("write an initial amount as `A(0) = 1`")
            line.expect(")")
        equals = line.take("=")
        if equals is None:
            line.fail("expected `=`, or an arrow: `->` for mass action, `=>` with the complete rate")
        if _lists(line):
            line.fail("a value cannot have a rate after a comma; for a reaction write `->` or `<->`", equals.column)
        if initial:
            self.fixed |= {name.text} if held else set()
            return
        if held:
            line.fail(f"set the amount of a constant species with `${name.text}(0) = ...`", line.tokens[0].column)
        if name.text in self.assigned:
            line.fail(f"`{name.text}` already has a value, in line {self.assigned[name.text].number}", name.column)
        if name.text in (TIME, *_CONSTANTS):
            line.fail(f"`{name.text}` is a reserved name", name.column)
        self.assigned[name.text] = line

    def _sides(self, line: Line) -> tuple[str, list, str, list]:
        """Reads a reaction up to its rates."""
        label = ""
        if len(line.tokens) > 1 and line.tokens[0].kind in ("name", "number") and line.tokens[1].text == ":":
            label = line.tokens[0].text
            line.place = 2
        left = self._side(line)
        arrow = line.expect(*_ARROWS).text
        right = self._side(line)
        if not left and not right:
            line.fail("a reaction without reactants and products", 0)
        return label, left, arrow, right

    def _side(self, line: Line) -> list[tuple[str, float]]:
        token = line.next
        if token is not None and token.text in ("0", "∅"):
            line.place += 1
            return []
        found: dict[str, float] = {}
        while True:
            number = line.take_kind("number")
            count = 1.0 if number is None else float(number.text)
            if count > _MOST:
                line.fail(f"a reaction can consume or produce at most {_MOST} of one species", number and number.column)
            if count <= 0:
                line.fail(f"a stoichiometric coefficient must be positive, but is {count:g}", number and number.column)
            line.take("*")
            held = line.take("$") is not None
            name = line.take_kind("name")
            if name is None:
                here = f"`{line.next.text}`" if line.next else "the end of the line"
                line.fail(f"expected a species, but found {here}")
            if name.text in (TIME, *_CONSTANTS):
                line.fail(f"`{name.text}` is a reserved name and cannot be a species", name.column)
            found[name.text] = found.get(name.text, 0.0) + count
            self.species.setdefault(name.text)
            if held:
                self.fixed.add(name.text)
            if not line.take("+"):
                return list(found.items())

    def _known(self, name: str) -> bool:
        return name in self.species or name in self.assigned or name in self.given or name in (TIME, *_CONSTANTS)

    def _names(self) -> list[str]:
        return [*self.species, *self.assigned, *self.given, TIME]

    def _formula(self, line: Line) -> Formula:
        return renamed(parse_formula(line, self._known, self._names), _CONSTANTS)

    def _assignment(self, line: Line) -> None:
        named = int(line.tokens[0].text == "$")
        name, initial = line.tokens[named].text, line.tokens[named + 1].text == "("
        column = line.next.column if line.next else None
        formula = self._formula(line)
        line.end()
        if initial:
            if name not in self.species:
                line.fail(f"`{name}` is in no reaction.{suggestion(name, self.species)}", 0)
            state = depends_on(formula, {*self.species, TIME}, {})
            if state is not None:
                line.fail(f"an initial amount can only depend on parameters, not on `{state}`", column)
            self.initial[name] = formula
        elif name in self.species:
            line.fail(
                f"`{name}` is a species: `{name}(0) = ...` sets its initial amount, and `${name}(0) = ...` holds "
                "it constant",
                line.tokens[0].column,
            )
        elif name in self.given:
            return  # what is given beside the text counts
        elif any(True for _ in names_in(formula)):
            self.derived[name] = formula
        else:
            self.numbers[name] = value_of(formula, {})

    def _rates(self, line: Line, label: str, left: list, arrow: str, right: list) -> None:
        """Reads what follows the sides of a reaction."""
        both = arrow in ("<->", "<=>")
        many = "two rates, forwards and backwards," if both else "a rate"
        if line.take(",") is None:
            line.fail(f"`{arrow}` needs {many} after a comma")
        mass_action = arrow in ("->", "<->")
        for i, (taken, made) in enumerate(((left, right), (right, left))[: 1 + both]):
            if i and line.take(",") is None:
                line.fail(f"`{arrow}` needs {many} after a comma")
            column = line.next.column if line.next else None
            law = self._formula(line)
            if mass_action and (found := depends_on(law, set(self.species), self.derived)):
                whole = arrow.replace("-", "=") if both else "=>"
                line.fail(
                    f"a rate after `{arrow}` is multiplied by the reactants, but this one depends on the species "
                    f"`{found}`; write `{whole}` if it is the complete rate",
                    column,
                )
            name = label or str(1 + len(self.reactions))
            name = f"{name} back" if i and label else name
            self.reactions.append(Reaction(name, tuple(taken), tuple(made), law, mass_action))
        if line.next is not None and line.next.text == "," and not both:
            line.fail("too many rates; for a reaction in both directions write `<->`")
        line.end()


def _lists(line: Line) -> bool:
    """Whether a line has a comma that stands between no arguments of a function."""
    depth = 0
    for token in line.tokens:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            return True
    return False


def _lines(row: str, number: int) -> Iterator[Line]:
    """The parts between the semicolons of a line, without a comment, each at its column."""
    start, shown = 0, row.rstrip()
    for part in row.partition("#")[0].split(";"):
        if part.strip():
            yield Line(part, number, "reaction network", shown, start)
        start += len(part) + 1


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
    return _NetReader(pathlib.Path(path)).read()


class _NetReader:
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
