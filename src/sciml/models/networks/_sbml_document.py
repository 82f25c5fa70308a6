"""SBML documents: reading them, with the place of every error, and their size."""

import collections
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ._sbml_algebraic import place_of, solve_algebraic_rules

_MOST_OPERATIONS = 50_000
"""Operations of a formula with its function definitions put in: more take JAX longer than a few seconds to trace."""

_DEEPEST = 250
"""Formulas within formulas, with function definitions put in: about three times as many are beyond Python's stack."""


def read_document(source: str | os.PathLike) -> Any:
    """Returns a document of libsbml.

    Args:
        source: A file, or SBML as text.

    Raises:
        ValueError: If it is not SBML, or has an unsupported feature that the analysis would not detect.
    """
    import libsbml
    from sbmlode.io import flatten, read_document as read

    try:
        doc = read(pathlib.Path(source) if isinstance(source, os.PathLike) else source)
    except ValueError as error:
        raise ValueError(_first_error(source) or str(error)) from error
    if doc.getModel() is None:
        raise ValueError(_first_error(source) or "the SBML has no model.")
    comp = doc.getPlugin("comp")
    count = comp.getNumModelDefinitions() if comp else 0
    models = [doc.getModel(), *(comp.getModelDefinition(i) for i in range(count))]
    for model in models:
        if doc.getLevel() < 3:  # the analysis converts to Level 3 Version 2, which has no such attribute
            for reaction in model.getListOfReactions():
                if reaction.getFast():
                    raise ValueError(
                        f"the SBML model uses an unsupported feature: fast reaction (`{reaction.getId()}`)"
                        f"{place_of(reaction)}."
                    )
        _Sizes(model, libsbml.AST_FUNCTION).check()
    comp: Any = models[0].getPlugin("comp")
    if comp is not None and comp.getNumSubmodels():
        flatten(doc)  # a variable of a submodel may be determined by a rule of the model around it
    solve_algebraic_rules(doc)
    return doc


def place_of_name(doc: Any, name: str) -> str:
    """Returns the position of the first formula with a name, as a suffix of a text; empty if there is none."""
    for element in doc.getListOfAllElements():
        math = _math_of(element)
        if math is not None and any(node.isName() and node.getName() == name for node in _nodes(math)):
            return place_of(element)
    return ""


def _first_error(source: str | os.PathLike) -> str:
    """Returns the first error of a document with its place; empty if there is none."""
    import libsbml

    text = str(source)
    doc = libsbml.readSBMLFromString(text) if text.lstrip().startswith("<") else libsbml.readSBMLFromFile(text)
    for number in range(doc.getNumErrors()):
        error = doc.getError(number)
        if error.getSeverity() >= libsbml.LIBSBML_SEV_ERROR:
            where = f"line {error.getLine()}, column {error.getColumn()}"
            return f"SBML, {where}: {' '.join(error.getMessage().split())}"
    return ""


def _math_of(element: Any) -> Any:
    return element.getMath() if hasattr(element, "getMath") and element.isSetMath() else None


def _nodes(math: Any) -> Iterator[Any]:
    open_ = [math]
    while open_:
        node = open_.pop()
        yield node
        open_ += [node.getChild(i) for i in range(node.getNumChildren())]


class _Size(NamedTuple):
    """The size of a formula with its functions put in: operations, how deep they are, and the uses of each argument."""

    operations: int
    depth: int
    names: "collections.Counter[str]"


class _Sizes:
    """The sizes of a model's formulas, each function counted once."""

    def __init__(self, model: Any, call: int):
        self.model, self.call = model, call
        self.functions = {f.getId(): f for f in model.getListOfFunctionDefinitions()}
        self.found: dict[str, _Size] = {}
        self.open: list[str] = []

    def check(self) -> None:
        """Checks all formulas.

        Raises:
            ValueError: If one is too large, or a function calls itself.
        """
        for element in self.model.getListOfAllElements():
            math = _math_of(element)
            if math is None:
                continue
            if element.getElementName() == "functionDefinition":
                self._of_function(element.getId(), [])
            else:
                self._check(self._of(math, frozenset()), element)

    def _of_function(self, name: str, given: list[_Size]) -> _Size:
        if name in self.open:
            circle = " -> ".join([*self.open[self.open.index(name) :], name])
            raise ValueError(f"SBML{place_of(self.functions[name])}: the function `{name}` calls itself: {circle}.")
        element = self.functions[name]
        count = element.getNumArguments()
        arguments = [element.getArgument(i).getName() for i in range(count)]
        if name not in self.found:
            self.open.append(name)
            body = element.getBody()
            size = _Size(1, 1, collections.Counter()) if body is None else self._of(body, frozenset(arguments))
            self._check(size, element)
            self.found[name] = size
            self.open.pop()
        body = self.found[name]
        if given and len(given) != count:
            raise ValueError(
                f"SBML{place_of(element)}: the function `{name}` has {count} arguments, but is called with "
                f"{len(given)}."
            )
        names: collections.Counter[str] = collections.Counter()
        operations, depth = body.operations, body.depth
        for argument, size in zip(arguments, given):
            times = body.names[argument]
            operations += times * size.operations
            depth = max(depth, body.depth + size.depth) if times else depth
            names.update({x: n * times for x, n in size.names.items()})
        return _Size(operations, depth, names)

    def _of(self, math: Any, arguments: frozenset[str]) -> _Size:
        """Returns the size of a formula; a loop, since what is too deep for Python is to be found."""
        done: list[_Size] = []
        open_ = [(math, False)]
        while open_:
            node, ready = open_.pop()
            count = node.getNumChildren()
            if not ready:
                open_.append((node, True))
                open_ += [(node.getChild(i), False) for i in reversed(range(count))]
                continue
            parts = done[len(done) - count :]
            del done[len(done) - count :]
            if node.getType() == self.call and node.getName() in self.functions:
                done.append(self._of_function(node.getName(), parts))
                continue
            names: collections.Counter[str] = collections.Counter()
            for part in parts:
                names.update(part.names)
            if node.isName() and node.getName() in arguments:
                names[node.getName()] += 1
            depth = 1 + max((part.depth for part in parts), default=0)
            done.append(_Size(1 + sum(part.operations for part in parts), depth, names))
        return done[0]

    def _check(self, size: _Size, element: Any) -> None:
        for what, found, most in (("operations", size.operations, _MOST_OPERATIONS), ("levels", size.depth, _DEEPEST)):
            if found > most:
                name = element.getId() or element.getElementName()
                raise ValueError(
                    f"SBML{place_of(element)}: the formula of `{name}` has {found} {what} after its function "
                    f"definitions are inserted; more than {most} are not supported."
                )
