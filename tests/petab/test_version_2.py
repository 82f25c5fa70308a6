"""Problems in PEtab of version 2: periods, conditions with expressions, placeholders and truncated priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sciml
from sciml.petab._priors import log_prior_of, truncated_prior
from sciml.petab._read import read_tables
from sciml.petab._tables import EstimatedParameter
from tests.models.networks.test_sbml import ap, ci, math, parameter, sbml

pytest.importorskip("petab.v2")
pytestmark = pytest.mark.x64

MODEL = sbml(
    parameters=parameter("x", 1, "false") + parameter("k", 1, "false"),
    rules=f'<rateRule variable="x">{math(ap("minus", ap("times", ci("k"), ci("x"))))}</rateRule>',
)
TABLES = dict(
    parameters="""parameterId lowerBound upperBound nominalValue estimate priorDistribution priorParameters
        k 0 10 0.7 true log-normal 0;1
        x0 0 10 1.5 true - -
        gain 0 10 2 false - -""",
    conditions="""conditionId targetId targetValue
        start x 2*x0
        more x x+3
        faster k 2*k""",
    experiments="""experimentId time conditionId
        e 0.5 start
        e 1.5 more
        e 1.5 faster""",
    measurements="""observableId experimentId time measurement observableParameters noiseParameters
        o e 1.0 2.0 gain 0.1
        o e 1.5 8.0 3 0.2
        o e 2.5 1.0 gain 0.2
        o - 1.0 1.0 gain 0.1""",
    observables="observableId observableFormula noiseFormula noiseDistribution observablePlaceholders noisePlaceholders"
    """
        o scale*x sigma log-normal scale sigma""",
)
YAML = """format_version: 2.0.0
model_files: {model: {language: sbml, location: model.xml}}
"""


def written(folder, **other):
    for name, text in (TABLES | other).items():
        rows = [["" if cell == "-" else cell for cell in row.split()] for row in text.splitlines()]
        (folder / f"{name}.tsv").write_text("\n".join(map("\t".join, rows)) + "\n")
    (folder / "model.xml").write_text(MODEL)
    keys = [f"{name.removesuffix('s')}_files: [{name}.tsv]\n" for name in TABLES]
    (folder / "problem.yaml").write_text(YAML + "".join(keys))
    return folder / "problem.yaml"


def exact(x):
    """The logarithm of likelihood times prior."""
    k, x0 = x
    first = 2 * x0 * jnp.exp(-0.5 * k)
    second = 2 * x0 * jnp.exp(-k) + 3
    values = jnp.stack([2 * first, 3 * second, 2 * second * jnp.exp(-2 * k), 2 * jnp.exp(-k)])
    data, sigma = jnp.array([2.0, 8.0, 1.0, 1.0]), jnp.array([0.1, 0.2, 0.2, 0.1])
    density = jax.scipy.stats.norm.logpdf(jnp.log(data), jnp.log(values), sigma) - jnp.log(data)
    prior = jax.scipy.stats.norm.logpdf(jnp.log(k)) - jnp.log(k) - np.log(scipy.stats.norm.cdf(np.log(10)))
    return density.sum() + prior - np.log(10.0)


def test_periods_and_expressions(tmp_path):
    """A start that is no zero and set by a parameter, two conditions at one time, no experiment: the closed form."""
    problem = sciml.petab.read_petab(written(tmp_path))
    assert problem.names == ("k", "x0") and problem.scales == ("lin", "lin")
    assert problem.conditions == ("no experiment", "e")
    value, slope = jax.jit(jax.value_and_grad(problem.log_posterior))(problem.nominal)
    wanted, right = jax.value_and_grad(exact)(problem.nominal)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(slope, right, rtol=1e-4)


def test_experiments_of_one_simulation_are_conditions(tmp_path):
    """Numbers and parameters are cells of conditions, so that the model needs no events; an expression needs them."""
    other = dict(
        conditions="""conditionId targetId targetValue
            slow k 0.5
            start x x0""",
        experiments="""experimentId time conditionId
            e -inf slow
            e 2 start
            f 0 start""",
        measurements="""observableId experimentId time measurement observableParameters noiseParameters
            o e 3 2.0 gain 0.1
            o f 1 1.0 gain 0.1""",
    )
    tables = read_tables(written(tmp_path, **other))
    wanted = {"e before": {"k": 0.5}, "e": {"x": "x0"}, "f": {"x": "x0"}}
    found = {name: {k: v for k, v in cells.items() if v == v} for name, cells in tables.conditions.items()}
    assert found == wanted and all(cells.keys() == {"k", "x"} for cells in tables.conditions.values())
    assert [m.before for m in tables.measurements] == ["e before", ""] and tables.starts == {"e": 2.0, "f": 0.0}
    assert "<event" not in tables.sbml
    other["conditions"] = other["conditions"].replace("x0", "x+x0")
    assert "<event" in read_tables(written(tmp_path, **other)).sbml


@pytest.mark.parametrize(
    "kind, numbers, density",
    [
        ("normal", (4.0, 2.0), scipy.stats.norm(4.0, 2.0)),
        ("log-laplace", (1.0, 0.5), scipy.stats.loglaplace(2.0, scale=np.exp(1.0))),
        ("log-uniform", (0.5, 5.0), scipy.stats.loguniform(0.5, 5.0)),
        ("uniform", (2.0, 8.0), scipy.stats.uniform(2.0, 6.0)),
        ("chisquare", (4.0,), scipy.stats.chi2(4.0)),
        ("exponential", (3.0,), scipy.stats.expon(scale=3.0)),
        ("gamma", (3.0, 5.0), scipy.stats.gamma(3.0, scale=5.0)),
        ("rayleigh", (3.0,), scipy.stats.rayleigh(scale=3.0)),
        ("cauchy", (3.0, 5.0), scipy.stats.cauchy(3.0, 5.0)),
    ],
)
def test_priors_are_normalised_between_bounds(kind, numbers, density):
    row = EstimatedParameter("p", "lin", 1.0, 4.0, 3.0, True, truncated_prior(kind, numbers, 1.0, 4.0))
    wanted = density.logpdf(3.0) - np.log(density.cdf(4.0) - density.cdf(1.0))
    np.testing.assert_allclose(log_prior_of(row, jnp.asarray(3.0)), wanted, rtol=1e-12)


def test_an_unknown_prior():
    with pytest.raises(ValueError, match="the prior `beta` is not supported; supported priors are normal, laplace,"):
        truncated_prior("beta", (1.0, 2.0), 0.0, 1.0)
