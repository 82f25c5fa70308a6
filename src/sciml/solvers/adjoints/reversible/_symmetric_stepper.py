r"""A symmetric method as its own reverse: a step back from the end of a step returns to its start.

The interface is the same as for `ReversibleStepper`, whose pair of states here is one state twice. With
$y_1 = \Phi_h(t, y)$ and $y = \Phi_{-h}(t + h, y_1)$ the cotangent goes back by $\bar y = \Phi_h'(t, y)^* \bar y_1$.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...._types import RealScalarLike, Y
from ...methods._capabilities import Traits
from ...methods._stepper import AbstractStepper, BoundField, Step
from ._pair_state import AbstractPairStepper, Pair


class SymmetricStepper(AbstractPairStepper):
    """A symmetric method that the reversible loop can run.

    Attributes:
        base: The method.
        coupling: 1: nothing is coupled, and nothing grows in the backward pass.
    """

    base: AbstractStepper
    coupling: float = 1.0

    @property
    def traits(self) -> Traits:
        """It interpolates where the method does."""
        return super().traits._replace(dense=self.base.traits.dense)

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step; the first is not kept from the step before."""
        return self.base.evaluations + self.base.traits.fsal

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a pair of one state twice from `t` to `t + h`."""
        del memory
        step = self._stepped(field, t, h, y.y)
        return Step(Pair(step.y1, step.y1), None, step.dense, None)

    def reverse_step(
        self, step: Callable[[PyTree], tuple], pair: Pair, bar: Pair, diff: PyTree
    ) -> tuple[Pair, Pair, PyTree]:
        """Undoes one step and carries the cotangents of its end back to its start; see `ReversibleStepper`."""
        field, t, h = step(diff)
        y = self._moved(field, t + h, -h, pair.y)

        def there(y, diff):
            return self._moved(*step(diff), y)

        _, pull = jax.vjp(there, y, diff)
        y_bar, diff_bar = pull(jax.tree.map(jnp.add, *bar))
        # zeros made here would be the same on all devices, which the carry of the loop is not
        zeros = jax.tree.map(jnp.subtract, bar.z, bar.z)
        return Pair(y, y), Pair(y_bar, zeros), diff_bar

    def half_step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Pair) -> tuple[Y, Any]:
        """Returns the state at `t + h`, and what the interpolation towards it needs."""
        step = self._stepped(field, t, h, y.y)
        return step.y1, step.dense

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`, and the state at the end."""
        return Pair(self.base.interpolate(theta, h, y0.y, y1.y, dense), y1.z)

    def _moved(self, field, t, h, y):
        return self._stepped(field, t, h, y).y1

    def _stepped(self, field, t, h, y):
        return self.base.step(field, t, h, y, self.base.init(field, t, y))
