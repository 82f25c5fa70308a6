"""Methods whose state is a pair of states, as the reversible loop runs them."""

from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import PyTree

from ...._types import Y
from ...methods._stepper import AbstractStepper


class Pair(NamedTuple):
    """The two copies of the state."""

    y: Y
    z: Y


class AbstractPairStepper(AbstractStepper):
    """A method on pairs of states that is made of a method on states.

    Attributes:
        base: The method on states.
    """

    dense: ClassVar[bool] = True
    base: eqx.AbstractVar[AbstractStepper]

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.base.order

    @property
    def error_order(self) -> int:
        """The power of the step size that the error estimate is proportional to."""
        return self.base.error_order

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.base.has_error

    @property
    def fsal(self) -> bool:
        """No stage is used twice."""
        return False

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the dense output of `base`, of zeros."""
        return self.base.empty_dense(y.y)
