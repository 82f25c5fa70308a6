"""`batched`: any nesting of `jax.vmap` becomes one call over lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.kernels import _lanes as lanes


def recorder():
    """A function of a vector and a number over lanes that notes how it is called."""
    calls = []

    def fn(count, flags, x, s):
        calls.append((count, tuple(flags), x.shape, s.shape))
        engine = lanes.Lanes(count)
        out = engine.call(lambda x, s: {"y": x * s, "n": jnp.sum(x)}, *engine.enter((x, s), list(flags)))
        return engine.leave(out)

    return lanes.batched(fn), calls


def member(x, s):
    return {"y": x * s, "n": jnp.sum(x)}


X, S = np.arange(24.0, dtype=np.float32).reshape(2, 4, 3), np.arange(1.0, 9.0, dtype=np.float32).reshape(2, 4)


def agree(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), a, b)


def test_one_member():
    fn, calls = recorder()
    agree(fn(X[0, 0], S[0, 0]), member(X[0, 0], S[0, 0]))
    assert calls[-1] == (None, (False, False), (3,), ())


def test_one_vmap_puts_members_last():
    fn, calls = recorder()
    agree(jax.vmap(fn)(X[0], S[0]), jax.vmap(member)(X[0], S[0]))
    assert calls[-1] == (4, (True, True), (3, 4), (4,))


@pytest.mark.parametrize("axes", [(0, None), (None, 0)])
def test_shared_arguments_stay_single(axes):
    fn, calls = recorder()
    args = [x if a == 0 else x[0] for x, a in zip((X[0], S[0]), axes)]
    agree(jax.vmap(fn, in_axes=axes)(*args), jax.vmap(member, in_axes=axes)(*args))
    assert calls[-1][:2] == (4, tuple(a == 0 for a in axes))


@pytest.mark.parametrize(
    "axes", [((0, 0), (0, 0)), ((0, None), (None, 0)), ((None, 0), (0, None)), ((0, None), (0, 0))]
)
def test_nested_vmaps_merge(axes):
    """The outer axes, then the inner."""
    fn, calls = recorder()
    outer, inner = axes
    x = X if (outer[0], inner[0]) == (0, 0) else X[0] if inner[0] == 0 or outer[0] == 0 else X[0, 0]
    s = S if (outer[1], inner[1]) == (0, 0) else S[0] if inner[1] == 0 or outer[1] == 0 else S[0, 0]

    def twice(fn):
        return jax.vmap(jax.vmap(fn, in_axes=inner), in_axes=outer)(x, s)

    agree(twice(fn), twice(member))
    (count, flags, *_) = calls[-1]
    assert flags == tuple(a == 0 or b == 0 for a, b in zip(*axes))
    assert count == twice(member)["n"].size if flags[0] else count is not None


def test_three_levels_under_jit_with_other_axes():
    fn, calls = recorder()
    x = jnp.asarray(np.arange(72.0).reshape(2, 3, 4, 3), jnp.float32)
    s = jnp.asarray(np.arange(24.0).reshape(3, 4, 2), jnp.float32)

    def thrice(fn):
        inner = jax.vmap(jax.vmap(fn), in_axes=(0, 0), out_axes=1)
        return jax.jit(jax.vmap(inner, in_axes=(0, 2), out_axes=1))(x, s)

    agree(thrice(fn), thrice(member))
    assert calls[-1][0] == 2 * 3 * 4


def test_vmap_of_size_one_and_many():
    fn, _ = recorder()
    agree(jax.vmap(fn)(X[0, :1], S[0, :1]), jax.vmap(member)(X[0, :1], S[0, :1]))
    many = np.ones((1000, 3), np.float32), np.arange(1000, dtype=np.float32)
    agree(jax.vmap(fn)(*many), jax.vmap(member)(*many))


def counted(x, s):
    """With a whole number among the results."""
    return {"y": x * s**2, "n": jnp.sum(x * x), "count": jnp.argmax(x)}


def counting():
    calls = []

    def fn(count, flags, x, s):
        calls.append((count, tuple(flags)))
        engine = lanes.Lanes(count)
        return engine.leave(engine.call(counted, *engine.enter((x, s), list(flags))))

    return lanes.batched(fn), calls


def inexact(fn):
    return lambda *args: {k: v for k, v in fn(*args).items() if k != "count"}


def pushed(fn):
    return lambda x, s, dx, ds: jax.jvp(inexact(fn), (x, s), (dx, ds))


@pytest.mark.parametrize("axes", [(0, 0, 0, 0), (0, None, None, 0), (None, None, 0, None), (None, 0, None, None)])
def test_forward_mode_over_lanes(axes):
    """Whichever of arguments and tangents have members; a function whose tangents alone have runs for one member."""
    fn, calls = counting()
    args = [x if a == 0 else x[0] for x, a in zip((X[0], S[0], X[1] + 1, S[1]), axes)]
    agree(jax.vmap(pushed(fn), in_axes=axes)(*args), jax.vmap(pushed(counted), in_axes=axes)(*args))
    assert calls[-1][0] == (4 if 0 in axes[:2] else None)


@pytest.mark.parametrize("outer", [(0, 0, None, None), (None, None, 0, 0), (0, None, None, 0)])
@pytest.mark.parametrize("inner", [(0, 0, 0, 0), (None, None, 0, None), (0, None, None, None)])
def test_forward_mode_under_nested_vmaps(outer, inner):
    fn, _ = counting()
    sources = (X, S, X + 1, S + 1)
    args = [x[(slice(None) if o == 0 else 0, slice(None) if i == 0 else 0)] for x, o, i in zip(sources, outer, inner)]
    run = lambda f: jax.vmap(jax.vmap(pushed(f), in_axes=inner), in_axes=outer)(*args)  # noqa: E731
    agree(run(fn), run(counted))


def test_forward_mode_twice():
    fn, _ = counting()
    one = lambda f: lambda x, s: f(x, s)["n"] + jnp.sum(f(x, s)["y"])  # noqa: E731
    twice = lambda f: jax.jacfwd(jax.jacfwd(one(f), argnums=(0, 1)), argnums=(0, 1))  # noqa: E731
    agree(twice(fn)(X[0, 0], S[0, 0]), twice(counted)(X[0, 0], S[0, 0]))
    agree(jax.vmap(twice(fn))(X[0], S[0]), jax.vmap(twice(counted))(X[0], S[0]))
