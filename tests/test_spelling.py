"""Words of pages, docstrings and messages are spelt right and plain, and no word of a page is there twice."""

import ast
import functools
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


PATTERNS = {  # a pattern, and its limit for each 10,000 words
    "a statement that opens with What or Where": (r"^(?:\w+: )?(?:What|Where|Who)\b(?!.*\?$)", 0.5),
    "is no, is none": (r"(?<!there )(?<!There )\b(?:is|are) (?:no|none)\b(?! longer| more than| less than)", 0.5),
    "beside": (r"\b[Bb]eside\b", 0.1),
    "that of, those of": (r"\b(?:[Tt]hat|[Tt]hose) of\b", 0.5),
}
MEAN_SENTENCE = 18
MARKED = re.compile(r"```.*?```|\$\$.*?\$\$|^---\n.*?^---\n", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`]*`|\$[^$]*\$")
NEXT = re.compile(r"\n\s*\n|\n\s*(?=[-*|#] |\d+\. |\w+(?: \([^)]*\))?: )|^# ", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences of a text of Markdown, with code and formulas replaced by `x`."""
    parts = NEXT.split(INLINE.sub("x", MARKED.sub("\n\n", text)))
    found = [s for part in parts for s in re.split(r"(?<=[.?!:])\s+(?=[A-Z`{<*(])", " ".join(part.split()))]
    return [s for s in found if len(s.split()) >= 3]


def text_of(node: ast.AST) -> str | None:
    """The text of an expression of strings, with names in place of values; None for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "`x`" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or "`x`") + (right or "`x`")
    return None


def strings(node: ast.AST):
    """The docstrings of a module as pairs (True, text), and its other strings of several words as (False, text)."""
    body = getattr(node, "body", None)
    documented = [s.value for s in body if isinstance(s, ast.Expr)] if isinstance(body, list) else []
    for child in ast.iter_child_nodes(node):
        value = child.value if isinstance(child, ast.Expr) and child.value in documented else None
        if value is not None and text_of(value) is not None:
            yield True, text_of(value)
        elif (text := text_of(child)) is not None:
            if re.search(r"[a-z]{2,} [a-z]{2,}", text):
                yield False, text
        else:
            yield from strings(child)


def prose(kind: str) -> list[str]:
    pages = [ROOT / text for text in TEXTS if text.endswith(".md")]
    if kind == "pages":
        return [path.read_text() for path in [*pages, *sorted((ROOT / "docs").rglob("*.md"))]]
    return [text for is_docstring, text in every_string() if is_docstring == (kind == "docstrings")]


@functools.cache
def every_string() -> list[tuple[bool, str]]:
    paths = sorted((ROOT / "src").rglob("*.py"))
    return [found for path in paths for found in strings(ast.parse(path.read_text()))]


@pytest.mark.x64
def test_patterns_are_found():
    bad = (
        "What is kept is none. Those of `f` are beside it.\n\nWhat is it? There is no key.\n\nArgs:\n    x: What it is."
    )
    for (pattern, _), number in zip(PATTERNS.values(), (2, 1, 1, 1), strict=True):
        assert sum(len(re.findall(pattern, s)) for s in sentences(bad)) == number, pattern
    assert len(sentences("One is here. Two is `a. B`, and\nthree.\n\n- One is an item.\n")) == 3


@pytest.mark.x64
@pytest.mark.parametrize("kind", ["messages", "docstrings", "pages"])
def test_the_english_is_plain(kind):
    """See "Writing style" in CONTRIBUTING.md. The limits leave room for the few sentences that need such a form."""
    every = [sentence for text in prose(kind) for sentence in sentences(text)]
    words = sum(len(sentence.split()) for sentence in every)
    assert words / len(every) <= MEAN_SENTENCE
    for name, (pattern, limit) in PATTERNS.items():
        found = [sentence for sentence in every if re.search(pattern, sentence)]
        assert len(found) <= max(1, limit * words / 10_000), f"{name}: {found}"
