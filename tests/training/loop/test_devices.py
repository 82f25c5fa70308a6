"""Batches over eight devices: the losses of one device, one sum of gradients, weights where they were put."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import parallel
from sciml.training._selection import select
from sciml.training.loop._placement import placement_of
from sciml.training.loop._step import CompiledStep, Recipe, initial_state
from tests.training.loop.common import quiet

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")

X = np.linspace(-1.0, 1.0, 64)[:, None]
DATA = (X, np.sin(3 * X))


def net():
    return eqx.nn.MLP(1, 1, 16, 1, activation=jnp.tanh, key=jax.random.key(0))


def loss(model, batch, key):
    x, y = batch
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def mesh_of(kind, shape=(8,), names=("data",)):
    devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
    return Mesh(devices, names) if kind == "auto" else jax.make_mesh(shape, names, devices=devices.flatten())


OPTIONS = dict(optimiser=optax.adam(1e-2), steps=12)


def curve(model=None, **options):
    found = quiet(net() if model is None else model, loss, DATA, **OPTIONS | options)
    return found.history.loss, found


@functools.cache
def alone(batch_size=None):
    return curve(batch_size=batch_size)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_the_losses_are_those_of_one_device(kind):
    losses, one = alone(16)
    spread, many = curve(batch_size=16, mesh=mesh_of(kind))
    np.testing.assert_allclose(spread, losses, rtol=1e-5)
    leaves = (jax.tree.leaves(eqx.filter(found.last_model, eqx.is_array)) for found in (one, many))
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
        assert len(b.sharding.device_set) == 1  # where it was given


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_the_mesh_that_is_set_and_all_rows_at_once(kind):
    np.testing.assert_allclose(curve(mesh=mesh_of(kind))[0], alone()[0], rtol=1e-5)
    with jax.set_mesh(mesh_of(kind)):
        np.testing.assert_allclose(curve()[0], alone()[0], rtol=1e-5)


def test_validation_and_averages_over_devices():
    options = dict(batch_size=16, validation=DATA, average=0.5, check_every=6)
    one, many = curve(**options)[1], curve(mesh=parallel.mesh(), **options)[1]
    np.testing.assert_allclose(many.history.validation, one.history.validation, rtol=1e-5)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_data_that_are_sharded(kind):
    placed = jax.device_put(DATA, NamedSharding(mesh_of(kind), P("data")))
    for batch_size in (None, 16):
        spread = quiet(net(), loss, placed, batch_size=batch_size, **OPTIONS)
        np.testing.assert_allclose(spread.history.loss, alone(batch_size)[0], rtol=1e-5)
    everywhere = jax.device_put(jnp.ones(2), NamedSharding(mesh_of(kind), P()))  # on all devices, but not cut
    found = quiet(everywhere, lambda m, batch, key: jnp.sum(m**2) * jnp.mean(batch[0] ** 2), DATA, steps=2)
    assert found.model.shape == (2,) and found.model[0] < 1


def test_batches_that_the_step_makes_are_spread():
    def sample(key):
        x = jax.random.uniform(key, (32, 1))
        return x, jnp.sin(3 * x)

    one = quiet(net(), loss, sample, **OPTIONS)
    spread = quiet(net(), loss, sample, mesh=mesh_of("auto"), **OPTIONS)
    np.testing.assert_allclose(spread.history.loss, one.history.loss, rtol=1e-5)


def collectives(model, loss, data, mesh):
    """Those of the compiled step."""
    placement = placement_of(mesh, model)
    model, selection = select(placement.weights(model), None, None, (), ())
    recipe = Recipe(selection.rest(model), selection, loss, optax.adam(1e-2), None, placement, None, None, 0)
    state = initial_state(recipe, model, ())
    layout = placement.layout(state, selection.picked(model))
    recipe = Recipe(**{**vars(recipe), "layout": tuple(jax.tree.leaves(layout))})
    state = jax.device_put(state, layout)
    step = CompiledStep(recipe, state, jax.random.key(0))
    return sciml.inspect.collectives(step.__call__, placement.batch(data), jax.tree.leaves(state))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_gradients_are_summed_once(kind):
    (found,) = collectives(net(), loss, DATA, mesh_of(kind))
    assert found.kind == "all-reduce" and not found.in_loop


def misfit(model, batch, key):
    """Each member with steps of its own, as many as its error asks for."""
    y0, y1 = batch
    options = dict(t0=0.0, t1=1.0, solver=diffrax.Heun(), rtol=1e-2, atol=1e-2, throw=False)
    ys = jax.vmap(lambda y: sciml.solve(lambda t, y, args: jnp.tanh(model @ y), y, **options).ys[-1])(y0)
    return jnp.mean((ys - y1) ** 2)


Y0 = np.linspace(0.0, 1.0, 32).reshape(16, 2)
ENDS = (Y0, np.roll(Y0, 1, axis=1))


def test_solves_send_nothing_between_devices():
    between = collectives(jnp.eye(2), misfit, ENDS, mesh_of("auto"))
    assert {c.kind for c in between} == {"all-reduce"} and not [c for c in between if c.in_loop]


def test_solves_are_those_of_one_device():
    found = [quiet(jnp.eye(2), misfit, ENDS, steps=3, mesh=mesh) for mesh in (None, mesh_of("auto"))]
    np.testing.assert_allclose(found[1].history.loss, found[0].history.loss, rtol=1e-5)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_weights_stay_as_they_are_sharded(kind):
    """Two groups of four devices: batches over the first axis, the hidden layer over the second."""
    mesh = mesh_of(kind, (2, 4), ("data", "model"))
    specs = {0: (P("model"), P("model")), 1: (P(None, "model"), P())}

    def put(x, spec):
        return jax.device_put(x, NamedSharding(mesh, spec))

    model = net()
    for i, (weight, bias) in specs.items():
        layer = model.layers[i]
        placed = (put(layer.weight, weight), put(layer.bias, bias))
        model = eqx.tree_at(lambda m, i=i: (m.layers[i].weight, m.layers[i].bias), model, placed)
    for options in ({}, {"mesh": mesh}):
        spread, found = curve(model, batch_size=16, **options)
        np.testing.assert_allclose(spread, alone(16)[0], rtol=1e-5)
        weight = found.model.layers[0].weight
        assert weight.sharding == model.layers[0].weight.sharding
        assert weight.addressable_shards[0].data.shape == (4, 1)


def test_optimiser_states_are_sharded_as_their_weights():
    mesh = mesh_of("auto", (2, 4), ("data", "model"))
    weights = {"w": jax.device_put(jnp.ones((8, 3)), NamedSharding(mesh, P("model"))), "b": jnp.ones(3)}
    placement = placement_of(None, weights)
    weights = placement.weights(weights)
    layout = placement.layout(jax.eval_shape(optax.adam(0.1).init, weights), weights)
    (adam, _) = layout
    assert adam.mu["w"].spec == adam.nu["w"].spec == P("model") and adam.mu["b"].spec == adam.count.spec == P()


@pytest.mark.parametrize(
    "match, model, options",
    [
        ("`batch_size` is 12.*multiple of 8", None, dict(batch_size=12)),
        ("`data` has 60 rows", None, {}),
        ("another mesh", (4,), dict(batch_size=8)),
    ],
)
def test_bad_input(match, model, options):
    model = net() if model is None else jax.device_put(jnp.ones(8), NamedSharding(mesh_of("auto", model), P("data")))
    with pytest.raises(ValueError, match=match):
        quiet(model, loss, tuple(x[:60] for x in DATA), steps=1, mesh=mesh_of("auto"), **options)
