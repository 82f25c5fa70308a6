"""A solve of few small members is one call of XLA's runtime on CPUs, and gives what it gives as many."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.conftest import X64

FORWARD = sciml.adjoints.Forward()
WEIGHTS = 0.2 * np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)


def solve(y0, end=2.0, **options):
    def network(t, y, args):
        first, second, last = jnp.split(jnp.asarray(WEIGHTS, y.dtype), [2, 18])
        return last @ jnp.tanh(second @ jnp.tanh(first.T @ y)) - y

    tolerances = dict(rtol=1e-4, atol=1e-4, throw=False)
    return sciml.solve(network, y0, t0=0.0, t1=end, **tolerances, **options)


def calls(run, *inputs):
    """How many operations the program has outside of its loops."""
    text = jax.jit(run).lower(*inputs).compile().as_text()
    named = re.findall(r"= [^=]*? (copy|fusion|dot|call|while|conditional|convert)\(", text[text.index("\nENTRY") :])
    return len(named)


@pytest.fixture
def as_many(choose):
    return lambda: choose({"loops.one_call_at_most": 0})


def ends(y0):
    return jax.vmap(lambda y: solve(y).ys)(y0)


def saved(y0):
    return jax.vmap(lambda y, end: solve(y, end, saveat=jnp.asarray([0.0, 0.4, 1.0])))(y0, jnp.asarray([1.0, 2.0, 0.0]))


@pytest.mark.parametrize("run", [ends, saved])
def test_few_members_in_one_call(run, as_many):
    y0 = jnp.linspace(-1, 1, 6).reshape(3, 2)
    found = calls(run, y0), jax.jit(run)(y0)
    as_many()
    assert found[0] < calls(run, y0) / 2
    within = 1e-10 if X64 else 1e-5  # compiled at once, sums are rounded in another way
    for a, b in zip(jax.tree.leaves(found[1]), jax.tree.leaves(jax.jit(run)(y0)), strict=True):
        np.testing.assert_allclose(a, b, rtol=within, atol=within)


def test_a_start_that_is_no_number_is_a_status():
    sol = jax.jit(jax.vmap(solve))(jnp.asarray([[jnp.nan, 1.0], [1.0, 1.0]]))
    np.testing.assert_array_equal(sol.status, [int(sciml.Status.nonfinite), int(sciml.Status.successful)])
    np.testing.assert_array_equal(np.isnan(np.asarray(sol.ys)).all((1, 2)), [True, False])


def test_forward_mode_goes_through_it():
    y0 = jnp.asarray([[1.0, 0.5], [0.2, -1.0]])
    forward = jax.jit(lambda y0, v: jax.jvp(lambda y: jax.vmap(lambda y: solve(y, adjoint=FORWARD).ys)(y), (y0,), (v,)))
    ys, rates = forward(y0, jnp.ones_like(y0))
    _, back = jax.vjp(jax.jit(ends), y0)
    np.testing.assert_allclose(jnp.sum(rates), jnp.sum(back(jnp.ones_like(ys))[0]), rtol=1e-3)
