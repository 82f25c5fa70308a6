"""Indices of Sobol' and effects of Morris beside those of SALib, where it is installed: growth by three parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inference, parallel

BOUNDS = [[0.4, 1.2], [5.0, 15.0], [0.2, 1.0]]
MODEL = {"law": sciml.models.Logistic(rate=1.0, capacity=10.0), "start": jnp.array(0.5)}
RANGES = [
    (lambda m: m["law"].rate, *BOUNDS[0]),
    (lambda m: m["law"].capacity, *BOUNDS[1]),
    (lambda m: m["start"], *BOUNDS[2]),
]
NAMES = ["rate", "capacity", "start"]


def problem():
    """What SALib is told, and it; its modules are imported once their warnings are let through."""
    pytest.importorskip("SALib")
    return dict(num_vars=3, names=NAMES, bounds=BOUNDS)


def size(model):
    """How many there are after a while, which no parameter sets alone."""
    y0 = model["start"][None]
    return sciml.solve(model["law"], y0, t0=0.0, t1=4.0, dt=0.1, adjoint=sciml.adjoints.Direct()).ys[-1, 0]


def over(rows):
    """The result for each row of a design, as members over all devices."""

    def of_row(row):
        law = sciml.models.Logistic(rate=row[0], capacity=row[1])
        return size({"law": law, "start": row[2]})

    return np.asarray(parallel.ensemble(of_row, jnp.asarray(rows)), float)


@pytest.mark.filterwarnings("ignore")
def test_indices_are_those_of_salib():
    given = problem()
    from SALib.analyze import sobol as analyse
    from SALib.sample import sobol as sample

    rows = sample.sample(given, 1024, calc_second_order=False, seed=1)
    theirs = analyse.analyze(given, over(rows), calc_second_order=False, seed=1, num_resamples=20)
    ours = inference.sobol_indices(size, MODEL, RANGES, n=1024, key=jax.random.key(0))
    assert len(rows) == ours.n_members
    np.testing.assert_allclose(ours.first, theirs["S1"], atol=0.03)
    np.testing.assert_allclose(ours.total, theirs["ST"], atol=0.03)
    assert np.all(ours.first > 0.1)  # else zeros would agree, too


@pytest.mark.filterwarnings("ignore")
def test_effects_are_those_of_salib():
    given = problem()
    from SALib.analyze import morris as analyse
    from SALib.sample import morris as sample

    rows = sample.sample(given, 400, num_levels=16, seed=1)
    theirs = analyse.analyze(given, rows, over(rows), num_levels=16, seed=1, num_resamples=20)
    ours = inference.morris_effects(size, MODEL, RANGES, n=400, levels=16, key=jax.random.key(0))
    assert len(rows) == ours.n_members
    np.testing.assert_allclose(ours.mean, theirs["mu"], rtol=0.1)
    np.testing.assert_allclose(ours.mean_absolute, theirs["mu_star"], rtol=0.1)
    np.testing.assert_allclose(ours.deviation, theirs["sigma"], rtol=0.15)
