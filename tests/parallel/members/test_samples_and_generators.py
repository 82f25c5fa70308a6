"""Members from samples and generators, and the order and size of their blocks."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sciml
from sciml import parallel

from ..common import RHO, devices, lorenz, same_bits


def quiet(*args, **options):
    """A sweep on one device, for which alone it compiles, unless others are named."""
    return parallel.sweep(*args, **{"progress": False, "mesh": devices(1)} | options)


KEY = jax.random.key(1)


def test_sobol_fills_a_box():
    found = parallel.sobol(256, key=KEY, a=(1.0, 3.0), b=stats.loguniform(0.1, 100))
    assert list(found) == ["a", "b"] and found["a"].dtype == jnp.result_type(float)
    assert np.histogram(found["a"], 16, (1, 3))[0].tolist() == [16] * 16  # a net: as many in every cell
    assert np.histogram(np.log10(found["b"]), 16, (-1, 2))[0].tolist() == [16] * 16
    longer = parallel.sobol(300, key=KEY, a=(1.0, 3.0), b=stats.loguniform(0.1, 100))
    np.testing.assert_array_equal(longer["b"][:256], found["b"])
    other = parallel.sobol(256, key=jax.random.PRNGKey(2), a=(1.0, 3.0))
    assert not np.array_equal(other["a"], found["a"])
    plain = parallel.sobol(4, a=(0.0, 1.0))
    assert plain["a"].tolist() == [0.0, 0.5, 0.75, 0.25]
    # the mean of a smooth function, far closer than random points would have it (about 0.03)
    x = parallel.sobol(1024, key=KEY, a=(0.0, 1.0), b=(0.0, 1.0))
    assert abs(np.mean(np.exp(x["a"] * x["b"]), dtype=float) - 1.3179021514544038) < 1e-3


def test_latin_hypercube():
    found = parallel.latin_hypercube(10, key=KEY, a=(0.0, 10.0), b=stats.norm(0, 1))
    assert np.floor(np.sort(found["a"])).tolist() == list(range(10)) and np.isfinite(found["b"]).all()
    assert np.array_equal(found["a"], parallel.latin_hypercube(10, key=KEY, a=(0.0, 10.0), b=stats.norm(0, 1))["a"])


@pytest.mark.parametrize("make", [ft.partial(parallel.sobol, key=KEY), ft.partial(parallel.latin_hypercube, key=KEY)])
def test_bad_ranges(make):
    with pytest.raises(ValueError, match="requires at least one range"):
        make(4)
    with pytest.raises(ValueError, match="`a` must be a pair of finite numbers with low < high"):
        make(4, a=(1.0, 0.0))
    with pytest.raises(TypeError, match="`a` must be a pair of numbers"):
        make(4, a=3.0)
    with pytest.raises(ValueError, match="`n`, the number of members, must be positive, got 0"):
        make(0, a=(0.0, 1.0))
    with pytest.raises(ValueError, match="`a` is not finite at the edge"):
        parallel.sobol(4, a=stats.norm(0, 1))


def drawn(i):
    return {"x": jax.random.normal(jax.random.fold_in(KEY, i), (2,)), "i": i}


def test_generated_members():
    members = parallel.generate(drawn, 21)
    whole = members.params
    assert len(members) == 21 and whole["x"].shape == (21, 2)
    np.testing.assert_array_equal(members.take(np.array([7, 3]))["x"], whole["x"][[7, 3]])
    for block in (4, 21):
        result = quiet(lambda p: p, members, block=block)
        assert same_bits(result.values, whole)
    assert result.member_params(5)["i"] == 5
    np.testing.assert_array_equal(parallel.ensemble(lambda p: p["i"], members, block=5), np.arange(21))
    with pytest.raises(ValueError, match="positive and below"):
        parallel.generate(drawn, 0)


def oscillator(mu, *, batching="lockstep"):
    def field(t, y, args):
        return jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    start = jnp.array([2.0, 0.0], mu.dtype)
    return sciml.solve(field, start, t0=0.0, t1=5.0, rtol=1e-3, atol=1e-3, throw=False, batching=batching)


MUS = np.random.default_rng(0).permutation(np.logspace(-1, 2, 512)).astype(np.float32)


@pytest.mark.x64
def test_schedules():
    lockstep = quiet(oscillator, MUS, block=64)
    by_mu = quiet(oscillator, MUS, block=64, batching="sorted", cost=lambda mu: mu)
    by_steps = quiet(oscillator, MUS, block=64, batching="sorted", cost=lockstep.n_steps[:, 0])
    refill = quiet(oscillator, MUS, block=512, batching="refill")
    for other in (by_mu, by_steps, refill):
        np.testing.assert_allclose(other.values.ys, lockstep.values.ys, rtol=1e-2, atol=1e-2)
        assert other.efficiency > 1.4 * lockstep.efficiency
    assert f"lane efficiency {lockstep.efficiency:.2f} in blocks of 64" in lockstep.summary()
    assert same_bits(by_mu.params, MUS) and quiet(lambda x: x, MUS).efficiency is None


def test_a_sorted_sweep_has_the_same_bits_on_any_number_of_devices():
    run = ft.partial(quiet, lorenz, RHO, block=8, batching="sorted", cost=np.sin(RHO))
    assert same_bits(run(mesh=devices(1)).values, run(mesh=devices(3)).values)


@pytest.mark.parametrize("batching, given", [("lockstep", 1.0), ("sorted", 1.0), ("refill", 2.0)])
def test_a_schedule_without_a_default_is_given(batching, given):
    def told(x, *, batching):
        return x * {"lockstep": 1.0, "refill": 2.0}[batching]

    cost = {"cost": np.arange(3)} if batching == "sorted" else {}
    np.testing.assert_array_equal(quiet(told, np.ones(3), batching=batching, **cost).values, 3 * [given])


def test_bad_schedules():
    with pytest.raises(ValueError, match="`batching` must be one of 'lockstep', 'sorted', 'refill', got 'fast'"):
        quiet(oscillator, MUS, batching="fast")
    with pytest.raises(ValueError, match='`batching="sorted"` requires `cost`'):
        quiet(oscillator, MUS, batching="sorted")
    with pytest.raises(ValueError, match="Other values of `batching` do not accept `cost`"):
        quiet(oscillator, MUS, cost=MUS)
    with pytest.raises(ValueError, match="one number for each of 512 members"):
        quiet(oscillator, MUS, batching="sorted", cost=np.ones(3))
    with pytest.raises(ValueError, match="has no such parameter"):
        quiet(lambda mu: mu, MUS, batching="refill")


def test_the_block_is_chosen_from_what_it_needs():
    ran = []

    def large(p):
        return p * jnp.ones(4096, np.float32)

    def report(progress):
        ran.append(progress.done)

    wide = quiet(large, RHO)
    assert wide.block == 32
    small = parallel.sweep(large, RHO, memory=200_000, progress=report)
    assert 1 <= small.block <= 200_000 // (4096 * 4) and ran[0] == small.block
    assert parallel.sweep(large, RHO, memory=1, progress=False, output=jnp.sum).block == 1
    np.testing.assert_array_equal(small.values, wide.values)


@pytest.mark.x64
def test_xarray():
    pytest.importorskip("xarray")
    axes = {"a": np.linspace(0.0, 1.0, 4), "b": np.arange(3)}
    found = quiet(lambda p: {"u": p["a"] * jnp.ones(5), "b": p["b"]}, parallel.parameter_grid(**axes)).to_xarray()
    assert dict(found.sizes) == {"a": 4, "b": 3, "u_0": 5}
    np.testing.assert_allclose(found["u"].sel(a=1.0, b=2), np.ones(5))
    assert found["b_value"].dims == ("a", "b") and int(found["status"].sum()) == 0
    assert found["status"].attrs["flag_meanings"].split()[int(found["status"][0, 0])] == "successful"
    assert found["attempts"].dims == ("a", "b") and int(found["attempts"].min()) == 1
    plain = quiet(lambda p: jnp.stack([p, p]), RHO).to_xarray()
    assert plain["value"].dims == ("member", "value_0") and np.array_equal(plain["parameter"], RHO)
    own = quiet(lambda p: {"attempts": 7 * p}, RHO).to_xarray()
    np.testing.assert_array_equal(own["attempts"], 7 * RHO)  # a value of that name is not replaced
    named = quiet(lambda p: p["x"], {"x": RHO, "w": np.ones((101, 2))}).to_xarray()
    assert list(named.coords) == ["member", "x"]
    with pytest.raises(ValueError, match="did not store the values"):
        quiet(lambda p: p, RHO, reduce=parallel.Mean()).to_xarray()


@pytest.mark.x64
def test_xarray_with_further_axes():
    pytest.importorskip("xarray")
    ts = np.linspace(0.0, 2.0, 5)
    result = quiet(
        lambda p: {"y": jnp.outer(p["a"] * ts, np.arange(2.0)), "e": p["a"] * ts},
        parallel.parameter_grid(a=np.arange(1.0, 4.0)),
    )
    components = ["position", "speed"]
    found = result.to_xarray(axes={"y": {"time": ts, "component": components}, "e": {"time": ts}})
    assert found["y"].dims == ("a", "time", "component") and found["e"].dims == ("a", "time")
    assert float(found["y"].sel(a=3.0, time=1.5, component="speed")) == 4.5
    some = result.to_xarray(axes={"y": {"time": ts}})
    assert some["y"].dims == ("a", "time", "y_1") and some["e"].dims == ("a", "e_0")
    plain = quiet(lambda p: p * jnp.ones(5, p.dtype), RHO).to_xarray(axes={"value": {"time": ts}})
    assert plain["value"].dims == ("member", "time") and np.array_equal(plain["time"], ts)
    for axes, match in (
        ({"u": {"time": ts}}, r"`axes=\{'e': \{'time': ts\}\}`; the values are \['e', 'y'\], got 'u'"),
        ({"y": ts}, "must map names of values to their axes"),
        ({"y": {"time": ts[1:]}}, r"has shape \(5, 2\), but its axes \['time'\] have \[4\] coordinates"),
        ({"y": {"a": ts}}, "the axis 'a' of 'y' has the name of a parameter"),
        ({"y": {"time": ts}, "e": {"time": 2 * ts}}, "an axis with other coordinates"),
    ):
        with pytest.raises(ValueError, match=match):
            result.to_xarray(axes=axes)
