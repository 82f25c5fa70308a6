"""Where a run resumes: at its start, or at the last whole checkpoint."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..stores._abstract import AbstractStore
from ..stores._atomic import StoreError
from ._sharding import read_like
from .segments._abstract import Carry


class ResumePoint(NamedTuple):
    """What a run resumes from.

    Attributes:
        number: Of the checkpoint; 0 for the start.
        carry: Of all members.
        ids: The members in the lanes, or None.
        frames: The number of frames so far.
        pending: Those of them that are in no full block, or None.
    """

    number: int
    carry: Carry
    ids: np.ndarray | None
    frames: int
    pending: PyTree


def payload(carry: Carry, ids: np.ndarray | None) -> PyTree:
    """Returns what a checkpoint holds beside frames."""
    return {"carry": carry} if ids is None else {"carry": carry, "ids": np.asarray(ids, np.int64)}


def last_resume_point(
    checkpoints: AbstractStore | None, like: Carry, frame: PyTree | None, members: int | None, origin: np.ndarray
) -> ResumePoint | None:
    """Returns the last point that a run can go on from; None where it must start.

    Args:
        checkpoints: Where checkpoints are.
        like: What all members start from, for shapes, dtypes and the devices that it is on.
        frame: Shapes and dtypes of a frame.
        members: The number of members, or None.
        origin: The digest of the run.

    Raises:
        StoreError: If there are checkpoints but none can be read.
    """
    if checkpoints is None:
        return None
    first_error = None
    for number in reversed(checkpoints.numbers()):
        try:
            return _read(checkpoints, number, like, frame, members, origin)
        except StoreError as error:  # the one before may be whole
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return None


def _read(
    checkpoints: AbstractStore, number: int, like: Carry, frame: PyTree | None, members: int | None, origin: np.ndarray
) -> ResumePoint:
    any_array = object()
    counts = checkpoints.get(number, {"frames": any_array, "leaves": any_array, "origin": any_array})
    if not np.array_equal(counts["origin"], origin):
        raise StoreError(f"Checkpoint {number} in {checkpoints} is of another run. Give another path.")
    leaves = [str(i) for i in range(int(counts["leaves"]))]
    wanted = {"carried": payload(like, None), "pending": dict.fromkeys(leaves, any_array)}
    if members is not None:
        wanted["carried"]["ids"] = any_array
    found = checkpoints.get(number, wanted)
    pending = [np.asarray(found["pending"][i]) for i in leaves]
    return ResumePoint(
        number,
        read_like(found["carried"]["carry"], like),
        None if members is None else np.asarray(found["carried"]["ids"]),
        int(counts["frames"]),
        jax.tree.unflatten(jax.tree.structure(frame), pending) if pending else None,
    )
