"""The table of solvers, adjoints and ways to run members in the docs says what is so."""

import re

import pytest

from tests import sharding_table
from tests.adjoint_table import sampled

pytestmark = pytest.mark.x64


def written() -> tuple[dict[tuple[str, str, str], list[str]], dict[str, str]]:
    """The cells of the table in the docs, and its notes."""
    cells, engine = {}, ""
    text = sharding_table.WRITTEN.read_text()
    for line in text.splitlines():
        if line.startswith("**"):
            engine = line[2:-2]
        row = [x.strip() for x in line.strip("|").split("|")]
        if row[0].startswith("`") and len(row) == len(sharding_table.SOLVERS) + 1:
            for solver, said in zip(sharding_table.SOLVERS, row[1:]):
                cells[solver, row[0].strip("`"), engine] = said.split(", ")
    return cells, dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("solver", sharding_table.SOLVERS)
@pytest.mark.parametrize("engine", sharding_table.ENGINES)
def test_every_cell(solver, engine):
    cells, notes = written()
    first = next(iter(sharding_table.ENGINES))
    for adjoint in sharding_table.ADJOINTS:
        said = ", ".join(cells[solver, adjoint, engine])
        # what is refused however members run is refused before anything knows how: tried in one way, and in some others
        as_ever = engine != first and cells[solver, adjoint, engine] == cells[solver, adjoint, first]
        if not sampled("" if as_ever else said, solver, adjoint, engine):
            continue
        for said, found in zip(cells[solver, adjoint, engine], sharding_table.cell(solver, adjoint, engine)):
            number = re.fullmatch(r"no \((\d+)\)", said)
            expected = notes[number[1]] if number else said
            if "sciml" in expected or "adjoint" in expected or not number:
                assert found == expected, adjoint
            else:  # JAX's own words change from version to version
                assert found.split(":")[0] == expected.split(":")[0], adjoint


def test_no_cell_is_wrong():
    """What does not pass is refused."""
    _, notes = written()
    assert not [note for note in notes.values() if note.startswith("wrong")]
