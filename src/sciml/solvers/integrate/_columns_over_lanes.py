"""An integration over lanes with the columns of its derivatives, where a step and all of them are a short program.

JAX's forward mode of the loop makes passes over memory for each step, and as many again for its tangents. Here a step
and its tangents along all columns are one function of a member, and therefore one pass over lanes, like a single step.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..._jax._loops import scan_to_end, while_loop
from ..._jax._vma import struct, vma_of
from ...kernels._lanes import Lanes, is_value
from ...kernels.ensemble._columns import Moving, with_columns
from ...kernels.ensemble._member import UntilDone
from ._integrator import Operands
from ._result import Saves
from ._work import work_of


def columns_over_lanes(
    lanes: Lanes,
    loop: UntilDone,
    moving: Moving,
    perturbed: tuple[bool, ...],
    y0: PyTree,
    operands: Operands,
) -> Callable[..., tuple[Array, PyTree, PyTree, PyTree]] | None:
    """Returns how many members are integrated with their derivatives; None where a step is a long program.

    Args:
        lanes: The engine.
        loop: The loop of one member.
        moving: The parts of its state that depend on the differentiated values.
        perturbed: The leaves of `(y0, operands)` that are differentiated, by each of their numbers.
        y0: The initial state, lane values.
        operands: Lane values.

    Returns:
        A function of initial state, operands and saves, lane values like these, that returns the number of iterations,
        the state at the end as lane values, and the states to be returned and their columns, as arrays with members
        last and columns first.
    """
    axes = vma_of((y0, operands))
    sizes = [math.prod(v.shape) for v in jax.tree.leaves((y0, operands), is_leaf=is_value)]
    columns = sum(size for size, moved in zip(sizes, perturbed, strict=True) if moved)
    most = choices().checkpoints.columns_work_at_most
    if columns * sum(math.prod(v.shape) for v in jax.tree.leaves(y0, is_leaf=is_value)) > most // 50:
        return None  # which a step takes as many operations for each of, at least
    one = jax.tree.map(lambda v: struct(v.shape, v.dtype, axes), (y0, operands), is_leaf=is_value)
    both = with_columns(loop, one, perturbed, moving, lambda result: result.ys)
    if work_of(lambda inputs: both.advance(both.start(inputs), inputs, both.end(inputs)), one) > most:
        return None

    def solved(y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Array, PyTree, PyTree, PyTree]:
        inputs = (y0, operands)
        end = lanes.call(both.end, inputs)

        def until(carry: Any, target: PyTree) -> Any:
            def going(carry: Any) -> Array:
                return jnp.any(lanes.leave(lanes.call(both.pending, carry[1], target)))

            def iterate(carry: Any) -> Any:
                number, state = carry
                return number + 1, lanes.carry(lanes.call(both.advance, state, inputs, target))

            return while_loop(going, iterate, carry, like=(inputs, target))

        carry = jnp.zeros((), jnp.int32), lanes.carry(lanes.call(both.start, inputs))
        if saves is None:
            number, state = until(carry, end)
            result, columns = lanes.leave(lanes.call(both.result, state, inputs))
            return number, state[0], result.ys, columns
        batched = saves.batched

        def advance(carry: Any, time: Array, beyond: Array) -> Any:
            choose = lambda beyond, time, end: jnp.where(beyond, end, time)  # noqa: E731
            return until(carry, lanes.call(choose, lanes.enter(beyond, False), lanes.enter(time, batched), end))

        def save(carry: Any, time: Array) -> PyTree:
            return lanes.leave(lanes.call(both.saved, carry[1], inputs, lanes.enter(time, batched)))

        (number, state), (ys, columns) = scan_to_end(advance, save, carry, saves.times, like=inputs)
        return number, state[0], ys, jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), columns)

    return solved
