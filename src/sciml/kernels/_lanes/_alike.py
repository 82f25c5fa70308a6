"""Alike operations of a program on single numbers, as one operation on an array of them.

A vector field over a hundred single numbers, such as the entries of a dictionary, is a program of hundreds of small
operations. A compiler takes about ten milliseconds for each, and a loop starts each of them on its own. Here operations
of the same kind become one operation on arrays if none of them reads another. Slices, stacks and reshapes vanish: they
only say from where a number is read.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._checks import concrete
from ..._choices import choices
from ..._jax._interpreters import ClosedJaxpr, jaxpr_as_fun
from ..._jax._sources import at_source_of
from ..._jax._vma import vma_of
from ..._jax.programs import _names as names, equations, evaluate, program_called, run_equation
from ._data_movement import MOVEMENTS
from ._elementwise import folded
from ._values import Constant, object_array, unstacked_constant


class _Number:
    """A number of a program.

    Attributes:
        dtype: Its dtype.
        level: The number of operations, one after another, that lead to it.
        holder: The key of the array that holds it.
        place: Its place there.
    """

    __slots__ = "dtype", "holder", "level", "place"

    def __init__(self, dtype: Any, level: int, holder: Any, place: int):
        self.dtype, self.level, self.holder, self.place = dtype, level, holder, place


class _Work(NamedTuple):
    """Operations of the same kind that do not read each other, or one of another kind.

    Attributes:
        eqn: One of them.
        inputs: The numbers that each of them reads; or the operands as arrays of numbers.
        alike: Whether they are elementwise, so that there may be several.
    """

    eqn: Any
    inputs: list
    alike: bool


def with_alike_merged(fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """Returns `fn(*args)`, computed by few operations on arrays where `fn` has many on single numbers.

    Args:
        fn: A function of arrays.
        args: Its arguments.
    """
    closed, out = jax.make_jaxpr(fn, return_shape=True)(*args)
    leaves = jax.tree.leaves(args)
    if not any(map(vma_of, (*leaves, *closed.consts))) and all(map(_is_small, _variables(closed))):
        # arguments may be constants of an outer trace, which stay known
        merged = jax.make_jaxpr(_merged(closed))(*leaves)
        if 2 * _size(merged) <= _size(closed):
            closed = merged
    return jax.tree.unflatten(jax.tree.structure(out), jaxpr_as_fun(closed)(*leaves))


def _size(closed: ClosedJaxpr) -> int:
    return sum(1 for _ in equations(closed.jaxpr))


def _variables(closed: ClosedJaxpr) -> list:
    inner = [v for eqn in equations(closed.jaxpr) for v in (*eqn.invars, *eqn.outvars)]
    return [*closed.jaxpr.constvars, *closed.jaxpr.invars, *inner]


def _is_small(v: Any) -> bool:
    numbers = hasattr(v.aval, "shape") and not jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.extended)
    return numbers and v.aval.size <= choices().lanes.merged_at_most


def _merged(closed: ClosedJaxpr) -> Callable[..., list[Array]]:
    """Returns a program, as a function of the leaves of its arguments, with alike operations as one."""
    works: dict[tuple, _Work] = {}

    def new(holder: Any, aval: Any, level: int) -> np.ndarray:
        return object_array([_Number(aval.dtype, level, holder, i) for i in range(aval.size)], aval.shape)

    def known(array: Any) -> np.ndarray:
        return unstacked_constant(array).elements

    def literal(atom: Any) -> np.ndarray:
        return known(np.asarray(atom.val, atom.aval.dtype))

    def level_after(entries: Any) -> int:
        return 1 + max((x.level for x in entries if isinstance(x, _Number)), default=0)

    def elementwise(eqn: Any, params: str, entries: tuple) -> Any:
        dtype = eqn.outvars[0].aval.dtype
        if all(isinstance(x, Constant) for x in entries):
            found = folded(eqn.primitive.name, entries, dtype)
            if found is not None:
                return found
        level = level_after(entries)
        key = level, eqn.primitive, params, *(x.dtype for x in entries)
        inputs = works.setdefault(key, _Work(eqn, [], True)).inputs
        inputs.append(entries)
        return _Number(dtype, level, key, len(inputs) - 1)

    def listed(eqn: Any, operands: list[np.ndarray]) -> Sequence[np.ndarray]:
        name = eqn.primitive.name
        called = program_called(eqn) if name in names.JITS else None
        if called is not None:
            return evaluate(called[0], [*map(known, called[1]), *operands], listed, literal)
        if name in names.ELEMENTWISE and name not in names.IDENTITIES:
            shape, params = eqn.outvars[0].aval.shape, repr(sorted(eqn.params.items()))
            columns = [np.broadcast_to(x, shape).reshape(-1) for x in operands]
            return [object_array([elementwise(eqn, params, entries) for entries in zip(*columns)], shape)]
        moved = MOVEMENTS[name](*operands, **eqn.params) if name in MOVEMENTS else None
        if moved is not None or name in names.IDENTITIES:
            return operands if moved is None else moved
        level = level_after(x for operand in operands for x in operand.reshape(-1))
        key = level, len(works)
        works[key] = _Work(eqn, operands, False)
        return [new((key, i), v.aval, level) for i, v in enumerate(eqn.outvars)]

    jaxpr = closed.jaxpr
    consts = [known(c) if concrete(c) else new(v, v.aval, 0) for v, c in zip(jaxpr.constvars, closed.consts)]
    results = evaluate(jaxpr, [*consts, *(new(v, v.aval, 0) for v in jaxpr.invars)], listed, literal)

    def run(*arrays: Array) -> list[Array]:
        rows: dict[Any, Array] = {
            v: jnp.ravel(x) for v, x in zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arrays))
        }
        for key, (eqn, inputs, alike) in sorted(works.items(), key=lambda item: item[0][0]):
            with at_source_of(eqn):
                if alike:
                    rows[key] = eqn.primitive.bind(*(_together(column, rows) for column in zip(*inputs)), **eqn.params)
                else:
                    found = run_equation(eqn, [_array(x, v.aval, rows) for x, v in zip(inputs, eqn.invars)])
                    rows |= {(key, i): jnp.ravel(x) for i, x in enumerate(found)}
        return [_array(x, v.aval, rows) for x, v in zip(results, jaxpr.outvars)]

    return run


def _array(entries: np.ndarray, aval: Any, rows: dict[Any, Array]) -> Array:
    flat = list(entries.reshape(-1))
    return (_together(flat, rows) if flat else jnp.zeros(0, aval.dtype)).reshape(aval.shape)


def _together(entries: Sequence[Any], rows: dict[Any, Array]) -> Array:
    """Returns numbers, in a row, from the rows that hold them."""
    if all(isinstance(x, Constant) for x in entries):
        return jnp.asarray(np.array(entries, entries[0].dtype))
    if all(x is entries[0] for x in entries):
        first = entries[0]
        return jnp.broadcast_to(rows[first.holder][first.place], (len(entries),))
    pieces = _pieces(entries)
    if len(pieces) <= choices().lanes.merged_pieces_at_most:
        return _concatenated([_piece(piece, rows) for piece in pieces])
    constants = [x for x in entries if isinstance(x, Constant)]
    sources = dict.fromkeys(x.holder for x in entries if not isinstance(x, Constant))
    parts = [rows[holder] for holder in sources]
    offsets = dict(zip(sources, np.cumsum([0, *(x.size for x in parts)]).tolist()))
    numbers = iter(range(sum(x.size for x in parts), sum(x.size for x in parts) + len(constants)))
    places = [next(numbers) if isinstance(x, Constant) else offsets[x.holder] + x.place for x in entries]
    whole = _concatenated([*parts, *([jnp.asarray(np.array(constants))] if constants else [])])
    once = len(set(places)) == len(places)
    taken = whole.at[np.array(places, np.int32)]
    return taken.get(mode="promise_in_bounds", unique_indices=once, wrap_negative_indices=False)


def _concatenated(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else jax.lax.concatenate(parts, 0)


def _pieces(entries: Sequence[Any]) -> list[list]:
    """Returns the numbers in lists of constants, and of numbers that follow each other in one row."""
    pieces: list[list] = []
    for x in entries:
        last = pieces[-1][-1] if pieces else None
        if isinstance(x, Constant):
            follows = isinstance(last, Constant)
        else:
            follows = isinstance(last, _Number) and (last.holder, last.place + 1) == (x.holder, x.place)
        if follows:
            pieces[-1].append(x)
        else:
            pieces.append([x])
    return pieces


def _piece(numbers: list, rows: dict[Any, Array]) -> Array:
    if isinstance(numbers[0], Constant):
        return jnp.asarray(np.array(numbers))
    row, start = rows[numbers[0].holder], numbers[0].place
    return row if len(numbers) == row.size else jax.lax.slice_in_dim(row, start, start + len(numbers))
