"""Problems in PEtab, written here: likelihoods against formulas, gradients, conditions, rest, priors, and a fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sciml
from sciml import inference
from sciml.petab._fit import PEtabFit
from sciml.petab._priors import KINDS
from tests.models.networks.test_sbml import V, ap, ci, parameter, reaction, sbml, species

petab = pytest.importorskip("petab.v1")
pytestmark = pytest.mark.x64
LOG10 = np.log(10)

# A turns into B and back: all is known in closed form.
MODEL = sbml(
    compartments=V.replace('size="2"', 'size="1"'),
    species=species("A", 1) + species("B", 0),
    parameters=parameter("k1", 1) + parameter("k2", 1) + parameter("light", 1),
    reactions=reaction("there", [("A", 1)], [("B", 1)], ap("times", ci("light"), ci("k1"), ci("A")))
    + reaction("back", [("B", 1)], [("A", 1)], ap("times", ci("k2"), ci("B"))),
)
COLUMNS = "parameterId parameterScale lowerBound upperBound nominalValue estimate"
PARAMETERS = f"""{COLUMNS} objectivePriorType objectivePriorParameters
k1 log10 0.01 100 0.8 1 - -
k2 log10 0.01 100 0.6 1 parameterScaleNormal -0.2;0.5
gain lin 0.1 10 2.0 1 - -
noise log 0.001 10 0.1 1 normal 0.1;0.02
fixed lin 0 1 0.25 0 - -
"""
CONDITIONS = "conditionId light A\ndark fixed 1\nbright 2 -\nstart 1.5 2\n"
OBSERVABLES = """observableId observableFormula noiseFormula observableTransformation noiseDistribution
b observableParameter1_b*B noiseParameter1_b lin normal
a A+0.1 noiseParameter1_a*2 log10 laplace
share B/(A+B) 0.05 log normal
"""
OF_MEASUREMENTS = "observableId preequilibrationConditionId simulationConditionId measurement time"
MEASUREMENTS = f"""{OF_MEASUREMENTS} observableParameters noiseParameters
b dark bright 1.2 0 gain noise
b dark bright 1.5 1.5 gain 0.2
a dark bright 0.7 0.5 - noise
a - start 0.9 0.5 - 0.1
share - start 0.4 2 - -
share - start 0.5 inf - -
"""
YAML = """format_version: 1
parameter_file: parameters.tsv
problems:
- condition_files: [conditions.tsv]
  measurement_files: [measurements.tsv]
  observable_files: [observables.tsv]
  sbml_files: [model.xml]
"""


def written(folder, **changes):
    tables = dict(parameters=PARAMETERS, conditions=CONDITIONS, observables=OBSERVABLES, measurements=MEASUREMENTS)
    for name, text in (tables | changes).items():
        rows = [["" if cell == "-" else cell for cell in row.split()] for row in text.strip().splitlines()]
        (folder / f"{name}.tsv").write_text("\n".join(map("\t".join, rows)) + "\n")
    (folder / "model.xml").write_text(MODEL)
    (folder / "problem.yaml").write_text(YAML)
    return folder / "problem.yaml"


def exact_b(x, t, b0, total, light):
    """B at a time, with the rates of a vector of parameters."""
    k1, k2 = 10 ** x[0], 10 ** x[1]
    rate = light * k1 + k2
    rest = total * light * k1 / rate
    return rest + (b0 - rest) * jnp.exp(-rate * t)


def exact_terms(x):
    """The logarithm of each measurement's density, by the closed form."""
    gain, noise = x[2], jnp.exp(x[3])
    dark = exact_b(x, 1e3, 0.0, 1.0, 0.25)
    normal, laplace = jax.scipy.stats.norm.logpdf, jax.scipy.stats.laplace.logpdf
    start = [exact_b(x, t, 0.0, 2.0, 1.5) for t in (0.5, 2.0, 1e3)]
    bright = jnp.log10(1.1 - exact_b(x, 0.5, dark, 1.0, 2.0))
    return jnp.stack(
        [
            normal(1.2, gain * dark, noise),
            normal(1.5, gain * exact_b(x, 1.5, dark, 1.0, 2.0), 0.2),
            laplace(jnp.log10(0.7), bright, 2 * noise) - jnp.log(0.7 * LOG10),
            laplace(jnp.log10(0.9), jnp.log10(2.1 - start[0]), 0.2) - jnp.log(0.9 * LOG10),
            normal(jnp.log(0.4), jnp.log(start[1] / 2), 0.05) - jnp.log(0.4),
            normal(jnp.log(0.5), jnp.log(start[2] / 2), 0.05) - jnp.log(0.5),
        ]
    )


def test_likelihood_and_gradient_are_those_of_the_closed_form(tmp_path):
    """Rest before and after, doses, names and numbers for parameters, all kinds of noise; members side by side."""
    problem = sciml.petab.read_petab(written(tmp_path))
    assert problem.names == ("k1", "k2", "gain", "noise") and problem.scales == ("log10", "log10", "lin", "log")
    assert problem.conditions == ("dark", "bright", "start") and problem.times[-1] == np.inf
    np.testing.assert_allclose(problem.nominal, [np.log10(0.8), np.log10(0.6), 2.0, np.log(0.1)])
    xs = problem.nominal[None] + jnp.array([[0.0, 0, 0, 0], [0.1, -0.2, 0.3, 0.1]])

    @jax.jit
    def both(x):
        terms, back = jax.vjp(problem.pointwise, x)
        return terms, back(jnp.ones_like(terms))[0]

    terms, slopes = jax.vmap(both)(xs)
    np.testing.assert_allclose(terms, jax.vmap(exact_terms)(xs), atol=2e-5)
    wanted = jax.vmap(jax.grad(lambda x: exact_terms(x).sum()))(xs)
    np.testing.assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-4)


def test_rest_before_and_after_shares_one_loop_with_what_is_measured(tmp_path):
    """The program of a gradient has one loop more than without rest, over the two solves; it is nearly as long."""
    rows = [row for row in MEASUREMENTS.splitlines() if " inf " not in row]
    texts = []
    for measurements in ("\n".join(rows).replace(" dark bright ", " - dark "), MEASUREMENTS):
        problem = sciml.petab.read_petab(written(tmp_path, measurements=measurements))
        texts.append(jax.jit(jax.grad(problem.log_likelihood)).lower(problem.nominal).as_text())
    plain, with_rest = (text.count("stablehlo.while") for text in texts)
    assert with_rest == plain + 1
    assert texts[1].count("\n") < 1.2 * texts[0].count("\n")


def test_the_curvature_is_that_of_residuals_with_their_noise(tmp_path):
    """Value, gradient and curvature of what a fit makes least, beside those of the closed form."""
    rows = [OF_MEASUREMENTS + " observableParameters noiseParameters", "b - start 2.1 0.5 gain noise"]
    rows += ["a - start 0.9 0.5 - noise", "share - start 0.4 2 - -"]
    measurements, conditions = "\n".join(rows), "conditionId light A\nstart 1.5 2\n"
    problem = sciml.petab.read_petab(written(tmp_path, measurements=measurements, conditions=conditions))
    x, seen = problem.nominal, jnp.array([2.1, np.log10(0.9), np.log(0.4)])

    def terms(x):
        values = [exact_b(x, t, 0.0, 2.0, 1.5) for t in (0.5, 2.0)]
        predicted = jnp.stack([x[2] * values[0], jnp.log10(2.1 - values[0]), jnp.log(values[1] / 2)])
        return predicted, jnp.stack([x[3], x[3] + np.log(2), np.log(0.05)])

    def least(x):
        predicted, log_sigma = terms(x)
        r = (seen - predicted) * jnp.exp(-log_sigma)
        return jnp.sum(log_sigma + jnp.array([0.5 * r[0] ** 2, jnp.abs(r[1]), 0.5 * r[2] ** 2])) - problem.log_prior(x)

    found = jax.jit(problem.expansion)(x)
    constant = np.log(2 * np.pi) + np.log(2) + np.log(0.9 * LOG10) + np.log(0.4)
    np.testing.assert_allclose(found.value, least(x) + constant, atol=1e-4)
    np.testing.assert_allclose(found.gradient, jax.grad(least)(x), rtol=1e-4, atol=1e-3)
    (predicted, log_sigma), (slopes, spreads) = terms(x), jax.jacfwd(terms)(x)
    r, sigma = (seen - predicted) * jnp.exp(-log_sigma), jnp.exp(log_sigma)
    weights = jnp.array([1 + r[0] ** 2, 0.5 + 0.5 * jnp.abs(r[1]), 1 + r[2] ** 2])
    wanted = slopes.T @ (slopes / sigma[:, None] ** 2) + spreads.T @ (spreads * weights[:, None])
    # and the normal priors of k2, on its scale, and of the noise, which is estimated by its logarithm
    wanted = wanted + jnp.diag(jnp.array([0, 1 / 0.5**2, 0, 0.1 * (2 * 0.1 - 0.1) / 0.02**2]))
    np.testing.assert_allclose(found.curvature, wanted, rtol=1e-3, atol=1e-2)


def test_priors_are_those_of_petab(tmp_path):
    """Every kind on every scale, beside petab's own densities."""
    rows = PARAMETERS.splitlines()[0]
    for i, kind in enumerate(KINDS):
        scale = ("lin", "log", "log10")[i % 3]
        numbers = "-1;1.5" if "Uniform" in kind else "0.2;0.9"
        rows += f"\np{i} {scale} 0.1 8 0.5 1 {kind} {numbers}"
    rows += "\n" + "\n".join(PARAMETERS.splitlines()[1:])
    path = written(tmp_path, parameters=rows)
    problem = sciml.petab.read_petab(path)
    table = petab.Problem.from_yaml(path).parameter_df
    from petab.v1.priors import Prior

    x = problem.nominal
    expected = 0.0
    for name, value in zip(problem.names, np.asarray(x)):
        row = table.loc[name]
        if isinstance(row["objectivePriorType"], str):
            numbers = tuple(map(float, row["objectivePriorParameters"].split(";")))
            prior = Prior(row["objectivePriorType"], numbers, transformation=row["parameterScale"])
            on_scale = row["objectivePriorType"].startswith("parameterScale")
            expected += np.log(prior.pdf(value, x_scaled=True, rescale=on_scale))
    assert np.isfinite(expected)
    np.testing.assert_allclose(problem.log_prior(x), expected, rtol=1e-10)


def test_log_density_has_likelihood_and_draws(tmp_path):
    problem = sciml.petab.read_petab(written(tmp_path))
    density = problem.log_density()
    model = density.model
    np.testing.assert_allclose(density.log_likelihood(model), problem.log_likelihood(problem.nominal), rtol=1e-10)
    uniform = -np.log(4) - np.log(9.9)
    normal = scipy.stats.norm.logpdf(np.log10(0.6), -0.2, 0.5)
    noise = scipy.stats.norm.logpdf(0.1, 0.1, 0.02) + np.log(0.1)  # with the Jacobian of its logarithm
    np.testing.assert_allclose(density.log_prior(model), uniform + normal + noise, rtol=1e-10)
    drawn = density.predict(density.unconstrain(model), jax.random.key(0))
    assert drawn.shape == (6,) and np.all(np.isfinite(drawn)) and np.all(drawn[2:] > 0)


def test_a_fit_finds_what_made_the_data_and_its_noise(tmp_path):
    """Several starts side by side, with the noise unknown over five decades: the likeliest, from most of them."""
    rows = ["observableId simulationConditionId measurement time observableParameters noiseParameters"]
    times = np.linspace(0.2, 3.0, 8)
    rate = 1.5 * 0.8 + 0.6
    values = 2 * (2 * 1.5 * 0.8 / rate) * (1 - np.exp(-rate * times)) + 0.01 * np.cos(9 * times)
    rows += [f"b start {value} {t} 2 noise" for t, value in zip(times, values)]
    table = [COLUMNS, "k1 log10 0.01 100 0.8 1", "k2 log10 0.01 100 0.6 1", "noise log10 1e-4 10 0.1 1"]
    conditions = "conditionId light A\nstart 1.5 2\n"
    problem = sciml.petab.read_petab(
        written(tmp_path, measurements="\n".join(rows), parameters="\n".join(table), conditions=conditions)
    )
    drawn = np.asarray(problem.draw(jax.random.key(1), 5))
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    parts = np.floor((drawn - lower) / (upper - lower) * 5)
    np.testing.assert_array_equal(np.sort(parts, axis=0), np.arange(5.0)[:, None] * np.ones(3))  # a Latin hypercube

    found = problem.fit(starts=5, key=jax.random.key(0))
    np.testing.assert_allclose([found.parameters[n] for n in ("k1", "k2")], [0.8, 0.6], rtol=0.05)
    assert found.reached(1e-3) >= 3 and np.all(np.diff(found.log_posteriors) <= 0) and found.xs.shape == (5, 3)
    assert found.converged[:3].all()
    # where the likelihood of normal noise is largest, its scale is that of the residuals
    sigma = found.parameters["noise"]
    np.testing.assert_allclose(np.mean(np.asarray(problem.residuals(jnp.asarray(found.x))) ** 2), 1.0, rtol=1e-3)
    np.testing.assert_allclose(found.log_posterior, -8 * (0.5 + np.log(sigma * np.sqrt(2 * np.pi))), rtol=1e-4)
    assert found.plot().get_ylabel()
    (ax,) = problem.plot(found.x)
    line, points = ax.lines
    np.testing.assert_allclose(line.get_ydata(), problem.predict(jnp.asarray(found.x))[0])
    np.testing.assert_allclose(points.get_ydata(), values)
    band = ax.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose(band.y1, line.get_ydata().max() + sigma, rtol=1e-6)


def test_a_fit_is_written_for_pypesto(tmp_path):
    h5py = pytest.importorskip("h5py")
    fit = PEtabFit(
        x=np.array([1.0, 2.0]),
        xs=np.array([[1.0, 2.0], [0.0, 1.0]]),
        log_posteriors=np.array([-3.0, -np.inf]),
        starts=np.zeros((2, 2)),
        n_steps=np.array([4, 0]),
        converged=np.array([True, False]),
        parameters={"a": 10.0, "b": 100.0},
        names=("a", "b"),
    )
    fit.to_hdf5(tmp_path / "fit.h5")
    with h5py.File(tmp_path / "fit.h5") as file:
        group = file["optimization/results/0"]
        np.testing.assert_array_equal(group["x"][:], fit.x)
        assert {"id": "0", "fval": 3.0, "exitflag": 0, "n_fval": 5}.items() <= dict(group.attrs).items()
        assert file["optimization/results/1"].attrs["fval"] == np.inf
    with pytest.raises(FileExistsError):
        fit.to_hdf5(tmp_path / "fit.h5")


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            dict(conditions="conditionId light A\ndark lamp 1\nbright 2 -\nstart 1.5 2"),
            "`lamp`, which is not a parameter",
        ),
        (dict(conditions="conditionId light A\ndark light 1\nbright 2 -\nstart 1.5 2"), "is `light`, which is itself"),
        (
            dict(conditions="conditionId lights A\ndark 1 1\nbright 2 -\nstart 1.5 2"),
            "`lights`, which is neither a constant",
        ),
        (dict(observables=OBSERVABLES.replace("A+0.1", "AA+0.1")), "contains `AA`, which is not part of the model"),
        (dict(observables=OBSERVABLES.replace("A+0.1", "(A+0.1")), "column 7: expected `\\)`"),
        (dict(observables=OBSERVABLES.replace("laplace", "cauchy")), "`cauchy`, but must be one of normal, laplace"),
        (
            dict(measurements=MEASUREMENTS.replace("a - start 0.9 0.5 - 0.1", "a - start 0.9 0.5 - -")),
            "does not provide a value for",
        ),
        (
            dict(measurements=MEASUREMENTS.replace("a - start", "a - begin")),
            "refers to `begin`, which is not a condition",
        ),
    ],
)
def test_problems_that_cannot_be_read(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        sciml.petab.read_petab(written(tmp_path, **changes))


def test_other_bad_input(tmp_path):
    path = written(tmp_path)
    problem = sciml.petab.read_petab(path)
    with pytest.raises(ValueError, match=r"`x` must have shape \(4,\)"):
        problem.log_likelihood(jnp.ones(3))
    with pytest.raises(ValueError, match="requires `key"):
        problem.fit(starts=2)
    with pytest.raises(ValueError, match=r"`data` must have shape \(6,\)"):
        problem.with_data(jnp.ones(3))
    observe, effects = lambda model, effects, subject: inference.Normal(0.0, 1.0), lambda m: inference.Normal(0.0, 1.0)
    for options in (dict(model=problem), dict(data=problem), dict(observe=problem)):
        options = dict(model={}, observe=observe, data=jnp.ones((2, 3)), priors=[], effects=effects) | options
        with pytest.raises(TypeError, match=r"is a PEtabProblem, which has no subjects.* with a row for each subject"):
            inference.hierarchical(**options)
    path.write_text(YAML.replace("format_version: 1", "format_version: 3.0.0"))
    with pytest.raises(ValueError, match="PEtab version 3.0.0, but only versions 1 and 2"):
        sciml.petab.read_petab(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        sciml.petab.read_petab(tmp_path / "none.yaml")
