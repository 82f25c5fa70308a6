"""Continuous adjoints: right to their tolerance, also where the solve is stiff or long, and NaN where they fail."""

import functools as ft

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import sciml
from sciml import inspect, verify
from sciml.models import HIRES, LotkaVolterra, Robertson, VanDerPol
from sciml.solvers import Rodas5P, Rosenbrock23

from ...common import cheap, close, loss, members

ADJOINTS = {
    "backsolve": sciml.adjoints.Backsolve(),
    "interpolating": sciml.adjoints.Interpolating(),
    "gauss": sciml.adjoints.Gauss(),
}
each_adjoint = pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS)


class Network(eqx.Module):
    """A perceptron as a vector field, beside a linear decay."""

    layers: eqx.nn.MLP
    decay: jax.Array

    def __init__(self, size, width, rates):
        self.layers = eqx.nn.MLP(size, size, width, 2, activation=jnp.tanh, key=jax.random.key(0))
        self.decay = jnp.asarray(rates)

    def __call__(self, t, y, args):
        return self.layers(y) - self.decay * y


def pendulum_and_wave(t, y, args):
    return {
        "angle": jnp.stack([y["angle"][1], -args * jnp.sin(y["angle"][0])]),
        "wave": jax.lax.complex(-0.1 * jnp.ones(()), jnp.sin(jnp.asarray(t, args.dtype)) * args) * y["wave"],
    }


def swinging():
    return {"angle": jnp.array([0.3, 0.9]), "wave": jnp.array([1.0 + 0.2j, 0.4 - 0.3j])}


CASES = {
    "Lotka-Volterra": (lambda: (LotkaVolterra(), jnp.array([34.0, 5.9]), None), 6.0),
    "Van der Pol": (lambda: (VanDerPol(mu=2.0), jnp.array([2.0, 0.0]), None), 3.0),
    "a PyTree with a complex leaf": (lambda: (pendulum_and_wave, swinging(), jnp.array(1.3)), 2.0),
    "a network": (lambda: (Network(3, 8, [1.0, 2.0, 0.5]), jnp.array([0.3, -0.2, 0.5]), None), 2.0),
}


def gradient(model, y0, args, t1, options):
    """By everything: the model, its args, the initial state, and all times."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    def fn(p):
        parameters, y0, args, t0, t1, ts = p
        sol = sciml.solve(
            eqx.combine(parameters, static), y0, t0=t0, t1=t1, args=args, saveat=ts, throw=False, **options
        )
        return sum(
            jnp.sum(jnp.sin(x.real) * jnp.linspace(0.5, 1.5, x.size).reshape(x.shape)) for x in jax.tree.leaves(sol.ys)
        )

    ts = jnp.array([0.3, 0.31, 0.9]) * t1
    return jax.jit(jax.grad(fn))((parameters, y0, args, jnp.zeros(()), jnp.asarray(t1), ts))


FINE = {"rtol": 1e-9, "atol": 1e-9}


@ft.cache
def by_checkpointed(name, forwards):
    make, t1 = CASES[name]
    return gradient(*make(), t1 if forwards else -0.5 * t1, FINE)


# Each adjoint meets each case, and each way in time meets each of both.
WAYS = [(a, c, (i + j) % 2 == 0) for i, a in enumerate(ADJOINTS) for j, c in enumerate(CASES)]


@pytest.mark.x64
@pytest.mark.parametrize(
    "adjoint, name, forwards", WAYS, ids=[f"{a}-{'forwards' if f else 'backwards'}-{c}" for a, c, f in WAYS]
)
def test_agrees_with_checkpointed(adjoint, name, forwards):
    make, t1 = CASES[name]
    expected = by_checkpointed(name, forwards)
    found = gradient(*make(), t1 if forwards else -0.5 * t1, FINE | {"adjoint": ADJOINTS[adjoint]})
    largest = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(expected))
    close(found, expected, rtol=1e-6, atol=2e-7 * largest)


@each_adjoint
def test_agrees_with_checkpointed_in_float32(adjoint):
    def end(p, adjoint):
        model, y0 = p
        options = {"rtol": 1e-5, "atol": 1e-6, "adjoint": adjoint}
        return jnp.sum(sciml.solve(model, y0, t0=0.0, t1=2.0, **options).ys ** 2)

    p = sciml.with_dtype((VanDerPol(mu=1.0), jnp.array([1.0, 0.0])), jnp.float32)
    found, expected = (
        jax.jit(jax.grad(ft.partial(end, adjoint=a)))(p) for a in (adjoint, sciml.adjoints.Checkpointed())
    )
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(found))
    close(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.x64
@each_adjoint
def test_the_error_falls_with_the_tolerance(adjoint):
    """Against the exact derivative of exp(-rate sin(t))."""

    def end(rate, tolerance):
        field = lambda t, y, args: -rate * jnp.cos(t) * y  # noqa: E731
        return sciml.solve(field, jnp.ones(1), t0=0.0, t1=2.0, rtol=tolerance, atol=tolerance, adjoint=adjoint).ys[
            -1, 0
        ]

    fn = jax.jit(jax.grad(end))
    exact = -np.sin(2.0) * np.exp(-1.5 * np.sin(2.0))
    errors = np.array([abs(float(fn(jnp.array(1.5), jnp.array(tol))) - exact) for tol in (1e-4, 1e-7, 1e-10)])
    assert errors[0] < 1e-3 and errors[1] < 1e-6 and errors[2] < 1e-9, errors


@pytest.mark.x64
@each_adjoint
def test_the_order_of_fixed_steps(adjoint):
    """The gradient has the order of the method: doubling the steps of one of order three divides the error by eight."""

    def end(rate, steps):
        field = lambda t, y, args: -rate * jnp.cos(t) * y  # noqa: E731
        return sciml.solve(
            field, jnp.ones(1), t0=0.0, t1=2.0, dt=2.0 / steps, solver=diffrax.Bosh3(), adjoint=adjoint
        ).ys[-1, 0]

    exact = -np.sin(2.0) * np.exp(-1.5 * np.sin(2.0))
    fn = jax.jit(jax.grad(end))  # a traced `dt`: one program
    errors = [abs(float(fn(jnp.array(1.5), jnp.array(float(n)))) - exact) for n in (20, 40, 80)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(orders - 3) < 0.4), orders


STIFF = {
    "Robertson": (Robertson, [1.0, 0.0, 0.0], 1e4),
    "HIRES": (HIRES, [1.0, 0, 0, 0, 0, 0, 0, 0.0057], 50.0),
}


@pytest.mark.x64
@pytest.mark.parametrize("name", ["Robertson", "HIRES"])
def test_gauss_follows_a_stiff_system_that_backsolve_cannot(name):
    make, y0, t1 = STIFF[name]

    def end(p, adjoint, tolerance):
        model, y0 = p
        sol = sciml.solve(
            model, y0, t0=0.0, t1=t1, rtol=tolerance, atol=1e-4 * tolerance, solver=Rodas5P(), adjoint=adjoint,
            throw=False, max_steps=2000,
        )  # fmt: skip
        return jnp.sum(sol.ys[-1] * jnp.arange(1.0, 1.0 + y0.size))

    p = make(), jnp.array(y0)
    found = jax.jit(jax.grad(ft.partial(end, adjoint=sciml.adjoints.Gauss(), tolerance=1e-8)))(p)
    # forward mode, along one direction at a time: k1 alone, and everything by its own size
    exact = jax.jit(lambda v: jax.jvp(ft.partial(end, adjoint=sciml.adjoints.Direct(), tolerance=1e-9), (p,), (v,))[1])
    leaves, treedef = jax.tree.flatten(p)
    for along in ([leaves[0], *(0 * x for x in leaves[1:])], [(1 + 0.3 * i) * x for i, x in enumerate(leaves)]):
        expected = exact(jax.tree.unflatten(treedef, along))
        products = [jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(found), along)]
        np.testing.assert_allclose(sum(products), expected, rtol=1e-6, atol=1e-7 * float(max(map(abs, products))))
    if name == "Robertson":  # one is enough to see it lost, and a program of eight components written out is large
        lost = jax.jit(jax.grad(ft.partial(end, adjoint=sciml.adjoints.Backsolve(), tolerance=1e-8)))(p)
        assert all(np.isnan(x).all() for x in jax.tree.leaves(lost))


@pytest.mark.x64
def test_backsolve_in_steps_of_fixed_size_is_nan_where_the_state_is_lost():
    """Forwards the state decays to nothing, which backwards grows from rounding: finite, large and wrong."""

    def end(rate):
        field = lambda t, y, args: -rate * (y - jnp.cos(t))  # noqa: E731
        return sciml.solve(field, 5 * jnp.ones(1), t0=0.0, t1=1.0, dt=0.01, adjoint=sciml.adjoints.Backsolve()).ys[
            -1, 0
        ]

    assert np.isnan(jax.grad(end)(jnp.array(80.0)))
    assert np.isfinite(jax.grad(end)(jnp.array(2.0)))


@pytest.mark.x64
def test_gauss_makes_no_product_by_a_parameter_in_the_backward_pass():
    """A stiff network of ten thousand parameters: what it takes is a few times these, and not their square."""
    model = Network(3, 96, [1.0, 1e2, 1e4])
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    size = sum(x.size for x in jax.tree.leaves(parameters))
    assert size > 9_000

    def end(parameters, adjoint):
        model = eqx.combine(parameters, static)
        options = {"rtol": 1e-5, "atol": 1e-7, "adjoint": adjoint}
        return jnp.sum(
            sciml.solve(model, jnp.array([1.0, -0.5, 0.3]), t0=0.0, t1=1.0, solver=Rosenbrock23(), **options).ys ** 2
        )

    compiled = jax.jit(jax.grad(ft.partial(end, adjoint=sciml.adjoints.Gauss()))).lower(parameters).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 60 * 8 * size
    expected = jax.jit(jax.grad(ft.partial(end, adjoint=sciml.adjoints.Checkpointed())))(parameters)
    largest = max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(expected))
    close(compiled(parameters), expected, rtol=1e-2, atol=1e-3 * largest)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [sciml.adjoints.Gauss(memory=1), sciml.adjoints.Interpolating(memory=1)])
def test_a_solve_of_more_steps_than_are_recorded(adjoint):
    """A thousand steps in a table of sixteen: segments are recorded again, their checkpoints thinned out."""

    def saved(p, adjoint):
        model, y0 = p
        options = {"dt": 0.01, "solver": diffrax.Bosh3(), "adjoint": adjoint}
        return jnp.sum(
            jnp.sin(sciml.solve(model, y0, t0=0.0, t1=10.0, saveat=jnp.linspace(0.0, 10.0, 7), **options).ys)
        )

    p = VanDerPol(mu=1.0), jnp.array([1.0, 0.5])
    found, expected = (
        jax.jit(jax.grad(ft.partial(saved, adjoint=a)))(p) for a in (adjoint, sciml.adjoints.Checkpointed())
    )
    close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.x64
def test_agrees_with_diffrax():
    def theirs(p):
        model, y0 = p
        term, saveat = diffrax.ODETerm(model), diffrax.SaveAt(ts=jnp.array([1.0, 3.0]))
        sol = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 3.0, None, y0, saveat=saveat,
            stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9), adjoint=diffrax.BacksolveAdjoint(),
        )  # fmt: skip
        return jnp.sum(sol.ys**2)

    def ours(p):
        model, y0 = p
        options = {"rtol": 1e-9, "atol": 1e-9, "adjoint": sciml.adjoints.Backsolve()}
        return jnp.sum(sciml.solve(model, y0, t0=0.0, t1=3.0, saveat=[1.0, 3.0], **options).ys ** 2)

    p = VanDerPol(mu=0.5), jnp.array([1.0, 0.5])
    close(jax.jit(jax.grad(ours))(p), jax.jit(jax.grad(theirs))(p), rtol=1e-7, atol=1e-7)


@pytest.mark.x64
def test_the_gradient_is_linear_in_the_loss():
    """Tolerances are relative to the cotangents: a loss in other units has the same gradient in these."""

    def end(y0, scale):
        sol = sciml.solve(VanDerPol(), y0, t0=0.0, t1=2.0, rtol=1e-5, atol=1e-5, adjoint=sciml.adjoints.Gauss())
        return scale * jnp.sum(sol.ys**2)

    fn = jax.jit(jax.grad(end))
    y0 = jnp.array([1.0, 0.3])
    np.testing.assert_allclose(fn(y0, 2.0**-60) * 2.0**60, fn(y0, 1.0), rtol=1e-12)


@pytest.mark.x64
@each_adjoint
def test_a_loss_of_some_of_the_saved_times(adjoint):
    """The backward pass starts at the last state that the loss looks at; none at all has a gradient of zero."""

    def saved(rate, weights):
        field = lambda t, y, args: -rate * y  # noqa: E731
        options = {"rtol": 1e-9, "atol": 1e-9, "adjoint": adjoint}
        ts = jnp.array([0.0, 0.0, 0.5, 1.0])
        return jnp.sum(weights * sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, saveat=ts, **options).ys)

    fn = jax.jit(jax.grad(saved))
    weights = jnp.array([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    exact = [0.0, 0.0, -0.5 * np.exp(-1.0), -0.5 * np.exp(-1.0) - np.exp(-2.0)]
    np.testing.assert_allclose([fn(jnp.array(2.0), w) for w in weights], exact, atol=1e-8)


def blow_up(rate, scale, adjoint):
    """y' = rate y^2 is infinite at t = 1 / rate."""
    field = lambda t, y, args: scale * args * y**2  # noqa: E731
    options = {"dt": 0.02, "saveat": [0.1, 1.0], "adjoint": adjoint, "solver": diffrax.Bosh3(), "throw": False}
    return sciml.solve(field, jnp.ones(1), t0=0.0, t1=1.0, args=rate, **options)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", ADJOINTS.values())
def test_a_failed_member_is_nan_alone(adjoint):
    rates = jnp.array([0.3, 8.0, 0.5, jnp.nan])

    def own(rate):
        return jnp.sum(blow_up(rate, 1.0, adjoint).ys)

    found = jax.jit(jax.vmap(jax.grad(own)))(rates)
    assert np.isnan(found).tolist() == [False, True, False, True]
    alone = jax.jit(jax.vmap(jax.grad(own)))(jnp.array([0.3, 0.4, 0.5, 0.6]))
    np.testing.assert_array_equal(found[::2], alone[::2])

    def masked(scale, rates):
        sol = jax.vmap(lambda rate: blow_up(rate, scale, adjoint))(rates)
        return jnp.sum(jnp.where((sol.status == 0)[:, None, None], sol.ys, 0.0))

    by_scale = jax.jit(jax.grad(masked))
    np.testing.assert_allclose(by_scale(jnp.ones(()), rates), by_scale(jnp.ones(()), rates[::2]), rtol=1e-10)


@pytest.mark.x64
def test_a_backward_pass_without_end_is_nan():
    """One that takes ten times the steps that the solve may take."""

    def end(rate):
        field = lambda t, y, args: -rate * y  # noqa: E731
        options = {"rtol": 1e-2, "atol": 1e-2, "max_steps": 10, "solver": diffrax.Bosh3()}
        adjoint = sciml.adjoints.Gauss(rtol=1e-11, atol=1e-11)
        return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=adjoint, **options).ys[-1]

    assert np.isnan(jax.grad(end)(jnp.array(1.0)))


@pytest.mark.x64
@pytest.mark.parametrize(
    "adjoint, kind",
    [
        (sciml.adjoints.Gauss(), "adaptive_saves"),
        (sciml.adjoints.Interpolating(), "adaptive"),
        (sciml.adjoints.Backsolve(), "scan"),
    ],
)
def test_over_devices_without_communication(adjoint, kind):
    mesh = Mesh(np.array(jax.devices()), ("members",))
    fn = jax.vmap(jax.grad(ft.partial(loss, kind, adjoint, **cheap(kind))))
    batch = members(8)
    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    assert inspect.collectives(sharded, batch) == []
    close(sharded(batch), jax.jit(fn)(batch), rtol=1e-7, atol=1e-8)


@pytest.mark.x64
def test_a_stiff_system_over_lanes():
    """Members of a different stiffness each, by a shared and by an own parameter."""

    def end(mu, y0, adjoint):
        options = {"rtol": 1e-7, "atol": 1e-7, "adjoint": adjoint, "solver": Rodas5P()}
        return jnp.sum(sciml.solve(VanDerPol(mu=mu), y0, t0=0.0, t1=1.0, **options).ys)

    mus, y0 = jnp.array([1.0, 30.0, 1000.0]), jnp.array([2.0, 0.0])

    def both(adjoint):
        return jax.jit(
            jax.grad(lambda m, y: jnp.sum(jax.vmap(ft.partial(end, adjoint=adjoint), (0, None))(m, y)), argnums=(0, 1))
        )(mus, y0)

    close(both(sciml.adjoints.Gauss()), both(sciml.adjoints.Checkpointed()), rtol=1e-4, atol=1e-6)


def decay(rate, **options):
    return jnp.sum(sciml.solve(lambda t, y, args: -rate * y, jnp.ones(2), t0=0.0, t1=1.0, throw=False, **options).ys)


@each_adjoint
def test_what_is_refused(adjoint):
    rate = jnp.array(1.0)
    with pytest.raises(ValueError, match="mass matrix"):
        decay(rate, adjoint=adjoint, solver=Rodas5P(mass=np.diag([1.0, 2.0])))
    with pytest.raises(TypeError, match="diffrax runs this solve"):
        decay(rate, adjoint=adjoint, solver=diffrax.ImplicitEuler())
    with pytest.raises(ValueError, match="requires a solve with error control"):
        decay(rate, adjoint=type(adjoint)(rtol=1e-3), dt=0.1)
    with pytest.raises(TypeError, match="can only be differentiated again in forward mode"):
        jax.grad(jax.grad(ft.partial(decay, adjoint=adjoint, dt=0.1)))(rate)
    for bad in (0.0, -1.0, float("nan"), True):
        with pytest.raises(ValueError, match="must be a positive Python number"):
            type(adjoint)(rtol=bad)
    if not isinstance(adjoint, sciml.adjoints.Backsolve):
        with pytest.raises(ValueError, match="must be a positive integer, but is 0"):
            type(adjoint)(memory=0)


def test_complex_parameters_of_a_rosenbrock_method():
    def end(rate, adjoint):
        field = lambda t, y, args: -jnp.abs(rate) * y  # noqa: E731
        options = {"solver": Rosenbrock23(), "rtol": 1e-3, "atol": 1e-3, "adjoint": adjoint}
        return jnp.sum(sciml.solve(field, jnp.ones(1), t0=0.0, t1=1.0, **options).ys)

    rate = jnp.array(3.0 + 4.0j)
    with pytest.raises(ValueError, match="complex"):
        jax.grad(ft.partial(end, adjoint=sciml.adjoints.Interpolating()))(rate)
    found = jax.grad(ft.partial(end, adjoint=sciml.adjoints.Gauss()))(rate)
    np.testing.assert_allclose(found, -np.exp(-5.0) * (0.6 - 0.8j), rtol=0.1)


@pytest.mark.x64
def test_dense_output_is_read_exactly():
    """The degree of every method's dense output is no higher than the record's coefficients."""
    from sciml.solvers.adjoints.continuous._dense_output import Table, row_of, state_at
    from sciml.solvers.integrate._integrator import Dense
    from sciml.solvers.methods.explicit._runge_kutta import from_diffrax

    solvers = (diffrax.Euler, diffrax.Heun, diffrax.Midpoint, diffrax.Ralston, diffrax.Bosh3)
    solvers += (diffrax.Tsit5, diffrax.Dopri5, diffrax.Dopri8)
    y0 = jnp.array([0.3, -0.7])
    steppers = [from_diffrax(s()) for s in solvers] + [s().stepper(y0) for s in (Rodas5P, Rosenbrock23)]
    field = lambda t, y: jnp.cos(t) * jnp.stack([y[1], -jnp.sin(y[0])])  # noqa: E731
    for stepper in steppers:
        t, h, sign = 0.4, jnp.array(0.5), -1.0
        step = stepper.step(field, jnp.array(t), sign * h, y0, stepper.init(field, jnp.array(t), y0))
        dense = Dense(jnp.array(t), h, y0, step.dense)
        row = row_of(stepper, dense, step.y1, jnp.array(sign))
        rows = jax.tree.map(lambda x: jnp.stack([x] * 16), row)
        table = Table(jnp.full(16, jnp.inf).at[0].set(t + h), rows, jnp.array(1, jnp.int32))
        for theta in (0.0, 0.13, 0.5, 0.98, 1.0):
            expected = stepper.interpolate(jnp.array(theta), sign * h, y0, step.y1, step.dense)
            np.testing.assert_allclose(state_at(table, t + theta * h), expected, rtol=1e-12)


@pytest.mark.x64
def test_gradient_by_finite_differences_through_a_rosenbrock_method():
    def saved(p):
        options = {"rtol": 1e-8, "atol": 1e-8, "solver": Rosenbrock23(), "adjoint": sciml.adjoints.Gauss()}
        field = lambda t, y, args: -p["rate"] * (y - jnp.cos(t))  # noqa: E731
        return jnp.sum(sciml.solve(field, jnp.ones(1), t0=p["t0"], t1=p["t1"], **options).ys ** 2)

    p = {"rate": jnp.array(5.0), "t0": jnp.array(0.1), "t1": jnp.array(0.9)}
    fn = jax.jit(saved)
    verify.check_gradient(fn, p, gradient=jax.jit(jax.grad(saved))(p), rtol=1e-4, atol=1e-5)
