"""Stored runs, read without what made them."""

import os
from typing import Any

import numpy as np

from ..stores._abstract import AbstractStore
from ..stores._atomic import StoreError
from ..stores._manifest import check_kind, digest_of_run
from ..stores._npz_store import NpzStore
from ._frames import Frames, check_frames
from ._run import Run


def read_run(store: str | os.PathLike | AbstractStore) -> Run:
    """Returns a stored run of `simulate` or `iterate`, finished or not, without its model.

    Frames are returned as arrays by name, or as one array if a frame is an array. Information that a killed call did
    not write is reconstructed as far as possible; `y` is None.

    Args:
        store: The folder that `simulate` wrote npz files to, or the store that it wrote to, such as `ZarrStore(path)`.

    Raises:
        StoreError: If there is no run, or another class of store wrote it.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        field = lambda t, y, args: {"x": y["v"], "v": -y["x"]}
        y0 = {"x": jnp.ones(2), "v": jnp.zeros(2)}
        sciml.simulate(field, y0, t0=0.0, t1=5.0, save_every=0.1, store="waves", progress=False)
        run = sciml.runs.read_run("waves")
        assert len(run) == 51 and run[10]["x"].shape == (2,) and run.reason == "reached t1 = 5"
        ```
    """
    store = store if isinstance(store, AbstractStore) else NpzStore(store)
    manifest = store.read_manifest()
    if manifest is None:
        raise StoreError(f"{store} does not contain a run.")
    check_kind(manifest, ("simulate", "iterate"), store)
    check_frames(store, manifest.get("summary", {}).get("frames", 0))
    numbers = store.numbers()
    ts = [np.asarray(store.get(n, {"time": object()})["time"]) for n in numbers]
    times = np.concatenate(ts) if ts else np.zeros(0)
    found: dict[str, Any] = {
        "finished": False,
        "reason": "the run has not finished a call yet",
        "status": np.int32(0),
        "t_reached": np.float64(times[-1] if len(times) else np.nan),
        "accepted": np.int32(0),
        "rejected": np.int32(0),
        "seconds": 0.0,
    } | manifest.get("summary", {})
    found.pop("frames", None)
    for name in ("status", "accepted", "rejected"):
        found[name] = np.asarray(found[name], np.int32)
    found["t_reached"] = np.asarray(found["t_reached"], np.float64)
    frames = Frames(store, len(times), manifest["block"], None, digest_of_run(manifest, store))
    return Run(frames, store, manifest["members"], space=manifest.get("space"), ts=times, y=None, **found)
