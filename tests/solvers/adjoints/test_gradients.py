"""Gradients: every adjoint through every loop, by everything a solution depends on."""

import functools as ft
import os

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jax.programs import programs_within
from sciml.verify.measures._finite_difference import finite_difference_gradient
from tests.gradients import check_gradient
from tests.registry_adjoints import (
    ADJOINTS,
    KINDS,
    each_forward,
    each_not_forward,
    each_not_reverse,
    each_reverse,
)

from ..common import cheap, close, inputs, loss, run

pytestmark = pytest.mark.x64


@ft.cache
def differences(kind):
    """The gradient by finite differences; an error of the solution of 1e-10 over a step of 1e-4."""
    fn = jax.jit(ft.partial(loss, kind, sciml.adjoints.Checkpointed()))
    return finite_difference_gradient(fn, inputs(), step=1e-4 if kind.startswith("adaptive") else None)


@ft.cache
def gradient(name, kind):
    adjoint = next(case.adjoint for case in ADJOINTS if case.name == name)
    return jax.jit(jax.grad(ft.partial(loss, kind, adjoint)))(inputs())


def tolerances(kind, error=0.0):
    if kind.startswith("adaptive"):  # an error of 1e-10 over a step of 1e-4, and the square of the step
        return {"rtol": 2e-6, "atol": 2e-6}
    return {"rtol": max(2e-8, error), "atol": max(2e-8, error)}


@each_reverse
def test_reverse_mode_agrees_with_finite_differences(case, kind):
    close(gradient(case.name, kind), differences(kind), **tolerances(kind, case.error))


@each_forward
def test_forward_mode_agrees_with_finite_differences(case, kind):
    found = jax.jit(jax.jacfwd(ft.partial(loss, kind, case.adjoint)))(inputs())
    close(found, differences(kind), **tolerances(kind))


REFUSED = r"^this `adjoint` does not support forward mode .* Use `adjoint=sciml.adjoints.Direct\(\)`"
if os.environ.get("JAX_CUSTOM_VJP3") == "1":  # JAX's new rules refuse forward mode themselves, before it meets a mark
    REFUSED += "|^can't apply forward-mode"


@each_not_forward
def test_forward_mode_is_refused(case, kind):
    p = inputs()
    ways = jax.jacfwd, lambda f: jax.jit(jax.jacfwd(f)), lambda f: lambda p: jax.jvp(jax.jit(f), (p,), (p,))
    for forward in ways if kind in ("scan", "adaptive_saves") else ways[:1]:
        with pytest.raises(TypeError, match=REFUSED):
            forward(ft.partial(loss, kind, case.adjoint))(p)


@each_not_reverse
def test_reverse_mode_is_refused(case, kind):
    with pytest.raises(TypeError, match=r"adjoint=Direct\(\).*Use `adjoint=sciml.adjoints.Checkpointed\(\)`"):
        jax.grad(ft.partial(loss, kind, case.adjoint))(inputs())


@pytest.mark.parametrize("kind", [k if k in ("scan", "adaptive_saves") else k for k in KINDS])
def test_memory_does_not_change_the_gradient(kind):
    """Iterations that are run again choose their steps anew, which rounding changes by its share of the tolerance."""
    options = cheap(kind) | ({"rtol": 1e-7, "atol": 1e-7} if kind.startswith("adaptive") else {})
    little, plenty = sciml.adjoints.Checkpointed(memory=1), sciml.adjoints.Checkpointed()
    assert int(jnp.sum(jnp.stack(run(kind, plenty, inputs(), **options).stats[:2]))) > 20  # more than there are slots
    found = [jax.jit(jax.grad(ft.partial(loss, kind, adjoint, **options)))(inputs()) for adjoint in (little, plenty)]
    close(*found, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "name, kind",
    [
        ("checkpointed", "scan"),
        ("checkpointed", "adaptive_saves"),
        *(pytest.param(*pair) for pair in (("reversible", "fixed"), ("gauss", "adaptive"))),
        *((name, "adaptive_saves") for name in ("backsolve", "interpolating")),
    ],
)
def test_the_backward_pass_carries_what_is_asked_for(name, kind):
    adjoint, p = next(case.adjoint for case in ADJOINTS if case.name == name), inputs()

    def by_one(force, p):
        return loss(kind, adjoint, eqx.tree_at(lambda p: p.args["force"], p, force))

    def by_many(many, p):
        return loss(kind, adjoint, eqx.tree_at(lambda p: (p.model, p.y0, p.args, p.factor), p, many))

    def operations(program):
        return sum(1 + sum(map(operations, programs_within(eqn))) for eqn in program.eqns)

    def of_gradient(fn, x):
        return operations(jax.make_jaxpr(jax.grad(fn))(x, p).jaxpr)

    found = jax.jit(jax.grad(by_one))(p.args["force"], p)
    close(found, gradient(name, kind).args["force"], **tolerances(kind, 3e-7))
    assert of_gradient(by_one, p.args["force"]) < of_gradient(by_many, (p.model, p.y0, p.args, p.factor)) - 10


@pytest.mark.parametrize("steps, states", [(97, 97), (400, 100)])
def test_a_batch_may_have_other_levels_than_one_member(steps, states):
    """The memory is there for all members, so that what is kept of each lies in other pieces of the loop."""

    def end(rate):
        field, y0 = lambda t, y, rate: -rate * y, jnp.ones(3)
        options = dict(solver=diffrax.Heun(), adjoint=sciml.adjoints.Checkpointed(memory=24 * states))
        return jnp.sum(sciml.solve(field, y0, t0=0.0, t1=1.0, dt=1 / steps, args=rate, **options).ys)

    rates = jnp.linspace(0.5, 2.0, 8)
    found = jax.jit(jax.grad(lambda rates: jnp.sum(jax.vmap(end)(rates))))(rates)
    np.testing.assert_allclose(found, -3 * np.exp(-rates), rtol=1e-3)


@pytest.mark.parametrize("kind", ["scan", "fixed_saves", "adaptive_saves"])
def test_reverse_mode_agrees_with_diffrax(kind):
    def reference(p):
        term = diffrax.ODETerm(lambda t, y, args: p.factor * p.model(t, y, args))
        controller, dt = diffrax.PIDController(rtol=1e-10, atol=1e-10), None
        if kind == "scan":
            controller, dt = diffrax.ConstantStepSize(), 0.05
        if kind == "fixed_saves":  # diffrax would make all steps equal where they do not divide the span
            controller = diffrax.StepTo(jnp.append(p.t0 + 0.0617 * jnp.arange(32.0), p.t1))
        t0, t1 = (0.1, 2.05) if kind == "scan" else (p.t0, p.t1)
        saveat = diffrax.SaveAt(t1=True) if kind == "scan" else diffrax.SaveAt(ts=p.ts)
        ys = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), t0, t1, dt, p.y0, p.args, saveat=saveat, stepsize_controller=controller
        ).ys
        weights = jnp.arange(1, ys.size + 1).astype(ys.dtype).reshape(ys.shape)
        return jnp.sum(jnp.sin(ys * weights))

    expected = jax.jit(jax.grad(reference))(inputs())
    found = gradient("checkpointed", kind)
    # diffrax also differentiates through the steps' sizes, which matters no more than the tolerance
    tolerance = 1e-7 if kind.startswith("adaptive") else 1e-10
    close(found, expected, rtol=tolerance, atol=tolerance)


def test_jacrev_of_saved_states():
    def saved(adjoint, y0):
        p = inputs()
        options = {"args": p.args, "saveat": p.ts, "adjoint": adjoint, "solver": diffrax.Bosh3()}
        return sciml.solve(p.model, y0, t0=0.1, t1=2.0, dt=0.05, **options).ys

    y0 = inputs().y0
    reverse = jax.jit(jax.jacrev(ft.partial(saved, sciml.adjoints.Checkpointed())))(y0)
    forward = jax.jit(jax.jacfwd(ft.partial(saved, sciml.adjoints.Direct())))(y0)
    assert reverse.shape == (4, 2, 2)
    close(reverse, forward, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["scan", "adaptive"])
def test_hessian_through_direct(kind):
    fn = ft.partial(loss, kind, sciml.adjoints.Direct())

    def of_y0(y0):
        return fn(eqx.tree_at(lambda p: p.y0, inputs(), y0))

    y0 = inputs().y0
    hessian = np.asarray(jax.jit(jax.jacfwd(jax.jacfwd(of_y0)))(y0))
    gradient = jax.jit(jax.jacfwd(of_y0))
    step = 1e-4
    columns = [(gradient(y0.at[i].add(step)) - gradient(y0.at[i].add(-step))) / (2 * step) for i in range(2)]
    np.testing.assert_allclose(hessian, np.stack(columns, axis=-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-6, atol=1e-6)


def test_saved_times_at_both_ends_are_differentiated():
    """By a saved time the derivative is the vector field; by t0 it is what the initial state brings."""

    def field(t, y, args):
        return -y * jnp.cos(t)

    def saved(ts):
        return sciml.solve(field, jnp.array([1.5]), t0=0.2, t1=1.2, rtol=1e-10, atol=1e-10, saveat=ts).ys[:, 0]

    ts = jnp.array([0.2, 0.7, 1.2])
    exact = 1.5 * jnp.exp(jnp.sin(0.2) - jnp.sin(ts))
    np.testing.assert_allclose(jax.jit(jax.jacrev(saved))(ts), jnp.diag(-exact * jnp.cos(ts)), atol=1e-8)


def test_saved_times_in_a_saveat_are_differentiated():
    def saved(ts):
        saveat = diffrax.SaveAt(ts=ts, t1=True)
        return sciml.solve(lambda t, y, args: -y, jnp.ones(1), t0=0.0, t1=1.0, dt=0.01, saveat=saveat).ys[:, 0]

    ts = jnp.array([0.25, 0.605])
    np.testing.assert_allclose(jax.jacrev(saved)(ts)[:2], jnp.diag(-jnp.exp(-ts)), atol=1e-8)


def test_gradient_backwards_in_time():
    def start(p, adjoint):
        sol = sciml.solve(
            p.model, p.y0, t0=p.t1, t1=p.t0, args=p.args, dt=-0.03, saveat=p.ts[::-1], adjoint=adjoint,
            solver=diffrax.Bosh3(),
        )  # fmt: skip
        return jnp.sum(jnp.sin(sol.ys) * jnp.arange(1.0, 9.0).reshape(4, 2))

    fn = ft.partial(start, adjoint=sciml.adjoints.Checkpointed())
    check_gradient(fn, inputs(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [{"dt": 0.05}, {"dt": 0.05, "saveat": [0.52, 1.0]}],
    ids=["end", "saves"],
)
def test_gradient_of_a_pytree_state_with_a_complex_leaf(options):
    def field(t, y, args):
        angle, wave = y["angle"], y["wave"]
        return {"angle": -jnp.sin(angle), "wave": jax.lax.complex(0.0, args * jnp.cos(angle[0])) * wave}

    def fn(p):
        y0 = {"angle": p["angle"], "wave": jax.lax.complex(p["re"], p["im"])}
        sol = sciml.solve(field, y0, t0=0.0, t1=1.0, args=p["rate"], solver=diffrax.Heun(), **options)
        return jnp.sum(jnp.real(sol.ys["wave"]) * jnp.sin(sol.ys["angle"][:, :1])) + jnp.sum(jnp.abs(sol.ys["wave"]))

    p = {
        "angle": jnp.array([0.3, 0.9]),
        "re": jnp.array([1.0, 0.4, -1.0]),
        "im": jnp.array([0.2, 0.0, 0.5]),
        "rate": jnp.array(2.0),
    }
    check_gradient(fn, p, rtol=1e-7, atol=1e-8)
