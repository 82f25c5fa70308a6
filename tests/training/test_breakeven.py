"""When a surrogate pays."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import training
from sciml.training._breakeven import seconds_at


def test_seconds_at_equal_error():
    """A method of order two: ten times the steps for a hundredth of the error."""
    errors, seconds = (1e-1, 1e-3, 1e-5), (0.01, 0.1, 1.0)
    np.testing.assert_allclose(seconds_at(1e-2, errors, seconds), 0.1**1.5, rtol=1e-9)
    np.testing.assert_allclose(seconds_at(1e-4, errors, seconds), 10**-0.5, rtol=1e-9)
    assert seconds_at(1e-3, errors, seconds) == 0.1
    assert seconds_at(0.5, errors, seconds) == 0.01  # the coarsest will do
    assert seconds_at(1e-2, errors[::-1], seconds[::-1]) == seconds_at(1e-2, errors, seconds)
    with pytest.raises(ValueError, match="no solver is as accurate"):
        seconds_at(1e-6, errors, seconds)


def iterated(n):
    """The square root by n halvings of an interval."""

    def root(x):
        def halve(_, ends):
            low, high = ends
            middle = (low + high) / 2
            return jnp.where(middle**2 < x, middle, low), jnp.where(middle**2 < x, high, middle)

        return jnp.mean(jnp.stack(jax.lax.fori_loop(0, n, halve, (jnp.zeros_like(x), jnp.full_like(x, 2.0)))))

    return root


def off(found, x):
    return jnp.abs(found - jnp.sqrt(x))


def test_a_surrogate_that_pays_and_one_that_never_does():
    problems = jnp.linspace(0.1, 3.0, 4096)
    solvers = [iterated(n) for n in (4, 8, 3000)]
    found = training.breakeven(solvers, lambda x: jnp.sqrt(x) + 1e-6, off, problems, training_seconds=10.0)
    assert found.errors[0] > found.errors[1] > 1e-4 > found.error > found.errors[2]
    assert 0 < found.solves < math.inf and "pays after" in str(found)
    np.testing.assert_allclose(found.solves, 10.0 / (found.solver_seconds - found.surrogate_seconds))
    slow = training.breakeven(solvers, lambda x: iterated(3000)(x) + 0.3, off, problems, training_seconds=10.0)
    assert slow.solves == math.inf and slow.solver_seconds == min(slow.seconds) and "never pays" in str(slow)


@pytest.mark.parametrize(
    "match, change",
    [
        ("at least one function", dict(solvers=[])),
        ("a row for each problem", dict(problems=jnp.array(1.0))),
        ("must be finite", dict(surrogate=lambda x: x / 0)),
        ("nonnegative", dict(training_seconds=-1.0)),
    ],
)
def test_bad_input(match, change):
    given = dict(solvers=[iterated(30)], surrogate=jnp.sqrt, error=off, problems=jnp.ones(3), training_seconds=1.0)
    with pytest.raises(ValueError, match=match):
        training.breakeven(**given | change)
