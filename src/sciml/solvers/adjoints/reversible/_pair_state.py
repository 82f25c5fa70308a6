"""Methods whose state is a pair of states, as the reversible loop runs them."""

from typing import NamedTuple

import equinox as eqx
from jaxtyping import PyTree

from ...._types import Y
from ...methods._capabilities import Traits
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

    base: eqx.AbstractVar[AbstractStepper]

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.base.order

    @property
    def traits(self) -> Traits:
        """It interpolates; no stage is used twice."""
        return Traits(dense=True, error_order=self.base.traits.error_order)

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.base.has_error

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the dense output of `base`, of zeros."""
        return self.base.empty_dense(y.y)
