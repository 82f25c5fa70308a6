"""Reductions over members: what NumPy says of all of them at once, and the same bits from any number of devices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import parallel, verify

from ..common import RHO, devices, lorenz, same_bits


def quiet(*args, **options):
    """A sweep on one device, for which alone it compiles, unless others are named."""
    return parallel.sweep(*args, **{"progress": False, "mesh": devices(1)} | options)


def all_of():
    return {
        "mean": parallel.Mean(),
        "variance": parallel.Variance(ddof=1),
        "quantiles": parallel.Quantiles([0.1, 0.5, 0.9]),
        "histogram": parallel.Histogram(np.linspace(-20, 20, 9)),
        "top": parallel.TopK(5, by=lambda y: y[2]),
    }


def chaotic(rho):
    y = lorenz(rho)
    return jnp.where(rho > 30.5, jnp.nan, y)


@pytest.mark.x64
@pytest.mark.parametrize("count", [2, 3, 8])
def test_same_bits_on_any_number_of_devices(count):
    found = quiet(chaotic, RHO, reduce=all_of(), block=8, mesh=devices(count))
    expected = quiet(chaotic, RHO, reduce=all_of(), block=8, mesh=devices(1))
    assert same_bits(found.reduced, expected.reduced) and found.values is None
    np.testing.assert_array_equal(found.failed, np.flatnonzero(RHO > 30.5))


def test_what_numpy_says():
    x = np.random.default_rng(0).lognormal(sigma=2, size=(203, 2)).astype(np.float32) * np.float32([1, -1])
    x[[5, 77]] = np.nan
    found = quiet(lambda p: {"a": p, "n": jnp.sum(p > 1)}, x, reduce=all_of() | {"top": parallel.Mean()}, block=16)
    good = x[~np.isnan(x[:, 0])].astype(np.float64)
    one = np.sum(good > 1, axis=1)
    assert found.failed.tolist() == [5, 77]
    assert found.reduced["mean"]["a"].dtype == np.float64
    np.testing.assert_allclose(found.reduced["mean"]["a"], good.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.reduced["mean"]["n"], one.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.reduced["variance"]["a"], good.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(
        found.reduced["quantiles"]["a"], np.quantile(good, [0.1, 0.5, 0.9], axis=0, method="lower"), rtol=0.011
    )
    counts = found.reduced["histogram"]["a"]
    for i in range(2):
        np.testing.assert_array_equal(counts.inside[i], np.histogram(good[:, i], np.linspace(-20, 20, 9))[0])
    assert (counts.inside.sum(-1) + counts.below + counts.above == 201).all() and counts.below[1] > 0


KINDS = all_of() | {
    "top-1": parallel.TopK(1, by=lambda y: -y[0]),
    "constant-bins": parallel.Histogram([0.0, 1.0]),
    "population": parallel.Variance(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reduction_keeps_the_contract(kind):
    values = np.random.default_rng(3).normal(size=(21, 3)).astype(np.float32)
    verify.check_reduction(KINDS[kind], values)


class Bad(parallel.AbstractReduction):
    """Breaks one rule."""

    rule: str = eqx.field(static=True)

    def of_block(self, values, good, ids):
        if self.rule == "failed members":
            return jnp.sum(jnp.where(good, values, 0.0)) + 0.0 * jnp.max(values)  # NaN stays NaN
        return jnp.sum(jnp.where(good, values, 0.0))

    def merge(self, so_far, block):
        if self.rule == "blocks of":
            return block
        return block if so_far is None else so_far + block

    def result(self, merged):
        return merged


@pytest.mark.parametrize("rule", ["failed members", "blocks of"])
def test_a_reduction_that_breaks_the_contract(rule):
    with pytest.raises(AssertionError, match=rule):
        verify.check_reduction(Bad(rule), np.arange(9, dtype=np.float32))


def test_the_mean_of_large_numbers():
    x = (1e6 + np.arange(1000) % 7).astype(np.float32)
    found = quiet(lambda p: p, x, reduce=(parallel.Mean(), parallel.Variance()), block=10).reduced
    np.testing.assert_allclose(found[0], x.astype(np.float64).mean(), rtol=1e-7)
    np.testing.assert_allclose(found[1], x.astype(np.float64).var(), rtol=1e-2)  # a naive sum of squares has no digit


def test_a_constant_and_the_edges():
    x = np.array([2.5, 2.5, 2.5], np.float32)
    quantiles, counts = quiet(lambda p: p, x, reduce=[parallel.Quantiles(0.5), parallel.Histogram([1, 2.5])]).reduced
    assert quantiles.tolist() == [2.5] and counts.inside.tolist() == [3] and counts.above == 0
    x = np.array([-3.0, -1.0, 0.0, 1.0, 8.0], np.float32)
    found = quiet(lambda p: p, x, reduce=parallel.Quantiles([0, 0.5, 1])).reduced
    np.testing.assert_allclose(found, [-3.0, 0.0, 8.0], rtol=0.01, atol=1e-30)


@pytest.mark.x64
def test_accuracy_of_quantiles_in_float64():
    x = np.random.default_rng(1).normal(size=500)
    found = quiet(lambda p: p, x, reduce=parallel.Quantiles([0.25, 0.5, 0.75], accuracy=1e-5), block=64).reduced
    np.testing.assert_allclose(found, np.quantile(x, [0.25, 0.5, 0.75], method="lower"), rtol=2e-5)


def test_top_members():
    x = np.array([3.0, 1.0, np.nan, 7.0, 3.0, -2.0, 0.5], np.float32)
    found = quiet(lambda p: {"x": p, "y": 2 * p}, x, reduce=parallel.TopK(3, by=lambda v: v["x"]), block=2).reduced
    assert found.members.tolist() == [3, 0, 4] and found.values["y"].tolist() == [14.0, 6.0, 6.0]
    few = quiet(lambda p: p, x, reduce=parallel.TopK(50), block=3).reduced
    assert few.members.tolist() == [3, 0, 4, 1, 6, 5]


def test_no_member_succeeds():
    x = np.full(4, np.nan, np.float32)
    found = quiet(lambda p: p, x, reduce=all_of() | {"top": parallel.TopK(2)}, block=2).reduced
    assert np.isnan(found["mean"]) and np.isnan(found["variance"]) and np.isnan(found["quantiles"]).all()
    assert found["histogram"].inside.sum() == 0 and found["top"].members.size == 0


class Largest(parallel.AbstractReduction):
    """What a user may write."""

    def of_block(self, values, good, ids):
        return jnp.max(jnp.where(good, values, -jnp.inf))

    def merge(self, so_far, block):
        return block if so_far is None else np.maximum(so_far, block)

    def result(self, merged):
        return float(merged)


def test_a_reduction_of_ones_own():
    assert quiet(lambda p: p, RHO, reduce=Largest(), block=7).reduced == RHO.max()


def test_bad_reductions():
    with pytest.raises(TypeError, match="`reduce` must contain reductions"):
        quiet(lambda p: p, RHO, reduce=jnp.mean)
    with pytest.raises(ValueError, match="`edges` must be two or more ascending"):
        parallel.Histogram([1.0, 1.0])
    with pytest.raises(TypeError, match="`edges` must be the edges of the bins.*got 10"):
        parallel.Histogram(10)
    with pytest.raises(ValueError, match="`q` must be probabilities"):
        parallel.Quantiles([1.5])
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        parallel.TopK(0)
    with pytest.raises(ValueError, match="score of a member must be one number"):
        quiet(lambda p: jnp.stack([p, p]), RHO, reduce=parallel.TopK(2))
    with pytest.raises(TypeError, match="complex numbers have no order"):
        quiet(lambda p: jax.lax.complex(p, p), RHO, reduce=parallel.Quantiles(0.5))
