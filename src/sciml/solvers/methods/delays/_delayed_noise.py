"""Fixed steps of equations with delays and noise: the states at the last steps are part of the state of the loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...._interfaces._stochastic import delays_of
from ...._types import Args, RealScalarLike, Y
from ...control._pid import FirstStep
from ...noise._closed_noise import BoundNoisyField, ModelWithNoise, close_noise
from .._capabilities import Coordinates, Traits
from .._stepper import Step, measured_by_state
from ..around._wrapped import AbstractWrappedStepper
from ..stochastic._abstract import AbstractStochasticStepper
from ._delay_field import history_of


class WithRows(NamedTuple):
    """A state with the states at the starts of the last steps, the newest last, and the time of the first start."""

    y: Y
    rows: PyTree
    t0: Float[Array, ""]


class DelayedNoise(AbstractWrappedStepper):
    """A method for noise whose drift and diffusion also get past states.

    Steps divide the delays, so past states at the ends of a step are states at earlier steps; stages within a step get
    states on the line between them. The path is rougher than a line, so the strong order is at most 1. If the diffusion
    depends on past states, it is 1/2: order 1 needs iterated integrals of the path with the past path.

    Attributes:
        base: The method.
        delays: Each delay, and the number of steps in it.
    """

    base: AbstractStochasticStepper
    delays: tuple[tuple[float, int], ...] = eqx.field(static=True)

    @property
    def traits(self) -> Traits:
        """The state of the loop is not the state of the model."""
        return super().traits._replace(transforms_state=True, elementwise_dense=False, batched_vjp=False)

    @property
    def coordinates(self) -> Coordinates:
        """A state with earlier states."""
        return Coordinates(self.close, self.starting_step, prepare=self.prepare, finish=lambda field, y: y.y)

    @property
    def _kept(self) -> int:
        return max(count for _, count in self.delays)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns drift and diffusion, which also get past states, increments and history, with their operands."""
        del h
        assert isinstance(model, ModelWithNoise)  # see `with_noisy_solver`
        delayed = delays_of(model.model)
        assert delayed is not None
        history = history_of(delayed, t, y, args)
        more = {"history": (lambda model, args, t: history(model.model.without_noise, args, t), (t,))}
        past, base = (y,) * len(self.delays), self.base
        field, operands = close_noise(
            model, t, y, args, base.interpretation, base.with_area, more, base.with_levy, past
        )
        base.check(field)
        return field, operands

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[WithRows, None]:
        """Returns the initial state; rows before the start are not read."""
        del field
        rows = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (self._kept, *x.shape)), y)
        return WithRows(y, rows, jnp.asarray(t)), None

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the length of the interval: steps are fixed."""
        del field
        return start.span

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Any, memory: PyTree) -> Step:
        """Advances a state from `t` to `t + h`."""
        start = jnp.asarray(t)

        def past(time: RealScalarLike) -> tuple[Y, ...]:
            return tuple(self._at(field, start, jnp.asarray(time, start.dtype), y, *each) for each in self.delays)

        step = self.base.step(field.with_past(past), t, h, y.y, memory)
        rows = jax.tree.map(lambda rows, x: jnp.concatenate([rows[1:], x[None]]), y.rows, y.y)
        return step._replace(y1=WithRows(step.y1, rows, y.t0), measured=measured_by_state(step, y.y))

    def _at(self, field: BoundNoisyField, start: Array, time: Array, y: WithRows, delay: float, count: int) -> Y:
        length = delay / count
        place = (time - start) / length
        # a step whose past starts before `t0` ends at or before it, where the history may jump to `y0`
        before, history = start - delay < y.t0 - length / 2, field["history"](time - delay)

        def of_leaf(rows: Array, now: Array, old: Array) -> Array:
            first, last = rows[self._kept - count], rows[self._kept - count + 1] if count > 1 else now
            return jnp.where(before, old, first + place.astype(now.dtype) * (last - first))

        return jax.tree.map(of_leaf, y.rows, y.y, history)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Any, y1: Any, dense: Any) -> WithRows:
        """Returns the state on the line between the ends of a step."""
        return y1._replace(y=self.base.interpolate(theta, h, y0.y, y1.y, dense))

    def empty_dense(self, y: Any) -> PyTree:
        """Returns the dense output of a step that has not been taken."""
        return self.base.empty_dense(y.y)
