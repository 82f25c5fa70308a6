"""The common part of methods for stiff noise: they read the structure of a drift, like methods without noise."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree

from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._pid import FirstStep
from ...noise._closed_noise import (
    BoundNoisyField,
    ModelWithNoise,
    NoisyField,
    close_noise,
    is_elementwise,
    own_derivative,
    shape_of,
)
from ...terms._split_field import Functions
from .._capabilities import Coordinates
from ._abstract import AbstractStochasticStepper, plus


class AbstractStructuredNoiseStepper(AbstractStochasticStepper):
    """A method that runs in the modes of a drift, where it has them, with steps that are given."""

    traits = AbstractStochasticStepper.traits._replace(elementwise=False, batched_vjp=False, transforms_state=True)

    @property
    def coordinates(self) -> Coordinates:
        """The state, or its modes."""
        return super().coordinates._replace(prepare=self.prepare, finish=self.finish)

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[PyTree, BoolScalarLike | None]:
        """Returns the initial state, or its modes."""
        del t
        return (field["transform"](y) if "transform" in field else y), None

    def finish(self, field: Any, y: PyTree) -> Y:
        """Returns the state, transformed back from its modes."""
        return state_of(field, y)

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the length of the interval; steps are given."""
        del field
        return start.span


def close_structured_noise(
    model: Callable, t: Array, y: Y, args: Args, functions_of: Callable[..., Functions]
) -> tuple[NoisyField, list[Array]]:
    """Returns a model with noise as closed functions, including the functions of its drift, with their operands.

    For a Stratonovich model there is one more, `correction`: the drift correction to Ito.

    Args:
        model: The model with the path of its noise.
        t: A time, for its dtype.
        y: A state, for its structure, shapes and dtypes.
        args: The third argument of the model.
        functions_of: From the drift, a time, a state and args to what a method without noise needs of it.

    Raises:
        TypeError: If the model has no noise, or its drift not the structure.
    """
    if not isinstance(model, ModelWithNoise):
        raise TypeError("A method for stochastic equations requires a model with noise, a `sciml.Stochastic`.")
    functions = {
        name: (_of_drift(function), inputs)
        for name, (function, inputs) in functions_of(model.model.without_noise, t, y, args).items()
    }
    shape = shape_of(model.model, t, y, args)
    if model.model.interpretation == "stratonovich" and not shape.additive:
        elementwise = is_elementwise(model.model, shape, t, y, args)

        def correction(model, args, t, y):
            return jax.tree.map(lambda x: 0.5 * x, own_derivative(model.model, shape, elementwise, t, y, args))

        functions["correction"] = (correction, (t, y))
    return close_noise(model, t, y, args, "ito", False, functions)


def rest_with_correction(field: BoundNoisyField, name: str, t: RealScalarLike, x: PyTree, y: Y) -> PyTree:
    """Returns the part of a drift that is not stiff, in the sense of Ito.

    Args:
        field: The functions.
        name: The name of that part.
        t: The time.
        x: The state in the variables of the method.
        y: The state.
    """
    rest = field[name](t, x)
    if "correction" not in field:
        return rest
    more = field["correction"](t, y)
    return plus(rest, field["transform"](more) if "transform" in field else more)


def state_of(field: BoundNoisyField, x: PyTree) -> Y:
    """Returns the state of one in the variables of the method."""
    return field["inverse"](x) if "inverse" in field else x


def noise_of(field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> PyTree:
    """Returns diffusion times increment over a step, in the variables of the method."""
    noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
    return field["transform"](noise) if "transform" in field else noise


def _of_drift(function: Callable) -> Callable:
    """Returns a function of a model without noise as one of a model with noise."""

    def run(model, args, *inputs):
        return function(model.model.without_noise, args, *inputs)

    return run
