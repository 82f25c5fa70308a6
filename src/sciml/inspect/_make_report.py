"""`report`: everything that can be determined about a function at once, with faults in words."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._jax._interpreters import ClosedJaxpr, Jaxpr
from .._jax._platform import default_platform
from .._jax._sources import at_source_of
from .._jax._vma import promote
from .._jax.programs import (
    _names as names,
    array_of,
    equations,
    evaluate,
    parts_of_scan,
    parts_of_while,
    programs_held,
    run_equation,
)
from ._compiled import memory_of
from ._compiled_facts import Prediction, compiled_facts, predicted
from ._findings import findings_of
from ._hlo_text import HloModule, parse
from ._hlo_work import whiles_of
from ._lower import is_jitted, name_of
from ._measure import CallTimes, Stages, called_twice, shortest, staged
from ._program_facts import facts_of
from ._programs import program_of
from ._rates import rates
from ._report import Report

_MANY = 20_000  # equations: so many one by one from Python take too long


def report(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    r"""Reports the contents, the cost and the faults of a function; prints the report, and returns it.

    The function is traced, compiled, and called several times if its arguments are arrays. Its work is counted in the
    compiled program, loops as often as they run; if the compiler does not know how often, the program is run once with
    counters. The speed of this machine is measured at the first call in a process, which takes less than a second, and
    the expected time of the program is reported together with the measured one:

    $$t = \sum_k n_k \left[\max\left(\frac{\text{operations}_k}{\text{rate}},
    \frac{\text{bytes}_k}{\text{bandwidth}}\right) + t_\text{start}\right]$$

    over all operations $k$ of the compiled program, which run $n_k$ times. This is the roofline model (Williams,
    Waterman and Patterson, 2009, doi:10.1145/1498765.1498785), operation by operation.

    Args:
        fn: Any callable, jitted or not. One that is not jitted is also called from Python as it is, twice.
        *args: Its positional arguments; with a `jax.ShapeDtypeStruct` among them nothing is run.
        **kwargs: Its keyword arguments.

    Returns:
        A `Report`: its `findings` name each fault and its cure; `html(path)` of it writes a page.

    Raises:
        TypeError: If `fn` is not callable.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        def decay(y):
            for _ in range(100):
                y = y - 0.01 * y
            return y

        found = inspect.report(decay, jnp.ones(1000))
        assert "unrolled loop" in [finding.name for finding in found.findings]
        ```
    """
    stages, times = staged(fn, args, kwargs)
    found = _made(fn, args, kwargs, stages, times)
    print(found)
    return found


def _made(fn: Callable, args: tuple, kwargs: dict, stages: Stages, times: CallTimes) -> Report:
    module = parse(stages.compiled.as_text() or "")
    try:
        memory = memory_of(stages.compiled)
    except NotImplementedError:
        memory = None
    devices = _devices(stages)
    program = facts_of(stages.closed)
    trips = trips_of(module, stages.closed, stages.inputs if devices[0] == 1 else None)
    compiled = compiled_facts(module, trips, memory)
    retraced, raised = (), ""
    if stages.inputs is not None:
        times = times._replace(call=shortest(stages.call))
        if not is_jitted(fn) and devices[0] == 1 and program.equations < _MANY:
            seconds, retraced, raised = called_twice(fn, args, kwargs)
            times = times._replace(uncompiled=seconds if seconds == seconds else None)
    speed = rates()
    result = Report(
        name_of(fn),
        devices,
        program,
        compiled,
        times,
        speed,
        _all_devices(predicted(compiled, speed), devices),
        tuple(_weak(args, kwargs)),
        tuple(_donatable(stages, args, kwargs)),
        0 if memory is None else memory.aliased,
        retraced,
        raised,
    )
    return result._replace(findings=findings_of(result))


def _devices(stages: Stages) -> tuple[int, str]:
    devices = {d for s in jax.tree.leaves(stages.compiled.input_shardings) for d in s.device_set}
    devices |= {d for s in jax.tree.leaves(stages.compiled.output_shardings) for d in s.device_set}
    first = next(iter(devices), jax.local_devices()[0])
    return max(len(devices), 1), first.device_kind


def _all_devices(found: Prediction | None, devices: tuple[int, str]) -> Prediction | None:
    """On a CPU the devices are parts of one machine, whose rates were measured as a whole."""
    if found is None or devices[0] == 1 or default_platform() != "cpu":
        return found
    return Prediction(*(devices[0] * x for x in found))


def _named_leaves(args: tuple, kwargs: dict) -> Iterator[tuple[str, Any]]:
    tree = {f"argument {i}": value for i, value in enumerate(args)} | kwargs
    for (key, *rest), leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield key.key + jax.tree_util.keystr(tuple(rest)), leaf


def _weak(args: tuple, kwargs: dict) -> Iterator[str]:
    for name, leaf in _named_leaves(args, kwargs):
        if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and getattr(leaf, "weak_type", False):
            yield name


def _donatable(stages: Stages, args: tuple, kwargs: dict) -> Iterator[tuple[str, int]]:
    """Returns large arguments that are like a result and not donated."""
    infos = [x for x in jax.tree.leaves(stages.lowered.args_info, is_leaf=lambda x: hasattr(x, "donated"))]
    given = Counter(_kind(x) for x in infos if getattr(x, "donated", False))
    results = Counter(_kind(x) for x in jax.tree.leaves(stages.lowered.out_info) if hasattr(x, "shape"))
    free = {kind: count - given[kind] for kind, count in results.items()}
    for name, leaf in _named_leaves(args, kwargs):
        if not (eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)):
            continue
        kind, size = _kind(leaf), leaf.size * leaf.dtype.itemsize
        if given[kind] > 0:
            given[kind] -= 1
        elif size >= 2**20 and free.get(kind, 0) > 0:
            free[kind] -= 1
            yield name, size


def _kind(x: Any) -> tuple:
    return tuple(x.shape), str(x.dtype)


# How often loops of unknown length run, counted by a run of the program with counters in its loops.


def trips_of(module: HloModule, closed: ClosedJaxpr, inputs: Sequence[Any] | None) -> dict[str, float]:
    """Returns the iterations, on average, of loops whose number the compiler does not know, by their names.

    Args:
        module: The compiled program.
        closed: Its program.
        inputs: Its inputs; None where there are only shapes.
    """
    loops = whiles_of(module)
    if inputs is None or all(loop.trips is not None for loop, _ in loops):
        return {}
    traced = list(_loops_in(closed.jaxpr))
    found = [int(n) for n in jax.device_get(jax.jit(lambda *xs: _counts(closed, list(xs)))(*inputs))]
    if len(traced) == len(loops):
        rows = list(zip(loops, found))
    else:  # short loops are unrolled, and some are found to have a known length
        unknown = [n for n, eqn in zip(found, traced) if eqn.primitive.name == "while"]
        open_ = [loop for loop in loops if loop[0].trips is None]
        if len(unknown) != len(open_):
            return {}
        rows = list(zip(open_, unknown))
    totals = {loop.name: float(n) for (loop, _), n in rows}
    known = {loop.name: loop for loop, _ in loops}

    def runs(around: tuple[str, ...]) -> float:
        """How often the innermost of some loops runs its body, in all."""
        if not around:
            return 1.0
        name = around[-1]
        if name in totals:
            return totals[name]
        return runs(around[:-1]) * (known[name].trips or 1)

    trips = {}
    for (loop, around), n in rows:
        if loop.trips is None:
            trips[loop.name] = n / max(runs(around), 1.0)
    return trips


def _counts(closed: ClosedJaxpr, inputs: list) -> list:
    return _evaluate(closed, inputs)[1]


def _evaluate(closed: ClosedJaxpr, inputs: Sequence[Any]) -> tuple[list, list]:
    """Returns the results of a program, and for each loop in it, in their order, how often its body runs."""
    counts: list[Any] = []

    def counted(eqn: Any, given: list) -> list:
        called = program_of(eqn)
        with at_source_of(eqn):
            if called is not None:
                out, more = _evaluate(ClosedJaxpr(*called), given)
            elif eqn.primitive.name in _COUNTED:
                out, more = _COUNTED[eqn.primitive.name](eqn, given)
            else:
                return run_equation(eqn, given)
        counts.extend(more)
        return out

    return evaluate(closed.jaxpr, (*closed.consts, *inputs), counted, array_of), counts


def _loops_in(jaxpr: Jaxpr) -> Iterator[Any]:
    """Returns the loops of a program in the order in which `_evaluate` counts them; none within `jax.shard_map`."""
    return (eqn for eqn in equations(jaxpr, _programs_counted) if eqn.primitive.name in names.LOOPS)


def _programs_counted(eqn: Any) -> Iterable[Jaxpr]:
    called = program_of(eqn)
    if called is not None:
        return (called[0],)
    return (x.jaxpr for x in programs_held(eqn)) if eqn.primitive.name in _COUNTED else ()


def _blank(jaxpr: Jaxpr) -> list:
    """Returns a count of zero for each loop in a program."""
    return [jnp.int32(0) for _ in _loops_in(jaxpr)]


def _add(a: list, b: list) -> list:
    return [x + y for x, y in zip(a, b, strict=True)]


def _while(eqn: Any, given: list) -> tuple[list, list]:
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    for_cond, for_body, carry = parts_of_while(eqn, given)

    def go_on(state):
        return _evaluate(cond, [*for_cond, *state[0]])[0][0]

    def iterate(state):
        carry, count, inner = state
        out, more = _evaluate(body, [*for_body, *carry])
        return out, count + 1, _add(inner, more)

    inner = _blank(body.jaxpr)
    out, count, inner = jax.lax.while_loop(go_on, iterate, promote((carry, jnp.int32(0), inner)))
    return out, [count, *_blank(cond.jaxpr), *inner]


def _scan(eqn: Any, given: list) -> tuple[list, list]:
    closed, length = eqn.params["jaxpr"], eqn.params["length"]
    consts, carry, xs = parts_of_scan(eqn, given)

    def iterate(state, x):
        carry, inner = state
        out, more = _evaluate(closed, [*consts, *carry, *x])
        return (out[: len(carry)], _add(inner, more)), out[len(carry) :]

    start = promote((carry, _blank(closed.jaxpr)))
    (carry, inner), ys = jax.lax.scan(iterate, start, xs, length=length, reverse=eqn.params["reverse"])
    return [*carry, *ys], [jnp.int32(length), *inner]


def _cond(eqn: Any, given: list) -> tuple[list, list]:
    index, *operands = given
    branches = eqn.params["branches"]
    blanks = [_blank(b.jaxpr) for b in branches]

    def branch(number: int):
        def run(*operands):
            out, counts = _evaluate(branches[number], operands)
            before, after = (sum(map(len, part)) for part in (blanks[:number], blanks[number + 1 :]))
            return out, [jnp.int32(0)] * before + counts + [jnp.int32(0)] * after

        return run

    which = jnp.clip(index, 0, np.int32(len(branches) - 1))
    return jax.lax.switch(which, [branch(i) for i in range(len(branches))], *operands)


_COUNTED = {"while": _while, "scan": _scan, "cond": _cond}
