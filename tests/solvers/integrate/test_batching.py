"""How many lanes an ensemble gets, and that those which no member has count for nothing."""

import re

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers.adjoints import _discrete_rule
from sciml.solvers.integrate._batching import pad_against_aliasing, pad_to_vector, repeated

COUNT = 25  # gets 26 lanes
ADJOINTS = {
    "checkpointed": sciml.adjoints.Checkpointed(),
    "levels": sciml.adjoints.Checkpointed(levels=2),
    "forward": sciml.adjoints.Forward(),
    "reversible": sciml.adjoints.Reversible(),
    "gauss": sciml.adjoints.Gauss(),
}
SMALL = dict(rtol=1e-5, atol=1e-7, solver=diffrax.Bosh3())  # few evaluations a step: small programs compile soon
OPTIONS = {
    "fixed": dict(dt=0.05, solver=diffrax.Heun()),
    "adaptive": SMALL,
    "saves": SMALL | dict(saveat=np.array([0.4, 1.0])),
    "stiff": dict(rtol=1e-6, atol=1e-8, solver=sciml.solvers.Rodas5P()),
    "refill": SMALL | dict(batching="refill"),
}
pytestmark = pytest.mark.x64


def rates(count=COUNT):
    return jnp.linspace(0.5, 2.0, count)


def solve(rate, **options):
    def field(t, y, rate):
        return jnp.stack([y[1], -rate * jnp.sin(y[0])])

    return sciml.solve(field, jnp.stack([rate, 1.0 / rate]), t0=0.0, t1=1.0, args=rate, throw=False, **options)


def parts(fn, inputs):
    """What the first members give together, and the last one alone."""
    found = [jax.jit(jax.vmap(fn))(x) for x in (inputs[:-1], inputs[-1:])]
    return jax.tree.map(lambda *x: np.concatenate(x), *found)


def agree(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), found, expected)


@pytest.mark.parametrize("options", ["adaptive", "fixed"])
def test_no_members_have_a_gradient_of_zero(options):
    def loss(scale):
        return jnp.sum(jax.vmap(lambda rate: solve(scale * rate, **OPTIONS[options]).ys)(jnp.zeros(0)))

    assert jax.grad(loss)(1.0) == 0.0


def test_numbers_of_lanes():
    for itemsize in (2, 4, 8, 16):
        for count in range(1, 3000):
            lanes = pad_to_vector(count, itemsize)
            assert count <= lanes <= count * 13 / 12
            assert count < 12 or lanes % 2 == 0
            assert pad_against_aliasing(count, itemsize) * itemsize % 2048
    assert [pad_to_vector(n, 8) for n in (1, 3, 13, 101, 999, 1000, 1001)] == [1, 3, 14, 104, 1000, 1000, 1008]


def test_lanes_that_no_member_has():
    tree, flags = (jnp.arange(6.0).reshape(2, 3), jnp.ones(3)), (True, False)
    many, shared = repeated(tree, flags, 5)
    np.testing.assert_array_equal(many[:, 3:], np.broadcast_to(tree[0][:, 2:], (2, 2)))
    assert shared is tree[1] and repeated(tree, flags, 3)[0] is tree[0]


@pytest.mark.parametrize("options", ["adaptive", "stiff"])
def test_loops_run_over_them(options, monkeypatch):
    """Which is what no number shows. Members that devices may share are not added to."""
    monkeypatch.setattr(_discrete_rule, "shardable", lambda: False)
    fn = lambda rate: jnp.sum(solve(rate, **OPTIONS[options]).ys)  # noqa: E731
    for member in (fn, jax.grad(fn)):
        program = jax.jit(jax.vmap(member)).lower(rates()).as_text()
        loops = [line for line in program.splitlines() if "stablehlo.while" in line]
        sizes = [re.findall(r"\d+", shape) for line in loops for shape in re.findall(r"tensor<([\dx]+)x[a-z]", line)]
        assert any("26" in size for size in sizes) and not any("25" in size for size in sizes)


@pytest.mark.parametrize("options", OPTIONS)
def test_solutions(options):
    def fn(rate):
        found = solve(rate, **OPTIONS[options])
        return found.ys, found.ts, found.status, found.stats.accepted, found.stats.rejected, found.t_reached

    agree(jax.jit(jax.vmap(fn))(rates()), parts(fn, rates()))


@pytest.mark.parametrize("adjoint", [a if a == "checkpointed" else a for a in ADJOINTS])
def test_gradients(adjoint):
    options = OPTIONS["fixed" if adjoint == "levels" else "adaptive"]
    fn = jax.grad(lambda rate: jnp.sum(solve(rate, adjoint=ADJOINTS[adjoint], **options).ys ** 2))
    found = jax.jit(jax.vmap(fn))(rates())
    agree(found, parts(fn, rates()))

    def loss(scale):
        return jnp.sum(
            jax.vmap(lambda rate: solve(rate, adjoint=ADJOINTS[adjoint], **options).ys)(scale * rates()) ** 2
        )

    expected = jnp.sum(found * rates())
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.ones(())), expected, rtol=1e-10)


def test_forward_mode():
    fn = lambda rate: jax.jvp(lambda r: solve(r, adjoint=sciml.adjoints.Direct(), dt=0.05).ys, (rate,), (1.0,))  # noqa: E731
    agree(jax.jit(jax.vmap(fn))(rates()), parts(fn, rates()))


def test_a_last_member_that_fails():
    """Its copies fail, too, and no other member sees them; `test_failures` has the same of gradients."""
    found = jax.jit(jax.vmap(lambda r: solve(r, dt=0.05)))(rates().at[-1].set(jnp.nan))
    np.testing.assert_array_equal(found.status != 0, np.arange(COUNT) == COUNT - 1)
    agree(found.ys[:-1], jax.jit(jax.vmap(lambda r: solve(r, dt=0.05).ys))(rates()[:-1]))
