"""Members with large states, which a CPU runs one after another."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import parallel
from sciml.spatial import Grid

GRID = Grid((64, 64))
RATES = np.array([0.3, 1.0, 3.0])

METHOD = dict(solver=diffrax.Heun())
LOOPS = {
    "scan": dict(dt=0.004),
    "tail_saves": dict(dt=0.003, saveat=[0.004, 0.01]),
    "adaptive": dict(rtol=1e-4, atol=1e-6),
    "adaptive_saves": dict(rtol=1e-4, atol=1e-6, saveat=[0.004, 0.01]),
}
each_loop = pytest.mark.parametrize("loop", ["scan", *(k for k in ("tail_saves", "adaptive")), "adaptive_saves"])
ADJOINTS = {
    "checkpointed": sciml.adjoints.Checkpointed(),
    "few": sciml.adjoints.Checkpointed(memory=10**6),
    "interpolating": sciml.adjoints.Interpolating(),
}


def start(rate):
    x, y = (c.astype(jnp.result_type(rate)) for c in GRID.centers)
    return 1.0 + 0.5 * jnp.sin(5.0 * x * (1.0 + rate)) * jnp.cos(3.0 * y)


def field(t, u, rate):
    """Decay that spreads a little: not stiff, and a step reads neighbours."""
    p = jnp.pad(u, 1, mode="edge")
    return 20 * rate * (p[2:, 1:-1] + p[:-2, 1:-1] - 2 * u - u**3)


def run(rate, loop, **options):
    return sciml.solve(field, start(rate), t0=0.0, t1=0.02, args=rate, **(METHOD | LOOPS[loop] | options))


@pytest.mark.x64
@each_loop
def test_members_are_those_of_single_solves(loop):
    """With as many steps as each needs: none waits for another."""
    many = jax.jit(jax.vmap(lambda rate: run(rate, loop)))(RATES)
    alone = jax.jit(lambda rate: run(rate, loop))
    for i, rate in enumerate(RATES):
        one = alone(rate)
        np.testing.assert_allclose(many.ys[i], one.ys, rtol=1e-13)
        assert int(many.stats.executed[i]) == int(one.stats.executed) and int(many.status[i]) == 0
    if "adaptive" in loop:
        assert len(set(np.asarray(many.stats.accepted).tolist())) > 1
        assert float(many.stats.lane_efficiency) == 1.0


@pytest.mark.x64
@pytest.mark.parametrize(
    "adjoint, loop",
    [
        ("checkpointed", "adaptive"),
        ("checkpointed", "adaptive_saves"),
        ("few", "scan"),
        ("interpolating", "adaptive"),
    ],
)
def test_gradients_on_either_side_of_vmap(loop, adjoint):
    def loss(rate):
        return jnp.sum(run(rate, loop, adjoint=ADJOINTS[adjoint]).ys[-1] ** 2)

    within = jax.jit(jax.vmap(jax.value_and_grad(loss)))
    slopes = within(RATES)[1]
    around = jax.jit(jax.grad(lambda rates: jnp.sum(jax.vmap(loss)(rates))))(RATES)
    np.testing.assert_allclose(slopes, around, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], jax.jit(jax.grad(loss))(RATES[0]), rtol=1e-11)
    h = 1e-5
    central = (within(RATES + h)[0] - within(RATES - h)[0]) / (2 * h)
    # with error control the step sizes are held, and the difference is one of the tolerance
    np.testing.assert_allclose(slopes, central, rtol=1e-6 if loop == "scan" else 1e-2)


def test_nested_batches_and_what_all_members_share(dtype):
    rates, factors = jnp.asarray(RATES, dtype), jnp.array([1.0, 1.1], dtype)

    def one(rate, factor):
        return jnp.mean(sciml.solve(field, start(rate), t0=0.0, t1=0.02, dt=0.004, args=rate * factor, **METHOD).ys)

    both = jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(None, 0)))(rates, factors)
    each = jax.jit(jax.value_and_grad(one, argnums=1))
    expected = [[each(rate, factor) for rate in rates] for factor in factors]
    assert both.dtype == dtype
    np.testing.assert_allclose(both, [[value for value, _ in row] for row in expected], rtol=1e-5)
    total = lambda rates, factor: jnp.sum(jax.vmap(one, in_axes=(0, None))(rates, factor))  # noqa: E731
    by = jax.jit(jax.grad(total, argnums=1))(rates, factors[1])
    np.testing.assert_allclose(by, np.sum([slope for _, slope in expected[1]]), rtol=1e-4)


@pytest.mark.x64
def test_forward_over_reverse():
    """Second derivatives of members, by a product with a vector and by a matrix."""
    loss = lambda rate: jnp.mean(run(rate, "scan").ys ** 2)  # noqa: E731
    slopes = lambda rates: jax.vmap(jax.grad(loss))(rates)  # noqa: E731
    rates, h = jnp.asarray(RATES), 1e-5
    found = jax.jit(lambda rates: jax.jvp(slopes, (rates,), (jnp.ones(3),))[1])(rates)
    program = jax.jit(slopes)
    np.testing.assert_allclose(found, (program(rates + h) - program(rates - h)) / (2 * h), rtol=1e-6)


@pytest.mark.x64
def test_a_member_that_fails_fails_alone():
    rates = np.array([0.3, np.nan, 3.0])
    found = jax.jit(jax.vmap(lambda rate: run(rate, "adaptive", throw=False)))(rates)
    assert [bool(code) for code in found.status] == [False, True, False]
    alone = jax.jit(lambda rate: run(rate, "adaptive").ys)
    np.testing.assert_allclose(found.ys[2], alone(3.0), rtol=1e-13)

    def loss(rates):
        sol = jax.vmap(lambda rate: run(rate, "adaptive", throw=False))(rates)
        good = (sol.status == 0)[:, None, None]
        return jnp.sum(jnp.where(good, sol.ys[:, -1], 0.0))

    slopes = np.asarray(jax.jit(jax.grad(loss))(rates))
    assert np.isfinite(slopes[[0, 2]]).all()


@pytest.mark.x64
def test_records_of_all_members_share_the_memory():
    """What members keep adds up, and stays within what `Checkpointed` may take for all of them."""

    def loss(rates):
        options = dict(dt=0.02 / 400, adjoint=sciml.adjoints.Checkpointed(memory=2**22))
        return jnp.sum(jax.vmap(lambda rate: run(rate, "scan", **options).ys)(rates))

    planned = jax.jit(jax.grad(loss)).lower(jnp.ones(8)).compile().memory_analysis()
    assert planned.temp_size_in_bytes < 2**22


def test_direct_keeps_what_its_steps_compute_once():
    """Of a large state not a second time for a long segment; and the gradient is that of the default."""
    steps, y0 = 100, jnp.linspace(0.0, 1.0, 2**15)

    def loss(y0, adjoint):
        options = dict(t0=0.0, t1=1.0, dt=1 / steps, solver=diffrax.Euler(), adjoint=adjoint)
        return jnp.sum(sciml.solve(lambda t, y, args: jnp.sin(y), y0, **options).ys[-1] ** 2)

    gradient = lambda adjoint: jax.jit(jax.grad(lambda y0: loss(y0, adjoint))).lower(y0).compile()  # noqa: E731
    direct, default = gradient(sciml.adjoints.Direct()), gradient(sciml.adjoints.Checkpointed())
    assert direct.memory_analysis().temp_size_in_bytes < 1.06 * steps * y0.nbytes  # a cosine of each step
    np.testing.assert_allclose(direct(y0), default(y0), rtol=1e-5)


@pytest.mark.parametrize("memory", [2**9, 2**12])
def test_members_keep_as_many_levels_as_there_is_room_for(memory):
    """More than one member alone would keep; only traced."""
    decay = lambda t, y, rate: -rate * y  # noqa: E731
    adjoint = sciml.adjoints.Checkpointed(memory=memory)

    def end(rate):
        return sciml.solve(decay, jnp.ones(2), t0=0.0, t1=1.0, dt=1 / 64, args=rate, adjoint=adjoint).ys[-1, 0]

    assert jax.eval_shape(jax.vmap(jax.grad(end)), jnp.ones(40)).shape == (40,)


@pytest.mark.x64
def test_over_devices():
    mesh = jax.make_mesh((2,), ("members",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    rates = np.linspace(0.3, 3.0, 4)
    many = jax.vmap(lambda rate: run(rate, "adaptive").ys[-1])
    split = jax.jit(jax.shard_map(many, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    np.testing.assert_allclose(split(rates), jax.jit(many)(rates), rtol=1e-13)
    total = lambda rates: jnp.sum(parallel.ensemble(lambda r: run(r, "adaptive").ys[-1], rates))  # noqa: E731
    whole = lambda rates: jnp.sum(many(rates))  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(total))(rates), jax.jit(jax.grad(whole))(rates), rtol=1e-11)


@pytest.mark.x64
@pytest.mark.x64
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("loop", ["adaptive", "adaptive_saves", "scan"])
def test_gradients_of_members_sharded_over_devices(loop, kind):
    """What is kept of steps has the same shape on each device as it has for all of them."""
    mesh = jax.make_mesh((2,), ("members",), axis_types=(kind,), devices=jax.devices()[:2])
    rates = np.linspace(0.3, 3.0, 4)
    slopes = jax.jit(jax.grad(lambda rates: jnp.sum(jax.vmap(lambda rate: run(rate, loop).ys)(rates) ** 2)))
    found = slopes(jax.device_put(rates, NamedSharding(mesh, P("members"))))
    assert found.sharding.spec == P("members")
    np.testing.assert_allclose(found, slopes(rates), rtol=1e-11)


def test_acoustic_shots_in_a_batch():
    """The model has a source of its own for each member."""
    from sciml.models import Acoustic, PointSources, Ricker

    grid = Grid((48, 48), 0.0, 480.0)

    def shot(x):
        model = Acoustic(grid, speed=1500.0, source=PointSources(grid, x, Ricker(12.0)), layers=8)
        return model.pressure(sciml.solve(model, model.rest(), t0=0.0, t1=0.05, dt=0.05 / 40).ys)[-1]

    places = jnp.array([[200.0, 240.0], [300.0, 200.0]])
    np.testing.assert_allclose(
        jax.jit(jax.vmap(shot))(places), jax.jit(lambda xs: jax.lax.map(shot, xs))(places), rtol=1e-9, atol=1e-9
    )
