"""Several steady states by deflation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import bifurcation

from .common import cusp, tolerance


def toggle(t, y, args):
    """Two genes that repress each other: two stable states and a saddle between them."""
    u, v = y["u"], y["v"]
    return {"u": args / (1 + v**2) - u, "v": args / (1 + u**2) - v}


def roots_of_cusp(b):
    args = {"a": jnp.ones_like(b), "b": b}
    return bifurcation.steady_states(cusp, jnp.full((1,), 0.3, b.dtype), args=args, count=4)[:, 0]


def test_all_three_are_found_with_their_derivatives(dtype):
    b = jnp.asarray(0.1, dtype)
    found = roots_of_cusp(b)
    assert found.dtype == dtype and np.isnan(found).sum() == 1
    roots = np.sort(np.roots([1, 0, -1, -0.1]).real)
    np.testing.assert_allclose(np.sort(found)[:3], roots, atol=tolerance(dtype))
    slopes = jax.jacfwd(roots_of_cusp)(b)
    there = np.isfinite(found)
    np.testing.assert_allclose(slopes[there], 1 / (3 * found[there] ** 2 - 1), rtol=10 * tolerance(dtype))
    back = jax.grad(lambda b: jnp.nansum(roots_of_cusp(b) ** 2))(b)
    np.testing.assert_allclose(back, np.sum(2 * found[there] * slopes[there]), rtol=10 * tolerance(dtype))


def test_members_have_states_of_their_own():
    b = jnp.asarray([0.1, 0.2, 1.0])
    found = jax.vmap(roots_of_cusp)(b)
    np.testing.assert_array_equal(np.isfinite(found).sum(axis=1), [3, 3, 1])


def test_states_with_a_structure():
    y0 = {"u": jnp.asarray(1.0), "v": jnp.asarray(0.5)}
    found = bifurcation.steady_states(toggle, y0, args=jnp.asarray(3.0), count=5)
    u, v = (np.asarray(found[name])[np.isfinite(found[name])] for name in "uv")
    assert len(u) == 3
    np.testing.assert_allclose(3 / (1 + v**2), u, rtol=1e-5)
    np.testing.assert_allclose(np.sort(u), np.sort(v), rtol=1e-5)
    with pytest.raises(TypeError, match="count="):
        bifurcation.steady_states(toggle, y0, args=3.0, n=4)
