"""Steps of many members within which nothing happens; where something may, a step is left to the whole method.

Among thousands of members some are at an event in nearly every step of the loop, and what finds it and makes the state
after it is as much work as the step itself. So all members first take the step that has no event, and those within
which a condition may change its sign are left where they are, for the loop to gather them.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PyTree

from ..._types import BoolScalarLike, RealScalarLike, Y
from ..methods._stepper import BoundField, Step
from ..methods._wrapped import AbstractWrappedStepper
from ._closed_events import BoundFieldWithEvents
from ._with_events import WithEvents


class QuietSteps(AbstractWrappedStepper):
    """A method that looks for events, but leaves every step that may have one.

    Attributes:
        base: The method.
    """

    base: WithEvents

    transforms_state: ClassVar[bool] = True

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a state from `t` to `t + h`, or says that this is to be left."""
        assert isinstance(field, BoundFieldWithEvents)
        step = self.base.step(field, t, h, y, memory)
        return step._replace(left=self.base.may_come(self.base.attempted(field, t, h, y, step), y.rest.detection))

    def completed(
        self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, step: Step, good: BoolScalarLike
    ) -> Step:
        """Returns the step with what is known of events at its end."""
        assert isinstance(field, BoundFieldWithEvents)
        detection = y.rest.detection
        if not field.clock.given:
            return step
        after = self.base.quiet_detection(self.base.attempted(field, t, h, y, step), detection)
        after = after._replace(stop=jnp.where(good, after.stop, detection.stop))
        return step._replace(y1=step.y1._replace(rest=step.y1.rest._replace(detection=after)))
