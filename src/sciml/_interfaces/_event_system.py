"""`AbstractEventSystem`: events of which one may make another happen at the same time."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .._types import Args, Y


def never_of(dtype: Any) -> float:
    """Returns the time that represents none: memories are finite, like states."""
    return float(jnp.finfo(dtype).max)


class Happened(NamedTuple):
    """The result of all events of a system at one time.

    Attributes:
        y: The state after them.
        memory: The memory that the system carries to its next events.
        due: The next time at which something is to happen; `never_of` if nothing is.
        any: Whether the state may have changed.
        sides: The sign that each condition has from now on.
        code: A `Status`, zero if nothing failed.
    """

    y: Y
    memory: PyTree
    due: Array
    any: Bool[Array, ""]
    sides: Array
    code: Array


class AbstractEventSystem(eqx.Module):
    """Events that share a memory, and that decide together what happens at a time.

    A solve seeks the zeros of `conditions`, ends steps there and at the times that are due, and calls `happen`. It also
    calls `happen` at the start, and after all other events of a time.
    """

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """The number of conditions, known while JAX traces."""

    @abc.abstractmethod
    def conditions(self, t: Array, y: Y, args: Args) -> Array:
        """Returns the conditions, of shape `(count,)`; their zeros are sought in both directions."""

    @abc.abstractmethod
    def start(self, t: Array, y: Y, args: Args) -> PyTree:
        """Returns the memory before anything happened: a PyTree of real arrays."""

    @abc.abstractmethod
    def happen(
        self, t: Array, y: Y, memory: PyTree, sides: Array, zeros: Array, started: Array, resolution: Array, args: Args
    ) -> Happened:
        """Returns what happens at a time.

        Args:
            t: The time.
            y: The state.
            memory: The memory.
            sides: For conditions that are zero at this time the sign that they will have, 0 for the others.
            zeros: The size of each condition that counts as zero.
            started: False at the start of a solve.
            resolution: A few times what times are rounded by.
            args: The third argument of the model.
        """
