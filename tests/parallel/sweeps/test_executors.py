"""Sweeps on executors of several kinds, and from the command line."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import parallel
from sciml.parallel.sweeps import _driver, _executable
from sciml.parallel.sweeps._cli import main
from sciml.parallel.sweeps._driver import Patience
from sciml.parallel.sweeps._executable import BlockResult

from ..common import RHO, devices, lorenz, same_bits
from . import sweep_spec

pytestmark = pytest.mark.x64  # in float32 all the same; once is enough


def quiet(*args, **options):
    """A sweep on one device, for which alone it compiles, unless others are named."""
    return parallel.sweep(*args, **{"progress": False, "mesh": devices(1)} | options)


ROOT = pathlib.Path(__file__).resolve().parents[3]


class Unruly(concurrent.futures.Executor):
    """Runs tasks late, in another order, twice, or not at all and raises."""

    def __init__(self):
        self.chance = random.Random(0)
        self.tasks = []
        self.raised = self.ran = 0

    def submit(self, fn, /, *args, **kwargs):
        future = concurrent.futures.Future()
        self.tasks.append((future, fn, args))
        if len(self.tasks) >= 5 or self.ran > 8:
            self.chance.shuffle(self.tasks)
            for future_, fn_, args_ in self.tasks:
                self.ran += 1
                if self.ran % 4 == 1:
                    self.raised += 1
                    future_.set_exception(OSError("the worker is gone"))
                else:
                    fn_(*args_)
                    future_.set_result(fn_(*args_))
            self.tasks.clear()
        return future


def test_an_executor_that_reorders_duplicates_and_raises(tmp_path):
    reduce = {"mean": parallel.Mean(), "top": parallel.TopK(3, by=lambda y: y[0])}
    unruly = Unruly()
    found = quiet(lorenz, RHO, block=8, executor=unruly, store=tmp_path)
    assert unruly.raised > 2
    assert same_bits(found.values, quiet(lorenz, RHO, block=8).values)
    assert same_bits(quiet(lorenz, RHO, block=8, store=tmp_path).values, found.values)
    again = quiet(lorenz, RHO, block=8, executor=Unruly(), reduce=reduce)
    assert same_bits(again.reduced, quiet(lorenz, RHO, block=8, reduce=reduce).reduced)


def test_threads_and_retries():
    def fn(x, s, key, *, limit=3.0):
        return {"y": jnp.where(x > limit, jnp.nan, x + s), "label": "y"}

    x = np.arange(9, dtype=np.float32)
    options = dict(key=jax.random.key(0), block=2, on_fail=parallel.Retry([{"limit": 6.0}]))
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        found = quiet(fn, x, np.float32(1), executor=executor, **options)
    assert found.failed.tolist() == [7, 8] and found.attempts.tolist() == [1] * 4 + [2] * 5
    assert found.values["label"] == "y" and same_bits(found.values["y"][:7], x[:7] + 1)


def test_a_block_that_always_fails():
    class Broken(concurrent.futures.Executor):
        tasks = 0

        def submit(self, fn, /, *args, **kwargs):
            self.tasks += 1
            future = concurrent.futures.Future()
            future.set_exception(ValueError("no such thing"))
            return future

    broken = Broken()
    with pytest.raises(RuntimeError, match="block . failed 3 times on the executor.*ValueError: no such thing"):
        quiet(lambda x: x, np.ones(4), block=1, executor=broken)
    executor = concurrent.futures.ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="the executor no longer accepts blocks"):
        quiet(lambda x: x, np.ones(4), block=1, executor=executor)


def in_float32(**options):
    with jax.enable_x64(False):
        return quiet(**{**sweep_spec.sweep(), **options})


def workers(monkeypatch):
    """An environment from which workers import what the tests do."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))


def test_processes(tmp_path, monkeypatch):
    workers(monkeypatch)
    monkeypatch.setenv("SPEC_STORE", str(tmp_path))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        found = in_float32(executor=executor)
        with pytest.raises(RuntimeError, match="Workers must be able to import"):
            quiet(lambda x: x, np.ones(4), executor=executor)
    assert same_bits(found.values, in_float32(store=None).values)


@pytest.mark.filterwarnings("ignore")
def test_forks_are_refused():
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        with pytest.raises(ValueError, match=r"forks of this process, in which JAX hangs.*get_context\('spawn'\)"):
            quiet(lorenz, RHO, executor=executor)


def test_dask(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    workers(monkeypatch)
    monkeypatch.setenv("SPEC_STORE", str(tmp_path))
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client, client.get_executor() as executor:
        found = in_float32(executor=executor)
        here = quiet(lambda x: x * jnp.float32(2), RHO, block=8, executor=executor)  # functions go by value
    assert same_bits(found.values, in_float32(store=None).values)
    assert same_bits(here.values, 2 * RHO)


def test_shards_and_what_merges_them(tmp_path, monkeypatch, capsys):
    spec = tmp_path / "a_spec.py"
    spec.write_text(
        "import numpy as np\nimport os\nfrom tests.parallel.common import RHO, lorenz\n"
        "def sweep():\n    return dict(fn=lorenz, params=RHO, block=8, store=os.environ['SPEC_STORE'])\n"
    )
    monkeypatch.setenv("SPEC_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for shard in (2, 0):
        assert main(["run", str(spec), "--shard", f"{shard}/3"]) == 0
    printed = capsys.readouterr().out
    assert "shard 2/3: 4 of 13 blocks in" in printed and "0 of 37 members failed" in printed
    assert len(list((tmp_path / "store").glob("*.npz"))) == 9
    assert main(["run", str(spec)]) == 0
    assert "101 members in" in capsys.readouterr().out
    assert same_bits(quiet(lorenz, RHO, store=tmp_path / "store").values, quiet(lorenz, RHO, block=8).values)


@pytest.mark.parametrize(
    "text, arguments, message",
    [
        (None, [], "does not exist"),
        ("x = 1", [], "must define a function `sweep()`"),
        ("def sweep():\n    return dict(fn=abs, params=[1.0])", [], "must include a `store`"),
        ("x = 1\n\ny = 1 / 0", [], "bad_spec.py raised ZeroDivisionError in line 3: division by zero"),
        ("def sweep():\n    return dict(fn=run)", [], "bad_spec.py raised NameError in line 2: name 'run'"),
        ("def sweep()\n    return 1", [], "bad_spec.py raised SyntaxError in line 1"),
        ("def sweep():\n    return 1", [], "must return a dictionary of arguments, but returned a int"),
        ("x = 1", ["--shard", "3/3"], "K from 0 to N - 1, got '3/3'"),
    ],
)
def test_bad_specs(tmp_path, monkeypatch, capsys, text, arguments, message):
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = tmp_path / "bad_spec.py"
    if text is not None:
        spec.write_text(text)
    with pytest.raises(SystemExit) as info:
        main(["run", str(spec), *arguments])
    assert info.value.code == 2 and message in capsys.readouterr().err


def test_the_command_in_processes_of_its_own(tmp_path):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "SPEC_STORE": str(tmp_path / "store")}
    command = [sys.executable, "-m", "sciml.parallel", "run", sweep_spec.__file__]
    shards = [subprocess.Popen([*command, "--shard", f"{k}/2"], env=environment) for k in range(2)]
    assert [shard.wait(300) for shard in shards] == [0, 0]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert "101 members in" in done.stdout and "101 successful" in done.stdout


def test_a_sweep_says_what_it_waits_for(caplog, monkeypatch):
    class Slow:
        """An array that is not there for a while."""

        shape, dtype = (1,), np.dtype(float)

        def devices(self):
            return {"a device"}

        def __array__(self, dtype=None, copy=None):
            time.sleep(0.2)
            return np.ones(1)

    monkeypatch.setattr(_driver, "is_array", lambda x: isinstance(x, Slow))
    monkeypatch.setattr(_executable, "is_array", lambda x: isinstance(x, Slow))
    monkeypatch.setattr(Patience, "first", 0.05)
    Patience(1).fetch(3, BlockResult(Slow(), None, None, None))
    assert "block 3 on a device is not done after 0.05 s" in caplog.text
    caplog.clear()
    monkeypatch.setattr(Patience, "first", 60.0)
    Patience(1).fetch(4, BlockResult(Slow(), None, None, None))
    assert not caplog.text
