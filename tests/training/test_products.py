"""Gauss-Newton and Fisher products against the matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.training import gauss_newton_product

pytestmark = pytest.mark.x64

TS = jnp.linspace(0.1, 1.0, 5)


def states(p, adjoint):
    options = {"saveat": TS, "adjoint": adjoint, "rtol": 1e-6}
    if adjoint == sciml.adjoints.Direct():
        options = {"dt": 0.05, "adjoint": adjoint}
    field = lambda t, y, args: jnp.stack([-p["rate"] * y[0], y[0] - p["leak"] * y[1]])  # noqa: E731
    return {"y": sciml.solve(field, jnp.ones(2), t0=0.0, t1=1.0, **options).ys, "rate": p["rate"] ** 2}


P, V = {"rate": jnp.array(2.0), "leak": jnp.array(0.5)}, {"rate": jnp.array(0.3), "leak": jnp.array(-1.0)}


def matrix(adjoint):
    jacobian = jax.jacfwd(lambda p: states(p, adjoint))(P)
    return np.concatenate([np.stack([x["leak"], x["rate"]], -1).reshape(-1, 2) for x in jacobian.values()])


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Forward(), sciml.adjoints.Direct()], ids=["forward", "direct"])
def test_gauss_newton_is_the_matrix_times_the_vector(adjoint):
    j = matrix(adjoint)
    found = jax.jit(lambda p, v: gauss_newton_product(lambda p: states(p, adjoint), p, v))(P, V)
    np.testing.assert_allclose([found["leak"], found["rate"]], j.T @ j @ np.array([-1.0, 0.3]), rtol=1e-10)


@pytest.mark.parametrize("form", ["number", "tree", "function"])
def test_fisher_weighs_the_observations(form):
    j = matrix(sciml.adjoints.Forward())
    tree = {"y": jnp.linspace(1.0, 2.0, 10).reshape(5, 2), "rate": jnp.array(4.0)}
    precision = {"number": 4.0, "tree": tree, "function": lambda u: jax.tree.map(jnp.multiply, tree, u)}[form]
    weights = np.full(11, 4.0) if form == "number" else np.append(4.0, tree["y"].reshape(-1))
    found = gauss_newton_product(lambda p: states(p, sciml.adjoints.Forward()), P, V, precision=precision)
    expected = j.T @ (weights * (j @ np.array([-1.0, 0.3])))
    np.testing.assert_allclose([found["leak"], found["rate"]], expected, rtol=1e-10)


def test_complex_residuals_count_by_both_parts():
    fn = lambda p: jax.lax.complex(p[1] * jnp.cos(p[0]), p[1] * jnp.sin(p[0]))  # noqa: E731
    p, v = jnp.array([0.3, 2.0]), jnp.array([1.0, -0.5])
    parts = lambda p: jnp.stack([fn(p).real, fn(p).imag])  # noqa: E731
    np.testing.assert_allclose(gauss_newton_product(fn, p, v), gauss_newton_product(parts, p, v), rtol=1e-12)


def test_a_precision_of_another_structure_is_refused():
    with pytest.raises(ValueError, match="`precision` must be a number"):
        gauss_newton_product(lambda p: (p, p), jnp.ones(2), jnp.ones(2), precision={"a": 1.0, "b": 2.0})
