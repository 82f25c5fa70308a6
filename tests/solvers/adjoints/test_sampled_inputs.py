"""Gradients by controls sampled in time, their values and the times of the samples, for each member by itself."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml.verify.measures._finite_difference import finite_difference_gradient
from tests.registry_adjoints import ADJOINTS

from ..common import close

pytestmark = pytest.mark.x64

LOOPS = {"scan": {"dt": 0.02}, "adaptive_saves": {"rtol": 1e-10, "atol": 1e-10}}


def steered(t, y, control):
    """A damped spring pushed by a force that is known at samples, with a cubic between each two."""
    return jnp.stack([y[1], control.evaluate(t) - y[0] - 0.3 * y[1]])


def loss(kind, adjoint, p, **options):
    """Of where the spring is at the end, or at two saved times that are differentiated, too."""
    coefficients = diffrax.backward_hermite_coefficients(p["ts"], p["values"])
    control = diffrax.CubicInterpolation(p["ts"], coefficients)
    options = {"adjoint": adjoint, "throw": False, "args": control, "solver": diffrax.Bosh3(), **LOOPS[kind], **options}
    if kind == "scan":
        sol = sciml.solve(steered, p["y0"], t0=0.1, t1=1.9, **options)
    else:
        sol = sciml.solve(steered, p["y0"], t0=p["t0"], t1=p["t1"], saveat=p["saves"], **options)
    return jnp.sum(jnp.sin(sol.ys) * jnp.arange(1.0, 1 + sol.ys.size).reshape(sol.ys.shape))


def batch():
    """Two members, each with a control and times of its own."""
    ts = jnp.array([0.0, 0.4137, 0.9059, 1.5031, 2.0])
    one = {
        "ts": ts,
        "values": jnp.array([0.0, 1.0, -0.5, 0.7, 0.2]),
        "y0": jnp.array([0.7, -0.3]),
        "t0": jnp.array(0.1),
        "t1": jnp.array(1.9),
        "saves": jnp.array([0.8123, 1.7]),
    }
    other = {**one, "values": one["values"] * 1.5 - 0.2, "ts": ts.at[1:4].add(0.0531), "y0": one["y0"][::-1]}
    return jax.tree.map(lambda *x: jnp.stack(x), one, other)


@ft.cache
def differences(kind, adjoint):
    """Each member's gradient by finite differences."""
    total = jax.jit(lambda p: jnp.sum(jax.vmap(ft.partial(loss, kind, adjoint))(p)))
    return finite_difference_gradient(total, batch(), step=1e-6 if kind == "scan" else 1e-4)


def _is_continuous(case, kind):
    """Fixed steps are no accurate quadrature where a control has a corner."""
    return kind == "scan" and isinstance(
        case.adjoint, (sciml.adjoints.Gauss, sciml.adjoints.Interpolating, sciml.adjoints.Backsolve)
    )


def _cases():
    seen = set()
    for case in ADJOINTS:
        for kind in LOOPS:
            if kind not in case.reverse or type(case.adjoint) in seen or _is_continuous(case, kind):
                continue
            yield pytest.param(case, kind, id=f"{case.name}-{kind}")
        seen.add(type(case.adjoint))


@pytest.mark.parametrize("case, kind", list(_cases()))
def test_gradients_by_a_control_sampled_in_time(case, kind):
    """`vmap(grad)` against differences, with respect to samples and their times, and all other times."""
    found = jax.jit(jax.vmap(jax.grad(ft.partial(loss, kind, case.adjoint))))(batch())
    method = case.adjoint if isinstance(case.adjoint, sciml.adjoints.Reversible) else sciml.adjoints.Checkpointed()
    error = (
        1e-8 if kind == "scan" else 1e-5
    )  # errors of 1e-10 over a step of 1e-4, larger where the control has a corner
    close(found, differences(kind, method), rtol=error, atol=error)
    used = found.keys() - ({"t0", "t1", "saves"} if kind == "scan" else {"t1"})  # a saved time is not the end
    assert all(jnp.max(jnp.abs(found[name])) > 0.01 for name in used)
