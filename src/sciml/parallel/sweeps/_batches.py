"""The members of each block, and the size of a block."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jax.sharding import Mesh

from ..._choices import choices
from .._blocks import default_block
from ..members._pytree import expand, take
from ._executable import MemberBatch

BATCHINGS = ("lockstep", "sorted", "refill")


class BlockPlan(NamedTuple):
    """Members in an order, cut into blocks of one size.

    Attributes:
        order: The members' numbers.
        block: The number of members in a block.
    """

    order: np.ndarray
    block: int

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.order.size // self.block)

    def ids(self, number: int) -> np.ndarray:
        """Returns the members of block `number`."""
        return self.order[number * self.block : (number + 1) * self.block]

    def batch(self, members: Any, number: int) -> MemberBatch:
        """Returns block `number`, filled up with copies of its last member."""
        # Zeros or NaN could take more steps than any real member, or warn.
        ids = self.ids(number)
        filled = np.concatenate([ids, np.full(self.block - ids.size, ids[-1])])
        return MemberBatch(take(members, filled), filled.astype(np.int32), np.arange(self.block) < ids.size)


def make_order(members: Any, n: int, batching: str, cost: Any) -> np.ndarray:
    """Returns the members' numbers in the order in which they run: the slow ones first where `cost` is given.

    Raises:
        ValueError: If batching and cost do not fit each other, or the costs are not one number per member.
    """
    if batching not in BATCHINGS:
        raise ValueError(f"`sweep`: `batching` must be one of {', '.join(map(repr, BATCHINGS))}, got {batching!r}.")
    if (batching == "sorted") != (cost is not None):
        raise ValueError(
            '`sweep`: `batching="sorted"` requires `cost`, the expected cost of each member: an array with one number '
            "per member, or a function of one member's parameters. Other values of `batching` do not accept `cost`."
        )
    if cost is None:
        return np.arange(n)
    costs = np.asarray(eqx.filter_jit(eqx.filter_vmap(cost))(expand(members)) if callable(cost) else cost)
    if costs.shape != (n,) or not np.issubdtype(costs.dtype, np.number):
        raise ValueError(f"`sweep`: `cost` must return one number for each of {n} members, got shape {costs.shape}.")
    return np.argsort(-costs.astype(float), kind="stable")  # NaN goes last: such a member ends at once


def choose_block(n: int, chosen: Mesh, batching: str, memory: int | None, measure: Callable[[int], int]) -> int:
    """Returns a block size whose memory is within a budget; at least 1.

    The memory of a block grows in proportion to its members, so that one or two programs have to be compiled and none
    has to run.

    Args:
        n: The number of members.
        chosen: The devices.
        batching: How members share a loop.
        memory: The budget in bytes; by default a quarter of an accelerator's memory, and 1 GiB on a CPU.
        measure: Returns the bytes that a block of a size needs.
    """
    device = chosen.devices.flat[0]
    block = min(n, default_block(n, device.platform) * (choices().refill.block_lanes if batching == "refill" else 1))
    known = (device.memory_stats() or {}) if device.platform != "cpu" else {}
    budget = known.get("bytes_limit", 2**32) // 4 if memory is None else memory
    while block > 1 and (needed := measure(block)) > budget:
        block = max(1, min(block // 2, int(block * budget / needed)))
    return block
