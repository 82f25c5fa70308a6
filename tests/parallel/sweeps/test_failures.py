"""Members that fail: what is said of them, what retries recover, and that no other member notices."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import SolveError, Status, parallel

from ..common import devices, same_bits

pytestmark = pytest.mark.x64  # in float32 all the same; once is enough


def quiet(*args, **options):
    """A sweep on one device, for which alone it compiles, unless others are named."""
    return parallel.sweep(*args, **{"progress": False, "mesh": devices(1)} | options)


MASS = np.diag([1.0, 0.0])


def field(t, y, p):
    """An equation that may blow up or be driven fast, and one that may cease to determine its variable."""
    first = p["blow"] * y[0] ** 2 - p["rate"] * y[0] + 10 * jnp.cos(p["omega"] * t)
    return jnp.stack([first, jnp.where(t < p["cut"], y[1] - y[0], jnp.zeros_like(t))])


def implicit(p, *, max_steps=100):
    method = sciml.solvers.Rosenbrock23(mass=MASS)
    options = dict(t0=0.0, t1=1.0, rtol=1e-2, atol=1e-2, max_steps=max_steps, throw=False)
    return sciml.solve(field, jnp.ones(2, jnp.float32), args=p, solver=method, **options)


def in_one_equation(p):
    """The same without the algebraic equation, whose solution is y[1] = y[0]."""

    def first(t, y, p):
        return jnp.stack([field(t, y, p)[0]] * 2)

    options = dict(t0=0.0, t1=1.0, rtol=1e-2, atol=1e-2, max_steps=500, throw=False)
    return sciml.solve(first, jnp.ones(2, jnp.float32), args=p, **options)


def last(sol):
    return sol.ys[-1]


def members(n):
    rng = np.random.default_rng(0)
    found = {"blow": rng.uniform(0, 0.05, n), "rate": rng.uniform(0.5, 5, n), "omega": rng.uniform(0, 5, n)}
    return {**{name: x.astype(np.float32) for name, x in found.items()}, "cut": np.full(n, 2, np.float32)}


def planted(n, count):
    """Members of which some cannot succeed; the numbers of these, by kind."""
    found = members(n)
    bad = np.random.default_rng(1).choice(n, count, replace=False)
    kinds = dict(zip(("nan", "blow", "steps", "singular"), np.array_split(bad, 4), strict=True))
    found["rate"][kinds["nan"]] = np.nan
    found["blow"][kinds["blow"]] = 20.0
    found["omega"][kinds["steps"]] = 500.0
    found["cut"][kinds["singular"]] = 0.5
    return found, kinds


def check(n, count, **options):
    bad, kinds = planted(n, count)
    good = quiet(implicit, members(n), output=last, **options)
    assert good.failed.size == 0
    found = quiet(implicit, bad, output=last, **options)
    rest = np.ones(n, bool)
    rest[np.concatenate(list(kinds.values()))] = False
    assert rest.sum() == n - count and same_bits(found.values[rest], good.values[rest])
    np.testing.assert_array_equal(found.failed, np.flatnonzero(~rest))
    codes = {kind: set(found.status[ids].tolist()) for kind, ids in kinds.items()}
    assert codes["nan"] <= {Status.nonfinite, Status.inconsistent_start} and len(codes["nan"]) == 1
    assert codes["steps"] == {Status.max_steps_reached}
    assert codes["singular"] == {Status.singular} and codes["blow"] <= {Status.nonfinite, Status.step_too_small}
    text = str(found)
    assert f"{n} members" in text and f"{n - count} successful, {count} failed" in text
    assert f"max_steps_reached: {kinds['steps'].size} " in text and "params['omega']: 500 to 500" in text
    assert f"singular: {kinds['singular'].size} " in text and f"{kinds['nan'].size} NaN" in text

    retry = parallel.Retry([{"max_steps": 5000}, in_one_equation])
    again = quiet(implicit, bad, output=last, on_fail=retry, **options)
    np.testing.assert_array_equal(again.failed, np.sort(np.concatenate([kinds["nan"], kinds["blow"]])))
    assert same_bits(again.values[rest], good.values[rest])
    assert (again.attempts[rest] == 1).all() and (again.attempts[kinds["steps"]] == 2).all()
    assert (again.attempts[kinds["singular"]] == 3).all() and np.isfinite(again.values[kinds["steps"]]).all()
    expected = good.values[kinds["singular"]]
    np.testing.assert_allclose(again.values[kinds["singular"]], expected, rtol=0.05, atol=0.05)
    steps, singular = kinds["steps"].size, kinds["singular"].size
    assert f"{count} retried, {steps + singular} recovered: {steps} by retry 1, {singular} by retry 2" in str(again)
    return bad, retry, again


def test_four_kinds_of_failures():
    check(200, 12, block=32, mesh=devices(1))


def test_ten_thousand_members_with_37_failures(tmp_path):
    bad, retry, first = check(10_000, 37)
    # and again in a store, resumed from a part of its blocks, of the first pass and of the retries
    run = ft.partial(quiet, implicit, bad, output=last, store=tmp_path, on_fail=retry)
    assert same_bits(run(mesh=devices(3)).values, first.values)
    for path in sorted(tmp_path.glob("*.npz"))[::2]:
        path.unlink()
    resumed = run(mesh=devices(8))
    assert same_bits(resumed.values, first.values) and same_bits(resumed.attempts, first.attempts)


def limited(x, *, limit=1.0, power=1):
    return jnp.where(x > limit, jnp.nan, x**power)


X = np.arange(8, dtype=np.float32)


def test_retries_are_stored(tmp_path, monkeypatch):
    run = ft.partial(quiet, limited, X, block=3, store=tmp_path)
    once = run(on_fail=parallel.Retry([{"limit": 4.0}, {"limit": 6.0}]))
    assert once.attempts.tolist() == [1, 1, 2, 2, 2, 3, 3, 3] and once.failed.tolist() == [7]
    assert once.values[:7].tolist() == X[:7].tolist()
    # others take the place of the first ones, and the blocks of all members remain
    other = run(on_fail=parallel.Retry([{"limit": 4.0, "power": 2}]))
    assert other.values[:5].tolist() == [0, 1, 4, 9, 16] and other.failed.tolist() == [5, 6, 7]
    monkeypatch.setattr("sciml.parallel.sweeps._executable.Executable.run", None)
    again = run(on_fail=parallel.Retry([{"limit": 4.0, "power": 2}]))
    assert same_bits(again.values, other.values) and same_bits(again.attempts, other.attempts)


def test_reductions_count_what_was_recovered():
    reduce = {"mean": parallel.Mean(), "top": parallel.TopK(2)}
    found = quiet(limited, X, block=3, reduce=reduce, on_fail=parallel.Retry([{"limit": 5.0}]))
    assert found.reduced["mean"] == 2.5 and found.reduced["top"].members.tolist() == [5, 4]
    assert found.failed.tolist() == [6, 7]


def noisy(x, key, *, limit=0.0):
    return jnp.where(x > limit, jnp.nan, x + jax.random.normal(key, dtype=x.dtype))


def test_retries_keep_the_members_keys():
    key = jax.random.key(5)
    found = quiet(noisy, X, key=key, on_fail=parallel.Retry([{"limit": 9.0}]), block=3)
    plain = quiet(ft.partial(noisy, limit=9.0), X, key=key, block=3)
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-6)


def test_one_retry_may_stand_alone():
    assert parallel.Retry({"max_steps": 5}) == parallel.Retry([{"max_steps": 5}])
    assert parallel.Retry(jnp.sin).attempts == (jnp.sin,)


def test_bad_retries():
    with pytest.raises(ValueError, match="at least one attempt"):
        parallel.Retry([])
    with pytest.raises(TypeError, match="a function, or a mapping"):
        parallel.Retry(["again"])
    with pytest.raises(ValueError, match="passes `rtol` to `fn`, which has no such parameter"):
        quiet(limited, X, on_fail=parallel.Retry([{"rtol": 1e-8}]))
    with pytest.raises(ValueError, match="the same shapes and dtypes as `fn`"):
        quiet(limited, X, on_fail=parallel.Retry([lambda x: (x, x)]))


def test_throw_raises_at_the_end(tmp_path):
    x = np.array([1.0, -1.0, 2.0, -2.0], np.float32)
    with pytest.raises(SolveError, match=r"(?s)`sweep`: 2 of 4 members failed.*`nonfinite` \(members 1, 3\)") as caught:
        quiet(jnp.log, x, block=1, store=tmp_path, throw=True)
    assert caught.value.status.tolist() == [0, Status.nonfinite, 0, Status.nonfinite]
    result = quiet(jnp.log, x, block=1, store=tmp_path)  # all ran, and by default none is raised for
    assert result.failed.tolist() == [1, 3]
    with pytest.raises(SolveError):
        result.raise_if_failed()
    rescued = parallel.Retry([lambda x: jnp.log(jnp.abs(x))])
    assert quiet(jnp.log, x, on_fail=rescued, throw=True).failed.size == 0


def test_an_ensemble_throws_where_it_is_asked_to():
    def run(rate, *, max_steps=20):
        return sciml.solve(lambda t, y, args: -rate * y, jnp.ones(1), t0=0.0, t1=1.0, max_steps=max_steps, throw=False)

    rates = jnp.array([1.0, 300.0])
    with pytest.raises(SolveError, match=r"`ensemble`: 1 of 2 members failed") as caught:
        parallel.ensemble(run, rates, throw=True)
    assert caught.value.status.tolist() == [0, Status.max_steps_reached]
    assert parallel.ensemble(run, rates).status.tolist() == [0, Status.max_steps_reached]
    assert parallel.ensemble(run, rates[:1], throw=True).status.tolist() == [0]
    with pytest.raises(SolveError, match="`nonfinite`"):
        parallel.ensemble(jnp.log, jnp.array([1.0, -1.0]), throw=True)
    inside = jax.jit(lambda x: parallel.ensemble(jnp.log, x, throw=True))(jnp.array([1.0, -1.0]))
    assert np.isnan(inside[1])  # nobody can raise there


def test_a_wrong_key_says_what_a_member_is():
    with pytest.raises(KeyError, match="rate") as caught:
        parallel.sweep(lambda p: p["rate"], {"growth": jnp.ones(3)}, progress=False)
    assert any("one member of `params`, {'growth': float" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError) as caught:
        parallel.sweep(lambda p: p["rate"], [1.0, 2.0], progress=False)
    assert any("one member of `params`, float" in note for note in caught.value.__notes__)
