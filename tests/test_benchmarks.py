"""The page of benchmarks is what they printed, and each has a line that says what it asks."""

import contextlib
import re

import pytest

from benchmarks import _summary
from benchmarks._page import HEAD, PAGE, Tee, question, with_section
from benchmarks._registry import BENCHMARKS
from tests.conftest import ROOT


@pytest.mark.x64  # nothing of it depends on the dtype
def test_sections_are_replaced_and_in_order(capsys):
    page = with_section("", "insight", "one")
    page = with_section(page, "riemann", "two")
    page = with_section(page, "insight", "### three\n\n| a |")
    assert page.startswith(HEAD) and page.index("two") < page.index("### three") and "one\n" not in page[len(HEAD) :]
    assert page == with_section(page, "riemann", "two")
    with contextlib.redirect_stdout(Tee()) as kept:
        print("a row")
    assert kept.getvalue() == capsys.readouterr().out == "a row\n"


@pytest.mark.x64
def test_every_section_of_the_page_says_on_which_machine():
    readme = (ROOT / "benchmarks" / "README.md").read_text()
    assert all(question(name) and f"\n| `{name}` | " in readme for name in BENCHMARKS)
    page = PAGE.read_text()
    head, *sections = page.split("\n## `")
    assert head == HEAD + _summary.summary(page)
    names = [section.split("`")[0] for section in sections]
    assert names == [name for name in BENCHMARKS if name in names]
    assert all(f"{question(name)}\n\n- processor: " in text for name, text in zip(names, sections))


@pytest.mark.x64
def test_chart_and_front_pages_have_the_numbers_of_the_page():
    page = PAGE.read_text()
    chart = _summary.CHART.read_text()
    assert all(f">{_summary.factor(row.factor)}<" in chart for row in _summary.recorded(page).values())
    for front, link in _summary.FRONTS.items():
        text = front.read_text()
        assert text == _summary.with_sentences(text, _summary.sentences(page, link)), front.name
    with pytest.raises(ValueError, match="no row `sciml, an event ends it`"):
        _summary.recorded("## `events`\n\n### 10000 Lorenz systems\n\n| diffrax | 1 s |\n")


@pytest.mark.x64
def test_commands_beside_peers_are_benchmarks():
    """The third column of the second table names them."""
    table = (ROOT / "docs/guides/peers.md").read_text().split("## When to use sciml")[1].split("\n\n")[1]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[-2])]
    assert len(named) > 10 and not set(named) - set(BENCHMARKS)
