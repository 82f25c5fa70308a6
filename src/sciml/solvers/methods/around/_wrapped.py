"""A one-step method around another, which forwards everything that it does not define itself."""

import dataclasses
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from ...._types import RealScalarLike, Y
from ...control._criterion import Criterion
from .._capabilities import Coordinates, Hooks, Limits, Traits
from .._stepper import AbstractStepper, BoundField


class AbstractWrappedStepper(AbstractStepper):
    """A method around another, whose records it passes on but for what its own steps change.

    Attributes:
        base: The other.
    """

    base: eqx.AbstractVar[AbstractStepper]

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.base.order

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return self.base.evaluations

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.base.has_error

    @property
    def traits(self) -> Traits:
        """The traits of the inner method, without the ones invalidated by a change at the end of a step."""
        lost = dict(symmetric=False, takes_packed=False, transforms_state=False, knows_within=False, jumps=False)
        return self.base.traits._replace(**lost)

    @property
    def limits(self) -> Limits:
        """The limits of the inner method."""
        return self.base.limits

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the inner method."""
        return self.base.coordinates

    @property
    def hooks(self) -> Hooks:
        """Those that have nothing to do with its steps."""
        base = self.base.hooks
        return Hooks(at_rest=base.at_rest, judged=None if base.judged is None else self._judged)

    def _judged(self, criterion: Criterion) -> AbstractStepper:
        return dataclasses.replace(self, base=judged(self.base, criterion))

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the memory that a step from `(t, y)` starts with."""
        return self.base.init(field, t, y)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`."""
        return self.base.interpolate(theta, h, y0, y1, dense)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns `Step.dense` for a step that has not been taken."""
        return self.base.empty_dense(y)


def judged(stepper: AbstractStepper, criterion: Criterion) -> AbstractStepper:
    """Returns a method for one step under error control, which may use the criterion of its error."""
    own = stepper.hooks.judged
    return stepper if own is None else own(criterion)
