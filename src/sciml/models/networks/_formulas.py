"""Formulas as trees: numbers, names, and tuples of an operation and its operands.

`("*", "k1", "A", 2.0)` is the product of two names and a number. The operations are `+` and `*` of any number of
operands, `-`, `/` and `^` of two, `neg` of one, comparisons, `and`, `or`, `not`, `where` of a condition and two values,
and the functions of `FUNCTIONS`.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Formula: TypeAlias = float | str | tuple
"""A number, a name, or a tuple of an operation and its operands."""

GAS_CONSTANT = 8.31446261815324
"""R, in J/(mol K)."""

COMPARISONS: dict[str, Callable] = {
    "<": jnp.less,
    "<=": jnp.less_equal,
    ">": jnp.greater,
    ">=": jnp.greater_equal,
    "==": jnp.equal,
    "!=": jnp.not_equal,
}
LOGIC: dict[str, Callable] = {"and": jnp.logical_and, "or": jnp.logical_or, "xor": jnp.logical_xor}


def _arrhenius(factor: Any, power: Any, energy: Any, temperature: Any) -> Any:
    return factor * jnp.power(temperature, power) * jnp.exp(-energy / (GAS_CONSTANT * temperature))


def _log(x: Any, base: Any = None) -> Any:
    return jnp.log(x) if base is None else jnp.log(x) / jnp.log(base)


FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable]] = {
    **{
        name: ((1,), getattr(jnp, name))
        for name in (
            *("exp", "sqrt", "abs", "sign", "floor", "ceil", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh"),
            *("tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"),
        )
    },
    "ln": ((1,), jnp.log),
    "log": ((1, 2), _log),
    "trunc": ((1,), jnp.trunc),
    "rem": ((2,), jnp.fmod),
    "gamma": ((1,), jax.scipy.special.gamma),
    "min": ((1, 2, 3, 4, 5, 6, 7, 8), lambda *x: _folded(jnp.minimum, x)),
    "max": ((1, 2, 3, 4, 5, 6, 7, 8), lambda *x: _folded(jnp.maximum, x)),
    "arrhenius": ((4,), _arrhenius),
}
"""The functions by name: the number of arguments and the definition."""

OTHER_NAMES = {"pow": "^", "piecewise": "where", "if": "where", "ceiling": "ceil", "exponential": "exp"}


def _folded(function: Callable, values: Iterable[Any]) -> Any:
    first, *rest = values
    for value in rest:
        first = function(first, value)
    return first


def names_in(formula: Formula) -> Iterator[str]:
    """The names of a formula, in their order, each as often as it occurs."""
    left = [formula]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, tuple):
            left.extend(reversed(one[1:]))


def renamed(formula: Formula, names: Mapping[str, Formula]) -> Formula:
    """A formula with other formulas instead of some of its names."""
    if isinstance(formula, str):
        return names.get(formula, formula)
    if isinstance(formula, tuple):
        return (formula[0], *(renamed(part, names) for part in formula[1:]))
    return formula


def product_of(*factors: Formula) -> Formula:
    """The product of formulas, without factors of one."""
    kept: list[Formula] = [f for f in factors if f != 1.0]
    if len(kept) == 1:
        return kept[0]
    return ("*", *kept) if kept else 1.0


def applied(operation: str, values: list[Any]) -> Any:
    """The result of an operation on arrays or numbers."""
    if operation == "+":
        return _folded(jnp.add, values)
    if operation == "*":
        return _folded(jnp.multiply, values)
    if operation == "-":
        return values[0] - values[1]
    if operation == "/":
        if isinstance(values[0], float) and isinstance(values[1], float) and values[1] == 0.0:
            return math.nan if values[0] == 0.0 else math.copysign(math.inf, values[0]) * math.copysign(1.0, values[1])
        return values[0] / values[1]
    if operation == "^":
        return _power(*values)
    if operation == "neg":
        return -values[0]
    if operation == "not":
        return jnp.logical_not(_truth(values[0]))
    if operation in COMPARISONS:
        return COMPARISONS[operation](*values)
    if operation in LOGIC:
        return _folded(LOGIC[operation], map(_truth, values))
    if operation == "where":
        return jnp.where(_truth(values[0]), *values[1:])
    return FUNCTIONS[operation][1](*values)


def _truth(x: Any) -> Any:
    return x if isinstance(x, bool) or getattr(x, "dtype", None) == np.dtype(bool) else x != 0


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, float):  # a known one: its derivative takes no logarithm
        if exponent == 0.5:
            return jnp.sqrt(base)
        if exponent.is_integer() and abs(exponent) <= 16:
            return base ** int(exponent)
        return jnp.power(base, exponent)
    dtype = jnp.result_type(base, exponent)
    return _raised(*jnp.broadcast_arrays(jnp.asarray(base, dtype), jnp.asarray(exponent, dtype)))


@jax.custom_jvp
def _raised(base: Any, exponent: Any) -> Any:
    return jnp.power(base, exponent)


# without NaN where the base is below zero, by rounding of a small amount: the logarithm is infinite there at most
@_raised.defjvp
def _(primals: Any, tangents: Any) -> Any:
    base, exponent = primals
    value, none = _raised(base, exponent), exponent == 0
    slope = jnp.where(none, 0, exponent * _raised(base, jnp.where(none, 1, exponent - 1)))
    logarithm = jnp.log(jnp.where(base > 0, base, 1))
    return value, slope * tangents[0] + value * logarithm * tangents[1]


def depends_on_any(formula: Formula, names: set[str]) -> bool:
    """Whether a formula has one of these names."""
    return any(name in names for name in names_in(formula))


def zero_of(formula: Formula, name: str) -> Formula | None:
    """The value of a name at which a formula is zero, if the formula is linear in it; None if it is not."""
    linear = _linear(formula, name)
    if linear is None or linear[0] == 0.0:
        return None
    slope, rest = linear
    if slope == 1.0:
        return ("neg", rest)
    return rest if slope == -1.0 else ("/", ("neg", rest), slope)


def _linear(formula: Formula, name: str) -> tuple[Formula, Formula] | None:
    """The factor of a name and the rest."""
    if formula == name:
        return 1.0, 0.0
    if not depends_on_any(formula, {name}):
        return 0.0, formula
    assert isinstance(formula, tuple)
    operation, *parts = formula
    found = [_linear(part, name) for part in parts]
    if any(x is None for x in found):
        return None
    slopes, rests = zip(*found)  # type: ignore[arg-type]
    if operation in ("+", "-", "neg"):
        if not all(isinstance(x, float) for x in slopes):
            return (operation, *slopes), (operation, *rests)
        signs = [-1.0 if operation == "neg" or (operation == "-" and i) else 1.0 for i in range(len(parts))]
        slope = float(sum(s * x for s, x in zip(signs, slopes)))
        return slope, (operation, *rests)
    if operation == "*" and sum(depends_on_any(part, {name}) for part in parts) == 1:
        factors = [part for part in parts if not depends_on_any(part, {name})]
        (slope,), (rest,) = zip(*(x for x, part in zip(found, parts) if depends_on_any(part, {name})))  # type: ignore
        if isinstance(slope, float) and all(isinstance(x, float) for x in factors):
            return slope * math.prod(factors), ("*", rest, *factors)  # type: ignore[arg-type]
        return ("*", slope, *factors), ("*", rest, *factors)
    if operation == "/" and slopes[1] == 0.0:
        return ("/", slopes[0], parts[1]), ("/", rests[0], parts[1])
    return None


def value_of(formula: Formula, names: Mapping[str, float]) -> float:
    """The number that a formula is where all its names are numbers; infinite or NaN where it has no value."""
    if isinstance(formula, str):
        return names[formula]
    if not isinstance(formula, tuple):
        return float(formula)
    values = [value_of(part, names) for part in formula[1:]]
    if formula[0] == "+":
        try:
            return math.fsum(values)
        except (OverflowError, ValueError):  # infinite
            return sum(values)
    if formula[0] == "*":
        return math.prod(values)
    if formula[0] in ("-", "/", "neg", "^"):
        with np.errstate(all="ignore"):
            return float(_SIMPLE[formula[0]](*map(np.float64, values)))
    with jax.ensure_compile_time_eval():
        return float(applied(formula[0], values))


_SIMPLE: dict[str, Callable] = {"-": np.subtract, "/": np.divide, "neg": np.negative, "^": np.power}


def height_of(formula: Formula) -> int:
    """The maximum depth of nested operations."""
    height, level = 0, [formula]
    while level := [part for one in level if isinstance(one, tuple) for part in one[1:]]:
        height += 1
    return height


def constants_in(formula: Formula) -> list[Formula]:
    """The largest parts of a formula that have no names; a formula whose height is bounded."""

    def search(formula: Formula) -> tuple[bool, list[Formula]]:
        if not isinstance(formula, tuple):
            return not isinstance(formula, str), []
        parts = [search(part) for part in formula[1:]]
        if all(constant for constant, _ in parts):
            return True, []
        found = [part for part, (constant, _) in zip(formula[1:], parts) if constant]
        return False, [*found, *(one for _, below in parts for one in below)]

    constant, found = search(formula)
    return [formula] if constant else found


_LONGEST_NAME = 100
"""The time to compare two names grows with the product of their lengths."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown name, as a sentence."""
    if len(name) > _LONGEST_NAME:
        return ""
    close = difflib.get_close_matches(name, [one for one in known if len(one) <= _LONGEST_NAME], 1)
    return f" Did you mean `{close[0]}`?" if close else ""
