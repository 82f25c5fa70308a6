"""The last members of an ensemble: where a step is slow, they go on over fewer lanes.

In lockstep every lane executes the steps of the slowest member. With a network as vector field a step is far more work
than to see which members are done. So once no more than a quarter of the members are left, these are moved to as many
lanes, and integrated to their end there. Their steps are the same.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ..._choices import choices
from ..._jax._loops import while_loop
from ..._jax._platform import default_platform
from ...kernels._lanes import Lanes, Unbatched
from ._integrator import Operands, State
from ._lane_integrator import LaneIntegrator
from ._result import Result
from ._shared_cotangents import share_much
from ._stiffness import stiffness


def compacted_lanes(lanes: Lanes | Unbatched, operands: Operands) -> int:
    """Returns over how many lanes the last members are integrated; zero where they stay where they are.

    Args:
        lanes: The engine.
        operands: Lane values. Large values shared by all members, such as the weights of a network, make steps slow.
    """
    table = choices().compaction
    if not isinstance(lanes, Lanes) or lanes.count is None or lanes.count < table.members_from:
        return 0
    if default_platform() != "cpu" or not share_much(operands.field):
        return 0
    multiple = table.lanes_multiple
    return math.ceil(lanes.count / table.share / multiple) * multiple


def integrate_compacted(
    stepping: LaneIntegrator, width: int, iterations: Int[Array, ""], state: State, operands: Operands, judges: bool
) -> Result:
    """Integrates the members that are left to their end.

    Args:
        stepping: The steps over all members.
        width: The number of lanes, at least the number of remaining members.
        iterations: The number of iterations so far.
        state: The integration of all members, lane values.
        operands: Lane values.
        judges: Whether members that come to the limit of steps are asked whether they are stiff.

    Returns:
        The result of all members.
    """

    def result(stepping: LaneIntegrator, iterations: Array, state: State, operands: Operands) -> Result:
        found = stepping.result(state, stepping.end(state, operands), iterations)
        return found._replace(stiff=stiffness(stepping, state, operands)) if judges else found

    assert isinstance(stepping.lanes, Lanes)  # which has more members than are left
    results = result(stepping, iterations, state, operands)
    count = stepping.lanes.count
    # a lane without a member repeats one, and its result is dropped: its number is out of range
    member = jnp.nonzero(stepping.pending(state, operands.span), size=width, fill_value=count)[0].astype(jnp.int32)
    few = dataclasses.replace(stepping, lanes=dataclasses.replace(stepping.lanes, count=width))
    state, operands = few.lanes.carry(stepping.lanes.take(state, member)), stepping.lanes.take(operands, member)

    def iterate(carry: tuple[Array, State]) -> tuple[Array, State]:
        number, state = carry
        return number + 1, few.advance(state, operands, operands.span)

    def pending(carry: tuple[Array, State]) -> Array:
        return few.any_pending(carry[1], operands.span)

    iterations, state = while_loop(pending, iterate, (iterations, state), like=operands)
    found = result(few, iterations, state, operands)
    return jax.tree.map(lambda all, new: all.at[..., member].set(new, mode="drop"), results, found)
