"""The results of blocks, put in their places as they come in."""

from typing import Any

import jax
import numpy as np

from ..members._pytree import is_array
from ._executable import BlockResult, is_reduction


class Collected:
    """The results of all members so far, on the host.

    Attributes:
        values: What is kept of each member, with a leading axis of all members.
        status: A code for each member.
        work: Own and executed steps of each member, or None.
        attempts: How often each member has run.
        done: The number of members that have run.
        failed: How many of them failed and have not succeeded since.
        end: One more than the largest number of a member that has run.
    """

    def __init__(self, n: int, like: BlockResult, reduce: Any):
        def whole(x):
            return np.empty((n, *x.shape[1:]), x.dtype) if hasattr(x, "shape") else x

        self.values = jax.tree.map(whole, like.values)
        self.status = np.zeros(n, np.int32)
        self.attempts = np.zeros(n, np.int32)
        self.work = None if like.work is None else np.zeros((n, 2), np.int64)
        self.done = self.failed = self.end = 0
        self._reductions, self._treedef = jax.tree.flatten(reduce, is_leaf=is_reduction)
        self._merged: list[Any] = [None] * len(self._reductions)
        self._waiting: dict[int, Any] = {}
        self._next = 0

    def add(self, number: int, ids: np.ndarray, result: BlockResult) -> None:
        """Puts a block in place. Summaries are merged in the order of the numbers, whenever they come."""
        self._fill(ids, result, np.arange(ids.size))
        self.attempts[ids] = 1
        self.done += ids.size
        self.failed += int(np.count_nonzero(self.status[ids]))
        self.end = max(self.end, int(ids.max()) + 1)
        self._merge(number, result.summaries)

    def add_again(self, number: int, ids: np.ndarray, result: BlockResult) -> None:
        """Puts a block of members that had failed in place, where they succeeded now."""
        self.attempts[ids] += 1
        good = np.flatnonzero(np.asarray(result.status)[: ids.size] == 0)
        self._fill(ids[good], result, good)
        self.failed -= good.size
        self._merge(number, result.summaries)

    @property
    def reduced(self) -> Any:
        """What the reductions make of all members; None where there is none."""
        if not self._reductions:
            return None
        pairs = zip(self._reductions, self._merged, strict=True)
        return jax.tree.unflatten(self._treedef, [r.result(merged) for r, merged in pairs])

    def _fill(self, ids: np.ndarray, result: BlockResult, rows: np.ndarray) -> None:
        def put(whole, part):
            if is_array(whole):
                whole[ids] = np.asarray(part)[rows]

        jax.tree.map(put, self.values, result.values)
        self.status[ids] = np.asarray(result.status)[rows]
        if self.work is not None:
            self.work[ids] = np.asarray(result.work)[rows]

    def _merge(self, number: int, summaries: Any) -> None:
        if not self._reductions:
            return
        # blocks come in any order from an executor, and floating-point sums depend on theirs
        self._waiting[number] = self._treedef.flatten_up_to(summaries)
        while self._next in self._waiting:
            blocks = self._waiting.pop(self._next)
            pairs = zip(self._reductions, self._merged, blocks, strict=True)
            self._merged = [r.merge(merged, block) for r, merged, block in pairs]
            self._next += 1
