"""Elementwise work over lanes, fused into one pass over memory for all of its results.

On the CPU a fusion of XLA has one result. A step that ends with the three components of a state is computed three
times there, and once more for each number that the controller makes of it. A reduction of several arrays has several
results, though, and XLA fuses into it what leads to them. So the work is done on two equal rows, and a reduction over
the rows keeps one of them. When code is made of it, one row remains.

A program over lanes is elementwise but for few operations, such as matrix products. It is cut there, and after much
work where it is `held_back`; what lies between two cuts becomes one fusion.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import zero_from_primal
from jaxtyping import Array

from ..._choices import choices
from ..._jax._barrier import computed_once, held_back, opaque
from ..._jax._interpreters import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from ..._jax._matrix_products import Transposed, reads_columns
from ..._jax._platform import default_platform
from ..._jax._sources import at_source_of
from ..._jax._vma import as_traced, promote, to_varying, vma_of
from ..._jax.programs import _names as names, array_of, evaluate, from_outside, program_called, run_equation
from ._values import Constant

_BITS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}
"""Integers by their size in bytes, which hold the bits of floating-point numbers."""


class _Symbol:
    """A value of the program, before it is computed."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape


class _Literal(NamedTuple):
    """A number that is written into the program, or an array full of it."""

    value: Any  # of NumPy's, with its dtype
    shape: tuple[int, ...] = ()


class _Operation(NamedTuple):
    eqn: Any
    inputs: list[_Symbol | _Literal | Array]
    outputs: list[_Symbol]


_Part: TypeAlias = list[_Operation]
"""A unit of execution: a fusion, of elementwise operations between two cuts, or an operation in no fusion."""


def fused_over_lanes(work: Callable[[Any], Any], values: Any, lanes: tuple[int, ...], *, reverse: bool) -> Any:
    """Returns what `work` makes of lane values, computed fusion by fusion on a CPU.

    These fusions cannot be transposed. Derivatives are fused too where only forward mode may go through them.

    Args:
        work: A function of lane values.
        values: Its arguments.
        lanes: The shape of an entry over all lanes.
        reverse: Whether reverse mode may go through it.
    """
    entries, treedef = jax.tree.flatten(values)
    found: list = []

    def program(*arrays):
        rest = iter(arrays)
        out = work(jax.tree.unflatten(treedef, [x if isinstance(x, Constant) else next(rest) for x in entries]))
        leaves, structure = jax.tree.flatten(out)
        found[:] = [x if isinstance(x, Constant) else None for x in leaves], structure
        return [x for x in leaves if not isinstance(x, Constant)]

    arrays = [x for x in entries if not isinstance(x, Constant)]
    closed = jax.make_jaxpr(program)(*arrays)
    results = iter(_run(closed, arrays, lanes, reverse))
    leaves, structure = found
    return jax.tree.unflatten(structure, [next(results) if x is None else x for x in leaves])


def _run(closed: ClosedJaxpr, arrays: Sequence[Array], lanes: tuple[int, ...], reverse: bool) -> list[Array]:
    jaxpr, consts = closed.jaxpr, len(closed.consts)
    inputs = [_Symbol(v.aval.shape) for v in (*jaxpr.constvars, *jaxpr.invars)]
    operations: list[_Operation] = []
    results = _listed(jaxpr, inputs, operations)
    fixed = {x for x, f in zip(inputs, [True] * consts + from_outside(arrays)) if f}
    parts = _parts(operations, lanes, fixed)

    def plain(*given):
        return jaxpr_as_fun(ClosedJaxpr(jaxpr, given[:consts]))(*given[consts:])

    def fused(*given):
        known = dict(zip(inputs, given))
        start, transposed = _kept_apart([known[x] for x in inputs if x not in fixed], lanes), Transposed({})
        for part, later in zip(parts, _read_later(parts, results)):
            if len(part) > 1:
                _run_fused(part, known, later, lanes, start)
            else:
                _run_operation(*part, known, lanes, fixed, transposed)
        return as_traced([_read(known, x) for x in results], jaxpr.outvars)

    def without_barriers(*given):
        def run(eqn, values):  # with the rules of those that have rules
            return values if _is_barrier_equation(eqn) else run_equation(eqn, values)

        return as_traced(evaluate(jaxpr, given, run, array_of), jaxpr.outvars)

    run = jax.custom_jvp(fused)

    @run.defjvp
    def _(primals, tangents):
        if reverse or len(operations) <= choices().lanes.tangents_unfused_at_most:
            return jax.jvp(plain, primals, tangents)
        out = run(*primals)
        # barriers would mix tangents, and fusions need none
        return out, _tangents(without_barriers, primals, tangents, out, lanes)

    # Only in XLA's CPU backend do fusions have one result. The platform is read here: a program with a branch for each
    # platform is twice as long to trace.
    as_it_stands = jaxpr.effects or all(len(part) == 1 and _as_it_stands(*part, fixed) for part in parts)
    return (plain if as_it_stands or default_platform() != "cpu" else run)(*closed.consts, *arrays)


def _tangents(
    fn: Callable, primals: Sequence[Array], tangents: Sequence[Any], results: Sequence[Array], lanes: tuple[int, ...]
) -> list:
    """Returns the tangents of a function's results in fusions of their own, so that many tangents share the results."""
    moved = [x.dtype != jax.dtypes.float0 for x in tangents]

    def program(*given):
        rest = iter(given[len(primals) :])
        along = [next(rest) if m else x for x, m in zip(tangents, moved)]
        return [x for x in jax.jvp(fn, list(given[: len(primals)]), along)[1] if x.dtype != jax.dtypes.float0]

    given = [*primals, *(x for x, m in zip(tangents, moved) if m)]
    found = iter(_run(jax.make_jaxpr(program)(*given), given, lanes, False))
    inexact = [jnp.issubdtype(x.dtype, jnp.inexact) for x in results]
    # arrays and no symbolic zeros: JAX counts one tangent for each result of a rule that was defined without those
    return [next(found) if i else zero_from_primal(x) for x, i in zip(results, inexact)]


def _listed(jaxpr: Jaxpr, inputs: Sequence[Any], operations: list[_Operation]) -> list:
    """Appends a program's operations, including the programs that it calls, and returns its results."""

    def listed(eqn: Any, given: list) -> list:
        if eqn.primitive.name == "broadcast_in_dim" and isinstance(given[0], _Literal):
            return [given[0]._replace(shape=getattr(eqn.outvars[0].aval, "shape", ()))]
        if _changes_nothing(eqn):
            return given
        called = None if _is_barrier_equation(eqn) else program_called(eqn)
        if called is not None:
            return _listed(called[0], [*called[1], *given], operations)
        outputs = [_Symbol(getattr(v.aval, "shape", ())) for v in eqn.outvars]
        operations.append(_Operation(eqn, given, outputs))
        return outputs

    return evaluate(jaxpr, inputs, listed, lambda atom: _Literal(np.asarray(atom.val, atom.aval.dtype)[()]))


def _parts(operations: list[_Operation], lanes: tuple[int, ...], fixed: set[_Symbol]) -> list[_Part]:
    """Returns the parts of a program; XLA computes values that only depend on `fixed`, in no fusion, before a loop."""
    table = choices().lanes
    parts: list[_Part] = []
    pending: list[_Operation] = []
    made: set[_Symbol] = set()

    def cut():
        parts.extend([pending[:]] if len(pending) >= table.fusion_from else [[operation] for operation in pending])
        pending.clear()
        made.clear()

    for operation in operations:
        if len(pending) >= table.fusion_at_most:  # the time to compile grows with the square
            cut()
        read = [x for x in operation.inputs if isinstance(x, _Symbol)]
        if read and fixed.issuperset(read):
            # the same in every iteration of a loop: within a fusion XLA would not move it out of the loop
            fixed.update(operation.outputs)
            parts.append([operation])
        elif _is_elementwise(operation, lanes) and not (
            _is_barrier(operation) and len(pending) >= table.fusion_ends_from
        ):
            pending.append(operation)
            made.update(operation.outputs)
        else:
            # what reads nothing of the fusion that is open may run before it, which stays open
            if _is_barrier(operation) or not made.isdisjoint(read):
                cut()
            parts.append([operation])
    cut()
    return parts


def _changes_nothing(eqn: Any) -> bool:
    """Whether it converts to the dtype that is there, as of weakly typed numbers."""
    return eqn.primitive.name == "convert_element_type" and eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype


def _is_barrier(operation: _Operation) -> bool:
    return _is_barrier_equation(operation.eqn)


def _is_barrier_equation(eqn: Any) -> bool:
    called = eqn.primitive.name in names.JITS and eqn.params.get("name") == getattr(held_back, "__name__", None)
    # a derivative's returns more tangents than it takes, where some are known to be zero
    return called and len(eqn.invars) == len(eqn.outvars)


def _is_elementwise(operation: _Operation, lanes: tuple[int, ...]) -> bool:
    name = operation.eqn.primitive.name
    if any(x.shape != lanes for x in operation.outputs):
        return False
    if name == "broadcast_in_dim":
        return operation.inputs[0].shape == ()
    return name in names.ELEMENTWISE or name in names.IDENTITIES or _is_barrier(operation)


def _read_later(parts: list[_Part], results: list) -> list[set]:
    """Returns, for each part, the symbols that are read after it."""
    later = {x for x in results if isinstance(x, _Symbol)}
    found = []
    for part in reversed(parts):
        found.append(set(later))
        later.update(x for operation in part for x in operation.inputs if isinstance(x, _Symbol))
    return found[::-1]


def _read(known: dict, x: Any) -> Any:
    if isinstance(x, _Literal):
        return jnp.full(x.shape, x.value)
    return known[x] if isinstance(x, _Symbol) else x


def _as_it_stands(operation: _Operation, fixed: set[_Symbol]) -> bool:
    return not _is_barrier(operation) and not reads_columns(operation.eqn, _which(operation.inputs, fixed))


def _which(inputs: Sequence[Any], fixed: set[_Symbol]) -> list[bool]:
    return [isinstance(x, _Symbol) and x in fixed for x in inputs]


def _run_operation(
    operation: _Operation,
    known: dict,
    lanes: tuple[int, ...],
    fixed: set[_Symbol],
    transposed: Transposed,
) -> None:
    given = as_traced([_read(known, x) for x in operation.inputs], operation.eqn.invars)
    if _is_barrier(operation):
        found = _computed_once(given, lanes)
    elif operation.eqn.primitive.name in names.PROMOTIONS:
        found = to_varying(given, vma_of(list(known.values())))  # JAX refuses to promote what was promoted already
    else:
        found = transposed.run(operation.eqn, given, operation.inputs, _which(operation.inputs, fixed))
        found = run_equation(operation.eqn, given) if found is None else found
    known.update(zip(operation.outputs, found))


def _computed_once(arrays: list, lanes: tuple[int, ...]) -> list:
    """Returns arrays that XLA does not compute again for each use, as it never does the results of a fusion."""
    once = iter(computed_once(*promote([x for x in arrays if jnp.shape(x) != lanes])))
    return [next(once) if jnp.shape(x) != lanes else x for x in arrays]


def _kept_apart(varying: list[Array], lanes: tuple[int, ...]) -> Array | None:
    """Returns a number that XLA cannot predict and that differs from iteration to iteration of an enclosing loop.

    From JAX 0.12 on XLA makes one function of a small loop with all that it holds. There LLVM cannot assume that the
    results of a fusion do not overlap, and does not vectorise: the loop takes eight times as long. A loop that calls a
    library is left as it is. So the first element of a reduction, which its result does not depend on, comes from
    LAPACK.
    """
    floats = [x for x in varying if x.shape == lanes and jnp.issubdtype(x.dtype, jnp.floating)]
    if not floats or not lanes or lanes[-1] <= choices().lanes.scalar_at_most:
        return None
    # of all, so that one which stays the same does not let it be computed before the loop
    return opaque(*promote([x for x in floats if x.dtype == floats[0].dtype]))


def _run_fused(part: _Part, known: dict, later: set, lanes: tuple[int, ...], start: Array | None) -> None:
    made = dict.fromkeys(x for operation in part for x in operation.outputs)
    outputs = [x for x in made if x in later]
    if not outputs:
        return
    read = dict.fromkeys(x for operation in part for x in operation.inputs if isinstance(x, _Symbol))
    inputs = [x for x in read if x not in made]
    axes = vma_of([known[x] for x in inputs])
    rows: dict[Any, Array] = dict(zip(inputs, _in_rows([known[x] for x in inputs], lanes)))

    def row(x):
        if isinstance(x, jax.Array):
            return _in_rows([x], lanes)[0]
        key = (x.value.dtype, x.value.tobytes(), x.shape) if isinstance(x, _Literal) else x
        if key not in rows:
            rows[key] = jnp.full((2, *lanes) if x.shape == lanes else x.shape, x.value)
        return rows[key]

    for operation in part:
        with at_source_of(operation.eqn):
            rows.update(zip(operation.outputs, _apply(operation.eqn, [row(x) for x in operation.inputs], lanes)))
    known.update(zip(outputs, _one_row([to_varying(rows[x], axes) for x in outputs], start)))


def _one_row(arrays: list[Array], first: Array | None) -> list[Array]:
    """Returns one of the two equal rows of each array, by one reduction, which starts from `first` if that is given."""
    floats = [x.dtype for x in arrays if jnp.issubdtype(x.dtype, jnp.floating)]
    # XLA wants one precision for all of them, so others go as integers
    kinds = [_BITS[x.dtype.itemsize] if x.dtype in floats and x.dtype != floats[0] else x.dtype for x in arrays]
    rows = [x if x.dtype == kind else jax.lax.bitcast_convert_type(x, kind) for x, kind in zip(arrays, kinds)]
    begin = jnp.zeros(()) if first is None else first
    start = [to_varying(begin.astype(x.dtype), vma_of((x, begin))) for x in rows]
    # it adds nothing up: of two equal rows it keeps the last
    found = jax.lax.reduce(rows, start, lambda _, row: row, (0,))
    return [y if x.dtype == y.dtype else jax.lax.bitcast_convert_type(y, x.dtype) for x, y in zip(arrays, found)]


def _in_rows(arrays: list[Array], lanes: tuple[int, ...]) -> list[Array]:
    """Returns arrays over lanes as two equal rows each, others as they are.

    XLA takes work on what it knows to be broadcast out of the rows again, so it must not know.
    """
    rows = [jnp.broadcast_to(x, (2, *lanes)) if x.shape == lanes else x for x in arrays]
    if lanes:
        # equal rows in reverse are the same, and no broadcast to XLA
        return [jax.lax.rev(row, (0,)) if x.shape == lanes else x for x, row in zip(arrays, rows)]
    first = next((x for x in arrays if jnp.issubdtype(x.dtype, jnp.floating)), None)
    if first is None:
        return rows
    # one member has no axis to reverse over: a choice whose condition always holds, for NaN too, hides it as well
    always = (jnp.arange(2) > 0) | ~(first < -jnp.inf)
    zeros = {kind: jnp.zeros(2, kind) for kind in dict.fromkeys(x.dtype for x in rows)}
    return [jax.lax.select(always, x, zeros[x.dtype]) for x in rows]


def _apply(eqn: Any, rows: list[Array], lanes: tuple[int, ...]) -> list[Array]:
    """Returns what an elementwise equation makes of rows."""
    name = eqn.primitive.name
    if name == "broadcast_in_dim":
        return [jax.lax.broadcast(*rows, (2, *lanes))] if lanes else rows
    if name in names.IDENTITIES or _is_barrier_equation(eqn):
        return rows
    # a sharding among the parameters is for arrays without the axis of rows
    params = {**eqn.params, "sharding": None} if "sharding" in eqn.params else eqn.params
    result = eqn.primitive.bind(*promote(rows), **params)
    if name in names.CHEAP or not jnp.issubdtype(result.dtype, jnp.floating):
        return [result]
    # XLA fuses no slow operation with several uses. This is one use, and no operation to LLVM
    return [jax.lax.clamp(np.asarray(-np.inf, result.dtype), result, np.asarray(np.inf, result.dtype))]
