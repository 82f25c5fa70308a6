"""Validation, early stopping, and what is handed back; the files of the history."""

import csv

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import training
from tests.training.loop.common import line, points, quiet, squares, to_one


def half(model):
    return float((model - 0.5) ** 2)


def test_the_best_model_is_handed_back():
    """Descent to one from zero passes a half, where the validation loss is lowest."""
    found = quiet(jnp.array(0.0), to_one, steps=40, validation=half, check_every=1, patience=4)
    w = 1 - 0.8 ** np.arange(1, 41)
    best = int(np.argmin((w - 0.5) ** 2))
    assert found.best_step == best + 1 and found.n_steps == best + 1 + 4
    np.testing.assert_allclose(found.model, w[best], rtol=1e-6)
    np.testing.assert_allclose(found.last_model, w[best + 4], rtol=1e-6)
    np.testing.assert_allclose(found.history.validation, (w[: best + 5] - 0.5) ** 2, rtol=1e-4)
    assert "the last 4 validations did not improve" in found.message and f"after {best + 1} steps" in found.message


def test_without_patience_all_steps_are_taken():
    found = quiet(jnp.array(0.0), to_one, steps=10, validation=half, check_every=2)
    assert found.n_steps == 10 and found.best_step == 4 and found.history.checked_steps.tolist() == [2, 4, 6, 8, 10]


def test_validation_on_data_counts_every_row_once():
    held_back = {name: x[:11] for name, x in points(37).items()}
    whole = quiet(line(), squares, points(), steps=4, validation=held_back)
    pieces = quiet(line(), squares, points(), steps=4, batch_size=24, validation=held_back)
    uneven = quiet(line(), squares, points(), steps=4, batch_size=4, validation=held_back)
    expected = float(squares(whole.model, jax.tree.map(jnp.asarray, held_back), None))
    np.testing.assert_allclose(whole.history.validation[-1], expected, rtol=1e-5)
    np.testing.assert_allclose(pieces.history.validation, whole.history.validation, rtol=1e-5)
    expected = float(squares(uneven.last_model, jax.tree.map(jnp.asarray, held_back), None))
    np.testing.assert_allclose(uneven.history.validation[-1], expected, rtol=1e-5)

    class Loader:
        def __iter__(self):
            return ({name: x[i : i + 2] for name, x in held_back.items()} for i in range(0, 11, 2))

    loaded = quiet(line(), squares, points(), steps=4, validation=Loader())
    np.testing.assert_allclose(loaded.history.validation, whole.history.validation, rtol=1e-5)


def test_dropout_is_off_in_validation():
    model = {"drop": eqx.nn.Dropout(0.5), "w": jnp.ones(7)}  # of which no half is kept

    def loss(model, batch, key):
        return jnp.mean(model["drop"](model["w"], key=key) - 1.0) ** 2

    found = quiet(model, loss, steps=2, validation=jnp.zeros(1), check_every=1, where=lambda m: m["w"])
    assert found.history.loss[0] > 0
    np.testing.assert_allclose(
        found.history.validation[-1], float(jnp.mean(found.last_model["w"] - 1.0) ** 2), rtol=1e-5, atol=1e-12
    )


def test_nan_is_never_the_best():
    found = quiet(jnp.array(0.0), to_one, steps=6, validation=lambda m: np.nan, check_every=1, patience=3)
    assert found.n_steps == 3 and found.best_step == 3 and float(found.model) == float(found.last_model)


def test_the_average_is_what_is_judged():
    found = quiet(jnp.array(0.0), to_one, steps=6, average=0.9, validation=half, check_every=6)
    np.testing.assert_allclose(found.history.validation, half(found.model), rtol=1e-6)
    assert float(found.model) != float(found.last_model)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv(tmp_path):
    def loss(model, batch, key):
        return (model - 1.0) ** 2, {"size": model}

    path = tmp_path / "logs" / "run.csv"
    options = dict(check_every=5, validation=half, checkpoints=tmp_path / "run", callbacks=[training.CSVLog(path)])
    found = quiet(jnp.array(0.0), loss, steps=20, **options)
    rows = rows_of(path)
    assert [int(row["step"]) for row in rows] == [5, 10, 15, 20]
    np.testing.assert_allclose([float(row["loss"]) for row in rows], found.history.loss.reshape(4, 5).mean(1))
    np.testing.assert_allclose([float(row["validation"]) for row in rows], found.history.validation)
    # one that goes on keeps the rows before it and writes later ones anew
    path.write_text(path.read_text() + "25,0,1.0,0.1")
    quiet(jnp.array(0.0), loss, steps=30, **options | {"callbacks": [training.CSVLog(path)]})
    assert [int(row["step"]) for row in rows_of(path)] == [5, 10, 15, 20, 25, 30]
    assert all(row["size"] for row in rows_of(path))


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = training.TensorBoardLog(tmp_path)
    found = quiet(jnp.array(0.0), to_one, steps=20, check_every=5, validation=half, callbacks=[log])
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [e.step for e in events.Scalars("loss")] == [5, 10, 15, 20]
    np.testing.assert_allclose([e.value for e in events.Scalars("validation")], found.history.validation, rtol=1e-5)
