"""`Reversible`: the method's order, its backward pass, memory, and the limits of both."""

import functools as ft
import warnings

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import reversal_error
from tests.conftest import X64
from tests.gradients import check_gradient
from tests.registry_adjoints import each_not_run
from tests.solvers.test_shard_map import mesh as mesh

from ...common import cheap, close, inputs, loss, members, run

REVERSIBLE = sciml.adjoints.Reversible()


def swing(t, y, args):
    return jnp.stack([y[1], -args * jnp.sin(y[0])])


def end(stiffness, y0, *, steps=200, adjoint=REVERSIBLE, **options):
    options = {"t0": 0.0, "t1": 5.0, "dt": 5.0 / steps, "adjoint": adjoint, "throw": False, **options}
    return sciml.solve(swing, y0, args=stiffness, **options).ys[-1]


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver, order, steps",
    [(diffrax.Euler(), 1, 50), (diffrax.Heun(), 2, 100), (diffrax.Bosh3(), 3, 100), (diffrax.Tsit5(), 5, 50)],
    ids=lambda x: type(x).__name__,
)
def test_keeps_the_order_of_its_method(solver, order, steps):
    """The copies cancel part of the error where steps are long beside one less the coupling."""
    exact = end(2.0, jnp.ones(2), steps=1000, adjoint=sciml.adjoints.Checkpointed(), solver=diffrax.Dopri8())
    errors = [jnp.max(jnp.abs(end(2.0, jnp.ones(2), steps=n, solver=solver) - exact)) for n in (steps, 2 * steps)]
    assert order - 0.2 < float(jnp.log2(errors[0] / errors[1])) < order + 1.2


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Euler(), diffrax.Heun(), diffrax.Tsit5()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("dt", [0.05, 0.0617], ids=["whole steps", "a shorter last step"])
def test_comes_back_to_rounding(solver, dt):
    options = {"t0": 0.0, "t1": 5.0, "dt": dt, "args": 2.0, "solver": solver}
    assert reversal_error(swing, jnp.array([1.0, 0.0]), **options) < 1e-13


@pytest.mark.x64
@pytest.mark.parametrize("dt", [0.05, 0.0617])
@pytest.mark.parametrize("backwards", [False, True])
def test_gradient_agrees_with_differences(dt, backwards):
    def fn(p):
        stiffness, y0 = p
        t0, t1, step = (2.0, 0.0, -dt) if backwards else (0.0, 2.0, dt)
        return jnp.sum(jnp.sin(end(stiffness, y0, t0=t0, t1=t1, dt=step)))

    p = (jnp.array(2.0), jnp.array([1.0, 0.3]))
    check_gradient(fn, p, rtol=1e-8, atol=1e-8)


@pytest.mark.x64
def test_gradient_agrees_with_checkpointed():
    """To the accuracy of the methods, which differ."""
    fn = lambda p, adjoint: jnp.sum(jnp.sin(end(*p, steps=400, adjoint=adjoint)))  # noqa: E731
    p = (jnp.array(2.0), jnp.array([1.0, 0.3]))
    close(jax.grad(fn)(p, REVERSIBLE), jax.grad(fn)(p, sciml.adjoints.Checkpointed()), rtol=1e-9)


@pytest.mark.x64
def test_gradient_of_a_pytree_state_with_a_complex_leaf():
    def field(t, y, args):
        angle, wave = y["angle"], y["wave"]
        return {"angle": -jnp.sin(angle), "wave": jax.lax.complex(0.0, args * jnp.cos(angle[0])) * wave}

    def fn(p):
        y0 = {"angle": p["angle"], "wave": jax.lax.complex(p["re"], p["im"])}
        sol = sciml.solve(field, y0, t0=0.0, t1=1.0, dt=0.05, args=p["rate"], adjoint=REVERSIBLE)
        return jnp.sum(jnp.real(sol.ys["wave"]) * jnp.sin(sol.ys["angle"])) + jnp.sum(jnp.abs(sol.ys["wave"]))

    p = {"angle": jnp.array([0.3]), "re": jnp.array([1.0, 0.4]), "im": jnp.array([0.2, 0.5]), "rate": jnp.array(2.0)}
    check_gradient(fn, p, rtol=1e-7, atol=1e-8)


def test_memory_does_not_depend_on_the_number_of_steps():
    def temporary(steps):
        adjoint = sciml.adjoints.Reversible(coupling=1 - 1e-6)
        gradient = jax.grad(lambda y0: jnp.sum(end(2.0, y0, steps=steps, adjoint=adjoint)))
        return jax.jit(gradient).lower(jnp.ones((2, 100))).compile().memory_analysis().temp_size_in_bytes

    few, many = temporary(1_000), temporary(100_000)
    state = 200 * jnp.zeros(()).dtype.itemsize
    assert abs(many - few) <= state and many < 60 * state


def test_memory_of_many_members_does_not_depend_on_the_number_of_steps():
    def temporary(steps):
        gradient = jax.vmap(jax.grad(lambda y0: jnp.sum(end(2.0, y0, steps=steps))))
        return jax.jit(gradient).lower(jnp.ones((100, 2))).compile().memory_analysis().temp_size_in_bytes

    assert temporary(2_000) <= 1.05 * temporary(200)


def test_evaluations_count_both_copies():
    stats = sciml.solve(swing, jnp.ones(2), t0=0.0, t1=1.0, dt=0.1, args=2.0, adjoint=REVERSIBLE).stats
    assert int(stats.accepted) == 10 and int(stats.evaluations) == 10 * 2 * 6


def damped(rate):
    def field(t, y, args):
        return jnp.stack([-y[0], -rate * (y[1] - jnp.cos(t))])

    return field


def test_gradient_is_nan_where_the_backward_pass_misses_the_start():
    """What is damped away cannot be computed again: not even a warning is due, since the steps are few."""

    def fn(y0, rate, adjoint=REVERSIBLE):
        return jnp.sum(sciml.solve(damped(rate), y0, t0=0.0, t1=1.0, dt=0.002, adjoint=adjoint).ys)

    y0, rates = jnp.array([1.0, 2.0]), jnp.array([0.5, 100.0, 2.0])
    found = jax.jit(jax.vmap(jax.grad(fn), in_axes=(None, 0)))(y0, rates)
    expected = jax.vmap(jax.grad(ft.partial(fn, adjoint=sciml.adjoints.Checkpointed())), in_axes=(None, 0))(y0, rates)
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[::2], expected[::2], rtol=1e-6 if X64 else 1e-3)
    errors = [float(reversal_error(damped(r), y0, t0=0.0, t1=1.0, dt=0.002)) for r in rates]
    assert max(errors[0], errors[2]) < 1e-4 and not errors[1] < 0.1


def test_members_that_the_loss_leaves_out_may_go_astray():
    def fn(shared, rates, counts):
        solve = lambda rate: sciml.solve(damped(rate), shared, t0=0.0, t1=1.0, dt=0.002, adjoint=REVERSIBLE).ys[-1]  # noqa: E731
        return jnp.sum(jnp.where(counts[:, None], jax.vmap(solve)(rates), 0.0))

    gradient = jax.grad(fn)(jnp.array([1.0, 2.0]), jnp.array([0.5, 100.0]), jnp.array([True, False]))
    assert np.isfinite(gradient).all()


def test_warns_where_the_coupling_alone_loses_the_start():
    count = 30_000 if X64 else 15_000
    with pytest.warns(UserWarning, match=r"loses the initial state over"):
        jax.eval_shape(jax.grad(lambda y0: jnp.sum(end(2.0, y0, steps=count))), jnp.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.eval_shape(lambda y0: end(2.0, y0, steps=count), jnp.ones(2))  # a solve alone loses nothing
        closer = sciml.adjoints.Reversible(coupling=0.9999)
        jax.eval_shape(jax.grad(lambda y0: jnp.sum(end(2.0, y0, steps=count, adjoint=closer))), jnp.ones(2))


@pytest.mark.x64
def test_error_grows_as_the_coupling_says():
    """By one over the coupling with every step."""
    options = {"t0": 0.0, "t1": 5.0, "dt": 5.0 / 300, "args": 2.0}
    errors = [float(reversal_error(swing, jnp.array([1.0, 0.0]), coupling=c, **options)) for c in (0.999, 0.95, 0.93)]
    assert errors[0] < 1e-13
    assert 0.01 < errors[1] / (1e-16 * 0.95**-300) < 100 and errors[2] > 10 * errors[1]


@each_not_run
def test_other_loops_are_refused(case, kind):
    with pytest.raises(ValueError, match="number of steps"):
        jax.eval_shape(lambda p: run(kind, case.adjoint, p, **cheap(kind)), inputs())


@pytest.mark.parametrize("solver", [sciml.solvers.Rodas5P(), diffrax.Kvaerno3()], ids=lambda s: type(s).__name__)
def test_implicit_methods_are_refused(solver):
    with pytest.raises(TypeError, match="Checkpointed"):
        end(2.0, jnp.ones(2), solver=solver)


@pytest.mark.parametrize("coupling", [0.0, 1.0, 2, -0.5, "0.9"])
def test_coupling_lies_between_zero_and_one(coupling):
    with pytest.raises(Exception, match="coupling"):
        sciml.adjoints.Reversible(coupling=coupling)


@pytest.mark.x64
def test_inside_shard_map(mesh):  # noqa: F811
    from jax.sharding import PartitionSpec as P

    fn = jax.vmap(jax.grad(ft.partial(loss, "scan", REVERSIBLE, **cheap("scan"))))
    batch = members(8)
    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    assert sciml.inspect.collectives(sharded, batch) == []
    close(sharded(batch), jax.jit(fn)(batch), rtol=1e-10, atol=1e-11)
