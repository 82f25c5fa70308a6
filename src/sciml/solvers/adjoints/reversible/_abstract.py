"""The common part of the loops of a reversible method."""

import abc
import dataclasses
from typing import ClassVar

from jaxtyping import Array, PyTree

from ...._jax._checkpoint_levels import Budget
from ....kernels._backends import XLA, KernelRequest
from ....kernels._lanes import Lanes, Unbatched
from ...integrate._abstract import AbstractLoop
from ...integrate._integrator import Operands
from ...integrate._result import Result


class AbstractReversibleLoop(AbstractLoop):
    """A loop of a reversible method, whose backward pass runs the steps backwards."""

    impl: ClassVar[KernelRequest] = XLA

    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> "AbstractReversibleLoop":
        """Returns the loop over other lanes; its memory is what it is."""
        del state_bytes, budget
        return dataclasses.replace(self, lanes=lanes)

    @abc.abstractmethod
    def errors(self, y0: PyTree, operands: Operands) -> tuple[Result, PyTree[Array]]:
        """Returns the result, and how far the backward pass misses the initial state, in each leaf relatively."""
