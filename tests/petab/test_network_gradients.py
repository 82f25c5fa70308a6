"""Problems with networks: values and gradients under an adjoint, and with Equinox modules in place of YAML files."""

import sys
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.petab.test_networks import Arrays, exact, written

pytest.importorskip("petab.v2")
pytestmark = pytest.mark.x64


class Inner(eqx.Module):
    """The network in the rate and in the observable, whose layers have the names that the tables have."""

    layer0: eqx.nn.Linear

    def __call__(self, x):
        return self.layer0(x)


class Start(eqx.Module):
    """The network at the start; its layer has a static field, and it holds a number that is no parameter."""

    layer1: eqx.nn.Linear
    power: int

    def __call__(self, p, q):
        return self.layer1(jnp.concatenate([p, q])) ** self.power


def modules():
    start = eqx.nn.Linear(3, 1, use_bias=False, key=jax.random.key(0))
    start = eqx.tree_at(lambda m: m.weight, start, jnp.array([[0.5, 0.1, 0.2]]))
    return {"inner": Inner(eqx.nn.Linear(1, 2, key=jax.random.key(0))), "start": Start(start, 1)}


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=Arrays))
    return written(tmp_path)


def density(problem, x):
    """The logarithm of likelihood times prior by the closed form."""
    p, prior = problem.parameters(x), jax.scipy.stats.norm.logpdf
    own = [p["inner.parameters[layer0].weight[1,0]"], p["inner.parameters[layer0].bias[1]"]]
    return prior(problem.data, exact(p), 0.5).sum() + prior(jnp.stack(own), 0, 2).sum() - jnp.log(10.0)


CHECKPOINTED = sciml.adjoints.Checkpointed()


@pytest.mark.parametrize(
    "adjoint, given", [(None, ("inner", "start")), (CHECKPOINTED, ()), (CHECKPOINTED, ("inner", "start"))]
)
def test_gradients_are_exact(path, adjoint, given):
    """By the closed form, by differences, and for several vectors side by side."""
    networks = {name: module for name, module in modules().items() if name in given}
    problem = sciml.petab.read_petab(path, adjoint=adjoint, networks=networks)
    x = problem.nominal
    xs = x[None] + 0.1 * jnp.cos(jnp.arange(2.0 * x.size)).reshape(2, -1)
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(problem.log_posterior)))(xs)
    right = jax.vmap(jax.value_and_grad(lambda x: density(problem, x)))(xs)
    np.testing.assert_allclose(values, right[0], rtol=1e-6)
    np.testing.assert_allclose(slopes, right[1], rtol=1e-4, atol=1e-5)

    direction, value = jnp.sin(1.0 + jnp.arange(float(x.size))), jax.jit(problem.log_posterior)
    ends = [float(value(xs[0] + sign * 1e-3 * direction)) for sign in (1, -1)]
    np.testing.assert_allclose(slopes[0] @ direction, (ends[0] - ends[1]) / 2e-3, rtol=1e-3)

    nets = problem.networks(xs[0])
    assert all(type(nets[name]) is type(module) for name, module in networks.items())
    own = problem.parameters(xs[0])
    layer = nets["inner"].layer0 if given else nets["inner"].parameters["layer0"]
    weight = layer.weight if given else layer["weight"]
    np.testing.assert_array_equal(weight[1, 0], own["inner.parameters[layer0].weight[1,0]"])


def test_a_fit_with_an_adjoint_is_the_fit_without(path):
    """Fits propagate tangents under any adjoint."""
    problems = [sciml.petab.read_petab(path, adjoint=adjoint, networks=modules()) for adjoint in (None, CHECKPOINTED)]
    found = [problem.fit(max_steps=4) for problem in problems]
    assert found[0].log_posterior > float(density(problems[0], problems[0].nominal))
    np.testing.assert_allclose(found[0].x, found[1].x, rtol=1e-6)


def test_a_module_with_other_names_is_refused(path):
    words = r"`inner_slope` is `inner.parameters\[layer0\].weight\[0,0\]`, but .* \[layers.0\].weight of shape"
    with pytest.raises(ValueError, match=words):
        sciml.petab.read_petab(path, networks={"inner": eqx.nn.MLP(1, 2, 1, 0, key=jax.random.key(0))})
