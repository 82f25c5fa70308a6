"""The members of a run: which of them are in the lanes, and what became of those that are done."""

from typing import Any

import jax
import numpy as np

from .._choices import choices
from .segments._abstract import Carry
from .segments._in_axes import Inputs


class ActiveMembers:
    """Which members are in the lanes, in the order of their numbers, and the last state of all.

    When at most half of the lanes hold a member that still runs, these members move into fewer lanes.
    Whether they do depends on the segment's own input alone, so that a run that was interrupted does the same.

    Args:
        inputs: Of all members.
        carry: Of all members, on the device.
        ids: The members in the lanes, or None for all.
    """

    def __init__(self, inputs: Inputs, carry: Carry, ids: np.ndarray | None = None):
        self._all = inputs
        self._archive = jax.tree.map(np.array, carry.member) if inputs.members is not None else carry.member
        self.ids = None if inputs.members is None else np.arange(inputs.members)
        self.inputs, self.carry = inputs, carry
        if ids is not None and self.ids is not None and len(ids) < len(self.ids):
            self._choose(ids, carry.reached)

    def compact(self, done: np.ndarray) -> None:
        """Moves the members that still run into fewer lanes, if it is worth it.

        Args:
            done: For each lane, whether its member was done before the last segment.
        """
        if self.ids is None or len(self.ids) < choices().compaction.segment_lanes_from:
            return
        lanes = 2 ** int(np.ceil(np.log2(max(1, np.count_nonzero(~done)))))
        if 2 * lanes > len(self.ids):
            return
        self._store(self.carry.member, self.ids)
        # a stable sort puts those that run first; where they do not fill the lanes, some that are done fill them up
        kept = np.sort(np.argsort(done, kind="stable")[:lanes])
        self._choose(self.ids[kept], self.carry.reached)

    def all(self, carry: Carry, ids: np.ndarray | None) -> Carry:
        """Returns what all members go on from, as far as `carry` says it for the members `ids`."""
        if ids is None or self.ids is None or len(ids) == self._all.members:
            return carry
        self._store(carry.member, ids)
        return Carry(jax.tree.map(np.copy, self._archive), carry.reached)

    def _store(self, member: Any, ids: np.ndarray) -> None:
        def put(whole: np.ndarray, x: Any) -> None:
            whole[ids] = np.asarray(x)

        jax.tree.map(put, self._archive, member)

    def _choose(self, ids: np.ndarray, index: Any) -> None:
        self.ids = np.asarray(ids)
        self.inputs = self._all.take(self.ids)
        self.carry = Carry(jax.tree.map(lambda x: jax.numpy.asarray(x[self.ids]), self._archive), index)
