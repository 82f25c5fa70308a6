"""What is different between two reports."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ._findings import Finding
from ._measure import duration
from ._memory import human
from ._report import Report, short


class ReportDiff(NamedTuple):
    """What is different between two reports; prints as a table.

    Attributes:
        names: Of the two functions.
        rows: What has changed: name, before, after, and by what factor, NaN where one of them is zero.
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
    ("of exp and the like", lambda r: r.cost.transcendentals, short),
    ("read and written", lambda r: r.cost.bytes_accessed, human),
    ("temporaries", lambda r: None if r.compiled.memory is None else r.compiled.memory.temporaries, human),
    ("memory", lambda r: None if r.compiled.memory is None else r.compiled.memory.total, human),
    ("collectives", lambda r: len(r.compiled.collectives), short),
    ("bytes of collectives", lambda r: sum(c.bytes for c in r.compiled.collectives), human),
    ("devices", lambda r: r.devices[0], short),
)


def diff(before: Report, after: Report) -> ReportDiff:
    """Returns what is different between two reports, as of a function before and after a change; prints it, too.

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
