"""A method on a field of which every device holds a block, with one exchange for all stages of a step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from ...._interfaces._conservation_law import AbstractConservationLaw
from ...._types import Args, RealScalarLike, Y
from ...terms._split_field import Functions, close_split_field
from .._capabilities import Coordinates
from .._stepper import AbstractStepper, Step
from .._structured_solver import AbstractStructuredStepper
from ..explicit._runge_kutta import RungeKutta
from ._courant import FollowingWaves
from ._wrapped import AbstractWrappedStepper


class OneExchange(AbstractWrappedStepper, AbstractStructuredStepper):
    """An explicit Runge-Kutta method on the block of a conservation law with as many layers as its stages read.

    Attributes:
        base: The method.
        depth: How many layers.
    """

    base: AbstractStepper
    depth: int = eqx.field(static=True)

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the field on a block with its layers."""
        return super().coordinates._replace(close=self.close)

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns the field on a block, that on a block with its layers, and what fetches these."""
        del args
        depth = self.depth

        def widen(model: Any, args: Args, t: Array, y: Array) -> Array:
            return model.volumes.sides.wide(depth).widened(model, y, t, args)

        def wide_field(model: Any, args: Args, t: Array, y: Array) -> Array:
            sides = model.volumes.sides.wide(depth)
            try:
                return eqx.tree_at(lambda law: law.volumes.sides, model, sides)(t, y, args)
            except Exception as error:
                error.add_note(
                    f"With `Domain(exchange='step')` the law is evaluated on a block with halo layers, here of shape "
                    f"{y.shape}; its additional rates must support blocks of any size."
                )
                raise

        def cut(model: Any, args: Args, y: Array) -> Array:
            del args
            return model.volumes.sides.wide(depth).cut(y)

        wide = jax.eval_shape(lambda t, y: widen(model, None, t, y), t, y)
        return {
            "field": (lambda model, args, t, y: model(t, y, args), (t, y)),
            "wide field": (wide_field, (t, wide)),
            "widen": (widen, (t, y)),
            "cut": (cut, (wide,)),
        }

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns these functions with their operands."""
        del h
        return close_split_field(model, args, self.functions(model, t, y, args))

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns no memory."""
        del field, t, y

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`, with one exchange."""
        step = self.base.step(field["wide field"], t, h, field["widen"](t, y), memory)
        error = None if step.error is None else field["cut"](step.error)
        return step._replace(y1=field["cut"](step.y1), error=error, dense=tuple(map(field["cut"], step.dense)))


def with_one_exchange(model: Any, stepper: AbstractStepper | None, name: str) -> AbstractStepper | None:
    """Returns the method with one exchange for each step, if a conservation law requests it.

    Args:
        model: The model.
        stepper: The method; None for one of diffrax's loops.
        name: The name of the method.

    Raises:
        ValueError: If the method has no such form.
    """
    if not isinstance(model, AbstractConservationLaw) or getattr(model.volumes.sides, "exchange", "stage") != "step":
        return stepper
    base = stepper.base if isinstance(stepper, FollowingWaves) else stepper
    if not isinstance(base, RungeKutta) or base.traits.fsal:
        raise ValueError(
            "`Domain(exchange='step')` requires an explicit Runge-Kutta method whose last stage is not the first "
            f"stage of the next step, such as `sciml.solvers.SSPRK33()`, but got {name}. `exchange='stage'` supports "
            "all methods."
        )
    wide = OneExchange(base, base.evaluations * model.volumes.reconstruction.radius)
    return wide if base is stepper else dataclasses.replace(stepper, base=wide)
