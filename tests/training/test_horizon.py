"""Fits and trainings through solutions that go on beyond what a gradient says are named."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sciml
from sciml import Status, inspect, training
from sciml._interfaces._horizon import Horizon
from sciml.training._gradients_reach import check_horizon

START = jnp.array([-3.0, -3.0, 20.0])
TRUTH = sciml.models.Lorenz63()


def seen(model, t1, adjoint=sciml.adjoints.Direct()):
    times = jnp.linspace(0.0, t1, 9)[1:]
    return sciml.solve(model, START, t0=0.0, t1=t1, dt=0.02, saveat=times, adjoint=adjoint).ys


def guess(rho):
    return eqx.tree_at(lambda m: m.rho, TRUTH, jnp.asarray(rho))


def until(t1):
    return lambda model: inspect.horizon(model, START, t1=t1, error=1e-4, dt=0.02, n=64)


def fitted(rho, t1, **options):
    data = np.asarray(seen(TRUTH, t1))
    residuals = lambda model, data: seen(model, t1) - data  # noqa: E731
    options = dict(where=lambda m: m.rho, horizon=until(t1), progress=False, covariance=False) | options
    return sciml.fit(guess(rho), residuals, data, **options)


def test_a_short_record_of_lorenz_is_within_the_horizon():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fitted(27.5, 1.0)
    np.testing.assert_allclose(fit.model.rho, 28.0, rtol=1e-3)
    assert fit.status == Status.successful and fit.converged and np.isinf(fit.horizon.time)
    assert "meaningless" not in fit.message


def test_a_long_record_is_named_with_the_time_from_which_gradients_say_nothing():
    with pytest.warns(UserWarning, match="`fit`: ") as told:
        fit = fitted(28.0, 25.0)  # there already, so that it ends by its tolerance
    assert fit.status == Status.beyond_horizon and not fit.converged
    assert 4 < fit.horizon.time < 20
    assert f"are meaningless from t = {float(fit.horizon.time):.4g}, but it extends to t = 25;" in fit.message
    assert "multiple_shooting" in fit.message and fit.message in str(fit)
    at_start, at_end = (str(w.message) for w in told)
    assert "at the start, gradients" in at_start and "at the start" not in at_end


def test_a_fit_that_fails_says_so_in_its_error():
    with pytest.warns(UserWarning, match="at the start"):
        with pytest.raises(
            sciml.SolveError, match="used all `max_steps=2`.*Gradients through the solution are meaningless"
        ):
            fitted(26.0, 25.0, max_steps=2)


def trained(t1, **options):
    data = np.asarray(seen(TRUTH, t1))
    loss = lambda model, batch, key: jnp.mean((seen(model, t1, sciml.adjoints.Checkpointed()) - batch) ** 2)  # noqa: E731
    options = dict(where=lambda m: m.rho, horizon=until(t1), progress=False, steps=3) | options
    # whose steps do not depend on the gradient's size, which for the long record is anything
    return training.train(guess(27.9), loss, data, optimiser=optax.adam(1e-3), **options)


def test_training_names_it_too():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        short = trained(0.5)
    assert short.status == Status.successful and np.isinf(short.horizon.time)
    with pytest.warns(UserWarning, match="`train`: ") as told:
        long = trained(25.0)
    assert long.status == Status.beyond_horizon and 4 < long.horizon.time < 20
    assert len(told) == 2 and "are meaningless from t" in long.message and long.n_steps == 3


def test_of_several_solutions_the_first_is_named():
    starts = START[None] + jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 1.0]])

    def of_all(model):
        options = dict(t1=25.0, error=1e-4, dt=0.02, n=64, throw=False)
        return eqx.filter_vmap(lambda start: inspect.horizon(model, start, **options))(starts)

    with pytest.warns(UserWarning, match="the first of 3 of 3 members"):
        fit = fitted(28.0, 1.0, horizon=of_all)
    assert fit.horizon.time.shape == (3,) and fit.status == Status.beyond_horizon


def test_a_model_that_cannot_be_looked_at_in_the_end_is_kept():
    calls = []

    def once(model):
        calls.append(model)
        if len(calls) > 1:
            raise sciml.SolveError("it is elsewhere", np.asarray(1))
        return until(1.0)(model)

    with pytest.warns(UserWarning, match="could not be measured: it is elsewhere"):
        fit = fitted(27.9, 1.0, horizon=once)
    assert fit.horizon is None and fit.status == Status.successful and len(calls) == 2


def test_what_is_no_horizon():
    with pytest.raises(TypeError, match="`horizon` of `fit` must be a function of the model .* got True"):
        check_horizon(True, "fit")
    found = Horizon(*jnp.zeros(2), *jnp.zeros((2, 4)), jnp.int32(0))
    with pytest.raises(TypeError, match="changes with the parameters, but is a `Horizon`"):
        check_horizon(found, "fit")
    with pytest.raises(TypeError, match="returned a float"):
        fitted(27.9, 1.0, horizon=lambda model: 3.0)
    with pytest.raises(TypeError, match="horizon"):
        trained(1.0, horizon=3.0)
