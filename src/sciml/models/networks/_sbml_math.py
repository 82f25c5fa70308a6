"""The mathematics of SBML, libsbml's syntax trees, as formulas."""

import math
from collections.abc import Mapping
from typing import Any

from ._formulas import GAS_CONSTANT, Formula, renamed

TIME = "the time"
"""The name of the time in formulas of SBML, where `t` may be a parameter; no identifier can be it."""

_AVOGADRO = 6.02214179e23
"""The value that SBML Level 3 gives it."""

# libsbml's names of its types, which are attributes of the module
_NUMBERS = ("AST_INTEGER", "AST_REAL", "AST_REAL_E", "AST_RATIONAL")
_OPERATIONS = {
    "AST_PLUS": "+",
    "AST_TIMES": "*",
    "AST_RELATIONAL_EQ": "==",
    "AST_RELATIONAL_NEQ": "!=",
    "AST_RELATIONAL_LT": "<",
    "AST_RELATIONAL_LEQ": "<=",
    "AST_RELATIONAL_GT": ">",
    "AST_RELATIONAL_GEQ": ">=",
    "AST_LOGICAL_AND": "and",
    "AST_LOGICAL_OR": "or",
    "AST_LOGICAL_XOR": "xor",
    "AST_LOGICAL_NOT": "not",
    "AST_LOGICAL_IMPLIES": "implies",
}
_FUNCTIONS = {
    "ABS": "abs",
    "EXP": "exp",
    "LN": "ln",
    "FLOOR": "floor",
    "CEILING": "ceil",
    "SIN": "sin",
    "COS": "cos",
    "TAN": "tan",
    "SINH": "sinh",
    "COSH": "cosh",
    "TANH": "tanh",
    "ARCSIN": "arcsin",
    "ARCCOS": "arccos",
    "ARCTAN": "arctan",
    "ARCSINH": "arcsinh",
    "ARCCOSH": "arccosh",
    "ARCTANH": "arctanh",
    "MAX": "max",
    "MIN": "min",
    "REM": "rem",
}
_RECIPROCALS = {
    "SEC": "cos",
    "CSC": "sin",
    "COT": "tan",
    "SECH": "cosh",
    "CSCH": "sinh",
    "COTH": "tanh",
}
_CONSTANTS = {"AST_CONSTANT_PI": math.pi, "AST_CONSTANT_E": math.e, "AST_NAME_AVOGADRO": _AVOGADRO}
_NEUTRAL = {"+": 0.0, "*": 1.0}
_OPAQUE = {"AST_FUNCTION_DELAY": "delay", "AST_FUNCTION_RATE_OF": "rateOf"}  # in rules, before the analysis


class Mathematics:
    """Reads syntax trees.

    Attributes:
        functions: The arguments and bodies of function definitions, by name.
    """

    def __init__(self, functions: Mapping[str, tuple[tuple[str, ...], Any]]):
        import libsbml

        self.functions = functions
        self.bodies: dict[str, Formula] = {}
        self.types = {getattr(libsbml, n): n for n in dir(libsbml) if n.startswith("AST_")}

    def formula(self, node: Any) -> Formula:
        """Returns a syntax tree as a formula.

        Raises:
            ValueError: If it has an unsupported feature, such as a delay.
        """
        kind = self.types[node.getType()]
        if kind in _NUMBERS:
            return float(node.getValue())
        if kind == "AST_NAME":
            return node.getName()
        if kind == "AST_NAME_TIME":
            return TIME
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in ("AST_CONSTANT_TRUE", "AST_CONSTANT_FALSE"):
            return ("==", 0.0, float(kind == "AST_CONSTANT_FALSE"))
        parts = [self.formula(node.getChild(i)) for i in range(node.getNumChildren())]
        if kind in _OPERATIONS:
            return self._operation(_OPERATIONS[kind], parts)
        if kind == "AST_MINUS":
            return ("-", *parts) if len(parts) == 2 else ("neg", *parts)
        if kind in ("AST_DIVIDE", "AST_POWER", "AST_FUNCTION_POWER"):
            return ("/" if kind == "AST_DIVIDE" else "^", *parts)
        if kind == "AST_FUNCTION":
            return self._call(node.getName(), parts)
        if kind in _OPAQUE:
            return (_OPAQUE[kind], *parts)
        found = self._function(kind.removeprefix("AST_FUNCTION_"), parts)
        if found is None:
            raise ValueError(f"`{node.getName() or kind.removeprefix('AST_').lower()}` is not supported in formulas.")
        return found

    def _operation(self, operation: str, parts: list[Formula]) -> Formula:
        if operation in _NEUTRAL and len(parts) < 2:
            return parts[0] if parts else _NEUTRAL[operation]
        if operation in ("and", "or", "xor") and len(parts) < 2:
            return parts[0] if parts else ("==", 0.0, float(operation != "and"))
        if operation == "implies":
            return ("or", ("not", parts[0]), parts[1])
        if operation in ("<", "<=", ">", ">=", "==") and len(parts) > 2:  # a < b < c
            return ("and", *((operation, a, b) for a, b in zip(parts, parts[1:])))
        return (operation, *parts)

    def _call(self, name: str, parts: list[Formula]) -> Formula:
        if name not in self.functions:
            raise ValueError(f"the function `{name}` is not defined.")
        arguments, body = self.functions[name]
        if name not in self.bodies:
            self.bodies[name] = self.formula(body)
        return renamed(self.bodies[name], dict(zip(arguments, parts, strict=True)))

    def _function(self, name: str, parts: list[Formula]) -> Formula | None:
        if name in _FUNCTIONS:
            return (_FUNCTIONS[name], *parts)
        if name in _RECIPROCALS:
            return ("/", 1.0, (_RECIPROCALS[name], *parts))
        if name.startswith("ARC") and name.removeprefix("ARC") in _RECIPROCALS:
            return (f"arc{_RECIPROCALS[name.removeprefix('ARC')]}", ("/", 1.0, parts[0]))
        if name == "PIECEWISE":
            result = parts[-1] if len(parts) % 2 else math.nan
            for i in reversed(range(0, len(parts) - 1, 2)):
                result = ("where", parts[i + 1], parts[i], result)
            return result
        if name == "LOG":
            return ("log10", parts[-1]) if len(parts) == 1 or parts[0] == 10.0 else ("log", parts[1], parts[0])
        if name == "ROOT":
            degree = parts[0] if len(parts) == 2 else 2.0
            return ("sqrt", parts[-1]) if degree == 2.0 else ("^", parts[-1], ("/", 1.0, degree))
        if name == "FACTORIAL":
            return ("gamma", ("+", parts[0], 1.0))
        if name == "QUOTIENT":
            return ("trunc", ("/", *parts))
        return None


_TYPES = {operation: kind for kind, operation in (_OPERATIONS | _OPAQUE).items()} | {
    **{operation: f"AST_FUNCTION_{name}" for name, operation in _FUNCTIONS.items()},
    **{"-": "AST_MINUS", "neg": "AST_MINUS", "/": "AST_DIVIDE", "^": "AST_POWER"},
}


def syntax_tree(formula: Formula) -> Any:
    """Returns a formula as a syntax tree of libsbml; the time is the name `TIME`.

    Raises:
        ValueError: If SBML does not have one of its functions.
    """
    import libsbml

    def node(kind: str, *parts: Formula) -> Any:
        found = libsbml.ASTNode(getattr(libsbml, kind))
        for part in parts:
            found.addChild(syntax_tree(part))
        return found

    if isinstance(formula, str):
        found = libsbml.ASTNode(libsbml.AST_NAME_TIME if formula == TIME else libsbml.AST_NAME)
        found.setName("t" if formula == TIME else formula)
        return found
    if not isinstance(formula, tuple):
        found = libsbml.ASTNode(libsbml.AST_REAL)
        found.setValue(float(formula))
        return found
    operation, *parts = formula
    if operation in _TYPES:
        return node(_TYPES[operation], *parts)
    if operation == "where":
        condition, value, other = parts
        return node("AST_FUNCTION_PIECEWISE", value, condition, other)
    if operation in ("log2", "log10"):
        return node("AST_FUNCTION_LOG", 2.0 if operation == "log2" else 10.0, *parts)
    if operation == "log":  # of a base, if it has two arguments
        return node("AST_FUNCTION_LOG", parts[1], parts[0]) if len(parts) == 2 else node("AST_FUNCTION_LN", *parts)
    if operation == "sqrt":
        return node("AST_FUNCTION_ROOT", 2.0, *parts)
    if operation == "sign":
        return syntax_tree(("where", (">", parts[0], 0.0), 1.0, ("where", ("<", parts[0], 0.0), -1.0, 0.0)))
    if operation == "trunc":
        return node("AST_FUNCTION_QUOTIENT", *parts, 1.0)
    if operation == "gamma":
        return node("AST_FUNCTION_FACTORIAL", ("-", parts[0], 1.0))
    if operation == "arrhenius":
        factor, power, energy, temperature = parts
        heat: Formula = ("*", GAS_CONSTANT, temperature)
        return syntax_tree(("*", factor, ("^", temperature, power), ("exp", ("neg", ("/", energy, heat)))))
    raise ValueError(f"SBML does not have the function `{operation}`.")
