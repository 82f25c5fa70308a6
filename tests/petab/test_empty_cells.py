"""Empty cells of the table of conditions, and the precision that nobody chose: values against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.models.networks.test_sbml import V, ap, ci, cn, math, parameter, reaction, sbml, species
from tests.petab.test_petab import COLUMNS, exact_b, written

pytest.importorskip("petab.v1")
PARAMETERS = f"{COLUMNS}\nk1 log10 0.01 100 0.8 1\nk2 log10 0.01 100 0.6 1\n"
OBSERVABLES = "observableId observableFormula noiseFormula\nb B 1\n"
HEAD = "observableId preequilibrationConditionId simulationConditionId measurement time\n"


def predictions(problem):
    return jax.jit(lambda x: problem.predict(x)[0])


def test_an_empty_cell_is_the_value_of_the_model(tmp_path):
    """Of a parameter and of a state, in the default precision; derivatives by rates as well."""
    conditions = "conditionId light A\nfull 1.5 2\nstate - 2\nrate 1.5 -\nnone - -\n"
    measurements = HEAD + "".join(f"b - {name} 0 0.5\n" for name in ("full", "state", "rate", "none"))
    tables = dict(parameters=PARAMETERS, conditions=conditions, observables=OBSERVABLES, measurements=measurements)
    problem = sciml.petab.read_petab(written(tmp_path, **tables))
    assert problem.nominal.dtype == jnp.result_type(float)

    def exact(x):
        cases = ((2.0, 1.5), (2.0, 1.0), (1.0, 1.5), (1.0, 1.0))
        return jnp.stack([exact_b(x, 0.5, 0.0, total, light) for total, light in cases])

    x, predict = problem.nominal, lambda x: problem.predict(x)[0]
    found, slopes = jax.jit(lambda x: (predict(x), jax.jacfwd(predict)(x)))(x)
    np.testing.assert_allclose(found, exact(x), rtol=1e-5)
    np.testing.assert_allclose(slopes, jax.jacfwd(exact)(x), rtol=1e-4, atol=1e-6)


def test_an_own_start_follows_the_parameters_of_the_same_condition(tmp_path):
    """A(0) = 3 light is a formula of what a condition sets, as is C = 2 light; a cell may name a parameter."""
    start = f'<initialAssignment symbol="A">{math(ap("times", cn(3), ci("light")))}</initialAssignment>'
    start += f'<initialAssignment symbol="C">{math(ap("times", cn(2), ci("light")))}</initialAssignment>'
    model = sbml(
        compartments=V.replace('size="2"', 'size="1"'),
        species=species("A", 1) + species("B", 0),
        parameters=parameter("spare", 7) + "".join(parameter(name, 1) for name in ("k1", "k2", "light", "C")),
        initial=start,
        reactions=reaction("there", [("A", 1)], [("B", 1)], ap("times", ci("k1"), ci("A"))),
    )
    conditions = "conditionId light A C\nset 0.5 5 spare\nown 0.5 - -\nmodel - - -\n"
    measurements = HEAD + "".join(f"b - {name} 0 0.5\n" for name in ("set", "own", "model"))
    measurements += "".join(f"c - {name} 0 0.5\n" for name in ("set", "own", "model"))
    tables = dict(parameters=PARAMETERS, conditions=conditions, observables=OBSERVABLES + "c C 1\n")
    path = written(tmp_path, **tables, measurements=measurements)
    (tmp_path / "model.xml").write_text(model)
    problem = sciml.petab.read_petab(path)
    grown = 1 - np.exp(-0.8 * 0.5)
    expected = [5 * grown, 1.5 * grown, 3 * grown, 7.0, 1.0, 2.0]  # `spare` is 7
    np.testing.assert_allclose(predictions(problem)(problem.nominal), expected, rtol=1e-5)


def test_a_state_goes_on_where_a_condition_comes_before(tmp_path):
    """The empty cell of A leaves what `dark` ended with, and in `dark` itself, which comes first, the model's start."""
    conditions = "conditionId light A\ndark 0.25 -\nbright 2 -\nagain 2 3\n"
    measurements = HEAD + "b dark bright 0 0.5\nb - bright 0 0.5\nb - again 0 0.5\n"
    tables = dict(parameters=PARAMETERS, conditions=conditions, observables=OBSERVABLES, measurements=measurements)
    problem = sciml.petab.read_petab(written(tmp_path, **tables))
    x = problem.nominal
    dark = exact_b(x, 1e3, 0.0, 1.0, 0.25)
    expected = [
        exact_b(x, 0.5, dark, 1.0, 2.0),
        exact_b(x, 0.5, 0.0, 1.0, 2.0),
        exact_b(x, 0.5, 0.0, 3.0, 2.0),
    ]
    np.testing.assert_allclose(predictions(problem)(x), expected, rtol=1e-5)
