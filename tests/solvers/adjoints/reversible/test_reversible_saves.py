"""`Reversible` with saved times: they are outputs, whose cotangents enter in the backward pass."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sciml
from tests.gradients import check_gradient
from tests.solvers.test_shard_map import mesh as mesh

from ...common import close

REVERSIBLE = sciml.adjoints.Reversible()
# two in one step; on the grid of steps of 0.05 a difference would see the corner between two steps
TS = (0.36, 0.412, 0.431, 1.31, 1.97)


def swing(t, y, args):
    return jnp.stack([y[1], jnp.cos(jnp.asarray(t, y.dtype)) - args * jnp.sin(y[0])])


def solve(stiffness, y0, ts, *, adjoint=REVERSIBLE, **options):
    options = {"t0": 0.1, "t1": 2.1, "dt": 0.05, "throw": False, "adjoint": adjoint, **options}
    return sciml.solve(swing, y0, args=stiffness, saveat=ts, **options)


def loss(p, **options):
    ys = solve(*p, **options).ys
    return jnp.sum(jnp.sin(ys * jnp.arange(1, 1 + ys.size).astype(ys.dtype).reshape(ys.shape)))


def inputs(ts=TS):
    return jnp.array(2.0), jnp.array([1.0, 0.3]), jnp.array(ts)


@pytest.mark.x64
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"solver": diffrax.Bosh3()}, id="whole steps"),
        pytest.param({"dt": 0.0617}, id="a shorter last step"),
        pytest.param({"t0": 2.1, "t1": 0.1, "dt": -0.0617, "solver": diffrax.Heun()}, id="backwards"),
    ],
)
def test_gradient_agrees_with_differences(options):
    """By a parameter, the initial state and the saved times, one of them in the last step."""
    p = inputs((*TS, 2.09)[:: -1 if options.get("t1") == 0.1 else 1])
    check_gradient(ft.partial(loss, **options), p, rtol=2e-8, atol=2e-8)


def test_saved_states_are_those_of_the_method():
    """On the grid to the bit of the loop that takes as many steps; at the ends and between, to what is interpolated."""
    p = inputs((0.1, 0.6, 0.61, 2.1))
    sol = solve(*p)
    rounding = 20 * float(jnp.finfo(p[2].dtype).eps)
    for index, t1 in ((1, 0.6), (3, 2.1)):
        end = solve(*p[:2], None, t1=t1).ys[-1]
        np.testing.assert_allclose(sol.ys[index], end, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(sol.ys[0], p[1], rtol=rounding)
    exact = solve(*p, adjoint=sciml.adjoints.Checkpointed()).ys
    np.testing.assert_allclose(sol.ys, exact, atol=1e-7 if exact.dtype == jnp.float64 else 1e-5)
    assert int(sol.stats.accepted) == 40 and int(sol.status) == 0


@pytest.mark.x64
def test_saved_times_at_both_ends_are_differentiated():
    """By a saved time the derivative is the vector field."""
    p = inputs((0.1, 1.1, 2.1))
    slopes = jax.jit(jax.jacrev(lambda ts: solve(*p[:2], ts).ys))(p[2])
    ys = solve(*p).ys
    for index, t in enumerate(p[2]):
        np.testing.assert_allclose(slopes[index, :, index], swing(t, ys[index], p[0]), rtol=1e-6)


@pytest.mark.x64
def test_memory_does_not_depend_on_the_number_of_steps():
    def temporary(steps):
        def fn(y0):
            options = {
                "t1": 1.1,
                "dt": 1.0 / steps,
                "adjoint": sciml.adjoints.Reversible(1 - 1e-6),
                "solver": diffrax.Heun(),
            }
            return jnp.sum(solve(2.0, y0, jnp.array([0.35, 0.412, 1.1]), **options).ys)

        return jax.jit(jax.grad(fn)).lower(jnp.ones((2, 100))).compile().memory_analysis().temp_size_in_bytes

    few, many = temporary(1_000), temporary(100_000)
    assert few == many and many < 100 * 200 * jnp.zeros(()).dtype.itemsize


def _members(count):
    """Members that all differ, in their saved times too."""
    return jax.tree.map(lambda x: jnp.stack([x * (1 - 0.02 * i) for i in range(count)]), inputs())


@pytest.mark.x64
def test_members_have_saved_times_of_their_own(mesh):  # noqa: F811
    """`vmap(grad)`, `grad(vmap)`, a Python loop, and members on several devices."""
    fn, batch = ft.partial(loss, solver=diffrax.Heun()), _members(8)
    each = jax.vmap(jax.grad(fn))
    inside = jax.jit(each)(batch)
    outside = jax.jit(jax.grad(lambda p: jnp.sum(jax.vmap(fn)(p))))(batch)
    close(inside, outside, rtol=1e-10, atol=1e-11)
    one = jax.jit(jax.grad(fn))
    alone = [one(jax.tree.map(lambda x: x[i], batch)) for i in (0, 7)]  # noqa: B023
    close(
        jax.tree.map(lambda x: x[jnp.array([0, 7])], inside), jax.tree.map(lambda *x: jnp.stack(x), *alone), rtol=1e-9
    )
    sharded = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    assert sciml.inspect.collectives(sharded, batch) == []
    close(sharded(batch), inside, rtol=1e-10, atol=1e-11)


@pytest.mark.x64
def test_second_derivatives():
    """Forward over reverse, to the accuracy of the methods, which differ; one saved time where a step ends."""
    p, v = inputs((0.35, *TS[1:])), (jnp.array(1.0), jnp.array([0.3, -1.0]), jnp.ones(len(TS)) * 0.1)
    product = lambda adjoint: jax.jit(lambda p: jax.jvp(jax.grad(ft.partial(loss, adjoint=adjoint)), (p,), (v,))[1])(p)  # noqa: E731
    close(product(REVERSIBLE), product(sciml.adjoints.Checkpointed()), rtol=2e-5, atol=1e-4)


def test_a_failed_member_has_the_gradient_of_what_it_reached():
    """The states of y' = y^2 are lost from some step on; those before it can be undone."""

    def fn(y0, weights):
        field = lambda t, y, args: y**2  # noqa: E731
        options = {"t0": 0.0, "t1": 2.0, "dt": 0.02, "throw": False, "adjoint": REVERSIBLE, "solver": diffrax.Heun()}
        sol = sciml.solve(field, y0, saveat=jnp.array([0.5, 0.7, 1.9]), **options)
        return jnp.sum(jnp.where(weights != 0, weights * sol.ys, 0.0)), sol

    y0, early, late = jnp.array([1.0, 0.2]), jnp.array([1.0, 1.0, 0.0]), jnp.array([1.0, 1.0, 1.0])
    gradient = jax.jit(jax.vmap(jax.grad(fn, has_aux=True), in_axes=(0, None)))
    found, sol = gradient(y0, early)
    assert int(sol.status[0]) == int(sciml.Status.nonfinite) and int(sol.status[1]) == 0
    assert 1.0 < float(sol.t_reached[0]) < 1.5 and np.isnan(sol.ys[0]).tolist() == [False, False, True]
    exact = sum(1 / (1 - y0 * t) ** 2 for t in (0.5, 0.7))
    np.testing.assert_allclose(found, exact, rtol=1e-2)
    found, _ = gradient(y0, late)
    assert np.isnan(found[0]) and np.isfinite(found[1])


@pytest.mark.x64
def test_gradient_of_a_pytree_state_with_a_complex_leaf():
    def field(t, y, args):
        angle, wave = y["angle"], y["wave"]
        return {"angle": -jnp.sin(angle), "wave": jax.lax.complex(0.0, args * jnp.cos(angle[0])) * wave}

    def fn(p):
        y0 = {"angle": p["angle"], "wave": jax.lax.complex(p["re"], p["im"])}
        options = {"saveat": p["ts"], "adjoint": REVERSIBLE, "solver": diffrax.Heun()}
        ys = sciml.solve(field, y0, t0=0.0, t1=1.0, dt=0.05, args=p["rate"], **options).ys
        return jnp.sum(jnp.real(ys["wave"]) * jnp.sin(ys["angle"])) + jnp.sum(jnp.abs(ys["wave"]))

    p = {"angle": jnp.array([0.3]), "re": jnp.array([1.0, 0.4]), "im": jnp.array([0.2, 0.5]), "rate": jnp.array(2.0)}
    p["ts"] = jnp.array([0.42, 0.98])
    check_gradient(fn, p, rtol=1e-7, atol=1e-8)


def test_what_is_damped_away_is_nan():
    def fn(y0):
        field = lambda t, y, args: jnp.stack([-y[0], -100 * (y[1] - jnp.cos(jnp.asarray(t, y.dtype)))])  # noqa: E731
        options = {"t0": 0.0, "t1": 1.0, "dt": 0.002, "adjoint": REVERSIBLE}
        return jnp.sum(sciml.solve(field, y0, saveat=jnp.array([0.5, 1.0]), **options).ys)

    assert np.isnan(jax.jit(jax.grad(fn))(jnp.array([1.0, 2.0]))).all()


def test_how_well_it_runs_back_does_not_depend_on_saved_times():
    options = {"t0": 0.0, "t1": 1.0, "dt": 0.01, "args": 2.0}
    error = sciml.solvers.reversal_error(swing, jnp.ones(2), saveat=jnp.array([0.5]), **options)
    assert error == sciml.solvers.reversal_error(swing, jnp.ones(2), **options)
