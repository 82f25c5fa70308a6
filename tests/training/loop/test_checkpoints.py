"""A training that is killed, or stopped, and called again has the bits of one that was not."""

import csv
import os
import pathlib
import random
import signal
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sciml import SolveError
from sciml.stores import NpzStore, OrbaxStore, StoreError
from tests.training.loop.common import line, points, quiet, same_bits, squares, to_one

ROOT = pathlib.Path(__file__).resolve().parents[3]


def start(folder, kind, *after):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    command = [sys.executable, str(pathlib.Path(__file__).with_name("killed.py")), str(folder), kind, *map(str, after)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def table(folder):
    """The file of losses, but for the seconds."""
    with open(f"{folder}.csv", newline="") as file:
        return [{name: x for name, x in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def interrupted(tmp_path, kind, moments):
    """Kills a training at some moments, lets it end, and compares; returns the steps it had come to at each kill."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    done = start(whole, kind)
    assert done.returncode == 0, done.stderr
    seen = []
    for moment in moments:
        killed = start(parts, kind, *moment)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        seen.append(max((int(p.name.rpartition("_")[2].partition(".")[0]) for p in parts.glob("*[0-9]*")), default=0))
    last = start(parts, kind)
    assert last.returncode == 0 and last.stdout == done.stdout, last.stderr
    with np.load(f"{whole}.npz") as a, np.load(f"{parts}.npz") as b:
        assert a.files == b.files and all(a[name].tobytes() == b[name].tobytes() for name in a.files)
    assert table(whole) == table(parts) and len(table(whole)) == 9
    assert not list(parts.rglob(".*.tmp"))
    return seen


def test_one_kill(tmp_path):
    assert interrupted(tmp_path, "rows", [(9, 0.0)])


@pytest.mark.parametrize("kind, kills", [("rows", 10), ("loader", 5)])
def test_many_kills(tmp_path, kind, kills):
    chance = random.Random(kind)
    seen = interrupted(tmp_path, kind, [(chance.randrange(1, 6), chance.uniform(0.0, 0.03)) for _ in range(kills)])
    assert len(seen) > kills // 2 - 1 and len(set(seen)) > 2


def test_kills_with_orbax(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    assert interrupted(tmp_path, "orbax", [(3, 0.0), (2, 0.05)])


def stop_at(step):
    return [lambda record: record.step == step]


OPTIONS = dict(optimiser=optax.adam(0.05), batch_size=5, check_every=2, average=0.8, validation=points(11))


def test_stopped_and_called_again(tmp_path):
    whole = quiet(line(), squares, points(), steps=12, **OPTIONS)
    parts = quiet(line(), squares, points(), steps=12, checkpoints=tmp_path, callbacks=stop_at(6), **OPTIONS)
    assert parts.n_steps == 6 and NpzStore(tmp_path, prefix="checkpoint").numbers() == [6]
    found = quiet(line(), squares, points(), steps=12, checkpoints=tmp_path, **OPTIONS)
    assert found.n_steps == 12 and same_bits(found, whole) and found.best_step == whole.best_step


def test_an_interrupted_training_says_how_to_go_on(tmp_path):
    def stop(record):
        if record.step >= 4:
            raise KeyboardInterrupt

    options = dict(steps=9, check_every=1, checkpoints=tmp_path)
    with pytest.raises(KeyboardInterrupt) as stopped:
        quiet(line(), squares, points(), **options, checkpoint_every=0.0, callbacks=[stop])
    (note,) = stopped.value.__notes__
    assert note.endswith("has a checkpoint after 3 steps; the same call resumes from there.")
    assert quiet(line(), squares, points(), **options).n_steps == 9
    with pytest.raises(KeyboardInterrupt) as stopped:
        quiet(line(), squares, points(), steps=9, check_every=1, callbacks=[stop])
    assert not hasattr(stopped.value, "__notes__")


def test_more_steps_go_on_from_the_last_ones(tmp_path):
    quiet(line(), squares, points(), steps=12, checkpoints=tmp_path, **OPTIONS)
    more = quiet(line(), squares, points(), steps=20, checkpoints=tmp_path, **OPTIONS)
    assert same_bits(more, quiet(line(), squares, points(), steps=20, **OPTIONS))


def test_a_training_that_ran_out_of_patience_stays_so(tmp_path):
    options = dict(steps=40, validation=lambda m: (m - 0.5) ** 2, check_every=1, patience=3, checkpoints=tmp_path)
    first = quiet(jnp.array(0.0), to_one, **options)
    again = quiet(jnp.array(0.0), to_one, **options)
    assert again.n_steps == first.n_steps < 40 and same_bits(first, again) and again.message == first.message


def test_a_training_that_nan_ended_says_so_again(tmp_path):
    def loss(model, batch, key):
        return jnp.log(1.0 - model)

    options = dict(steps=40, checkpoints=tmp_path, optimiser=optax.sgd(0.2))
    messages = []
    for _ in range(2):
        with pytest.raises(SolveError) as error:
            quiet(jnp.array(0.0), loss, **options)
        messages.append(str(error.value))
    assert messages[0] == messages[1] and "in the loss" in messages[0]


def test_weights_over_devices(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    layout = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("model"))
    model = jax.device_put(jnp.linspace(0.0, 1.0, 8), layout)

    def loss(model, batch, key):
        return jnp.mean((batch @ model[:, None] - 1.0) ** 2)

    data = np.random.default_rng(0).normal(size=(16, 8))
    options = dict(steps=8, batch_size=4, optimiser=optax.adam(0.05), check_every=4)
    whole = quiet(model, loss, data, **options)
    for store in (OrbaxStore(tmp_path / "orbax"), tmp_path / "npz"):
        quiet(model, loss, data, checkpoints=store, callbacks=stop_at(4), **options)
        found = quiet(model, loss, data, checkpoints=store, **options)
        assert same_bits(found, whole) and found.model.sharding == layout


@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
def test_other_devices(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    options = dict(steps=12, optimiser=optax.adam(0.05), batch_size=8, check_every=3)
    whole = quiet(line(), squares, points(), **options)
    quiet(line(), squares, points(), mesh=mesh, checkpoints=tmp_path, callbacks=stop_at(6), **options)
    found = quiet(line(), squares, points(), checkpoints=tmp_path, **options)
    assert found.n_steps == 12
    np.testing.assert_allclose(found.history.loss, whole.history.loss, rtol=1e-6)


@pytest.mark.parametrize(
    "name, change",
    [
        ("model", dict(model=eqx.tree_at(lambda m: m.slope, line(), jnp.array(0.6)))),
        ("loss", dict(loss=lambda m, b, k: squares(m, b, k) + m.slope)),
        ("data", dict(data=points(30))),
        ("optimiser", dict(optimiser=optax.adam(0.04))),
        ("batch_size", dict(batch_size=6)),
        ("key", dict(key=jax.random.key(1))),
        ("transforms", dict(where=lambda m: m.slope)),
        ("average", dict(average=0.7)),
    ],
)
def test_another_training_is_refused(tmp_path, name, change):
    given = dict(model=line(), loss=squares, data=points(), steps=2, checkpoints=tmp_path, **OPTIONS)
    quiet(**given)
    with pytest.raises(StoreError, match=f"`{name}"):
        quiet(**given | change)
    with pytest.raises(StoreError, match="resume=True"):
        quiet(**given, resume=False)


def test_the_state_is_an_equinox_module_as_given(tmp_path):
    """Names of checkpoints come from the paths of leaves, which two of a model's may share."""
    model = {"a/b": jnp.array(0.0), "a": {"b": jnp.array(0.5)}, "f": eqx.nn.Lambda(jnp.tanh)}
    found = quiet(
        model, lambda m, b, k: (m["a/b"] - 1) ** 2 + (m["a"]["b"] - 1) ** 2, steps=3, checkpoints=tmp_path
    ).model
    assert found["a/b"] != found["a"]["b"] != 0.5
