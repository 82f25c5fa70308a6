"""Profiles of PEtab problems, against lines whose likelihood is a parabola and against fits of a closed form."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import sciml
from tests.petab.test_petab import COLUMNS, exact_b, written

pytest.importorskip("petab.v1")
pytestmark = pytest.mark.x64

THRESHOLD = scipy.stats.chi2.ppf(0.95, 1)
TIMES = np.linspace(0.2, 3.0, 8)
NOISE = 0.02 * np.cos(9 * TIMES)
CONDITIONS = "conditionId light A\nstart 1.5 2\n"
OBSERVABLES = "observableId observableFormula noiseFormula\nb gain*B+offset 0.02\n"
B = np.asarray(exact_b(jnp.log10(jnp.array([0.8, 0.6])), jnp.asarray(TIMES), 0.0, 2.0, 1.5))
DATA = 2 * B + 0.3 + NOISE


def problem(folder, *parameters):
    measurements = ["observableId simulationConditionId measurement time"]
    measurements += [f"b start {value!r} {t!r}" for value, t in zip(DATA.tolist(), TIMES.tolist())]
    tables = dict(parameters="\n".join([COLUMNS, *parameters]), measurements="\n".join(measurements))
    path = written(folder, conditions=CONDITIONS, observables=OBSERVABLES, **tables)
    return sciml.petab.read_petab(path)


def test_profiles_of_a_line_are_parabolas_that_bounds_cut(tmp_path):
    """The offset ends at its upper bound: its interval does, and the gain is fitted with it there."""
    design = np.stack([B, np.ones_like(B)], axis=1)
    best, error = np.linalg.lstsq(design, DATA)[0], 0.02 * np.sqrt(np.diagonal(np.linalg.inv(design.T @ design)))
    bound = best[1] + 1.2 * error[1]
    rates = "k1 lin 0.1 10 0.8 0", "k2 lin 0.1 10 0.6 0"
    of = problem(tmp_path, *rates, "gain lin 0.1 10 1.7 1", f"offset lin -5 {bound} 0 1")
    found = of.profile(n=12, tolerance=1e-8)
    np.testing.assert_allclose(found.best, best, rtol=1e-5)

    def deviance(gain):
        offset = min(np.mean(DATA - gain * B), bound)
        misfit = [np.sum((DATA - gain * B - offset) ** 2) for gain, offset in ((gain, offset), best)]
        return (misfit[0] - misfit[1]) / 0.02**2

    assert np.mean(DATA - (best[0] - 1.96 * error[0]) * B) > bound  # so that the bound cuts both
    ends = [(best[0] - 5 * error[0], best[0]), (best[0], best[0] + 5 * error[0])]
    exact = [scipy.optimize.brentq(lambda gain: deviance(gain) - THRESHOLD, *pair) for pair in ends]
    np.testing.assert_allclose(found.intervals[0], exact, rtol=1e-4)  # by splines, over the kink
    np.testing.assert_allclose(found.intervals[1], [best[1] - np.sqrt(THRESHOLD) * error[1], bound], rtol=1e-4)
    assert found.names == ("gain", "offset") and found.open_ended == ("offset",)
    assert np.nanmax(found.values[1]) == bound


def test_a_profile_of_a_rate_is_that_of_fits_of_the_closed_form(tmp_path):
    known = "gain lin 0.1 10 2.0 0", "offset lin -5 5 0.3 0"
    of = problem(tmp_path, "k1 log10 0.01 100 0.8 1", "k2 log10 0.01 100 0.6 1", *known)
    fit = of.fit(starts=jnp.array([[-0.5, -0.5], [0.5, 0.2]]), rtol=1e-10)
    assert fit.reached(1e-6) == 2 and fit.starts.shape == (2, 2)
    found = of.profile("k2", found=fit, n=10, tolerance=1e-6)

    def misfit(x):
        residuals = (DATA - 2 * exact_b(jnp.asarray(x), jnp.asarray(TIMES), 0.0, 2.0, 1.5) - 0.3) / 0.02
        return float(jnp.sum(residuals**2))

    def fitted(value):
        return scipy.optimize.minimize_scalar(lambda k1: misfit([k1, value]), bounds=(-1, 1), options={"xatol": 1e-9})

    there = np.isfinite(found.values[0])
    exact = [fitted(value).fun - misfit(fit.x) for value in found.values[0][there]]
    assert there.sum() > 8 and max(exact) > THRESHOLD
    np.testing.assert_allclose(found.deviances[0][there], exact, atol=2e-4)
    ends = [(found.best[0] - 1, found.best[0]), (found.best[0], found.best[0] + 1)]
    exact = [scipy.optimize.brentq(lambda v: fitted(v).fun - misfit(fit.x) - THRESHOLD, *pair) for pair in ends]
    np.testing.assert_allclose(found.intervals[0], exact, atol=1e-3)
    assert found.plot()[0].get_xlabel() == "k2"
    with pytest.warns(UserWarning, match=r"rises .* above the given maximum. Find a better .*`problem.fit"):
        of.profile("k2", found=dataclasses.replace(fit, x=np.array([-0.4, -0.6])), n=10, tolerance=1e-6)


def test_bad_input(tmp_path):
    of = problem(
        tmp_path, "k1 log10 0.01 100 0.8 1", "k2 log10 0.01 100 0.6 1", "gain lin 0.1 10 2.0 0", "offset lin -5 5 0.3 0"
    )
    with pytest.raises(ValueError, match="`k3` is no estimated parameter; these are k1, k2"):
        of.profile("k3")
    with pytest.raises(ValueError, match=r"`profile\(level=...\)` must be between 0 and 1, but is 95.0"):
        of.profile("k1", level=95)
    with pytest.raises(ValueError, match=r"`profile\(tolerance=...\)` must be positive"):
        of.profile("k1", tolerance=0)
    with pytest.raises(ValueError, match=r"initial points of shape \(starts, 2\), but has the shape \(4, 3\)"):
        of.fit(starts=jnp.zeros((4, 3)))
