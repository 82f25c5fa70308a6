"""Models with noise, of reactions and with a delay against their laws."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import sciml
from sciml import models, verify
from tests.conftest import X64
from tests.solvers.noise.test_brownian import within

KEYS = jax.random.split(jax.random.key(0), 2000)
TS = jnp.array([0.5, 2.0])


@pytest.mark.parametrize(
    ("model", "y0", "moments"),
    [
        (models.OrnsteinUhlenbeck(1.5, 0.5, 0.8), 2.0, ft.partial(verify.reference, "ornstein_uhlenbeck_moments")),
        (models.GeometricBrownian(0.3, 0.4), 2.0, ft.partial(verify.reference, "geometric_brownian_moments")),
    ],
    ids=["OrnsteinUhlenbeck", "GeometricBrownian"],
)
def test_moments(model, y0, moments):
    solve = jax.jit(jax.vmap(lambda key: sciml.solve(model, y0, t0=0.0, t1=2.0, dt=1 / 32, key=key, saveat=TS).ys))
    ys = np.asarray(solve(KEYS), np.float64)
    mean, variance = (np.asarray(x, np.float64) for x in moments(model, y0, TS))
    within(ys, mean, np.sqrt(variance))
    square = (ys - mean) ** 2
    within(square, variance, square.std(axis=0))


@pytest.mark.parametrize("make", [models.OrnsteinUhlenbeck, models.GeometricBrownian])
def test_moments_solve_their_equations(make):
    """d mean / dt = f(mean) for a linear drift, and d variance / dt = 2 f' variance + mean of g^2."""
    model = make(jnp.asarray(0.7), volatility=jnp.asarray(0.4))
    name = "ornstein_uhlenbeck_moments" if make is models.OrnsteinUhlenbeck else "geometric_brownian_moments"
    moments = ft.partial(verify.reference, name)
    (mean, variance), (of_mean, of_variance) = jax.jvp(lambda t: moments(model, 2.0, t), (1.3,), (1.0,))
    drift, slope = jax.jvp(lambda y: model.drift(0.0, y, None), (mean,), (jnp.ones_like(mean),))
    noise = model.volatility**2 * (1.0 if make is models.OrnsteinUhlenbeck else variance + mean**2)
    rtol = 1e-12 if X64 else 1e-5
    np.testing.assert_allclose(of_mean, drift, rtol=rtol)
    np.testing.assert_allclose(of_variance, 2 * slope * variance + noise, rtol=rtol)


def test_derivatives_of_a_path_by_the_model():
    """Those of the Ornstein-Uhlenbeck process are known on every path: by its mean, 1 - exp(-rate t)."""
    model = models.OrnsteinUhlenbeck(1.5, 0.5, 0.8)

    def end(model, key):
        return sciml.solve(model, 2.0, t0=0.0, t1=2.0, dt=1 / 32, key=key).ys[-1]

    each = jax.jit(jax.vmap(jax.grad(end), in_axes=(None, 0)))(model, KEYS[:3])
    np.testing.assert_allclose(each.mean, 1 - np.exp(-3.0), rtol=1e-3)
    all_of_them = jax.jit(jax.grad(lambda m: jax.vmap(end, in_axes=(None, 0))(m, KEYS[:3]).sum()))(model)
    for a, b in zip(jax.tree.leaves(all_of_them), jax.tree.leaves(each), strict=True):
        np.testing.assert_allclose(a, b.sum(), rtol=1e-8 if X64 else 1e-4)


# --- reactions


def generator(model, most):
    """How probabilities of the counts 0, 1, ..., `most` change, where no reaction leads above these."""
    n = np.arange(most + 1)
    rates = np.asarray(jax.vmap(lambda n: model.propensities(n[None], None))(jnp.asarray(n, float)), np.float64)
    matrix = np.zeros((most + 1, most + 1))
    for change, rate in zip(model.stoichiometry[:, 0], rates.T, strict=True):
        stays = (n + change >= 0) & (n + change <= most)
        matrix[(n + change)[stays], n[stays]] += rate[stays]
        matrix[n[stays], n[stays]] -= rate[stays]
    return matrix


@pytest.mark.x64
@pytest.mark.parametrize("start", [0, 7])
def test_the_law_of_births_and_deaths(start):
    model = models.BirthDeath(birth=3.0, death=0.8)
    exact = scipy.linalg.expm(0.9 * generator(model, 60))[:, start]
    np.testing.assert_allclose(
        verify.reference("birth_death_law", model, jnp.arange(61.0), 0.9, start), exact, atol=1e-12
    )


@pytest.mark.x64
@pytest.mark.parametrize(("model", "most"), [(models.BirthDeath(), 60), (models.Schloegl(), 900)])
def test_the_law_in_the_long_run(model, most):
    law = np.asarray(verify.reference("one_step_law", model, most))
    matrix = generator(model, most)
    assert abs(law.sum() - 1) < 1e-12
    assert np.abs(matrix @ law).max() < 1e-10 * np.abs(matrix).max()


def test_counts_follow_the_law():
    """Members with rates of their own; the share of each count."""
    births = jnp.array([2.0, 5.0])
    many = jax.vmap(lambda birth: models.BirthDeath(birth=birth, death=0.8))(births)
    end = lambda model, key: sciml.solve(model, jnp.zeros(1), t0=0.0, t1=1.5, key=key).ys[-1, 0]  # noqa: E731
    counts = np.asarray(jax.jit(jax.vmap(jax.vmap(end, (None, 0)), (0, None)))(many, KEYS))
    for i, birth in enumerate(births):
        law = verify.reference("birth_death_law", models.BirthDeath(birth=birth, death=0.8), jnp.arange(6.0), 1.5)
        for n, share in enumerate(np.asarray(law, np.float64)):
            within(counts[i] == n, share, np.sqrt(share * (1 - share)))


def test_limits_for_large_counts_have_the_parameters_as_leaves():
    """Of a linear process the rate equations and the mean of the Langevin equation are the mean of the counts."""
    model = models.BirthDeath(birth=400.0, death=0.8)

    def mean(model):
        end = lambda key: sciml.solve(model.langevin(), jnp.zeros(1), t0=0.0, t1=1.0, dt=1 / 64, key=key).ys[-1, 0]  # noqa: E731
        return jax.vmap(end)(KEYS[:200]).mean()

    def exact(model):
        return model.birth / model.death * (1 - jnp.exp(-model.death))

    value, gradient = jax.jit(jax.value_and_grad(mean))(model)
    assert len(jax.tree.leaves(model.langevin())) == 2
    assert abs(value - exact(model)) < 5 * np.sqrt(exact(model) / 200) + 2
    want = jax.grad(exact)(model)
    np.testing.assert_allclose(gradient.birth, want.birth, rtol=0.05)
    np.testing.assert_allclose(gradient.death, want.death, rtol=0.05)
    rates = sciml.solve(model.rate_equations, jnp.zeros(1), t0=0.0, t1=1.0).ys[-1, 0]
    np.testing.assert_allclose(rates, exact(model), rtol=1e-4)


def test_a_law_of_other_reactions_is_refused():
    pairs = sciml.Reactions([[-2]], lambda x, args: x)
    with pytest.raises(ValueError, match=r"one species by one each, .*\[\[-2\]\]"):
        verify.reference("one_step_law", pairs, 10)
    with pytest.raises(ValueError, match="`start` must be a count.*-1"):
        verify.reference("birth_death_law", models.BirthDeath(), jnp.arange(3.0), 1.0, start=-1)


# --- a delay


def test_where_oscillations_begin():
    """Below the onset they die away, above it they grow."""
    onset = verify.reference("mackey_glass_onset", models.MackeyGlass())
    ts = jnp.concatenate([jnp.linspace(380.0, 400.0, 41), jnp.linspace(780.0, 800.0, 41)])

    def growth(delay):
        model = models.MackeyGlass(delay=delay, initial=1.005, kept=200)
        sol = sciml.solve(model, model.initial, t0=0.0, t1=800.0, saveat=ts, max_steps=10_000, rtol=1e-4)
        first, last = jnp.abs(sol.ys - 1).reshape(2, -1).max(axis=1)
        return last / first

    below, above = jax.jit(jax.vmap(growth))(jnp.array([0.97, 1.03]) * onset)
    assert below < 0.5 and above > 1.5


@pytest.mark.x64
def test_derivatives_by_the_delay_and_the_past():
    def end(model):
        options = dict(rtol=1e-9, atol=1e-10, adjoint=sciml.adjoints.Direct(), max_steps=400)
        return sciml.solve(model, model.initial, t0=0.0, t1=20.0, **options).ys[-1]

    model, run = models.MackeyGlass(delay=8.0, initial=0.7, kept=200), jax.jit(end)
    slopes = jax.jit(jax.jacfwd(end))(model)
    for i, (leaf, slope) in enumerate(zip(jax.tree.leaves(model), jax.tree.leaves(slopes), strict=True)):
        at = lambda s, i=i: run(jax.tree.unflatten(tree, [x + s * (i == j) for j, x in enumerate(leaves)]))  # noqa: E731
        leaves, tree = jax.tree.flatten(model)
        h = 1e-4 * float(leaf)
        np.testing.assert_allclose(slope, (at(h) - at(-h)) / (2 * h), rtol=1e-4, atol=1e-6)


def test_the_past_is_of_the_dtype_of_the_state(dtype):
    strong = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(float)), models.MackeyGlass(delay=2.0))
    for model in (models.MackeyGlass(delay=2.0), strong):
        end = sciml.solve(model, jnp.asarray(1.2, dtype), t0=0.0, t1=4.0, dt=0.5).ys
        assert end.dtype == dtype and abs(end[-1] - 1.0) < 0.2
