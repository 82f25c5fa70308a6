"""An ensemble of no members has results of no members and gradients of zero, whatever the adjoint and the method."""

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml
from tests.adjoint_table import ADJOINTS

pytestmark = pytest.mark.x64

TOLERANCES = dict(rtol=1e-4, atol=1e-4)
BELOW = sciml.Event(lambda t, y, args: y[0] - 0.5, lambda t, y, args: y + 0.3)
HOW = {
    "fixed": dict(dt=0.25, solver=diffrax.Heun()),
    "saved": dict(saveat=[0.5, 1.0], solver=diffrax.Heun(), **TOLERANCES),
    "stiff": dict(solver=sciml.solvers.Rosenbrock23(), **TOLERANCES),
    "events": dict(events=BELOW, solver=diffrax.Heun(), **TOLERANCES),
}
PAIRS = (  # each adjoint with what its rule treats by itself
    *((a, "fixed") for a in ADJOINTS if a != "Implicit"),
    *(("Checkpointed", how) for how in ("saved", "stiff", "events")),
    *((a, "saved") for a in ("Direct", "Reversible", "Gauss")),
    *((a, "stiff") for a in ("Forward", "Backsolve", "Gauss", "Implicit")),
    ("Direct", "events"),
)


def field(t, y, rate):
    return jnp.stack([-rate * y[0] * y[1], rate * y[0] - y[1]])


def solved(rate, adjoint, how):
    options = dict(t0=0.0, t1=40.0 if adjoint == "Implicit" else 1.0, throw=False, **HOW[how])
    ys = sciml.solve(field, jnp.ones(2), args=rate, adjoint=ADJOINTS[adjoint], **options).ys
    return sum(jnp.sum(y) for y in jax.tree.leaves(ys)), ys


@pytest.mark.parametrize("adjoint, how", PAIRS)
def test_values_and_gradients(adjoint, how):
    def both(rate):
        if adjoint == "Direct" and how != "fixed":  # whose loops of unknown length have forward mode alone
            rates = jnp.ones_like(rate)
            return jax.jvp(lambda rate: solved(rate, adjoint, how), (rate,), (rates,), has_aux=True)
        return jax.value_and_grad(solved, has_aux=True)(rate, adjoint, how)

    ys = jax.eval_shape(lambda rate: solved(rate, adjoint, how)[1], 1.0)
    found = jax.eval_shape(jax.vmap(both), jnp.zeros(0))
    shapes = [x.shape for x in jax.tree.leaves(found)]
    assert all(shape[0] == 0 for shape in shapes)
    assert {(0, *y.shape) for y in jax.tree.leaves(ys)} <= set(shapes)


@pytest.mark.parametrize("adjoint", ["Gauss", "Interpolating"])
def test_what_they_share_has_a_gradient_of_zero(adjoint):
    """Run, and not only traced."""

    def loss(scale):
        totals, ys = jax.vmap(lambda rate: solved(scale * rate, adjoint, "fixed"))(jnp.zeros(0))
        return jnp.sum(totals), ys

    (value, ys), by_scale = jax.jit(jax.value_and_grad(loss, has_aux=True))(1.0)
    assert value == by_scale == 0 and ys.shape == (0, 1, 2)
