"""The pattern of a Jacobian, read from a program, names every entry that there is, and few more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.solvers.linear._dependencies import pattern_of

S = np.zeros((12, 8))
S[np.arange(8), np.arange(8)], S[np.arange(8) + 4, np.arange(8)] = 1, -1


def groups(x):
    a, b, c = x.reshape(-1, 3).T
    fast = 3e7 * b * b
    slow = -0.04 * a + 1e4 * b * c
    return jnp.stack([slow, -slow - fast, fast], axis=1).reshape(-1)


def stencil_by_updates(x):
    inner = jnp.zeros_like(x).at[1:-1].add(x[2:] - 2 * x[1:-1] + x[:-2])
    return inner.at[0].set(x[1]).at[-1].add(x[-2] ** 2)


def carried(x):
    return jax.lax.scan(lambda c, a: (c + a, c * a), x[0], x)[1]


def moving_carry(x):
    return jax.lax.fori_loop(0, 3, lambda i, y: jnp.roll(y, 1) * 0.5, x)


@jax.custom_jvp
def ruled(x):
    return jnp.sin(x)


ruled.defjvp(lambda primals, tangents: (ruled(*primals), jnp.cos(primals[0]) * tangents[0]))


@jax.custom_jvp
def rounded(x):
    return jnp.round(x).astype(int).astype(x.dtype)


rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0] + tangents[0][::-1]))

# functions of vectors, the size of these, and how many entries the pattern may name beyond those there are
PROGRAMS = {
    "groups": (groups, 12, 0),
    "periodic": (lambda x: jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1) + x * (1 - x), 9, 0),
    "padded": (lambda x: jnp.pad(x, 1)[2:] - 2 * x + jnp.pad(x, 1)[:-2], 9, 0),
    "updates": (stencil_by_updates, 9, 0),
    "network": (lambda x: S @ (x[:8] * x[4:12]), 12, 0),
    "network from the right": (lambda x: (x[:8] * x[4:12]) @ S.T, 12, 0),
    "rows times a matrix": (lambda x: (x.reshape(3, 4) @ jnp.ones((4, 4))).ravel(), 12, 0),
    "a matrix times rows": (lambda x: (jnp.ones((3, 3)) @ x.reshape(3, 4)).ravel(), 12, 0),
    "matrices in a batch": (lambda x: jnp.einsum("bij,bjk->bik", *(x.reshape(3, 2, 2),) * 2).ravel(), 12, 0),
    "outer product": (lambda x: jnp.einsum("i,j->ij", x[:3], x[3:6]).ravel(), 9, 0),
    "broadcast along axes of length one": (lambda x: (x[:4, None] * x[None, 4:7] + x[None, :3]).ravel()[:7], 7, 0),
    "sum over an axis": (lambda x: jnp.repeat(x.reshape(3, 4).sum(1), 4), 12, 0),
    "mean of the rest": (lambda x: x - x.mean(), 6, 0),
    "places": (lambda x: x[jnp.array([3, 2, 1, 0])] ** 2, 4, 0),
    "conditions": (lambda x: jnp.where(x > 0.5, x, 0.1 * x) * x[::-1], 5, 0),
    "a branch": (lambda x: jax.lax.cond(x[0] > 0, lambda x: 2 * x, jnp.flip, x), 6, 6),
    "mapped": (jax.vmap(lambda x: jnp.tanh(x) * x), 6, 0),
    "a rule of its own": (ruled, 4, 0),
    "a rule unlike its function": (lambda x: rounded(x) * 2, 6, 0),
    "a stopped gradient": (lambda x: x * jax.lax.stop_gradient(x[::-1]), 6, 0),
    "a scan": (carried, 6, 0),
    "rolled in a loop": (moving_carry, 5, 25),
    "cumulative": (lambda x: jnp.cumsum(x), 5, 10),
    "sorted": (lambda x: jnp.sort(x), 4, 12),
    "polynomial": (lambda x: jnp.polyval(jnp.arange(4.0), x), 4, 0),
    "looked up": (lambda x: jnp.interp(x, jnp.arange(5.0), jnp.arange(5.0) ** 2), 4, 0),
    "transformed": (lambda x: jnp.fft.ifft(jnp.fft.fft(x)).real, 4, 12),
    "long scan": (lambda x: jax.lax.scan(lambda c, i: (c, x * i), 0.0, jnp.arange(100.0))[1][7], 4, 0),
    "constant": (lambda x: jnp.arange(4.0) + 0 * jnp.sign(x), 4, 4),
    "rematerialised": (jax.checkpoint(lambda x: jnp.sin(x) * x[::-1]), 6, 0),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_every_entry_and_few_more(program):
    fn, size, more = PROGRAMS[program]
    x = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1.0, size))
    pattern = pattern_of(fn, x).toarray()
    there = np.asarray(jax.jacfwd(fn)(x)) != 0
    assert np.all(pattern | ~there)
    assert pattern.sum() - there.sum() <= more


def test_a_parameter_counts_with_all_its_elements():
    x = jnp.ones(12)
    assert pattern_of(lambda x: S @ x[:8], x).nnz == np.count_nonzero(S)
    found = []
    jax.eval_shape(lambda s: found.append(pattern_of(lambda x: s @ x[:8], x)), S)
    assert found[0].nnz == S.size


def test_what_depends_on_everything_has_no_pattern():
    assert pattern_of(lambda x: x * jnp.sum(x), jnp.ones(10_000)) is None
