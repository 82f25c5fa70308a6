"""Gradients under jit and vmap, in every order, over members that differ in anything."""

import functools as ft

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.registry_adjoints import ADJOINTS, KINDS, each_reverse_with_saves

from ..common import Inputs, cheap, close, inputs, loss, members, run

pytestmark = pytest.mark.x64

# Lanes round differently from one member alone; with error control that moves the steps within the tolerance.
FIXED, ADAPTIVE = {"rtol": 1e-10, "atol": 1e-12}, {"rtol": 1e-8, "atol": 1e-10}


@ft.cache
def one_by_one(kind, adjoint):
    """Value and gradient of one member, compiled once."""
    return jax.jit(jax.value_and_grad(ft.partial(loss, kind, adjoint, **cheap(kind))))


def tolerance(kind):
    return ADAPTIVE if kind.startswith("adaptive") else FIXED


def only(names: str) -> Inputs:
    """`in_axes` that batches the named inputs only."""
    axes = jax.tree.map(lambda _: None, inputs())
    for name in names.split():
        axes = eqx.tree_at(
            lambda p: getattr(p, name),
            axes,
            jax.tree.map(lambda _: 0, getattr(inputs(), name)),
            is_leaf=lambda x: x is None,
        )  # noqa: B023, E501
    return axes


def some(names: str) -> Inputs:
    """Inputs of which the named ones have members."""
    one, many = inputs(), members()
    for name in names.split():
        one = eqx.tree_at(lambda p: getattr(p, name), one, getattr(many, name))  # noqa: B023
    return one


@each_reverse_with_saves
def test_gradients_commute_with_vmap(case, kind):
    """grad(vmap) and vmap(grad) and a Python loop.

    Either way with either loop, by half of the adjoints each; by Checkpointed both with each.
    """
    fn = ft.partial(loss, kind, case.adjoint, **cheap(kind))
    batch = members()
    each = [one_by_one(kind, case.adjoint)(jax.tree.map(lambda x: x[i], batch))[1] for i in range(3)]  # noqa: B023
    each = jax.tree.map(lambda *xs: jnp.stack(xs), *each)
    every, first = case.name == "checkpointed", (ADJOINTS.index(case) + (kind == "scan")) % 2 == 0
    if every or first:
        close(jax.jit(jax.vmap(jax.grad(fn)))(batch), each, **tolerance(kind))
    if every or not first:
        close(jax.jit(jax.grad(lambda p: jnp.sum(jax.vmap(fn)(p))))(batch), each, **tolerance(kind))


def _choices():
    for kind in KINDS:
        for names in ("y0", "model", "model args", "y0 factor", "t0 t1", "ts"):
            if (kind == "scan" and names in ("t0 t1", "ts")) or (names == "ts" and not kind.endswith("saves")):
                continue  # this loop does not depend on these inputs
            if kind == "fixed_saves" and names not in ("y0", "t0 t1", "ts"):
                continue  # as with error control
            if kind in ("fixed", "adaptive") and names != {"fixed": "t0 t1", "adaptive": "model args"}[kind]:
                continue  # as where times are saved
            yield kind, names


@pytest.mark.parametrize("kind, names", list(_choices()))
def test_members_may_differ_in_some_inputs(kind, names):
    """A shared input's gradient is the sum over members."""
    fn = ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind))
    axes, batch = only(names), some(names)
    value, gradient = jax.jit(jax.value_and_grad(lambda p: jnp.sum(jax.vmap(fn, in_axes=(axes,))(p))))(batch)
    one = one_by_one(kind, sciml.adjoints.Checkpointed())
    pick = lambda i: jax.tree.map(lambda x, a: x if a is None else x[i], batch, axes, is_leaf=lambda x: x is None)  # noqa: E731
    values, each = zip(*(one(pick(i)) for i in range(3)))

    def join(axis, *xs):
        return sum(xs) if axis is None else jnp.stack(xs)

    expected = jax.tree.map(join, axes, *each, is_leaf=lambda x: x is None)
    np.testing.assert_allclose(value, sum(values), rtol=1e-8)
    close(gradient, expected, **tolerance(kind))


@pytest.mark.parametrize("kind", ["scan", "adaptive_saves"])
def test_nested_vmap(kind):
    """Over parameters outside and initial states inside, in both orders, with the gradient within and around."""
    models, states = members().model, members(2).y0

    def fn(model, y0):
        p = eqx.tree_at(lambda p: (p.model, p.y0), inputs(), (model, y0))
        return loss(kind, sciml.adjoints.Checkpointed(), p, **cheap(kind))

    def table(model, y0):
        return jax.vmap(lambda m: jax.vmap(lambda y: fn(m, y))(y0))(model)

    def other(model, y0):
        return jax.vmap(lambda y: jax.vmap(lambda m: fn(m, y))(model))(y0)

    first, second = jax.jit(table)(models, states), jax.jit(other)(models, states)
    assert first.shape == (3, 2)
    np.testing.assert_allclose(first, second.T, rtol=1e-9)
    one = jax.jit(fn)
    np.testing.assert_allclose(first[2, 1], one(jax.tree.map(lambda x: x[2], models), states[1]), rtol=1e-7)

    gradient = jax.jit(jax.grad(lambda m, y: jnp.sum(table(m, y)), argnums=(0, 1)))(models, states)
    inner = jax.jit(jax.vmap(jax.vmap(jax.grad(fn, argnums=(0, 1)), in_axes=(None, 0)), in_axes=(0, None)))(
        models, states
    )
    close(gradient[0], jax.tree.map(lambda x: x.sum(1), inner[0]), rtol=1e-8, atol=1e-9)
    close(gradient[1], inner[1].sum(0), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["scan", "adaptive_saves"])
def test_jit_changes_nothing(kind):
    fn = ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind))
    p = inputs()
    close(jax.grad(fn)(p), jax.jit(jax.grad(fn))(p), rtol=1e-12, atol=1e-13)
    close(jax.grad(jax.jit(fn))(p), jax.jit(jax.grad(fn))(p), rtol=1e-12, atol=1e-13)


def test_levels_chosen_for_one_member_serve_many():
    """What one member recorded with all its states is replayed over lanes, where the memory would hold fewer."""
    states = 39  # of 16 bytes

    def fn(adjoint, y0):
        p = eqx.tree_at(lambda p: p.y0, inputs(), y0)
        return run("scan", adjoint, p, **cheap("scan")).ys[-1]

    y0 = inputs().y0
    expected = jax.jit(jax.jacfwd(ft.partial(fn, sciml.adjoints.Direct())))(y0)
    for memory in (16 * states, 16 * 13, 16):
        found = jax.jit(jax.jacrev(ft.partial(fn, sciml.adjoints.Checkpointed(memory=memory))))(y0)
        close(found, expected, **FIXED)


@pytest.mark.parametrize("kind", ["scan", "adaptive_saves"])
def test_direct_is_batched_too(kind):
    batch = members()
    direct = jax.jit(jax.vmap(ft.partial(run, kind, sciml.adjoints.Direct(), **cheap(kind))))(batch)
    lanes = jax.jit(jax.vmap(ft.partial(run, kind, sciml.adjoints.Checkpointed(), **cheap(kind))))(batch)
    own = direct.stats.accepted + direct.stats.rejected  # JAX's own batching counts no iteration of a waiting member
    np.testing.assert_array_equal(direct.stats.executed, own)
    direct = eqx.tree_at(lambda sol: sol.stats.executed, direct, lanes.stats.executed)
    close(direct, lanes, rtol=1e-7, atol=1e-9)


def test_unequal_work_in_every_member():
    """Members that are busy in different intervals wait for one another at every saved time."""
    centres = jnp.linspace(0.1, 0.9, 6)
    ts = jnp.linspace(0.15, 1.0, 9)

    def fn(centre, adjoint=sciml.adjoints.Checkpointed()):  # noqa: B008
        def field(t, y, args):
            return jnp.cos(y + 40 * jnp.exp(-((t - centre) ** 2) * 1e3))

        options = {
            "rtol": 1e-6,
            "atol": 1e-6,
            "saveat": ts,
            "max_steps": 256,
            "adjoint": adjoint,
            "solver": diffrax.Bosh3(),
        }
        return jnp.sum(sciml.solve(field, jnp.ones(1), t0=0.0, t1=1.0, **options).ys)

    found = jax.jit(jax.vmap(jax.grad(fn)))(centres)
    each = jax.jit(jax.grad(fn))
    np.testing.assert_allclose(found, [each(c) for c in centres], rtol=1e-5)
    little = jax.jit(jax.vmap(jax.grad(ft.partial(fn, adjoint=sciml.adjoints.Checkpointed(memory=1)))))(centres)
    # iterations that are computed again differ by the rounding of the error estimate
    np.testing.assert_allclose(found, little, rtol=1e-7)


@pytest.mark.parametrize(
    "adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Gauss()], ids=["Checkpointed", "Gauss"]
)
def test_gradients_of_solves_within_a_scan(adjoint):
    """JAX looks for what does not change from iteration to iteration, which is no second reverse mode."""

    def end(y, rate):
        field = lambda t, y, rate: -rate * y  # noqa: E731
        options = dict(t0=0.0, t1=0.5, rtol=1e-4, atol=1e-4, adjoint=adjoint, throw=False)
        return sciml.solve(field, y, args=rate, **options).ys[-1]

    rates, y0 = jnp.linspace(0.5, 2.0, 3), jnp.ones(2)

    def scanned(y, rates):
        return jnp.sum(jax.lax.scan(jax.checkpoint(lambda y, rate: (end(y, rate), None)), y, rates)[0])

    def unrolled(y, rates):
        for i in range(rates.size):
            y = end(y, rates[i])
        return jnp.sum(y)

    for i, (a, b) in enumerate(zip(jax.grad(scanned, (0, 1))(y0, rates), jax.grad(unrolled, (0, 1))(y0, rates))):
        np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=str(i))
    found = jax.jit(jax.grad(lambda r: jnp.sum(jax.lax.map(lambda r: end(y0, r), r))))(rates)
    np.testing.assert_allclose(found, -np.exp(-rates / 2), rtol=1e-3)


@pytest.mark.parametrize(
    "adjoint, size",
    [
        pytest.param(sciml.adjoints.Gauss(), 2, id="gauss"),
        pytest.param(sciml.adjoints.Backsolve(), 2, id="backsolve"),
        pytest.param(sciml.adjoints.Checkpointed(), 2, id="over_lanes"),
        pytest.param(sciml.adjoints.Checkpointed(), 1024, id="one_after_another"),
    ],
)
def test_what_was_asked_for_before_does_not_matter(adjoint, size):
    """One function under `jit`, differentiated by one argument, then by another, then by the first again."""

    @jax.jit
    def total(rate, y0):
        sol = sciml.solve(lambda t, y, k: -k * y, y0, t0=0.0, t1=1.0, args=rate, dt=0.25, adjoint=adjoint, throw=False)
        return jnp.sum(sol.ys)

    rate, y0 = jnp.array(0.5), jnp.ones(size)
    members = jax.grad(lambda rate: jnp.sum(jax.vmap(total, in_axes=(None, 0))(rate, jnp.stack([y0, y0]))))(rate)
    by_state = jax.jit(jax.grad(total, argnums=1))(rate, y0)
    by_rate = jax.jit(jax.grad(total))(rate, y0)
    np.testing.assert_allclose(by_state, np.exp(-0.5), rtol=1e-4)
    np.testing.assert_allclose(by_rate, -size * np.exp(-0.5), rtol=1e-4)
    np.testing.assert_allclose(members, 2 * by_rate, rtol=1e-10)
