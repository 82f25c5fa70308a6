"""A function with a rule of reverse mode runs over lanes under `jax.vmap`, whichever is asked for first."""

import jax
import jax.numpy as jnp
import numpy as np

from sciml.kernels import _lanes as lanes

W, XS = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3), np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)


def product():
    """`w @ sin(x)` with a rule, a count of elements beside it, and what was asked for: the lanes of each rule."""
    seen = []

    def make(count, flags):
        def forwards(w, x):
            if count is None:
                return w @ jnp.sin(x), jnp.int32(x.size)
            w = w if flags[0] else w[..., None]
            size = jnp.full((count,), x.shape[0], jnp.int32)
            return jnp.sum(w * jnp.sin(x)[None], axis=1), size

        @jax.custom_vjp
        def run(w, x):
            return forwards(w, x)

        def backwards(kept, bar):
            seen.append((count, flags))
            return jax.vjp(lambda w, x: forwards(w, x)[0], *kept)[1](bar[0])

        run.defvjp(lambda w, x: (forwards(w, x), (w, x)), backwards)
        return run

    return lanes.differentiable(make), seen


def plain(w, x):
    return w @ jnp.sin(x)


def loss(fn):
    return lambda w, x: jnp.sum(jnp.sin(fn(w, x)))


def agree(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, expected)


def test_values():
    fn, _ = product()
    out, size = jax.jit(jax.vmap(fn, in_axes=(None, 0)))(W, XS)
    agree(out, jax.vmap(plain, in_axes=(None, 0))(W, XS))
    assert size.tolist() == [3] * 4 and fn(W, XS[0])[1] == 3
    both = jax.vmap(jax.vmap(lambda w, x: fn(w, x)[0], in_axes=(None, 0)), in_axes=(0, None))
    agree(both(np.stack([W, 2 * W]), XS), jnp.stack([jax.vmap(plain, in_axes=(None, 0))(w, XS) for w in (W, 2 * W)]))


def test_a_gradient_of_many_has_one_rule_for_all():
    fn, seen = product()
    many = lambda fn: lambda w, xs: jnp.sum(jax.vmap(loss(fn), in_axes=(None, 0))(w, xs))  # noqa: E731
    found = jax.grad(many(lambda w, x: fn(w, x)[0]), (0, 1))(W, XS)
    agree(found, jax.grad(many(plain), (0, 1))(W, XS))
    assert set(seen) == {(4, (False, True))}
    seen.clear()
    agree(jax.jit(jax.grad(many(jax.jit(lambda w, x: fn(w, x)[0]))))(W, XS), found[0])
    assert set(seen) == {(4, (False, True))}


def test_gradients_of_each_have_the_rule_of_one():
    fn, seen = product()
    each = lambda fn: jax.vmap(jax.grad(loss(fn), (0, 1)), in_axes=(None, 0))  # noqa: E731
    agree(each(lambda w, x: fn(w, x)[0])(W, XS), each(plain)(W, XS))
    assert set(seen) == {(None, (False, False))}


def test_within_a_scan_and_a_branch():
    fn, _ = product()

    def total(fn):
        def body(carry, x):
            return jax.lax.cond(x[0] > 0.5, lambda: carry + jnp.sum(fn(W * carry, x)), lambda: carry), None

        return jax.grad(lambda c: jax.lax.scan(body, c, XS)[0])(jnp.float32(0.3))

    agree(total(lambda w, x: fn(w, x)[0]), total(plain))
