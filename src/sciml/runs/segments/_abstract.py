"""A segment of a run: the work of one call of a compiled function, and the values that the host reads from it."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ._in_axes import Inputs
from ._stops import Stops


class Carry(NamedTuple):
    """The state from which a run resumes.

    Attributes:
        member: Of each member.
        reached: The number of saved times that have been reached.
    """

    member: Any
    reached: Array


class Info(NamedTuple):
    """The values that the host reads after a segment; per member, except `reached`.

    Attributes:
        reached: The number of saved times that have been reached.
        status: A code of `Status`.
        elapsed: How far the run got, in the units of `AbstractSegment.elapsed`.
        cause: The number of the condition that stopped it, or 0.
        accepted: The number of accepted steps.
        rejected: The number of rejected steps.
    """

    reached: Any
    status: Any
    elapsed: Any
    cause: Any
    accepted: Any
    rejected: Any


class SegmentFrames(NamedTuple):
    """The saved times of a segment.

    Attributes:
        values: The saved values, members first if there are any, then times.
        valid: The times that a member reached.
    """

    values: PyTree
    valid: Array


class AbstractSegment(eqx.Module):
    """The inputs that do not change from one segment to the next.

    Attributes:
        elapsed: The saved times, as what has passed since the start, and the end for as many as a segment has slots.
        stops: The conditions that end a member.
        saves: The number of saved times.
        slots: How many saved times a segment reaches at most.
        segment_steps: How many steps a segment takes at most.
        clock: The name of the elapsed quantity.
        unit: Its unit, for progress.
        end: The name of its end.
    """

    elapsed: eqx.AbstractVar[Array]
    stops: eqx.AbstractVar[Stops]
    saves: eqx.AbstractVar[int]
    slots: eqx.AbstractVar[int]
    segment_steps: eqx.AbstractVar[int]
    clock: eqx.AbstractClassVar[str]
    unit: eqx.AbstractClassVar[str]
    end: eqx.AbstractClassVar[str]

    @abc.abstractmethod
    def advance(self, inputs: Inputs, carry: Carry) -> tuple[Carry, SegmentFrames, Info]:
        """Takes the steps of one segment."""

    def program(self, inputs: Inputs, carry: Carry) -> str:
        """Returns the text of the program of `advance`, which identifies the code of a run."""
        advance: Any = type(self).advance
        return advance.lower(self, inputs, carry).as_text()

    @abc.abstractmethod
    def states(self, inputs: Inputs, carry: Carry) -> PyTree:
        """Returns the state of every member."""

    def events(self, carry: Carry) -> Any:
        """Returns the events that happened to every member; by default there are none."""
        del carry

    @abc.abstractmethod
    def info(self, carry: Carry) -> Info:
        """Returns the values that the host reads, as NumPy arrays."""

    @abc.abstractmethod
    def time_at(self, elapsed: np.ndarray) -> np.ndarray:
        """Returns the times, of the model, at which so much has passed."""

    @property
    def host_span(self) -> np.generic:
        """All that is to pass, as the host knows it."""
        return np.asarray(self.elapsed)[-1]

    @property
    def host_elapsed(self) -> np.ndarray:
        """`elapsed` as the host knows it."""
        return np.asarray(self.elapsed)


def masked(frames: PyTree, valid: Array) -> PyTree:
    """Returns frames with NaN where they are not valid, where their dtype has one."""

    def mask(x):
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        return jnp.where(valid.reshape(valid.shape + (1,) * (x.ndim - 1)), x, jnp.full_like(x, jnp.nan))

    return jax.tree.map(mask, frames)
