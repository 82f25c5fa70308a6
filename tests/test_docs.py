"""Every Python block in the README, in `docs/` and in the docstrings runs, and every public name is in `docs/api`."""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import os
import pathlib
import re
import sys

import pytest
from sybil.document import Document, PythonDocStringDocument
from sybil.parsers.markdown import PythonCodeBlockParser

from sciml.verify import _lookup
from tests.test_architecture import public_names

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WRITE = "SCIML_WRITE_PRINTED" in os.environ  # what blocks print is recorded, not compared
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


def hook(name: str):
    """A hook of mkdocs that needs no mkdocs."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "assets" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PRINTED = hook("printed")


@pytest.mark.float32  # as JAX starts
@pytest.mark.parametrize("document", list(with_blocks()))
def test_block_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = pathlib.Path(document.path)
    page = page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else None
    printed = {}
    for example in document.examples():
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            example.evaluate()
        code = str(example.parsed)
        if page and PRINTED.prints(code):
            printed[PRINTED.key_of(code)] = (code, text.getvalue().replace(f"{tmp_path}/", "").strip("\n"))
        if page and "matplotlib.pyplot" in sys.modules:
            keep_picture(page, PRINTED.key_of(code))
    if page:
        compare(page, printed)


def library_calls(code: ast.AST):
    """The calls of functions of the library, as they are imported, with the functions."""
    names = {}
    for node in ast.walk(code):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = getattr(node, "module", None)
            for alias in node.names:
                if (source or alias.name).partition(".")[0] == "sciml":
                    own = importlib.import_module(source or (alias.name if alias.asname else "sciml"))
                    names[alias.asname or (alias.name if source else "sciml")] = (
                        getattr(own, alias.name) if source else own
                    )

    def found(node: ast.AST):
        if isinstance(node, ast.Attribute):
            return getattr(found(node.value), node.attr, None)
        return names.get(node.id) if isinstance(node, ast.Name) else None

    for node in ast.walk(code):
        if isinstance(node, ast.Call) and callable(function := found(node.func)):
            yield node, function


@pytest.mark.always  # it takes the place of slow tests
def test_examples_pass_arguments_that_exist():
    """Slow examples run in `make test-all` only, where an argument that is gone is found late."""
    gone = []
    for document, name in documents():
        code = ast.parse("\n".join(str(region.parsed) for region in PARSER(document)))
        for call, function in library_calls(code):
            with contextlib.suppress(ValueError):  # a class of the standard library
                known = inspect.signature(function).parameters
                open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
                wrong = [key.arg for key in call.keywords if key.arg and key.arg not in known]
                gone += [] if open_ended else [f"{name}: {ast.unparse(call.func)}({x}=)" for x in wrong]
    assert not gone


def keep_picture(page: str, key: str) -> None:
    """Writes the picture that a block drew, if it drew one, and closes it."""
    import matplotlib.pyplot as plt

    path = PRINTED.picture_of(page, key)
    if plt.get_fignums() and WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        plt.gcf().savefig(path, dpi=100, bbox_inches="tight")
    assert path.exists() or not plt.get_fignums(), (
        f"`make printed`: a block of {page} draws a picture that is not there"
    )
    plt.close("all")


def compare(page: str, printed: dict[str, tuple[str, str]]) -> None:
    """Blocks print what their page shows."""
    if WRITE:
        PRINTED.write(page, printed)
        return
    recorded = PRINTED.read(page)
    for key, (code, text) in printed.items():
        same = key not in recorded or PRINTED.measures(code) or PRINTED.agree(text, recorded[key])
        assert same, f"`make printed`: {page}, after {code}\n{text}"


def test_what_blocks_print_is_recorded():
    """Of each block of a page, and of no other."""
    wrong = []
    for path in sorted(DOCS.rglob("*.md")):
        page = path.relative_to(DOCS).as_posix()
        found = list(PRINTED.blocks(path.read_text()))
        printing = {key for match, key, _ in found if PRINTED.prints(match["code"])}
        pictures = {picture.stem for picture in PRINTED.picture_of(page, "").parent.glob("*.png")}
        recorded = PRINTED.read(page)
        stale = [key for _, key, text in found if key in recorded and text and not PRINTED.agree(text, recorded[key])]
        if stale or printing != set(recorded) or pictures - {key for _, key, _ in found}:
            wrong.append(page)
    assert not wrong, f"`make printed` runs the blocks and records what they print: {', '.join(wrong)}"


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
