"""Steps, constraints, averages, NaN, callbacks: against recursions written out, and a loop written by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sciml import SolveError, Status, training
from tests.training.loop.common import Line, line, points, quiet, squares, to_one


def test_gradient_descent_is_its_recursion(dtype):
    found = quiet(jnp.asarray(0.0, dtype), to_one, steps=20)
    w = [0.0]
    for _ in range(20):
        w.append(w[-1] - 0.1 * 2 * (w[-1] - 1))
    rtol = 1e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(found.model, w[-1], rtol=rtol)
    np.testing.assert_allclose(found.history.loss, [(x - 1) ** 2 for x in w[:-1]], rtol=rtol)
    np.testing.assert_allclose(found.history.gradient_norm, [2 * (1 - x) for x in w[:-1]], rtol=rtol)
    assert found.model.dtype == dtype and found.status == Status.successful
    assert found.n_steps == found.best_step == 20 and "20 steps" in found.message


def test_agrees_with_a_loop_written_by_hand():
    model, data = line(), jax.tree.map(jnp.asarray, points())
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.linear_schedule(0.1, 0.01, 20)))
    found = quiet(model, squares, data, optimiser=optimiser, steps=30)
    state, losses = optimiser.init(model), []

    @jax.jit
    def step(model, state):
        value, gradient = jax.value_and_grad(squares)(model, data, None)
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimiser.update(gradient, state, model)
        return optax.apply_updates(model, updates), state, value

    hand = model
    for _ in range(30):
        hand, state, value = step(hand, state)
        losses.append(float(value))
    np.testing.assert_allclose(found.history.loss, losses, rtol=1e-5)
    np.testing.assert_allclose([found.model.slope, found.model.offset], [hand.slope, hand.offset], rtol=1e-5)
    assert model.slope == 0.5  # the model that was given is as it was, though steps are taken in place


@pytest.mark.x64
def test_a_step_moves_the_free_variables():
    """One step of gradient descent on the logarithm and on the logit, by the chain rule."""

    def loss(model, batch, key):
        return model["rate"] ** 2 + 3.0 * model["share"] + model["fixed"] ** 3

    start = {"rate": jnp.array(2.0), "share": jnp.array(1.0), "fixed": jnp.array(5.0)}
    found = quiet(
        start,
        loss,
        steps=1,
        where=lambda m: (m["rate"], m["share"]),
        positive=lambda m: m["rate"],
        bounds=[(lambda m: m["share"], 0.0, 4.0)],
    ).model
    np.testing.assert_allclose(found["rate"], np.exp(np.log(2.0) - 0.1 * 2 * 2.0**2), rtol=1e-12)
    z = np.log(1.0 / 3.0) - 0.1 * 3.0 * (1.0 * 3.0 / 4.0)  # dx/dz = x (4 - x) / 4
    np.testing.assert_allclose(found["share"], 4 / (1 + np.exp(-z)), rtol=1e-12)
    assert found["fixed"] == 5.0


def test_complex_weights():
    """Descent of |w - c|^2 goes straight to c."""
    goal = np.complex64(2.0 - 1.0j)

    def loss(model, batch, key):
        return jnp.sum(jnp.abs(model["w"] - goal) ** 2) + model["b"] ** 2

    start = {"w": jnp.zeros(1, jnp.complex64), "b": jnp.float32(1.0)}
    found = quiet(start, loss, steps=20)
    np.testing.assert_allclose(found.model["w"], goal * (1 - 0.8**20), rtol=1e-5)
    np.testing.assert_allclose(found.history.gradient_norm[0], 2 * np.sqrt(abs(goal) ** 2 + 1), rtol=1e-6)
    with pytest.raises(TypeError, match="cannot be constrained to a range"):
        quiet(start, loss, steps=1, positive=lambda m: m["w"])


def test_constraints_hold_however_large_the_step():
    def loss(model, batch, key):
        return model["rate"] + model["share"]

    found = quiet(
        {"rate": jnp.array(2.0), "share": jnp.array(1.0)},
        loss,
        steps=3,
        optimiser=optax.sgd(5.0),
        positive=lambda m: m["rate"],
        bounds=[(lambda m: m["share"], 0.5, 4.0)],
    ).model
    assert 0 < found["rate"] < 2 and 0.5 <= found["share"] < 1


@pytest.mark.x64
def test_average():
    found = quiet(jnp.array(0.0), to_one, steps=30, average=0.6)
    w, mean = 0.0, 0.0
    for step in range(30):
        w -= 0.1 * 2 * (w - 1)
        decay = min(0.6, (1 + step) / (10 + step))
        mean = decay * mean + (1 - decay) * w
    np.testing.assert_allclose(found.last_model, w, rtol=1e-12)
    np.testing.assert_allclose(found.model, mean, rtol=1e-12)


def test_metrics():
    def loss(model, batch, key):
        return (model - 1.0) ** 2, {"size": model, "count": jnp.int32(3), "noise": jax.random.normal(key, ())}

    found = quiet(jnp.array(0.5), loss, steps=4).history.metrics
    assert set(found) == {"size", "count", "noise"} and found["size"][0] == 0.5 and (found["count"] == 3).all()
    assert len(set(found["noise"].tolist())) == 4  # a key for every step
    again = quiet(jnp.array(0.5), loss, steps=4).history.metrics
    other = quiet(jnp.array(0.5), loss, steps=4, key=jax.random.key(5)).history.metrics
    assert (again["noise"] == found["noise"]).all() and (other["noise"] != found["noise"]).all()


def with_a_hole():
    data = points()
    data["y"][7] = np.nan
    return data


def test_nonfinite_ends_the_training_before_it_harms():
    options = dict(steps=60, batch_size=4)
    words = (
        r"Step \d+ gave NaN or infinity in the loss, .*gradient with respect to `slope`.* The data contain 1 NaN: mask"
    )
    with pytest.raises(SolveError, match=words):
        quiet(line(), squares, with_a_hole(), **options)
    found = quiet(line(), squares, with_a_hole(), throw=False, **options)
    assert found.status == Status.nonfinite and 1 <= found.n_steps <= 6  # the hole comes in the first epoch
    assert np.isnan(found.history.loss[-1]) and np.isfinite(found.history.loss[:-1]).all()
    assert all(np.isfinite(x) for x in jax.tree.leaves(found.model))
    assert found.history.skipped.tolist() == [found.n_steps - 1]
    assert str(found).startswith("loss ") and str(found).endswith(found.message)
    before = quiet(line(), squares, with_a_hole(), steps=found.n_steps - 1, batch_size=4) if found.n_steps > 1 else None
    assert before is None or before.model.slope == found.model.slope


def test_nonfinite_steps_are_skipped():
    found = quiet(line(), squares, with_a_hole(), epochs=5, batch_size=4, skip_nonfinite=2)
    bad = np.flatnonzero(np.isnan(found.history.loss))
    assert found.status == Status.successful and len(bad) == 5  # once in an epoch
    assert found.history.skipped.tolist() == bad.tolist() and "5 steps were skipped" in found.message
    assert found.n_steps == 30 and np.isfinite(found.model.slope)


def test_too_many_nonfinite_steps():
    found = quiet(jnp.array(-1.0), lambda m, batch, key: jnp.log(m), steps=50, skip_nonfinite=3, throw=False)
    assert found.n_steps == 4 and found.model == -1.0 and found.status == Status.nonfinite


def test_an_update_that_overflows():
    found = quiet(jnp.array(1.0), to_one_from_two, steps=5, optimiser=optax.sgd(jnp.inf), throw=False)
    assert found.n_steps == 1 and found.model == 1.0 and "the update" in found.message


def to_one_from_two(model, batch, key):
    return (model - 2.0) ** 2


def test_callbacks():
    seen = []

    def note(record):
        seen.append(record)
        return record.step == 12

    found = quiet(jnp.array(0.0), to_one, steps=100, check_every=4, callbacks=[note])
    assert [record.step for record in seen] == [4, 8, 12] and found.n_steps == 12
    assert "callback" in found.message and found.history.checked_steps.tolist() == [4, 8, 12]
    np.testing.assert_allclose(seen[1].loss, found.history.loss[4:8].mean(), rtol=1e-6)
    assert seen[0].validation is None and not seen[0].is_best and seen[0].model < seen[1].model < found.model + 1e-6


def test_one_program_however_many_steps_and_calls():
    traces = []

    def loss(model, batch, key):
        traces.append(0)
        return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)

    optimiser = optax.adam(1e-2)
    quiet(line(), loss, points(), optimiser=optimiser, steps=3, batch_size=8)
    first = len(traces)
    quiet(line(), loss, points(), optimiser=optimiser, steps=30, batch_size=8)
    assert first <= 3 and len(traces) == first + 1  # the shapes are looked at again, the program is there


def test_compute_dtype():
    seen = set()

    def loss(model, batch, key):
        seen.update(str(x.dtype) for x in (model.slope, batch["x"]))
        return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)

    half = quiet(line(jnp.float32), loss, points(dtype=np.float32), steps=200, compute_dtype=jnp.bfloat16)
    assert seen == {"bfloat16"} and half.model.slope.dtype == jnp.float32
    full = quiet(line(jnp.float32), squares, points(dtype=np.float32), steps=200)
    np.testing.assert_allclose(half.model.slope, full.model.slope, rtol=0.02)  # eight bits
    # small steps add up, as they would not in weights of eight bits
    steps = quiet(jnp.float32(1.0), lambda m, b, k: m, steps=64, optimiser=optax.sgd(1e-4), compute_dtype=jnp.bfloat16)
    np.testing.assert_allclose(steps.model, 1 - 64e-4, rtol=1e-5)


def test_losses_in_float16_are_scaled():
    """Gradients that float16 would round to zero count, those that overflow are tried with a smaller factor."""
    data, half = points(dtype=np.float32), dict(compute_dtype=jnp.float16)
    full = quiet(line(jnp.float32), squares, data, steps=200)
    for factor, first in ((1e-5, 0), (2e3, 1)):

        def loss(model, batch, key, factor=factor):
            return factor * squares(model, batch, key)

        found = quiet(line(jnp.float32), loss, data, steps=200, optimiser=optax.sgd(0.1 / factor), **half)
        np.testing.assert_allclose(found.model.slope, full.model.slope, rtol=5e-3)  # eleven bits
        skipped = found.history.skipped
        np.testing.assert_array_equal(skipped, np.arange(len(skipped)))  # none after the factor has fallen
        assert first <= len(skipped) <= 12 * first and found.status == Status.successful
    lost = quiet(jnp.float32(7e4), to_one, steps=3, throw=False, **half)  # no factor is to blame
    assert lost.status == Status.nonfinite and lost.model == 7e4


@pytest.mark.x64
def test_accumulated_gradients_are_those_of_larger_batches():
    optimiser = optax.MultiSteps(optax.sgd(0.1), every_k_schedule=3)
    parts = quiet(line(), squares, points(), optimiser=optimiser, epochs=4, batch_size=8)
    whole = quiet(line(), squares, points(), steps=4)
    np.testing.assert_allclose(parts.model.slope, whole.model.slope, rtol=1e-7)  # optax counts in float32


def test_line_searches_see_the_loss():
    found = quiet(line(), squares, points(), optimiser=optax.lbfgs(), steps=12)
    design = np.stack([points()["x"], np.ones(24)], axis=1)
    best = np.linalg.lstsq(design, points()["y"])[0]
    np.testing.assert_allclose([found.model.slope, found.model.offset], best, rtol=1e-4)


def test_optimisers_see_the_structure_of_the_model():
    groups = optax.multi_transform(
        {"fast": optax.sgd(0.2), "slow": optax.set_to_zero()}, lambda model: Line(slope="fast", offset="slow")
    )
    found = quiet(line(), squares, points(), optimiser=groups, steps=5).model
    assert found.offset == 0.25 and found.slope != 0.5


def data_of(shape):
    return {"x": np.ones(24), "y": np.ones(shape)}


@pytest.mark.parametrize(
    "error, match, call",
    [
        (TypeError, "`loss`, the second", lambda: quiet(line(), 3, points(), steps=1)),
        (TypeError, r"called as `loss\(model, batch, key\)`", lambda: quiet(line(), lambda m, b: 1.0, steps=1)),
        (TypeError, "shape .24,.*mean over", lambda: quiet(line(), lambda m, b, k: m(b["x"]), points(), steps=1)),
        (TypeError, "second part is a list", lambda: quiet(line(), lambda m, b, k: (m.slope, [1]), steps=1)),
        (TypeError, "metric `a`", lambda: quiet(line(), lambda m, b, k: (m.slope, {"a": jnp.ones(2)}), steps=1)),
        (TypeError, "complex", lambda: quiet(line(), lambda m, b, k: jax.lax.complex(m.slope, m.slope), steps=1)),
        (ValueError, "`steps` or `epochs`", lambda: quiet(line(), squares, points())),
        (ValueError, "`steps` or `epochs`.*epochs=2", lambda: quiet(line(), squares, points(), steps=1, epochs=2)),
        (ValueError, "positive integer", lambda: quiet(line(), squares, points(), steps=0)),
        (ValueError, "has 24 rows", lambda: quiet(line(), squares, points(), steps=1, batch_size=25)),
        (ValueError, "same length", lambda: quiet(line(), squares, data_of((23,)), steps=1, batch_size=2)),
        (ValueError, "same length", lambda: quiet(line(), squares, data_of(()), steps=1, batch_size=2)),
        (ValueError, "`epochs` does not apply", lambda: quiet(line(), squares, lambda key: points(), epochs=1)),
        (ValueError, "own size", lambda: quiet(line(), squares, lambda key: points(), steps=1, batch_size=2)),
        (TypeError, "contains str", lambda: quiet(line(), squares, {"x": "data"}, steps=1)),
        (ValueError, "without any batch", lambda: quiet(line(), squares, iter([]), steps=1)),
        (TypeError, "optax optimiser", lambda: quiet(line(), squares, points(), steps=1, optimiser=0.1)),
        (ValueError, "requires `validation`", lambda: quiet(line(), squares, points(), steps=1, patience=2)),
        (ValueError, "between 0 and 1", lambda: quiet(line(), squares, points(), steps=1, average=1.0)),
        (ValueError, "floating-point dtype", lambda: quiet(line(), squares, points(), steps=1, compute_dtype=int)),
        (ValueError, "but got 'bf16'", lambda: quiet(line(), squares, points(), steps=1, compute_dtype="bf16")),
        (TypeError, "sequence of functions", lambda: quiet(line(), squares, points(), steps=1, callbacks=print)),
        (
            ValueError,
            "nonnegative number of steps",
            lambda: quiet(line(), squares, points(), steps=1, skip_nonfinite=-1),
        ),
        (TypeError, "random key", lambda: quiet(line(), squares, points(), steps=1, key=3)),
        (TypeError, "`mesh` must be", lambda: quiet(line(), squares, points(), steps=1, mesh="all")),
        (TypeError, "path or a store", lambda: quiet(line(), squares, points(), steps=1, checkpoints=3)),
        (ValueError, "no floating-point array", lambda: quiet({"n": 3}, squares, points(), steps=1)),
        (ValueError, "greater than 0", lambda: quiet(jnp.array(-1.0), to_one, steps=1, positive=True)),
        (TypeError, "under a JAX transform", lambda: jax.jit(lambda m: quiet(m, to_one, steps=1).model)(1.0)),
        (ValueError, "exhausts", lambda: quiet(line(), squares, points(), steps=1, validation=iter([points()]))),
        (TypeError, "`validation` must be .* float", lambda: quiet(line(), squares, points(), steps=1, validation=0.2)),
        (TypeError, "one real number", lambda: quiet(line(), squares, points(), steps=1, validation=lambda m: "low")),
    ],
)
def test_bad_input(error, match, call):
    if error is TypeError:  # the tests also check annotations, which refuse some arguments sooner
        match = rf"{match}|parameters of sciml\.training\.loop\._train\.train"
    with pytest.raises(error, match=match):
        call()


def test_a_batch_norm_like_subtree_is_left_alone():
    """A selected subtree may hold integers and functions beside its weights."""
    model = {"net": eqx.nn.MLP(1, "scalar", 4, 1, key=jax.random.key(0)), "scale": jnp.array(1.0)}
    found = quiet(
        model, lambda m, b, k: m["net"](jnp.ones(1)) ** 2 * m["scale"], steps=3, where=lambda m: m["net"]
    ).model
    assert found["scale"] == 1.0 and found["net"].activation is model["net"].activation
    assert isinstance(training.train, type(quiet))
