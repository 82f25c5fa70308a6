"""The largest of many numbers, NaN where one is, on every platform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jax._largest import largest


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_nan_is_passed_on(size):
    x = jnp.linspace(-1.0, 3.0, size)
    assert jax.jit(largest)(x) == jnp.max(x)
    for place in (0, size // 2, size - 1):
        assert np.isnan(jax.jit(largest)(x.at[place].set(jnp.nan)))
    assert largest(jnp.zeros(0), initial=0.0) == 0
    np.testing.assert_array_equal(jax.grad(largest)(x), jnp.arange(size) == size - 1)


def test_a_drift_that_is_not_a_number_is_none():
    energies = jnp.ones(5000).at[4000].set(jnp.nan)
    assert np.isnan(sciml.verify.conserved(lambda y: y, energies))
