"""Dense systems of many members side by side, against LAPACK one member after another."""

import functools
import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.kernels._lanes import Lanes, _linear_algebra as lanes


def _matrices(n: int, count: int, dtype=float) -> jax.Array:
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, n, count))
    a[:, :, 1] *= 10.0 ** rng.integers(-6, 6, size=(n, 1))  # rows of every size, which ask for exchanges
    a[n // 2, :, 2] = a[0, :, 2]  # a singular one: eliminated exactly, its last pivot is zero or rounding
    a[:, 0, 3] = 0  # and one with a column of zeros
    return jnp.asarray(a if dtype is float else a + 1j * rng.normal(size=a.shape))


@pytest.mark.parametrize("n", [1, 19])
def test_factors_are_those_of_lapack(n):
    a = _matrices(n, 4)[..., 1:2] if n == 1 else _matrices(n, 4)
    factors, exchanges, order = jax.jit(lanes.lu)(a)
    right, right_exchanges, right_order = jax.vmap(jax.lax.linalg.lu, in_axes=-1, out_axes=-1)(a)
    assert jnp.array_equal(exchanges[..., 0], right_exchanges[..., 0])
    assert jnp.array_equal(order, lanes.permutation(exchanges, n))
    assert jnp.array_equal(order[..., 1:2], right_order[..., 1:2])
    size = jnp.max(jnp.abs(right), axis=(0, 1))
    rounding = 50 * float(jnp.finfo(a.dtype).eps)
    ok = jnp.array([i for i in range(a.shape[-1]) if i != 2])  # a rounding decides on the pivots of the singular one
    assert jnp.all(jnp.max(jnp.abs(factors - right), axis=(0, 1))[ok] <= n * rounding * size[ok])
    # and they are factors, of every member
    lower = jnp.tril(jnp.moveaxis(factors, -1, 0), -1) + jnp.eye(n)[None]
    product = jnp.matmul(lower, jnp.triu(jnp.moveaxis(factors, -1, 0)), precision="highest")
    exchanged = jnp.take_along_axis(a, order[:, None], axis=0)
    assert jnp.all(jnp.abs(jnp.moveaxis(product, 0, -1) - exchanged) <= n * rounding * size[None, None])


def test_triangular_systems_are_those_of_lapack():
    n, count = 6, 4
    a = _matrices(n, count + 4, complex)[..., 4:]
    a = a + 4 * jnp.eye(n, dtype=a.dtype)[:, :, None]
    names = "lower", "left_side", "transpose_a", "conjugate_a", "unit_diagonal"
    cases = [dict(zip(names, case)) for case in itertools.product((False, True), repeat=5) if case[4] or case[3]]

    @jax.jit
    def both(a):
        pairs = []
        for case in cases:
            b = a[:, :3] if case["left_side"] else a[:3]
            right = jax.vmap(functools.partial(jax.lax.linalg.triangular_solve, **case), -1, -1)(a, b)
            pairs.append((lanes.solve_triangular(a, b, **case), right))
        return pairs

    for case, (found, right) in zip(cases, both(a)):
        rounding = 1e4 * float(jnp.finfo(a.dtype).eps) * jnp.max(jnp.abs(right))
        assert jnp.all(jnp.abs(found - right) <= rounding), case


def test_systems_of_a_model_take_no_lapack_over_lanes():
    count, n = 16, 9
    a = jnp.moveaxis(_matrices(n, count + 4)[..., 4:], -1, 0) + 5 * jnp.eye(n)[None]

    def run(a):
        engine = Lanes(count)
        values = engine.enter(jnp.moveaxis(a, 0, -1), True)
        return jnp.moveaxis(engine.leave(engine.call(lambda a: jnp.linalg.solve(a, a[0]), values)), -1, 0)

    compiled = jax.jit(run).lower(a).compile()
    assert not any(name in compiled.as_text() for name in ("getrf", "trsm"))
    rounding = float(jnp.finfo(a.dtype).eps)
    right = jax.vmap(lambda a: jnp.linalg.solve(a, a[0]))(a)
    assert jnp.allclose(compiled(a), right, rtol=1e5 * rounding, atol=1e4 * rounding)


def _dense_field(t, y, k):
    """Exchange between all of ten species, at rates over four decades, and a loss."""
    n = y.size
    rates = jnp.asarray(10.0 ** ((np.arange(n)[:, None] * 7 + np.arange(n) * 3) % 5 - 2.0), y.dtype)
    return k * jnp.matmul(rates, y) - k * jnp.sum(rates, axis=0) * y - y**2 / 10


def test_dense_stiff_members_and_their_gradients():
    count = 16
    ks = jnp.linspace(0.5, 2.0, count)
    ks = ks.at[5].set(jnp.nan)

    def end(k):
        sol = sciml.solve(
            _dense_field, jnp.ones(10), t0=0.0, t1=0.5, args=k, dt=0.1, solver=sciml.solvers.Rosenbrock23(), throw=False
        )
        return jnp.sum(sol.ys[-1] ** 2), sol.status

    compiled = jax.jit(jax.vmap(jax.value_and_grad(end, has_aux=True))).lower(ks).compile()
    assert not any(name in compiled.as_text() for name in ("getrf", "trsm"))
    (values, status), slopes = compiled(ks)
    assert int(status[5]) != 0 and jnp.isnan(values[5])  # one member that fails says so, and the others go on
    one = jax.jit(jax.value_and_grad(end, has_aux=True))
    rtol = 1e-9 if ks.dtype == jnp.float64 else 1e-3
    for i in (0, 6):
        (value, good), slope = one(ks[i])
        assert int(status[i]) == int(good) == 0
        assert jnp.allclose(values[i], value, rtol=rtol) and jnp.allclose(slopes[i], slope, rtol=rtol, atol=rtol)


def test_gradients_of_members_whose_field_works_on_arrays():
    """A member alone keeps arrays of 9 to 16 elements whole, over lanes they are split; what is recorded must agree."""
    coupling = np.cos(np.arange(12)[:, None] * 3 + np.arange(12)) / 5

    def end(k):
        field = lambda t, y, k: k * jnp.tanh(jnp.asarray(coupling, y.dtype) @ y) - y  # noqa: E731
        how = dict(t0=0.0, t1=1.0, args=k, dt=0.25, solver=diffrax.Heun())
        return jnp.sum(sciml.solve(field, jnp.ones(12), **how).ys[-1])

    ks = jnp.linspace(0.5, 2.0, 3)
    one = jax.jit(jax.grad(end))
    assert jnp.allclose(jax.jit(jax.vmap(jax.grad(end)))(ks), jnp.stack([one(k) for k in ks]), rtol=1e-5)


def test_members_with_singular_matrices_say_so():
    mass = np.diag([0.0] + [1.0] * 9)

    def field(t, y, a):
        return jnp.where(jnp.arange(10) == 0, a * (jnp.sum(y) - 10), jnp.roll(y, 1) - y * jnp.sum(y) / 10)

    def status(a):
        method = sciml.solvers.Rosenbrock23(mass=mass)
        sol = sciml.solve(field, jnp.ones(10), t0=0.0, t1=0.1, args=a, dt=0.1, solver=method, throw=False)
        return sol.status

    a = jnp.ones(16).at[3].set(0)  # without its algebraic equation a member's matrix is singular
    found = jax.jit(jax.vmap(status))(a)
    assert int(found[3]) == int(jax.jit(status)(a[3])) != 0
    assert jnp.all(jnp.delete(found, 3) == 0)
