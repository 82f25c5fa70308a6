"""Links between pages lead to files, and to headings that there are; those of the README too."""

import re

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")


def slug(heading: str) -> str:
    """The anchor that mkdocs gives a heading."""
    words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading).strip().lower())
    return re.sub(r"[-\s]+", "-", words)


def anchors(text: str) -> set[str]:
    """The anchors of a page."""
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)}


def broken(page, text: str) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for target in LINK.findall(BLOCK.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            found.append(target)
        elif anchor and file.suffix == ".md" and anchor not in anchors(text if file == page else file.read_text()):
            found.append(target)
    return found


@pytest.mark.x64  # nothing of it depends on the dtype
def test_links_lead_somewhere():
    assert {
        page.relative_to(ROOT).as_posix(): links for page in PAGES if (links := broken(page, page.read_text()))
    } == {}


@pytest.mark.x64
def test_broken_links_are_found():
    page = ROOT / "docs" / "index.md"
    text = (
        "# A *first* one: `x`\n[a](install.md) [b](nowhere.md) [c](#a-first-one-x) [d](#other)\n```py\n[e](no.md)\n```"
    )
    assert broken(page, text) == ["nowhere.md", "#other"]
