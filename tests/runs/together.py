"""A sweep, a run and a training that several processes make at once on one store: `together.py FOLDER ME COUNT`."""

import json
import pathlib
import sys
import time

import jax.numpy as jnp
import numpy as np
import optax

import sciml
from sciml import inspect, parallel, training
from sciml.runs import iterate
from sciml.stores import NpzStore, StoreError, ZarrStore

many_blocks = inspect.choose({"runs.frames": 2**8})
many_blocks.__enter__()


def member(x):
    return {"double": 2 * x, "many": x * jnp.ones(3)}


def meet(name):
    """Waits for the others."""
    (folder / f"{name}-{me}").touch()
    deadline = time.monotonic() + 120
    while len(list(folder.glob(f"{name}-*"))) < count:
        assert time.monotonic() < deadline, "the others do not come"
        time.sleep(0.001)


def insist(name, call):
    """Calls again as long as another process writes; returns the result and how often it had to wait."""
    meet(name)
    waited = 0
    while True:
        try:
            return call(), waited
        except StoreError as error:
            assert "is being written by process" in str(error), error
            waited += 1
            time.sleep(0.05)


def slowly(progress):
    time.sleep(0.01)


if __name__ == "__main__":
    folder, me, count = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    said = {}
    for kind in (ZarrStore, NpzStore):
        parallel.sweep(member, np.arange(4.0), block=4, progress=False)
        meet(f"sweep-{kind.__name__}")
        store = kind(folder / f"sweep {kind.__name__}")
        swept = parallel.sweep(member, np.arange(120.0), block=4, store=store, progress=False)
        said[kind.__name__] = bool((swept.values["double"] == 2 * np.arange(120.0)).all())
        options = dict(t0=0.0, t1=4.0, dt=0.01, save_every=0.1, segment_steps=30, checkpoint_every=0.0, progress=slowly)
        run, waited = insist(
            f"run-{kind.__name__}",
            lambda: sciml.simulate(lambda t, y, args: -y, jnp.ones(3), store=kind(folder / f"run {kind}"), **options),
        )
        said[f"run {kind.__name__}"] = [run.values.tobytes().hex(), waited]
    chain, waited = insist(
        "iterate",
        lambda: iterate(
            lambda y: 0.9 * y, jnp.ones(3), 300, save_every=10, segment_steps=30, checkpoint_every=0.0,
            store=folder / "chain", progress=slowly,
        ),
    )  # fmt: skip
    said["iterate"] = [chain.values.tobytes().hex(), waited]
    trained, waited = insist(
        "train",
        lambda: training.train(
            jnp.zeros(3), lambda m, batch, key: jnp.sum((m - 1) ** 2), steps=60, optimiser=optax.sgd(0.01),
            checkpoints=folder / "trained", checkpoint_every=0.0, check_every=1, callbacks=[slowly], progress=False,
        ),
    )  # fmt: skip
    said["train"] = [np.asarray(trained.model).tobytes().hex(), waited]
    print(json.dumps(said))
