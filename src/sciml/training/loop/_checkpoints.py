"""Checkpoints of a training: all that it needs to go on with the same bits."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from ...stores._abstract import AbstractStore
from ...stores._atomic import StoreError
from ...stores._fingerprint import Part, fingerprint
from ...stores._manifest import digest_of_run, open_run
from ...stores._npz_store import NpzStore
from ...stores._pytree_names import check_names
from ._history import HistoryWriter
from ._step import StepState
from ._validation import Best


class Saved(NamedTuple):
    """The point from which a training resumes.

    Attributes:
        state: The state of the steps.
        best: The best weights so far.
        place: The place that came with the last batch.
    """

    state: StepState
    best: Best
    place: np.ndarray | None


class Checkpoints:
    """Writes and reads the checkpoints of one training, of which the last two are kept.

    Args:
        store: The store that holds them.
        every: Seconds between two of them.
        resume: Whether to continue from the contents of the store.
        depends_on: The inputs, by name, that two trainings share if their results are identical.
        program: The program of a step, a part of the fingerprint.

    Raises:
        StoreError: If the store holds another training, or one where `resume` is not set.
    """

    def __init__(self, store: AbstractStore, every: float, resume: bool, depends_on: dict[str, Any], program: Part):
        self._store, self._every = store, every
        found = fingerprint(**depends_on)
        found.parts["program"] = program
        manifest = open_run(store, found, {}, kind="train", resume=resume)
        self._origin = digest_of_run(manifest, store)
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() - self._last >= self._every

    def kept(self) -> str:
        """Returns a message about the checkpoints of an interrupted training; empty if there are none."""
        numbers = self._store.numbers()
        if not numbers:
            return ""
        return f"`train`: {self._store} has a checkpoint after {numbers[-1]} steps; the same call resumes from there."

    def write(self, saved: Saved, history: HistoryWriter) -> None:
        """Writes a checkpoint after the steps so far."""
        best = saved.best
        notes = {
            "best": None if best.weights is None else [best.value, best.step, best.stale],
            "stale": best.stale,
            "place": None if saved.place is None else saved.place.tobytes().decode(),
            "history": history.notes(),
        }
        self._store.put(
            history.steps,
            {
                "origin": self._origin,
                "state": saved.state,
                "best": {} if best.weights is None else best.weights,
                "rows": history.rows(0),
                # in one array, since some stores take none that is empty
                "notes": np.frombuffer(json.dumps(notes).encode(), np.uint8),
            },
        )
        for old in self._store.numbers()[:-2]:
            self._store.remove(old)
        self._last = time.monotonic()

    def resumed(
        self,
        like: StepState,
        like_best: PyTree,
        history: HistoryWriter,
        locks: contextlib.ExitStack,
        is_over: Callable[[Saved], bool],
    ) -> Saved | None:
        """Returns as `read` where to go on; if there is anything left to do, no other run writes here from then on.

        Raises:
            StoreError: If another run writes here, or as for `read`.
            ValueError: If two arrays would be stored by one name.
        """
        check_names({"state": like, "best": like_best})
        try:
            saved = self.read(like, like_best, history)
            if saved is not None and is_over(saved):
                return saved
        except StoreError:  # a run that is under way removes checkpoints while they are read
            pass
        locks.enter_context(self._store.lock())
        return self.read(like, like_best, history)

    def read(self, like: StepState, like_best: PyTree, history: HistoryWriter) -> Saved | None:
        """Returns where to go on, and fills the history; None where the training starts.

        Raises:
            StoreError: If there are checkpoints but none can be read.
        """
        first_error = None
        for number in reversed(self._store.numbers()):
            try:
                return self._read(number, like, like_best, history)
            except StoreError as error:  # the one before may be whole
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return None

    def _read(self, number: int, like: StepState, like_best: PyTree, history: HistoryWriter) -> Saved:
        from ...runs._sharding import read_like  # which takes a while that `import sciml.training` need not pay

        found = self._store.get(number, dict.fromkeys(("origin", "rows", "notes"), object()))
        if not np.array_equal(found["origin"], self._origin):
            raise StoreError(f"Checkpoint {number} in {self._store} belongs to another training. Use another path.")
        notes = json.loads(np.asarray(found["notes"]).tobytes().decode())
        best = Best(stale=notes["stale"])
        wanted = {"state": like} | ({} if notes["best"] is None else {"best": like_best})
        arrays = self._store.get(number, wanted)
        if notes["best"] is not None:
            value, step, stale = notes["best"]
            best = Best(read_like(arrays["best"], like_best), value, step, stale)
        history.restore(np.asarray(found["rows"]), notes["history"])
        place = notes["place"]
        place = None if place is None else np.frombuffer(place.encode(), np.uint8)
        return Saved(read_like(arrays["state"], like), best, place)


def store_of(given: Any) -> AbstractStore:
    """Returns the store that `checkpoints=` names.

    Raises:
        TypeError: If it names none.
    """
    if isinstance(given, str | os.PathLike):
        return NpzStore(given, prefix="checkpoint")
    if not isinstance(given, AbstractStore):
        raise TypeError(
            "`train`: `checkpoints` must be a path or a store such as `sciml.stores.OrbaxStore(path)`, but is "
            f"{given!r}."
        )
    return given
