import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from sciml import parallel
from sciml.parallel._blocks import check_block

from .common import RHO, adaptive, collectives, devices, lorenz, same_bits


def square(p, s):
    return {"y": p["a"] * jnp.sum(s**2), "b": p["b"]}


@pytest.fixture
def problem():
    return {"a": jnp.arange(1.0, 12.0), "b": jnp.arange(22).reshape(11, 2)}, jnp.array([1.0, 2.0])


@pytest.mark.parametrize("block", [None, 1, 2, 3, 16])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_is_vmap(problem, block, count):
    params, shared = problem
    out = parallel.ensemble(square, params, shared, mesh=devices(count), block=block)
    assert same_bits(out, jax.vmap(square, in_axes=(0, None))(params, shared))


def test_lorenz_has_the_same_bits_on_any_number_of_devices():
    run = ft.partial(parallel.ensemble, lorenz, block=8)
    one = run(RHO, mesh=devices(1))
    assert one.shape == (101, 3) and np.isfinite(one).all()
    for count in (2, 3, 8):
        assert same_bits(one, run(RHO, mesh=devices(count))), count
    # The problem does show a difference in the last bits: members a few of them apart end far apart.
    assert np.abs(one - run(RHO * np.float32(1 + 1e-6), mesh=devices(1))).max() > 1


def test_a_larger_program_has_the_same_bits_from_two_devices_up():
    def run(count):
        return jax.jit(lambda rho: parallel.ensemble(lorenz, rho, block=8, mesh=devices(count)))(RHO)

    two = run(2)
    assert same_bits(two, run(3)) and same_bits(two, run(8))


@pytest.mark.parametrize("block", [None, 4])
def test_devices_do_not_communicate(block):
    mu, scale = jnp.linspace(0.1, 5.0, 64), jnp.asarray(1.0)
    run = ft.partial(parallel.ensemble, adaptive, block=block)
    assert collectives(run, mu, scale) == []
    spread = jax.device_put(mu, NamedSharding(parallel.mesh(), P("member")))
    assert collectives(run, spread, scale) == []
    steps = np.asarray(run(mu, scale)[1])
    assert steps.max() > 2 * steps.min()


def test_plain_sharding_communicates():
    # What `ensemble` avoids, so that the test above can fail.
    mu = jax.device_put(jnp.linspace(0.1, 5.0, 64), NamedSharding(parallel.mesh(), P("member")))
    assert "all-reduce" in collectives(jax.vmap(lambda m: adaptive(m, jnp.asarray(1.0))), mu)


def test_uneven_members_are_gathered_once():
    found = collectives(lambda x: parallel.ensemble(lambda p: jnp.sin(p), x), jnp.arange(13.0))
    assert found == ["all-gather"]


def fixed(p, w):
    def step(y, _):
        return y + 0.01 * jnp.stack([y[1], p * w[0] * (1 - y[0] ** 2) * y[1] - w[1] * y[0]]), None

    return jnp.sum(jax.lax.scan(step, jnp.array([2.0, 0.0]), None, length=20)[0] ** 2)


def tolerance():
    return 1e-12 if jax.config.jax_enable_x64 else 1e-5


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("n", [16, 13])
def test_gradient_of_shared(n, block):
    p, w = jnp.linspace(0.5, 1.5, n), jnp.array([1.0, 1.1])

    def loss(w, p):
        return jnp.mean(parallel.ensemble(fixed, p, w, block=block))

    expected = jax.grad(lambda w, p: jnp.mean(jax.vmap(fixed, in_axes=(0, None))(p, w)), argnums=(0, 1))(w, p)
    found = jax.grad(loss, argnums=(0, 1))(w, p)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance(), atol=tolerance()), found, expected)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(w, p), expected[0], rtol=tolerance())


def test_gradient_of_shared_reduces_once():
    p, w = jnp.linspace(0.5, 1.5, 32), jnp.array([1.0, 1.1])

    def pullback(w, p, ct):
        return jax.vjp(lambda w: parallel.ensemble(fixed, p, w, block=2), w)[1](ct)

    assert collectives(pullback, w, p, jnp.ones(32)) == ["all-reduce"]


@pytest.mark.parametrize("block", [None, 2])
def test_gradient_of_a_closed_over_array(block):
    p, w = jnp.arange(1.0, 17.0), jnp.array([1.0, 2.0])

    def seen(w):
        return jnp.sum(parallel.ensemble(lambda p: p * jnp.sum(w**2), p, block=block))

    def hidden(w):  # in a cell of a cell
        def inner(p):
            return p * jnp.sum(w**2)

        return jnp.sum(parallel.ensemble(lambda p: inner(p), p, block=block))

    for loss in (seen, hidden, jax.jit(hidden)):
        np.testing.assert_allclose(jax.grad(loss)(w), 136 * 2 * np.array([1.0, 2.0]))
        np.testing.assert_allclose(jax.vmap(loss)(w[:, None]), 136 * np.array([1.0, 4.0]))


def by_shared(p, w):
    return jax.grad(fixed, argnums=1)(p, w)


def by_closed_over(w, p):
    return jax.grad(lambda u: fixed(p, u))(w)


def by_constant(p):
    return jax.grad(lambda u: fixed(p, u))(jnp.array([1.0, 1.1]))


@pytest.mark.parametrize("kind", ["shared", "closed over", "constant"])
def test_gradient_inside_a_member_is_its_own(kind):
    # The sum over all devices' members would be 16 times as much.
    p, w = jnp.linspace(0.5, 1.5, 16), jnp.array([1.0, 1.1])
    run = {
        "shared": lambda: parallel.ensemble(by_shared, p, w),
        "closed over": lambda: parallel.ensemble(ft.partial(by_closed_over, w), p),
        "constant": lambda: parallel.ensemble(by_constant, p),
    }[kind]
    np.testing.assert_allclose(run(), jax.vmap(by_shared, in_axes=(0, None))(p, w), rtol=tolerance())
    assert collectives(run) == []


def test_gradient_through_a_gradient():
    p, w = jnp.linspace(0.5, 1.5, 16), jnp.array([1.0, 1.1])
    found = jax.grad(lambda w: jnp.sum(parallel.ensemble(by_shared, p, w) ** 2))(w)
    expected = jax.grad(lambda w: jnp.sum(jax.vmap(by_shared, in_axes=(0, None))(p, w) ** 2))(w)
    np.testing.assert_allclose(found, expected, rtol=10 * tolerance())


def test_per_member_gradient_has_the_same_bits_on_any_number_of_devices():
    rho = RHO[:11]
    value = ft.partial(lorenz, steps=50)

    def gradient(rho):
        return jax.grad(lambda r: jnp.sum(jax.checkpoint(value)(r)))(rho)

    one = parallel.ensemble(gradient, rho, mesh=devices(1), block=4)
    assert one.shape == (11,) and np.isfinite(one).all() and np.all(one != 0)
    for count in (2, 3, 8):
        assert same_bits(one, parallel.ensemble(gradient, rho, mesh=devices(count), block=4))
    assert collectives(lambda r: parallel.ensemble(gradient, r, block=4), RHO[:64]) == []


def test_forward_mode_and_custom_rules():
    @jax.custom_vjp
    def cube(p, w):
        return p * jnp.sum(w**3)

    cube.defvjp(lambda p, w: (cube(p, w), (p, w)), lambda r, g: (g * jnp.sum(r[1] ** 3), g * r[0] * 3 * r[1] ** 2))
    p, w = jnp.arange(1.0, 17.0), jnp.array([1.0, 2.0])
    np.testing.assert_allclose(
        jax.grad(lambda w: jnp.sum(parallel.ensemble(cube, p, w)))(w), 136 * 3 * np.asarray(w) ** 2
    )
    _, tangent = jax.jvp(lambda w: parallel.ensemble(fixed, p, w), (w,), (w,))
    _, expected = jax.jvp(lambda w: jax.vmap(fixed, in_axes=(0, None))(p, w), (w,), (w,))
    np.testing.assert_allclose(tangent, expected, rtol=10 * tolerance())


def test_vmap_over_ensemble():
    p, ws = jnp.arange(1.0, 12.0), jnp.array([[1.0, 2.0], [3.0, 4.0]])
    out = jax.vmap(lambda w: parallel.ensemble(fixed, p, w, block=2))(ws)
    np.testing.assert_allclose(out, jax.vmap(lambda w: jax.vmap(fixed, in_axes=(0, None))(p, w))(ws), rtol=tolerance())


def test_a_failing_member_changes_no_other():
    bad = RHO.copy()
    bad[37] = np.nan
    good, failed = (parallel.ensemble(lorenz, rho, block=8) for rho in (RHO, bad))
    assert np.isnan(failed[37]).all()
    rest = np.arange(101) != 37
    assert same_bits(np.asarray(good)[rest], np.asarray(failed)[rest])


@pytest.mark.parametrize("typed", [True, False])
def test_random_keys(typed):
    key = jax.random.key(0) if typed else jax.random.PRNGKey(0)
    keys = jax.random.split(key, 11)

    def draw(k, s):
        return jax.random.normal(k) + jax.random.normal(s)

    expected = jax.vmap(draw, in_axes=(0, None))(keys, key)
    for block in (None, 3):
        np.testing.assert_allclose(parallel.ensemble(draw, keys, key, block=block), expected, rtol=1e-6)
        assert jnp.all(parallel.ensemble(lambda k: k, keys, block=block) == keys)


class Result(eqx.Module):
    y: jax.Array
    label: str
    count: int
    activation: object


@pytest.mark.parametrize("block", [None, 2])
def test_results_may_hold_anything(block):
    def fn(p):
        return Result(p, "heun", 3, jnp.tanh), None

    for run in (parallel.ensemble, eqx.filter_jit(parallel.ensemble)):
        out, nothing = run(fn, jnp.arange(5.0), block=block)
        assert nothing is None and out.label == "heun" and out.activation is jnp.tanh
        assert out.count.shape == (5,) and out.y.shape == (5,)


def test_models_as_members(getkey):
    make = eqx.filter_vmap(lambda k: eqx.nn.MLP("scalar", "scalar", 4, 1, key=k))
    models = make(jax.random.split(getkey(), 5))  # activation functions are leaves too
    x = jnp.asarray(0.3)
    out = parallel.ensemble(lambda model, x: model(x), models, x)
    np.testing.assert_allclose(out, eqx.filter_vmap(lambda m: m(x))(models), rtol=1e-6)
    # A module as the function: its arrays are shared.
    one = eqx.nn.MLP("scalar", "scalar", 4, 1, key=getkey())
    grads = eqx.filter_grad(lambda m: jnp.sum(parallel.ensemble(m, jnp.arange(5.0))))(one)
    expected = eqx.filter_grad(lambda m: jnp.sum(jax.vmap(m)(jnp.arange(5.0))))(one)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), grads, expected)


@pytest.mark.parametrize("block", [None, 1, 2])
def test_results_stay_spread_where_members_divide(block):
    out = parallel.ensemble(jnp.sin, jnp.arange(16.0), block=block)
    assert out.sharding.spec == P("member")
    assert out.addressable_shards[0].data.shape == (2,)


def test_numpy_and_grid_members():
    assert same_bits(parallel.ensemble(jnp.sin, RHO), jax.vmap(jnp.sin)(RHO))
    grid = parallel.parameter_grid(a=RHO[:3], b=RHO[:4])
    out = grid.on_grid(parallel.ensemble(lambda p: p["a"] - p["b"], grid))
    np.testing.assert_array_equal(out, RHO[:3, None] - RHO[None, :4])


def test_one_compilation():
    calls = []

    def fn(p):
        calls.append(p)
        return p

    for _ in range(3):
        parallel.ensemble(fn, jnp.arange(5.0), block=2)
    assert len(calls) == 1


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("n", [16, 13])
def test_meshes_of_the_context(kind, n):
    mesh = jax.make_mesh((8,), ("member",), axis_types=(kind,))
    p, w = jnp.linspace(0.5, 1.5, n), jnp.array([1.0, 1.1])
    expected = jax.vmap(fixed, in_axes=(0, None))(p, w)
    np.testing.assert_allclose(parallel.ensemble(fixed, p, w, mesh=mesh), expected, rtol=tolerance())
    with jax.set_mesh(mesh):
        for run in (parallel.ensemble, jax.jit(parallel.ensemble, static_argnums=0)):
            np.testing.assert_allclose(run(fixed, p, w), expected, rtol=tolerance())
        np.testing.assert_allclose(parallel.ensemble(fixed, p, w, mesh=mesh, block=1), expected, rtol=tolerance())
        g = jax.grad(lambda w: jnp.sum(parallel.ensemble(fixed, p, w)))(w)
        if n == 16:
            q = jax.device_put(p, NamedSharding(mesh, P("member")))
            np.testing.assert_allclose(parallel.ensemble(fixed, q, w), expected, rtol=tolerance())
            np.testing.assert_allclose(parallel.ensemble(fixed, q, w, block=4), expected, rtol=tolerance())
    np.testing.assert_allclose(
        g, jax.grad(lambda w: jnp.sum(jax.vmap(fixed, in_axes=(0, None))(p, w)))(w), rtol=tolerance()
    )


def test_ensemble_in_an_ensemble_runs_in_place():
    def outer(a):
        return jnp.sum(parallel.ensemble(lambda b: a * b, jnp.arange(3.0), block=2))

    for block in (None, 1):
        np.testing.assert_allclose(parallel.ensemble(outer, jnp.arange(8.0), block=block), 3.0 * np.arange(8.0))


def test_members_may_span_devices():
    mesh = parallel.mesh(member=4, x=2)

    def member(p, u):
        def part(u):
            return jax.lax.psum(jnp.sum(jnp.sin(p * u)), "x")

        return jax.shard_map(part, in_specs=P("x"), out_specs=P(), axis_names={"x"})(u)

    p, u = jnp.arange(1.0, 7.0), jnp.arange(8.0)
    expected = jax.vmap(lambda p: jnp.sum(jnp.sin(p * u)))(p)
    for block in (None, 1):
        np.testing.assert_allclose(parallel.ensemble(member, p, u, mesh=mesh, block=block), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "params, message",
    [
        (
            {"a": np.ones(3), "b": np.ones((4, 2))},
            r"axes differ in length: `params\['a'\]` has 3, `params\['b'\]` has 4",
        ),
        ({"a": np.ones(3), "b": 1.0}, r"`params\['b'\]` is a scalar"),
        (np.float32(1.0), "`params` is a scalar"),
        (np.ones((0, 3)), "`params` is empty"),
        ({"a": None}, "contains no array"),
    ],
)
def test_bad_members(params, message):
    with pytest.raises(ValueError, match=message):
        parallel.ensemble(lambda p: p, params)


def test_functions_of_other_arguments():
    with pytest.raises(TypeError, match=r"`ensemble`: `fn` must be callable as `fn\(params\)`, but .* is \(p, q\)"):
        parallel.ensemble(lambda p, q: p, np.ones(3))
    with pytest.raises(TypeError, match=r"`ensemble`: `fn` must be callable as `fn\(params, shared\)`"):
        parallel.ensemble(lambda p: p, np.ones(3), 2.0)
    with pytest.raises(TypeError, match=r"`sweep`: `fn` must be callable as `fn\(params\)`"):
        parallel.sweep(lambda p, key: p, np.ones(3), progress=False)


@pytest.mark.parametrize("block", [0, -3])
def test_block_is_positive(block):
    with pytest.raises(ValueError, match=f"`ensemble`: `block`.* must be positive, got {block}"):
        parallel.ensemble(lambda p: p, np.ones(3), block=block)


@pytest.mark.parametrize("block", [2.0, True, "8"])
def test_block_is_an_integer(block):
    # Called below the public function, whose annotations are checked first in the tests.
    with pytest.raises(TypeError, match="`ensemble`: `block`.* must be an integer, got"):
        check_block(block, where="ensemble")


def test_bad_mesh():
    other = Mesh(np.array(jax.devices()), ("x",))
    with pytest.raises(ValueError, match='`mesh` must have an axis named "member", got \\(x=8\\)'):
        parallel.ensemble(lambda p: p, np.ones(3), mesh=other)
    with jax.set_mesh(other), pytest.raises(ValueError, match='`jax.set_mesh` must have an axis named "member"'):
        parallel.ensemble(lambda p: p, np.ones(3))
    with jax.set_mesh(parallel.mesh()), pytest.raises(ValueError, match=r"has axes \(member=2\).*\(member=8\)"):
        parallel.ensemble(lambda p: p, np.ones(3), mesh=devices(2))


def test_a_gradient_in_blocks_keeps_one_block():
    def long(p, w):
        def step(y, _):
            return y + 0.01 * jnp.sin(p * w[0] * y), None

        return jnp.sum(jax.lax.scan(step, jnp.ones(4), None, length=200)[0])

    p, w = jnp.linspace(0.5, 1.5, 64), jnp.array([1.0, 1.1])

    def gradient(block):
        return jax.jit(jax.grad(lambda w: jnp.sum(parallel.ensemble(long, p, w, block=block, mesh=devices(1)))))

    whole, blocks = gradient(None), gradient(4)
    np.testing.assert_allclose(blocks(w), whole(w), rtol=10 * tolerance())
    memory = [f.lower(w).compile().memory_analysis().temp_size_in_bytes for f in (whole, blocks)]
    assert memory[1] < memory[0] / 6  # a sixteenth of the members, and their inputs
