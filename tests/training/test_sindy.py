"""Equations from data: the right terms, their numbers, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import training
from sciml.models.sparse import Polynomials, Trigonometric
from sciml.training._smooth import bands_of, smoothed, smoothing_spline

TRUE = {"dx/dt": {"x": -10.0, "y": 10.0}, "dy/dt": {"x": 28.0, "y": -1.0, "x z": -1.0}}
TRUE["dz/dt"] = {"z": -8 / 3, "x y": 1.0}


def lorenz(n=1001):
    ts = jnp.linspace(0.0, 5.0, n)
    start = jnp.array([-8.0, 7.0, 27.0])
    ys = sciml.solve(sciml.models.Lorenz63(), start, t0=0.0, t1=5.0, saveat=ts, rtol=1e-8, atol=1e-8).ys
    return ts, np.asarray(ys)


def agrees(found, rtol):
    """Whether the terms are the right ones, with their coefficients."""
    model = found.model
    names = model.library.names(model.inputs)
    got = {output: {} for output in model.outputs}
    for (i, j), value in zip(model.places, np.asarray(model.coefficients).tolist(), strict=True):
        got[model.outputs[j]][names[i]] = value
    return {k: set(v) for k, v in got.items()} == {k: set(v) for k, v in TRUE.items()} and all(
        abs(got[k][term] / value - 1) < rtol for k, terms in TRUE.items() for term, value in terms.items()
    )


@pytest.mark.x64
def test_lorenz_from_data_alone():
    ts, ys = lorenz()
    assert agrees(training.sindy(Polynomials(3), ys, ts=ts, names="xyz"), 0.01)
    gap = ys.copy()
    gap[400:404, 1] = np.nan
    noise = 0.02 * np.random.default_rng(0).normal(size=ys.shape)
    assert agrees(training.sindy(Polynomials(2), gap + noise, ts=ts, names="xyz"), 0.02)
    # of exact rates, to rounding; in other units as well, where numbers are another size
    rates = np.asarray(jax.vmap(lambda y: sciml.models.Lorenz63()(0.0, y, None))(ys))
    library = Polynomials(2) + Trigonometric()
    found = training.sindy(library, ys, rates, names="xyz")
    assert agrees(found, 1e-9) and np.all(found.score > 1 - 1e-12) and len(found.terms) == 16
    milli = training.sindy(Polynomials(2), 1e-3 * ys, 1e-3 * rates, names="xyz")
    assert len(milli.model.places) == 7


@pytest.mark.x64
def test_bootstrap_tells_terms_from_noise():
    draw = np.random.default_rng(1)
    x = draw.uniform(-1.0, 1.0, (80, 2))
    y = (2.0 * x[:, 0] - 0.5 * x[:, 0] * x[:, 1] + 0.3 * draw.normal(size=80))[:, None]
    found = training.sindy(
        Polynomials(3), x, y, threshold=0.05, bootstrap=40, least_inclusion=0.8, key=jax.random.key(0), outputs=["f"]
    )
    names = list(found.terms)
    assert found.inclusion.shape == (10, 1) and found.inclusion[names.index("y[0]"), 0] == 1.0
    assert found.deviation[names.index("y[0]"), 0] > 0.03 and str(found).startswith("f = ")
    plain = training.sindy(Polynomials(3), x, y, threshold=0.05)
    assert len(found.model.places) < len(plain.model.places) and found.model.outputs == ("f",)
    again = training.sindy(Polynomials(3), x, y, threshold=0.05, bootstrap=40, key=jax.random.key(0))
    np.testing.assert_array_equal(again.inclusion, found.inclusion)


def test_names_are_those_of_the_leaves():
    draw = np.random.default_rng(2)
    q, heat = draw.uniform(-1.0, 1.0, (50, 2)), draw.uniform(1.0, 2.0, 50)
    states = {"q": q, "heat": heat}
    found = training.sindy(Polynomials(1), states, {"q": np.stack([q[:, 1], -heat], axis=1), "heat": 3 - heat})
    assert found.model.equations() == ("dheat/dt = 3 - heat", "dq[0]/dt = q[1]", "dq[1]/dt = -heat")
    rates = found.model(0.0, {"q": jnp.array([1.0, 2.0]), "heat": jnp.array(1.5)}, None)
    np.testing.assert_allclose(rates["q"], [2.0, -1.5], rtol=1e-5)
    assert training.sindy(Polynomials(1), states, heat * q[:, 0] ** 0).model.equations() == ("term[0] = heat",)


@pytest.mark.parametrize(
    "error, match, change",
    [
        (TypeError, "library", dict(library=3)),
        (ValueError, "either `derivatives`, or `ts`", dict(derivatives=None)),
        (ValueError, "must have the same length, but have 4 and 3 rows", dict(derivatives=np.ones((3, 2)))),
        (ValueError, "do not determine", dict(library=Polynomials(3))),
        (ValueError, "must be from 0 to 1", dict(threshold=2.0)),
        (ValueError, "`names` must be 2 names", dict(names="xyz")),
        (ValueError, "`outputs` must be 2 names", dict(outputs=["a"])),
    ],
)
def test_bad_input(error, match, change):
    given = dict(library=Polynomials(1), states=np.eye(4)[:, :2], derivatives=np.ones((4, 2))) | change
    with pytest.raises(error, match=match):
        training.sindy(given.pop("library"), given.pop("states"), given.pop("derivatives"), **given)


def test_a_spline_is_the_one_that_scipy_finds_and_its_trace_that_of_its_map():
    from scipy.interpolate import make_smoothing_spline

    draw = np.random.default_rng(3)
    ts = np.sort(draw.uniform(0.0, 10.0, 30))
    y = np.sin(ts) + 0.1 * draw.normal(size=30)
    at = np.linspace(ts[0], ts[-1], 50)
    for value in (0.01, 3.0):
        found, wanted = smoothing_spline(ts, y, value), make_smoothing_spline(ts, y, lam=value)
        np.testing.assert_allclose(found(at), wanted(at), atol=1e-9)
        np.testing.assert_allclose(found(at, 1), wanted.derivative()(at), atol=1e-8)
    several = np.array([0.3, 2.0])
    columns = np.stack([smoothed(bands_of(ts), row, several)[0] for row in np.eye(30)], axis=1)
    np.testing.assert_allclose(smoothed(bands_of(ts), y, several)[1], np.trace(columns), rtol=1e-9)


@pytest.mark.x64
def test_smoothing_takes_the_noise_and_leaves_the_curve():
    draw = np.random.default_rng(4)
    ts = np.sort(draw.uniform(0.0, 10.0, 200))
    y = np.stack([np.sin(ts), np.exp(-0.2 * ts)], axis=1)
    noisy = y + 0.1 * draw.normal(size=y.shape)
    noisy[50:60, 0] = np.nan
    found = training.smooth(ts, {"y": jnp.asarray(noisy)}, at=np.linspace(0.5, 9.5, 100))
    at = np.asarray(found.ts)
    error = np.asarray(found.states["y"]) - np.stack([np.sin(at), np.exp(-0.2 * at)], axis=1)
    slope = np.asarray(found.rates["y"]) - np.stack([np.cos(at), -0.2 * np.exp(-0.2 * at)], axis=1)
    assert np.sqrt(np.mean(error**2)) < 0.04 and np.sqrt(np.mean(slope**2)) < 0.15
    exact = training.smooth(ts, y, smoothing=0.0)
    np.testing.assert_allclose(exact.states, y, atol=1e-10)
    with pytest.raises(ValueError, match="has 3 measurements"):
        training.smooth(ts[:6], np.where(np.arange(6) < 3, 1.0, np.nan))
    with pytest.raises(ValueError, match="`smooth`: `ts` must be two or more ascending times"):
        training.smooth(ts[::-1], y)
    with pytest.raises(ValueError, match="must not be negative"):
        training.smooth(ts, y, smoothing=-1.0)
