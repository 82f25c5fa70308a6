"""Words of the documentation, of docstrings and of messages are spelt right, and no word of a page stands twice."""

import re

import pytest

from tests.conftest import ROOT

TEXTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "docs", "src", "benchmarks")
BLOCK = re.compile(r"```.*?```", re.DOTALL)
SECTION = re.compile(r"^#{2,4} (.+)\n\n([a-z]\w*)", re.MULTILINE)
NAMES = {"sciml", "diffrax", "jaxtyping", "lineax", "optimistix", "optax"}
TWICE = re.compile(r"(?<![\w.`$-])([A-Za-z]{2,}) \1(?![\w`$(.-])")


@pytest.mark.x64  # nothing of it depends on the dtype
def test_words_are_spelt_right(monkeypatch, capsys):
    codespell = pytest.importorskip("codespell_lib")
    monkeypatch.chdir(ROOT)  # where its settings are, in pyproject.toml
    assert codespell.main(*TEXTS) == 0, capsys.readouterr().out


@pytest.mark.x64
def test_no_word_stands_twice():
    assert TWICE.search("at the the end") and not TWICE.search("a vmap of vmaps")
    pages = [ROOT / text for text in TEXTS if text.endswith(".md")] + sorted((ROOT / "docs").rglob("*.md"))
    found = {path.name: match[0] for path in pages for match in TWICE.finditer(BLOCK.sub("", path.read_text()))}
    assert not found


@pytest.mark.x64
def test_no_section_starts_in_mid_sentence():
    """A heading is not the subject of the sentence below it: who comes by a link would not see it."""
    found = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        starts = SECTION.findall(BLOCK.sub("", page.read_text()))
        if wrong := [heading for heading, word in starts if word not in NAMES]:
            found[page.relative_to(ROOT).as_posix()] = wrong
    assert found == {}
