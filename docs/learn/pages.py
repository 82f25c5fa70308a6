"""Makes the pages of docs/learn, docs/scale and docs/tutorials: `python docs/learn/pages.py`, or `... loops lanes`.

A script is cells. `# %% [markdown]` begins text, `# %%` code, `# %% Answer` and `# %% Figure` code that the page folds,
and `# %% [hidden]` code that it leaves out, such as the folder to which a tutorial writes. Pictures in this folder go
into `figures`. `--text` makes a page anew with the output that it shows, if only its text has changed.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "docs" / "learn", ROOT / "docs" / "scale")
SHARED = ("pages.py", "timing.py")  # no pages are made of these
SCRIPTS = sorted(
    path for folder in FOLDERS for path in folder.glob("*.py") if path.name not in SHARED
)
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
FOLDED = {"Answer": "Answer", "Figure": "The code of the figure"}
NEEDS = {  # what a script needs beside sciml, and whether it is there
    "ffi": ("a C++ compiler", shutil.which("c++") is not None),
    "flax_models": ("flax", importlib.util.find_spec("flax") is not None),
}
LAB = ("torch", "torchdiffeq")
FULLER = {  # what a script runs without, but its page shows
    "beside_pytorch": (" and ".join(LAB), all(importlib.util.find_spec(name) for name in LAB)),
}
INSTALLS = {  # what the notebook of a script installs in addition to matplotlib, if it is missing
    "aot_and_export": ("flatbuffers",),
    "callbacks": ("flatbuffers",),
    "flax_models": ("flax",),
    "egfr": ("sbmlode", "petab"),
    "sbml_fit": ("sbmlode", "petab"),
}
TIMING = re.compile(r"^from timing import .*\n", re.MULTILINE)  # what chapters share
PRINTED = re.compile(
    r"\n```text\n.*?\n```\n", re.DOTALL
)  # what a script printed, and nothing else in a page


def cells(script: pathlib.Path) -> list[tuple[str, str, int]]:
    """Title, source and first line of every cell."""
    found = []
    for number, line in enumerate(script.read_text().splitlines(), 1):
        if line.startswith("# %%"):
            found.append((line[4:].strip(), [], number + 1))
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"{script.name} begins before its first cell, `# %% [markdown]`.")
    return [(title, "\n".join(lines).strip("\n"), first) for title, lines, first in found]


def run(script: pathlib.Path) -> list[str]:
    """What each cell prints, in this process."""
    printed, names = [], {"__name__": "__main__", "__file__": str(script)}
    sys.path.insert(0, str(script.parent))  # as for a script that is run
    for title, source, first in cells(script):
        text = io.StringIO()
        if title != "[markdown]":
            with contextlib.redirect_stdout(text):
                exec(compile("\n" * (first - 1) + source, str(script), "exec"), names)
        printed.append(text.getvalue().strip("\n").replace(f"{ROOT}/", ""))
    return printed


def page(script: pathlib.Path, printed: list[str] | None = None) -> str:
    """The page of a script."""
    blocks = []
    parts = cells(script)
    for (title, source, _), text in zip(parts, printed or [""] * len(parts)):
        if title == "[hidden]":
            continue
        if title == "[markdown]":
            block = "\n".join(re.sub("^# ?", "", line) for line in source.splitlines()) + "\n"
        else:
            block = f"```py\n{source}\n```\n" + (f"\n```text\n{text}\n```\n" if text else "")
        if title in FOLDED:
            summary = f"<summary>{FOLDED[title]}</summary>"
            block = f'<details markdown="1">{summary}\n\n{block}\n</details>\n'
        blocks.append(block)
    blocks.append(
        f"---\n\nThis page is made from a script: `python {script.relative_to(ROOT)}` runs it.\n"
    )
    return "\n".join(blocks)


def shown(script: pathlib.Path) -> list[str]:
    """What the page of a script shows after each cell."""
    text = script.with_suffix(".md").read_text()
    found = []
    for _, source, _ in cells(script):
        match = re.search(
            re.escape(f"```py\n{source}\n```\n") + r"\n```text\n(.*?)\n```\n", text, re.DOTALL
        )
        found.append(match[1] if match and source else "")
    return found


def first_cells(script: pathlib.Path, repository: str = "") -> list[str]:
    """The code that a notebook begins with: it installs what is missing, and has what the chapters share."""
    text = script.read_text()
    needed = ["matplotlib"] if "import matplotlib" in text else []
    needed = {name: name for name in [*needed, *INSTALLS.get(script.stem, ())]}
    if repository:
        needed = {"sciml": f"sciml-jax @ git+{repository}"} | needed
        first = ""
    else:
        reason = "Run `pip install -e '.[plot]'` in a clone of the repository of sciml."
        first = f'''if importlib.util.find_spec("sciml") is None:
    raise ModuleNotFoundError("{reason}")
'''
    if needed:
        first += f"""needed = {needed}
missing = [needed[name] for name in needed if importlib.util.find_spec(name) is None]
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *missing], check=True)
"""
    first = f"import importlib.util\nimport subprocess\nimport sys\n\n{first}"
    shared = [(script.parent / "timing.py").read_text()] if TIMING.search(text) else []
    return [first, *shared]


def notebook(script: pathlib.Path, repository: str = "") -> str:
    """The script as a notebook, which begins with cells that install what is missing, and has no links to files."""
    made = [("code", source) for source in first_cells(script, repository)]
    for title, source, _ in cells(script):
        if title == "[markdown]":
            text = "\n".join(re.sub("^# ?", "", line) for line in source.splitlines())
            text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n?", "", text)
            made.append(("markdown", re.sub(r"(?<!!)\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", text)))
        elif source:
            made.append(("code", TIMING.sub("", source)))
    whole = []
    for number, (kind, source) in enumerate(made):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        whole.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": whole, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def without_output(text: str) -> str:
    """A page without what its script printed."""
    return PRINTED.sub("", text)


def main() -> None:
    """Runs scripts, each in a process of its own, and writes their pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="scripts without .py; all by default")
    parser.add_argument(
        "--cells", action="store_true", help="print what the cells of one script print, as JSON"
    )
    parser.add_argument("--text", action="store_true", help="keep the output that pages show")
    given = parser.parse_args()
    known = {script.stem: script for script in SCRIPTS + TUTORIALS}
    if unknown := set(given.names) - set(known):
        parser.error(f"no script {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    scripts = [known[name] for name in given.names] or [*known.values()]
    if given.cells:
        print("\n" + json.dumps(run(scripts[0])))
        return
    if given.text:
        for script in scripts:
            script.with_suffix(".md").write_text(page(script, shown(script)))
        return
    for script in scripts:
        needs, there = (NEEDS | FULLER).get(script.stem, ("", True))
        if not there:
            print(f"left {script.with_suffix('.md').name} as it is: it needs {needs}")
            continue
        command = [sys.executable, __file__, "--cells", script.stem]
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"OUT": folder, "MPLBACKEND": "Agg"}
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
            for figure in pathlib.Path(folder).glob("*.png"):
                shutil.copy(figure, script.parent / "figures")
        script.with_suffix(".md").write_text(page(script, json.loads(done.stdout.splitlines()[-1])))
        print(f"wrote {script.with_suffix('.md').name}", flush=True)


if __name__ == "__main__":
    main()
