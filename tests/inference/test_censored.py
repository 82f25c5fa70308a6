"""Data below a limit beside integrals, and theophylline from a table, through the library's own model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from sciml import inference, pharmacology
from sciml.training import Positive

from .test_first_order import DOSES, LEVELS, PUBLISHED, PUBLISHED_LOG_LIKELIHOOD, TIMES

pytestmark = pytest.mark.x64


@pytest.mark.parametrize("kind", ["Normal", "LogNormal"])
@pytest.mark.parametrize("positive", [False, True], ids=["M3", "M4"])
def test_a_censored_datum_is_an_integral(kind, positive):
    """Beside numerical quadrature of the density, with derivatives beside differences."""
    below, x = jnp.array([True, False, True]), jnp.array([0.4, 1.1, 0.4])

    def log_p(location, scale):
        seen = getattr(inference, kind)(location, scale)
        return inference.Censored(seen, below, 0.4, positive=positive).log_prob(x)

    def exact(location, scale):
        seen = getattr(inference, kind)(location, scale)
        density = jax.jit(lambda v: jnp.exp(seen.log_prob(v)))
        low = 1e-12 if positive or kind == "LogNormal" else -30.0
        tight = dict(epsabs=1e-14, epsrel=1e-13, limit=500)
        end = 800.0 if kind == "LogNormal" else 40.0
        under, whole = (scipy.integrate.quad(lambda v: float(density(v)), low, x, **tight)[0] for x in (0.4, end))
        other = float(seen.log_prob(x[1])) - (np.log(whole) if positive else 0)
        mine = np.log(under / whole if positive else under)
        return np.array([mine, other, mine])

    np.testing.assert_allclose(log_p(0.9, 0.6), exact(0.9, 0.6), rtol=1e-10)
    slopes = jax.jacrev(log_p, (0, 1))(jnp.array(0.9), jnp.array(0.6))
    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        ends = [log_p(*(np.array([0.9, 0.6]) + s * step)) for s in (1, -1)]
        np.testing.assert_allclose(slopes[i], (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


def test_the_marginal_likelihood_with_censored_data_is_its_integral():
    """M3 with a random effect, beside a sum over a fine grid of effects."""
    x = np.array([[1.3, 0.5, 0.5], [2.1, 1.2, np.nan]])
    below, lift = np.array([[False, True, True], [False, False, False]]), np.array([1.5, 0.7, 0.2])
    model = {"typical": jnp.array(0.1), "spread": jnp.array(0.4), "noise": jnp.array(0.3)}

    def observe(model, effect, subject):
        seen = inference.Normal(model["typical"] + lift + effect, model["noise"])
        return inference.Censored(seen, subject, 0.5)

    found = inference.hierarchical(
        model,
        observe,
        x,
        [(lambda m: m["typical"], inference.Improper()), (lambda m: m["spread"], inference.Improper(Positive()))],
        effects=lambda m: inference.Normal(0.0, m["spread"]),
        subjects=below,
        nodes=61,
    )
    b = jnp.linspace(-4.0, 4.0, 4001)
    total = 0.0
    for own, under in zip(x, below, strict=True):
        each = jax.vmap(lambda b: jnp.nansum(observe(model, b, under).log_prob(jnp.asarray(own))))(b)  # noqa: B023
        each = each + inference.Normal(0.0, 0.4).log_prob(b)
        total += jax.scipy.special.logsumexp(each) + np.log(8.0 / 4000)
    np.testing.assert_allclose(found.marginal.log_likelihood(model), total, rtol=1e-10)


def test_what_censored_needs():
    with pytest.raises(TypeError, match="requires a distribution with a method `log_cdf`, but `StudentT` has none"):
        inference.Censored(inference.StudentT(3.0, 0.0, 1.0), True, 1.0)
    drawn = inference.Censored(inference.Normal(0.0, 1.0), False, 0.5).draw(jax.random.key(0), (100,))
    assert drawn.min() == 0.5


def test_theophylline_from_a_table():
    """The published likelihood, from a table of NONMEM by the compartment model in closed form."""
    rows = []
    for i, (dose, times, levels) in enumerate(zip(DOSES, TIMES, LEVELS, strict=True), 1):
        rows.append((i, 0.0, dose / 10, None))
        rows += [(i, t, 0, c) for t, c in zip(times, levels, strict=True)]
    table = dict(zip(("ID", "TIME", "AMT", "DV"), map(list, zip(*rows, strict=True)), strict=True))
    subjects = pharmacology.read_nonmem(table)
    np.testing.assert_allclose(subjects.dv, LEVELS)

    def observe(model, effects, subject):
        absorption, clearance, volume = jnp.exp(model["typical"] + effects)
        drug = pharmacology.Compartments(cl=clearance, v1=volume, ka=absorption)
        states = pharmacology.solve_doses(drug, subject.doses, subject.times)
        return inference.Normal(10 * drug.concentration(states), model["noise"])

    density = inference.hierarchical(
        PUBLISHED,
        observe,
        subjects.dv,
        [(lambda m: m["typical"], inference.Improper())],
        effects=lambda model: inference.Normal(jnp.zeros(3), model["spread"]),
        subjects=subjects,
        method="focei",
    ).marginal
    np.testing.assert_allclose(density.log_likelihood(PUBLISHED), PUBLISHED_LOG_LIKELIHOOD, atol=2e-3)
