"""The entries of a Jacobian, each computed by itself from the program of its derivative.

If one unknown is coupled to hundreds of others, like a receptor in a reaction network, hardly any two columns can be
computed at once, although rows have few entries before they are summed: a rate depends on two or three species. So the
program of the derivative is followed with sums of terms in place of numbers. A term is a column, and a number among
arrays that are computed as the program says. Operations that move elements move terms, sums join them, known factors
are multiplied while JAX traces, and other factors in one product for all terms.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Inexact

from ..._checks import concrete
from ..._choices import choices
from ..._jax._shards import on_no_mesh
from ..._jax._vma import match
from ..._jax.programs import _names as names, evaluate, program_called, run_equation
from ...kernels._lanes._data_movement import MOVEMENTS, places_of_updates
from ._colouring import Colouring
from ._structure import AbstractStructure, DerivativeAlong, products


class Entries(NamedTuple):
    """The entries of a matrix, of which several may stand at one place and are to be added.

    Attributes:
        places: Rows times the number of columns, plus columns, in increasing order.
        values: Their values.
    """

    places: np.ndarray
    values: Float[Array, " entries"]


def entries_of(
    function: Callable[[Float[Array, " n"]], Float[Array, " n"]], x: Float[Array, " n"], directions: int
) -> Entries | None:
    """Returns the entries of a function's Jacobian; None where derivatives along directions are cheaper.

    Args:
        function: The function.
        x: Where.
        directions: How many directions give the Jacobian.
    """
    closed = jax.make_jaxpr(lambda x, v: jax.jvp(function, (x,), (v,))[1])(x, x)
    follower = _Follower(x)
    try:
        (out,) = follower.run(closed.jaxpr, closed.consts, [x, follower.identity])
        work = follower.terms * choices().linear.entries_term_work
        if not isinstance(out, _Sums) or work > follower.work * directions:
            return None
    except _NotFollowed:
        return None
    return follower.entries(out)


class _NotFollowed(Exception):
    """A program does what is not followed here."""


class _Terms(NamedTuple):
    """Terms of a value: in row `rows[i]` stands `factors[i] * numbers[places[i]]` times the unknown `columns[i]`.

    Attributes:
        rows: The element of the value that each belongs to.
        columns: The unknowns.
        factors: The known factors.
        numbers: A vector of the program; None where all are one.
        places: The place in it.
    """

    rows: np.ndarray
    columns: np.ndarray
    factors: np.ndarray
    numbers: Array | None
    places: np.ndarray

    def at(self, chosen: np.ndarray, rows: np.ndarray, factors: np.ndarray | None = None) -> "_Terms":
        """Some of the terms, in other rows."""
        known = self.factors[chosen] if factors is None else self.factors[chosen] * factors
        return _Terms(rows, self.columns[chosen], known, self.numbers, self.places[chosen])


class _Sums(NamedTuple):
    """A value that is linear in the unknowns: its shape, and terms whose sum it is."""

    shape: tuple[int, ...]
    terms: tuple[_Terms, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class _Follower:
    """Follows a program that is linear in some of what it is given.

    Attributes:
        terms: How many terms there were.
        work: How many numbers the same operations compute along one direction.
    """

    def __init__(self, x: Float[Array, " n"]):
        self.x, self.terms, self.work = x, 0, 0
        self._joined: dict[tuple[int, ...], tuple[Array, list[Array]]] = {}
        every = np.arange(x.shape[0])
        self.identity = _Sums(x.shape, (_Terms(every, every, np.ones(every.size), None, np.zeros_like(every)),))

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Returns the results of a program: sums of terms, or arrays."""
        return evaluate(jaxpr, (*consts, *inputs), self._evaluated)

    def entries(self, value: _Sums) -> Entries:
        """Returns the entries that a value has."""
        groups = self._merged(value.terms)
        if not groups:
            return Entries(np.zeros(0, np.int64), jnp.zeros(0, self.x.dtype))
        places = np.concatenate([t.rows * self.x.shape[0] + t.columns for t in groups])
        found = []
        for t in groups:
            factors = jnp.asarray(t.factors, self.x.dtype)
            found.append(factors if t.numbers is None else _taken(t.numbers, t.places, t.factors))
        order = np.argsort(places, kind="stable")
        values = found[0] if len(found) == 1 else jnp.concatenate(found)
        return Entries(places[order], _taken(values, order))

    def _evaluated(self, eqn: Any, values: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        linear = [isinstance(v, _Sums) for v in values]
        if not any(linear):
            return self._independent(eqn, values)
        if (called := program_called(eqn)) is not None:
            return self.run(called[0], called[1], values)
        self.work += sum(math.prod(v.aval.shape) for v in eqn.outvars)
        if name in names.IDENTITIES or name in ("optimization_barrier", "convert_element_type"):
            moved = [v for v, of in zip((*eqn.invars, *eqn.outvars), linear * 2) if of]
            if not all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in moved):
                raise _NotFollowed
            return values
        rule = getattr(self, f"_{name.replace('-', '_')}", None)
        found = [rule(eqn, *values)] if rule is not None else self._moved(eqn, values)
        self.terms += sum(t.rows.size for value in found if isinstance(value, _Sums) for t in value.terms)
        if self.terms > choices().linear.entries_terms_at_most:
            raise _NotFollowed
        return found

    def _independent(self, eqn: Any, values: list[Any]) -> list[Any]:
        """Results that do not depend on the unknowns; whole numbers stay known, since they may be places."""
        whole = all(jnp.issubdtype(v.aval.dtype, jnp.integer) for v in eqn.outvars)
        on_mesh = eqn.primitive.name in names.PROMOTIONS or eqn.primitive.name == "axis_index"
        if whole and not eqn.effects and not on_mesh and all(map(concrete, values)):
            with on_no_mesh(), jax.ensure_compile_time_eval():
                return [np.asarray(x) for x in run_equation(eqn, [np.asarray(v) for v in values])]
        return run_equation(eqn, values)

    def _merged(self, terms: Sequence[_Terms]) -> list[_Terms]:
        """The same terms, with several vectors as one."""
        constant, moving = [t for t in terms if t.numbers is None], [t for t in terms if t.numbers is not None]
        if len(moving) > 1:
            vectors = {id(t.numbers): t.numbers for t in moving}
            key = tuple(vectors)
            if len(vectors) > 1 and key not in self._joined:  # the vectors are kept, so that their names stay theirs
                self._joined[key] = jnp.concatenate(list(vectors.values())), list(vectors.values())
            starts = dict(zip(key, np.cumsum([0, *(x.shape[0] for x in vectors.values())])))
            numbers = self._joined[key][0] if len(vectors) > 1 else moving[0].numbers
            places = np.concatenate([t.places + starts[id(t.numbers)] for t in moving])
            rows, columns, factors = (np.concatenate([t[i] for t in moving]) for i in range(3))
            moving = [_Terms(rows, columns, factors, numbers, places)]
        return constant + moving

    def _add(self, eqn: Any, left: Any, right: Any) -> _Sums:
        # what does not depend on the unknowns is zero here: the program is linear in them
        shape = eqn.outvars[0].aval.shape
        parts = [_spread(v, shape) for v in (left, right) if isinstance(v, _Sums)]
        return _Sums(shape, tuple(t for part in parts for t in part.terms))

    _add_any = _add

    def _sub(self, eqn: Any, left: Any, right: Any) -> _Sums:
        return self._add(eqn, left, self._neg(eqn, right) if isinstance(right, _Sums) else right)

    def _neg(self, eqn: Any, value: _Sums) -> _Sums:
        del eqn
        return _Sums(value.shape, tuple(t._replace(factors=-t.factors) for t in value.terms))

    def _mul(self, eqn: Any, left: Any, right: Any) -> _Sums:
        value, other = (left, right) if isinstance(left, _Sums) else (right, left)
        return self._times(_spread(value, eqn.outvars[0].aval.shape), other)

    def _div(self, eqn: Any, value: Any, by: Any) -> _Sums:
        if isinstance(by, _Sums):
            raise _NotFollowed
        return self._times(_spread(value, eqn.outvars[0].aval.shape), 1 / (np.asarray(by) if concrete(by) else by))

    def _select_n(self, eqn: Any, which: Any, *cases: Any) -> _Sums:
        shape, terms = eqn.outvars[0].aval.shape, ()
        for i, case in enumerate(cases):
            if isinstance(case, _Sums):
                chosen = jnp.asarray(which == (bool(i) if which.dtype == bool else i), self.x.dtype)
                terms += self._times(_spread(case, shape), chosen).terms
        return _Sums(shape, terms)

    def _times(self, value: _Sums, other: Any) -> _Sums:
        """A value times what does not depend on the unknowns."""
        if np.size(other) > 1 and np.shape(other) != value.shape:
            other = (np if concrete(other) else jnp).broadcast_to(other, value.shape)
        rows = (lambda t: t.rows) if np.size(other) > 1 else (lambda t: np.zeros_like(t.rows))
        if concrete(other):
            known = np.asarray(other, float).reshape(-1)
            scaled = (t._replace(factors=t.factors * known[rows(t)]) for t in value.terms)
            return _Sums(value.shape, tuple(scaled))
        by, terms = jnp.asarray(other, self.x.dtype).reshape(-1), []
        for t in self._merged(value.terms):
            if t.numbers is None:
                terms.append(t._replace(numbers=by, places=rows(t)))
            else:
                numbers = _taken(t.numbers, t.places) * _taken(by, rows(t))
                terms.append(t._replace(numbers=numbers, places=np.arange(t.rows.size)))
        return _Sums(value.shape, tuple(terms))

    def _reduce_sum(self, eqn: Any, value: _Sums) -> _Sums:
        axes, shape = set(eqn.params["axes"]), eqn.outvars[0].aval.shape
        kept = [1 if i in axes else n for i, n in enumerate(value.shape)]
        numbers = np.broadcast_to(np.arange(math.prod(shape)).reshape(kept), value.shape).reshape(-1)
        return _Sums(shape, tuple(t._replace(rows=numbers[t.rows]) for t in value.terms))

    def _gather(self, eqn: Any, value: Any, indices: Any) -> _Sums:
        if not isinstance(value, _Sums) or not concrete(indices):
            raise _NotFollowed
        numbers = np.arange(value.size, dtype=np.int32).reshape(value.shape)
        with on_no_mesh(), jax.ensure_compile_time_eval():
            operands = jnp.asarray(numbers), jnp.asarray(np.asarray(indices))
            source = np.asarray(eqn.primitive.bind(*operands, **eqn.params | {"fill_value": -1}))
        return _mapped(value, source)

    def _scatter(self, eqn: Any, operand: Any, indices: Any, updates: Any) -> _Sums:
        if not concrete(indices):
            raise _NotFollowed
        sizes = [v.size if isinstance(v, _Sums) else np.size(v) for v in (operand, updates)]
        numbers = np.split(np.arange(sum(sizes), dtype=np.int32), sizes[:1])
        with on_no_mesh(), jax.ensure_compile_time_eval():
            old, new = (jnp.asarray(x.reshape(v.aval.shape)) for x, v in zip(numbers, (eqn.invars[0], eqn.invars[2])))
            source = np.asarray(eqn.primitive.bind(old, jnp.asarray(np.asarray(indices)), new, **eqn.params))
        return _mapped(self._side_by_side([(operand, sizes[0]), (updates, sizes[1])]), source)

    @staticmethod
    def _side_by_side(values: Sequence[tuple[Any, int]]) -> _Sums:
        """Values one after another, each with its number of elements."""
        terms, start = [], 0
        for value, size in values:
            if isinstance(value, _Sums):
                terms += [t._replace(rows=t.rows + start) for t in value.terms]
            start += size
        return _Sums((start,), tuple(terms))

    def _scatter_add(self, eqn: Any, operand: Any, indices: Any, updates: Any) -> _Sums:
        if not concrete(indices):
            raise _NotFollowed
        shape, terms = eqn.outvars[0].aval.shape, operand.terms if isinstance(operand, _Sums) else ()
        if isinstance(updates, _Sums):
            targets = places_of_updates(eqn, shape, np.asarray(indices), updates.shape)
            inside = np.flatnonzero(targets >= 0)
            terms += _combined(updates, shape, targets[inside], inside).terms
        return _Sums(shape, terms)

    def _dot_general(self, eqn: Any, left: Any, right: Any) -> _Sums:
        contracted, batch = eqn.params["dimension_numbers"]
        side = 0 if isinstance(left, _Sums) else 1
        value, other = (left, right) if side == 0 else (right, left)
        if batch[0] or not concrete(other):
            raise _NotFollowed
        axes, by = tuple(contracted[side]), tuple(contracted[1 - side])
        own, free = _others(value.shape, axes), _others(np.shape(other), by)
        count = math.prod(value.shape[i] for i in own)
        inputs = np.transpose(np.arange(value.size).reshape(value.shape), (*own, *axes)).reshape(count, -1)
        matrix = np.transpose(np.asarray(other), (*free, *by)).reshape(-1, inputs.shape[1])
        row, column = np.nonzero(matrix)
        shape = eqn.outvars[0].aval.shape
        outputs = np.arange(math.prod(shape)).reshape((count, -1) if side == 0 else (-1, count))
        outputs = outputs if side == 0 else outputs.T
        weights = np.tile(matrix[row, column].astype(float), count)
        return _combined(value, shape, outputs[:, row].reshape(-1), inputs[:, column].reshape(-1), weights)

    def _moved(self, eqn: Any, values: list[Any]) -> list[_Sums]:
        """Movements of elements, by the rules of lanes: numbers of elements move, and terms follow."""
        rule = MOVEMENTS.get(eqn.primitive.name)
        if rule is None:
            raise _NotFollowed
        elements, moving, start = [], [], 0
        for value, atom in zip(values, eqn.invars):
            if not isinstance(value, _Sums) and jnp.issubdtype(atom.aval.dtype, jnp.integer):
                if not concrete(value):
                    raise _NotFollowed
                elements.append(np.asarray(value))
                continue
            moving.append((value, math.prod(atom.aval.shape)))
            elements.append(np.arange(start, start + moving[-1][1]).reshape(atom.aval.shape))
            start += moving[-1][1]
        results = rule(*elements, **eqn.params)
        if results is None:
            raise _NotFollowed
        pool = self._side_by_side(moving)
        return [_mapped(pool, np.asarray(x, np.int64)) for x in results]


def _others(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [i for i in range(len(shape)) if i not in axes]


def _spread(value: _Sums, shape: Sequence[int]) -> _Sums:
    """A value with its axes of length one, or none, broadcast to a shape."""
    if value.shape == tuple(shape):
        return value
    return _mapped(value, np.broadcast_to(np.arange(value.size).reshape(value.shape), shape))


def _mapped(value: _Sums, source: np.ndarray) -> _Sums:
    """The value whose elements are selected from another by number; zero for a negative number."""
    inside = np.flatnonzero(source.reshape(-1) >= 0)
    return _combined(value, source.shape, inside, source.reshape(-1)[inside])


def _combined(
    value: _Sums, shape: Sequence[int], outputs: np.ndarray, inputs: np.ndarray, weights: np.ndarray | None = None
) -> _Sums:
    """The value whose element `outputs[i]` has `weights[i]` times the element `inputs[i]` of another."""
    terms = []
    for t in value.terms:
        order = np.argsort(t.rows, kind="stable")
        ordered = t.rows[order]
        first, last = np.searchsorted(ordered, inputs, "left"), np.searchsorted(ordered, inputs, "right")
        counts = last - first
        if total := int(counts.sum()):
            before = np.cumsum(counts) - counts
            chosen = order[np.repeat(first - before, counts) + np.arange(total)]
            factors = None if weights is None else np.repeat(weights, counts)
            terms.append(t.at(chosen, np.repeat(outputs, counts), factors))
    return _Sums(tuple(shape), tuple(terms))


def _taken(numbers: Array, places: np.ndarray, factors: np.ndarray | None = None) -> Array:
    """Numbers at known places, times known factors."""
    if places.size != numbers.shape[0] or not np.array_equal(places, np.arange(places.size)):
        numbers = numbers.at[places].get(mode="promise_in_bounds")
    if factors is None or np.all(factors == 1):
        return numbers
    return numbers * jnp.asarray(factors, numbers.dtype)


# Matrices without structure, by LAPACK; of many members side by side by loops over them all.


class LapackFactors(NamedTuple):
    """Both triangles in one array, and which row came to each place."""

    lu: Array
    order: Array


class DenseMatrix(AbstractStructure):
    """A matrix stored whole.

    Attributes:
        mass: The constant part of the matrix.
        colouring: The columns that are computed at once, or None for one at a time.
    """

    def __init__(self, mass: np.ndarray, colouring: Colouring | None = None):
        self.size, self.mass, self.colouring = mass.shape[0], mass, colouring

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the matrix."""
        found = self.entries(along.function, x) if isinstance(along, DerivativeAlong) else None
        if found is not None:
            mass = match(jnp.asarray(self.mass.reshape(-1), x.dtype), (found.values, scale))
            summed = mass.at[found.places].add(-scale * found.values, indices_are_sorted=True, mode="promise_in_bounds")
            return summed.reshape(self.size, self.size)
        if self.colouring is None:
            jacobian = products(along, x, np.eye(self.size))
        else:
            columns = products(along, x, self.colouring.directions)
            where = np.broadcast_to(self.colouring.colours, (self.size, self.size))
            jacobian = jnp.where(self.colouring.pattern.toarray(), jnp.take_along_axis(columns, where, axis=1), 0)
        return jnp.asarray(self.mass, x.dtype) - scale * jacobian

    def entries(self, function: Callable[[Array], Array], x: Float[Array, " n"]) -> Entries | None:
        """Returns the entries of the Jacobian of a function one by one, where that is cheaper than along directions."""
        directions = self.size if self.colouring is None else len(self.colouring.directions)
        return None if directions < choices().linear.entries_from else entries_of(function, x, directions)

    def factorise(self, matrix: Array) -> LapackFactors:
        """Returns the factors of a matrix."""
        # lineax would do as well, but its solves fail under `jax.shard_map(check_vma=True)`
        lu, _, order = jax.lax.linalg.lu(matrix)
        return LapackFactors(lu, order)

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        return jnp.matmul(matrix, x, precision="highest")

    def substitute(self, factors: LapackFactors, b: Inexact[Array, " n"]) -> Inexact[Array, " n"]:
        """Solves a system by its factors."""
        x = b.at[factors.order].get(mode="promise_in_bounds", unique_indices=True)
        return self._divided(factors, self._divided(factors, x, lower=True), lower=False)

    def substitute_transposed(self, factors: LapackFactors, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system by the same factors."""
        x = self._divided(factors, self._divided(factors, b, False, transpose_a=True), True, transpose_a=True)
        return jnp.zeros_like(x).at[factors.order].set(x, mode="promise_in_bounds", unique_indices=True)

    @staticmethod
    def _divided(factors: LapackFactors, b: Array, lower: bool, **options: bool) -> Array:
        x = jax.lax.linalg.triangular_solve(
            factors.lu, b[:, None], left_side=True, lower=lower, unit_diagonal=lower, **options
        )
        return x[:, 0]

    def is_singular(self, matrix: Array, factors: Any) -> Bool[Array, ""]:
        """Whether a matrix of finite entries turned out to be singular."""
        return jnp.all(jnp.isfinite(matrix)) & ~jnp.all(jnp.isfinite(1 / jnp.diagonal(factors.lu)))

    @property
    def words(self) -> str:
        """A description for people."""
        return "dense, factorised by LAPACK, or for many members at once"
