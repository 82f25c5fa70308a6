"""Pages are in plain English: constructions that readers stumble over are rare, and sentences are short."""

import re

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "changelog.md" and "api" not in page.parts
]
START = r"(?:^|(?<=[.:;] ))"  # of a sentence
MOST = {  # per 10,000 words; other libraries of the field have 0 to 0.4 of each
    "what": (rf"{START}What [^?]*?[.:;](?= |$)", 0.5),
    "where": (rf"{START}Where [^?]*?[.:;](?= |$)", 0.5),
    "is no": (r"(?<!there )\b(?:is|are) (?:no|none)\b(?! longer| more)", 0.5),
    "beside": (r"\bbeside\b", 0.2),
    "that of": (r"\bth(?:at|ose) of\b", 1.0),
}
WORDS = 14  # of a sentence, or of a part that ends with a colon, on average


def paragraphs(text: str) -> list[str]:
    """The prose of a page: paragraphs and items of lists, without code, formulas and tables."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *(?:#|\||!\[|<|---).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "X", text)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text) if part.strip()]


@pytest.mark.x64  # nothing of it depends on the dtype
def test_pages_are_in_plain_english():
    parts = [(page.name, part) for page in PAGES for part in paragraphs(page.read_text())]
    words = sum(len(part.split()) for _, part in parts)
    for name, (pattern, most) in MOST.items():
        found = [f"{page}: {match[0]}" for page, part in parts for match in re.finditer(pattern, part)]
        assert len(found) <= most * words / 1e4, f"{name}: " + "\n".join(found)


@pytest.mark.x64
def test_sentences_are_short():
    parts = [part for page in PAGES for part in paragraphs(page.read_text())]
    sentences = [sentence for part in parts for sentence in re.split(r"(?<=[.!?:]) ", part) if " " in sentence]
    assert sum(len(sentence.split()) for sentence in sentences) / len(sentences) <= WORDS


@pytest.mark.x64
def test_patterns_are_found():
    text = "Code: `what is`. What is kept has a name. It is no number, beside that of a member.\n\n| What is |"
    (part,) = paragraphs(text)
    assert all(re.search(MOST[name][0], part) for name in MOST if name != "where")
    assert not re.search(MOST["what"][0], "What is a lane? A place in an array.")
