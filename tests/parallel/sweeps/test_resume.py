"""Nothing is lost: blocks on disk, resumed sweeps, sweeps that are killed."""

import concurrent.futures
import contextlib
import errno
import functools as ft
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import SolveError, parallel
from sciml.stores import AbstractStore, NpzStore, StoreError

from ..common import RHO, devices, lorenz, same_bits
from . import sweep_spec

pytestmark = pytest.mark.x64  # in float32 all the same; once is enough


def quiet(*args, **options):
    """A sweep on one device, for which alone it compiles, unless others are named."""
    return parallel.sweep(*args, **{"progress": False, "mesh": devices(1)} | options)


ROOT = pathlib.Path(__file__).resolve().parents[3]


class Stop(Exception):
    pass


def until(members):
    """Progress that stops a sweep once so many members are done."""

    def report(progress):
        if progress.done >= members:
            raise Stop

    return report


@pytest.mark.parametrize("first, then", [(3, 8), (2, 1)])
def test_resumed_on_other_devices_with_the_same_bits(tmp_path, first, then):
    whole = quiet(lorenz, RHO, block=8, mesh=devices(1))
    with pytest.raises(Stop):
        parallel.sweep(lorenz, RHO, block=8, mesh=devices(first), store=tmp_path, progress=until(40))
    there = len(list(tmp_path.glob("*.npz")))
    assert 5 <= there < 13
    seen = []
    result = parallel.sweep(lorenz, RHO, mesh=devices(then), store=tmp_path, progress=lambda p: seen.append(p.done))
    assert same_bits(result.values, whole.values) and result.block == 8
    assert len(seen) == 13 and seen[-1] == 101
    again = quiet(lorenz, RHO, store=tmp_path)
    assert same_bits(again.values, whole.values) and same_bits(again.status, whole.status)


def test_nothing_runs_where_all_is_there(tmp_path, monkeypatch):
    members = {"a": np.arange(10.0), "b": np.arange(10)}
    key = jax.random.key(0)

    def fn(p, key):
        return {
            "x": p["a"] + jax.random.normal(key),
            "n": p["b"] > 3,
            "text": "label",
            "h": p["a"].astype(jnp.bfloat16),
        }

    first = quiet(fn, members, key=key, block=3, store=tmp_path)
    monkeypatch.setattr("sciml.parallel.sweeps._executable.Executable.run", None)
    second = quiet(fn, members, key=key, block=3, store=tmp_path)
    assert second.values["text"] == "label" and second.values["h"].dtype == jnp.bfloat16
    for name in ("x", "n", "h"):
        assert same_bits(first.values[name], second.values[name])


def test_reductions_are_resumed(tmp_path):
    reduce = {"mean": parallel.Mean(), "top": parallel.TopK(3, by=lambda y: y[0]), "q": parallel.Quantiles(0.5)}
    run = ft.partial(parallel.sweep, lorenz, RHO, reduce=reduce, block=8)
    with pytest.raises(Stop):
        run(store=tmp_path, progress=until(40))
    assert same_bits(run(store=tmp_path, progress=False).reduced, run(progress=False, mesh=devices(3)).reduced)


def line(x, s, slope=1.0):
    return slope * x + s


def curve(x, s, slope=1.0):
    return slope * x * x + s


X = np.arange(6, dtype=np.float32)
S = np.float32(1.0)


@pytest.mark.parametrize(
    "fn, params, shared, options, differs",
    [
        (curve, X, S, {}, "function"),
        (ft.partial(line, slope=2.0), X, S, {}, "function"),
        (line, X + 1, S, {}, "members"),
        (line, X, S + 1, {}, "shared"),
        (line, X, S, {"block": 3}, "block"),
        (line, X, S, {"batching": "sorted", "cost": X}, "batching"),
        (line, X, S, {"output": jnp.negative}, "function`: .* with output="),
    ],
)
def test_another_sweep_is_refused(tmp_path, fn, params, shared, options, differs):
    """The message names what differs, and not the program that follows from it."""
    quiet(line, X, S, block=2, store=tmp_path)
    with pytest.raises(StoreError, match=f"contains a different run, so it cannot be resumed:\n  `{differs}"):
        quiet(fn, params, shared, **{"block": 2} | options, store=tmp_path)
    np.testing.assert_array_equal(quiet(line, X, S, block=2, store=tmp_path).values, X + 1)  # it is as it was


def test_functions_of_other_names_are_the_same(tmp_path):
    """They count by their program: a sweep that began in a script goes on where its functions are imported."""

    def renamed(x, s, slope=1.0):
        return slope * x + s

    first = quiet(line, X, S, block=2, output=lambda y: -y, store=tmp_path)
    again = quiet(renamed, X, S, block=2, output=jnp.negative, store=tmp_path)
    np.testing.assert_array_equal(first.values, again.values)


def test_keys_and_generators_are_told_apart(tmp_path):
    quiet(lambda p, k: p, X, key=jax.random.key(0), store=tmp_path / "a")
    with pytest.raises(StoreError, match="`key`"):
        quiet(lambda p, k: p, X, key=jax.random.key(1), store=tmp_path / "a")
    quiet(jnp.sin, parallel.generate(lambda i: i.astype(jnp.float32), 6), store=tmp_path / "b")
    with pytest.raises(StoreError, match="`generator`"):
        quiet(jnp.sin, parallel.generate(lambda i: -i.astype(jnp.float32), 6), store=tmp_path / "b")
    with pytest.raises(StoreError, match="already contains a run"):
        quiet(jnp.sin, parallel.generate(lambda i: i.astype(jnp.float32), 6), store=tmp_path / "b", resume=False)


def test_versions_are_told_apart(tmp_path, monkeypatch):
    quiet(line, X, S, store=tmp_path)
    from sciml.stores import _fingerprint

    monkeypatch.setattr(_fingerprint, "_versions", lambda: {"jax": "0.1"})
    with pytest.raises(StoreError, match="`versions`"):
        quiet(line, X, S, store=tmp_path)


def test_on_fail_raise_leaves_the_blocks(tmp_path):
    x = X.copy()
    x[4] = np.nan
    with pytest.raises(SolveError, match="1 of 6 members failed"):
        quiet(line, x, S, block=2, store=tmp_path, on_fail="raise", mesh=devices(1))
    assert quiet(line, x, S, block=2, store=tmp_path).failed.tolist() == [4]


def test_interrupted_from_the_keyboard(tmp_path):
    """The error says what is there, and the result how much of it was not run again."""

    def stop(progress):
        if progress.done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        quiet(line, X, S, block=2, store=tmp_path, progress=stop)
    there = 2 * len(list(tmp_path.glob("*.npz")))
    assert f"{there} of 6 members are in NpzStore" in stopped.value.__notes__[0] and 4 <= there <= 6
    result = quiet(line, X, S, block=2, store=tmp_path)
    assert result.stored == there and f"6 successful; {there} were in the store" in result.summary()
    assert quiet(line, X, S, block=2).stored == 0


def wide(x):
    return x * jnp.ones(2000, np.float32)


def test_a_full_disk(tmp_path):
    """The limit on the size of a file stands for the disk: the system refuses to write more."""
    run = ft.partial(quiet, wide, block=2, store=tmp_path, mesh=devices(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with pytest.raises(Stop):
        parallel.sweep(wide, X, block=2, store=tmp_path, mesh=devices(1), progress=until(2))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, hard))
        with pytest.raises(StoreError, match="(?s)could not be written.*Everything written before is intact"):
            run(X)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["block_0000000.npz", "manifest.json"]
    assert same_bits(run(X).values, quiet(wide, X, block=2).values)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used|not a folder"):
        quiet(line, X, S, store=tmp_path / "file" / "store")

    def refuse(*args, **kwargs):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pathlib.Path, "touch", refuse)
    with pytest.raises(StoreError, match="(?s)Permission denied.*not permitted"):
        quiet(line, X, S, store=tmp_path / "store")


def start(store, **environment):
    """A process that runs the sweep of sweep_spec.py."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "SPEC_STORE": str(store), **environment}
    env |= {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen([sys.executable, sweep_spec.__file__], stdout=subprocess.PIPE, text=True, env=env)


def kill_at(store, block):
    """Kills the sweep when its process says that so many blocks are done, and checks what it leaves."""
    with start(store, SPEC_DELAY="0.01") as process:
        for number, _ in enumerate(process.stdout, 1):
            if number == block:
                process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    for path in store.glob("*.npz"):
        with np.load(path) as file:
            assert all(np.isfinite(file[name]).all() for name in file.files)


def resumed(store):
    with jax.enable_x64(False):
        return quiet(**{**sweep_spec.sweep(), "store": store})


def test_killed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_STORE", str(tmp_path))
    kill_at(tmp_path, 4)
    there = len(list(tmp_path.glob("*.npz")))
    assert 4 <= there < 13
    assert same_bits(resumed(tmp_path).values, resumed(None).values)


def test_killed_ten_times(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_STORE", str(tmp_path))
    monkeypatch.setenv("SPEC_BLOCK", "2")  # 51 blocks
    chance = random.Random(0)
    expected = resumed(None).values
    for iteration in range(10):
        # after a resumed start the blocks that are there are reported at once
        there = len(list(tmp_path.glob("*.npz")))
        if iteration % 2:
            kill_at(tmp_path, min(there + chance.randint(1, 5), 50))
        else:  # at any moment, be it in the middle of a file
            with start(tmp_path) as process:
                process.stdout.readline()
                try:
                    process.wait(chance.uniform(0, 0.02))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
        if len(list(tmp_path.glob("*.npz"))) == 51:
            for path in chance.sample(sorted(tmp_path.glob("*.npz")), 30):
                path.unlink()  # it was too quick: half of it again
    assert same_bits(resumed(tmp_path).values, expected)
    assert not list(tmp_path.glob(".*.tmp"))


def test_damaged_files_are_computed_again(tmp_path):
    quiet(line, X, S, block=2, store=tmp_path)
    path = tmp_path / "block_0000001.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="recomputes block 1 of the store: .*block_0000001.npz"):
        found = quiet(line, X, S, block=2, store=tmp_path)
    np.testing.assert_array_equal(found.values, X + 1)
    np.testing.assert_array_equal(quiet(line, X, S, block=2, store=tmp_path).values, X + 1)


def test_a_block_of_another_run_is_computed_again(tmp_path):
    quiet(line, X, S, block=2, store=tmp_path / "one")
    quiet(line, X, 3 * S, block=2, store=tmp_path / "two")
    (tmp_path / "two" / "block_0000001.npz").replace(tmp_path / "one" / "block_0000001.npz")
    np.testing.assert_array_equal(quiet(line, X, S, block=2, store=tmp_path / "one").values, X + 1)


def test_two_sweeps_that_open_one_new_store_at_once(tmp_path, monkeypatch):
    barrier = threading.Barrier(2)

    def read(store):
        found = AbstractStore.read_manifest(store)
        if found is None and barrier.n_waiting < 2 and not barrier.broken:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(timeout=30)
        return found

    monkeypatch.setattr(NpzStore, "read_manifest", read)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(quiet, line, X, s, block=2, store=tmp_path) for s in (S, 3 * S)]
    refused = [future.exception() for future in futures]
    assert sorted(error is None for error in refused) == [False, True]
    assert "contains a different run" in str(next(error for error in refused if error))
    monkeypatch.undo()
    s = S if refused[0] is None else 3 * S
    np.testing.assert_array_equal(quiet(line, X, s, block=2, store=tmp_path).values, X + s)


@pytest.mark.parametrize("text", ["[]", "3", '{"format": 3, "kind": "sweep", "fingerprint": null}', "null", "{"])
def test_a_manifest_of_another_shape(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"manifest"):
        quiet(line, X, S, block=2, store=tmp_path)


def test_a_damaged_zarr_block_is_computed_again(tmp_path):
    pytest.importorskip("zarr")
    from sciml.stores import ZarrStore

    quiet(line, X, S, block=2, store=ZarrStore(tmp_path))
    (tmp_path / "frames.zarr" / "values" / "c" / "1").unlink()
    with pytest.warns(UserWarning, match="recomputes block 1 of the store"):
        found = quiet(line, X, S, block=2, store=ZarrStore(tmp_path))
    np.testing.assert_array_equal(found.values, X + 1)


def test_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    from sciml.stores import ZarrStore

    members = {"x": X, "w": np.ones((6, 2), np.float32)}

    def fn(p):
        return {"y": p["x"] * p["w"], "n": p["x"] > 2}

    with pytest.raises(Stop):
        parallel.sweep(fn, members, block=4, store=ZarrStore(tmp_path), mesh=devices(1), progress=until(4))
    result = quiet(fn, members, store=ZarrStore(tmp_path))
    assert same_bits(result.values, quiet(fn, members, block=4).values) and result.block == 4
    assert zarr.open_group(tmp_path / "frames.zarr", mode="r")["values.y"].shape == (6, 2)
    for options in ({"reduce": parallel.Mean()}, {"on_fail": parallel.Retry([fn])}):
        with pytest.raises(ValueError, match="does not support reductions and retries"):
            quiet(fn, members, store=ZarrStore(tmp_path), **options)
