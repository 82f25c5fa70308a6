"""The parts of a model that methods for second-order equations read."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...._interfaces._model import AbstractSecondOrder
from ...._structure_words import structure_words
from ...._types import Args, RealScalarLike, Y
from ...terms._split_field import Functions
from ..split._modal import needs
from ..split._phi_functions import phi


def functions_of_second_order(
    name: str, model: Callable, t: RealScalarLike, y: Y, args: Args, *, friction: bool = False
) -> Functions:
    """Returns acceleration and vector field, and the rate of friction of a model that has some.

    Args:
        name: The solver's name, for messages.
        model: The model.
        t: The time.
        y: A state.
        args: The last argument of the model.
        friction: Whether the method solves equations with friction.

    Raises:
        TypeError: If the model has no acceleration, or friction that the method has no place for.
        ValueError: If the state is not a pair of position and velocity, nor an array of both.
    """
    if not callable(getattr(model, "acceleration", None)):
        raise needs(name, AbstractSecondOrder, model, "a model with accelerations")
    rubs: Any = getattr(model, "friction", None)
    if rubs is not None and not friction:
        raise TypeError(
            f"`solver={name}()` does not support friction, but `{type(model).__name__}` has a method `friction`. Use "
            "`VelocityVerlet()` or `Yoshida(order=4)`, or a general method such as `diffrax.Tsit5()`."
        )
    if isinstance(y, tuple):
        fits = len(y) == 2 and jax.tree.structure(y[0]) == jax.tree.structure(y[1])
    else:
        fits = jax.tree_util.all_leaves([y]) and jnp.ndim(y) == 1 and jnp.size(y) % 2 == 0
    if not fits:
        raise ValueError(
            f"`solver={name}()` requires a state `(q, v)` of position and velocity, two PyTrees of the same structure, "
            f"or one array of positions followed by velocities, but `y0` is {structure_words(y)}."
        )
    found = {
        "field": (lambda model, args, t, y: model(t, y, args), (t, y)),
        "acceleration": (lambda model, args, t, q: model.acceleration(t, q, args), (t, halves(y)[0])),
    }
    return found if rubs is None else found | {"friction": (lambda model, args: model.friction(args), ())}


def halves(y: Y) -> tuple[Y, Y]:
    """Returns position and velocity of a state, a pair or an array of both."""
    if isinstance(y, tuple):
        return y
    n = y.shape[0] // 2
    return y[:n], y[n:]


def joined(like: Y, q: Y, v: Y) -> Y:
    """Returns position and velocity as a state like another."""
    return (q, v) if isinstance(like, tuple) else jnp.concatenate([q, v])


def moved(y: Y, h: Array, rate: Y) -> Y:
    """Returns a state moved along a rate."""
    return jax.tree.map(lambda x, r: x + jnp.asarray(h, x.dtype) * r, y, rate)


def kicked(v: Y, h: Array, acceleration: Y, friction: Array | None) -> Y:
    r"""Returns a velocity after a time under a constant acceleration, $\dot v = a - c v$, exactly.

    Args:
        v: The velocity.
        h: The time.
        acceleration: $a$.
        friction: $c$; None for zero.
    """
    if friction is None:
        return moved(v, h, acceleration)

    def of_leaf(x: Array, a: Array) -> Array:
        s = jnp.asarray(h, x.dtype)
        decay, mean = phi(-jnp.asarray(friction, x.dtype) * s, 1)
        return decay * x + s * mean * a

    return jax.tree.map(of_leaf, v, acceleration)


def slope(v: Y, acceleration: Y, friction: Array | None) -> Y:
    """Returns the rate of a velocity."""
    if friction is None:
        return acceleration
    return jax.tree.map(lambda x, a: a - jnp.asarray(friction, x.dtype) * x, v, acceleration)
