"""The search of a fit: steps within a radius, and a least value between bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.petab._expansion import Expansion
from sciml.petab._fit import least, step_within

pytestmark = pytest.mark.x64


def test_steps_are_the_least_of_a_parabola_within_a_radius():
    """The conditions of a least value, for curvatures of any rank and size, and radii that bind and that do not."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((12, 4, 4)) * 10.0 ** rng.uniform(-6, 6, (12, 1, 4))
    rows[:4, 2:] = 0  # of rank two
    curvatures = np.einsum("kij,kil->kjl", rows, rows)
    slopes = np.einsum("kij,ki->kj", rows, rng.standard_normal((12, 4)))
    radii = np.resize([1e-3, 1.0, 1e9], 12)
    steps = np.asarray(jax.vmap(step_within)(*map(jnp.asarray, (slopes, curvatures, radii))))
    sizes = np.linalg.norm(steps, axis=1)
    assert np.all(sizes <= radii * (1 + 1e-6)) and {*(sizes > 0.99 * radii)} == {True, False}
    for g, h, s, radius, size in zip(slopes, curvatures, steps, radii, sizes):
        pull = -(g + h @ s)
        force = pull @ s / size**2  # the pull is along the step, outwards, and none within
        scale = np.linalg.norm(g)
        assert force > -1e-7 * scale / size
        if size < 0.99 * radius:
            force = 0.0
        np.testing.assert_allclose(pull, force * s, atol=1e-5 * scale)


def test_a_least_value_along_a_bent_valley_and_at_a_bound():
    """Rosenbrock's valley: to its bottom where that is between the bounds, and to the bound where it is not."""

    def function(x):
        r, rows = (
            jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]]),
            jnp.stack([jnp.stack([-20 * x[0], 10.0]), jnp.array([-1.0, 0])]),
        )
        value = jnp.where(x[0] < -1.9, jnp.nan, 0.5 * r @ r)  # without a value in a corner
        return Expansion(value, r @ rows, rows.T @ rows)

    lower, starts = jnp.array([-2.0, -1.0]), jnp.array([[-1.5, 2.5], [0.0, 0.0], [-1.2, 1.0], [-1.95, 0.0]])
    uppers = jnp.array([[2.0, 3.0], [0.5, 3.0]])

    def search(x, upper):
        return least(function, x, lower, upper, 100, 1e-10)

    found = jax.vmap(lambda upper: jax.vmap(lambda x: search(jnp.minimum(x, upper), upper))(starts))(uppers)
    np.testing.assert_allclose(found.x[0, :3], 1.0, atol=1e-5)
    np.testing.assert_allclose(found.x[1, :3], [[0.5, 0.25]] * 3, atol=1e-5)
    assert found.converged[:, :3].all() and found.n_steps[:, :3].max() < 60
    # a start without a value stays where it is
    assert not found.converged[:, 3].any() and np.all(found.n_steps[:, 3] == 0)
