"""Every Python block in the README, in `docs/` and in the docstrings runs, and every public name is in `docs/api`."""

import ast
import importlib
import inspect
import pathlib
import re

import pytest
from sybil.document import Document, PythonDocStringDocument
from sybil.parsers.markdown import PythonCodeBlockParser

from sciml.verify import _lookup
from tests.test_architecture import public_names

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARSER = PythonCodeBlockParser()


def documents():
    """One document for each page and for each docstring: its blocks share a namespace."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield Document(path.read_text(), str(path)), path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text()
        if "```python" not in source:
            continue
        names = dict(names_by_line(ast.parse(source), ""))
        for start, _, text in PythonDocStringDocument.extract_docstrings(source):
            if "```python" not in text:
                continue
            name = names[source.count("\n", 0, start) + 1]
            yield Document(text, str(path)), path.relative_to(ROOT / "src").as_posix() + name


def names_by_line(node: ast.AST, name: str):
    """Where docstrings start, and whose they are: `:Class.method`, or nothing for that of the module."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
        yield node.body[0].lineno, name
    for child in ast.iter_child_nodes(node):
        own = getattr(child, "name", "") if isinstance(child, ast.stmt) else ""
        yield from names_by_line(child, name + (("." if name else ":") + own if own else ""))


def with_blocks():
    for document, name in documents():
        for region in PARSER(document):
            document.add(region)
        if document.regions:
            yield pytest.param(document, id=name)


@pytest.mark.float32  # as JAX starts
@pytest.mark.parametrize("document", list(with_blocks()))
def test_block_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in document.examples():
        example.evaluate()
    if "matplotlib" in document.text or ".plot" in document.text:
        import matplotlib.pyplot as plt

        plt.close("all")


def documented() -> dict[str, str]:
    """The names that `docs/api` shows, with their page."""
    return {
        name: page.name
        for page in sorted((ROOT / "docs" / "api").rglob("*.md"))
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
    }


def test_every_public_name_is_in_the_reference():
    names = public_names()
    shown = {id(names[name]) for name in documented() if name in names}
    missing = [name for name, value in names.items() if id(value) not in shown and not inspect.ismodule(value)]
    assert not missing, f"docs/api lacks {missing}"


def test_the_reference_shows_public_names_and_classes_of_results():
    """And the functions that `verify.problem` and `verify.reference` find by name."""
    unknown = []
    for name, page in documented().items():
        module, _, last = name.rpartition(".")
        if name not in public_names():
            kind = getattr(importlib.import_module(module), last, None) if "._" in module else None
            if not (inspect.isclass(kind) or last in _lookup.FORMER) or kind.__module__ != module:
                unknown.append(f"{page}: {name}")
    assert not unknown


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    missing = [page for page in pages if not re.search(rf"[:-]\s+{re.escape(page)}$", navigation, re.MULTILINE)]
    assert not missing
