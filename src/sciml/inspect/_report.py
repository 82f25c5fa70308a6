"""`Report`: what a function is, costs and could do better, as a table and as a page."""

import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from .._choices import reason_of
from ._compiled_facts import CompiledFacts, Prediction
from ._cost import Cost
from ._measure import CallTimes, duration
from ._memory import human
from ._program_facts import ProgramFacts
from ._rates import Rates
from ._report_html import page_of


class Finding(NamedTuple):
    """Something in a function that costs time, memory or digits.

    Attributes:
        name: What it is, in two or three words that stay the same.
        says: What was found, with its numbers.
        cure: What to do about it.
        where: The user's line that it comes from; empty where it is not known.
    """

    name: str
    says: str
    cure: str
    where: str = ""

    def __str__(self) -> str:
        """Name, what was found, where, and what to do."""
        where = f"\n    at {self.where}" if self.where else ""
        return f"{self.name}: {self.says}{where}\n    cure: {self.cure}"


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
        work, whole = self.cost.flops + self.cost.transcendentals, None
        if self.measured and work > 0:
            whole = self.intensity, work / self.measured
        page = page_of(self.name, self.findings, rows_of(self), self.compiled, self.rates, whole)
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
    for name, value in program.choices.items():
        yield "choice", f"{name} = {value} {reason_of(name)}"
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


def ratio(measured: float, predicted: float) -> float:
    """Returns by what factor two times differ, at least 1."""
    return math.exp(abs(math.log(measured / predicted))) if measured > 0 and predicted > 0 else math.inf
