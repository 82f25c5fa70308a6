"""Alike operations on single numbers as one operation: the same results and derivatives, by fewer equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml._jax.programs import equations
from sciml.kernels._lanes import with_alike_merged

COUNT = 40


def chain(ys, ks):
    """Each number reads its neighbours, in another order than theirs."""
    return [k * jnp.sin(ys[(7 * i) % COUNT]) - ys[i] * ys[i - 1] for i, k in enumerate(ks)]


def of_many_kinds(ys, ks):
    """Choices, rules of derivatives, sums over all, whole numbers, and constants among the operands."""
    total = jnp.sum(jnp.stack(ys)) + jnp.max(jnp.stack(ys)[3:])
    kinds = [
        lambda y, k: jnp.where(y > k, y, -k),
        lambda y, k: jax.nn.relu(y - k) * total,
        lambda y, k: y**3 + jnp.minimum(y, 0.5),
        lambda y, k: jnp.float64(2.0) * y + (jnp.arange(3.0)[1] + k),
        lambda y, k: jnp.float64(3.0),
        lambda y, k: jax.lax.fori_loop(0, 3, lambda _, x: x * k, y),
    ]
    return [kinds[i % len(kinds)](y, k) for i, (y, k) in enumerate(zip(ys, ks))]


def on_rows(field):
    """The field of rows, which it takes apart."""
    return lambda y, k: jnp.stack(field(list(y), list(k)))


def size(fn, *args):
    return sum(1 for _ in equations(jax.make_jaxpr(fn)(*args).jaxpr))


@pytest.mark.x64
@pytest.mark.parametrize("field", [chain, of_many_kinds], ids=lambda f: f.__name__)
def test_results_and_derivatives_are_those_of_the_program(field):
    y, k = jnp.linspace(-1.0, 2.0, COUNT), jnp.linspace(0.5, 1.0, COUNT)
    plain = on_rows(field)
    merged = lambda y, k: with_alike_merged(plain, y, k)  # noqa: E731
    np.testing.assert_allclose(merged(y, k), plain(y, k), rtol=1e-14)
    for derivative in (jax.jacrev, jax.jacfwd):
        found, expected = (derivative(f, argnums=(0, 1))(y, k) for f in (merged, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    many = jnp.stack([y, 2 * y])
    np.testing.assert_allclose(jax.vmap(merged, (0, None))(many, k), jax.vmap(plain, (0, None))(many, k), rtol=1e-14)


def test_a_program_of_alike_operations_does_not_grow_with_their_number():
    def found(count):
        field = lambda y, k: jnp.stack([b * jnp.sin(a) for a, b in zip(y, k)])  # noqa: E731
        return size(lambda y, k: with_alike_merged(field, y, k), jnp.ones(count), jnp.ones(count))

    assert found(100) == found(30) < 10


def test_a_program_with_nothing_alike_stays_as_it_is():
    """One after another, operations stay operations on single numbers; and so do those on large arrays."""

    def one_after_another(y):
        return jax.lax.sin(jax.lax.exp(jax.lax.sin(y[0])))

    for fn, y in ((one_after_another, jnp.ones(2)), (lambda y: jnp.stack(list(y[:40, 0])), jnp.ones((40, 100)))):
        assert size(lambda y, fn=fn: with_alike_merged(fn, y), y) == size(fn, y)
