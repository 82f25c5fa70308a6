r"""An algebraically reversible method from any explicit Runge-Kutta method.

With $\Psi_h(t, y)$ the increment of a step, two copies $y_n$ and $z_n$ of the state are advanced one after the other:

$$y_{n+1} = \lambda y_n + (1 - \lambda) z_n + \Psi_h(t_n, z_n), \qquad
  z_{n+1} = z_n - \Psi_{-h}(t_{n+1}, y_{n+1}), \qquad y_0 = z_0,$$

of the same order as the method. Each line can be solved for what it replaced:

$$z_n = z_{n+1} + \Psi_{-h}(t_{n+1}, y_{n+1}), \qquad
  y_n = z_n + \tfrac{1}{\lambda} \big(y_{n+1} - z_n - \Psi_h(t_n, z_n)\big).$$

The chain rule through one step, from the cotangents $\bar y, \bar z$ of its end to the cotangents of its start, the
last line first:

$$\bar w = \bar y - \Psi_{-h}'(t_{n+1}, y_{n+1})^* \bar z, \qquad
  \bar y_n = \lambda \bar w, \qquad
  \bar z_n = \bar z + (1 - \lambda) \bar w + \Psi_h'(t_n, z_n)^* \bar w,$$

and each $\Psi'^*$ brings its share to the cotangents of parameters and times. The values of $\Psi$ that
the reversal needs are by-products of these.

Source: McCallum and Foster, Efficient, accurate and stable gradients for neural ODEs, 2024 (arXiv:2410.11648).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...._types import RealScalarLike, Y
from ...methods._capabilities import Coordinates, Traits
from ...methods._stepper import AbstractStepper, BoundField, Step
from ...methods.explicit._runge_kutta import RungeKutta

# Methods whose state is a pair of states, as the reversible loop runs them.


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

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the method on states; both copies move at the rate of the first."""
        return super().coordinates._replace(rate=self._rate)

    def _rate(self, field: BoundField, t: RealScalarLike, y: Pair) -> Pair:
        rate = self.base.coordinates.rate(field, t, y.y)
        return Pair(rate, rate)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the dense output of `base`, of zeros."""
        return self.base.empty_dense(y.y)


class ReversibleStepper(AbstractPairStepper):
    r"""The reversible method of a Runge-Kutta method; its state is a `Pair`.

    Attributes:
        base: The Runge-Kutta method.
        coupling: $\lambda$.
    """

    base: RungeKutta
    coupling: float = eqx.field(static=True)

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return 2 * self.base.evaluations

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances a pair from `t` to `t + h`."""
        del memory
        y1, stages, error = self._first_half(field, t, h, y)
        back, _, _ = self._increment(field, t + h, -h, y1)
        z1 = jax.tree.map(jnp.subtract, y.z, back)
        return Step(Pair(y1, z1), None if error is None else Pair(error, error), stages, None)

    def half_step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Pair) -> tuple[Y, Any]:
        """Returns the first copy at `t + h`, and what the base method's interpolation towards it needs."""
        return self._first_half(field, t, h, y)[:2]

    def reverse_step(
        self, step: Callable[[PyTree], tuple], pair: Pair, bar: Pair, diff: PyTree
    ) -> tuple[Pair, Pair, PyTree]:
        """Undoes one step and carries the cotangents of its end back to its start.

        Args:
            step: Returns field, time and length of the step as a function of `diff`.
            pair: The state at the end of the step.
            bar: Its cotangent.
            diff: The other differentiated values.

        Returns:
            The state at the start, its cotangent, and what the step adds to the cotangent of `diff`.
        """

        def back(y, diff):
            field, t, h = step(diff)
            return self._increment(field, t + h, -h, y)[0]

        def there(z, diff):
            return self._increment(*step(diff), z)[0]

        increment, pull = jax.vjp(back, pair.y, diff)
        z = jax.tree.map(jnp.add, pair.z, increment)
        more, diff_bar = pull(jax.tree.map(jnp.negative, bar.z))
        w_bar = jax.tree.map(jnp.add, bar.y, more)
        increment, pull = jax.vjp(there, z, diff)
        # `_first_half` solved for the first copy, in the differences that it is written in
        y = jax.tree.map(lambda y, z, p: z + ((y - z) - p) / self.coupling, pair.y, z, increment)
        more, diff_more = pull(w_bar)
        bar = Pair(
            jax.tree.map(lambda w: self.coupling * w, w_bar),
            jax.tree.map(lambda z, w, m: z + ((1 - self.coupling) * w + m), bar.z, w_bar, more),
        )
        return Pair(y, z), bar, jax.tree.map(jnp.add, diff_bar, diff_more)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the first copy at `t + theta * h`, and the second as it is at the end."""
        return Pair(self.base.interpolate(theta, h, y0.y, y1.y, dense), y1.z)

    def _first_half(self, field, t, h, y):
        there, stages, error = self._increment(field, t, h, y.z)
        return jax.tree.map(lambda y, z, p: z + (self.coupling * (y - z) + p), y.y, y.z, there), stages, error

    def _increment(self, field, t, h, y):
        step = self.base.step(field, t, h, y, self.base.init(field, t, y))
        return self.base.increment(h, step.dense), step.dense, step.error


# A symmetric method as its own reverse: a step back from the end of a step returns to its start.
#
# The interface is the same as for `ReversibleStepper`, whose pair of states here is one state twice. With
# $y_1 = \Phi_h(t, y)$ and $y = \Phi_{-h}(t + h, y_1)$ the cotangent goes back by $\bar y = \Phi_h'(t, y)^* \bar y_1$.


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
