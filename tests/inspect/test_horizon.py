"""How small changes grow: exponents of Lyapunov against published ones, and until when a gradient says anything."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect

LORENZ = sciml.models.Lorenz63()


def test_a_linear_system_has_the_real_parts_of_its_eigenvalues():
    matrix = jnp.array([[0.1, 2.0, 0.3], [-2.0, 0.1, 0.0], [0.0, 0.0, -1.5]])
    found = inspect.lyapunov_exponents(lambda t, y, args: args @ y, jnp.ones(3), t1=60.0, args=matrix, rtol=1e-5)
    np.testing.assert_allclose(found.exponents, [0.1, 0.1, -1.5], atol=0.02)
    assert found.errors.shape == (3,) and np.all(found.errors >= 0) and found.status == 0
    np.testing.assert_allclose(found.dimension, 2 + 0.2 / 1.5, rtol=0.1)


@pytest.mark.x64
def test_the_exponents_of_lorenz_within_a_percent():
    starts = jnp.array([[1.0, 1.0, 20.0]]) + jax.random.normal(jax.random.key(0), (48, 3))

    def exponents(start):
        options = dict(t1=60.0, transient=10.0, every=0.5, dt=0.01, solver=diffrax.Bosh3(), throw=False)
        return inspect.lyapunov_exponents(LORENZ, start, **options)

    found = jax.jit(jax.vmap(exponents))(starts)
    mean = np.mean(found.exponents, 0)
    np.testing.assert_allclose(mean[::2], [0.9056, -14.572], rtol=0.01)
    assert abs(mean[1]) < 0.02
    np.testing.assert_allclose(np.mean(found.dimension), 2.062, rtol=0.01)
    spread = np.std(found.exponents[:, 0], ddof=1)  # rates of one tenth and the next make up for each other
    assert spread < np.sqrt(np.mean(found.errors[:, 0] ** 2)) < 10 * spread


def test_the_horizon_of_lorenz_is_where_an_error_has_grown_as_large_as_the_solution():
    start = jnp.array([-3.0, -3.0, 20.0])
    found = inspect.horizon(LORENZ, start, t1=30.0, error=1e-4, dt=0.01)
    assert 0.6 < found.rate < 1.3 and abs(found.rate * found.doubling_time - np.log(2)) < 1e-3
    finer = inspect.horizon(LORENZ, start, t1=30.0, error=1e-6, dt=0.01)
    assert 4 < found.time < finer.time < 25
    # a solution from beside it has parted by then, and not long before
    ts = np.array([max(found.time - 6, 0.0), found.time + 4])
    both = [sciml.solve(LORENZ, start * s, t0=0.0, t1=30.0, dt=0.01, saveat=ts).ys for s in (1.0, 1.0001)]
    apart = np.linalg.norm(both[0] - both[1], axis=1)
    assert apart[0] < 2.0 and apart[1] > 1.0


def test_a_solution_that_does_not_part_has_none():
    decay = lambda t, y, args: jax.tree.map(jnp.negative, y)  # noqa: E731
    found = inspect.horizon(decay, {"a": jnp.ones(2)}, t1=20.0, n=16)
    assert np.isinf(found.time) and np.isinf(found.doubling_time)
    np.testing.assert_allclose(found.rate, -1.0, rtol=0.05)
    assert found.growth.shape == found.ts.shape == (16,)


def test_what_is_out_of_range():
    with pytest.raises(ValueError, match="at least ten are required"):
        inspect.lyapunov_exponents(LORENZ, jnp.ones(3), t1=5.0)
    with pytest.raises(ValueError, match="more than the 3 elements"):
        inspect.lyapunov_exponents(LORENZ, jnp.ones(3), t1=50.0, n=4)
    with pytest.raises(ValueError, match="`every`"):
        inspect.lyapunov_exponents(LORENZ, jnp.ones(3), t1=50.0, every=-1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        inspect.horizon(LORENZ, jnp.ones(3), t1=5.0, error=2.0)
    with pytest.raises(TypeError, match="real"):
        inspect.horizon(lambda t, y, args: 1j * y, jnp.ones(1, complex), t1=5.0)
    with pytest.raises(sciml.SolveError):
        inspect.horizon(lambda t, y, args: y**2, jnp.ones(1), t1=5.0)


def test_error_control_sees_changes_at_rest():
    """The state is zero soon, and its own errors would allow steps of any length."""
    decay = lambda t, y, args: -jnp.array([1.0, 10.0]) * y  # noqa: E731
    found = inspect.lyapunov_exponents(decay, jnp.ones(2), t1=100.0, rtol=1e-6)
    np.testing.assert_allclose(found.exponents, [-1.0, -10.0], atol=0.02)
    looked = inspect.horizon(decay, jnp.ones(2), t1=80.0, n=40, rtol=1e-6)
    np.testing.assert_allclose(looked.rate, -1.0, rtol=1e-2)
    assert np.isinf(looked.time)
