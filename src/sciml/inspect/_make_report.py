"""`report`: all that can be said of a function at once, with what is wrong in words."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax

from .._jax._platform import default_platform
from ._compiled_facts import Prediction, compiled_facts, predicted
from ._findings import findings_of
from ._hlo_text import parse
from ._lower import is_jitted, name_of
from ._measure import CallTimes, Stages, called_twice, shortest, staged
from ._memory import memory_of
from ._program_facts import facts_of
from ._rates import rates
from ._report import Report
from ._trips import trips_of

_MANY = 20_000  # equations: so many one by one from Python take too long


def report(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    r"""Says what a function is made of, what it costs, and what is wrong with it; prints that, and returns it.

    The function is traced, compiled, and called some times where its arguments are arrays. Its work is counted in the
    compiled program, loops as often as they run; where the compiler does not know how often, that is counted by running
    the program once with counters. What this machine does in a second is measured at the first call in a process, which
    takes less than a second, and what the program should take by that stands beside what it takes:

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
