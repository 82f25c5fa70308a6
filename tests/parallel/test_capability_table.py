"""The table of what a solve can do on several devices, in the docs, says what is so."""

import re

import pytest

from tests import capability_table
from tests.capability_table import CAPABILITIES, WAYS

pytestmark = pytest.mark.x64


def written() -> tuple[dict[tuple[str, str], list[str]], dict[str, str]]:
    """The cells of the table in the docs, and its notes."""
    text, cells = capability_table.WRITTEN.read_text(), {}
    for line in text.splitlines():
        row = [x.strip() for x in line.strip("|").split("|")]
        if row[0] in CAPABILITIES:
            cells |= {(row[0], way): said.split(", ") for way, said in zip(WAYS, row[1:], strict=True)}
    return cells, dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_cell(capability, way):
    cells, notes = written()
    for said, found in zip(cells[capability, way], capability_table.cell(capability, way), strict=True):
        number = re.fullmatch(r"no \((\d+)\)", said)
        assert found == (notes[number[1]] if number else said)


def test_no_cell_is_wrong():
    """Solutions are right and sharded everywhere; a gradient that is not there is refused in words of our own.

    Gradients of a `DAE` find its start in a loop over the members of all devices.
    """
    cells, notes = written()
    assert set(cells) == {(capability, way) for capability in CAPABILITIES for way in WAYS}
    assert all(solution == "yes" for solution, _ in cells.values())
    assert sorted(note.split(":")[0] for note in notes.values()) == ["2 collectives in loops", "TypeError"]
    assert any("The path of a jump process has no useful derivative" in note for note in notes.values())
