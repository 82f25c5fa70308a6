"""Models that hold a state of Equinox: running means, which change beside the weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sciml import Status, training
from tests.training.loop.common import quiet, same_bits


class Centred(eqx.Module):
    """A line through the running mean of what came in, which it counts, too."""

    slope: jax.Array
    mean: eqx.nn.StateIndex
    inference: bool

    def __init__(self):
        self.inference = False
        self.slope = jnp.asarray(0.0)
        self.mean = eqx.nn.StateIndex((jnp.zeros(()), jnp.asarray(0)))

    def __call__(self, x, state):
        mean, count = state.get(self.mean)
        if not self.inference:
            mean, count = 0.5 * mean + 0.5 * jnp.mean(x), count + 1
            state = state.set(self.mean, (mean, count))
        return self.slope * (x - mean), state


def loss(model, batch, key):
    net, state = model
    x, y = batch
    found, state = net(x, state)
    return jnp.mean((found - y) ** 2), {"mean": state.get(net.mean)[0]}, state


def test_a_state_is_carried_judged_and_handed_back(tmp_path):
    """Against the recurrence by hand; resumed, it goes on where it was; the best model comes with its own state."""
    x = np.linspace(1.0, 3.0, 16)
    data = x, 2 * (x - 2)
    model = eqx.nn.make_with_state(Centred)()
    found = quiet(model, loss, data, steps=6, optimiser=optax.sgd(0.3), validation=data, check_every=2)
    slope, mean, means = 0.0, 0.0, []
    for _ in range(6):
        mean = 0.5 * mean + 0.5 * x.mean()
        slope -= 0.3 * np.mean(2 * (slope * (x - mean) - data[1]) * (x - mean))
        means.append(mean)
    tolerance = dict(rtol=1e-5)
    np.testing.assert_allclose(found.history.metrics["mean"], means, **tolerance)
    for net, state in (found.model, found.last_model):
        seen, count = state.get(net.mean)
        np.testing.assert_allclose([net.slope, seen], [slope, mean], **tolerance)
        assert count == 6
    # of the judged model: its mean stays as it was
    np.testing.assert_allclose(found.history.validation[-1], np.mean((slope * (x - mean) - data[1]) ** 2), rtol=1e-3)
    assert model[1].get(model[0].mean)[1] == 0  # the user's own is untouched

    options = dict(optimiser=optax.sgd(0.3), validation=data, check_every=2, checkpoints=tmp_path / "run")
    quiet(model, loss, data, steps=4, **options)
    again = quiet(model, loss, data, steps=6, **options)
    assert (
        same_bits((again.model, again.last_model), (found.model, found.last_model))
        and again.status == Status.successful
    )


def test_batches_are_normalised_as_equinox_does_it():
    """`eqx.nn.BatchNorm`, over a batch with a name."""

    class Net(eqx.Module):
        norm: eqx.nn.BatchNorm
        out: eqx.nn.Linear

        def __init__(self, key):
            self.norm = eqx.nn.BatchNorm(2, axis_name="batch", mode="batch", channelwise_affine=False)
            self.out = eqx.nn.Linear(2, "scalar", key=key)

        def __call__(self, x, state):
            x, state = self.norm(x, state)
            return self.out(x), state

    def misfit(model, batch, key):
        net, state = model
        x, y = batch
        run = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        with jax.numpy_dtype_promotion("standard"):  # Equinox takes a power of an integer
            found, state = run(x, state)
        return jnp.mean((found - y) ** 2), state

    x = np.random.default_rng(0).normal(size=(32, 2)) * [1.0, 100.0] + [3.0, -50.0]
    data = x, x @ [1.0, 0.01]
    model = eqx.nn.make_with_state(Net)(jax.random.key(0))
    found = training.train(
        model, misfit, data, optimiser=optax.adam(0.1), steps=100, validation=data, progress=False, average=0.5
    )
    assert found.history.loss[-1] < 1e-3 * found.history.loss[0] and found.history.validation[-1] < 0.1


def test_what_is_wrong_with_a_state_is_said():
    model = eqx.nn.make_with_state(Centred)()
    data = np.ones(4), np.ones(4)
    with pytest.raises(TypeError, match="must return the next state last"):
        quiet(model, lambda m, b, k: jnp.mean(m[0](b[0], m[1])[0]), data, steps=1)
    with pytest.raises(ValueError, match="contains 2 `eqx.nn.State` objects"):
        quiet((model, eqx.nn.make_with_state(Centred)()), loss, data, steps=1)
