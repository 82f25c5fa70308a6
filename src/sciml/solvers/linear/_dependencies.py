"""Dependencies of each element of a function's result on the elements of its argument, read from its program.

The program is evaluated with sets in place of numbers: every element of a value has the set of elements of the argument
that it was computed from, a row of a sparse matrix of booleans. Operations that move elements move rows, elementwise
operations join them, and the result of an operation without a rule depends on all its inputs. So the result holds for
every state, and may name more elements than the derivative has, never fewer. Integers and booleans, as the conditions
of `jnp.where`, have no derivative and depend on nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._checks import concrete
from ..._choices import choices
from ..._jax._shards import on_no_mesh, traced_on_no_mesh
from ..._jax.programs import _names as names, evaluate, parts_of_scan, parts_of_while, program_called, run_equation
from ...kernels._lanes._data_movement import MOVEMENTS, moved_by_index, places_of_updates
from ...kernels._lanes._definitions import program_of_definition
from ._sparse import SparseArray, sp

Rows: TypeAlias = SparseArray | None
"""The sets of a value's elements in the order of their rows; None where all are empty."""


class NoPattern(Exception):
    """A result depends on so much that its pattern is not worth having."""


class _Value:
    """A value within a program: its shape, what its elements depend on, and its numbers where they are known."""

    def __init__(self, shape: Sequence[int], rows: Rows = None, known: np.ndarray | None = None):
        self.shape, self.rows, self.known = tuple(shape), rows, known

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def pattern_of(fn: Callable[[Array], Array], x: Array) -> SparseArray | None:
    """Returns which entries the Jacobian of `fn` can have, a matrix of booleans; None where that is nearly all.

    Args:
        fn: A function from vectors to vectors.
        x: A vector, for its shape and dtype.
    """
    # of the derivative, not of the function: a rule of `jax.custom_jvp` may differ from what it is the rule of
    closed, _ = traced_on_no_mesh(lambda x, v: jax.jvp(fn, (x,), (v,))[1], x, x)
    size = x.shape[0]
    direction = _Value(x.shape, sp.eye_array(size, dtype=bool, format="csr"))
    reader = _Reader(size)
    try:
        (out,) = reader.run(closed.jaxpr, closed.consts, [_Value(x.shape), direction])
    except NoPattern:
        return None
    rows = reader.full(out)
    rows.sum_duplicates()
    return rows


class _Reader:
    """Evaluates programs over sets of the elements of an argument."""

    def __init__(self, size: int):
        self.size = size

    def full(self, value: _Value) -> SparseArray:
        """The sets of a value as a matrix."""
        return sp.csr_array((value.size, self.size), dtype=bool) if value.rows is None else value.rows

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[_Value]) -> list[_Value]:
        """Returns the results of a program."""
        values = [*map(_constant, consts), *inputs]
        return evaluate(
            jaxpr, values, self._differentiated, lambda atom: _Value(atom.aval.shape, None, np.asarray(atom.val))
        )

    def _differentiated(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        """The results of an equation, of which those without a derivative depend on nothing."""
        results = self._evaluate(eqn, values)
        for i, (v, result) in enumerate(zip(eqn.outvars, results, strict=True)):
            if result.rows is not None and (not _differentiable(v.aval) or not result.rows.nnz):
                results[i] = _Value(result.shape, None, result.known)
            elif result.rows is not None and result.rows.nnz > choices().linear.pattern_entries_at_most:
                raise NoPattern
        return results

    def _evaluate(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        name = eqn.primitive.name
        if name in names.IDENTITIES or name == "optimization_barrier":
            return values
        if all(v.rows is None for v in values):
            return self._independent(eqn, values)
        called = program_called(eqn) or program_of_definition(eqn)
        if called is not None:
            return self.run(called[0], called[1], values)
        shapes = [v.aval.shape for v in eqn.outvars]
        if name in names.ELEMENTWISE:
            return [_Value(shapes[0], self._joined(name, values, shapes[0]))]
        if name in names.ALONG_AXES:
            return [_Value(shapes[0], self._reduced(values[0], eqn.params["axes"]))]
        if name in names.ALONG_AXIS:
            return [self._over_axis(values[0], eqn.params["axis"])]
        rule = getattr(self, f"_{name.replace('-', '_')}", None)
        results = rule(eqn, values) if rule is not None else self._moved(eqn, values)
        return [self._of_all(values, shape) for shape in shapes] if results is None else results

    def _independent(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        """Results that depend on nothing; integers are computed, since they may be places of elements."""
        outs = [v.aval for v in eqn.outvars]
        most = choices().linear.pattern_known_at_most
        known = all(v.known is not None for v in values) and all(math.prod(v.shape) <= most for v in outs)
        moves = eqn.primitive.name in MOVEMENTS and eqn.primitive.name != "pad"
        known = known and eqn.primitive.name != "axis_index"  # which differs from device to device
        if not known or eqn.effects or (any(map(_differentiable, outs)) and not moves):
            return [_Value(v.shape) for v in outs]
        with on_no_mesh(), jax.ensure_compile_time_eval():
            arrays = [jnp.asarray(x.known, v.aval.dtype) for x, v in zip(values, eqn.invars)]
            results = run_equation(eqn, arrays)
        return [_Value(x.shape, None, np.asarray(x) if concrete(x) else None) for x in results]

    def _joined(self, name: str, values: list[_Value], shape: Sequence[int]) -> Rows:
        """The sets of elementwise work; a factor that is known to be zero leaves nothing of the other."""
        total, size = None, math.prod(shape)
        zeros = None
        if name == "mul":
            known = [np.broadcast_to(v.known != 0, shape).reshape(-1) for v in values if v.known is not None]
            zeros = known[0] if known else None
        for value in values:
            if value.rows is None:
                continue
            rows = value.rows
            if value.size != size:  # scalars are broadcast, and axes of length one
                rows = rows[np.broadcast_to(np.arange(value.size).reshape(value.shape), shape).reshape(-1)]
            if zeros is not None and not zeros.all():
                rows = sp.diags_array(zeros, dtype=bool).tocsr() @ rows
            total = rows if total is None else total + rows
        return total

    def _reduced(self, value: _Value, axes: Sequence[int]) -> Rows:
        """The sets of a reduction."""
        kept = [n for i, n in enumerate(value.shape) if i not in set(axes)]
        numbers = np.arange(math.prod(kept)).reshape([1 if i in set(axes) else n for i, n in enumerate(value.shape)])
        groups = np.broadcast_to(numbers, value.shape).reshape(-1)
        gather = sp.csr_array(
            (np.ones(value.size, bool), (groups, np.arange(value.size))), shape=(math.prod(kept), value.size)
        )
        return gather @ self.full(value)

    def _over_axis(self, value: _Value, axis: int) -> _Value:
        """A value every element of which depends on all along an axis."""
        rows = self._reduced(value, (axis,))
        assert rows is not None
        shape = [1 if i == axis else n for i, n in enumerate(value.shape)]
        numbers = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), value.shape)
        return _Value(value.shape, rows[numbers.reshape(-1)])

    def _of_all(self, values: Sequence[_Value], shape: Sequence[int]) -> _Value:
        """A value every element of which depends on all of some values."""
        total = sp.csr_array((1, self.size), dtype=bool)
        for value in values:
            if value.rows is not None:
                total = total + sp.csr_array(np.ones((1, value.size), bool)) @ value.rows
        if total.nnz * math.prod(shape) > choices().linear.pattern_entries_at_most:
            raise NoPattern
        return _Value(shape, total[np.zeros(math.prod(shape), np.int64)])

    def _moved(self, eqn: Any, values: list[_Value]) -> list[_Value] | None:
        """Movements of elements, by the rules of lanes: numbers of elements move, and sets follow."""
        rule = MOVEMENTS.get(eqn.primitive.name)
        if rule is None:
            return None
        moved = [v for v in values if v.rows is not None or v.known is None or v.known.dtype.kind in "fc"]
        elements, pool = self._numbered(values, moved)
        results = rule(*elements, **eqn.params)
        return None if results is None else [_taken(pool, x) for x in results]

    def _numbered(self, values: list[_Value], moved: list[_Value]) -> tuple[list[np.ndarray], SparseArray]:
        """Numbers in place of the elements of some values, indices of the rest, and the sets by their numbers."""
        elements, sets, start = [], [], 0
        for value in values:
            if any(value is m for m in moved):
                elements.append(np.arange(start, start + value.size).reshape(value.shape))
                sets.append(self.full(value))
                start += value.size
            else:
                elements.append(np.asarray(value.known))
        return elements, sp.csr_array(sp.vstack(sets, format="csr"))

    def _gather(self, eqn: Any, values: list[_Value]) -> list[_Value] | None:
        operand, indices = values
        if indices.known is None:
            return None
        numbers, pool = self._numbered([operand], [operand])
        outside = sp.csr_array((1, self.size), dtype=bool)
        source = moved_by_index(
            lambda x, i: eqn.primitive.bind(x, i, **eqn.params | {"fill_value": -1}),
            numbers,
            indices.known,
            operand.size,
        )
        return None if source is None else [_taken(sp.csr_array(sp.vstack([pool, outside], format="csr")), source)]

    def _scatter(self, eqn: Any, values: list[_Value]) -> list[_Value] | None:
        operand, indices, updates = values
        if indices.known is None:
            return None
        numbers, pool = self._numbered([operand, updates], [operand, updates])
        source = moved_by_index(lambda x, u, i: eqn.primitive.bind(x, i, u, **eqn.params), numbers, indices.known)
        return None if source is None else [_taken(pool, source)]

    def _scatter_add(self, eqn: Any, values: list[_Value]) -> list[_Value] | None:
        operand, indices, updates = values
        if indices.known is None:
            return None
        targets = places_of_updates(eqn, operand.shape, indices.known, updates.shape)
        inside = np.flatnonzero(targets >= 0)
        spread = sp.csr_array(
            (np.ones(inside.size, bool), (targets[inside], inside)), shape=(operand.size, updates.size)
        )
        return [_Value(operand.shape, self.full(operand) + spread @ self.full(updates))]

    def _dot_general(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        (contracted, batch), shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
        left, right = values
        total: Rows = None
        for side, (value, other) in enumerate(((left, right), (right, left))):
            if value.rows is None:
                continue
            rows = self._contracted(value, other, side, contracted, batch, shape)
            total = rows if total is None else total + rows
        return [_Value(shape, total)]

    def _contracted(
        self, value: _Value, other: _Value, side: int, contracted: Any, batch: Any, shape: Sequence[int]
    ) -> SparseArray:
        """The contribution of one factor of a product to each element of the result."""
        axes, batches = tuple(contracted[side]), tuple(batch[side])
        own = [i for i in range(len(value.shape)) if i not in (*axes, *batches)]
        by_axes = tuple(contracted[1 - side])
        if other.known is not None and not batches and not np.all(other.known):
            # zeros of a known factor leave out elements of this one
            order = [i for i in range(len(other.shape)) if i not in by_axes]
            matrix = np.transpose(other.known != 0, (*order, *by_axes)).reshape(
                math.prod(other.shape[i] for i in order), -1
            )
            ordered = np.transpose(np.arange(value.size).reshape(value.shape), (*own, *axes)).reshape(-1)
            count = math.prod(value.shape[i] for i in own)
            rows = sp.csr_array(sp.kron(sp.eye_array(count, dtype=bool), sp.csr_array(matrix)))
            result = rows.astype(bool) @ self.full(value)[ordered]
            numbers = np.arange(result.shape[0]).reshape(count, -1)
            return sp.csr_array(result)[(numbers if side == 0 else numbers.T).reshape(-1)]
        rows = self._reduced(value, axes)
        assert rows is not None
        kept = [i for i in range(len(value.shape)) if i not in axes]
        numbers = np.arange(rows.shape[0]).reshape([value.shape[i] for i in kept])
        numbers = np.transpose(numbers, [kept.index(i) for i in (*batches, *own)])
        others = len(shape) - len(batches) - len(own)
        first = len(batches) + (0 if side == 0 else others)
        lengths = [1] * len(shape)
        for place, length in zip((*range(len(batches)), *range(first, first + len(own))), numbers.shape, strict=True):
            lengths[place] = length
        return rows[np.broadcast_to(numbers.reshape(lengths), shape).reshape(-1)]

    def _cond(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        _, *operands = values
        results = [self.run(b.jaxpr, b.consts, operands) for b in eqn.params["branches"]]
        return [self._either(outs) for outs in zip(*results)]

    def _either(self, values: Sequence[_Value]) -> _Value:
        rows = [v.rows for v in values if v.rows is not None]
        return _Value(values[0].shape, sum(rows[1:], rows[0]) if rows else None)

    def _while(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        _, fixed, carry = parts_of_while(eqn, values)
        body = eqn.params["body_jaxpr"]
        return self._until_same(lambda carry: self.run(body.jaxpr, body.consts, [*fixed, *carry]), carry)

    def _until_same(self, body: Callable[[list[_Value]], list[_Value]], carry: list[_Value]) -> list[_Value]:
        """The possible dependencies of a loop's carry after any number of iterations."""
        carry = [_Value(v.shape, v.rows) for v in carry]  # numbers change
        for _ in range(choices().linear.pattern_rounds_at_most):
            new = [self._either(pair) for pair in zip(carry, body(carry))]
            if [self.full(v).nnz for v in new] == [self.full(v).nnz for v in carry]:
                return new
            carry = new
        return [self._of_all(carry, v.shape) for v in carry]

    def _scan(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        params = eqn.params
        fixed, carry, xs = parts_of_scan(eqn, values)
        count, length, body = len(carry), params["length"], params["jaxpr"]

        def at(parts):
            return lambda carry: self.run(body.jaxpr, body.consts, [*fixed, *carry, *parts])

        if length > choices().linear.pattern_unrolled_at_most:
            parts = [_Value(x.shape[1:], None if x.rows is None else self._reduced(x, (0,))) for x in xs]
            carry = self._until_same(lambda carry: at(parts)(carry)[:count], carry)
            ys = at(parts)(carry)[count:]
            shapes = [(length, *y.shape) for y in ys]
            numbers = [np.broadcast_to(np.arange(y.size).reshape(y.shape), s) for y, s in zip(ys, shapes)]
            return [*carry, *(_taken(self.full(y), n) for y, n in zip(ys, numbers))]
        places = [np.arange(x.size).reshape(x.shape) for x in xs]
        outs: list[list[_Value]] = []
        order = range(length)
        for i in reversed(order) if params["reverse"] else order:
            parts = [
                _Value(
                    x.shape[1:],
                    _taken(self.full(x), np.asarray(p[i])).rows,
                    None if x.known is None else np.asarray(x.known[i]),
                )
                for x, p in zip(xs, places)
            ]
            carry, ys = (lambda out: (out[:count], out[count:]))(at(parts)(carry))
            outs.append(ys)
        if params["reverse"]:
            outs.reverse()
        stacked = [
            _Value((length, *ys[0].shape), sp.csr_array(sp.vstack([self.full(y) for y in ys], format="csr")))
            for ys in zip(*outs)
        ]
        return [*carry, *stacked]

    def _sort(self, eqn: Any, values: list[_Value]) -> list[_Value]:
        axis = eqn.params["dimension"]
        every = self._either([_Value(v.shape, v.rows) for v in values])
        return [self._over_axis(every, axis) for _ in values]


def _constant(x: Any) -> _Value:
    small = np.size(x) <= choices().linear.pattern_known_at_most
    known = small and concrete(x) and not jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended)
    return _Value(np.shape(x), None, np.asarray(x) if known else None)


def _taken(pool: SparseArray, numbers: np.ndarray) -> _Value:
    """The value whose elements have the sets of these numbers."""
    return _Value(numbers.shape, pool[numbers.astype(np.int64).reshape(-1)])


def _differentiable(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return (
        dtype is not None
        and not jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
        and jnp.issubdtype(dtype, jnp.inexact)
    )
