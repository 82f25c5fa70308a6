"""Steps of many members, two of which an iteration tries: every member has the numbers that it has among few."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

MEMBERS, FEW = 1200, 6


def field(t, y, rate):
    del t
    return jnp.stack([y[1], -rate * y[0]])


def solved(rate, end, **saves):
    sol = sciml.solve(field, jnp.ones(2), t0=0.0, t1=end, args=rate, rtol=1e-5, atol=1e-5, throw=False, **saves)
    return sol.ys, sol.status, sol.stats.accepted, sol.stats.rejected


@pytest.mark.parametrize("saves", [{}, {"saveat": jnp.linspace(0.0, 0.4, 4)}, {"max_steps": 3}])
def test_members_have_the_numbers_that_they_have_among_few(saves):
    rates, ends = jnp.linspace(1.0, 90.0, MEMBERS), jnp.linspace(0.5, 1.0, MEMBERS).at[0].set(0.0)
    ends = ends.at[0].set(0.4 if "saveat" in saves else 0.0)

    def both(rates, ends):
        def total(rates):
            found = jax.vmap(lambda rate, end: solved(rate, end, **saves))(rates, ends)
            return jnp.sum(jnp.where(jnp.isfinite(found[0]), found[0], 0.0) ** 2), found

        return jax.grad(total, has_aux=True)(rates)

    which = np.linspace(0, MEMBERS - 1, FEW).astype(int)
    slopes, many = jax.jit(both)(rates, ends)
    slopes_few, few = jax.jit(both)(rates[which], ends[which])
    for a, b in zip(many, few):
        np.testing.assert_allclose(np.asarray(a)[which], b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes[which], slopes_few, rtol=2e-4, atol=1e-5)
    assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("update", [None, lambda t, y, args: 0.9 * y])
def test_members_with_events_have_the_numbers_that_they_have_among_few(update):
    event = sciml.Event(lambda t, y, args: y[0] - 0.5, update)

    def one(rate):
        sol = sciml.solve(
            field, jnp.ones(2), t0=0.0, t1=0.5, args=rate, rtol=1e-4, atol=1e-4, events=event, max_events=2, throw=False
        )
        return sol.ys, sol.events.times, sol.events.count, sol.status, sol.stats.accepted, sol.stats.rejected

    rates = jnp.linspace(1.0, 90.0, MEMBERS)
    which = np.linspace(0, MEMBERS - 1, FEW).astype(int)
    many, few = (jax.jit(jax.vmap(one))(x) for x in (rates, rates[which]))
    for a, b in zip(many, few):
        np.testing.assert_allclose(np.asarray(a)[which], b, rtol=1e-4, atol=1e-5)
    assert 0 < np.sum(few[2] > 0) < FEW + 1 and np.all(np.isfinite(few[0]))
