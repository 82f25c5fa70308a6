"""The summary of the page: a table, a chart, and the sentences of the front pages, all from the recorded tables."""

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHART = ROOT / "docs" / "figures" / "benchmarks.svg"


class Comparison(NamedTuple):
    """Two rows of one recorded table: a section, the start of a table's title, and the labels of the rows."""

    task: str
    section: str
    table: str
    ours: str
    theirs: str

    @property
    def other(self) -> str:
        """The program that sciml is compared with."""
        return "diffrax" if self.theirs.startswith("diffrax") else "lax.scan"


EVENTS = Comparison(
    "10,000 Lorenz systems, stopped by events",
    "events",
    "10000",
    "sciml, an event ends it",
    "diffrax, an event ends it",
)
UNEQUAL = Comparison(
    "2048 Van der Pol oscillators, unequal steps", "heavy_tailed", "Van der Pol", "refill", "diffrax, vmap"
)
PATHS = "5000 paths of Brownian motion", "noise", "5000 paths of geometric", "sciml, Euler"
STEPS = "gradient of 1000 fixed steps", "gradient", "One Lorenz system, rho = 28, t in [0, 1],", "sciml, gradient"
ADAPTIVE = "gradient of adaptive steps", "gradient", "One Lorenz system, rho = 28, t in [0, 10]", "sciml, gradient"
GRADIENT = Comparison(*STEPS, "diffrax, gradient")
BY_HAND = Comparison(*STEPS, "lax.scan by hand, gradient")
SIR = "SIR model, 40 counts, float64, rtol 1e-06: "
COMPARISONS = (
    EVENTS,
    UNEQUAL,
    Comparison(*PATHS, "diffrax, Euler, unsafe path"),
    Comparison(*PATHS, "a scan by hand"),
    Comparison("one path of a field of 128 x 128", "noise", "one path of a field", "sciml, Euler", "a scan by hand"),
    Comparison("1000 fixed steps of one system", "scan", "One Lorenz system, 1000 ", "sciml", "lax.scan by hand"),
    Comparison("1000 fixed steps of a field of 64 x 64", "scan", "Diffusion", "sciml", "lax.scan by hand"),
    Comparison(*ADAPTIVE, "diffrax, gradient"),
    GRADIENT,
    BY_HAND,
    Comparison(
        "1024 posterior densities, gradients", "posterior", f"{SIR}density and gradient, 1024", "sciml", "diffrax"
    ),
    Comparison("4 chains of NUTS, 500 draws each", "posterior", f"{SIR}4 chains", "sciml", "diffrax, forward mode"),
)
SENTENCES = """- **Ensembles**: 10,000 Lorenz systems that each stop at an event take {events.ours}, with `jax.vmap` of
  diffrax {events.theirs} ([events]({page}#events)).
- **Unequal members**: 2048 Van der Pol oscillators, some of which need a hundred times more steps, take
  {unequal.ours} with `batching="refill"`, and {unequal.theirs} with `jax.vmap` of diffrax, in float64
  ([heavy tails]({page}#heavy_tailed)).
- **Gradients**: the gradient of 1000 fixed steps takes {gradient.ours}, with a hand-written `lax.scan` {hand.theirs},
  and with diffrax {gradient.theirs} ([gradient]({page}#gradient)).
"""
FRONTS = {ROOT / "README.md": "docs/benchmarks.md", ROOT / "docs" / "index.md": "benchmarks.md"}
MARKS = "<!-- measured: written by `python -m benchmarks --page` -->\n\n", "\n<!-- end of measured -->\n"
_SECTION = re.compile(r"^## `(\w+)`\n", re.MULTILINE)


class Row(NamedTuple):
    """Times as recorded, and the factor between them."""

    ours: str
    theirs: str
    factor: float
    compile_ours: str
    compile_theirs: str


def seconds(text: str) -> float:
    """A time of a table, such as "2.39 ms"."""
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]


def recorded(page: str) -> dict[Comparison, Row]:
    """The comparisons whose sections are in the page.

    Raises:
        ValueError: If a section has no such table or row.
    """
    parts = _SECTION.split(page)
    sections, found = dict(zip(parts[1::2], parts[2::2])), {}
    for one in COMPARISONS:
        if one.section not in sections:
            continue
        tables = [table for table in sections[one.section].split("\n### ")[1:] if table.startswith(one.table)]
        cells = [line.split("|") for line in "".join(tables[:1]).splitlines() if "|" in line]
        rows = {cell[1].strip().split(", lane")[0]: [text.strip() for text in cell[2:]] for cell in cells}
        if one.ours not in rows or one.theirs not in rows:
            raise ValueError(f"`{one.section}` has no row `{one.ours}` or `{one.theirs}` in a table `{one.table}...`")
        (ours, _, _, built, *_), (theirs, _, _, built_there, *_) = rows[one.ours], rows[one.theirs]
        found[one] = Row(ours, theirs, seconds(theirs) / seconds(ours), built, built_there)
    return found


def factor(value: float) -> str:
    """Two digits, as people say them."""
    return f"{value:.2g}x"


def summary(page: str) -> str:
    """The table and the chart that open the page."""
    rows = [
        f"| [{one.task}](#{one.section}) | {row.ours} | {one.other}: {row.theirs} | {factor(row.factor)} | "
        f"{row.compile_ours}, {row.compile_theirs} |"
        for one, row in recorded(page).items()
    ]
    if not rows:
        return ""
    head = "| Task | sciml | Compared with | Faster by | Time to compile, of both |\n|---|---|---|---|---|\n"
    note = "On two CPU cores, without the time to compile. `lax.scan` is a loop written by hand."
    chart = "![Time of the other program divided by the time of sciml, for each task](figures/benchmarks.svg)"
    return f"\n## Summary\n\n{head}" + "\n".join(rows) + f"\n\n{note}\n\n{chart}\n"


def sentences(page: str, link: str) -> str:
    """The measured sentences of a front page, which links to the page of benchmarks as `link`."""
    found = recorded(page)
    rows = dict(events=EVENTS, unequal=UNEQUAL, gradient=GRADIENT, hand=BY_HAND)
    return SENTENCES.format(page=link, **{name: found[one] for name, one in rows.items()})


def with_sentences(text: str, made: str) -> str:
    """A front page with these sentences between the marks."""
    begin, end = MARKS
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + made + end + after


def draw(page: str, path: pathlib.Path = CHART) -> None:
    """Draws the chart: a bar for each comparison, from 1 to the factor."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams |= {"svg.hashsalt": "benchmarks", "svg.fonttype": "none"}
    found = recorded(page)
    names = [f"{one.task} ({one.other})" for one in found]
    factors = [row.factor for row in found.values()]
    colours = ["#0072B2" if one.other == "diffrax" else "#E69F00" for one in found]
    figure, ax = plt.subplots(figsize=(9.5, 0.8 + 0.33 * len(names)), layout="constrained")
    ax.barh(names, [value - 1 for value in factors], left=1, color=colours, height=0.7)
    for place, value in enumerate(factors):
        ax.text(max(value, 1) * 1.06, place, factor(value), va="center", fontsize=11)
    ax.axvline(1, color="0.3", linewidth=1)
    ax.set_xscale("log")
    ax.set_xlim(0.8, 2 * max(factors))
    ax.set_xticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"], fontsize=11)
    ax.minorticks_off()
    ax.tick_params(axis="y", labelsize=11, length=0)
    ax.invert_yaxis()
    ax.set_xlabel("time of the other program, divided by the time of sciml", fontsize=11)
    ax.spines[["top", "right", "left"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def write(page: str) -> None:
    """Draws the chart and writes the sentences of the front pages."""
    draw(page)
    for front, link in FRONTS.items():
        front.write_text(with_sentences(front.read_text(), sentences(page, link)))
