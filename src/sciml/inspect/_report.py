"""`Report`: the facts, costs and faults of a function as a table and as a page, and the differences of two reports."""

import html
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .._choices import reason_of
from ._compiled import Cost, human
from ._compiled_facts import CompiledFacts, Prediction, working_sets
from ._measure import CallTimes, duration
from ._program_facts import ProgramFacts
from ._rates import Rates


class Finding(NamedTuple):
    """Something in a function that costs time, memory or digits.

    Attributes:
        name: Its kind, in two or three words that stay the same.
        says: The finding, with its numbers.
        cure: The remedy.
        where: The user's line that it comes from; empty if it is not known.
    """

    name: str
    says: str
    cure: str
    where: str = ""

    def __str__(self) -> str:
        """Name, finding, place and remedy."""
        where = f"\n    at {self.where}" if self.where else ""
        return f"{self.name}: {self.says}{where}\n    cure: {self.cure}"


class Report(NamedTuple):
    """The program, cost and possible improvements of a function; made by `report`, and printed as a table.

    Attributes:
        name: The function's.
        devices: How many devices the program runs on, and of which kind.
        program: Its contents as JAX traced it.
        compiled: Its contents as it was compiled.
        times: The times of tracing, lowering, compiling and calling.
        rates: The speed of this machine.
        predicted: The expected time of a call from these; None if it depends on loops of unknown length.
        weak: Arguments of weak type.
        donatable: Arguments that a result could take the place of, and their bytes.
        donated: Bytes of arguments that a result takes the place of.
        retraced: The functions that a second call with the same arguments traces again.
        raised: The error of a call from Python; empty if there was none.
        findings: The faults found, each with its cure.
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
            path: A file to write it to as well.
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
        """The shortest of some calls, in seconds; None if arguments are only shapes."""
        return self.times.call

    def __str__(self) -> str:
        """A table, and the findings."""
        rows = list(rows_of(self))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {text}" for name, text in rows]
        if not self.findings:
            return "\n".join([*lines, "", "no findings"])
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
    yield "compiled", f"{len(compiled.kernels)} operations, including {compiled.fusions} fusions"
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
            f"{short(cost.flops)} operations, {short(cost.transcendentals)} transcendental, "
            f"{human(cost.bytes_accessed)} read and written{work}"
        ),
    )
    yield (
        "intensity",
        (f"{report.intensity:.2g} operations per byte; above {report.rates.ridge:.2g}, computing takes longer"),
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
        return f"{text}; predicted: not known, because it depends on loops of unknown length"
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


_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 760, 420, 70, 50, 20, 30
_ROOF, _CACHE, _POINT, _WHOLE = "#000000", "#56B4E9", "#0072B2", "#D55E00"  # Okabe and Ito (2008)
_SHOWN = 40  # operations, those that take longest

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; } td { padding: .2rem .8rem .2rem 0; vertical-align: top; }
td:first-child { color: #555; white-space: nowrap; } tr { border-bottom: 1px solid #eee; }
.finding { border-left: 4px solid #D55E00; padding: .2rem 1rem; margin: 1rem 0; } .cure { color: #00543d; }
code { background: #f4f4f4; padding: 0 .2rem; overflow-wrap: anywhere; } svg { width: 100%; height: auto; }
"""


def page_of(
    name: str,
    findings: Iterable[tuple[str, str, str, str]],
    rows: Iterable[tuple[str, str]],
    compiled: CompiledFacts,
    rates: Rates,
    whole: tuple[float, float] | None,
) -> str:
    """Returns the page.

    Args:
        name: The function's.
        findings: The faults found: name, words, cure and place of each.
        rows: The table.
        compiled: The contents of the program.
        rates: The speed of the machine.
        whole: The call as it was measured: operations for each byte, and operations in a second; None where it was not.
    """
    table = "\n".join(f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in rows)
    faults = "\n".join(
        f'<div class="finding"><b>{html.escape(fault)}</b>: {_text(says)}'
        + (f"<br>at <code>{html.escape(where)}</code>" if where else "")
        + f'<br><span class="cure">Cure: {_text(cure)}</span></div>'
        for fault, says, cure, where in findings
    )
    name = html.escape(name)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>sciml.inspect.report: {name}</title><style>{_STYLE}</style></head>"
        f"<body>\n<h1>{name}</h1>\n<h2>Findings</h2>\n{faults or '<p>None.</p>'}\n"
        f"<h2>Roofline</h2>\n{_roofline(compiled, rates, whole)}\n"
        "<p>Each point is an operation of the compiled program: its operations per byte moved, and its attainable "
        "speed on this machine, from the measured rates. Its area is its share of the time. The ring is the measured "
        "whole call. Memory limits the points under the slope, arithmetic the points under the plateau."
        f"</p>\n<h2>All of it</h2>\n<table>\n{table}\n</table>\n</body></html>\n"
    )


def _text(words: str) -> str:
    """Escapes words, and formats text between backticks as code."""
    parts = html.escape(words, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _roofline(compiled: CompiledFacts, rates: Rates, whole: tuple[float, float] | None) -> str:
    points = list(_points(compiled, rates))
    shown = [*points, *([(*whole, 1.0, "")] if whole else [])]
    xs = [x for x, *_ in shown] + [rates.ridge, 0.1, 10.0]
    left, right = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
    top = math.ceil(math.log10(max(rates.products, rates.flops) * 1.5))
    bottom = math.floor(math.log10(min([y for _, y, *_ in shown] + [rates.bandwidth * 10.0**left])))
    bottom = max(bottom, top - 9)

    def across(x: float) -> float:
        return _LEFT + (math.log10(x) - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def up(y: float) -> float:
        y = max(y, 10.0**bottom)
        return _HEIGHT - _BOTTOM - (math.log10(y) - bottom) / (top - bottom) * (_HEIGHT - _BOTTOM - _TOP)

    def line(x0: float, y0: float, x1: float, y1: float, colour: str, more: str = "") -> str:
        return (
            f'<line x1="{across(x0):.1f}" y1="{up(y0):.1f}" x2="{across(x1):.1f}" y2="{up(y1):.1f}" '
            f'stroke="{colour}" {more}/>'
        )

    def words(x: float, y: float, text: str, more: str = "") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" {more}>{html.escape(text)}</text>'

    found = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="roofline">']
    for p in range(left, right + 1):
        found.append(line(10.0**p, 10.0**bottom, 10.0**p, 10.0**top, "#e6e6e6"))
        found.append(words(across(10.0**p), _HEIGHT - _BOTTOM + 16, f"{10.0**p:g}", 'text-anchor="middle"'))
    for p in range(bottom, top + 1):
        found.append(line(10.0**left, 10.0**p, 10.0**right, 10.0**p, "#e6e6e6"))
        found.append(words(_LEFT - 6, up(10.0**p) + 4, _rate(10.0**p), 'text-anchor="end"'))
    for bandwidth, name, colour in (
        (rates.copies[0][1], "cache", _CACHE),
        (rates.bandwidth, "memory", _ROOF),
    ):
        bend = rates.products / bandwidth
        start = max(10.0**left, 10.0**bottom / bandwidth)
        if start < bend:
            found.append(line(start, start * bandwidth, bend, rates.products, colour, 'stroke-width="2"'))
            angle = "fill=" + f'"{colour}"'
            found.append(words(across(start) + 8, up(start * bandwidth) - 8, f"{name} {_rate(bandwidth)}B/s", angle))
    level = min(rates.products / rates.copies[0][1], 10.0**right)
    found.append(line(level, rates.products, 10.0**right, rates.products, _ROOF, 'stroke-width="2"'))
    found.append(line(10.0**left, rates.flops, 10.0**right, rates.flops, _ROOF, 'stroke-dasharray="5 4"'))
    found.append(words(_WIDTH - _RIGHT, up(rates.products) - 6, "matrix products", 'text-anchor="end"'))
    found.append(words(_WIDTH - _RIGHT, up(rates.flops) + 14, "other operations", 'text-anchor="end"'))
    for x, y, share, name in points:
        found.append(
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="{3 + 14 * math.sqrt(share):.1f}" fill="{_POINT}" '
            f'fill-opacity="0.5"><title>{html.escape(name)}</title></circle>'
        )
    if whole is not None:
        found.append(
            f'<circle cx="{across(whole[0]):.1f}" cy="{up(whole[1]):.1f}" r="9" fill="none" stroke="{_WHOLE}" '
            f'stroke-width="3"><title>the whole call, measured</title></circle>'
        )
    found.append(words(_WIDTH / 2, _HEIGHT - 12, "operations per byte", 'text-anchor="middle"'))
    middle = _HEIGHT / 2
    found.append(
        words(14, middle, "operations per second", f'transform="rotate(-90 14 {middle})" text-anchor="middle"')
    )
    return "\n".join([*found, "</svg>"])


def _points(compiled: CompiledFacts, rates: Rates) -> Iterator[tuple[float, float, float, str]]:
    """Returns intensity, rate, share of the time and name of the operations that take longest."""
    sizes = working_sets(compiled)
    rows = []
    for k in compiled.kernels:
        work = k.work
        once = rates.seconds(k, sizes[k.loops])
        if work > 0 and k.bytes > 0:
            rows.append(((k.times or 1.0) * once, k, work, once))
    total = sum(row[0] for row in rows)
    for spent, k, work, once in sorted(rows, key=lambda row: -row[0])[:_SHOWN]:
        name = f"{k.opcode} {k.source}: {duration(spent)} of {duration(total)}"
        yield work / k.bytes, work / once, spent / total, name


def _rate(x: float) -> str:
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if x >= size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.3g} "


class ReportDiff(NamedTuple):
    """The differences between two reports; prints as a table.

    Attributes:
        names: Of the two functions.
        rows: The changes: name, before, after, and factor, NaN if one of them is zero.
        gone: Findings of the first that the second has not.
        new: Findings of the second that the first has not.
    """

    names: tuple[str, str]
    rows: tuple[tuple[str, str, str, float], ...]
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]

    def __str__(self) -> str:
        """A row for each figure that has changed, then the findings."""
        table = [("", self.names[0], self.names[1], "")]
        table += [(name, a, b, f"x {x:.3g}" if math.isfinite(x) else "") for name, a, b, x in self.rows]
        widths = [max(len(row[i]) for row in table) for i in range(4)]
        lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths)).rstrip() for row in table]
        if not self.rows:
            lines = ["no figure has changed"]
        lines += [f"gone: {finding.name}" for finding in self.gone]
        lines += [f"new: {finding}" for finding in self.new]
        return "\n".join(lines)


_FIGURES: tuple[tuple[str, Callable[[Report], float | None], Callable[[float], str]], ...] = (
    ("call", lambda r: r.measured, duration),
    ("call, predicted", lambda r: None if r.predicted is None else r.predicted.total, duration),
    ("compile", lambda r: r.times.compile, duration),
    ("trace and lower", lambda r: r.times.trace + r.times.lower, duration),
    ("equations", lambda r: r.program.equations, short),
    ("compiled operations", lambda r: len(r.compiled.kernels), short),
    ("operations", lambda r: r.cost.flops, short),
    ("transcendental", lambda r: r.cost.transcendentals, short),
    ("read and written", lambda r: r.cost.bytes_accessed, human),
    ("temporaries", lambda r: None if r.compiled.memory is None else r.compiled.memory.temporaries, human),
    ("memory", lambda r: None if r.compiled.memory is None else r.compiled.memory.total, human),
    ("collectives", lambda r: len(r.compiled.collectives), short),
    ("bytes of collectives", lambda r: sum(c.bytes for c in r.compiled.collectives), human),
    ("devices", lambda r: r.devices[0], short),
)


def diff(before: Report, after: Report) -> ReportDiff:
    """Returns and prints the differences between two reports, for example of a function before and after a change.

    Args:
        before: A report.
        after: Another.

    Returns:
        A `ReportDiff`: figures that differ by more than a twentieth, and findings that are gone or new.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inspect

        def by_python(y):
            for _ in range(50):
                y = y - 0.01 * y
            return y

        def by_jax(y):
            return jax.lax.fori_loop(0, 50, lambda _, y: y - 0.01 * y, y)

        y = jnp.ones(1000)
        changed = inspect.diff(inspect.report(jax.jit(by_python), y), inspect.report(jax.jit(by_jax), y))
        assert [finding.name for finding in changed.gone] == ["unrolled loop"]
        ```
    """
    ours, theirs = ({(f.name, f.where) for f in report.findings} for report in (before, after))
    found = ReportDiff(
        (before.name, after.name) if before.name != after.name else ("before", "after"),
        tuple(_changed(before, after)),
        tuple(f for f in before.findings if (f.name, f.where) not in theirs),
        tuple(f for f in after.findings if (f.name, f.where) not in ours),
    )
    print(found)
    return found


def _changed(before: Report, after: Report) -> Iterator[tuple[str, str, str, float]]:
    for name, figure, text in _FIGURES:
        a, b = figure(before), figure(after)
        if a is None and b is None:
            continue
        factor = b / a if a and b else math.nan
        if a == b or 0.95 < factor < 1.05:
            continue
        yield name, "-" if a is None else text(a), "-" if b is None else text(b), factor
