"""The entries of a Jacobian one by one, where one unknown meets many: values, where it is done, and solves with it."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers.linear import _entries
from sciml.solvers.linear._entries import entries_of

from ..common import close

SIZE = 60
PAIRS = np.random.default_rng(0).integers(0, SIZE, (2, 150))
"""Reactions between two of the unknowns."""

MATRIX = np.where(np.random.default_rng(1).uniform(size=(SIZE, 150)) < 0.05, 1.0, 0.0)


@jax.custom_jvp
def saturated(u):
    return u / (1 + u)


@saturated.defjvp
def _(primals, tangents):
    (u,), (v,) = primals, tangents
    return saturated(u), v / (1 + u) ** 2


def reactions(y):
    return y[PAIRS[0]] * y[PAIRS[1]]


def scattered(y):
    return jnp.zeros_like(y).at[PAIRS[0]].add(-reactions(y)).at[PAIRS[1]].add(0.5 * reactions(y))


FIELDS = {
    "products, added at places": scattered,
    "products by a matrix": lambda y: jnp.asarray(MATRIX, y.dtype) @ reactions(y),
    "a matrix from the right": lambda y: reactions(y).reshape(3, 50) @ jnp.asarray(MATRIX[:50, :20], y.dtype),
    "a matrix in axes of its own": lambda y: jnp.einsum("ka,b->ab", jnp.asarray(MATRIX[:5, :30], y.dtype), y[:20]),
    "sums over an axis": lambda y: jnp.sum((y[PAIRS[0]] * y[PAIRS[1]]).reshape(50, 3) * 2.0, axis=1),
    "quotients and powers": lambda y: scattered(y) / (1 + y**3) - jnp.exp(-y) * y[0],
    "a quotient by a number": lambda y: scattered(y) / jnp.sum(y),
    "nothing": lambda y: jnp.zeros(5, y.dtype) * y[0],
    "cases": lambda y: jnp.where(y > 0.5, scattered(y), jnp.where(y > 0.25, y[0], 1.0)),
    "cases of whole numbers": lambda y: jax.lax.select_n((y * 2.9).astype(jnp.int32), y, y * y, scattered(y)),
    "a rule of its own": lambda y: saturated(scattered(y)),
    "a function within": lambda y: jax.jit(scattered)(y) + jax.checkpoint(scattered)(2 * y),
    "parts that are moved": lambda y: jnp.concatenate([y[1:] * y[:-1], -y[:1]])[::-1] + jnp.roll(y, 3),
    "with zeros around": lambda y: jnp.pad(y, 2)[4:] * y,
    "a part that is replaced": lambda y: (y * y[0]).at[3:7].set(y[:4]).at[PAIRS[0, :5]].set(0.0),
    "a part at a known place": lambda y: jax.lax.dynamic_update_slice(y * y, jax.lax.dynamic_slice(y, (5,), (9,)), [1]),
    "one number for all": lambda y: y[0] * jnp.ones_like(y) + 3.0,
    "the same twice": lambda y: (lambda z: z[PAIRS[0, :SIZE]] * z[PAIRS[1, :SIZE]] + z)(y * y[1]),
    "parts with axes": lambda y: (y.reshape(6, 10) * y[:6, None] + y[None, :10]).T.reshape(-1),
}  # fmt: skip


def whole(found, rows, columns):
    return jnp.zeros(rows * columns).at[found.places].add(found.values).reshape(rows, columns)


@pytest.mark.parametrize("name", FIELDS)
def test_entries_are_those_of_the_jacobian(name):
    y = jax.random.uniform(jax.random.key(0), (SIZE,), minval=0.1)
    flat = lambda y: FIELDS[name](y).reshape(-1)  # noqa: E731
    exact = jax.jacfwd(flat)(y)
    found = entries_of(flat, y, 10**6)
    assert found is not None and np.all(np.diff(found.places) >= 0)
    close(whole(found, *exact.shape), exact, 1e-12 if y.dtype == jnp.float64 else 1e-5, 1e-5)


def test_coefficients_may_be_traced():
    """Values of parameters are, within a solve; places are not."""
    y, rates = jax.random.uniform(jax.random.key(0), (SIZE,), minval=0.1), jnp.arange(1.0, 151.0)

    def field(y, rates):
        return jnp.zeros_like(y).at[PAIRS[0]].add(rates * reactions(y)) / rates[3]

    def entries(rates):
        return whole(entries_of(lambda y: field(y, rates), y, 10**6), SIZE, SIZE)

    close(jax.jit(entries)(rates), jax.jacfwd(field)(y, rates), 1e-12, 1e-5)
    slope = jax.grad(lambda v: jnp.sum(jnp.sin(entries(v))))(rates)
    close(slope, jax.grad(lambda v: jnp.sum(jnp.sin(jax.jacfwd(field)(y, v))))(rates), 1e-10, 1e-4)


NOT_FOLLOWED = {
    "sums so far": jnp.cumsum,
    "a scan": lambda y: jax.lax.scan(lambda c, u: (c * u, c), y[0], y)[1],
    "a loop": lambda y: jax.lax.fori_loop(0, 3, lambda i, u: u * y, y),
    "sorting": jnp.sort,
    "transforms": lambda y: jnp.fft.fft(y).real,
    "places of the state's own": lambda y: y[jnp.argsort(y)],
}


@pytest.mark.parametrize("field", NOT_FOLLOWED.values(), ids=NOT_FOLLOWED)
def test_what_is_not_followed_is_left_to_directions(field):
    found = []
    jax.eval_shape(lambda y: found.append(entries_of(field, y, 10**6)), jnp.ones(SIZE))
    assert found == [None]


def test_dense_jacobians_are_left_to_directions():
    assert entries_of(lambda y: jnp.mean(y) * y[::-1] - y**2, jnp.ones(100), 100) is None
    assert entries_of(lambda y: jnp.asarray(np.ones((100, 100)), y.dtype) @ y, jnp.ones(100), 100) is None


# one species meets all others, so that hardly two columns can be computed at once
HUB = 70
LINES = [f"R + X{i} <-> Y{i}, {1 + i % 7}e-1, {1 + i % 3}" for i in range(HUB)]
LINES += [f"Y{i} -> Y{(i + 1) % HUB}, {5 * (1 + i % 2)}" for i in range(HUB)]


def receptor():
    return sciml.models.ReactionNetwork("\n".join([*LINES, "R(0) = 3", *(f"X{i}(0) = 1" for i in range(HUB))]))


def never(*_):
    raise AssertionError("derivatives along directions")


@pytest.mark.parametrize("solver", ["Rodas5P", "BDF"])
def test_solves_compute_entries_one_by_one(solver, monkeypatch):
    network, tol = receptor(), 1e-8 if jax.config.jax_enable_x64 else 1e-5

    def solve(network, y0):
        options = dict(t0=0.0, t1=0.5, rtol=tol, atol=tol)
        return sciml.solve(network, y0, solver=getattr(sciml.solvers, solver)(), **options).ys[-1]

    exact = sciml.solve(network, network.y0, t0=0.0, t1=0.5, rtol=tol, atol=tol, solver=diffrax.Tsit5()).ys[-1]
    monkeypatch.setattr(_entries, "products", never)
    y0 = jnp.stack([network.y0, 2 * network.y0])
    close(jax.vmap(solve, in_axes=(None, 0))(network, y0)[0], exact, 1e-6, 3e-4)


@pytest.mark.parametrize("solver", ["Rodas5P", "BDF"])
@pytest.mark.skipif(not jax.config.jax_enable_x64, reason="differences of float32 say too little")
def test_gradients_through_entries(solver):
    network = receptor()

    def end(factor):
        scaled = jax.tree.map(lambda rate: factor * rate, network)
        options = dict(t0=0.0, t1=0.5, rtol=1e-9, atol=1e-9)
        ys = sciml.solve(scaled, network.y0, solver=getattr(sciml.solvers, solver)(), **options).ys
        return jnp.sum(ys[-1, :3] ** 2)

    h = 1e-4
    slope = (end(1 + h) - end(1 - h)) / (2 * h)
    close(jax.grad(end)(jnp.asarray(1.0)), slope, 1e-6, 1e-6)
