"""Where a run goes on: from its start, or from the last whole checkpoint."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._atomic import StoreError
from ._segment import Carry
from ._store import AbstractStore


class Point(NamedTuple):
    """From what a run goes on.

    Attributes:
        number: Of the checkpoint; 0 for the start.
        carry: Of all members.
        ids: The members in the lanes, or None.
        frames: The number of frames so far.
        held: Those of them that are in no full block, or None.
    """

    number: int
    carry: Carry
    ids: np.ndarray | None
    frames: int
    held: PyTree


def payload(carry: Carry, ids: np.ndarray | None) -> PyTree:
    """Returns what a checkpoint holds beside frames."""
    return {"carry": carry} if ids is None else {"carry": carry, "ids": np.asarray(ids, np.int64)}


def last_point(checkpoints: AbstractStore | None, like: Carry, frame: PyTree | None) -> Point | None:
    """Returns the last point that a run can go on from; None where it must start.

    Args:
        checkpoints: Where checkpoints are.
        like: What all members start from, for shapes, dtypes and the devices that it is on.
        frame: Shapes and dtypes of a frame.

    Raises:
        StoreError: If there are checkpoints but none can be read.
    """
    if checkpoints is None:
        return None
    first_error = None
    for number in reversed(checkpoints.numbers()):
        try:
            return _read(checkpoints, number, like, frame)
        except StoreError as error:  # the one before may be whole
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return None


def _placed(x: Any, like: Any) -> Any:
    if isinstance(x, jax.Array) or len(like.sharding.device_set) == 1:
        return jnp.asarray(x)
    return jax.device_put(x, like.sharding)


def _read(checkpoints: AbstractStore, number: int, like: Carry, frame: PyTree | None) -> Point:
    carry = checkpoints.get(number, {"carried": {"carry": like}})["carried"]["carry"]
    named: dict[str, Any] = checkpoints.get(number)
    held, structure = None, jax.tree.structure(frame)
    if "held/0" in named:
        held = jax.tree.unflatten(structure, [np.asarray(named[f"held/{i}"]) for i in range(structure.num_leaves)])
    ids = named.get("carried/ids")
    carry = jax.tree.map(_placed, carry, like)
    return Point(number, carry, None if ids is None else np.asarray(ids), int(named["frames"]), held)
