"""A report as one page of HTML that needs nothing else, with the roofline as a drawing in it."""

import html
import math
from collections.abc import Iterable, Iterator

from ._compiled_facts import CompiledFacts, working_sets
from ._measure import duration
from ._rates import Rates

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
        findings: What is wrong: name, words, cure and place of each.
        rows: The table.
        compiled: What is in the program.
        rates: What the machine does in a second.
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
        "<p>Each point is an operation of the compiled program: how much it computes for each byte that it moves, and "
        "how fast it can be on this machine, by the rates that were measured. Its area is its share of the time. "
        "The ring is the whole call as it was measured. Under the slope memory decides, under the level the arithmetic."
        f"</p>\n<h2>All of it</h2>\n<table>\n{table}\n</table>\n</body></html>\n"
    )


def _text(words: str) -> str:
    """Escapes words, and sets what is between backticks as code."""
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
    found.append(words(_WIDTH - _RIGHT, up(rates.products) - 6, "products of matrices", 'text-anchor="end"'))
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
    found.append(words(_WIDTH / 2, _HEIGHT - 12, "operations for each byte", 'text-anchor="middle"'))
    middle = _HEIGHT / 2
    found.append(
        words(14, middle, "operations in a second", f'transform="rotate(-90 14 {middle})" text-anchor="middle"')
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
