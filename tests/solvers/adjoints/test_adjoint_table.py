"""The table of adjoints and modes in the docs says what is so."""

import re

import pytest

from tests import adjoint_table

pytestmark = pytest.mark.x64


def written() -> tuple[dict[tuple[str, str, str], str], dict[str, str]]:
    """The cells of the table in the docs, by adjoint, loop and mode, and its notes."""
    cells, mode = {}, ""
    text = adjoint_table.WRITTEN.read_text()
    for line in text.splitlines():
        if line.startswith("**"):
            mode = line.strip("*")
        row = [x.strip() for x in line.strip("|").split("|")]
        if row[0].startswith("`") and len(row) == len(adjoint_table.LOOPS) + 1:
            cells |= {(row[0].strip("`"), loop, mode): said for loop, said in zip(adjoint_table.LOOPS, row[1:])}
    return cells, dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("adjoint", adjoint_table.ADJOINTS)
def test_every_cell(adjoint):
    cells, notes = written()
    for (name, loop, mode), said in cells.items():
        if name == adjoint and adjoint_table.sampled(said, adjoint, loop, mode):
            number = re.fullmatch(r"no \((\d+)\)", said)
            found = adjoint_table.cell(adjoint, loop, mode)
            expected = notes[number[1]] if number else said
            if "sciml" in expected or "adjoint" in expected or not number:
                assert found == expected, (loop, mode)
            else:  # JAX's own words change from version to version
                assert found.split(":")[0] == expected.split(":")[0], (loop, mode)
    assert len([key for key in cells if key[0] == adjoint]) == len(adjoint_table.LOOPS) * len(adjoint_table.MODES)
