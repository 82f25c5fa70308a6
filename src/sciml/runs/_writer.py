"""A thread that brings frames from the device to a store, in blocks, while the next segment runs."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..stores._abstract import AbstractStore
from ..stores._hosts import Hosts
from ..stores._memory_store import MemoryStore


class FrameWriter:
    """Collects frames into blocks of a fixed number and writes these, and checkpoints, in the order they come.

    What belongs into a block that is not full yet is part of every checkpoint, so that a run resumed from one
    writes the same blocks as one that was never interrupted. The store gets it with each checkpoint as well, for who
    reads a run that is under way.

    Args:
        store: Where blocks go.
        checkpoints: Where checkpoints go, or None for none.
        block: The number of frames in a block.
        ts: The saved times.
        members: The number of members, or None.
        done: The number of frames that were written before.
        pending: Those of them that are not in a full block, or None.
        hosts: The processes that the run spans. All of them collect frames, and the one that leads writes.
        origin: The digest of the run, which every block and checkpoint holds; None where they stay in memory.
    """

    def __init__(
        self,
        store: AbstractStore,
        checkpoints: AbstractStore | None,
        *,
        block: int,
        ts: np.ndarray,
        members: int | None,
        done: int = 0,
        pending: PyTree = None,
        hosts: Hosts = Hosts(),
        origin: np.ndarray | None = None,
    ):
        self._store, self._checkpoints, self._hosts = store, checkpoints, hosts
        self._block, self._ts, self._members = block, ts, members
        self._origin = origin
        self.frames = done
        self._pieces = [pending] if pending is not None else []
        self._queue: queue.Queue = queue.Queue(maxsize=2)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="sciml frames", daemon=True)
        self._thread.start()

    def put(self, values: PyTree, valid: Any, ids: np.ndarray | None) -> None:
        """Takes the frames of a segment, arrays that may still be computed.

        Raises:
            StoreError: If something earlier could not be written.
        """
        self._send(lambda: self._take(values, valid, ids))

    def checkpoint(self, number: int, carried: PyTree) -> None:
        """Writes a checkpoint of what the run resumes from and all frames so far, and removes all but the last two."""
        if self._checkpoints is None:
            return
        if not self._hosts.several:
            self._send(lambda: self._save(number, carried))
            return
        self._queue.join()  # collective operations are launched from the thread that launches programs, in one order
        self._check()
        if self._checkpoints.spans_hosts:
            self._save(number, carried)
        else:
            carried = self._hosts.whole(carried)
            self._hosts.lead(lambda: self._save(number, carried))

    @property
    def failed(self) -> bool:
        """Whether something could not be written."""
        return self._error is not None

    def close(self, flush: bool = True) -> None:
        """Waits until everything is written, and ends the thread.

        Raises:
            StoreError: If something could not be written.
        """
        if flush and self._error is None:
            self._queue.put(self._flush)
        self._queue.put(None)
        self._thread.join()
        self._check()

    def _send(self, job: Callable) -> None:
        self._check()
        self._queue.put(job)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                if self._error is None:
                    job()
            except BaseException as error:  # noqa: BLE001, it is raised where the run is driven
                self._error = error
            finally:
                self._queue.task_done()

    def _take(self, values: PyTree, valid: Any, ids: np.ndarray | None) -> None:
        valid = np.asarray(valid)
        count = int((valid if ids is None else valid.any(0)).sum())
        if count == 0:
            return
        if ids is None:
            piece = jax.tree.map(lambda x: np.asarray(x)[:count], values)
        else:
            piece = jax.tree.map(lambda x: self._spread(np.asarray(x), count, ids), values)
        self._pieces.append(piece)
        self.frames += count
        waiting = sum(map(_length, self._pieces))
        if waiting >= self._block:
            whole = _joined(self._pieces)
            first = self.frames - waiting
            for start in range(0, waiting - waiting % self._block, self._block):
                self._write(first + start, jax.tree.map(lambda x: x[start : start + self._block], whole))
            rest = waiting % self._block
            # a copy, or the few frames that are left would keep the whole array in memory
            self._pieces = [jax.tree.map(lambda x: x[waiting - rest :].copy(), whole)] if rest else []

    def _spread(self, x: np.ndarray, count: int, ids: np.ndarray) -> np.ndarray:
        """Returns frames with times first and all members second; those that run no more are NaN."""
        x = np.moveaxis(x, 0, 1)[:count]
        assert self._members is not None
        blank = np.nan if np.issubdtype(x.dtype, np.inexact) else 0
        whole = np.full((count, self._members, *x.shape[2:]), blank, x.dtype)
        whole[:, ids] = x
        return whole

    def _write(self, first: int, values: PyTree) -> None:
        ts = self._ts[first : first + _length(values)]
        if self._hosts.leads or isinstance(self._store, MemoryStore):
            # a row for each frame, as in every array of a store that lays the blocks end to end
            run = {} if self._origin is None else {"origin": np.tile(self._origin, (len(ts), 1))}
            self._store.put(first // self._block, {"time": ts, "values": values, **run})

    def _flush(self) -> None:
        if self._pieces:
            whole = _joined(self._pieces)
            self._write(self.frames - _length(whole), whole)

    def _save(self, number: int, carried: PyTree) -> None:
        assert self._checkpoints is not None
        self._flush()
        pending = {str(i): x for i, x in enumerate(jax.tree.leaves(_joined(self._pieces)))} if self._pieces else {}
        counts = {"frames": np.int64(self.frames), "leaves": np.int64(len(pending))}
        run = {} if self._origin is None else {"origin": self._origin}
        self._checkpoints.put(number, run | {"carried": carried, "pending": pending, **counts})
        if self._hosts.leads:
            for old in self._checkpoints.numbers()[:-2]:
                self._checkpoints.remove(old)


def _length(tree: PyTree) -> int:
    return jax.tree.leaves(tree)[0].shape[0]


def _joined(pieces: list) -> PyTree:
    return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *xs: np.concatenate(xs), *pieces)
