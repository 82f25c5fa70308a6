"""`report`: all that can be said of a function at once, with what is wrong in words."""

import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax

from .._jax._platform import default_platform
from ._compiled_facts import CompiledFacts, Prediction, compiled_facts, predicted
from ._cost import Cost
from ._findings import Finding, findings_of, ratio
from ._hlo_text import parse
from ._lower import is_jitted, name_of
from ._measure import CallTimes, Stages, called_twice, duration, shortest, staged
from ._memory import human, memory_of
from ._program_facts import ProgramFacts, facts_of
from ._rates import Rates, rates
from ._report_html import page_of
from ._trips import trips_of

_MANY = 20_000  # equations: so many one by one from Python take too long


class Report(NamedTuple):
    """What a function is, costs and could do better; made by `report`, and printed as a table.

    Attributes:
        name: The function's.
        devices: How many devices the program runs on, and of which kind.
        program: What is in it as JAX traced it.
        compiled: What is in it as it was compiled.
        times: What tracing, lowering, compiling and calling takes.
        rates: What this machine does in a second.
        predicted: What a call should take by these; None where it depends on loops of unknown length.
        weak: Arguments of weak type.
        donatable: Arguments that a result could take the place of, and their bytes.
        donated: Bytes of arguments that a result takes the place of.
        retraced: What a second call with the same arguments traces again.
        raised: What a call from Python raised; empty if nothing.
        findings: What is wrong, each with its cure.
    """

    name: str
    devices: tuple[int, str]
    program: ProgramFacts
    compiled: CompiledFacts
    times: CallTimes
    rates: Rates
    predicted: Prediction | None
    weak: tuple[str, ...]
    donatable: tuple[tuple[str, int], ...]
    donated: int
    retraced: tuple[str, ...]
    raised: str
    findings: tuple[Finding, ...] = ()

    @property
    def cost(self) -> Cost:
        """The work of a call on one device, loops counted as often as they run."""
        return self.compiled.cost

    @property
    def intensity(self) -> float:
        """Operations for each byte that is read or written."""
        cost = self.cost
        return (cost.flops + cost.transcendentals) / max(cost.bytes_accessed, 1.0)

    def html(self, path: str | os.PathLike | None = None) -> str:
        """Returns the report as one page of HTML that needs nothing else, with the roofline drawn.

        Args:
            path: Where to write it, too.
        """
        page = page_of(self, rows_of(self))
        if path is not None:
            pathlib.Path(path).write_text(page, encoding="utf-8")
        return page

    @property
    def measured(self) -> float | None:
        """The shortest of some calls, in seconds; None where arguments are shapes alone."""
        return self.times.call

    def __str__(self) -> str:
        """A table, and the findings."""
        rows = list(rows_of(self))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {text}" for name, text in rows]
        if not self.findings:
            return "\n".join([*lines, "", "nothing to find fault with"])
        return "\n".join([*lines, "", *(str(finding) for finding in self.findings)])


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


def rows_of(report: Report) -> Iterator[tuple[str, str]]:
    """Returns the rows of the table."""
    program, compiled, cost = report.program, report.compiled, report.cost
    count, kind = report.devices
    yield "function", f"{report.name}, on {count} x {kind}"
    some = ", ".join(f"{n} {name}" for name, n in list(program.primitives.items())[:6])
    yield "program", f"{program.equations} equations: {some}"
    yield "dtypes", ", ".join(f"{n} {name}" for name, n in program.dtypes.items())
    yield "times", str(report.times)
    yield "compiled", f"{len(compiled.kernels)} operations, of them {compiled.fusions} fusions"
    for loop in compiled.loops:
        body = ", ".join(f"{n} {name}" for name, n in list(loop.operations.items())[:5])
        yield "loop", f"{'  ' * loop.loop_depth}{_iterations(loop, compiled)}: {body}  ({loop.source})"
    for c in compiled.collectives:
        place = "each iteration" if c.in_loop else "once"
        yield "collective", f"{c.kind} of {human(c.bytes)}, {place}  ({c.source})"
    for note in program.callbacks:
        yield "callback", f"{note.what}, {'in a loop' if note.loops else 'once'}  ({note.where})"
    yield "members", ", ".join(program.ways) or "none of sciml's loops over members, no kernel"
    work = "" if not compiled.uncounted else f"; of {compiled.uncounted} operations in loops of unknown length once"
    yield (
        "work",
        (
            f"{short(cost.flops)} operations, {short(cost.transcendentals)} of exp and the like, "
            f"{human(cost.bytes_accessed)} read and written{work}"
        ),
    )
    yield (
        "intensity",
        (f"{report.intensity:.2g} operations for each byte; from {report.rates.ridge:.2g} on, computing takes longer"),
    )
    yield "machine", str(report.rates)
    if compiled.memory is not None:
        yield "memory", str(compiled.memory)
    donated = human(report.donated) if report.donated else "nothing"
    yield "donated", donated + "".join(f"; {name} could be" for name, _ in report.donatable[:3])
    yield "a call", _call(report)


def _iterations(loop: Any, compiled: CompiledFacts) -> str:
    if loop.trips is not None:
        return f"{loop.trips} iterations"
    counted = compiled.trips.get(loop.name)
    return "iterations not known" if counted is None else f"{counted:.4g} iterations (counted)"


def _call(report: Report) -> str:
    expected, real = report.predicted, report.measured
    text = "not run: arguments are shapes" if real is None else f"measured {duration(real)}"
    if expected is None:
        return f"{text}; predicted: not known, for it depends on loops of unknown length"
    parts = f"compute {duration(expected.compute)}, move {duration(expected.move)}, start {duration(expected.start)}"
    text += f"; predicted {duration(expected.total)} ({parts}, new memory {duration(expected.memory)})"
    return text if real is None else f"{text}; {ratio(real, expected.total):.2g} apart"


def short(number: float) -> str:
    """A number with a letter for its thousands."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"
