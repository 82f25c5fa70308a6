"""What methods for equations of second order read of a model."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._model import AbstractSecondOrder
from ..._structure_words import structure_words
from ..._types import Args, RealScalarLike, Y
from ..terms._split_field import Functions
from ._modal import needs


def functions_of_second_order(name: str, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
    """Returns acceleration and vector field.

    Args:
        name: The solver's name, for messages.
        model: The model.
        t: The time.
        y: A state.
        args: What the model takes beside these.

    Raises:
        TypeError: If the model has no acceleration.
        ValueError: If the state is no pair of position and velocity.
    """
    if not isinstance(model, AbstractSecondOrder):
        raise needs(name, AbstractSecondOrder, model, "a model with accelerations")
    if not (isinstance(y, tuple) and len(y) == 2 and jax.tree.structure(y[0]) == jax.tree.structure(y[1])):
        raise ValueError(
            f"`solver={name}()` needs a state `(q, v)` of position and velocity, two PyTrees alike, but `y0` "
            f"is {structure_words(y)}."
        )
    return {
        "field": (lambda model, args, t, y: model(t, y, args), (t, y)),
        "acceleration": (lambda model, args, t, q: model.acceleration(t, q, args), (t, y[0])),
    }


def moved(y: Y, h: Array, rate: Y) -> Y:
    """Returns a state moved along a rate."""
    return jax.tree.map(lambda x, r: x + jnp.asarray(h, x.dtype) * r, y, rate)
