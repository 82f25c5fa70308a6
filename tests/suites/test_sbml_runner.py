"""The runner of the SBML Test Suite, on cases that are written here."""

import pytest

from . import sbml
from .outcomes import Outcome, counts

pytest.importorskip("sbmlode")

_MODEL = """<?xml version="1.0"?>
<sbml xmlns="http://www.sbml.org/sbml/level3/version2/core" level="3" version="2"><model id="m">
  <listOfCompartments><compartment id="C" size="2" constant="true"/></listOfCompartments>
  <listOfSpecies><species id="S" compartment="C" initialConcentration="3" hasOnlySubstanceUnits="false"
    boundaryCondition="false" constant="false"/></listOfSpecies>
  <listOfRules><{rule}><math xmlns="http://www.w3.org/1998/Math/MathML"><cn>1</cn></math></{end}></listOfRules>
</model></sbml>"""


def write(folder, name, last, rule='rateRule variable="S"', test_type="TimeCourse"):
    case = folder / name
    case.mkdir()
    (case / f"{name}-sbml-l3v2.xml").write_text(_MODEL.format(rule=rule, end=rule.split()[0]))
    (case / f"{name}-model.m").write_text(f"testType: {test_type}\ncomponentTags: Species\n")
    (case / f"{name}-settings.txt").write_text(
        "start: 0\nduration: 2\nsteps: 1\nvariables: S, C\nabsolute: 1e-6\nrelative: 1e-6\namount: S\nconcentration:\n"
    )
    (case / f"{name}-results.csv").write_text(f"time,S,C\n0,6,2\n2,{last},2\n")


def test_outcomes(tmp_path, monkeypatch):
    """An amount of a concentration; a case with another value, one that is refused, and one that is no time course."""
    monkeypatch.setattr(sbml, "_Worker", _Here)
    write(tmp_path, "00001", 10)
    write(tmp_path, "00002", 10.1)
    write(tmp_path, "00003", 10, "algebraicRule")
    write(tmp_path, "00004", 10, test_type="Steady")
    found = sbml.run(tmp_path)
    assert [x.case for x in found] == ["00001", "00002", "00003"]
    assert counts(found) == {"passed": 1, "refused": 1, "wrong": 1}
    assert found[1].why.startswith("S at t=2 is 10, right is 10.1 (1 of 2 rows)")
    with pytest.raises(ValueError, match="`outcome` must be one of"):
        Outcome("00001", "skipped")  # type: ignore[arg-type]


class _Here:
    """A worker that runs cases in this process."""

    def __init__(self, folder, level):
        self.folder, self.level = folder, level

    def outcome(self, name, limit):
        return sbml.outcome(self.folder / name, self.level)

    def stop(self):
        pass


@pytest.mark.parametrize("limit, why", [(0.0, "no result within 0 s"), (60.0, "the worker process ended")])
def test_a_worker_that_does_not_answer(tmp_path, limit, why):
    worker = sbml._Worker(tmp_path, "l3v2")
    worker.command = ["sleep", "60"] if not limit else ["true"]
    assert worker.outcome("00001", limit) == Outcome("00001", "wrong", why)
