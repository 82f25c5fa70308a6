"""Tables in the conventions of NONMEM: every column, and the row and column of what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import pharmacology as pk

TABLE = """# a study
ID,TIME,AMT,RATE,EVID,CMT,ADDL,II,SS,MDV,CONC,WT,BLQ,LLOQ
7,0,100,0,1,1,2,12,0,1,.,70,0,.
7,0,.,.,0,2,.,.,.,0,0.1,70,1,0.2
7,12,0,0,0,2,0,0,0,0,3.5,70,0,0.2
7,30,.,.,2,.,.,.,.,1,.,80,.,.
7,36,0,0,0,2,0,0,0,0,.,80,0,0.2
7,40,50,25,4,2,0,0,0,1,.,80,0,.
7,41,.,.,0,2,.,.,.,0,1.5,80,0,0.2
A-2,0,.,.,0,2,.,.,.,0,0,55,0,0.2
A-2,0,60,-2,1,1,0,12,1,1,.,55,0,.
A-2,24,.,.,0,2,.,.,.,0,2.5,.,0,0.2
"""


@pytest.fixture
def population(tmp_path):
    path = tmp_path / "study.csv"
    path.write_text(TABLE)
    with pytest.warns(UserWarning, match="`WT` of `covariates` changes within a subject, and `subject.covariates` has"):
        return pk.read_nonmem(path, covariates=["WT"], names={"conc": "DV"})


def test_a_table_of_two_subjects(population):
    assert population.ids == (7, "A-2")
    np.testing.assert_allclose(population.times, [[0, 12, 36, 41], [0, 24, 24, 24]])
    np.testing.assert_allclose(population.dv, [[0.2, 3.5, np.nan, 1.5], [0, 2.5, np.nan, np.nan]], rtol=1e-6)
    np.testing.assert_array_equal(population.before, [[0, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(population.censored, [[1, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(population.lloq[0], 0.2, rtol=1e-6)
    assert np.all(population.cmt[0] == 2)
    np.testing.assert_allclose(population.covariates["WT"], [70, 55])
    doses = population.doses
    np.testing.assert_allclose(doses.times, [[0, 12, 24, 40], [0, np.inf, np.inf, np.inf]])
    np.testing.assert_allclose(doses.amounts, [[100, 100, 100, 50], [60, 0, 0, 0]])
    np.testing.assert_allclose(doses.durations, [[0, 0, 0, 2], [np.nan, 0, 0, 0]])
    assert doses.resets[1].tolist() == [[2], [1]] and doses.resets[0].tolist() == [[3], [0]]


def test_subjects_are_lanes(population):
    """Beside tables written by hand; the duration of one infusion is a parameter."""
    drug = pk.Compartments(cl=2.0, v1=10.0, ka=1.0)

    def levels(subject):
        doses = subject.doses.modified(duration=3.0)
        return drug.concentration(pk.solve_doses(drug, doses, subject.times, before=subject.before))

    found = jax.jit(jax.vmap(levels))(population)
    doses = pk.Doses([0.0, 12.0, 24.0, 40.0], [100.0, 100.0, 100.0, 50.0], cmt=[1, 1, 1, 2], duration=[0, 0, 0, 2.0],
                     reset=[0, 0, 0, 1])  # fmt: skip
    first = drug.concentration(pk.solve_doses(drug, doses, population.times[0]))
    np.testing.assert_allclose(found[0], first, rtol=1e-5)
    usual = pk.Doses(0.0, 60.0, duration=3.0, ss=True, ii=12.0)
    second = pk.solve_doses(drug, usual, jnp.array([0.0, 24.0]), before=jnp.array([True, False]))
    np.testing.assert_allclose(found[1, 1], drug.concentration(second)[1], rtol=1e-5)
    np.testing.assert_allclose(found[1, 0], 0.0, atol=1e-6)
    np.testing.assert_allclose(levels(population[0]), first, rtol=1e-5)


def test_covariates_in_steps(population, tmp_path):
    """As NONMEM, the next value from the previous row on; and, as others, each value until the next."""
    path = tmp_path / "study.csv"
    with pytest.warns(UserWarning, match="`wt` of `covariates` changes"):
        later = pk.read_nonmem(str(path), covariates=["wt"], names={"CONC": "dv"}, steps="locf")
    for read, name, before in ((population, "WT", 12.0), (later, "wt", 30.0)):
        held = read[0].held()
        assert held(before - 0.5)[name] == 70 and held(before + 0.5)[name] == 80
        assert read[1].held()(50.0)[name] == 55


def test_times_that_start_again_after_a_reset():
    table = {"ID": [1] * 4, "TIME": [0, 24, 0, 2], "AMT": [9, 0, 9, 0], "EVID": [1, 0, 4, 0], "DV": [0, 1, 0, 2]}
    found = pk.read_nonmem(table)
    np.testing.assert_allclose(found.times, [[24, 26]])
    np.testing.assert_allclose(found.doses.times, [[0, 24]])
    np.testing.assert_array_equal(found.before, [[True, False]])


def test_other_separators_and_limits_by_cens(tmp_path):
    path = tmp_path / "spaces.dat"
    path.write_text("ID TIME AMT DV CENS\n1 0 10 . 0\n1 1 . 0.5 1\n1 2 0 NA 0\n")
    found = pk.read_nonmem(path)
    np.testing.assert_allclose(found.dv, [[0.5, np.nan]])
    np.testing.assert_array_equal(found.censored, [[True, False]])
    assert found.lloq[0, 0] == 0.5 and found.doses.durations is None and found.doses.resets is None


BASE = {"ID": [1, 1], "TIME": [0.0, 1.0], "AMT": [10.0, 0.0], "DV": [0.0, 2.0]}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"AMT": ["10mg", 0]}, r"row 1, column `AMT`: '10mg' is not a number"),
        ({"AMT": [-1, 0]}, r"row 1, column `AMT`: a dose must be positive, but is -1"),
        ({"TIME": [0, "."]}, r"row 2, column `TIME`: the time is missing"),
        ({"TIME": [1, 0.5]}, r"row 2, column `TIME`: 0.5 is before the time of the previous row"),
        ({"EVID": [1, 5]}, r"row 2, column `EVID`: 5 is not an integer from 0 to 4"),
        ({"CMT": [0, 1]}, r"row 1, column `CMT`: 0 is not an integer at least 1"),
        ({"ADDL": [2, 0]}, r"row 1, column `II`: ADDL and SS require a positive dosing interval"),
        ({"EVID": [0, 0]}, r"row 1, column `AMT`: the amount is 10, but EVID=0 is not a dose; write EVID=1"),
        ({"AMT": [0, 0], "RATE": [5, 0], "SS": [1, 0], "EVID": [1, 0]}, r"row 1, column `AMT`: a constant infusion"),
        ({"BLQ": [0, 1], "DV": [0, 0]}, r"row 2, column `DV`: the limit of quantification must be positive, but is 0"),
        ({"CENS": [0, 1], "LIMIT": [".", 0]}, r"row 2, column `LIMIT`: 0, the lower end of an interval, is not supp"),
        ({"SS": [3, 0], "II": [12, 0]}, r"row 1, column `SS`: 3 is not supported"),
        ({"SS": [2, 0], "II": [12, 0], "EVID": [4, 0]}, r"row 1, column `SS`: 2 with EVID=4 is not supported"),
        ({"RATE": [-3, 0]}, r"row 1, column `RATE`: -3 is not a rate"),
        ({"MDV": [1, 2]}, r"row 2, column `MDV`: 2 is not an integer from 0 to 1"),
        ({"BLQ": [0, 1], "DV": [0, "."]}, r"row 2, column `BLQ`: the limit of quantification is missing"),
        ({"CENS": [0, -1]}, r"row 2, column `CENS`: -1, a measurement above a limit, is not supported"),
        ({"ID": ["", 1]}, r"row 1, column `ID`: the subject is missing"),
        ({"TIME": [0.0]}, r"columns must have equal lengths"),
        ({"dv": [0, 1]}, r"several columns `DV`"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        pk.read_nonmem(BASE | change)


def test_what_is_wrong_with_the_table_is_named(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("ID,TIME,DV\n1,0,1\n1,1\n")
    with pytest.raises(ValueError, match="row 3 has 2 values, but the table has 3 columns"):
        pk.read_nonmem(path)
    path.write_text("ID,TIME,DV\n")
    with pytest.raises(ValueError, match="the table has no rows"):
        pk.read_nonmem(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="has no header"):
        pk.read_nonmem(path)
    with pytest.raises(ValueError, match="the table has no column `WT`, but ID, TIME, AMT, DV"):
        pk.read_nonmem(BASE, covariates=["WT"])
    with pytest.raises(ValueError, match="`names` mentions the column `CONC`"):
        pk.read_nonmem(BASE, names={"conc": "DV"})
    with pytest.raises(ValueError, match='`steps` must be "nocb" or "locf"'):
        pk.read_nonmem(BASE, steps="linear")
    with pytest.raises(TypeError, match="must be a path or a mapping"):
        pk.read_nonmem([1, 2])
    with pytest.raises(ValueError, match="rows of subject 1 do not follow each other"):
        pk.read_nonmem({"ID": [1, 2, 1], "TIME": [0, 0, 1], "DV": [0, 0, 0]})
    with pytest.raises(ValueError, match="row 2, column `TIME`: a measurement between two doses"):
        pk.read_nonmem({"ID": [1] * 3, "TIME": [0] * 3, "AMT": [1, 0, 1], "DV": [0, 1, 0]})


def test_a_population_is_printed_in_a_line(population):
    assert repr(population) == "Population(2 subjects, 5 doses, 5 measurements (1 below the limit), covariates WT)"
    assert str(population[1]) == "Population(one subject, 1 doses, 2 measurements, covariates WT)"
    assert "ids=" in repr(jax.eval_shape(lambda x: x, population))


def test_steps_of_unequal_numbers():
    table = {"ID": [1] * 4 + [2] * 2, "TIME": [0, 1, 2, 3, 0, 1], "DV": [1] * 6, "WT": [70, 71, 72, 73, 80, 80]}
    with pytest.warns(UserWarning, match="`WT`"):
        found = pk.read_nonmem(table, covariates=["WT"])
    assert found[1].held().ts.shape == (1,) and found[1].held()(9.0)["WT"] == 80
    own = jax.vmap(lambda s: jax.vmap(s.held())(jnp.nextafter(s.times, -jnp.inf))["WT"])(found)
    np.testing.assert_allclose(own, [[71, 71, 72, 73], [80, 80, 80, 80]])  # of each row after the first
