"""Which batch a step gets: from arrays, from a function, from a loader."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.training.loop._batches import LoadedBatches, RowBatches, batches_of
from tests.training.loop.common import line, points, quiet, squares

KEY = jax.random.key(3)


def take(source, count, step=0, place=None):
    return [drawn for drawn, _ in zip(source.draw(step, place), range(count))]


@pytest.mark.parametrize("size", [1, 3, 4, 7, 10])
def test_every_row_comes_once_in_an_epoch(size):
    source = RowBatches(np.arange(10), size, KEY)
    rows = np.concatenate([drawn.batch for drawn in take(source, 10)])
    assert all(len(drawn.batch) == size for drawn in take(source, 10))
    for epoch in range(size):  # ten batches are as many epochs as a batch has rows
        assert sorted(rows[10 * epoch : 10 * epoch + 10]) == list(range(10))
    assert size == 1 or list(rows[:10]) != list(rows[10:20]) != list(range(10))


def test_batches_are_functions_of_key_and_step():
    a = take(RowBatches({"x": np.arange(10)}, 4, KEY), 9)
    b = take(RowBatches({"x": np.arange(10)}, 4, KEY), 4, step=5)
    assert [d.batch["x"].tolist() for d in a[5:]] == [d.batch["x"].tolist() for d in b]
    assert [d.epoch for d in a] == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    raw = take(RowBatches({"x": np.arange(10)}, 4, jax.random.PRNGKey(3)), 9)
    other = take(RowBatches({"x": np.arange(10)}, 4, jax.random.key(4)), 9)
    assert all((x.batch["x"] == y.batch["x"]).all() for x, y in zip(a, raw))
    assert any((x.batch["x"] != y.batch["x"]).any() for x, y in zip(a, other))


def test_a_function_makes_batches_within_the_step():
    def sample(key):
        x = jax.random.uniform(key, (16,), minval=-1.0)
        return {"x": x, "y": 2.0 * x - 1.0}

    found = quiet(line(), squares, sample, steps=300)
    np.testing.assert_allclose([found.model.slope, found.model.offset], [2, -1], atol=1e-3)
    assert len(set(found.history.loss.tolist())) > 250
    np.testing.assert_allclose(quiet(line(), squares, sample, steps=300).model.slope, found.model.slope, rtol=0)

    class Sampler(eqx.Module):  # one that holds arrays
        low: jax.Array

        def __call__(self, key):
            x = self.low + jax.random.uniform(key, (16,))
            return {"x": x, "y": 2.0 * x - 1.0}

    assert np.isfinite(quiet(line(), squares, Sampler(jnp.array(-0.5)), steps=2).model.slope)


class Loader:
    def __init__(self, n=5):
        self.n = n

    def __iter__(self):
        return ({"x": np.full(2, i / self.n), "y": np.ones(2)} for i in range(self.n))


class Sized(Loader):
    def __len__(self):
        return self.n


class Remembering:
    """An iterator as grain's are: it says where it is, and goes there."""

    def __init__(self, n=7):
        self.at, self.n = 0, n

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        return {"x": np.full(2, self.at / self.n), "y": np.ones(2)}

    def get_state(self):
        return {"at": self.at}

    def set_state(self, state):
        self.at = state["at"]


@pytest.mark.parametrize("loader", [Loader, Sized])
def test_epochs_of_a_loader(loader):
    found = quiet(line(), squares, loader(), epochs=3, check_every=5)
    assert found.n_steps == 15 and found.history.checked_steps.tolist() == [5, 10, 15]
    assert quiet(line(), squares, loader(), steps=12).n_steps == 12
    if loader is Sized:
        assert batches_of(loader(), None, 3, KEY, 1).epoch_steps == 5


@pytest.mark.parametrize("make", [lambda: iter(Loader()), lambda: Remembering(5)])
def test_an_iterator_is_used_once_from_its_first_batch(make):
    found = quiet(line(), squares, make(), epochs=3)
    assert found.n_steps == 5 and found.history.checked_steps.tolist() == [5]
    assert "ended after 5 of 9" in quiet(line(), squares, make(), steps=9).message
    same = quiet(line(), squares, Loader(), epochs=1) if "get_state" not in dir(make()) else None
    assert same is None or (same.history.loss == found.history.loss).all()


def test_the_last_check_is_after_the_last_batch(monkeypatch):
    for seconds in (0.0, 1e9):  # however often the host looks up
        monkeypatch.setattr("sciml.training.loop._run._SECONDS", seconds)
        found = quiet(line(), squares, Loader(), epochs=2, check_every=4, validation=points())
        assert found.history.checked_steps.tolist() == [4, 8, 10] and found.n_steps == 10


def test_a_loader_goes_on_where_it_was():
    for make in (Loader, Remembering):
        all_of_it = take(LoadedBatches(make(), 2), 9)
        for cut in (1, 3, 5):
            rest = take(LoadedBatches(make(), 2), 9, step=cut, place=all_of_it[cut - 1].place)
            xs, ys = ([d.batch["x"][0] for d in part] for part in (all_of_it[cut:], rest))
            assert ys[: len(xs)] == xs and len(rest) >= len(xs)


def test_errors_of_a_loader_are_raised_and_its_thread_ends():
    def broken():
        yield from Loader(3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        quiet(line(), squares, broken(), steps=10)
    with pytest.raises(RuntimeError, match="enough"):

        def enough(record):
            raise RuntimeError("enough")

        quiet(line(), squares, points(), steps=10, batch_size=4, callbacks=[enough])
    assert not [thread for thread in threading.enumerate() if thread.name == "sciml batches"]


def test_examples_of_unequal_number_are_refused():
    x, y = np.ones(4), np.ones(5)
    apart = lambda model, batch, key: jnp.mean(model(batch["x"])) + jnp.mean(batch["y"])  # noqa: E731
    for options in ({}, {"batch_size": 2}):
        with pytest.raises(
            ValueError, match=r"the shapes are \['x'\]: \(4,\), \['y'\]: \(5,\)\. Arrays that all examples share"
        ):
            quiet(line(), apart, {"x": x, "y": y}, steps=1, **options)
    with pytest.raises(ValueError, match=r"the shapes are \['x'\]: \(4,\), \['y'\]: \(\)"):
        quiet(line(), apart, {"x": x, "y": np.ones(())}, steps=1, batch_size=2)
    assert quiet(line(), apart, {"x": x, "y": np.ones(())}, steps=1).n_steps == 1
    with pytest.raises(ValueError, match="the shapes are"):
        quiet(line(), squares, points(), steps=1, validation={"x": x, "y": y})
