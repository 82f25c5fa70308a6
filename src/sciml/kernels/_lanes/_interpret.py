"""Evaluates a function of one member over many members at once.

The function is traced once, for one member. Its program is then evaluated over `Unstacked` and
`Stacked` values: movements of elements vanish, elementwise work becomes one operation per element over
all lanes, and what neither covers runs as `jax.vmap` over the last axis. So every function works, and
small ones are fast.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._checks import concrete
from ..._choices import choices
from ..._jax._barrier import held_back
from ..._jax._interpreters import ClosedJaxpr, Jaxpr
from ..._jax._loops import scan
from ..._jax._marks import fallback
from ..._jax._shards import off_explicit_axes
from ..._jax._sources import at_own_source, at_source_of
from ..._jax._vma import as_traced, match, promote, struct, vma_of
from ..._jax.programs import (
    _names as names,
    depend_on,
    evaluate as evaluate_program,
    parts_of_scan,
    program_called,
    programs_within,
    run_equation,
)
from . import _batched_primitives as batched_primitives, _elementwise as elementwise
from ._data_movement import MOVEMENTS, OUTSIDE, added_at, moved_by_index
from ._definitions import program_of_definition
from ._elementwise import EXTREMA, compared_with_extrema, extremum
from ._fusion import fused_over_lanes
from ._values import (
    Constant,
    Stacked,
    Unstacked,
    Value,
    is_small,
    object_array,
    over_all_lanes,
    shared,
    stack,
    unstack,
    unstacked_constant,
)

_REDUCTIONS = {
    "reduce_sum": jax.lax.add,
    "reduce_prod": jax.lax.mul,
    "reduce_max": jax.lax.max,
    "reduce_min": jax.lax.min,
    "reduce_and": jax.lax.bitwise_and,
    "reduce_or": jax.lax.bitwise_or,
}


def trace(fn: Callable, *trees: PyTree) -> tuple[ClosedJaxpr, Any]:
    """Traces `fn` for one member, whose arguments have the shapes and dtypes of the values in `trees`."""
    axes = vma_of(trees)
    avals = jax.tree.map(lambda v: struct(v.shape, v.dtype, axes), trees, is_leaf=is_value)
    with off_explicit_axes(), at_own_source():  # that of the model, whatever of sciml is being traced around it
        closed, out = jax.make_jaxpr(fn, return_shape=True)(*avals)
    return closed, jax.tree.structure(out)


def is_value(x: Any) -> bool:
    """Whether `x` is a value over lanes, a leaf as far as the member's PyTrees are concerned.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels._lanes import Lanes, is_value

        value = Lanes(4).enter(jnp.ones((3, 4)), True)
        assert is_value(value) and not is_value(jnp.ones(3))
        ```
    """
    return isinstance(x, (Unstacked, Stacked))


def constant(x: Any) -> Value:
    """Returns an array that all members share as a value over lanes."""
    # entries that are numbers when the model is traced are folded: a zero of a tableau then costs nothing
    if concrete(x) and not jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        if np.size(x) <= choices().lanes.stay_unstacked_at_most:
            return unstacked_constant(x)
    return unstack_small(Stacked(jnp.asarray(x), np.ndim(x)))


def unstack_small(value: Value) -> Value:
    """Scatters what is small."""
    return unstack(value) if is_small(value) else value


def _unstack_few(value: Stacked) -> Value:
    few = math.prod(value.shape) <= choices().lanes.unstacked_again_at_most
    return unstack(value) if few and is_small(value) else value


def _say_nothing(_primitive: str, _reason: str) -> None:
    pass


@dataclass(frozen=True)
class _Evaluation:
    """The constants of an evaluation."""

    count: int | None
    report: Callable[[str, str], None]


def evaluate(
    closed: ClosedJaxpr,
    args: Sequence[Value],
    count: int | None,
    report: Callable[[str, str], None] = _say_nothing,
) -> list[Value]:
    """Evaluates a member's program over lanes.

    Args:
        closed: The program of one member.
        args: Its arguments over lanes.
        count: The number of lanes; None for one member without a lane axis.
        report: Called with a primitive's name and a reason for each that runs as a plain `vmap`.
    """
    return _evaluate(closed.jaxpr, closed.consts, promote(list(args)), _Evaluation(count, report))


def _evaluate(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Value], ev: _Evaluation, called: bool = False
) -> list[Value]:
    # XLA would compute a value twice that is reduced and then compared with its extremum, and rounding may differ
    once = compared_with_extrema(jaxpr)

    def kept(atoms: Sequence[Any], values: Sequence[Value]) -> list[Value]:
        return [_computed_once(x) if v in once else x for v, x in zip(atoms, values, strict=True)]

    def over_lanes(eqn: Any, inputs: list[Value]) -> list[Value]:
        with at_source_of(eqn, called):
            return kept(eqn.outvars, _evaluate_equation(eqn, inputs, ev))

    values = kept((*jaxpr.constvars, *jaxpr.invars), [*map(constant, consts), *args])
    return evaluate_program(jaxpr, values, over_lanes, lambda v: unstacked_constant(np.asarray(v.val, v.aval.dtype)))


def _evaluate_equation(eqn, inputs: list[Value], ev: _Evaluation) -> list[Value]:
    name = eqn.primitive.name
    # first the equations that hold programs of their own: each is evaluated over lanes, so that its inner equations are
    # taken apart as well, and the rules of the user's own derivatives stay around it
    if name in ("custom_jvp_call", "custom_linear_solve"):

        def within(jaxpr: Jaxpr, consts: Sequence[Any], values: list[Value]) -> list[Value]:
            return _evaluate(jaxpr, consts, values, ev, True)

        if name == "custom_jvp_call":
            return custom_jvp_call(eqn, inputs, within)
        return linear_solve(eqn, inputs, within, ev.count)
    called = program_called(eqn) or program_of_definition(eqn)
    if called is not None:
        return _evaluate(*called, inputs, ev, True)
    if name == "optimization_barrier":
        return _evaluate_barrier(inputs, ev.count)
    if name == "cond":
        chosen = _evaluate_cond(eqn, inputs, ev)
        if chosen is not None:
            return chosen
    # a short loop is written out, since a loop of XLA would need its carry as arrays, in which lanes are an axis again
    if name == "scan" and _is_short(eqn) and _all_unstacked(inputs):
        return _evaluate_scan(eqn, inputs, ev)
    if name == "scan" and ev.count is not None and not all(map(shared, inputs)):
        ev.report(name, "too large to take apart element by element")
        return _evaluate_scan_as_loop(eqn, inputs, ev)
    # then element by element where that is small, and else the whole array with the lanes in its last axis
    if _may_unstack(eqn, inputs):
        outputs = _evaluate_unstacked(eqn, cast(list[Unstacked], inputs), ev)
        if outputs is not None:
            return [Unstacked(o, v.aval.dtype) for o, v in zip(outputs, eqn.outvars)]
        # a primitive that JAX has renamed ends here: it is right and slow, and a test reads the mark
        ev.report(name, "no rule for it element by element")
        with fallback(name, ev.count):
            return _evaluate_stacked(eqn, inputs, ev)
    ev.report(name, "too large to take apart element by element")
    if name in EXTREMA and jnp.issubdtype(inputs[0].dtype, jnp.floating):
        value = stack(inputs[0], ev.count)
        found = extremum(name, tuple(map(int, eqn.params["axes"])), value.array)
        return [_unstack_few(Stacked(found, found.ndim - value.batched))]
    return _evaluate_stacked(eqn, inputs, ev)


def _may_unstack(eqn, inputs: list[Value]) -> bool:
    for v in (*eqn.invars, *eqn.outvars):
        if not hasattr(v.aval, "shape") or jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.extended):
            return False
        if math.prod(v.aval.shape) > choices().lanes.stay_unstacked_at_most:
            return False
    return _all_unstacked(inputs) and not (eqn.primitive.name in names.ELEMENTWISE and _spreads_one_number(inputs))


def _spreads_one_number(inputs: Sequence[Unstacked]) -> bool:
    """Whether many known numbers meet one that is not known: a step's size and the eigenvalues of many modes.

    Its results are as large as many members' states, and functions such as exponential integrators' would be
    written out for each entry.
    """
    entries = [x for v in inputs for x in v.elements.reshape(-1)]
    unknown = {id(x) for x in entries if not isinstance(x, Constant)}
    known = sum(isinstance(x, Constant) and bool(x != 0) for x in entries)
    return len(unknown) == 1 and known > choices().lanes.unstacked_at_most


def _all_unstacked(values: Sequence[Value]) -> TypeGuard[Sequence[Unstacked]]:
    return all(isinstance(v, Unstacked) for v in values)


def _evaluate_stacked(eqn, inputs: list[Value], ev: _Evaluation) -> list[Value]:
    if eqn.primitive.name in names.PROMOTIONS:
        return inputs  # lanes vary over all axes from the start
    stacked = promote([stack(v, ev.count) for v in inputs])
    arrays = as_traced((v.array for v in stacked), eqn.invars)  # a promotion before may have been left out
    # what all members share is computed once for all of them
    if not any(v.batched for v in stacked):
        out = run_equation(eqn, arrays)
        return [_unstack_few(Stacked(o, o.ndim)) for o in out]
    assert ev.count is not None  # else nothing is batched
    out = batched_primitives.run(eqn, stacked, arrays, ev.count)
    if out is not None:
        return [_unstack_few(Stacked(o, o.ndim - 1)) for o in out]
    # JAX's own rule moves lanes to the front where it likes; `out_axes` asks for them at the end, where the others are
    axes = tuple(-1 if v.batched else None for v in stacked)
    out = jax.vmap(lambda *a: run_equation(eqn, a), in_axes=axes, out_axes=-1, axis_size=ev.count)(*arrays)
    return [_unstack_few(Stacked(o, o.ndim - 1)) for o in out]


def _evaluate_barrier(inputs: list[Value], count: int | None) -> list[Value]:
    few = count is None and all(math.prod(v.shape) <= choices().lanes.computed_twice_at_most for v in inputs)
    return inputs if few else _computed_once(inputs)


def _computed_once(values: Any) -> Any:
    """Returns a value, or a list of them, such that XLA fuses nothing across it."""
    entries, treedef = jax.tree.flatten(values)
    traced = promote([x for x in entries if not isinstance(x, Constant)])
    results = iter(held_back(*traced) if traced else ())
    return jax.tree.unflatten(treedef, [x if isinstance(x, Constant) else next(results) for x in entries])


def _evaluate_cond(eqn, inputs: list[Value], ev: _Evaluation) -> list[Value] | None:
    index, *operands = inputs
    branches = eqn.params["branches"]
    if not isinstance(index, Unstacked) or any(b.effects for b in branches):
        return None
    entry = index.elements[()]
    if isinstance(entry, Constant):
        chosen = branches[int(np.clip(entry, 0, len(branches) - 1))]
        return _evaluate(chosen.jaxpr, chosen.consts, operands, ev)
    if np.ndim(entry) == 0:
        return None  # all members take the same branch: keep the branch
    # members take different branches: all are computed, as under `jax.vmap`
    results = [_evaluate(b.jaxpr, b.consts, operands, ev) for b in branches]
    which = jnp.clip(entry, 0, len(branches) - 1)
    if len(branches) == 2:
        which = which.astype(bool)
    return [_select(which, values, ev.count) for values in zip(*results)]


def _is_short(scan) -> bool:
    table = choices().lanes
    few = 0 < scan.params["length"] <= table.unrolled_iterations_at_most
    return few and _operations(scan) <= table.unrolled_operations_at_most


def _operations(eqn) -> int:
    """Returns about how many operations on numbers an equation is, and the programs within it."""
    inner = list(programs_within(eqn))
    if not inner:
        return sum(math.prod(v.aval.shape) for v in eqn.outvars if hasattr(v.aval, "shape"))
    iterations = eqn.params["length"] if eqn.primitive.name == "scan" else 1
    return iterations * sum(_operations(e) for jaxpr in inner for e in jaxpr.eqns)


def _evaluate_scan(eqn, inputs: Sequence[Unstacked], ev: _Evaluation) -> list[Value]:
    """Unrolls a short scan."""
    closed, length, reverse = eqn.params["jaxpr"], eqn.params["length"], eqn.params["reverse"]
    consts, first, xs = parts_of_scan(eqn, inputs)
    carry: list[Value] = list(first)
    ys = []
    for iteration in reversed(range(length)) if reverse else range(length):
        x = [Unstacked(v.elements[iteration : iteration + 1].reshape(v.shape[1:]), v.dtype) for v in xs]
        out = _evaluate(closed.jaxpr, closed.consts, [*consts, *carry, *x], ev)
        carry, row = out[: len(carry)], out[len(carry) :]
        ys.append(row)
    ordered = ys[::-1] if reverse else ys
    return carry + [_stack_iterations(column, ev.count) for column in zip(*ordered)]


def _evaluate_scan_as_loop(eqn, inputs: list[Value], ev: _Evaluation) -> list[Value]:
    """Evaluates a scan as one over lanes. JAX would move members to the front of what it carries.

    Values that do not depend on a member, such as a counter, stay shared.
    """
    closed, params, count = eqn.params["jaxpr"], eqn.params, ev.count
    consts, first, rows = parts_of_scan(eqn, inputs)
    carry_count = len(first)
    consts_of_members, carry_of_members, rows_of_members = parts_of_scan(eqn, [not shared(v) for v in inputs])
    while True:  # what the carry depends on after one iteration more, until that is the same
        outputs = depend_on(closed.jaxpr, [*consts_of_members, *carry_of_members, *rows_of_members])
        known = [a or b for a, b in zip(carry_of_members, outputs)]
        if known == carry_of_members:
            break
        carry_of_members = known

    def fixed(value: Value, of_member: bool) -> Value:
        """A value in the form that a carry keeps."""
        return over_all_lanes(value, count) if of_member else stack(value, count)

    carry = [fixed(v, b) for v, b in zip(first, carry_of_members)]
    xs = [stack(v, count) for v in rows]

    def body(carry: list[Value], slices: list[Any]) -> tuple[list[Value], list[Any]]:
        entering = [unstack_small(Stacked(a, x.ndim - 1)) for a, x in zip(slices, xs)]
        entered = [v if b else unstack_small(v) for v, b in zip(carry, carry_of_members)]
        values = promote([*consts, *entered, *entering])

        def iteration(values: list[Value]) -> list[Value]:
            return _evaluate(closed.jaxpr, closed.consts, values, ev)

        # the fusions around a loop end there, and its body would be computed once for each of its results
        out = fused_over_lanes(iteration, values, (count,), reverse=True)
        carried = [fixed(v, b) for v, b in zip(out[:carry_count], carry_of_members)]
        stacked = [stack(v, count) for v in out[carry_count:]]
        ys = [_over_lanes(v, count) if b else v.array for v, b in zip(stacked, outputs[carry_count:])]
        return match(carried, carry), ys

    carry, ys = scan(
        body, carry, [x.array for x in xs], length=params["length"], reverse=params["reverse"], like=consts
    )
    lanes = [int(b) for b in outputs[carry_count:]]
    return [unstack_small(v) if isinstance(v, Stacked) else v for v in carry] + [
        _unstack_few(Stacked(y, y.ndim - b)) for y, b in zip(ys, lanes)
    ]


def _stack_iterations(values: tuple[Value, ...], count: int | None) -> Value:
    shape = (len(values),) + values[0].shape
    if _all_unstacked(values):
        entries = [x for v in values for x in v.elements.reshape(-1)]
        return Unstacked(object_array(entries, shape), values[0].dtype)
    stacked = [stack(v, count) for v in values]
    if not any(v.batched for v in stacked):
        return Stacked(jnp.stack([v.array for v in stacked]), len(shape))
    return Stacked(jnp.stack([_over_lanes(v, count) for v in stacked]), len(shape))


def _over_lanes(value: Stacked, count: int | None) -> Any:
    """The array of a value with the axis of lanes, also where all members share it."""
    return value.array if value.batched else jnp.broadcast_to(value.array[..., None], (*value.shape, count))


def _select(which, values: tuple[Value, ...], count) -> Value:
    shape, dtype = values[0].shape, values[0].dtype

    def choose(*entries):
        cases = [jnp.broadcast_to(jnp.asarray(x, dtype), (count,)) for x in entries]
        return jax.lax.select_n(which, *cases)

    if _all_unstacked(values):
        columns = zip(*(v.elements.reshape(-1) for v in values))
        return Unstacked(object_array([choose(*column) for column in columns], shape), dtype)
    stacked = [stack(v, count) for v in values]
    cases = [v.array if v.batched else jnp.broadcast_to(v.array[..., None], shape + (count,)) for v in stacked]
    return Stacked(jax.lax.select_n(jnp.broadcast_to(which, shape + (count,)), *cases), len(shape))


def _evaluate_unstacked(eqn, inputs: list[Unstacked], ev: _Evaluation) -> Sequence[np.ndarray] | None:
    name = eqn.primitive.name
    elements = [v.elements for v in inputs]
    if name in names.ELEMENTWISE or name in names.PROMOTIONS:
        return _elementwise(eqn, inputs)
    if name in MOVEMENTS:
        return MOVEMENTS[name](*elements, **eqn.params)
    if name == "gather":
        params = eqn.params | {"fill_value": OUTSIDE}
        fill = _fill(eqn)
        moved = moved_by_index(lambda x, i: eqn.primitive.bind(x, i, **params), elements[:1], elements[1], fill)
        return None if moved is None else [moved]
    if name == "scatter":
        moved = moved_by_index(
            lambda x, u, i: eqn.primitive.bind(x, i, u, **eqn.params), [elements[0], elements[2]], elements[1]
        )
        return None if moved is None else [moved]
    if name == "scatter-add":
        if inputs[0].dtype != inputs[2].dtype:
            return None
        return added_at(eqn, *elements, lambda a, b: _combine(jax.lax.add, a, b, inputs[0].dtype))
    if name in _REDUCTIONS and elements[0].size:
        return [_reduce(_REDUCTIONS[name], inputs[0], tuple(map(int, eqn.params["axes"])))]  # JAX makes some of NumPy's
    if name == "dot_general":
        return _dot_general(eqn, *inputs)
    if name == "iota" and not inputs:
        shape, dimension = eqn.params["shape"], eqn.params["dimension"]
        kept = [-1 if i == dimension else 1 for i in range(len(shape))]
        numbers = np.broadcast_to(np.arange(shape[dimension]).reshape(kept), shape)
        return [unstacked_constant(numbers.astype(eqn.params["dtype"])).elements]
    return None


def _fill(eqn) -> Constant | None:
    """The value that a gather returns for indices outside; None if JAX determines it from the dtype."""
    value, dtype = eqn.params["fill_value"], eqn.outvars[0].aval.dtype
    if value is None and jnp.issubdtype(dtype, jnp.inexact):
        value = np.nan
    return None if value is None else cast(Constant, np.asarray(value, dtype)[()])


def _elementwise(eqn, inputs: list[Unstacked]) -> Sequence[np.ndarray] | None:
    shape = eqn.outvars[0].aval.shape
    if not all(len(v.shape) in (len(shape), 0) for v in inputs):  # axes of length one are broadcast
        return None
    params = dict(eqn.params)
    if "sharding" in params:
        params["sharding"] = None

    bind = functools.partial(eqn.primitive.bind, **params)
    name, out_dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    dtypes = [v.dtype for v in inputs]
    columns = zip(*(np.broadcast_to(v.elements, shape).reshape(-1) for v in inputs))
    out = [elementwise.apply(name, bind, list(column), dtypes, out_dtype) for column in columns]
    return [object_array(out, shape)]


def _combine(op: Callable, a: Any, b: Any, dtype: Any) -> Any:
    name = {jax.lax.add: "add", jax.lax.mul: "mul"}.get(op, "")
    return elementwise.apply(name, op, [a, b], [dtype, dtype], dtype)


def _reduce(op: Callable, value: Unstacked, axes: tuple[int, ...]) -> np.ndarray:
    kept = [i for i in range(len(value.shape)) if i not in axes]
    shape = tuple(value.shape[i] for i in kept)
    rows = value.elements.transpose(kept + list(axes)).reshape(math.prod(shape), -1)
    out = []
    for row in rows:  # in the order of the entries, so that a result does not depend on the number of lanes
        total = row[0]
        for entry in row[1:]:
            total = _combine(op, total, entry, value.dtype)
        out.append(total)
    return object_array(out, shape)


def _dot_general(eqn, a: Unstacked, b: Unstacked) -> Sequence[np.ndarray] | None:
    (contract_a, contract_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    dtype = eqn.outvars[0].aval.dtype
    if a.dtype != dtype or b.dtype != dtype:
        return None
    free_a = [i for i in range(len(a.shape)) if i not in (*contract_a, *batch_a)]
    free_b = [i for i in range(len(b.shape)) if i not in (*contract_b, *batch_b)]
    shape = [tuple(x.shape[i] for i in axes) for x, axes in ((a, batch_a), (a, free_a), (b, free_b), (a, contract_a))]
    batch, rows, columns, contracted = map(math.prod, shape)
    # written out it is as many operations in the program as there are products; a larger one stays one of matrices
    if batch * rows * columns * contracted > choices().lanes.products_at_most or contracted == 0:
        return None
    left = a.elements.transpose([*batch_a, *free_a, *contract_a]).reshape(batch, rows, contracted)
    right = b.elements.transpose([*batch_b, *free_b, *contract_b]).reshape(batch, columns, contracted)
    out = []
    for i in range(batch):
        for row in left[i]:
            for column in right[i]:
                out.append(_inner_product(row, column, dtype))
    return [object_array(out, shape[0] + shape[1] + shape[2])]


def _inner_product(row, column, dtype) -> Any:
    total = None
    for x, y in zip(row, column):
        if any(isinstance(v, Constant) and v == 0 for v in (x, y)):
            continue  # a constant zero, as in a tableau, costs nothing
        product = _combine(jax.lax.mul, x, y, dtype)
        total = product if total is None else _combine(jax.lax.add, total, product, dtype)
    return np.dtype(dtype).type(0) if total is None else total


# Equations that bring their own derivatives, which whoever differentiates an evaluation over lanes must get.


Evaluate = Callable[[Any, Sequence[Any], list[Value]], list[Value]]
"""`evaluate(jaxpr, consts, inputs)`: the results of a member's program over lanes."""


class _Unfilled(NamedTuple):
    """Values without the entries that are not known: JAX keeps what rules close over longer than a trace may live."""

    structure: Any
    known: list

    def values(self, entries: Sequence[Any]) -> list[Value]:
        """Returns the values with other entries."""
        rest = iter(entries)
        return jax.tree.unflatten(self.structure, [next(rest) if x is None else x for x in self.known])

    def tangents(self, entries: Sequence[Any]) -> list[Value]:
        """Returns values of tangents; what is known does not move."""
        rest = iter(entries)
        return jax.tree.unflatten(self.structure, [next(rest) if x is None else np.zeros_like(x) for x in self.known])


def _split(values: list[Value]) -> tuple[_Unfilled, list]:
    """Returns values without the entries that are not known, and these."""
    entries, structure = jax.tree.flatten(values)
    known = [x if isinstance(x, Constant) else None for x in entries]
    return _Unfilled(structure, known), [x for x in entries if not isinstance(x, Constant)]


def custom_jvp_call(eqn: Any, inputs: list[Value], evaluate: Evaluate) -> list[Value]:
    """Evaluates a function of `jax.custom_jvp`, whose rule stays the rule of the evaluation."""
    called = program_called(eqn)
    assert called is not None
    inner, consts = called
    given, entries = _split(inputs)
    if not entries:
        return evaluate(inner, consts, inputs)
    lanes = next((count for v in inputs if (count := _lanes_of(v)) is not None), None)
    moving = [i for i, v in enumerate(eqn.invars) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]

    @jax.custom_jvp
    def run(entries):
        # a result that members share may have a derivative that they do not
        return [_over(lanes, v) for v in evaluate(inner, consts, given.values(entries))]

    def pushed(primals, tangents):
        """The tangents of one member's inexact results, by the rule."""

        def of_moving(*xs):
            every = list(primals)
            for i, x in zip(moving, xs):
                every[i] = x
            out = run_equation(eqn, every)
            return [x for x in out if jnp.issubdtype(x.dtype, jnp.inexact)]

        return jax.jvp(of_moving, tuple(primals[i] for i in moving), tuple(tangents))[1]

    @run.defjvp
    def _(primals, tangents):
        out = run(*primals)
        values, moves = given.values(primals[0]), given.tangents(tangents[0])
        kinds = [struct(v.aval.shape, v.aval.dtype, vma_of(v.aval)) for v in eqn.invars]  # as the rule was traced
        closed = jax.make_jaxpr(pushed)(kinds, [kinds[i] for i in moving])
        rates = iter(evaluate(closed.jaxpr, closed.consts, [*values, *(moves[i] for i in moving)]))
        found = []
        for value, v in zip(out, eqn.outvars):
            rate = next(rates) if jnp.issubdtype(v.aval.dtype, jnp.inexact) else None
            found.append(_like(value, rate))
        return out, found

    return run(entries)


def _lanes_of(value: Value) -> int | None:
    """Returns over how many lanes a value differs; None where all members share it."""
    if isinstance(value, Stacked):
        return value.array.shape[-1] if value.batched else None
    return next((x.shape[0] for x in value.elements.reshape(-1) if np.ndim(x)), None)


def _over(lanes: int | None, value: Value) -> Value:
    return value if lanes is None or _lanes_of(value) is not None else over_all_lanes(value, lanes)


def _like(value: Value, rate: Value | None) -> Value:
    """Returns a tangent in the form of what it is the tangent of, and as large; its own program may give another."""
    entries, structure = jax.tree.flatten(value)
    if rate is None:
        return jax.tree.unflatten(structure, [np.zeros(np.shape(x), jax.dtypes.float0) for x in entries])
    if isinstance(value, Stacked):
        count = value.array.shape[-1] if value.batched else None
        array = stack(rate, count).array
        array = array[..., None] if array.ndim < value.array.ndim else array  # members that move alike
        rates = [array]
    else:
        rates = jax.tree.leaves(unstack(rate))
    return jax.tree.unflatten(
        structure, [jnp.broadcast_to(jnp.asarray(r, x.dtype), np.shape(x)) for r, x in zip(rates, entries, strict=True)]
    )


def linear_solve(eqn: Any, inputs: list[Value], evaluate: Evaluate, count: int | None) -> list[Value]:
    r"""Evaluates the program that solves the system $W x = b$.

    Whoever differentiates the evaluation from outside gets $W \dot x = \dot b - \dot W x$, as the equation promises.
    """
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    matrix = inputs[: lengths.matvec]
    first = lengths.matvec + lengths.vecmat
    given, traced = _split([*matrix, *inputs[first : first + lengths.solve]])

    def run(program, factors, entries, vector):
        values = given.values(entries)
        consts = values[lengths.matvec :] if factors else values[: lengths.matvec]
        return [over_all_lanes(v, count) for v in evaluate(program.jaxpr, program.consts, consts + vector)]

    @jax.custom_jvp
    def solve(entries, b):
        return run(jaxprs.solve, True, entries, b)

    @solve.defjvp
    def _(primals, tangents):
        entries, b = primals
        x = solve(entries, b)
        _, change = jax.jvp(lambda t: run(jaxprs.matvec, False, t, x), (entries,), tangents[:1])
        return x, solve(entries, jax.tree.map(jnp.subtract, tangents[1], change))

    return solve(traced, [over_all_lanes(v, count) for v in inputs[sum(lengths) :]])
