"""Products of matrices over a few lanes, within a loop over steps, in the form that XLA computes fast on CPUs.

A product that reads a matrix by columns, as Flax's layers do and the way back through Equinox's, has XLA transpose that
matrix anew each time, which takes longer than the product. Behind a barrier it is transposed once, before the loop. And
a step that evaluates a network several times has as many cotangents of its weights, each the product of a few lanes of
two arrays, and adds them. One product of all these lanes side by side writes the large result once.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, PyTree

from ._interpreters import ClosedJaxpr, Jaxpr
from ._vma import typed_sharding
from .programs import _names as names, from_outside, is_literal, makers, run_equation


def with_fast_products(fn: Callable[..., PyTree[Array]]) -> Callable[..., PyTree[Array]]:
    """Returns a function whose products of matrices are computed fast within a loop.

    Args:
        fn: The function, which may close over traced arrays.
    """

    def run(*args: Any) -> PyTree[Array]:
        closed, out = jax.make_jaxpr(fn, return_shape=True)(*args)
        found = _run(closed, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(out), found)

    return run


class _Product(NamedTuple):
    """A product of matrices that is a term of a sum.

    Attributes:
        dot: Its equation.
        transposes: The equations that transpose it, one after another.
    """

    dot: Any
    transposes: tuple[Any, ...]

    @property
    def made(self) -> list[Any]:
        """The values that are then not computed separately, the term last."""
        return [eqn.outvars[0] for eqn in (self.dot, *self.transposes)]


class _Sum(NamedTuple):
    """A sum of which some terms are products of matrices of the same shapes.

    Attributes:
        products: Groups of several products.
        rest: The other terms.
    """

    products: list[list[_Product]]
    rest: list[Any]


def _run(closed: ClosedJaxpr, args: Iterable[Any]) -> list:
    jaxpr = closed.jaxpr
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True))
    sums, within = _sums(jaxpr)
    fixed = {v for v, is_fixed in zip(jaxpr.constvars, from_outside(closed.consts)) if is_fixed}
    transposed = Transposed({})

    def read(v: Any) -> Any:
        return v.val if is_literal(v) else known[v]

    for eqn in jaxpr.eqns:
        result = eqn.outvars[0] if eqn.outvars else None
        if result in sums:
            terms = [*map(read, sums[result].rest), *(_product(group, read) for group in sums[result].products)]
            known[result] = sum(terms[1:], start=terms[0])
        elif result not in within:
            inputs, are_fixed = list(map(read, eqn.invars)), [not is_literal(v) and v in fixed for v in eqn.invars]
            out = transposed.run(eqn, inputs, eqn.invars, are_fixed)
            if out is not None and eqn.primitive.name == "transpose":
                fixed.add(result)
            known.update(zip(eqn.outvars, run_equation(eqn, inputs) if out is None else out))
    return list(map(read, jaxpr.outvars))


class Transposed(NamedTuple):
    """Matrices transposed by XLA before the loop that they come from outside of.

    Attributes:
        found: Each by what stands for it in its program.
    """

    found: dict[Any, Array]

    def run(self, eqn: Any, inputs: Sequence[Any], names: Sequence[Any], fixed: Sequence[bool]) -> list[Array] | None:
        """Returns the results of an equation that transposes such a matrix or reads it by columns; None of others.

        Args:
            eqn: The equation.
            inputs: Its operands.
            names: The name of each of them in its program.
            fixed: The ones that are the same in every iteration.
        """
        place = _read_by_columns(eqn, fixed)
        if place is None:
            return None
        matrix = self._transposed(names[place], inputs[place])
        if eqn.primitive.name == "transpose":
            return [matrix]
        contracted, batch = eqn.params["dimension_numbers"]
        contracted = tuple((1,) if i == place else axes for i, axes in enumerate(contracted))
        factors = [matrix if i == place else x for i, x in enumerate(inputs)]
        return [eqn.primitive.bind(*factors, **eqn.params | {"dimension_numbers": (contracted, batch)})]

    def _transposed(self, name: Any, matrix: Array) -> Array:
        if name not in self.found:  # behind a barrier, else XLA takes the two operations for one product
            self.found[name] = jax.lax.optimization_barrier(matrix.T)
        return self.found[name]


def reads_columns(eqn: Any, fixed: Sequence[bool]) -> bool:
    """Returns whether an equation transposes a matrix that is the same in every iteration, or reads it by columns.

    Args:
        eqn: The equation.
        fixed: The operands that are the same in every iteration.
    """
    return _read_by_columns(eqn, fixed) is not None


def _read_by_columns(eqn: Any, fixed: Sequence[bool]) -> int | None:
    """The index of that operand."""
    name, kinds = eqn.primitive.name, [v.aval for v in eqn.invars]
    if name not in ("transpose", "dot_general") or any(x.ndim != 2 or typed_sharding(x) is not None for x in kinds):
        return None
    if name == "transpose":
        return 0 if fixed[0] and tuple(eqn.params["permutation"]) == (1, 0) else None
    contracted, batch = eqn.params["dimension_numbers"]
    if batch[0] or any(fixed) == all(fixed):  # of two such matrices XLA computes the product before the loop
        return None
    place = list(fixed).index(True)
    return place if tuple(contracted[place]) == (0,) else None


def _sums(jaxpr: Jaxpr) -> tuple[dict[Any, _Sum], set[Any]]:
    """Returns the sums with products, each by its result, and the values computed only within them."""
    made = makers(jaxpr)
    uses: dict[Any, int] = {}
    for v in (*jaxpr.outvars, *(v for eqn in jaxpr.eqns for v in eqn.invars)):
        if not is_literal(v):
            uses[v] = uses.get(v, 0) + 1

    def made_for_one(v: Any) -> Any:
        """The equation of a value with only one use."""
        return None if is_literal(v) or uses.get(v) != 1 else made.get(v)

    sums: dict[Any, _Sum] = {}
    within: set[Any] = set()
    for root in reversed(jaxpr.eqns):
        if not _is_sum(root) or root.outvars[0] in within:
            continue
        left, parts, rest = list(root.invars), set(), []
        groups: dict[Any, list[_Product]] = {}
        while left:
            v = left.pop()
            eqn = made_for_one(v)
            if eqn is not None and _is_sum(eqn):
                parts.add(v)
                left += eqn.invars
                continue
            transposes = ()
            while eqn is not None and eqn.primitive.name == "transpose":
                eqn, transposes = made_for_one(eqn.invars[0]), (eqn, *transposes)
            kind = None if eqn is None else _kind(eqn)
            if kind is None:
                rest.append(v)
            else:
                order = tuple(tuple(eqn.params["permutation"]) for eqn in transposes)
                groups.setdefault((kind, order), []).append(_Product(eqn, transposes))
        several = [group for group in groups.values() if len(group) > 1]
        if several:
            rest += [group[0].made[-1] for group in groups.values() if len(group) == 1]
            sums[root.outvars[0]] = _Sum(several, rest)
            within |= parts.union(*(product.made for group in several for product in group))
    return sums, within


def _is_sum(eqn: Any) -> bool:
    return eqn.primitive.name in names.SUMS and not any(map(is_literal, eqn.invars))


def _kind(eqn: Any) -> Any:
    """Returns the common parts of products that are added by one; None if there are none, or they do not pay off."""
    if eqn.primitive.name != "dot_general" or any(map(is_literal, eqn.invars)):
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    left, right = (v.aval for v in eqn.invars)
    if not contracted[0] or batch[0] or typed_sharding(left) is not None or typed_sharding(right) is not None:
        return None
    length = math.prod(left.shape[i] for i in contracted[0])
    rows, columns = (x.size // max(1, length) for x in (left, right))
    if length * (rows + columns) > rows * columns:  # to copy the factors takes longer than to add the products
        return None
    return left, right, tuple(sorted(eqn.params.items()))


def _product(group: list[_Product], read: Callable[[Any], Any]) -> Array:
    """The sum of products, as the product of their factors side by side."""
    dot, transposes = group[0]
    contracted, _ = dot.params["dimension_numbers"]
    factors = [
        jax.lax.concatenate([read(product.dot.invars[i]) for product in group], axes[0])
        for i, axes in enumerate(contracted)
    ]
    found = dot.primitive.bind(*factors, **dot.params)
    for eqn in transposes:
        found = eqn.primitive.bind(found, **eqn.params)
    return found
