"""Notebooks run without Jupyter: their code cells in order, in one namespace of a fresh process."""

import importlib.util
import pathlib
import sys

from tests.conftest import ROOT

RUN = """
import json, linecache, sys, types

main = sys.modules["__main__"] = types.ModuleType("__main__")
sys.path[0] = ""  # as in Jupyter, the working directory
cells = [cell["source"] for cell in json.load(open(sys.argv[1]))["cells"] if cell["cell_type"] == "code"]
for number, source in enumerate(cells):
    name = f"<cell {number}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # for messages with a line
    exec(compile(source, name, "exec"), vars(main))
"""


def pages():
    """The module that makes pages and notebooks."""
    spec = importlib.util.spec_from_file_location("learn_pages", ROOT / "docs" / "learn" / "pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}  # the first cell must find everything there, and installs nothing


def as_notebook(made, script: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The command that runs the notebook of a script, which is written into a folder."""
    notebook = folder / f"{script.stem}.ipynb"
    notebook.write_text(made.notebook(script))
    return [sys.executable, "-c", RUN, str(notebook)]
