"""The input of a kernel: the loop of one member, as functions of that member that close over no traced value."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, PyTree


class UntilDone(NamedTuple):
    """A loop whose number of iterations no one knows, as with error control; saves on the way.

    `inputs` is a PyTree of arrays; `state` one of the loop's own, which keeps its shapes and dtypes.

    Attributes:
        start: `start(inputs)` returns the state before the first iteration.
        end: `end(inputs)` returns the last target.
        pending: `pending(state, target)` says whether the member has yet to come to a target.
        advance: `advance(state, inputs, target)` takes an iteration; leaves a member that has come there as it is.
        saved: `saved(state, inputs, target)` returns what is saved at a target.
        result: `result(state, inputs)` returns what is left at the end.
    """

    start: Callable[[PyTree], PyTree]
    end: Callable[[PyTree], Array]
    pending: Callable[[PyTree, Array], Array]
    advance: Callable[[PyTree, PyTree, Array], PyTree]
    saved: Callable[[PyTree, PyTree, Array], PyTree]
    result: Callable[[PyTree, PyTree], PyTree]


class Counted(NamedTuple):
    """A loop of a known number of steps, the same for all members.

    Attributes:
        start: `start(inputs)` returns the state before the first step.
        step: `step(state, inputs, number)` takes the step of a number, an int32.
        look: `look(state, number)` inspects the state after a number of steps.
        result: `result(state, inputs)` returns what is left at the end.
        segments: The numbers of the first step, of segments and of steps in each: the state is looked at after each.
    """

    start: Callable[[PyTree], PyTree]
    step: Callable[[PyTree, PyTree, Array], PyTree]
    look: Callable[[PyTree, Array], PyTree]
    result: Callable[[PyTree, PyTree], PyTree]
    segments: tuple[tuple[int, int, int], ...]


class Members(NamedTuple):
    """The members of an ensemble, arrays with members last.

    Attributes:
        inputs: The inputs of the functions, a PyTree.
        batched: The leaves of `inputs` that have members, in order; the others are the same for all.
        size: The number of members.
        targets: The times to save, of shape `(saves,)` or `(saves, members)`; None to save nothing.
        targets_batched: Whether these have members.
    """

    inputs: PyTree
    batched: tuple[bool, ...]
    size: int
    targets: Any = None
    targets_batched: bool = False

    def of_one(self) -> tuple[PyTree, Any]:
        """Returns shapes and dtypes of one member's inputs and of one of its targets, if it has any."""
        leaves, treedef = jax.tree.flatten(self.inputs)
        shapes = [x.shape[:-1] if b else x.shape for x, b in zip(leaves, self.batched, strict=True)]
        one = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(shapes, leaves)]
        target = None if self.targets is None else jax.ShapeDtypeStruct((), self.targets.dtype)
        return jax.tree.unflatten(treedef, one), target
