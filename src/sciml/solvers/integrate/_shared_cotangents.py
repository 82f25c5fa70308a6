"""A step's pullback over all lanes at once, in which what members share has one cotangent for all of them.

A member's own pullback gives each member a cotangent of its own, for a network as many copies of its weights as there
are members. The step over lanes is differentiated as a whole instead: the weights' cotangent is then one product over
all members. Lanes that took no step get a cotangent of zero; and since zero times infinity would be NaN, they run the
step of a lane that did.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ..._jax._matrix_products import with_fast_products
from ...kernels._lanes import Lanes, Unbatched, is_value
from ...kernels._lanes._values import shared_and_large
from ..methods._stepper import AbstractStepper


def has_shared_cotangents(lanes: Lanes | Unbatched, stepper: AbstractStepper, diff: PyTree) -> bool:
    """Returns whether a step is pulled back over all lanes at once: where what they share is large and differentiated.

    Args:
        lanes: The engine.
        stepper: The method.
        diff: The operands that are differentiated, lane values.
    """
    shares = isinstance(lanes, Lanes) and lanes.shared_cotangents and lanes.count is not None
    if not shares or not stepper.traits.batched_vjp:
        return False
    return share_much(diff)


def share_much(values: PyTree) -> bool:
    """Returns whether some of the lane values is large and the same for all members, as a network's weights are."""
    return any(map(shared_and_large, jax.tree.leaves(values, is_leaf=is_value)))


def pull_back(
    lanes: Lanes, step: Callable, taken: Bool[Array, " lanes"], bar: PyTree, y: PyTree, diff: PyTree, *rest: PyTree
) -> tuple[PyTree, PyTree]:
    """Carries cotangents of a step's result back to the state and to the operands.

    Args:
        lanes: The engine.
        step: `step(y, diff, *rest)` of one member.
        taken: The lanes that took the step.
        bar: The cotangents of its result, lane values in a loop's carry.
        y: The states before the step, lane values in a loop's carry.
        diff: The operands that are differentiated, lane values.
        rest: The other inputs of the step, lane values.

    Returns:
        The cotangents of `y`, zero if the step was not taken, and the cotangents of `diff`, in the same form as `diff`.
    """
    # lanes that took no step run the step of one that did: zero times infinity would be NaN
    some = jnp.argmax(taken)[None]
    y, own, rest = lanes.where(taken, (y, diff, rest), lambda x: jnp.take(x, some, axis=-1))
    engine = dataclasses.replace(lanes, reverse=True)

    def pulled(bar: PyTree) -> PyTree:
        _, pull = jax.vjp(lambda y, own: engine.carry(engine.call(step, y, own, *rest)), y, own)
        return pull(bar)

    y_bar, more = with_fast_products(pulled)(lanes.where(taken, bar, jnp.zeros_like))
    any_taken = jnp.any(taken)  # where no lane took a step, all ran that of lane zero, which may be infinite
    return y_bar, jax.tree.map(lambda x: jnp.where(any_taken, x, jnp.zeros_like(x)), more)
