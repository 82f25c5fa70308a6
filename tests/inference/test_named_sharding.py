"""Densities of chains and of subjects whose arrays are sharded over devices, by the compiler and by type."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import sciml
from sciml import inference, inspect
from sciml.training import Positive

KINDS = pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
TIMES = jnp.array([1.0, 2.0, 3.0])


def sharded(kind, *arrays):
    mesh = jax.make_mesh((4,), ("members",), axis_types=(kind,), devices=jax.devices()[:4])
    return jax.device_put(arrays, NamedSharding(mesh, PartitionSpec("members")))


def decay(adjoint):
    """The density of a rate and of the noise, of which a solve that fails has none."""

    def observe(model):
        options = dict(rtol=1e-4, atol=1e-4, adjoint=adjoint, throw=False, max_steps=64)
        sol = sciml.solve(lambda t, y, rate: -rate * y, jnp.array(4.0), t0=0.0, t1=3.0, args=model["rate"], **options)
        return inference.Normal(sol.ys[-1], model["noise"])

    model = {"rate": jnp.array(0.3), "noise": jnp.array(0.2)}
    return inference.log_density(model, observe, jnp.array(1.6), [(lambda m: m, inference.LogNormal(-1.0, 0.5))])


@KINDS
@pytest.mark.parametrize(
    "adjoint", [sciml.adjoints.Direct(), sciml.adjoints.Checkpointed()], ids=lambda a: type(a).__name__
)
def test_positions_of_chains_are_sharded(adjoint, kind):
    density = decay(adjoint)
    zs = jnp.linspace(-1.5, -0.5, 16).reshape(8, 2)
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda z: density(density.unravel(z)))))
    (own,) = sharded(kind, zs)
    values, slopes = both(own)
    expected, expected_slopes = both(zs)
    tolerance = 50 * float(jnp.finfo(zs.dtype).eps)
    np.testing.assert_allclose(values, expected, rtol=tolerance)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=tolerance, atol=tolerance)
    assert values.sharding.spec[0] == slopes.sharding.spec[0] == "members"
    assert not inspect.collectives(both, own)


def population(method, data, times):
    """Subjects with a rate each, which decay."""

    def observe(model, effect, subject):
        return inference.Normal(4.0 * jnp.exp(-model["rate"] * jnp.exp(effect) * subject), 0.2)

    return inference.hierarchical(
        {"rate": jnp.array(0.3), "spread": jnp.array(0.3)},
        observe,
        data,
        [(lambda m: m, inference.Improper(Positive()))],
        effects=lambda m: inference.Normal(0.0, m["spread"]),
        subjects=times,
        method=method,
    )


def subjects():
    noise = np.random.default_rng(0).normal(size=(8, 4))
    times = np.broadcast_to(TIMES, (8, 3))
    data = 4.0 * np.exp(-0.3 * np.exp(0.3 * noise[:, :1]) * times) + 0.2 * noise[:, 1:]
    data[2, 1] = np.nan
    return jnp.asarray(data), jnp.asarray(times)


@pytest.mark.x64
@KINDS
@pytest.mark.parametrize("method", ["laplace", "focei", "foce"])
def test_subjects_are_sharded(method, kind):
    """Values, gradients and most probable effects are those of one device; devices meet when sums are taken."""
    given = subjects()
    whole = population(method, *given)
    z = whole.marginal.unconstrain({"rate": jnp.array(0.25), "spread": jnp.array(0.4)})
    expected = jax.jit(jax.value_and_grad(whole.marginal))(z)
    parts = population(method, *sharded(kind, *given))

    @eqx.filter_jit
    def both(parts, z):
        return jax.value_and_grad(lambda z: parts.marginal(z))(z)

    found = both(parts, z)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    assert not [c for c in inspect.collectives(both, parts, z) if c.in_loop]
    model = whole.marginal.constrain(z)
    for a, b in zip(parts.modes(model), whole.modes(model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.x64
@KINDS
@pytest.mark.parametrize("method", ["laplace", "focei"])
def test_populations_of_chains_are_sharded(method, kind):
    density = population(method, *subjects()).marginal
    zs = jnp.linspace(-1.5, -0.5, 16).reshape(8, 2)
    both = jax.jit(jax.vmap(jax.value_and_grad(lambda z: density(density.unravel(z)))))
    (own,) = sharded(kind, zs)
    for a, b in zip(both(own), both(zs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
        assert a.sharding.spec[0] == "members"
    assert not inspect.collectives(both, own)


@pytest.mark.x64
@KINDS
def test_draws_of_sharded_subjects(kind):
    """Importance sampling and stochastic approximation of sharded subjects are those of one device."""
    given, model, key = subjects(), {"rate": jnp.array(0.25), "spread": jnp.array(0.4)}, jax.random.key(0)
    whole, parts = population("focei", *given), population("focei", *sharded(kind, *given))
    for a, b in zip(parts.log_likelihood(model, key, n=20), whole.log_likelihood(model, key, n=20), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    one, other = (study.saem(key, model, steps=(3, 3)) for study in (parts, whole))
    np.testing.assert_allclose(one.position["rate"], other.position["rate"], rtol=1e-10)
    np.testing.assert_allclose(one.hessian, other.hessian, rtol=1e-8)
