"""What every method that reads the structure of a model must show, in every way that a solve is run."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sciml
from sciml.verify.measures._finite_difference import finite_difference_gradient
from tests import families
from tests.registry_structured import CASES, ROCK4, each_adaptive_case, each_case, each_with_structure

from ...common import close, forward_gradient

RATE = 1.3


def end(case, rate, state=None, t1=1.0, **options):
    """All saved states as one vector."""
    rate = jnp.asarray(rate, jnp.result_type(float))
    y0 = case.state(rate.dtype) if state is None else state
    options = {"t0": 0.0, "t1": t1, "solver": case.solver(), "throw": False, **options}
    ys = sciml.solve(case.model(rate), y0, **options).ys
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(ys)])


@ft.cache
def reference(model, state, t1, *ts):
    case = ft.partial(sciml.solve, model(jnp.asarray(RATE)), state(float), t0=0.0, t1=t1)
    ys = case(rtol=1e-11, atol=1e-12, saveat=list(ts) or None, max_steps=100_000).ys
    return np.concatenate([np.asarray(x).reshape(-1) for x in jax.tree.leaves(ys)])


@pytest.mark.x64
@each_case
def test_order(case):
    exact = reference(case.model, case.state, 1.0)
    counts = case.steps[-2:]
    errors = [np.max(np.abs(end(case, RATE, dt=1 / n) - exact)) for n in counts]
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    more = 0.4 if case.order == 8 else 0.2  # few steps of order eight show more of it
    assert -0.2 < slope - case.order < more, errors


@pytest.mark.x64
@each_case
def test_saved_times_and_a_shorter_last_step(case):
    """Times where steps end, and between."""
    n = case.steps[-1]
    most = 120 if case.solver == ROCK4 else 40  # cubic polynomials between steps of order four leave more
    # what does not depend on the method is seen with one of each kind
    for ts in ([0.0, 0.5, 1.0], [0.111, 0.5, 0.987])[0 if case.leads else 1 :]:
        got = end(case, RATE, dt=1 / n, saveat=ts)
        np.testing.assert_allclose(got, reference(case.model, case.state, 1.0, *ts), atol=most * n**-case.order)
    if case.leads:
        whole = end(case, RATE, dt=1 / n, t1=0.5)
        same = end(case, RATE, dt=1 / n, saveat=[0.5], t1=0.5)
        np.testing.assert_allclose(same, whole, rtol=1e-12, atol=1e-13)
    shorter = end(case, RATE, dt=1 / (n + 0.5), t1=1.0)
    np.testing.assert_allclose(shorter, reference(case.model, case.state, 1.0), atol=40 * n**-case.order)


@pytest.mark.x64
@each_adaptive_case
def test_tolerance_is_met(case):
    for tol in (1e-3, 1e-6):
        got = end(case, RATE, rtol=tol, atol=tol, saveat=[0.3, 1.0])
        np.testing.assert_allclose(got, reference(case.model, case.state, 1.0, 0.3, 1.0), atol=60 * tol)


# Equal steps; steps with a shorter last one and a saved time between; steps by error control.
KINDS = {
    "scan": {"dt": 0.1},
    "tail_saves": {"dt": 0.13, "saveat": [0.33, 1.0]},
    "adaptive": {"rtol": 1e-9, "atol": 1e-9, "saveat": [0.33, 1.0]},
}


def kinds(case):
    """In which ways to solve for a gradient: whole steps and the one that has most in it, or this one alone."""
    return (["scan"] if case.leads else []) + ["adaptive" if case.adaptive else "tail_saves"]


@pytest.mark.x64
@pytest.mark.parametrize(
    "case, kind", [pytest.param(c, kind, id=f"{c.name}-{kind}") for c in CASES for kind in kinds(c)]
)
def test_gradient_agrees_with_forward_mode_and_finite_differences(case, kind):
    def loss(x, adjoint=None):
        ys = end(case, x["rate"], x["y0"], adjoint=adjoint, **KINDS[kind])
        return jnp.sum(jnp.sin(ys * jnp.arange(1, ys.size + 1).astype(ys.dtype)))

    x = {"rate": jnp.asarray(RATE), "y0": case.state(float)}
    both = jax.jit(jax.value_and_grad(loss))
    reverse = both(x)[1]
    close(reverse, forward_gradient(ft.partial(loss, adjoint=sciml.adjoints.Direct()), x), rtol=1e-9, atol=1e-10)
    # A neighbouring parameter chooses other steps, and of stabilised methods other numbers of stages.
    atol = 2e-8 if kind != "adaptive" else 2e-6 if case.structure else 5e-5
    close(reverse, finite_difference_gradient(lambda x: both(x)[0], x), rtol=1e-6, atol=atol)


@pytest.mark.x64
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.solver in (sciml.solvers.VelocityVerlet, families.ETDRK4) and c.leads]
)
def test_gradient_quickly(case):
    """One number by finite differences, of fixed steps, whole and broken."""

    def loss(rate):
        return jnp.sum(jnp.sin(end(case, rate, dt=0.3)))

    value = float(jax.jit(jax.grad(loss))(jnp.asarray(RATE)))
    run = jax.jit(loss)
    assert abs(value - float(run(RATE + 1e-5) - run(RATE - 1e-5)) / 2e-5) < 1e-7 * max(1, abs(value))


@pytest.mark.x64
@pytest.mark.parametrize("case", [c for c in CASES if c.leads], ids=lambda case: case.name)
def test_members_of_a_batch(case):
    """Value and gradient under vmap, and grad of vmap, each member as alone."""
    options = {"rtol": 1e-6, "atol": 1e-6} if case.adaptive else {"dt": 0.1}
    loss = lambda rate: jnp.sum(end(case, rate, **options) ** 2)  # noqa: E731
    rates = jnp.array([0.7, 1.3, 2.0])
    alone = jax.jit(jax.value_and_grad(loss))
    values, slopes = (jnp.stack(x) for x in zip(*map(alone, rates)))
    found, each_own = jax.jit(jax.vmap(jax.value_and_grad(loss)))(rates)
    close(found, values, rtol=1e-9)
    close(each_own, slopes, rtol=1e-7)
    close(jax.jit(jax.grad(lambda r: jnp.sum(jax.vmap(loss)(r))))(rates), each_own, rtol=1e-10)


@pytest.mark.parametrize("case", [c for c in CASES if c.leads], ids=lambda case: case.name)
def test_shard_map_with_checked_types(case):
    mesh = jax.make_mesh((2,), ("members",), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))
    rates = jnp.array([0.7, 1.3])
    options = {"rtol": 1e-3, "atol": 1e-3} if case.adaptive else {"dt": 0.2}
    fn = jax.vmap(jax.value_and_grad(lambda r: jnp.sum(end(case, r, **options) ** 2)))
    sharded = jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members"))
    close(jax.jit(sharded)(rates), jax.jit(fn)(rates), rtol=1e-4, atol=1e-5)


@each_case
def test_float32(case):
    rate = jnp.asarray(RATE, jnp.float32)
    for options in [{"dt": 1 / 64}] + [{"rtol": 1e-4, "atol": 1e-5}] * case.adaptive:
        sol = sciml.solve(
            case.model(rate), case.state(jnp.float32), t0=0.0, t1=1.0, solver=case.solver(), saveat=[1.0], **options
        )
        for got, wide in zip(jax.tree.leaves(sol.ys), jax.tree.leaves(case.state(jnp.float32))):
            assert got.dtype == wide.dtype and got.shape == (1, *wide.shape)
        expected = end(case, RATE, dt=1 / 64)
        got = jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(sol.ys)])
        np.testing.assert_allclose(got, expected, atol=3e-3)


@pytest.mark.x64
@pytest.mark.parametrize(
    "case, backwards",
    [pytest.param(c, False, id=c.name) for c in CASES]
    # diffusion does not run backwards, and stabilised methods damp
    + [pytest.param(c, True, id=f"{c.name}-backwards") for c in CASES if c.leads and c.structure],
)
def test_inside_diffrax_and_backwards(case, backwards):
    t0, t1 = (0.2, 0.0) if backwards else (0.0, 0.2)
    dt = (t1 - t0) / 8
    model, y0 = case.model(jnp.asarray(RATE)), case.state(float)
    theirs = diffrax.diffeqsolve(diffrax.ODETerm(model), case.solver(), t0, t1, dt, y0).ys
    close(sciml.solve(model, y0, t0=t0, t1=t1, dt=dt, solver=case.solver()).ys, theirs, rtol=1e-11, atol=1e-12)
    if case.adaptive and not backwards:
        controller = diffrax.PIDController(rtol=1e-7, atol=1e-7)
        theirs = diffrax.diffeqsolve(
            diffrax.ODETerm(model), case.solver(), t0, t1, 0.01, y0, stepsize_controller=controller
        ).ys
        got = np.concatenate([np.asarray(x).reshape(-1) for x in jax.tree.leaves(theirs)])
        np.testing.assert_allclose(got, reference(case.model, case.state, 0.2), atol=1e-5)


@each_with_structure
def test_a_model_without_the_structure_is_refused(case):
    with pytest.raises(
        TypeError, match=rf"`solver={type(case.solver()).__name__}\(\)` requires a model with .*sciml.Abstract"
    ):
        sciml.solve(lambda t, y, args: -y, jnp.ones(3), t0=0.0, t1=1.0, dt=0.1, solver=case.solver())


@pytest.mark.x64
@pytest.mark.parametrize("solver", [sciml.solvers.VelocityVerlet, families.Yoshida4, sciml.solvers.Leapfrog])
def test_symmetric_methods_are_differentiated_by_running_back(solver):
    case = next(c for c in CASES if c.solver is solver)
    loss = lambda rate, adjoint: jnp.sum(jnp.sin(end(case, rate, t1=5.0, dt=0.03, adjoint=adjoint)))  # noqa: E731
    for rates, map_ in ((jnp.asarray(RATE), lambda f: f), (jnp.array([0.7, 1.3]), jax.vmap)):
        back = jax.jit(map_(jax.grad(ft.partial(loss, adjoint=sciml.adjoints.Reversible()))))(rates)
        close(back, jax.jit(map_(jax.grad(ft.partial(loss, adjoint=sciml.adjoints.Checkpointed()))))(rates), rtol=1e-9)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [sciml.solvers.VelocityVerlet, sciml.solvers.Leapfrog])
def test_symmetric_methods_are_run_back_through_saved_times(solver):
    """At the ends of steps and between, where one interpolates and the other cuts its steps."""
    case = next(c for c in CASES if c.solver is solver)
    for ts in ([0.3, 0.6, 1.2], [0.31, 0.77, 1.2]):
        loss = lambda r, adjoint, ts=ts: jnp.sum(jnp.sin(end(case, r, t1=1.2, dt=0.03, saveat=ts, adjoint=adjoint)))  # noqa: E731
        there, back = (
            jax.jit(jax.value_and_grad(ft.partial(loss, adjoint=adjoint)))(jnp.asarray(RATE))
            for adjoint in (sciml.adjoints.Checkpointed(), sciml.adjoints.Reversible())
        )
        close(back, there, rtol=1e-9)


@pytest.mark.x64
def test_continuous_adjoints_and_structure_are_refused_together():
    case = next(c for c in CASES if c.solver is families.ETDRK4)
    with pytest.raises(TypeError, match="lacks the structure"):
        end(case, RATE, dt=0.5, adjoint=sciml.adjoints.Gauss())


@pytest.mark.x64
def test_a_model_that_closes_over_what_it_is_differentiated_by():
    """Nothing of the model itself is traced; what its methods see is."""
    case = next(c for c in CASES if c.leads and c.solver is families.ETDRK4)

    def loss(factor):
        class Scaled(case.model):
            def rest(self, t, modes, args):
                return jax.lax.complex(factor * modes.real, factor * modes.imag)

        sol = sciml.solve(Scaled(jnp.asarray(RATE)), case.state(float), t0=0.0, t1=1.0, dt=0.25)
        return jnp.sum(sol.ys**2)

    value = jax.grad(loss)(jnp.asarray(0.3))
    np.testing.assert_allclose(value, (loss(0.3 + 1e-5) - loss(0.3 - 1e-5)) / 2e-5, rtol=1e-7)


@pytest.mark.x64
def test_a_gradient_by_the_state_alone_is_that_beside_the_model():
    case = next(c for c in CASES if c.leads and c.solver is families.ETDRK4)
    loss = lambda y0, rate: jnp.sum(end(case, rate, y0, dt=0.25) ** 3)  # noqa: E731
    y0 = case.state(float)
    close(jax.grad(loss)(y0, RATE), jax.grad(loss, (0, 1))(y0, jnp.asarray(RATE))[0], rtol=1e-12)
