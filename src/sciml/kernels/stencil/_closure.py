"""The values that an update's function closes over, as its leaves: kernels get them, and gradients reach them.

The function is traced once, for one cell, which shows the values it closes over; the program is then run over arrays by
`jax.vmap`, with these arrays as operands.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._interpreters import ClosedJaxpr
from ..._jax._promoted import as_promoted_function
from ..._jax.programs import with_constants_as_inputs
from ._update import StencilUpdate


class _ClosureConverted(eqx.Module):
    """A function of neighbours as the program that it is for one cell.

    Attributes:
        fn: The function, for its own leaves.
        captured: The values it closes over.
        program: `(values, leaves of function and parameters, captured) -> new values`.
        reads: The names it reads, in the order of the values.
        form: The structure of what it returns.
    """

    fn: Callable
    captured: tuple[Array, ...]
    program: ClosedJaxpr = eqx.field(static=True)
    reads: tuple = eqx.field(static=True)
    form: Any = eqx.field(static=True)

    def __call__(self, nb: Callable[..., Array], params: PyTree) -> Any:
        operands = [*(nb(*read) for read in self.reads), *_leaves(self.fn, params), *self.captured]
        extra = [x.ndim - aval.ndim for x, aval in zip(operands, self.program.in_avals)]
        run = as_promoted_function(self.program)
        # over arrays it runs by `vmap`, once for each axis that an operand has more than it has for one cell
        for level in range(1, max(extra, default=0) + 1):
            run = jax.vmap(run, in_axes=[0 if more >= level else None for more in extra], out_axes=0)
        return jax.tree.unflatten(self.form, run(*operands))


def closure_converted(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> StencilUpdate:
    """Returns an update whose functions close over no floating-point array: such arrays are leaves.

    Raises:
        ValueError: If a function does not act element by element.
    """
    stages = update.fn if isinstance(update.fn, tuple) else (update.fn,)
    found = tuple(_converted(update, fn, ndim, dtype, params) for fn in stages)
    if all(new is old for new, old in zip(found, stages)):
        return update
    return eqx.tree_at(lambda u: u.fn, update, found if isinstance(update.fn, tuple) else found[0])


def _converted(update: StencilUpdate, fn: Callable, ndim: int, dtype: Any, params: PyTree) -> Callable:
    cell, reads = jnp.zeros((), dtype), {}
    leaves, static = eqx.partition((fn, params), eqx.is_array)

    def trace(read: Callable[..., Array], leaves: PyTree) -> Any:
        fn, params = eqx.combine(leaves, static)
        return jax.tree.map(jnp.asarray, fn(read, params))

    def note(*read: Any) -> Array:
        update.check_shift(read[0], read[1:], ndim)
        reads.setdefault(read, len(reads))
        return cell

    jax.eval_shape(lambda leaves: trace(note, leaves), leaves)

    def by_values(values: list[Array], leaves: PyTree) -> Any:
        return trace(lambda *read: values[reads[read]], leaves)

    closed, form = jax.make_jaxpr(by_values, return_shape=True)([cell] * len(reads), leaves)
    # integers and truth values have no gradient, and stay constants of the program
    which = [eqx.is_inexact_array(c) for c in closed.consts]
    if not any(which):
        return fn
    captured = tuple(c for c, mine in zip(closed.consts, which) if mine)
    program = with_constants_as_inputs(closed, which)
    return _ClosureConverted(fn, captured, program, tuple(reads), jax.tree.structure(form))


def _leaves(fn: Callable, params: PyTree) -> list[Array]:
    return jax.tree.leaves(eqx.filter((fn, params), eqx.is_array))
