"""Gradients of a solve in one branch of a `cond` whose predicate differs between members."""

import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints

RATES = np.array([1.0, 2.0, 0.5])
SOLVED = np.array([True, False, True])
EXPECTED = np.where(SOLVED, -2 * np.exp(-RATES), 1.0)
FINE = dict(rtol=1e-5, atol=1e-6, solver=diffrax.Bosh3())
HOW = {
    "fixed": dict(dt=0.02, solver=diffrax.Heun()),
    "adaptive": FINE,
    "saved": dict(saveat=[1.0], **FINE),
    "stiff": FINE | dict(solver=sciml.solvers.Rodas5P()),
    "segments": dict(adjoint=adjoints.Checkpointed(segments=4), **FINE),
    "Reversible": FINE | dict(solver=diffrax.Heun(), adjoint=adjoints.Reversible()),
    "Gauss": dict(adjoint=adjoints.Gauss(), **FINE),
    "Backsolve": dict(adjoint=adjoints.Backsolve(), **FINE),
    "Forward": dict(adjoint=adjoints.Forward(), **FINE),
}


def solved(rate, **how):
    return jnp.sum(sciml.solve(lambda t, y, k: -k * y, jnp.ones(2), t0=0.0, t1=1.0, args=rate, throw=False, **how).ys)


@pytest.mark.parametrize("how", HOW)
def test_vmap_of_grad(how):
    def branch(predicate, rate):
        return jax.lax.cond(predicate, lambda k: solved(k, **HOW[how]), lambda k: k, rate)

    found = jax.jit(jax.vmap(jax.grad(branch, 1)))
    # Whatever the first member does: what it recorded once stood for all, and gradients were zero without a word.
    for taken in (SOLVED, ~SOLVED, np.zeros(3, bool), np.ones(3, bool)):
        expected = np.where(taken, -2 * np.exp(-RATES), 1.0)
        np.testing.assert_allclose(found(taken, RATES), expected, rtol=1e-3)


@pytest.mark.parametrize("how", ["adaptive", "saved", "fixed"])
def test_grad_by_what_members_share(how):
    """And by the initial state, which the branch closes over."""

    def total(shared, taken, rates):
        def member(predicate, rate):
            field = lambda t, y, k: -k * shared * y  # noqa: E731
            options = dict(t0=0.0, t1=1.0, args=rate, throw=False, **HOW[how])
            return jax.lax.cond(predicate, lambda: jnp.sum(sciml.solve(field, jnp.ones(2), **options).ys), lambda: 0.0)

        return jnp.sum(jax.vmap(member)(taken, rates))

    found = jax.jit(jax.grad(total))
    for taken in (SOLVED, ~SOLVED):
        expected = np.sum(np.where(taken, -2 * RATES * np.exp(-RATES), 0.0))
        np.testing.assert_allclose(found(1.0, taken, RATES), expected, rtol=1e-3)


def test_so_many_members_that_each_would_keep_less():
    """Alone or among few a member keeps 1024 steps, and JAX selects between records of one shape."""

    def branch(predicate, rate):
        return jax.lax.cond(predicate, solved, lambda k: k, rate)

    rates = np.linspace(0.5, 2, 3000)
    taken = np.arange(3000) % 2 == 0
    expected = np.where(taken, -2 * np.exp(-rates), 1.0)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(branch, 1)))(taken, rates), expected, rtol=1e-3)


def test_other_nestings():
    def branch(predicate, rate):
        return jax.lax.cond(predicate, lambda k: solved(k, **FINE), lambda k: k, rate)

    def chosen(index, rate):
        return jax.lax.switch(
            index, [lambda k: k, lambda k: solved(k, **FINE), lambda k: solved(k, **HOW["fixed"])], rate
        )

    outside = jax.jit(jax.grad(lambda rates: jnp.sum(jax.vmap(branch)(SOLVED, rates))))(RATES)
    np.testing.assert_allclose(outside, EXPECTED, rtol=1e-3)
    switched = jax.jit(jax.vmap(jax.grad(chosen, 1)))
    # JAX keeps what two branches recorded in one array where shapes agree: members find the numbers of others there
    for index in itertools.product(range(3), repeat=3):
        expected = np.where(np.array(index) == 0, 1.0, -2 * np.exp(-RATES))
        np.testing.assert_allclose(switched(np.array(index), RATES), expected, rtol=2e-3)


def test_a_switch_between_solves_of_one_structure():
    """Short and long solves, with saved times and without, whose records have the same shapes."""

    def end(speed, **options):
        return lambda k: solved(k * speed, **options)

    def chosen(index, rate):
        branches = [end(1.0, **FINE), end(30.0, **FINE), end(1.0, saveat=[0.3, 0.6, 1.0], **FINE), end(30.0, **FINE)]
        return jax.lax.switch(index, branches, rate)

    found = jax.jit(jax.vmap(jax.value_and_grad(chosen, 1)))
    one = jax.jit(jax.grad(chosen, 1))
    alone = np.array([[one(i, k) for k in RATES] for i in range(4)])
    for index in itertools.product(range(4), repeat=3):
        _, gradient = found(np.array(index), RATES)
        np.testing.assert_allclose(gradient, alone[np.array(index), np.arange(3)], rtol=1e-4, atol=1e-6)
