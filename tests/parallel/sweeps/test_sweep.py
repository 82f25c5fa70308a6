import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from sciml import SolveError, Status, parallel

from ..common import RHO, devices, lorenz, same_bits

quiet = ft.partial(parallel.sweep, progress=False)


def test_values_are_in_order_and_on_the_host():
    result = quiet(
        lambda p, s: {"y": p["a"] * s, "i": p["i"]}, {"a": RHO, "i": np.arange(101)}, np.float32(2.0), block=4
    )
    assert isinstance(result.values["y"], np.ndarray)
    np.testing.assert_array_equal(result.values["i"], np.arange(101))
    np.testing.assert_array_equal(result.values["y"], 2 * RHO)
    assert result.n == 101 and result.status.dtype == np.int32 and result.failed.size == 0
    assert result.member(5) == {"y": 2 * RHO[5], "i": 5} == {**result.member(-96)}
    assert result.member_params(5) == {"a": RHO[5], "i": 5}
    assert "101 successful" in result.summary() and "failed" not in result.summary()


def test_lorenz_has_the_same_bits_on_any_number_of_devices():
    run = ft.partial(quiet, lorenz, RHO, block=8)
    one = run(mesh=devices(1))
    assert one.values.shape == (101, 3) and one.failed.size == 0
    for count in (2, 3, 8):
        assert same_bits(one.values, run(mesh=devices(count)).values), count


def test_default_block_does_not_depend_on_the_devices():
    assert same_bits(quiet(lorenz, RHO, mesh=devices(1)).values, quiet(lorenz, RHO, mesh=devices(8)).values)


def noise(p, s, *, key):
    return p + s * jax.random.normal(key)


def test_random_keys():
    key = jax.random.key(3)
    expected = jnp.stack([jax.random.normal(jax.random.fold_in(key, i)) for i in range(5)])
    zeros, one = np.zeros(5, expected.dtype), np.ones((), expected.dtype)
    for count, block in ((1, 1), (8, 2)):
        by_name = quiet(noise, zeros, one, key=key, mesh=devices(count), block=block)
        by_place = quiet(lambda p, k: jax.random.normal(k), zeros, key=key, mesh=devices(count), block=block)
        np.testing.assert_allclose(by_name.values, expected, rtol=1e-6)
        np.testing.assert_allclose(by_place.values, expected, rtol=1e-6)
    raw = quiet(noise, zeros, one, key=jax.random.PRNGKey(3))
    np.testing.assert_allclose(raw.values, expected, rtol=1e-6)
    # Keys as parameters, and as results.
    keys = jax.random.split(key, 5)
    kept = quiet(lambda k: k, keys)
    np.testing.assert_array_equal(kept.values, jax.random.key_data(keys))
    assert kept.member_params(2) == keys[2]


def test_a_failing_member_changes_no_other():
    rho = np.linspace(0.0, 21.0, 10_000, dtype=np.float32)
    bad = rho.copy()
    bad[1234] = np.inf
    run = ft.partial(quiet, ft.partial(lorenz, steps=20))
    good, failed = run(rho), run(bad)
    assert good.failed.size == 0
    assert failed.failed.tolist() == [1234]
    assert failed.status[1234] == Status.nonfinite
    rest = np.arange(10_000) != 1234
    assert rest.sum() == 9_999
    assert same_bits(good.values[rest], failed.values[rest])


def test_summary_says_what_failed_and_where():
    result = quiet(
        lambda p: jnp.log(p["x"]) + p["y"][0], {"x": np.linspace(-1.0, 2.0, 16) - 1e-3, "y": np.ones((16, 2))}
    )
    text = result.summary()
    assert "16 members" in text and "10 successful, 6 failed" in text
    assert "nonfinite" in text and Status.nonfinite.message in text
    assert "params['x']: -1.001 to -0.001 (all members: -1.001 to 1.999)" in text


def test_summary_of_what_has_no_range_or_name():
    keys = jax.random.split(jax.random.key(0), 3)
    out = FakeSolution(jnp.ones(()), jnp.ones(()), jnp.asarray(77, jnp.int32))
    text = quiet(lambda p: out, {"k": keys, "on": np.array([True, False, True]), "x": np.arange(3)}).summary()
    assert "status 77: 3" in text and "params['x']: 0 to 2" in text and "'k'" not in text and "'on'" not in text


class FakeSolution(eqx.Module):
    ts: jax.Array
    ys: jax.Array
    status: jax.Array


def fake_solve(p):
    # Unused places hold infinity, as in a solution whose saved times ran out.
    code = jnp.where(p > 2, jnp.asarray(Status.max_steps_reached, jnp.int32), jnp.asarray(0, jnp.int32))
    return FakeSolution(jnp.stack([p, p / 0]), jnp.where(p > 2, jnp.nan, p), code)


def test_status_comes_from_the_solution():
    p = np.arange(5.0)
    for fn in (fake_solve, lambda p: {"sol": fake_solve(p), "p": p}):
        result = quiet(fn, p)
        assert result.status.tolist() == [0, 0, 0, 1, 1]
    assert isinstance(quiet(fake_solve, p).values, FakeSolution)
    assert quiet(fake_solve, p).member(1).ys == 1.0


def test_output_keeps_less_and_the_status():
    p = np.arange(5.0)
    result = quiet(fake_solve, p, output=lambda sol: sol.ts[0])
    np.testing.assert_array_equal(result.values, p)
    assert result.status.tolist() == [0, 0, 0, 1, 1]
    broken = quiet(fake_solve, p, output=lambda sol: jnp.log(sol.ts[0]))
    assert broken.status.tolist() == [Status.nonfinite, 0, 0, 1, 1]


def test_integers_cannot_fail():
    assert quiet(lambda p: p + 1, np.arange(5)).failed.size == 0


def test_on_fail_raise():
    done = []
    p = np.array([1.0] * 10 + [np.nan] + [1.0] * 9)
    with pytest.raises(SolveError, match=r"(?s)1 of 20 members failed.*`nonfinite` \(members 10\).*12 of 20"):
        parallel.sweep(
            lambda x: x, p, mesh=devices(2), block=2, on_fail="raise", progress=lambda p: done.append((p.done, p.total))
        )
    assert done == [(2, 20), (4, 20), (6, 20), (8, 20), (10, 20)]


def test_progress(capsys):
    done = []
    parallel.sweep(lambda x: x, np.ones(7), mesh=devices(1), block=3, progress=lambda p: done.append((p.done, p.total)))
    assert done == [(3, 7), (6, 7), (7, 7)]
    quiet(lambda x: x, np.ones(7))
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    parallel.sweep(lambda x: x, np.array([np.nan] * 7))
    text = capsys.readouterr().err
    *earlier, last = text.split("\r")
    assert "compiling" in "".join(earlier) and "7/7" in last and "failed=7" in last and "compiling" not in last


def test_one_compilation():
    calls = []

    def fn(p):
        calls.append(p)
        return p

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, _, **kw: compiled.append(name) if "backend_compile" in name else None
    )
    for _ in range(2):
        quiet(fn, np.arange(50.0), mesh=devices(2), block=3)
    assert len(calls) == 1
    assert len(compiled) == 2  # one program, for each of two devices
    quiet(fn, np.arange(50.0), mesh=devices(1))
    assert len(compiled) == 3  # that which told what memory it needs is the one that runs


def test_next_block_is_dispatched_first(monkeypatch):
    from sciml.parallel.sweeps._executable import Executable

    log = []
    run = Executable.run
    monkeypatch.setattr(Executable, "run", lambda *a: (log.append("dispatch"), run(*a))[1])
    parallel.sweep(lambda x: x, np.ones(6), mesh=devices(1), block=2, progress=lambda p: log.append("collect"))
    assert log == ["dispatch", "dispatch", "collect", "dispatch", "collect", "collect"]


def test_grid():
    a, b = np.linspace(0.0, 1.0, 20), np.linspace(1.0, 2.0, 30)
    result = quiet(lambda p: {"misfit": p["a"] * p["b"]}, parallel.parameter_grid(a=a, b=b))
    assert result.grid.shape == (20, 30)
    np.testing.assert_allclose(result.on_grid()["misfit"], a[:, None] * b[None, :], rtol=1e-6)
    np.testing.assert_allclose(result.on_grid(result.params)["a"], np.broadcast_to(a[:, None], (20, 30)))
    assert result.on_grid(result.status).shape == (20, 30)
    assert result.member_params(31) == {"a": a[1], "b": b[1]}


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_mesh_of_the_context(kind):
    mesh = jax.make_mesh((8,), ("member",), axis_types=(getattr(jax.sharding.AxisType, kind),))
    np.testing.assert_array_equal(quiet(lambda p: 2 * p, RHO, mesh=mesh).values, 2 * RHO)
    with jax.set_mesh(mesh):
        np.testing.assert_array_equal(quiet(lambda p: 2 * p, RHO).values, 2 * RHO)


def test_members_may_span_devices():
    def member(p, u):
        def part(u):
            return jax.lax.psum(jnp.sum(jnp.sin(p * u)), "x")

        return jax.shard_map(part, in_specs=P("x"), out_specs=P(), axis_names={"x"})(u)

    p, u = np.arange(1.0, 7.0, dtype=np.float32), np.arange(8.0, dtype=np.float32)
    expected = jax.vmap(lambda p: jnp.sum(jnp.sin(p * u)))(p)
    result = quiet(member, p, u, mesh=parallel.mesh(member=4, x=2), block=1)
    np.testing.assert_allclose(result.values, expected, rtol=1e-5)


def test_an_ensemble_in_a_sweep_runs_in_place():
    result = quiet(lambda a: jnp.sum(parallel.ensemble(lambda b: a * b, np.arange(3.0))), np.arange(4.0), block=1)
    np.testing.assert_allclose(result.values, 3.0 * np.arange(4.0))


class Frame:
    """As a data frame of pandas."""

    columns = ("a", "b")

    def to_numpy(self):
        return np.ones((3, 2))


@pytest.mark.parametrize(
    "params, message",
    [
        (np.ones((0,)), "`sweep`: `params` is empty"),
        ({"a": np.ones(3), "b": np.ones(2)}, "`sweep`: the leading axes differ in length"),
        ({"a": np.ones(3), "b": np.asarray(1.0)}, r"`sweep`: `params\['b'\]` is a scalar"),
        ({}, "contains no array"),
        ("members.csv", r"contains only str. Pass a dictionary of arrays"),
        (Frame(), r"frame\[name\].to_numpy\(\)"),
        ({"solver": np.array(["Tsit5", "Heun"])}, r"`params\['solver'\]` must contain numbers, but has dtype <U5"),
    ],
)
def test_bad_members(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quiet(lambda p: p, params)


@pytest.mark.parametrize("params", [[1.0, 2.0, 4.0], (1, 2, 4)])
def test_members_as_a_list_of_numbers(params):
    assert quiet(lambda p: 2 * p, params).values.tolist() == [2, 4, 8]
    assert parallel.ensemble(lambda p: 2 * p, params).tolist() == [2, 4, 8]


def test_bad_arguments():
    with pytest.raises(ValueError, match="`sweep`: `block`.* must be positive, got 0"):
        quiet(lambda p: p, np.ones(3), block=0)
    with pytest.raises(ValueError, match="`memory`, the bytes that a block may use, must be positive, got -1"):
        quiet(lambda p: p, np.ones(3), memory=-1)
    with pytest.raises(ValueError, match='`on_fail` must be "keep", "raise" or a `Retry`, got \'ignore\''):
        quiet(lambda p: p, np.ones(3), on_fail="ignore")
    with pytest.raises(ValueError, match='must have an axis named "member"'):
        quiet(lambda p: p, np.ones(3), mesh=jax.sharding.Mesh(np.array(jax.devices()), ("x",)))
    with pytest.raises(TypeError, match="use `ensemble`"):
        jax.jit(lambda x: quiet(lambda p: p, x).values)(np.ones(3))
    with pytest.raises(ValueError, match="Only a sweep over `parallel.parameter_grid`"):
        quiet(lambda p: p, np.ones(3)).on_grid()
    with pytest.raises(IndexError, match="members 0 to 2, got 3"):
        quiet(lambda p: p, np.ones(3)).member(3)


@pytest.mark.parametrize("returned", [None, "text"])
def test_a_function_that_returns_no_array(returned):
    with pytest.raises(TypeError, match="`fn` or `output` returned .*Does the function end with `return`"):
        quiet(lambda p: returned, np.ones(3))


def test_plot_of_a_grid():
    plt = pytest.importorskip("matplotlib.pyplot")
    grid = parallel.parameter_grid(a=jnp.linspace(0.0, 1.0, 4), b=jnp.linspace(1.0, 3.0, 5))
    result = quiet(lambda p: jnp.stack([p["a"] * p["b"], p["a"]]), grid)
    ax = result.plot(result.values[:, 0], log=True)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    with pytest.raises(ValueError, match=r"one number per member.*shapes \[\(4, 5, 2\)\]"):
        result.plot()
    with pytest.raises(ValueError, match="has no grid"):
        quiet(lambda p: p, RHO).plot()
    named = quiet(lambda p: {"product": p["a"] * p["b"], "sum": p["a"] + p["b"]}, grid)
    assert named.plot("sum").get_xlabel() == "a"
    with pytest.raises(ValueError, match=r"Choose one number, such as `result.plot\('product'\)`"):
        named.plot()
    with pytest.raises(ValueError, match=r"no values 'mean'; the values of this sweep are \['product', 'sum'\]"):
        named.plot("mean")
    plt.close("all")
