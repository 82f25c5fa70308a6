"""The first entries that hold, beside NumPy's."""

import jax
import numpy as np
import pytest

from sciml._jax._gathering import first_that_hold


@pytest.mark.parametrize("count, width, share", [(101, 8, 0.5), (37, 40, 0.3), (64, 8, 0.0), (64, 8, 1.0)])
def test_first_that_hold(count, width, share):
    holds = np.random.default_rng(0).random(count) < share
    numbers, beyond = jax.jit(first_that_hold, static_argnums=1)(holds, width)
    expected = np.flatnonzero(holds)
    found, none = np.split(np.asarray(numbers), [min(len(expected), width)])
    np.testing.assert_array_equal(found, expected[:width])
    assert np.all(none >= count) and len(set(none)) == len(none)
    np.testing.assert_array_equal(np.flatnonzero(beyond), expected[width:])
