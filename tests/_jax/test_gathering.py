"""Which entries of a vector of truth values hold, some at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.solvers.integrate._happenings import Holding


@pytest.mark.parametrize("count, width, share", [(101, 8, 0.5), (37, 40, 0.3), (64, 8, 0.0), (64, 8, 1.0)])
def test_entries_that_hold(count, width, share):
    holds = np.random.default_rng(0).random(count) < share
    expected = np.flatnonzero(holds)
    holding = jax.jit(Holding.of)(holds)
    assert holding.count == len(expected)
    numbers = jax.jit(Holding.numbers, static_argnums=2)
    for before in range(0, len(expected) + 1, width):
        here = expected[before : before + width]
        found, none = np.split(np.asarray(numbers(holding, jnp.asarray(before), width)), [len(here)])
        np.testing.assert_array_equal(found, here)
        assert np.all(none >= count) and len(set(none)) == len(none)
