r"""A loop of one member together with its tangents along single numbers of its inputs: the columns of a Jacobian.

With a state $s$ and inputs $x$, an iteration $s' = \Phi(s, x)$ takes every column $c$ along,

$$\dot s_c' = \frac{\partial \Phi}{\partial s} \dot s_c + \frac{\partial \Phi}{\partial x} e_c.$$

The loop is again one of a single member, so that a kernel runs it as it runs any other. Its functions are the member's
functions, pushed forward by JAX; the unit vectors $e_c$ are constants of the program.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._jax._vma import match
from ._member import Counted, UntilDone

Moving = Callable[[PyTree], PyTree]
"""Returns the part of a state that depends on the inputs; the rest counts as constant."""


def with_columns(
    loop: UntilDone | Counted, inputs: PyTree, moved: tuple[bool, ...], moving: Moving, of_result: Moving
) -> UntilDone | Counted:
    """Returns a loop whose state is a pair, the loop's own state and the columns of its moving part.

    The saved values and the result are also pairs, with the columns in the first axis.

    Args:
        loop: The loop.
        inputs: Shapes and dtypes of one member's inputs.
        moved: The leaves of the inputs that have columns, one for each number in them, in order.
        moving: The parts of the state that have columns; the inexact leaves of its result.
        of_result: The parts of the result that have columns.
    """
    leaves = [x for x, m in zip(jax.tree.leaves(inputs), moved, strict=True) if m]
    units, first = [], 0
    total = sum(math.prod(x.shape) for x in leaves)
    for x in leaves:
        size = math.prod(x.shape)
        units.append(np.eye(total, size, -first, x.dtype).reshape(total, *x.shape))
        first += size

    def along(fn: Callable, state: Any, columns: Any, inputs: PyTree, part: Moving) -> tuple[PyTree, PyTree]:
        """Returns `fn(state, inputs)`, and the columns of a part of it."""
        flat, treedef = jax.tree.flatten(inputs)
        own = [x for x, m in zip(flat, moved) if m]
        free = None if columns is None else _inexact(moving(state))

        def of(free: Any, own: list) -> tuple[PyTree, PyTree]:
            rest = iter(own)
            inputs = jax.tree.unflatten(treedef, [next(rest) if m else x for x, m in zip(flat, moved)])
            out = fn(state if columns is None else _replaced(state, moving, free), inputs)
            return _inexact(part(out)), out

        def push(columns: Any, units: list) -> tuple[PyTree, PyTree]:
            _, rates, out = jax.jvp(of, (free, own), (columns, units), has_aux=True)
            return out, rates

        # the columns are one batch, so the function itself runs once for all of them
        return jax.vmap(push, out_axes=(None, 0))(columns, [match(jnp.asarray(u), x) for u, x in zip(units, own)])

    def start(inputs: PyTree) -> PyTree:
        return along(lambda _, inputs: loop.start(inputs), None, None, inputs, moving)

    def result(both: PyTree, inputs: PyTree) -> PyTree:
        return along(loop.result, *both, inputs, of_result)

    if isinstance(loop, Counted):

        def step(both: PyTree, inputs: PyTree, number: Any) -> PyTree:
            return along(lambda state, inputs: loop.step(state, inputs, number), *both, inputs, moving)

        return Counted(start, step, lambda both, number: (loop.look(both[0], number), both[1]), result, loop.segments)

    def advance(both: PyTree, inputs: PyTree, target: Any) -> PyTree:
        return along(lambda state, inputs: loop.advance(state, inputs, target), *both, inputs, moving)

    def saved(both: PyTree, inputs: PyTree, target: Any) -> PyTree:
        return along(lambda state, inputs: loop.saved(state, inputs, target), *both, inputs, lambda y: y)

    return UntilDone(start, loop.end, lambda both, target: loop.pending(both[0], target), advance, saved, result)


def _inexact(tree: PyTree) -> PyTree:
    return eqx.filter(tree, lambda x: jnp.issubdtype(x.dtype, jnp.inexact))


def _replaced(state: PyTree, moving: Moving, values: PyTree) -> PyTree:
    """A state with other values in the place of the inexact leaves of its moving part."""
    leaves, treedef = jax.tree.flatten(state)
    places = jax.tree.leaves(moving(jax.tree.unflatten(treedef, range(len(leaves)))))
    places = [i for i in places if jnp.issubdtype(leaves[i].dtype, jnp.inexact)]
    for i, value in zip(places, jax.tree.leaves(values), strict=True):
        leaves[i] = value
    return jax.tree.unflatten(treedef, leaves)
