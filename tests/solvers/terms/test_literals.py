"""Plain numbers in what a model returns, as `-9.81` for a falling body, are arrays to every method and adjoint."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints

START = {"x": jnp.zeros(()), "v": jnp.ones(())}


def falling(t, y, args):
    return {"x": y["v"], "v": -9.81}


METHODS = {
    "fixed": dict(dt=0.1),
    "adaptive": dict(rtol=1e-4, atol=1e-6),
    "saved": dict(rtol=1e-4, atol=1e-6, saveat=[0.5, 1.0]),
    "Rodas5P": dict(rtol=1e-4, atol=1e-6, solver=sciml.solvers.Rodas5P()),
    "Kvaerno5": dict(rtol=1e-4, atol=1e-6, solver=diffrax.Kvaerno5()),
    "Kvaerno3, by diffrax": dict(
        rtol=1e-4, atol=1e-6, solver=diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-5, atol=1e-5))
    ),
}


@pytest.mark.parametrize("how", METHODS)
def test_numbers_among_rates(how):
    ys = sciml.solve(falling, START, t0=0.0, t1=1.0, **METHODS[how]).ys
    np.testing.assert_allclose(ys["x"][-1], 1 - 9.81 / 2, rtol=2e-4)
    np.testing.assert_allclose(ys["v"][-1], 1 - 9.81, rtol=2e-4)


@pytest.mark.parametrize("adjoint", ["Checkpointed", "Forward", "Backsolve", "Interpolating", "Gauss", "Reversible"])
def test_derivatives(adjoint):
    steps = dict(dt=0.1) if adjoint == "Reversible" else dict(rtol=1e-4, atol=1e-6)
    how = dict(adjoint=getattr(adjoints, adjoint)(), **steps)
    end = lambda v: sciml.solve(falling, {**START, "v": v}, t0=0.0, t1=1.0, **how).ys["x"][-1]  # noqa: E731
    np.testing.assert_allclose(jax.grad(end)(1.0), 1.0, rtol=1e-4)


@pytest.mark.parametrize("number", [1, 1.0, np.float64(1.0)])
def test_numbers_take_the_dtype_of_the_state(number):
    for dtype in (jnp.float32, jnp.result_type(float)):
        y = sciml.solve(lambda t, y, args: number, jnp.zeros((), dtype), t0=0.0, t1=1.0).ys[-1]
        assert y.dtype == dtype
        np.testing.assert_allclose(y, 1.0, rtol=1e-6)


def test_a_number_is_no_vector_and_no_complex_rate_of_a_real_state():
    with pytest.raises(ValueError, match=r"must return the shapes of `y0`: the state has shape \(2,\)"):
        sciml.solve(lambda t, y, args: 1.0, jnp.zeros(2), t0=0.0, t1=1.0)
    with pytest.raises(ValueError, match="must return the dtypes of `y0`"):
        sciml.solve(lambda t, y, args: 1j, jnp.zeros(()), t0=0.0, t1=1.0)
