"""Models that are more than arithmetic: branches, loops, networks, tables, inside solves under vmap and grad."""

import functools as ft

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

pytestmark = pytest.mark.x64

ORDER = np.array([2, 0, 1])


def with_cond(t, y, k):
    return jax.lax.cond(t < 0.5, lambda y: -k * y, lambda y: k * jnp.sin(y), y)


def with_varying_cond(t, y, k):
    return jax.lax.cond(k > 1.0, lambda y: -k * y, lambda y: jnp.cos(y), y)


def with_switch(t, y, k):
    return jax.lax.switch((4 * t).astype(jnp.int32), [lambda y: -y, lambda y: -k * y, jnp.cos], y)


def with_scan(t, y, k):
    def body(carry, row):
        return jnp.tanh(carry + k * row), jnp.sum(carry)

    carry, sums = jax.lax.scan(body, y, jnp.arange(6.0).reshape(2, 3))
    return carry - sums[-1] * y


def with_long_scan(t, y, k):
    def body(carry, x):
        return carry + 0.01 * jnp.sin(k * carry + x), None

    return jax.lax.scan(body, y, jnp.linspace(0.0, 1.0, 40))[0] - y


def with_while(t, y, k):
    """Newton's iteration for the square root: forward mode only, so no gradient."""

    def body(carry):
        i, x = carry
        return i + 1, 0.5 * (x + (1.0 + y**2) / x)

    _, root = jax.lax.while_loop(lambda carry: carry[0] < 6, body, (0, jnp.ones_like(y)))
    return -k * root


def with_fori(t, y, k):
    return jax.lax.fori_loop(0, 3, lambda i, x: 0.5 * jnp.sin(x + k), y)


def with_where(t, y, k):
    return jnp.where(y > 0.6, -k * y, jnp.where(t > 0.5, y**2, 0.1 * k))


def with_indices(t, y, k):
    return k * y[ORDER] - y[::-1].at[1].add(y[0]).at[ORDER].multiply(0.5)


def with_dynamic_index(t, y, k):
    i = jnp.clip((3 * t).astype(jnp.int32), 0, 2)
    return -k * y[i] * y + jax.lax.dynamic_update_index_in_dim(y, 0.1, i, 0)


def with_linear_algebra(t, y, k):
    a = jnp.outer(y, y) + k * jnp.eye(3)
    return jnp.linalg.solve(a, y) - jnp.einsum("ij,j->i", a, y) / (1 + jnp.linalg.norm(a)) ** 2


def with_sort(t, y, k):
    return -k * jnp.cumsum(jnp.sort(y)) / 3


def with_custom_jvp(t, y, k):
    return jax.nn.relu(k - y) - jax.nn.logsumexp(y) * jax.nn.softplus(y)


def with_inner_jit_and_vmap(t, y, k):
    return jax.jit(jax.vmap(lambda x, w: jnp.sin(k * x) * w))(y, jnp.array([1.0, 0.5, 2.0])) - y


def with_inner_grad(t, y, k):
    return -jax.grad(lambda y: k * jnp.sum(y**2 * jnp.cos(y)))(y)


def with_checkpoint(t, y, k):
    return jax.checkpoint(lambda y: -k * jnp.sin(y) * y)(y)


FIELDS = [value for name, value in list(globals().items()) if name.startswith("with_")]
FORWARD_ONLY = {with_while}
each_field = pytest.mark.parametrize("field", FIELDS, ids=lambda f: f.__name__)

HEUN = {"solver": diffrax.Heun()}  # few stages, which compile fast
RATES = jnp.array([0.7, 1.3, 2.0])
STATES = jnp.array([[0.4, 0.9, 0.2], [0.1, 0.5, 1.2], [0.8, 0.3, 0.7]])


LOOPS = {"end": {"dt": 0.04}, "saves": {"dt": 0.04, "saveat": [0.33, 1.0]}}


@pytest.mark.parametrize(
    "field, options",
    # all with saved times, which have more in them, and every third with the end alone
    [pytest.param(f, LOOPS["saves"], id=f"saves-{f.__name__}") for f in FIELDS]
    + [pytest.param(f, LOOPS["end"], id=f"end-{f.__name__}") for f in FIELDS[::3]],
)
def test_batches_and_gradients_equal_single_solves(field, options):
    """Lanes with the replayed gradient against one member's plain loop in forward mode."""

    def loss(adjoint, k, y0):
        ys = sciml.solve(field, y0, t0=0.0, t1=1.0, args=k, adjoint=adjoint, throw=False, **HEUN, **options).ys
        return jnp.sum(jnp.sin(ys)), ys

    lanes, plain = (ft.partial(loss, adjoint) for adjoint in (sciml.adjoints.Checkpointed(), sciml.adjoints.Direct()))
    one = jax.jit(lambda k, y0: (plain(k, y0)[1], jax.jacfwd(lambda *p: plain(*p)[0], argnums=(0, 1))(k, y0)))
    if field in FORWARD_ONLY:
        found = jax.jit(jax.vmap(lambda k, y0: lanes(k, y0)[1]))(RATES, STATES), ()
    else:
        gradient, (_, ys) = jax.jit(jax.vmap(_with_value(jax.value_and_grad(lanes, argnums=(0, 1), has_aux=True))))(
            RATES, STATES
        )
        found = ys, gradient
    for i in range(3):
        expected = one(RATES[i], STATES[i])
        np.testing.assert_allclose(found[0][i], expected[0], rtol=1e-10, atol=1e-12)
        for a, b in zip(found[1], expected[1]):
            np.testing.assert_allclose(a[i], b, rtol=1e-9, atol=1e-11)


def _with_value(fn):
    def swapped(*args):
        value, gradient = fn(*args)
        return gradient, value

    return swapped


def mlp(dtype=None):
    return eqx.nn.MLP(3, 3, 8, 2, activation=jnp.tanh, key=jax.random.key(0), dtype=dtype)


@pytest.mark.parametrize(
    "options",
    [{"dt": 0.1}, {"rtol": 1e-8, "atol": 1e-8, "saveat": [0.4, 1.0]}],
    ids=["scan", "adaptive"],
)
def test_shared_network_is_trained_as_by_a_python_loop(options):
    network = mlp()
    arrays, static = eqx.partition(network, eqx.is_array)

    def loss(arrays, y0):
        net = eqx.combine(arrays, static)
        return jnp.sum(sciml.solve(lambda t, y, args: net(y) - y, y0, t0=0.0, t1=1.0, **options).ys ** 2)

    collective = jax.jit(jax.grad(lambda arrays: jnp.sum(jax.vmap(loss, in_axes=(None, 0))(arrays, STATES))))(arrays)
    one = jax.jit(jax.grad(loss))
    each = [one(arrays, y0) for y0 in STATES]
    expected = jax.tree.map(lambda *xs: sum(xs), *each)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), collective, expected)


def test_a_network_is_a_model_through_filter_grad():
    class Neural(sciml.AbstractModel):
        net: eqx.nn.MLP

        def __call__(self, t, y, args):
            return self.net(y)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(model, y0):
        return jnp.sum(sciml.solve(model, y0, t0=0.0, t1=1.0, dt=0.1).ys)

    found = gradient(Neural(mlp()), STATES[0])
    assert all(np.isfinite(x).all() and np.any(x != 0) for x in jax.tree.leaves(found))


def test_a_batch_of_networks():
    """An ensemble of models: members differ in every weight."""
    networks = eqx.filter_vmap(lambda key: eqx.nn.MLP(3, 3, 4, 1, key=key))(jax.random.split(jax.random.key(1), 3))

    def end(net, y0):
        return sciml.solve(lambda t, y, args: net(y), y0, t0=0.0, t1=1.0, dt=0.1).ys[-1]

    found = eqx.filter_vmap(end)(networks, STATES)
    for i in range(3):
        one = jax.tree.map(lambda x: x[i] if eqx.is_array(x) else x, networks)  # noqa: B023
        np.testing.assert_allclose(found[i], end(one, STATES[i]), rtol=1e-10)
