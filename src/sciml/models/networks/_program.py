"""Many formulas evaluated together: formulas of one shape are one computation over arrays.

Hundreds of rates `k * A * B` are three gathers and two products, so that a program's size does not grow with a network.
The gathers use numbers that are known while JAX traces: over lanes nothing is moved, and the pattern of a Jacobian is
the pattern of the network.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._choices import choices
from ._formulas import Formula, applied, names_in

_Leaf = tuple  # ("$", i), the i-th name of a formula; ("#", i), its i-th number


class Block:
    """A function of many values with many results: the formula `(block, i, *names)` is result `i` for named values.

    Attributes:
        function: The function, of one vector; it returns another one.
    """

    def __init__(self, function: Callable[[Array], Array]):
        self.function = function


class _Group(NamedTuple):
    """Formulas of one shape."""

    shape: Formula
    slots: np.ndarray  # (names in the shape, formulas): where in the values each name stands
    numbers: np.ndarray  # (numbers in the shape, formulas)


class _Called(NamedTuple):
    """Formulas that are results of one block for the same values."""

    block: Block
    slots: np.ndarray
    results: np.ndarray


class _Level(NamedTuple):
    """Formulas that need no result of one another."""

    groups: tuple[_Group, ...]
    slots: np.ndarray  # of all groups, one after another
    called: tuple[_Called, ...]


class FormulaProgram:
    """Formulas over named values, each of which may use the results of those before it.

    Attributes:
        inputs: The names of the values that the program is given.
        places: The position of each name among the values and the results behind them.
    """

    def __init__(self, inputs: Sequence[str], formulas: Mapping[str, Formula]):
        self.inputs = tuple(inputs)
        self.places = {name: i for i, name in enumerate(self.inputs)}
        self.levels: list[_Level] = []
        depth: dict[str, int] = dict.fromkeys(self.inputs, 0)
        rows: dict[int, list[str]] = {}
        for name, formula in formulas.items():
            if formula in depth:  # another name of something that is there
                depth[name] = depth[formula]
            else:
                depth[name] = 1 + max((depth[other] for other in names_in(formula)), default=0)
                rows.setdefault(depth[name], []).append(name)
        aliases = {name: f for name, f in formulas.items() if isinstance(f, str)}
        for level in sorted(rows):
            self._resolve(aliases)
            self._add({name: formulas[name] for name in rows[level]})
        self._resolve(aliases)

    def _resolve(self, aliases: Mapping[str, str]) -> None:
        for name, other in aliases.items():
            if other in self.places:
                self.places[name] = self.places[other]

    def _add(self, formulas: Mapping[str, Formula]) -> None:
        found: dict[Formula, list[tuple[str, list[int], list[float]]]] = {}
        blocks: dict[tuple, list[tuple[str, int]]] = {}
        for name, formula in formulas.items():
            if isinstance(formula, tuple) and isinstance(formula[0], Block):
                blocks.setdefault((formula[0], *formula[2:]), []).append((name, formula[1]))
                continue
            names: list[str] = []
            numbers: list[float] = []
            shape = _shape_of(formula, names, numbers)
            found.setdefault(shape, []).append((name, [self.places[n] for n in names], numbers))
        start, groups = self.size, []
        for shape, rows in found.items():
            slots = np.array([r[1] for r in rows], np.int64).T.reshape(-1, len(rows))
            constants = np.array([r[2] for r in rows], float).T.reshape(-1, len(rows))
            groups.append(_Group(shape, slots, constants))
            for name, _, _ in rows:
                self.places[name] = start
                start += 1
        called = []
        for (block, *names), results in blocks.items():
            called.append(_Called(block, self.slots(names), np.array([number for _, number in results])))
            for name, _ in results:
                self.places[name] = start
                start += 1
        every = [g.slots.reshape(-1) for g in groups]
        slots = np.concatenate(every) if every else np.zeros(0, np.int64)
        self.levels.append(_Level(tuple(groups), slots, tuple(called)))

    @property
    def size(self) -> int:
        """How many numbers the values are, with the results."""
        groups = sum(g.slots.shape[1] for level in self.levels for g in level.groups)
        return len(self.inputs) + groups + sum(len(c.results) for level in self.levels for c in level.called)

    def slots(self, names: Sequence[str]) -> np.ndarray:
        """The positions of names."""
        return np.array([self.places[name] for name in names], np.int64)

    def __call__(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """Returns the values with all results behind them."""
        for level in self.levels:
            taken, start, results = taken_from(values, level.slots), 0, [values]
            for group in level.groups:
                names, count = group.slots.shape
                parts = [taken[start + i * count : start + (i + 1) * count] for i in range(names)]
                result = _evaluated(group.shape, parts, group.numbers, values.dtype)
                results.append(jnp.broadcast_to(jnp.asarray(result, values.dtype), (count,)))
                start += names * count
            for block, slots, numbers in level.called:
                results.append(taken_from(block.function(taken_from(values, slots)), numbers).astype(values.dtype))
            values = jnp.concatenate(results)
        return values


def taken_from(values: Array, slots: np.ndarray) -> Array:
    """Returns elements of a vector by numbers that are known and within it."""
    if slots.size == values.shape[0] and np.array_equal(slots, np.arange(slots.size)):
        return values
    if slots.size and np.array_equal(slots, np.arange(slots[0], slots[0] + slots.size)):
        return values[int(slots[0]) : int(slots[0]) + slots.size]
    return values.at[slots].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _shape_of(formula: Formula, names: list[str], numbers: list[float]) -> Formula:
    """A formula with places for its names and numbers, which are appended to the lists."""
    if isinstance(formula, str):
        names.append(formula)
        return ("$", len(names) - 1)
    if not isinstance(formula, tuple):
        numbers.append(float(formula))
        return ("#", len(numbers) - 1)
    if formula[0] == "^" and isinstance(formula[2], float):  # powers by different numbers are different computations
        return ("^", _shape_of(formula[1], names, numbers), formula[2])
    return (formula[0], *(_shape_of(part, names, numbers) for part in formula[1:]))


def _evaluated(shape: Any, names: list[Array], numbers: np.ndarray, dtype: Any) -> Any:
    if not isinstance(shape, tuple):
        return shape
    if shape[0] == "$":
        return names[shape[1]]
    if shape[0] == "#":
        row = numbers[shape[1]]
        return float(row[0]) if np.all(row == row[0]) else jnp.asarray(row, dtype)
    return applied(shape[0], [_evaluated(part, names, numbers, dtype) for part in shape[1:]])


class Sums:
    """Sums of multiples of a vector's elements, one for each row of a sparse matrix, by gathers only.

    Rows with about as many terms are one array of numbers, padded by zeros: what is computed is at most twice what has
    to be.
    """

    def __init__(self, rows: Sequence[Mapping[int, float]]):
        self.count = len(rows)
        sizes: dict[int, list[int]] = {}
        for i, row in enumerate(rows):
            sizes.setdefault(0 if not row else 2 ** math.ceil(math.log2(len(row))), []).append(i)
        self.parts: list[tuple[np.ndarray, np.ndarray]] = []
        order: list[int] = []
        for size, members in sorted(sizes.items()):
            if size == 0:
                continue
            width = max(len(rows[i]) for i in members)
            slots, factors = np.zeros((width, len(members)), np.int64), np.zeros((width, len(members)))
            for j, i in enumerate(members):
                slots[: len(rows[i]), j], factors[: len(rows[i]), j] = list(rows[i]), list(rows[i].values())
            order += members
            self.parts.append((slots, factors))
        self.order = np.full(self.count, len(order), np.int64)  # the number of a zero where a row has no terms
        self.order[order] = np.arange(len(order))

    def __call__(self, values: Float[Array, " n"]) -> Float[Array, " m"]:
        """Returns the sums."""
        found = []
        for slots, factors in self.parts:
            if len(slots) > choices().fields.sum_terms_at_most:
                terms = taken_from(values, slots.reshape(-1)).reshape(slots.shape)
                found.append(jnp.sum(terms * jnp.asarray(factors, values.dtype), axis=0))
                continue
            total = None
            for row, factor in zip(slots, factors):
                term = taken_from(values, row)
                if np.any(factor != 1):
                    same = np.all(factor == factor[0])
                    term = term * (float(factor[0]) if same else jnp.asarray(factor, values.dtype))
                total = term if total is None else total + term
            found.append(total)
        if len(self.order) and self.order.max() == sum(p[0].shape[1] for p in self.parts):
            found.append(jnp.zeros(1, values.dtype))
        return taken_from(jnp.concatenate(found), self.order)


class StaticContent:
    """The structure of a model besides its numbers: it is compared by value, once for each pair of models.

    Attributes:
        content: Tuples of numbers and names.
    """

    def __init__(self, content: tuple):
        self.content = content
        self._hash = hash(content)

    def __repr__(self) -> str:
        return "StaticContent(...)"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, StaticContent) and self._hash == other._hash and self.content == other.content


@functools.lru_cache(maxsize=256)
def program_of(static: StaticContent) -> FormulaProgram:
    """The program of what is static: its names, and its formulas by name, each after those that it uses."""
    inputs, formulas = static.content[:2]
    return FormulaProgram(inputs, dict(formulas))


def in_a_circle(names: list[str]) -> str:
    """Returns the error for formulas that depend on one another in a cycle, each on the next one."""
    shown = names if len(names) <= 10 else [*names[:9], "..."]
    return f"formulas depend on one another in a cycle: {' -> '.join([*shown, names[0]])}."


def _refuse(names: list[str]) -> NoReturn:
    raise ValueError(in_a_circle(names))


def ordered(formulas: Mapping[str, Formula], fail: Callable[[list[str]], NoReturn] = _refuse) -> dict[str, Formula]:
    """Returns formulas in an order in which each comes after those that it uses.

    Args:
        formulas: The formulas by name.
        fail: Raises the error about names that use one another in a circle.

    Raises:
        ValueError: If some use one another in a circle.
    """
    found: dict[str, Formula] = {}
    for first in formulas:
        open_: dict[str, Iterator[str]] = {}  # the names whose formulas are being looked at, and what is left of these
        if first not in found:
            open_[first] = names_in(formulas[first])
        while open_:
            name, rest = next(reversed(open_.items()))
            other = next((n for n in rest if n in formulas and n not in found), None)
            if other is None:
                found[name] = formulas[name]
                del open_[name]
            elif other in open_:
                names = list(open_)
                fail(names[names.index(other) :])
            else:
                open_[other] = names_in(formulas[other])
    return found


def needed(formulas: Iterable[Formula], among: Mapping[str, Formula]) -> dict[str, Formula]:
    """Returns the named formulas from which others are computed."""
    found: dict[str, Formula] = {}
    open_ = [name for formula in formulas for name in names_in(formula)]
    while open_:
        name = open_.pop()
        if name in among and name not in found:
            found[name] = among[name]
            open_ += names_in(among[name])
    return found


def scalars(values: Sequence[Any], dtype: Any) -> Array:
    """Returns numbers and vectors as one vector."""
    if not values:
        return jnp.zeros(0, dtype)
    if all(jnp.ndim(x) == 0 for x in values):
        return jnp.stack([jnp.asarray(x).astype(dtype) for x in values])
    return jnp.concatenate([jax.lax.convert_element_type(jnp.ravel(x), dtype) for x in values])


def check_real(parameters: Mapping[str, Any], dtype: Any) -> None:
    """Checks that no parameter has an imaginary part that the state has no place for.

    Raises:
        TypeError: If one is complex and the dtype is real.
    """
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return
    for name, value in parameters.items():
        if jnp.iscomplexobj(value):
            raise TypeError(
                f"the parameter `{name}` of a reaction network with a real state must be real, but has dtype "
                f"{jnp.result_type(value)}. Pass its real part, or use a complex state."
            )
