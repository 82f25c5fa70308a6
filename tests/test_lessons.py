"""Lessons and chapters run as a reader runs them, and say how good their result is; pages are made from them."""

import ast
import json
import os
import re
import subprocess

import pytest

from benchmarks.scale import PREDICTED
from tests.conftest import ROOT
from tests.notebooks import OFFLINE, as_notebook, pages

LEARN, SCALE = ROOT / "docs" / "learn", ROOT / "docs" / "scale"


PAGES = pages()
SCRIPTS = PAGES.SCRIPTS
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


@pytest.mark.float32  # as JAX starts
@each_script
def test_lesson_runs(script, tmp_path):
    needs, there = PAGES.NEEDS.get(script.stem, ("", True))
    if not there:
        pytest.skip(f"needs {needs}")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    as_users = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": "", "PYTHONPATH": path}
    options = dict(cwd=tmp_path, capture_output=True, text=True, timeout=300)
    done = subprocess.run(as_notebook(PAGES, script, tmp_path), env={**os.environ, **as_users, **OFFLINE}, **options)
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    found = re.fullmatch(r"figure of merit: (\S+) ([<>]) (\S+) \(.+\)", last)
    assert found, last
    value, sign, bound = float(found[1]), found[2], float(found[3])
    assert value < bound if sign == "<" else value > bound
    if script.stem == "beside_pytorch":
        _, both = PAGES.FULLER[script.stem]
        check_halves(done.stdout, both)


def check_halves(printed, both):
    """What the lesson says of the half in JAX, and of that in PyTorch, or what to install for it."""
    fusions, operations = re.search(
        r"^XLA: (\d+) fusions in the step; \S+ has (\d+) operations:$", printed, re.M
    ).groups()
    assert int(fusions) > 1 and int(operations) > 4
    assert re.search(r"^JAX +\d\S+ +\d+ swings a second$", printed, re.M)
    if both:
        differ = re.search(r"losses differ by ([\d.e+-]+) of themselves", printed)
        assert float(differ[1]) < 1e-3
        assert re.search(r"^PyTorch \d\S+ +\d+ swings a second, 1/\d+$", printed, re.M)
    else:
        assert "pip install torch torchdiffeq" in printed and "losses differ" not in printed


@pytest.mark.x64
def test_page_beside_pytorch_has_both_halves():
    text = (LEARN / "beside_pytorch.md").read_text()
    check_halves(text, both=True)
    assert int(re.search(r"^torchdiffeq \d\S+ +\d+ solves a second, 1/(\d+)$", text, re.M)[1]) >= 10


@pytest.mark.x64  # nothing of it depends on the dtype
@pytest.mark.parametrize("script", SCRIPTS + PAGES.TUTORIALS, ids=lambda script: script.stem)
def test_page_is_made_from_its_script(script):
    text = script.with_suffix(".md").read_text()
    assert PAGES.without_output(text) == PAGES.page(script), f"run `make lessons` for {script.stem}"
    shown = "".join(PAGES.PRINTED.findall(text))
    assert "figure of merit: " in shown if script in SCRIPTS else shown


@pytest.mark.x64
@pytest.mark.parametrize("script", SCRIPTS + PAGES.TUTORIALS, ids=lambda script: script.stem)
def test_notebook_has_the_code_of_its_script(script):
    notebook = json.loads(PAGES.notebook(script))
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    first = PAGES.first_cells(script)
    written = [source for title, source, _ in PAGES.cells(script) if title != "[markdown]" and source]
    assert code == first + [PAGES.TIMING.sub("", source) for source in written]
    ast.parse("\n".join(code))
    text = "".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert "](../" not in text and "](figures" not in text


@pytest.mark.x64
@each_script
def test_lesson_asserts_its_figure_of_merit(script):
    """The last cell asserts a bound and prints the same bound."""
    tree = ast.parse(script.read_text())
    *_, asserted, printed = tree.body
    assert isinstance(asserted, ast.Assert)
    bound = re.search(r"[<>] (\S+) \(", ast.unparse(printed))
    assert bound and float(bound[1]) in {n.value for n in ast.walk(asserted) if isinstance(n, ast.Constant)}


@pytest.mark.x64
def test_every_lesson_is_in_the_overview():
    overviews = {folder: (folder / "index.md").read_text() for folder in PAGES.FOLDERS}
    assert [s.stem for s in SCRIPTS if f"({s.stem}.md)" not in overviews[s.parent]] == []
    assert len({s.stem for s in SCRIPTS}) == len(SCRIPTS)


@pytest.mark.x64
@pytest.mark.parametrize("script", [s for s in SCRIPTS if s.parent == SCALE], ids=lambda script: script.stem)
def test_chapter_has_three_exercises_and_predictions(script):
    """Every answer asserts something, and some times are predicted before they are measured."""
    parts = PAGES.cells(script)
    answers = [ast.parse(source) for title, source, _ in parts if title == "Answer"]
    assert len(answers) == 3
    assert all(any(isinstance(node, ast.Assert) for node in ast.walk(tree)) for tree in answers)
    text = script.with_suffix(".md").read_text()
    assert len(PREDICTED.findall(text)) >= 2, "predictions are printed by `timing.beside`"


@pytest.mark.x64
def test_benchmark_finds_the_predictions_of_the_chapters():
    line = "roll: predicted 23.8 ms, measured 75.7 ms, factor 3.2"
    assert PREDICTED.findall(f"a table\n{line}\n") == [("roll", "23.8 ms", "75.7 ms", "3.2")]
