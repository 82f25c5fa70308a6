"""Steps that came to their limit at that of stability are told from others, member by member."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import Status


def drawn(t, y, rate):
    """It follows a slow cosine, at its own rate: stiff where that is large."""
    return -rate * (y - jnp.cos(t))


def oscillator(t, y, frequency):
    return jnp.stack([y[1], -(frequency**2) * y[0]])


def status(model, y0, args, **options):
    options = dict(t0=0.0, t1=1e4, max_steps=100, rtol=1e-4, atol=1e-6, throw=False) | options
    return sciml.solve(model, y0, args=args, **options).status


def test_members_are_told_apart():
    rates = jnp.array([0.5, 1e3, 1e5, -1e-3])
    found = jax.jit(jax.vmap(lambda rate: status(drawn, jnp.ones(2), rate)))(rates)
    assert found.tolist() == [Status.max_steps_reached, Status.stiff, Status.stiff, Status.max_steps_reached]


@pytest.mark.parametrize(
    "options",
    [
        dict(saveat=np.array([5.0, 9e3])),
        dict(solver=diffrax.Bosh3()),
        dict(adjoint=sciml.adjoints.Direct()),
        dict(events=sciml.Event(lambda t, y, args: y[0] - 5.0)),
        dict(positive=True, t0=1.0, t1=1.5, rtol=1e-2),
    ],
    ids=lambda options: "-".join(options),
)
def test_with(options):
    def run(rate):
        return status(drawn, jnp.ones(2), rate, **options)

    assert jax.jit(run)(jnp.asarray(1e4)) == Status.stiff
    assert jax.jit(jax.vmap(run))(jnp.array([1e4, 2e4])).tolist() == [Status.stiff] * 2


def test_oscillations_are_not_stiff():
    for rtol in (1e-2, 1e-4):
        found = jax.jit(lambda f, rtol=rtol: status(oscillator, jnp.ones(2), f, rtol=rtol))(jnp.asarray(30.0))
        assert found == Status.max_steps_reached


def test_an_implicit_method_is_not_held_by_stability():
    found = jax.jit(lambda rate: status(drawn, jnp.ones(2), rate, solver=sciml.solvers.Rodas5P()))(jnp.asarray(1e4))
    assert found == Status.max_steps_reached


def test_complex_states():
    def turned(t, y, rate):
        return jax.lax.complex(-rate, 0.1 * rate) * (y - jax.lax.complex(jnp.cos(t), jnp.sin(t)))

    y0 = jax.lax.complex(jnp.ones(2), jnp.zeros(2))
    assert jax.jit(lambda rate: status(turned, y0, rate))(jnp.asarray(1e4)) == Status.stiff


def test_a_gradient_beside_it():
    def reached(rate):
        sol = sciml.solve(drawn, jnp.ones(2), t0=0.0, t1=1.0, args=rate, max_steps=40, throw=False)
        return jnp.sum(sol.ys), sol.status

    gradient, found = jax.jit(jax.grad(reached, has_aux=True))(jnp.asarray(1e4))
    assert found == Status.stiff and jnp.isnan(gradient)  # of a state that was not reached
    gradient, found = jax.jit(jax.grad(reached, has_aux=True))(jnp.asarray(1.0))
    assert found == Status.successful and jnp.isfinite(gradient)


def test_it_teaches():
    @jax.jit
    def run(y0):
        return sciml.solve(sciml.models.VanDerPol(mu=1e3), y0, t0=0.0, t1=2e3, solver=diffrax.Tsit5(), max_steps=500)

    with pytest.raises(sciml.SolveError, match=r"status `stiff`.*solver=sciml.solvers.Rodas5P\(\)`"):
        run(jnp.array([2.0, 0.0])).raise_if_failed()


def test_it_can_be_gone_on_with():
    options = dict(t0=0.0, t1=0.1, args=1e4, rtol=1e-4, atol=1e-6, throw=False, solver=diffrax.Tsit5())
    state = diffrax.SaveAt(t1=True, solver_state=True)
    whole = sciml.solve(drawn, jnp.ones(2), max_steps=2000, **options)
    half = sciml.solve(drawn, jnp.ones(2), max_steps=200, saveat=state, **options)
    assert half.status == Status.stiff and half.resume is not None
    rest = sciml.solve(drawn, jnp.ones(2), max_steps=2000, resume=half.resume, **options)
    np.testing.assert_allclose(rest.ys, whole.ys, rtol=1e-6)
