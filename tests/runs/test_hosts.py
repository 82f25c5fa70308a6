"""A run whose state spans two processes: one writes, all read, and the numbers are those of one process."""

import numpy as np
import pytest

from sciml.runs import read_run

from ..parallel import processes

pytestmark = pytest.mark.x64

PROGRAM = """
import pathlib
import sciml
from sciml import inspect, runs, stores

many_blocks = inspect.choose({"runs.frames": 2**10})
many_blocks.__enter__()
folder = pathlib.Path("FOLDER")
domain = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=4))
wrote = []
put = stores.NpzStore.put
stores.NpzStore.put = lambda self, number, tree: (wrote.append((str(self.path), number)), put(self, number, tree))[1]

def field(t, u, rate):
    def local(u, rate):
        p = domain.pad(u, 1)
        return rate * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u) + u - u**3
    return domain.run(local, u, rate)

def run(name, rate=0.3, **options):
    given = dict(t0=0.0, t1=2.0, dt=0.01, save_every=0.1, segment_steps=30, progress=False, checkpoint_every=0.0)
    return sciml.simulate(field, y0, args=jnp.asarray(rate), store=folder / name, **(given | options))

y0 = domain.split(np.random.default_rng(0).normal(size=(8, 4)))
checkpoints = lambda: stores.OrbaxStore(folder / "orbax" / "checkpoints")
made = {"whole": run("whole")}
for name, options in {"npz": lambda: {}, "orbax": lambda: {"checkpoints": checkpoints()}}.items():
    calls = 1
    while not (made.update({name: run(name, stop=runs.WallTime(0.0), **options())}) or made[name].finished):
        calls += 1
    assert 3 < calls < 12, calls
try:
    run("whole", rate=0.4)
    refused = ""
except stores.StoreError as error:
    refused = str(error)
means = run("means", output=lambda t, u, args: {"mean": u.mean()})
say(
    frames={name: r.values.tobytes().hex() for name, r in made.items()},
    means=means.values["mean"].tolist(),
    reasons=[r.reason for r in made.values()],
    last=domain.gather(made["orbax"].y).tobytes().hex(),
    refused=refused,
    wrote=len(wrote),
)
"""


def test_two_processes_equal_one(tmp_path):
    def both(count, devices):
        folder = tmp_path / str(count)
        return processes.run(PROGRAM.replace("FOLDER", str(folder)), count=count, devices=devices, timeout=500.0)

    ((alone,),) = both(1, 4)
    (first,), (second,) = both(2, 2)
    assert second["wrote"] == 0 and first["wrote"] > 20
    for said in (first, second):
        assert said["frames"] == alone["frames"] and said["last"] == alone["last"]
        np.testing.assert_allclose(said["means"], alone["means"], rtol=1e-12)  # sums over devices have another order
        assert said["reasons"] == alone["reasons"] == ["reached t1 = 2"] * 3
    assert "`args`" in first["refused"] and "process 0" in second["refused"].lower()
    frames = alone["frames"]
    assert frames["whole"] == frames["npz"] == frames["orbax"]
    assert read_run(tmp_path / "2" / "orbax").values.tobytes().hex() == frames["whole"]
