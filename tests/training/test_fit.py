import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix
import pytest
import scipy.optimize

import sciml
from sciml import SolveError, Status, fit
from sciml.training import AbstractTransform, Fit, _problem


class Line(eqx.Module):
    slope: jax.Array
    offset: jax.Array

    def __call__(self, x):
        return self.slope * x + self.offset


class Decay(eqx.Module):
    size: jax.Array
    rate: jax.Array
    label: str = eqx.field(static=True, default="decay")

    def __call__(self, t):
        return self.size * jnp.exp(-self.rate * t)


def line_data(dtype=float):
    x = np.linspace(-1.0, 2.0, 25)
    y = 1.7 * x - 0.4 + 0.1 * np.cos(17.0 * x)
    return x.astype(dtype), y.astype(dtype)


def decay_data(dtype=float):
    t = np.linspace(0.0, 3.0, 24)
    y = 2.5 * np.exp(-1.3 * t) + 0.02 * np.sin(11.0 * t)
    return t.astype(dtype), y.astype(dtype)


def difference(model, data):
    x, y = data
    return model(x) - y


def line(dtype=float):
    return Line(jnp.zeros((), dtype), jnp.ones((), dtype))


def decay(size=1.0, rate=0.5, dtype=float):
    return Decay(jnp.asarray(size, dtype), jnp.asarray(rate, dtype))


def quiet(*args, **kwargs) -> Fit:
    return fit(*args, progress=False, **kwargs)


@pytest.mark.x64
@pytest.mark.parametrize("sigma", [None, 0.3])
def test_linear_regression_is_the_textbook_formula(sigma):
    x, y = line_data()
    found = quiet(line(), difference, (x, y), sigma=sigma)
    design = np.stack([x, np.ones_like(x)], axis=1)
    best, rss, *_ = np.linalg.lstsq(design, y)
    s2 = rss[0] / (len(x) - 2) if sigma is None else sigma**2
    covariance = s2 * np.linalg.inv(design.T @ design)
    assert found.converged and found.names == ("slope", "offset")
    np.testing.assert_allclose(found.parameters, best, rtol=1e-8)
    np.testing.assert_allclose(found.loss, rss[0] / 2, rtol=1e-12)
    np.testing.assert_allclose(found.sigma**2, s2, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-10)
    np.testing.assert_allclose(found.standard_errors.slope, np.sqrt(covariance[0, 0]), rtol=1e-10)


@pytest.mark.x64
@pytest.mark.parametrize("positive", [None, True])
def test_decay_agrees_with_scipy(positive):
    t, y = decay_data()
    found = quiet(decay(), difference, (t, y), positive=positive)
    best, covariance = scipy.optimize.curve_fit(lambda t, a, k: a * np.exp(-k * t), t, y, (1.0, 0.5), xtol=1e-12)
    np.testing.assert_allclose(found.parameters, best, rtol=1e-7)
    # scipy's Jacobian is a finite difference.
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-5)


def test_both_precisions(dtype):
    t, y = decay_data(dtype)
    found = quiet(decay(dtype=dtype), difference, (t, y), positive=True)
    assert found.converged, found.message
    assert found.model.rate.dtype == dtype and found.model.label == "decay"
    exact = quiet(decay(), difference, decay_data(), positive=True).parameters
    # Rounding moves the estimate by far less than its standard error, which is 1% here.
    np.testing.assert_allclose(found.parameters, exact, rtol=1e-3 if dtype == jnp.float32 else 1e-10)
    np.testing.assert_allclose(found.model.rate, found.parameters[1], rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver",
    [
        optimistix.GaussNewton(1e-9, 1e-9),
        optimistix.Dogleg(1e-9, 1e-9),
        optimistix.BFGS(1e-9, 1e-9),
        optax.adam(3e-2),
        optax.lbfgs(),
    ],
    ids=["gauss_newton", "dogleg", "bfgs", "adam", "lbfgs"],
)
def test_methods_agree(solver):
    reference = quiet(decay(), difference, decay_data(), positive=True)
    found = quiet(decay(), difference, decay_data(), positive=True, solver=solver, max_steps=2000)
    assert found.converged, found.message
    # Adam stops on the gradient, at about 1e-8 of the loss.
    np.testing.assert_allclose(found.parameters, reference.parameters, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, reference.covariance, rtol=1e-4)


def reverse_only(model, data):
    """`difference` through a rule that has no forward mode, as the default adjoint of `solve`."""
    x, y = data

    @jax.custom_vjp
    def predict(model):
        return model(x)

    predict.defvjp(lambda model: (model(x), model), lambda model, ct: jax.vjp(lambda m: m(x), model)[1](ct))
    return predict(model) - y


def forward_only(model, data):
    """`difference` through a while loop, which has no reverse mode."""
    x, y = data
    return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, model(x)), (0, jnp.zeros_like(x)))[1] - y


@pytest.mark.parametrize("residuals", [reverse_only, forward_only])
@pytest.mark.parametrize("solver", [None, optimistix.BFGS(1e-6, 1e-6), optax.adam(3e-2)], ids=["lm", "bfgs", "adam"])
def test_either_mode_of_differentiation_is_enough(residuals, solver):
    reference = quiet(decay(), difference, decay_data())
    found = quiet(decay(), residuals, decay_data(), solver=solver)
    np.testing.assert_allclose(found.parameters, reference.parameters, rtol=1e-3)
    np.testing.assert_allclose(found.covariance, reference.covariance, rtol=1e-2)


def test_neither_mode_names_both():
    def both(model, data):
        return forward_only(model, data) + reverse_only(model, data)

    with pytest.raises(ValueError, match="neither in forward nor in reverse") as error:
        quiet(decay(), both, decay_data())
    assert "while_loop" in str(error.value) and "custom_vjp" in str(error.value)


# Slow to compile. The examples of `fit` and the guide go through the default adjoint in every run.
@pytest.mark.x64
@pytest.mark.parametrize("solver", [None, optax.adam(0.1)], ids=["lm", "adam"])
def test_fit_through_solve_by_either_adjoint(solver):
    times = jnp.linspace(0.5, 3.0, 6)
    data = 2.0 * jnp.exp(-1.3 * times) * jnp.exp(0.01 * jnp.cos(9.0 * times))

    def fitted(adjoint):
        def residuals(model, data):
            rate, y0 = model
            # Fixed steps compile in half the time; their error is 1e-9 here.
            sol = sciml.solve(lambda t, y, args: -rate * y, y0, t0=0.0, t1=3.0, dt=0.05, saveat=times, adjoint=adjoint)
            return jnp.log(sol.ys) - jnp.log(data)

        return quiet((jnp.array(1.0), jnp.array(1.0)), residuals, data, positive=True, solver=solver)

    forward, reverse = fitted(sciml.adjoints.Direct()), fitted(sciml.adjoints.Checkpointed())
    # The logarithm of the data is linear in rate and log y0.
    design = np.stack([-np.asarray(times), np.ones(6)], axis=1)
    exact, *_ = np.linalg.lstsq(design, np.log(data))
    np.testing.assert_allclose(forward.parameters, [exact[0], np.exp(exact[1])], rtol=1e-6)
    np.testing.assert_allclose(reverse.parameters, forward.parameters, rtol=1e-6)
    np.testing.assert_allclose(reverse.covariance, forward.covariance, rtol=1e-4)


def test_history_of_levenberg_marquardt_never_rises():
    found = quiet(decay(size=30.0, rate=5.0), difference, decay_data(), positive=True)
    history = np.asarray(found.history)
    assert history.shape == (found.n_steps + 1,)
    assert np.isfinite(history).all() and (np.diff(history) <= 0).all()
    assert history[0] > 100 * history[-1]
    np.testing.assert_allclose(history[-1], found.loss, rtol=1e-5)


def test_where_leaves_the_rest_alone():
    found = quiet(decay(size=2.5, rate=0.5), difference, decay_data(), where=lambda model: model.rate)
    assert found.model.size == 2.5
    assert found.names == ("rate",) and found.standard_errors.size is None
    assert found.covariance.shape == (1, 1)
    np.testing.assert_allclose(found.model.rate, 1.3, rtol=2e-2)


def test_pytree_models_and_arrays():
    t, y = decay_data()

    def residuals(model, data):
        weights, rest = model
        return {"a": weights[0] * jnp.exp(-weights[1] * t) - data, "b": rest["shift"] - 0.5}

    model = (np.array([1.0, 1.0]), {"shift": jnp.array(0.0), "count": 3, "act": jnp.tanh})
    found = quiet(model, residuals, y)
    assert found.names == ("0[0]", "0[1]", "1.shift")
    assert found.model[1]["count"] == 3 and found.model[1]["act"] is jnp.tanh
    np.testing.assert_allclose(found.model[1]["shift"], 0.5, rtol=1e-5)
    np.testing.assert_allclose(found.standard_errors[0], np.sqrt(np.diag(found.covariance))[:2], rtol=1e-6)


def test_complex_residuals_count_both_parts():
    t, y = decay_data()
    found = quiet(decay(), lambda m, d: (m(t) - y).astype(complex) * jnp.exp(1j * t), None)
    reference = quiet(decay(), difference, (t, y))
    np.testing.assert_allclose(found.parameters, reference.parameters, rtol=1e-4)
    np.testing.assert_allclose(found.loss, reference.loss, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:.*hardly determine")
@pytest.mark.parametrize("solver", [None, optax.adam(1e-1)], ids=["lm", "adam"])
def test_bounds_hold_where_the_optimum_lies_outside(solver):
    seen = []

    def residuals(model, data):
        jax.debug.callback(lambda size, rate: seen.append((float(size), float(rate))), model.size, model.rate)
        return difference(model, data)

    bounds = [(lambda m: m.size, 0.5, 2.0), (lambda m: m.rate, None, 1.5)]
    found = quiet(decay(), residuals, decay_data(), bounds=bounds, solver=solver)
    sizes, rates = np.array(seen).T
    assert sizes.min() >= 0.5 and sizes.max() <= 2.0 and rates.max() <= 1.5
    np.testing.assert_allclose(found.model.size, 2.0, rtol=1e-2)
    if solver is None:
        assert "`size` ended on a bound" in found.message


@pytest.mark.x64
def test_standard_errors_beside_a_parameter_on_its_bound():
    """They are those of a fit in which that parameter is held at the bound; samples hold it, too."""
    x = np.linspace(0.0, 1.0, 20)
    y = 3.0 + 2.0 * x + 0.1 * np.sin(40 * x)
    line = dict(a=jnp.array(1.0), b=jnp.array(1.0))
    residuals = lambda m, data: m["a"] + m["b"] * x - y  # noqa: E731
    bounds = [(lambda m: m["a"], 0.0, 2.5)]
    found = quiet(line, residuals, None, bounds=bounds)
    held = quiet(
        dict(a=found.model["a"], b=line["b"]), residuals, None, where=lambda m: m["b"], sigma=float(found.sigma)
    )
    assert np.isnan(found.standard_errors["a"]) and "`a` ended on a bound" in found.message
    np.testing.assert_allclose(found.standard_errors["b"], held.standard_errors["b"], rtol=1e-5)
    draws = found.sample(jax.random.key(0), 200)
    np.testing.assert_allclose(draws["a"], 2.5, rtol=1e-3)
    np.testing.assert_allclose(np.std(draws["b"]), held.standard_errors["b"], rtol=0.2)
    assert "No standard errors" not in found.summary()

    both = quiet(line, residuals, None, bounds=[*bounds, (lambda m: m["b"], 0.0, 1.5)])
    assert np.isnan(both.covariance).all() and "`a`, `b` ended on a bound" in both.message


@pytest.mark.x64
@pytest.mark.parametrize("kind", ["lower", "upper", "positive"])
def test_standard_errors_beside_a_parameter_on_its_only_bound(kind):
    x = np.linspace(0.0, 4.0, 9)
    slope, bound = {"lower": (0.6, 0.9), "upper": (0.6, 0.5), "positive": (-0.7, 0.0)}[kind]
    bounds = {"lower": (lambda m: m["b"], bound, None), "upper": (lambda m: m["b"], None, bound)}
    given = {"positive": lambda m: m["b"]} if kind == "positive" else {"bounds": [bounds[kind]]}
    start = {"a": jnp.array(1.0), "b": jnp.array(bound - 0.2 if kind == "upper" else bound + 0.1)}
    residuals = lambda m, data: (m["a"] + m["b"] * x - 1 - slope * x) / 0.3  # noqa: E731
    found = quiet(start, residuals, None, sigma=1.0, **given)
    np.testing.assert_allclose(found.model["b"], bound, atol=1e-6)
    np.testing.assert_allclose(found.standard_errors["a"], 0.1, rtol=1e-6)  # 0.3 / sqrt(9)
    assert np.isnan(found.standard_errors["b"]) and "`b` ended on a bound" in found.message
    if kind == "positive":  # an optimum that is only close to the bound
        tiny = lambda m, data: (m["b"] * 1e9 - 3.0) * np.ones(4)  # noqa: E731
        found = quiet({"b": jnp.array(1.0)}, tiny, None, sigma=1.0, **given)
        np.testing.assert_allclose([found.model["b"], found.standard_errors["b"]], [3e-9, 0.5e-9], rtol=1e-4)


def test_a_large_value_above_a_lower_bound_is_not_at_the_bound():
    x, y = line_data()
    found = quiet(Line(jnp.array(5e3), jnp.ones(())), difference, (x, 1e5 * y), bounds=[(lambda m: m.slope, 0.0, None)])
    assert "bound" not in found.message
    np.testing.assert_allclose(found.model.slope, 1.7e5, rtol=0.1)


@pytest.mark.filterwarnings("ignore:.*hardly determine")
def test_positive_parameters_stay_positive():
    t = np.linspace(0.0, 3.0, 24)
    found = quiet(decay(), difference, (t, -np.ones_like(t)), positive=lambda m: m.size, throw=False, max_steps=50)
    assert found.model.size > 0


def test_custom_transform():
    class AboveOne(AbstractTransform):
        domain = "greater than 1"

        def forward(self, x):
            return jnp.log(x - 1)

        def inverse(self, z):
            return 1 + jnp.exp(z)

        def contains(self, x):
            return x > 1

        def log_slope(self, z):
            return z

        def scale(self, z):
            return jnp.ones_like(z)

    transforms = [(lambda m: m.rate, AboveOne())]
    found = quiet(decay(rate=4.0), difference, decay_data(), transforms=transforms)
    np.testing.assert_allclose(found.parameters, quiet(decay(), difference, decay_data()).parameters, rtol=1e-4)
    with pytest.raises(ValueError, match="`rate` must be greater than 1, but it is 0.5"):
        quiet(decay(), difference, decay_data(), transforms=transforms)


@pytest.mark.x64
def test_standard_errors_beyond_all_sizes_are_told():
    """Two terms that are nearly the same: the loss is a parabola, and its valley is millions long."""
    x = np.linspace(0.0, 1.0, 20)
    terms = jnp.stack([x, x + 1e-7 * x**2, np.ones(20)], axis=1)

    def residuals(model, data):
        return terms @ jnp.stack([model["a"], model["b"], model["c"]]) - data

    start = {"a": jnp.array(1.0), "b": jnp.array(1.0), "c": jnp.array(0.5)}
    told = r"determine `a`, `b` only within .* least certain combination is 0\.71 `[ab]` - 0\.71 `[ab]`"
    with pytest.warns(UserWarning, match=told):
        found = quiet(start, residuals, np.asarray(terms @ jnp.ones(3)), sigma=0.1)
    assert found.standard_errors["a"] > 1e5 and found.standard_errors["c"] < 1
    assert "only within standard errors of up to" in found.summary()


def test_many_starts_escape_a_bad_one():
    t = np.linspace(0.0, 10.0, 60)

    def residuals(model, data):
        return jnp.sin(model["frequency"] * t) - data

    start = {"frequency": jnp.array(1.2)}  # in the valley of 1.26, and not on a ridge where rounding decides
    data = np.sin(2.0 * t)
    one = quiet(start, residuals, data, positive=True)
    many = quiet(start, residuals, data, positive=True, starts=12, key=jax.random.key(0))
    assert one.loss > 1
    assert many.loss < 1e-6 and many.start_losses.shape == (12,)
    np.testing.assert_allclose(many.model["frequency"], 2.0, rtol=1e-4)
    # The first start is the model as given, and the best is what is reported.
    np.testing.assert_allclose(many.start_losses[0], one.loss, rtol=1e-3)
    assert many.loss == many.start_losses.min()
    assert "starts ended within" in many.summary()


@pytest.mark.x64
def test_samples_have_the_covariance_and_keep_the_range():
    found = quiet(decay(), difference, decay_data(), positive=True)
    draws = found.sample(jax.random.key(1), 20_000)
    assert draws.rate.shape == draws.size.shape == (20_000,) and (draws.size > 0).all()
    values = np.stack([draws.size, draws.rate])
    errors = np.sqrt(np.diag(found.covariance))
    # 20,000 draws tell a mean to 0.7% of a standard deviation and a covariance to 1%: three times that here.
    np.testing.assert_allclose(values.mean(1), found.parameters, atol=0.03 * errors.max())
    np.testing.assert_allclose(
        np.cov(values) / np.outer(errors, errors), found.covariance / np.outer(errors, errors), atol=0.03
    )
    np.testing.assert_array_equal(found.sample(jax.random.key(1), 3).rate, draws.rate[:3])
    assert jax.vmap(lambda model: model(jnp.array([0.0, 1.0])))(draws).shape == (20_000, 2)


def test_samples_batch_what_was_not_fitted_too():
    found = quiet(decay(), difference, decay_data(), where=lambda model: model.rate)
    draws = found.sample(jax.random.key(0), 4)
    assert draws.size.shape == (4,) and (draws.size == found.model.size).all()


def test_undetermined_parameters_are_named():
    def residuals(model, data):
        return model["a"] * model["b"] - data + 0 * model["c"]

    model = {"a": jnp.array(1.0), "b": jnp.array(2.0), "c": jnp.array(0.0), "d": jnp.array(1.0)}
    both = lambda m, y: jnp.concatenate([residuals(m, y), y - m["d"]])  # noqa: E731
    with pytest.warns(UserWarning, match="do not determine `a`, `b`, `c`"):
        found = quiet(model, both, np.arange(5.0))
    assert np.isinf(np.diag(found.covariance)[:3]).all() and np.isfinite(found.standard_errors["d"])
    with pytest.raises(ValueError, match="the data do not determine"):
        found.sample(jax.random.key(0), 2)


def test_what_the_jacobian_does_not_see_is_measured():
    """Two rates that are equal: the Jacobian sees their sum alone, and once promised errors of a million percent."""
    t = jnp.linspace(0.1, 4.0, 40)
    data = 2 * jnp.exp(-t) * (1 - 0.01 * t**2) + 0.001 * jnp.sin(40 * t)
    both = lambda m, d: jnp.exp(-m["a"] * t) + jnp.exp(-m["b"] * t) - d  # noqa: E731
    model = {"a": jnp.array(0.7), "b": jnp.array(1.5)}
    with pytest.warns(UserWarning, match="hardly determine `a`, `b`"):
        found = quiet(model, both, data, positive=True)
    error = float(found.standard_errors["a"])
    assert 0.001 < error < 0.2 and "hardly determine" in found.message
    draws = found.sample(jax.random.key(0), 100)
    assert all(np.isfinite(x).all() and (x > 0.5).all() and (x < 2).all() for x in draws.values())
    # One standard error along the difference is where the loss has risen by half the residuals' variance.
    ends = [
        found.sigma * 0 + float(found.parameters[0]) * np.exp(s * error / float(found.parameters[0])) for s in (1, -1)
    ]
    rise = 0.5 * jnp.sum(both({"a": ends[0], "b": ends[1]}, data) ** 2) - found.loss
    assert 0.3 < float(rise / (0.5 * found.sigma**2)) < 3


def test_flip_flop_kinetics():
    """Absorption as fast as elimination: either may be the faster one, and the data tell little of their difference."""
    t = jnp.linspace(0.25, 12.0, 24)

    def concentration(m):
        difference = m["ka"] - m["ke"]
        close = jnp.abs(difference) < 1e-6
        ratio = -jnp.expm1(-difference * t) / jnp.where(close, 1.0, difference)
        return m["amount"] * m["ka"] * jnp.exp(-m["ke"] * t) * jnp.where(close, t, ratio)

    truth = {"ka": jnp.array(0.5), "ke": jnp.array(0.5), "amount": jnp.array(1.0)}
    data = concentration(truth) * (1 - 0.0004 * (t - 6) ** 2) + 0.001 * jnp.sin(11 * t)
    start = {"ka": jnp.array(0.8), "ke": jnp.array(0.4), "amount": jnp.array(1.0)}
    with pytest.warns(UserWarning, match="hardly determine .*`ka`, `ke`"):
        found = quiet(start, lambda m, d: concentration(m) - d, data, positive=True)
    curves = jax.vmap(concentration)(found.sample(jax.random.key(0), 200))
    band = np.quantile(curves, [0.05, 0.95], axis=0)
    assert np.isfinite(band).all() and (band[1] - band[0]).max() < 0.1


def test_wide_but_true_errors_are_left_alone(recwarn):
    """An error as large as the parameter is nothing to doubt where the residuals are linear."""
    found = quiet(line(), difference, (np.arange(4.0), np.array([3.0, -4.0, 5.0, -3.0])))
    assert found.standard_errors.slope > abs(found.model.slope) and not recwarn.list


def test_one_number_of_no_shape_is_pointed_out():
    with pytest.warns(UserWarning, match=r"one number of shape \(\), whose square"):
        quiet({"a": jnp.array(1.0)}, lambda m, d: (m["a"] - 3.0) ** 2)


def test_residuals_of_one_argument():
    with pytest.raises(TypeError, match=r"`residuals\(model, data\)`.*second argument `data`"):
        quiet({"a": jnp.array(1.0)}, lambda m: m["a"] - jnp.arange(3.0))


def test_too_few_data_leave_sigma_unknown():
    found = quiet(line(), difference, (np.array([0.0, 1.0]), np.array([1.0, 3.0])))
    assert np.isnan(found.sigma) and np.isnan(found.covariance).all()
    with pytest.raises(ValueError, match="Pass `sigma`"):
        found.sample(jax.random.key(0), 2)


def test_covariance_can_be_left_out():
    found = quiet(line(), difference, line_data(), covariance=False)
    assert found.covariance is None and found.standard_errors is None and "slope" in found.summary()
    with pytest.raises(ValueError, match="covariance=True"):
        found.sample(jax.random.key(0), 2)


def test_neural_model_by_optax(getkey):
    x = jnp.linspace(-1, 1, 32)[:, None]
    model = eqx.nn.MLP(1, 1, 16, 1, jnp.tanh, key=getkey())
    residuals = lambda model, data: jax.vmap(model)(x) - data  # noqa: E731
    found = quiet(model, residuals, jnp.sin(3 * x), solver=optax.adam(2e-2), max_steps=600, covariance=False)
    assert found.loss < 0.01 * found.history[0]


def test_reaching_max_steps():
    kwargs = {"positive": True, "max_steps": 3}
    with pytest.raises(SolveError, match="max_steps=3"):
        quiet(decay(), difference, decay_data(), **kwargs)
    found = quiet(decay(), difference, decay_data(), throw=False, **kwargs)
    assert found.status == Status.max_steps_reached and not found.converged and found.n_steps == 3
    adam = quiet(decay(), difference, decay_data(), solver=optax.adam(1e-2), **kwargs)
    assert adam.status == Status.max_steps_reached and adam.history.shape == (4,)


def test_divergence_is_reported():
    with pytest.raises(SolveError, match="NaN or infinite.*learning rate"):
        quiet(line(), difference, line_data(), solver=optax.sgd(1e6))
    found = quiet(line(), difference, line_data(), solver=optax.sgd(1e6), throw=False)
    assert found.status == Status.nonfinite
    assert np.isfinite(found.loss) and found.loss <= found.history[0]


def test_coming_to_rest_far_from_the_data_is_no_success():
    # One huge step makes the rate so large that the prediction, and with it the gradient, is zero.
    t, y = decay_data()
    found = quiet(decay(2.0, 0.5), difference, (t[1:], y[1:]), solver=optax.sgd(1e4), throw=False)
    assert found.status == Status.diverged and "learning rate" in found.message


def test_trial_points_without_a_value_are_stepped_back_from():
    def residuals(model, data):
        t, y = data
        return jnp.log(model.size - 2.0) + jnp.where(model.rate < 3, model.rate, jnp.nan) * t - y

    t = np.linspace(0.0, 1.0, 9)
    found = quiet(decay(2.1, 2.0), residuals, (t, np.log(0.001) + 2.9 * t))
    np.testing.assert_allclose(found.parameters, [2.001, 2.9], rtol=1e-4)


def test_progress_bar(capsys):
    fit(line(), difference, line_data())
    *earlier, last = capsys.readouterr().err.split("\r")
    assert "compiling" in "".join(earlier) and "LevenbergMarquardt" in last and "compiling" not in last


def test_fit_is_a_pytree():
    found = quiet(line(), difference, line_data())
    again = jax.tree.map(lambda x: x, found)
    assert again.status is Status.successful and again.names == found.names
    assert "LevenbergMarquardt converged" in found.summary() and "slope" in found.summary()


BIG = float(np.finfo(jnp.result_type(float)).max) / 4

BAD = {
    "nothing to fit": ({"model": {"a": 1}}, ValueError, "no floating-point array"),
    "Python numbers": ({"model": {"a": 0.3}}, ValueError, r"`jnp.array\(0.3\)` instead of 0.3"),
    "where misspelt": ({"where": lambda m: m.slop}, ValueError, "`where` could not be applied.*slop"),
    "where computes": ({"where": lambda m: m.slope * 2}, ValueError, "without computing"),
    "where picks nothing": ({"where": lambda m: ()}, ValueError, "no leaf"),
    "where is no node": ({"where": lambda m: 3.0}, ValueError, "it returned float"),
    "integer leaf": (
        {"model": Line(jnp.array(1), jnp.array(1.0)), "where": lambda m: m.slope},
        TypeError,
        "`slope`, which is an array of dtype int",
    ),
    "complex leaf": ({"model": Line(jnp.array(1j), jnp.array(1.0))}, TypeError, "`slope`.*real and imaginary"),
    "positive and not": ({"positive": lambda m: m.slope}, ValueError, "`slope` must be greater than 0, but it is 0.0"),
    # The tests' type checker, where it is on, speaks before `fit` does.
    "positive is a name": ({"positive": "slope"}, TypeError, "`positive` must be True|parameter 'positive'"),
    "outside of bounds": ({"bounds": [(lambda m: m.slope, 1.0, 2.0)]}, ValueError, "between its bounds"),
    "bounds reversed": ({"bounds": [(lambda m: m.slope, 1.0, -1.0)]}, ValueError, "`lower` must be below `upper`"),
    "bounds as in scipy": ({"bounds": (0.0, 1.0)}, TypeError, "each entry of `bounds`"),
    "no transform": ({"transforms": [(lambda m: m.slope, jnp.log)]}, TypeError, "AbstractTransform"),
    "constrained twice": (
        {"positive": lambda m: m.offset, "bounds": [(lambda m: m.offset, 0.0, 2.0)]},
        ValueError,
        "`offset` is constrained twice",
    ),
    "constraint on a fixed leaf": (
        {"where": lambda m: m.slope, "positive": lambda m: m.offset},
        ValueError,
        "`offset`, which is not one of the fitted leaves",
    ),
    "solver is a name": ({"solver": "adam"}, TypeError, "`solver` must be None"),
    "no steps": ({"max_steps": 0}, ValueError, "`max_steps` must be a positive integer, but got 0"),
    "starts is a flag": ({"starts": True}, ValueError, "`starts` must be a positive integer"),
    "no key": ({"starts": 2}, ValueError, "requires `key"),
    "negative tolerance": ({"rtol": -1.0}, ValueError, "`rtol` must be a finite nonnegative number"),
    "negative sigma": ({"sigma": -1.0}, ValueError, "`sigma` must be a positive number"),
    "no spread": ({"spread": 0.0}, ValueError, "`spread` must be a positive number"),
    "missing data": ({"data": (np.ones(3), np.array([1.0, np.nan, 1.0]))}, ValueError, "contain 1 NaN"),
    "leaves its domain": ({"residuals": lambda m, d: jnp.log(m(d[0]) - 9)}, ValueError, "25 of 25 residuals"),
    "no residuals": ({"residuals": lambda m, d: {}}, ValueError, "returned an empty array"),
    "integer residuals": ({"residuals": lambda m, d: jnp.arange(3)}, TypeError, "dtype int"),
    "overflow": ({"residuals": lambda m, d: m.offset * BIG * jnp.ones(2)}, ValueError, "sum of squares overflows"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    arguments, error, message = BAD[case]
    arguments = {"model": line(), "residuals": difference, "data": line_data()} | arguments
    with pytest.raises(error, match=message):
        quiet(**arguments)


def test_under_jit_it_says_so():
    with pytest.raises(TypeError, match="outside of `jit`"):
        jax.jit(lambda model: quiet(model, difference, line_data()).loss)(line())


@pytest.mark.parametrize("solver", [None, optax.adam(1e-2)], ids=["lm", "adam"])
def test_a_second_fit_compiles_nothing_new(solver):
    traced = []

    def residuals(model, data):
        traced.append(1)
        return difference(model, data)

    quiet(decay(), residuals, decay_data(), solver=solver)
    first = len(traced)
    quiet(decay(2.0, 1.0), residuals, decay_data(), solver=solver)
    # Only the checks of the new problem look at the function again.
    assert len(traced) - first <= 3


def test_a_fit_compiles_no_program_of_the_residuals_alone(monkeypatch):
    """The program of a step also gives the loss at the start and at the end."""

    def refuse(*args):
        raise AssertionError("a program of the residuals was compiled")

    monkeypatch.setattr(_problem, "evaluate", refuse)
    for solver in (None, optax.adam(1e-2)):
        quiet(decay(), difference, decay_data(), solver=solver)


def test_a_fit_says_which_solve_failed():
    times = jnp.linspace(0.1, 2.0, 5)

    def residuals(rate, most):
        return sciml.solve(
            lambda t, y, rate: -rate * y, 1.0, t0=0.0, t1=2.0, args=rate, saveat=times, max_steps=most
        ).ys

    with pytest.raises(ValueError, match="A solve within `residuals` fails there: .* with status `max_steps_reached`"):
        sciml.fit(jnp.array(1.0), lambda rate, data: residuals(rate, 2), None, progress=False)


def test_a_fit_says_why_it_has_no_standard_errors():
    # a value, but no derivative
    @jax.custom_jvp
    def root(x):
        return jnp.sqrt(x)

    root.defjvp(lambda x, dx: (root(*x), jnp.nan * dx[0]))
    x = jnp.arange(1.0, 5.0)
    found = sciml.fit(jnp.array(4.0), lambda a, data: root(a) * x, None, progress=False, throw=False)
    assert found.status != Status.successful
    assert "No standard errors: the Jacobian of the residuals is not finite" in found.summary()


@pytest.mark.parametrize("start", [(0.5, 0.2 + 1e-9), (-9.999999, 5.1), (-9.999999, 10 - 1e-8)])
def test_a_start_on_a_bound_and_an_end_on_the_way(start):
    """Logits have no slope at bounds, which a first step may also run into."""
    t = np.linspace(0, 4, 9)
    data = 1 + 0.7 * t + 0.3 * np.random.default_rng(3).normal(size=9)

    def residuals(model, data):
        return (model[0] + model[1] * t - data) / 0.3

    bounds = [(lambda m: m[0], -10.0, 10.0), (lambda m: m[1], 0.2, 10.0)]
    found = sciml.fit(tuple(map(jnp.asarray, start)), residuals, data, bounds=bounds, progress=False)
    right = np.linalg.lstsq(np.stack([np.ones(9), t], 1), data, rcond=None)[0]
    np.testing.assert_allclose(found.model, right, rtol=1e-4)
    assert len(found.history) == found.n_steps + 1 and found.history[-1] == found.loss
