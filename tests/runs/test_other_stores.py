"""Stores that need packages of their own."""

import errno
import itertools
import json
import logging
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import verify
from sciml.runs import WallTime, read_run
from sciml.stores import OrbaxStore, StoreError, ZarrStore

pytestmark = pytest.mark.x64


def wave(t, y, args):
    return {"x": y["v"], "v": -y["x"]}


def call(**options):
    given = dict(t0=0.0, t1=6.0, dt=0.01, save_every=0.1, segment_steps=100, progress=False)
    return sciml.simulate(wave, {"x": jnp.ones(2), "v": jnp.zeros(2)}, **(given | options))


def test_zarr(tmp_path, monkeypatch, choose):
    zarr = pytest.importorskip("zarr")
    choose({"runs.frames": 2**9})
    whole = call(store=tmp_path / "npz")
    run = call(store=ZarrStore(tmp_path / "run"), stop=WallTime(0.0))
    assert not run.finished
    run = call(store=ZarrStore(tmp_path / "run"))
    assert len(run.store.numbers()) > 2 and run.store.numbers() == whole.store.numbers()
    for found in (run, read_run(ZarrStore(tmp_path / "run"))):
        assert found.values["x"].tobytes() == whole.values["x"].tobytes()
    group = zarr.open_group(tmp_path / "run" / "frames.zarr", mode="r")
    assert group["values.x"].shape == (61, 2) and group["values.x"].chunks[0] == whole.store.read_manifest()["block"]
    np.testing.assert_array_equal(group["time"][:], whole.ts)

    count = itertools.count()
    verify.check_store(lambda: ZarrStore(tmp_path / str(next(count))), reopen=lambda store: ZarrStore(store.path))
    store = ZarrStore(tmp_path / "any")
    store.put(2, {"a": np.arange(3)})
    store.put(0, {"a": np.arange(3) + 10})
    store.put(3, {"a": np.arange(1)})
    assert store.numbers() == [0, 2, 3] and store.get(0)["a"].tolist() == [10, 11, 12]
    store.remove(0)
    assert store.numbers() == [2, 3]
    with pytest.raises(StoreError, match="has no block 0"):
        store.get(0)
    with pytest.raises(StoreError, match="4 rows, but the others have 3"):
        store.put(5, {"a": np.arange(4)})
    with pytest.raises(StoreError, match="`NpzStore` supports all arrays"):
        store.put(4, {"a": np.arange(3), "b": np.arange(2)})
    with pytest.raises(StoreError, match="`NpzStore` supports all arrays"):
        store.put(4, {"a": jnp.zeros(3, jnp.bfloat16)})

    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zarr.Array, "__setitem__", refuse)
    with pytest.raises(StoreError, match="Block 6 of .* No space left on device. Everything written before is intact"):
        store.put(6, {"a": np.arange(3)})
    assert store.numbers() == [2, 3] and store.get(2)["a"].tolist() == [0, 1, 2]


NAMES = {
    "slash and point": {"a": {"b": 1.0}, "a.b": 2.0},
    "capitals": {"S": 1.0, "s": 2.0},
    "two ways to write a letter": {"\u00e9": 1.0, "e\u0301": 2.0},
    "ending": {"a": 1.0, "a.npy": 2.0},
    "reserved": {
        "zarr.json": 1.0,
        "__a": 2.0,
        ".": 3.0,
        "..": 4.0,
        "": 5.0,
        " ": 6.0,
        "a|b": 7.0,
        "c\0d": 8.0,
        "c": 9.0,
    },
    "long": {300 * "a": 1.0, 300 * "a" + "b": 2.0},
    "escaped": {"a~b": 1.0, "a\\b": 2.0, "a:b": 3.0},
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("make", [sciml.stores.NpzStore, ZarrStore, OrbaxStore])
def test_names_that_are_alike_are_kept_apart(tmp_path, make, names):
    pytest.importorskip({ZarrStore: "zarr", OrbaxStore: "orbax.checkpoint"}.get(make, "numpy"))
    tree = jax.tree.map(lambda x: np.full(2, x), NAMES[names])
    make(tmp_path).put(1, tree)
    back = make(tmp_path).get(1, tree)
    assert jax.tree.map(lambda x: x.tolist(), back) == jax.tree.map(lambda x: x.tolist(), tree)


def test_zarr_frames_of_names_that_are_alike(tmp_path):
    pytest.importorskip("zarr")
    y0 = {"a": {"b": jnp.ones(1)}, "a.b": 2 * jnp.ones(1)}
    options = dict(t0=0.0, t1=1.0, dt=0.1, save_every=0.5, progress=False, store=ZarrStore(tmp_path))
    run = sciml.simulate(lambda t, y, args: jax.tree.map(jnp.negative, y), y0, **options)
    np.testing.assert_allclose(run.values["a.b"], 2 * run.values["a"]["b"])
    assert read_run(ZarrStore(tmp_path))[0] == {"a/b": 1.0, "a.b": 2.0}


def test_zarr_blocks_of_before_are_read(tmp_path):
    pytest.importorskip("zarr")
    ZarrStore(tmp_path).put(0, {"a": {"b": np.arange(3)}, "c": np.ones(3)})
    marker = tmp_path / "blocks" / "0000000.json"
    found = json.loads(marker.read_text())
    found["names"] = list(found.pop("arrays"))
    marker.write_text(json.dumps(found))
    assert ZarrStore(tmp_path).get(0)["a/b"].tolist() == [0, 1, 2]


def test_equal_names_are_refused_before_the_run(tmp_path):
    y0 = {"a/b": jnp.ones(1), "a_b": jnp.ones(1)}
    for call in (
        lambda: sciml.simulate(
            lambda t, y, args: y, y0, t0=0.0, t1=1.0, dt=0.1, store=tmp_path / "run", progress=False
        ),
        lambda: sciml.parallel.sweep(
            lambda x: {"a/b": x, "a_b": x}, np.ones(2), store=tmp_path / "sweep", progress=False
        ),
    ):
        with pytest.raises(ValueError, match="Two arrays would both be stored as `.*a_b`"):
            call()
    assert not list(tmp_path.iterdir())


def test_a_spread_state_takes_every_segment_by_one_program(caplog):
    """Two programs, for the layout of the start and for that of what a segment leaves, may round differently."""
    layout = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P("x"))
    field = lambda t, y, args: jnp.roll(y, 1) - y  # noqa: E731
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        y0 = jax.device_put(jnp.arange(8.0), layout)
        run = sciml.simulate(field, y0, t0=0.0, t1=3.0, rtol=1e-5, save_every=0.1, segment_steps=10, progress=False)
    assert run.reason == "reached t1 = 3" and run.y.sharding.is_equivalent_to(layout, 1)
    assert sum(bool(re.match(r"Compiling (jit\()?advance", record.getMessage())) for record in caplog.records) == 1


def test_orbax(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    layout = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P("x"))
    store = OrbaxStore(tmp_path / "any")
    tree = {"u": jax.device_put(jnp.arange(8.0), layout), "key": jax.random.key(3), "n": np.int64(5)}
    store.put(4, tree)
    back = store.get(4, tree)
    assert back["u"].sharding == layout and back["u"].tolist() == tree["u"].tolist() and int(back["n"]) == 5
    assert jax.random.key_data(back["key"]).tolist() == jax.random.key_data(tree["key"]).tolist()
    assert store.numbers() == [4] and float(store.get(4)["u"][3]) == 3.0
    store.remove(4)
    with pytest.raises(StoreError, match="has no block 4"):
        store.get(4)

    y0 = jax.device_put(jnp.arange(8.0), layout)  # a state over four devices

    def run(folder, **options):
        given = dict(t0=0.0, t1=3.0, rtol=1e-5, save_every=0.1, segment_steps=10, progress=False)
        field = lambda t, y, args: jnp.roll(y, 1) - y  # noqa: E731
        checkpoints = OrbaxStore(tmp_path / folder / "checkpoints")
        return sciml.simulate(field, y0, store=tmp_path / folder, checkpoints=checkpoints, **(given | options))

    whole = run("whole")
    calls = 1
    while not (parts := run("parts", stop=WallTime(0.0))).finished:
        calls += 1
    assert calls > 1 and parts.values.tobytes() == whole.values.tobytes()
