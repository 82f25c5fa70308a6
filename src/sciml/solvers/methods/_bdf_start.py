"""How a method of several steps begins where all steps have one length: by those of a one-step method."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._branches import cond
from ..._types import RealScalarLike, Y
from ._differences import MOST, Differences
from ._history_memory import HistoryMemory, joined, past_of, reused_of
from ._ravel import flattened
from ._rodas5p import Rodas5P
from ._rosenbrock import Rosenbrock
from ._stepper import BoundField, Step
from ._wrapped import AbstractWrappedStepper


class Started(AbstractWrappedStepper):
    """A method of backward differences whose first steps are those of `Rodas5P`, one for each of its orders.

    Attributes:
        base: The method.
    """

    base: Any

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> Differences | HistoryMemory:
        """Returns no differences."""
        memory = self.base.init(field, t, y)
        none: Differences = past_of(memory).apart()
        none = none._replace(rows=tuple(map(jnp.zeros_like, none.rows)), order=jnp.zeros_like(none.order))
        return joined(none.together(), reused_of(memory))

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        like = (jnp.asarray(t), jnp.asarray(h), y, memory)
        return cond(
            past_of(memory).order < self.base.order,
            lambda: self._first(field, t, h, y, memory),
            lambda: self._later(field, t, h, y, memory),
            like=like,
        )

    def _first(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Returns a step of the one-step method, with the differences to one more order."""
        method = Rosenbrock(Rodas5P().tableau, self.base.mass_of(y), linear=self.base.linear)
        step = method.step(field, t, h, y, None)
        past = past_of(memory).apart().at_distance(jnp.asarray(h))
        x, x1 = flattened(y), flattened(step.y1)
        after = past.followed_by(x1 - x - past.weighted((1.0,) * MOST))
        return Step(
            step.y1,
            step.error,
            _as_differences(step.dense),
            joined(after._replace(order=past.order + 1).together(), reused_of(memory)),
            jnp.asarray(step.solvable),
            converged=jnp.ones((), bool) if step.converged is None else jnp.asarray(step.converged),
        )

    def _later(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        step: Step = self.base.step(field, t, h, y, memory)
        return step


def _as_differences(rows: tuple[Y, ...]) -> tuple[Y, ...]:
    r"""Returns the dense output of `Rodas5P` by the weights that differences have, those of degree two and more.

    $\theta (1 - \theta) (K_1 + \theta K_2 + \theta^2 K_3) = c_2 \binom{\theta}{2} + c_3 \binom{\theta + 1}{3} + c_4
    \binom{\theta + 2}{4}$.
    """

    def of_leaf(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        return 2 * (b - a - c), 18 * c - 6 * b, -24 * c, jnp.zeros_like(a)

    made = jax.tree.map(of_leaf, *rows)
    return jax.tree.transpose(jax.tree.structure(rows[0]), jax.tree.structure((0,) * (MOST - 1)), made)
