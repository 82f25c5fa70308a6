"""SIGKILL at random moments of a run: what is resumed has the bits of an undisturbed run, and no file is torn."""

import os
import pathlib
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from sciml.runs import read_run
from sciml.stores import NpzStore

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(folder, kind, *after):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    }
    command = [sys.executable, str(ROOT / "tests" / "runs" / "killed.py"), str(folder), kind, *map(str, after)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def bits(folder):
    return {p.name: p.read_bytes() for p in pathlib.Path(folder).glob("*.npz")}


def interrupted(tmp_path, kind, moments):
    """Kills a run at some moments, lets it end, and compares; returns how many files there were at each kill."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    done = start(whole, kind)
    assert done.returncode == 0, done.stderr
    seen, last = [], None
    for moment in moments:
        killed = start(parts, kind, *moment)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        for folder, prefix in ((parts, "block"), (parts / "checkpoints", "checkpoint")):
            store = NpzStore(folder, prefix=prefix)
            for number in store.numbers():
                store.get(number)
        reasons = "the run has not finished a call yet", done.stdout  # it may be killed on its very last steps
        assert read_run(parts).reason in reasons
        seen.append(len(bits(parts)))
    last = start(parts, kind)
    assert last.returncode == 0 and last.stdout == done.stdout, last.stderr
    assert bits(parts) == bits(whole) and len(bits(whole)) > 5
    assert not list(parts.rglob(".*.tmp"))
    one, two = read_run(whole), read_run(parts)
    assert one.status.tolist() == two.status.tolist() and one.accepted.tolist() == two.accepted.tolist()
    assert np.array_equal(one.t_reached, two.t_reached)
    return seen


@pytest.mark.x64
def test_one_kill(tmp_path):
    assert interrupted(tmp_path, "one", [(9, 0.0)])


@pytest.mark.x64
def test_kills_of_a_run_with_orbax(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    assert len(interrupted(tmp_path, "spread", [(3, 0.0), (2, 0.05)])) == 2


@pytest.mark.parametrize("kind, kills", [("one", 10), ("many", 5)])
def test_many_kills(tmp_path, kind, kills):
    chance = random.Random(kind)
    seen = interrupted(tmp_path, kind, [(chance.randrange(2, 6), chance.uniform(0.0, 0.02)) for _ in range(kills)])
    assert len(seen) == kills and len(set(seen)) > 2
