"""The map and the list of the packages: `python -m tests.architecture_map` writes both into the documentation."""

import ast

from tests.test_architecture import FILES, ROOT, SRC, TREES, UPWARD, imports_of, module_of, part_of

WRITTEN = ROOT / "docs" / "assets" / "architecture.svg"
LISTED = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- folders: written by `python -m tests.architecture_map` -->\n", "<!-- end of folders -->\n"

ROWS = (
    ("petab", "pharmacology"),
    ("inference", "verify", "plot"),
    ("bifurcation", "control", "parallel", "training", "inspect"),
    ("models", "adjoints", "runs"),
    ("spatial", "solvers"),
    ("kernels", "stores"),
    ("base",),
)
WIDTH, STEP, BOX = 720, 96, (104, 36)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")  # of the arrows from a row's boxes


def edges() -> set[tuple[str, str]]:
    """Which part imports which; of the base alone, which all import, nothing is said."""
    found = {
        (part_of(module_of(path)), part_of(module)) for path in FILES for module, _, _ in imports_of(path)
    } - UPWARD
    return {(a, b) for a, b in found if a != b and "face" not in (a, b) and b != "base"}


def centres() -> dict[str, tuple[float, float]]:
    """Where the boxes are."""
    found = {}
    for number, row in enumerate(ROWS):
        for place, part in enumerate(row):
            found[part] = ((place + 0.5) * WIDTH / len(row), number * STEP + 30.0)
    return found


def drawing() -> str:
    """The map as SVG; its colours of text and ground are the page's, light or dark."""
    at = centres()
    height = (len(ROWS) - 1) * STEP + 60
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        "<title>Which package imports which: arrows point down, from a package to one that it imports</title>",
        "<style>text{font:14px sans-serif;text-anchor:middle;dominant-baseline:central;fill:#222}"
        "rect{fill:#f4f4f4;stroke:#777}path{fill:none;stroke-width:1.6;opacity:.75}</style>",
        "<defs>",
        *(
            f'<marker id="tip{n}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" style="fill:{colour};stroke:none"/></marker>'
            for n, colour in enumerate(COLOURS)
        ),
        "</defs>",
    ]
    row_of = {part: number for number, row in enumerate(ROWS) for part in row}
    for a, b in sorted(edges(), key=lambda edge: (row_of[edge[0]], edge)):
        (x0, y0), (x1, y1) = at[a], at[b]
        y0, y1 = y0 + BOX[1] / 2, y1 - BOX[1] / 2
        x1 += (x0 - x1) * 0.08  # arrows to one box end side by side
        colour = COLOURS[(ROWS[row_of[a]].index(a) + row_of[a]) % len(COLOURS)]
        tip = COLOURS.index(colour)
        bend = (y1 - y0) / 2
        lines.append(
            f'<path d="M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}" '
            f'style="stroke:{colour}" marker-end="url(#tip{tip})"/>'
        )
    for part, (x, y) in at.items():
        wide = WIDTH - 20 if part == "base" else BOX[0]
        text = "sciml._*, sciml._jax: all packages import these" if part == "base" else part
        lines.append(
            f'<rect x="{x - wide / 2:.0f}" y="{y - BOX[1] / 2:.0f}" width="{wide:.0f}" height="{BOX[1]}" rx="5"/>'
            f'<text x="{x:.0f}" y="{y:.0f}">{text}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def summary(path) -> str:
    """The first sentence of a module."""
    return " ".join((ast.get_docstring(TREES[path]) or "").split("\n\n")[0].split())


def folders() -> str:
    """The table of folders, and the files of the base, each with the first sentence of its docstring."""
    rows = ["| Folder | Holds |", "| --- | --- |"]
    for path in sorted(SRC.rglob("__init__.py"), key=lambda path: path.parent.parts):
        inner = path.parent.relative_to(SRC)
        if inner.parts:
            rows.append(f"| `{inner}/` | {summary(path)} |")
    rows += ["", "| File of the base | Holds |", "| --- | --- |"]
    rows += [
        f"| `{path.name}` | {summary(path)} |" for path in FILES if path.parent == SRC and path.name != "__init__.py"
    ]
    return "\n".join(["", *rows, "", ""])


def with_folders(text: str) -> str:
    """The page with the table."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{LISTED.name} lacks the lines that the table stands between"
    return before + BEGIN + folders() + END + after


if __name__ == "__main__":
    assert {part for row in ROWS for part in row} >= {part_of(module_of(path)) for path in FILES} - {"face"}, SRC
    WRITTEN.write_text(drawing())
    LISTED.write_text(with_folders(LISTED.read_text()))
    print(f"wrote {WRITTEN} and {LISTED}")
