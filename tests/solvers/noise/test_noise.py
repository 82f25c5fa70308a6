"""Solves with noise: in batches, differentiated, on devices, with steps by the error, saved times and events."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import Event, Schedule, Status
from sciml.adjoints import Checkpointed, Direct, Forward
from sciml.solvers.terms._explain import check_callable

from ..common import close
from .common import ADAPTIVE, METHODS, growth, near, pendulum
from .test_brownian import within

KEYS = jax.random.split(jax.random.key(0), 16)
RATE = 1.5


def model(additive=False):
    drift = lambda t, y, args: -args * y + 0.1 * jnp.sin(t)  # noqa: E731
    if additive:
        return sciml.Stochastic(drift, lambda t, y, args: 0.2 * args * jnp.ones_like(y), noise="additive")
    return sciml.Stochastic(drift, lambda t, y, args: 0.2 * args * y + 0.05 * jnp.sin(y))


def needs_additive(name):
    return "diagonal" not in METHODS[name].strong


def end(rate, key, name="SRIW1", **options):
    options = options or dict(dt=1 / 16)
    found = sciml.solve(
        model(needs_additive(name)), jnp.array([1.0, 0.5]), t0=0.0, t1=1.0, args=rate, key=key,
        solver=METHODS[name].solver, throw=False, **options,
    )  # fmt: skip
    return found.ys[-1]


@pytest.mark.parametrize("name", METHODS)
def test_members_are_what_they_are_alone(name):
    together = jax.jit(jax.vmap(lambda key: end(RATE, key, name)))(KEYS)
    near(together[3], end(RATE, KEYS[3], name))
    assert np.unique(np.asarray(together)).size == together.size
    if name == "SRIW1":  # a batch of another size
        near(jax.jit(jax.vmap(lambda key: end(RATE, key, name)))(KEYS[3:6])[0], together[3])


@pytest.mark.x64
@pytest.mark.parametrize("name", ["Euler", "SPaRK", "SlowRK", "SEA", "SRIW1", "PlatenWeak2"])  # one of each kind
def test_gradients(name):
    loss = lambda rate, key: jnp.sum(end(rate, key, name) ** 2)  # noqa: E731
    # the last two are member 2 at rates beside its own
    rates = jnp.full(18, RATE).at[-2:].add(jnp.array([-1e-5, 1e-5]))
    keys = jnp.concatenate([KEYS, KEYS[jnp.array([2, 2])]])
    values, each = jax.jit(jax.vmap(jax.value_and_grad(loss)))(rates, keys)
    np.testing.assert_allclose(each[2], (values[-1] - values[-2]) / 2e-5, rtol=1e-6)
    if name in ("Euler", "SRIW1"):
        whole = jax.jit(jax.grad(lambda rate: jnp.sum(jax.vmap(loss, (None, 0))(rate, KEYS))))(RATE)
        np.testing.assert_allclose(whole, each[:16].sum(), rtol=1e-10)


@pytest.mark.x64
@pytest.mark.parametrize("steps", ["fixed", "adaptive"])
def test_adjoints_agree(steps):
    options = dict(dt=1 / 16) if steps == "fixed" else dict(rtol=1e-2, atol=1e-3)
    loss = lambda rate, **more: jnp.sum(end(rate, KEYS[1], **options, **more) ** 2)  # noqa: E731
    expected = jax.grad(lambda rate: loss(rate, adjoint=Checkpointed()))(RATE)
    np.testing.assert_allclose(jax.grad(lambda rate: loss(rate, adjoint=Forward()))(RATE), expected, rtol=1e-7)
    np.testing.assert_allclose(jax.jacfwd(lambda rate: loss(rate, adjoint=Direct()))(RATE), expected, rtol=1e-7)


@pytest.mark.x64
def test_gradient_by_the_end():
    def loss(t1):
        return jnp.sum(sciml.solve(model(), jnp.ones(2), t0=0.0, t1=t1, dt=1 / 16, args=RATE, key=KEYS[0]).ys)

    np.testing.assert_allclose(jax.grad(loss)(0.93), (loss(0.93 + 1e-6) - loss(0.93 - 1e-6)) / 2e-6, rtol=1e-5)


def value(key):
    return end(RATE, key)


def slope(key):
    return jax.grad(lambda rate: jnp.sum(end(rate, key)))(RATE)


@functools.cache
def on_one_device(fn):
    return np.asarray(jax.jit(jax.vmap(fn))(KEYS))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
@pytest.mark.parametrize("devices", [1, 4])
def test_members_over_devices(kind, devices):
    axis = AxisType.Auto if kind == "auto" else AxisType.Explicit
    mesh = jax.make_mesh((devices,), ("m",), (axis,), devices=jax.devices()[:devices])
    keys = jax.device_put(KEYS, NamedSharding(mesh, P("m")))
    for fn in (value, slope) if devices > 1 else (slope,):
        found = jax.jit(jax.vmap(fn))(keys)
        near(found, on_one_device(fn))
        assert devices == 1 or found.sharding.spec[0] == "m"


def test_same_bits_on_any_devices():
    fn = lambda key: end(RATE, key)  # noqa: E731
    runs = [
        sciml.parallel.ensemble(fn, KEYS, block=4, mesh=sciml.parallel.mesh(devices=jax.devices()[:n]))
        for n in (1, 2, 3, 8)
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0], other)


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.x64)])
def test_dtypes(dtype):
    for options in (dict(dt=0.05), dict(rtol=1e-2, atol=1e-3)):
        sol = sciml.solve(growth("scalar"), jnp.ones(3, dtype), t0=0.0, t1=1.0, key=KEYS[0], **options)
        assert sol.ys.dtype == dtype and sol.status == Status.successful
        assert np.unique(np.asarray(sol.ys)).size == 1  # one Brownian motion for all elements


@functools.cache
def by_fine_steps(additive):
    problem, path = pendulum() if additive else growth("diagonal"), sciml.BrownianPath(KEYS[4], 0.0, 1.0)
    return sciml.solve(problem, jnp.ones(2), t0=0.0, t1=1.0, key=path, dt=2.0**-12).ys[-1]


@pytest.mark.x64
@pytest.mark.parametrize("name", ADAPTIVE)
def test_steps_by_the_error(name):
    """The path does not depend on the steps: with tighter tolerances the solution is nearer to that of fine steps."""
    problem = pendulum() if needs_additive(name) else growth("diagonal")
    path = sciml.BrownianPath(KEYS[4], 0.0, 1.0)
    solve = jax.jit(
        lambda tol: sciml.solve(
            problem, jnp.ones(2), t0=0.0, t1=1.0, key=path, solver=METHODS[name].solver, rtol=tol, atol=tol
        )
    )
    fine = by_fine_steps(needs_additive(name))
    loose, tight = (solve(tol) for tol in (1e-2, 1e-4))
    assert tight.stats.accepted > loose.stats.accepted and tight.stats.rejected > 0
    # the drift of an implicit method is that of Euler's, whose errors add up
    assert np.abs(tight.ys[-1] - fine).max() < (3e-2 if "Implicit" in name else 1e-2)
    assert np.abs(tight.ys[-1] - fine).max() < np.abs(loose.ys[-1] - fine).max()


def test_members_with_steps_of_their_own():
    solve = lambda key, **more: sciml.solve(  # noqa: E731
        model(), jnp.ones(2), t0=0.0, t1=1.0, args=RATE, key=key, rtol=1e-2, atol=1e-3,
        saveat=jnp.linspace(0.0, 1.0, 5), **more,
    )  # fmt: skip
    together = jax.vmap(solve)(KEYS)
    alone = solve(KEYS[5])
    near(together.ys[5], alone.ys)
    assert together.stats.accepted[5] == alone.stats.accepted and np.unique(together.stats.accepted).size > 1
    near(jax.vmap(lambda key: solve(key, batching="refill"))(KEYS).ys, together.ys)


def test_saved_times_change_no_path():
    ts = jnp.array([0.0, 0.25, 0.3, 1.0])
    sol = sciml.solve(model(), jnp.ones(2), t0=0.0, t1=1.0, args=RATE, key=KEYS[0], dt=1 / 8, saveat=ts)
    whole = sciml.solve(
        model(), jnp.ones(2), t0=0.0, t1=1.0, args=RATE, key=KEYS[0], dt=1 / 8, saveat=jnp.linspace(0.0, 1.0, 9)
    )
    near(sol.ys[1], whole.ys[2])
    near(sol.ys[2], 0.6 * whole.ys[2] + 0.4 * whole.ys[3])  # a line between the steps
    near(sol.ys[3], end_of(whole))


def end_of(sol):
    return sol.ys[-1]


@pytest.mark.x64
def test_first_passage():
    """The mean time at which Brownian motion with drift reaches a level, and steps that end there on the same path."""
    walk = sciml.Stochastic(lambda t, y, args: jnp.ones_like(y), lambda t, y, args: 0.5 * jnp.ones_like(y))
    keys = jax.random.split(jax.random.key(1), 2000)
    crossing = Event(lambda t, y, args: y - 1.0)
    solve = lambda key, **more: sciml.solve(walk, 0.0, t0=0.0, t1=16.0, key=key, dt=1 / 64, throw=False, **more)  # noqa: E731
    sol = jax.jit(jax.vmap(lambda key: solve(key, events=crossing)))(keys)
    assert np.all(sol.status == Status.event)
    np.testing.assert_allclose(sol.ys[:, -1], 1.0, atol=1e-9)
    # the line between steps passes a little later than the path: by 0.58 standard deviations of a step
    late = 0.5826 * 0.5 * np.sqrt(1 / 64)
    within(np.asarray(sol.t_reached), 1.0 + late, 0.5)


@pytest.mark.x64
def test_events_are_on_the_line_between_steps():
    """As the path without them is saved at its steps, of a real condition and of a boolean, and one after the other."""
    wells = sciml.Stochastic(lambda t, y, args: y - y**3, lambda t, y, args: 0.5)
    ts = jnp.arange(0.0, 12.0 + 1 / 32, 1 / 16)
    options = dict(t0=0.0, t1=12.0, dt=1 / 16, solver=diffrax.Euler(), throw=False)
    here, there = Event(lambda t, y, args: y, direction=1), Event(lambda t, y, args: y > -0.4)

    def times(key):
        options["key"] = sciml.BrownianPath(key, 0.0, 12.0)
        ys = sciml.solve(wells, -1.0, saveat=ts, **options).ys
        passes = lambda level: (ys[:-1] < level) & (ys[1:] >= level)  # noqa: E731
        line = [
            jnp.where(passes(x), ts[:-1] + (x - ys[:-1]) / (ys[1:] - ys[:-1]) / 16, 12.0).min() for x in (0.0, -0.4)
        ]
        found = [sciml.solve(wells, -1.0, events=event, **options).t_reached for event in (here, there, [here, there])]
        return jnp.stack([*line, *found])

    line, level, *found = np.asarray(jax.jit(jax.vmap(times))(jax.random.split(jax.random.key(6), 200))).T
    np.testing.assert_allclose(found[0], line, atol=1e-9)
    np.testing.assert_allclose(found[1], level, atol=1e-6)
    np.testing.assert_allclose(found[2], np.minimum(line, level), atol=1e-6)
    assert np.mean(line < 12.0) > 0.1 and np.all(line[line < 12.0] > level[line < 12.0])


@pytest.mark.x64
def test_a_reflected_path_stays_above():
    """An update at every passing: the path stays on its side, and what is saved is where it says."""
    walk = sciml.Stochastic(lambda t, y, args: -jnp.ones_like(y), lambda t, y, args: 1.0, noise="additive")
    kick = Event(lambda t, y, args: y, lambda t, y, args: y + 0.5, direction=-1)
    ts = jnp.linspace(0.0, 4.0, 41)
    solve = lambda key: sciml.solve(  # noqa: E731
        walk, 0.5, t0=0.0, t1=4.0, dt=1 / 16, key=key, events=kick, saveat=ts, max_events=64
    )
    sol = jax.jit(jax.vmap(solve))(KEYS)
    assert np.all(sol.status == Status.successful) and np.all(sol.ys > -1e-9) and np.all(sol.events.count > 2)
    happened = np.arange(64) < np.asarray(sol.events.count)[:, None]
    np.testing.assert_allclose(np.asarray(sol.events.states_before)[happened], 0.0, atol=1e-9)
    assert np.all(np.diff(np.asarray(sol.events.times), axis=1)[happened[:, 1:]] > 0)


def test_doses_on_a_path():
    doses = Schedule(jnp.array([0.25, 0.6]), lambda t, y, args: y + 1.0)
    path = sciml.BrownianPath(KEYS[0], 0.0, 1.0)
    still = sciml.Stochastic(lambda t, y, args: 0.0 * y, lambda t, y, args: jnp.ones_like(y), noise="additive")
    sol = sciml.solve(still, 0.0, t0=0.0, t1=1.0, key=path, dt=0.1, events=doses)
    np.testing.assert_allclose(sol.ys[-1], 2.0 + path.increment(0.0, 1.0), atol=1e-3)
    np.testing.assert_allclose(sol.events.states_before[0], path.increment(0.0, 0.25), atol=1e-3)


def test_stationary_law():
    """An Ornstein-Uhlenbeck process forgets its start: mean and variance, and the covariance over a time."""
    process = sciml.Stochastic(lambda t, y, args: 1.0 - 2.0 * y, lambda t, y, args: 0.8 * jnp.ones_like(y))
    keys, ts = jax.random.split(jax.random.key(2), 4000), jnp.array([4.0, 4.25])
    ys = jax.jit(jax.vmap(lambda key: sciml.solve(process, 0.0, t0=0.0, t1=4.25, dt=1 / 16, key=key, saveat=ts).ys))(
        keys
    )
    variance = 0.8**2 / 4
    within(ys, 0.5, np.sqrt(variance))
    within((ys - 0.5) ** 2, variance, np.sqrt(2) * variance)
    within((ys[:, 0] - 0.5) * (ys[:, 1] - 0.5), variance * np.exp(-0.5), np.sqrt(2) * variance)


def test_tamed_steps_do_not_run_away():
    cubic = sciml.Stochastic(lambda t, y, args: -(y**3), lambda t, y, args: y)
    solve = lambda solver: sciml.solve(  # noqa: E731
        cubic, 20.0, t0=0.0, t1=1.0, dt=0.05, key=KEYS[0], solver=solver, throw=False
    )
    assert abs(solve(sciml.solvers.TamedEuler()).ys[-1]) < 5.0
    assert solve(diffrax.Euler()).status == Status.nonfinite


def test_pytrees_and_complex_states():
    def diffusion(t, y, args):
        return {"a": 0.3 * y["a"], "b": (0.1 * y["b"][0],)}

    tree = sciml.Stochastic(lambda t, y, args: jax.tree.map(lambda x: -x, y), diffusion)
    y0 = {"a": jnp.ones((2, 2)), "b": (jnp.ones(()),)}
    sol = sciml.solve(tree, y0, t0=0.0, t1=1.0, dt=0.1, key=KEYS[0])
    assert np.unique(np.asarray(sol.ys["a"])).size == 4 and sol.ys["b"][0].shape == (1,)
    phase = sciml.Stochastic(lambda t, y, args: 1j * y, lambda t, y, args: 0.5j * y, interpretation="stratonovich")
    turned = sciml.solve(phase, jnp.ones(3, complex), t0=0.0, t1=1.0, dt=1 / 256, key=KEYS[0], solver=diffrax.Heun())
    np.testing.assert_allclose(np.abs(turned.ys[-1]), 1.0, atol=1e-3)
    assert np.unique(np.angle(turned.ys[-1])).size == 3


def test_a_solve_of_no_length():
    sol = sciml.solve(model(), jnp.ones(2), t0=1.0, t1=1.0, dt=0.1, args=RATE, key=KEYS[0])
    np.testing.assert_array_equal(sol.ys[-1], 1.0)

    def end_at_once(start, rate):
        options = dict(t0=1.0, t1=1.0, key=KEYS[0], args=rate)
        ends = [
            sciml.solve(model(), start, **options, **steps).ys for steps in (dict(dt=0.1), dict(rtol=1e-2, atol=1e-2))
        ]
        return jnp.sum(ends[0] + 2 * ends[1])

    by_start, by_rate = jax.grad(end_at_once, (0, 1))(jnp.ones(2), RATE)
    np.testing.assert_array_equal(by_start, 3.0)
    assert by_rate == 0.0


@pytest.mark.x64
def test_what_diffrax_runs():
    solve = lambda key: sciml.solve(  # noqa: E731
        growth("scalar", "stratonovich"),
        jnp.ones(2),
        t0=0.0,
        t1=1.0,
        dt=1 / 32,
        key=key,
        solver=diffrax.ReversibleHeun(),
    )
    ends = jax.jit(jax.vmap(lambda key: solve(key).ys[-1]))(jax.random.split(jax.random.key(3), 1000))
    within(np.log(np.asarray(ends[:, 0])), 0.7, 0.5)
    assert solve(KEYS[0]).solver == "ReversibleHeun"
    steps = sciml.solve(
        growth("diagonal"), jnp.ones(2), t0=0.0, t1=1.0, dt=1 / 8, key=KEYS[0], solver=diffrax.Euler(),
        saveat=diffrax.SaveAt(steps=True), max_steps=8,
    )  # fmt: skip
    assert steps.ys.shape == (8, 2)


@pytest.mark.x64
def test_terms_of_diffrax():
    tree = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (), jax.random.key(0))
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: -args * y), diffrax.ControlTerm(lambda t, y, args: 0.1 * y, tree)
    )
    options = dict(t0=0.0, t1=1.0, args=RATE, dt=1 / 64, solver=diffrax.Euler())
    sol = sciml.solve(terms, jnp.array(1.0), **options)
    expected = diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 1.0, 1 / 64, jnp.array(1.0), RATE).ys[-1]
    close(sol.ys[-1], expected)
    close(sciml.solve(diffrax.ODETerm(lambda t, y, args: -y), 1.0, t0=0.0, t1=1.0).ys[-1], np.exp(-1.0), atol=1e-6)
    with pytest.raises(ValueError, match="requires `solver`"):
        sciml.solve(terms, jnp.array(1.0), t0=0.0, t1=1.0, dt=0.1)


@pytest.mark.x64
def test_controlled_equations():
    ts = jnp.linspace(0.0, 1.0, 11)
    points = jnp.stack([ts, jnp.sin(3 * ts)], axis=-1)
    path = diffrax.CubicInterpolation(ts, diffrax.backward_hermite_coefficients(ts, points))
    field = lambda t, y, args: jnp.stack([-y, args * jnp.ones_like(y)], axis=-1)  # noqa: E731
    driven = sciml.Controlled(field, path)
    found = sciml.solve(driven, jnp.ones(2), t0=0.0, t1=1.0, args=0.5, rtol=1e-8, atol=1e-8).ys[-1]
    theirs = diffrax.diffeqsolve(
        diffrax.ControlTerm(field, path).to_ode(), diffrax.Tsit5(), 0.0, 1.0, 1e-3, jnp.ones(2), 0.5
    ).ys[-1]
    np.testing.assert_allclose(found, theirs, rtol=1e-5)
    many = jax.vmap(lambda a: sciml.solve(driven, jnp.ones(2), t0=0.0, t1=1.0, args=a).ys[-1])(jnp.array([0.5, 1.0]))
    close(many[0], found, atol=1e-4)
    with pytest.raises(TypeError, match="`derivative"):
        sciml.Controlled(field, ts)
    with pytest.raises(ValueError, match="2,"):
        sciml.solve(sciml.Controlled(lambda t, y, args: -y, path), jnp.ones(2), t0=0.0, t1=1.0)


def refused(error, match, /, *, of=None, y0=1.0, **options):
    options = dict(t0=0.0, t1=1.0, dt=0.1, key=KEYS[0]) | options
    with pytest.raises(error, match=match):
        sciml.solve(growth("diagonal") if of is None else of, jnp.asarray(y0), **options)


def test_refusals():
    drift = lambda t, y, args: -y  # noqa: E731
    refused(ValueError, "requires `key`", key=None)
    refused(ValueError, "`key` requires a model with noise", of=drift)
    refused(ValueError, "forwards in time", t1=-1.0)
    refused(ValueError, "`key` must be one random key, but is an array of keys", key=KEYS)
    refused(ValueError, "`Checkpointed`|Checkpointed", adjoint=sciml.adjoints.Gauss())
    refused(ValueError, "does not estimate errors.*SPaRK", dt=None, solver=diffrax.Euler())
    refused(TypeError, "does not support noise", solver=diffrax.Kvaerno5())
    refused(ValueError, "only supports additive noise", solver=diffrax.SRA1())
    refused(ValueError, "exceeds this interval", key=sciml.BrownianPath(KEYS[0], 0.0, 0.5))
    with sciml.kernels.use("pallas"):
        refused(ValueError, "kernels do not support Brownian paths", key=sciml.BrownianPath(KEYS[0], 0.0, 1.0))
    refused(ValueError, "plus one axis", of=sciml.Stochastic(drift, lambda t, y, args: y, noise="general"))
    refused(ValueError, "of shape", of=sciml.Stochastic(drift, lambda t, y, args: jnp.ones(3)), y0=[1.0, 2.0])
    refused(ValueError, "does not depend on the state", of=sciml.Stochastic(drift, drift, noise="additive"))
    refused(ValueError, "structure", of=sciml.Stochastic(drift, lambda t, y, args: (y,)))
    shared = sciml.Stochastic(drift, lambda t, y, args: y[::-1])
    refused(ValueError, "their own", of=shared, y0=[1.0, 2.0], solver=sciml.solvers.SRIW1())
    with pytest.raises(ValueError, match="`noise` must be one of"):
        sciml.Stochastic(drift, drift, noise="white")
    with pytest.raises(TypeError, match=r"`diffusion` must be callable as `diffusion\(t, y, args\)`"):
        sciml.Stochastic(drift, lambda t, y: y)
    with pytest.raises(ValueError, match="`interpretation` must be one of"):
        sciml.Stochastic(drift, drift, interpretation="backward")
    with pytest.raises(TypeError, match="`diffusion` must be a function"):
        sciml.Stochastic(drift, 1.0)
    with pytest.raises(TypeError, match="a model with noise"):
        check_callable(growth("diagonal"))  # as `simulate` and all that take a vector field do


def test_what_only_values_show_is_a_status():
    backwards = jax.jit(lambda t1: sciml.solve(growth("scalar"), 1.0, t0=0.0, t1=t1, dt=0.1, key=KEYS[0], throw=False))
    assert backwards(-1.0).status == Status.invalid_argument
    far = jax.jit(
        lambda t0: sciml.solve(
            growth("scalar"), jnp.ones((), jnp.float32), t0=t0, t1=t0 + 1, dt=1e-3, key=KEYS[0], throw=False
        )
    )
    assert far(np.float32(1e4)).status == Status.invalid_argument
    assert far(np.float32(1.0)).status == Status.successful


def test_a_path_that_is_a_scalar():
    """dy = y dX has the solution exp(X(1) - X(0))."""
    ts = jnp.linspace(0.0, 1.0, 6)
    model = sciml.Controlled(lambda t, y, args: y, diffrax.LinearInterpolation(ts, ts**2))
    solve = lambda y0: sciml.solve(model, y0, t0=0.0, t1=1.0, events=sciml.Schedule(ts[1:-1]))  # noqa: E731
    close(solve(jnp.ones(2)).ys[-1], np.full(2, np.e), atol=1e-2)
    close(solve(1.0).ys[-1], np.e, atol=1e-2)
    wrong = sciml.Controlled(lambda t, y, args: y[None], diffrax.LinearInterpolation(ts, ts**2))
    with pytest.raises(ValueError, match=r"of shape \(\) for a leaf of shape \(\) and a path of shape \(\)"):
        sciml.solve(wrong, 1.0, t0=0.0, t1=1.0)
