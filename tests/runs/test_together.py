"""Several processes on one store: they work side by side, or are told by name which process to wait for."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sciml
from sciml import training
from sciml.runs import WallTime, iterate
from sciml.stores import AbstractStore, NpzStore, StoreError, ZarrStore, _atomic
from sciml.stores._fingerprint import fingerprint
from sciml.stores._manifest import open_run

pytestmark = pytest.mark.x64

HERE = pathlib.Path(__file__).parent
SRC = pathlib.Path(sciml.__file__).parents[1]


def simulated(folder, **options):
    given = dict(t0=0.0, t1=2.0, dt=0.1, save_every=0.5, segment_steps=5, progress=False)
    return sciml.simulate(lambda t, y, args: -y, jnp.ones(1), store=folder, **given | options)


def iterated(folder, **options):
    return iterate(lambda y: 0.5 * y, jnp.ones(1), 4, save_every=1, store=folder, progress=False, **options)


def trained(folder):
    loss = lambda m, batch, key: m**2  # noqa: E731
    return training.train(jnp.ones(()), loss, steps=2, optimiser=optax.sgd(0.1), checkpoints=folder, progress=False)


def holding(folder, host="", *more):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(HERE / "holding.py"), str(SRC), str(folder), host, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("call", [simulated, iterated, trained])
def test_another_process_is_named_until_it_is_killed(tmp_path, call):
    with holding(tmp_path) as holder:
        pid = int(holder.stdout.readline())
        with pytest.raises(StoreError, match=f"being written by process {pid} on host {socket.gethostname()} since"):
            call(tmp_path)
        holder.send_signal(signal.SIGKILL)
    assert (tmp_path / ".lock").exists()
    call(tmp_path)
    assert not (tmp_path / ".lock").exists()


def test_another_host_is_named_with_the_remedy(tmp_path):
    with holding(tmp_path, "far-away") as holder:
        holder.stdout.readline()
        with pytest.raises(StoreError, match=r"on host far-away since .* If that host has crashed, delete '.*\.lock'"):
            iterated(tmp_path)
        (tmp_path / ".lock").unlink()
        iterated(tmp_path)
        holder.kill()


def test_a_child_does_not_hold_what_its_parent_held(tmp_path):
    with holding(tmp_path, "", "fork") as holder:
        holder.stdout.readline()
        with pytest.raises(StoreError, match="being written by process"):
            iterated(tmp_path)
        holder.kill()
    iterated(tmp_path)


def test_another_thread_is_refused(tmp_path):
    began, end = threading.Event(), threading.Event()

    def wait(progress):
        began.set()
        end.wait(60)

    other = threading.Thread(target=lambda: simulated(tmp_path, progress=wait))
    other.start()
    began.wait(60)
    with pytest.raises(StoreError, match=rf"another run in this process \({os.getpid()}\)"):
        simulated(tmp_path)
    end.set()
    other.join()
    assert simulated(tmp_path).finished


def test_checkpoints_elsewhere_are_locked_too(tmp_path):
    with NpzStore(tmp_path / "checkpoints").lock(), pytest.raises(StoreError, match="checkpoints.* is being written"):
        simulated(tmp_path / "run", checkpoints=NpzStore(tmp_path / "checkpoints"))


@pytest.mark.parametrize("call", [simulated, iterated, trained])
def test_a_run_that_has_ended_is_only_read(tmp_path, monkeypatch, call):
    """Any number of processes may read it at once, also from a folder that they may not write to."""
    call(tmp_path)

    def refuse(*args, **options):
        raise AssertionError("nothing is to be written")

    for name in ("write", "make_folder", "create"):
        monkeypatch.setattr(_atomic, name, refuse)
    monkeypatch.setattr(AbstractStore, "lock", refuse)
    call(tmp_path)


def test_a_run_that_has_not_ended_needs_the_lock(tmp_path):
    assert not simulated(tmp_path, stop=WallTime(0.0)).finished
    with NpzStore(tmp_path).lock(), pytest.raises(StoreError, match="is being written"):
        simulated(tmp_path)
    assert simulated(tmp_path).finished


def test_blocks_that_come_with_a_manifest_meanwhile(tmp_path):
    class Early(NpzStore):
        """Was looked at before the other run had written manifest and block."""

        reads = 0

        def read_manifest(self):
            self.reads += 1
            return None if self.reads == 1 else super().read_manifest()

    found = fingerprint(rate=1.0)
    open_run(NpzStore(tmp_path), found, {}, kind="sweep", resume=True)
    NpzStore(tmp_path).put(0, {"u": np.zeros(1)})
    assert open_run(Early(tmp_path), found, {}, kind="sweep", resume=True)["kind"] == "sweep"


def test_processes_at_once(tmp_path):
    pytest.importorskip("zarr")
    env = os.environ | {"PYTHONPATH": str(SRC), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(HERE / "together.py"), str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(i), "3"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for i in range(3)
    ]
    outs = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outs
    said = [json.loads(out) for out, _ in outs]
    assert all(one["ZarrStore"] and one["NpzStore"] for one in said)
    for name in ("run ZarrStore", "run NpzStore", "iterate", "train"):
        assert len({one[name][0] for one in said}) == 1
        assert sum(one[name][1] for one in said) > 0  # somebody had to wait
    assert ZarrStore(tmp_path / "sweep ZarrStore").numbers() == list(range(30))
    assert not list(tmp_path.rglob("*.lock"))


def test_members_on_explicit_axes_are_refused_by_name():
    mesh = jax.make_mesh((2,), ("members",), axis_types=(jax.sharding.AxisType.Explicit,))
    rates = jax.device_put(jnp.ones(4), jax.NamedSharding(mesh, jax.P("members")))
    with pytest.raises(ValueError, match="in_axes.*explicit mesh axes.*AxisType.Auto"):
        sciml.simulate(
            lambda t, y, a: -a * y, jnp.ones(2), t0=0.0, t1=1.0, args=rates, in_axes=(None, None, 0), dt=0.1,
            progress=False,
        )  # fmt: skip
