"""Text to formulas, with errors that show the place."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from ._formulas import FUNCTIONS, OTHER_NAMES, Formula, constants_in, height_of, suggestion, value_of

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[^\W\d]\w*)"
    r"|(?P<sign><->|<=>|->|=>|<=|>=|==|!=|&&|\|\||\*\*|[-+*/^(),=<>!;:∅$])"
)
_WRITTEN = {"⇒": "=>", "⇔": "<=>", "−": "-", "·": "*", "×": "*"}
_WRITTEN |= dict.fromkeys("→⟶", "->") | dict.fromkeys("⇌⇋⇄⇆↔⟷", "<->")
"""The spelling of signs in messages for people."""
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_LEVELS = {"||": 0, "&&": 1, **dict.fromkeys(_COMPARED, 2), "+": 3, "-": 3, "*": 4, "/": 4}
"""How tightly signs between two operands bind, from the loosest on."""

_COMPARISON, _SIGN, _DEEPEST, _HIGHEST = 2, 5, 64, 100
"""The levels of comparisons and of signs before an operand; the maximum depth of nested brackets, and the maximum
height of the tree of a formula. Each of them is several calls of Python's, which allows a thousand in all."""


class Token(NamedTuple):
    """A number, a name or a sign, and where it starts."""

    kind: str
    text: str
    column: int


class Line:
    """A line of text, and the place in it up to which it has been read.

    Attributes:
        text: The line.
        number: Its number, from 1; None where the text is one line.
        what: The name of the text, for errors.
        shown: The text that errors show; by default the line.
        offset: The start of the text in the shown text.
    """

    def __init__(self, text: str, number: int | None, what: str, shown: str | None = None, offset: int = 0):
        self.text, self.number, self.what, self.offset = text, number, what, offset
        self.shown = text if shown is None else shown
        self.tokens = list(self._tokens())
        self.place = 0

    def _tokens(self):
        at = 0
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None:
                sign = self.text[at]
                hint = f": write `{_WRITTEN[sign]}`" if sign in _WRITTEN else ""
                self.fail(f"`{sign}` is not valid here{hint}", at + self.offset)
            if found.lastgroup != "space":
                yield Token(str(found.lastgroup), found.group(), at + self.offset)
            at = found.end()

    def fail(self, problem: str, column: int | None = None) -> NoReturn:
        """Raises an error that shows the place."""
        if column is None:
            column = self.next.column if self.next else len(self.text.rstrip()) + self.offset
        line = "" if self.number is None else f"line {self.number}, "
        sentence = problem if problem.endswith("?") else f"{problem.rstrip('.')}."
        raise ValueError(f"{self.what}, {line}column {column + 1}: {sentence}\n    {self.shown}\n    {' ' * column}^")

    @property
    def next(self) -> Token | None:
        """The next token."""
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self, *texts: str) -> Token | None:
        """Takes the next sign where it is one of these."""
        token = self.next
        if token is None or token.text not in texts:
            return None
        self.place += 1
        return token

    def take_kind(self, kind: str) -> Token | None:
        """Takes what comes next where it is of a kind."""
        token = self.next
        if token is None or token.kind != kind:
            return None
        self.place += 1
        return token

    def expect(self, *texts: str) -> Token:
        """Takes the next sign, which must be one of these."""
        found = self.take(*texts)
        if found is None:
            here = f"`{self.next.text}`" if self.next else "the end of the line"
            self.fail(f"expected {' or '.join(f'`{x}`' for x in texts)}, but found {here}")
        return found

    def end(self) -> None:
        """Checks that nothing is left."""
        if self.next is not None:
            self.fail(f"unexpected `{self.next.text}`")


def parse_formula(
    line: Line, known: Callable[[str], bool] | None = None, hints: Callable[[], list[str]] = list
) -> Formula:
    """Reads a formula from a line, up to the first token that does not belong to it.

    Args:
        line: The line.
        known: Says which names there are; by default any.
        hints: The names that there are, to suggest one.
    """
    column = line.next.column if line.next else None
    formulas = _Formulas(line, known or (lambda name: True), hints)
    try:
        found = formulas.expression()
    except RecursionError:  # called from deep within other code
        formulas.too_deep()
    if height_of(found) > _HIGHEST:
        line.fail(
            f"the formula has more than {_HIGHEST} nested operations; give names to parts of it",
            column,
        )
    for constant in constants_in(found):
        value = value_of(constant, {})
        if not math.isfinite(value):
            line.fail(
                f"a part of the formula evaluates to {value}: a division by zero, an overflow or an undefined value",
                column,
            )
    return found


def parse_text(text: str, what: str) -> Formula:
    """Reads a text that is one formula."""
    line = Line(text, None, what)
    found = parse_formula(line)
    line.end()
    return found


def _joined(signs: list[str], operands: list[Formula]) -> Formula:
    """Returns operands between signs of one level, from the left; what may be of any number is one operation."""
    found, *rest = operands
    if "-" in signs and len(rest) > 1:  # a long sum, as of all that makes and takes a species
        rest = [_negative(x) if sign == "-" else x for sign, x in zip(signs, rest)]
        signs = ["+"] * len(rest)
    at = 0
    while at < len(rest):
        sign, run = signs[at], [rest[at]]
        if sign in ("+", "*", "||", "&&"):
            while at + len(run) < len(rest) and signs[at + len(run)] == sign:
                run.append(rest[at + len(run)])
        found = (_OPERATIONS.get(sign, sign), found, *run)
        at += len(run)
    return found


_OPERATIONS = {"||": "or", "&&": "and"}


def _negative(x: Formula) -> Formula:
    return -x if isinstance(x, float) else ("neg", x)


class _Formulas:
    """The grammar, the loosest binding first."""

    def __init__(self, line: Line, known: Callable[[str], bool], hints: Callable[[], list[str]]):
        self.line, self.known, self.hints = line, known, hints
        self.depth = 0

    def expression(self, least: int = 0) -> Formula:
        """Reads operands between signs that bind as tightly as a level, or tighter."""
        left, most = self.signed(), _SIGN
        while (token := self.line.next) and least <= (level := _LEVELS.get(token.text, -1)) < most:
            signs, operands = [], [left]
            while (token := self.line.next) and _LEVELS.get(token.text) == level:
                self.line.place += 1
                signs.append(token.text)
                operands.append(self.expression(level + 1))
                if level == _COMPARISON:  # no second one
                    most = level
                    break
            left = _joined(signs, operands)
        return left

    def signed(self) -> Formula:
        before = []
        while token := self.line.take("-", "+", "!"):
            before.append(token.text)
        self.depth += 1 + len(before)
        if self.depth > _DEEPEST:
            self.too_deep()
        found = self.power()
        self.depth -= 1 + len(before)
        for sign in reversed(before):
            if sign == "!":
                found = ("not", found)
            elif sign == "-":
                found = -found if isinstance(found, float) else ("neg", found)
        return found

    def too_deep(self) -> NoReturn:
        self.line.fail(f"brackets or signs are nested more than {_DEEPEST} deep; give names to parts of the formula")

    def power(self) -> Formula:
        base = self.atom()
        if self.line.take("^", "**"):
            return ("^", base, self.signed())  # binds to the right, and tighter than a sign before it
        return base

    def atom(self) -> Formula:
        line = self.line
        number = line.take_kind("number")
        if number is not None:
            return float(number.text)
        if line.take("("):
            inner = self.expression()
            line.expect(")")
            return inner
        name = line.take_kind("name")
        if name is None:
            here = f"`{line.next.text}`" if line.next else "the end"
            line.fail(f"expected a number, a name or `(`, but found {here}")
        if line.take("("):
            return self.call(name)
        if name.text in ("true", "false", "True", "False"):
            return ("==", 0.0, 0.0 if name.text.lower() == "true" else 1.0)
        if not self.known(name.text):
            meant = suggestion(name.text, self.hints()) or f" Define it: `{name.text} = 1.0`."
            line.fail(f"unknown name `{name.text}`.{meant}", name.column)
        return name.text

    def call(self, name: Token) -> Formula:
        line, arguments = self.line, []
        if not line.take(")"):
            arguments.append(self.expression())
            while line.take(",", ";"):
                arguments.append(self.expression())
            line.expect(")")
        function = OTHER_NAMES.get(name.text, name.text)
        if function == "^":
            return ("^", *self.checked(name, arguments, (2,)))
        if function == "where":
            return self.pieces(name, arguments)
        if function == "arrhenius":  # at the temperature `T`
            self.checked(name, arguments, (3,))
            if not self.known("T"):
                line.fail("`arrhenius(A, b, E)` needs a temperature: a parameter or species named `T`", name.column)
            return (function, *arguments, "T")
        if function not in FUNCTIONS:
            names = [*FUNCTIONS, *OTHER_NAMES]
            line.fail(f"unknown function `{name.text}`.{suggestion(name.text, names)}", name.column)
        return (function, *self.checked(name, arguments, FUNCTIONS[function][0]))

    def checked(self, name: Token, arguments: list[Formula], counts: tuple[int, ...]) -> list[Formula]:
        if len(arguments) not in counts:
            many = " or ".join(map(str, counts))
            self.line.fail(f"`{name.text}` takes {many} arguments, not {len(arguments)}", name.column)
        return arguments

    def pieces(self, name: Token, arguments: list[Formula]) -> Formula:
        """`piecewise(value, condition, value, condition, ..., otherwise)`, or `if(condition, value, otherwise)`."""
        if name.text == "if":
            return ("where", *self.checked(name, arguments, (3,)))
        if len(arguments) < 3 or len(arguments) % 2 == 0:
            self.line.fail(
                "`piecewise` requires pairs of value and condition, then a value for all other cases", name.column
            )
        result = arguments[-1]
        for i in reversed(range(0, len(arguments) - 1, 2)):
            result = ("where", arguments[i + 1], arguments[i], result)
        return result
