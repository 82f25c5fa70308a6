r"""Whether members that came to the limit of steps took these as long as their method is stable for.

Nothing is asked of a loop's steps, which would cost each of them something. Only for members that have stopped, some
products with the Jacobian $J$ at their final state, by finite differences, show its largest eigenvalue,

$$\rho \approx \left( \frac{|J^{2k} v|}{|J^k v|} \right)^{1 / k},$$

also where that is one of a pair that turns. A step $h$ with $h \rho$ near the end of the method's stability on the
negative axis is not what tolerances ask for: the equation is stiff.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..._jax._loops import while_loop
from ..._status import Status
from ..events._event_state import saved_part
from ._integrator import Checkpoint, Integrator, Operands, State
from ._lane_integrator import LaneIntegrator

_HALF = 8
"""The number of products before the ones that count, and the number of those."""

_NEAR = 0.6
"""From this part of a method's stability on: steps that stability limits grow beyond it, fail, and are shortened."""


def limit_of(integrator: Integrator) -> float | None:
    """Up to where a method is stable on the negative axis; None where no steps are chosen, or stability limits none."""
    stability = integrator.stepper.limits.stability()
    if integrator.control is None or integrator.collective.axes or stability is None:
        return None
    return stability.real if 0 < stability.real < math.inf else None


def stiffness(stepping: LaneIntegrator, state: State, operands: Operands) -> Int[Array, "*members"]:
    """Returns one if steps reached their limit while stability limited them, otherwise zero.

    Args:
        stepping: The steps over lanes, of a method with a limit, see `limit_of`.
        state: The final state of the loop, lane values.
        operands: Lane values.
    """
    integrator, lanes, limit = stepping.integrator, stepping.lanes, limit_of(stepping.integrator)
    assert limit is not None  # as it was asked before
    checkpoint = state.checkpoint._replace(y=saved_part(state.checkpoint.y))
    here, operands = jax.lax.stop_gradient((checkpoint, operands))

    def stopped(here: Checkpoint) -> Array:
        return here.status == int(Status.max_steps_reached)

    def first(y: PyTree) -> tuple[PyTree, Array]:
        return _direction(y), jnp.zeros((), _real_dtype(y))

    def product(direction: PyTree, growth: Array, counts: Array, here: Checkpoint, operands: Operands) -> Any:
        return _product(integrator, direction, growth, counts, here, operands)

    def iterate(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        number, found = carry
        counts = stepping.shared(number >= _HALF)
        return number + 1, lanes.carry(lanes.call(product, *found, counts, here, operands))

    def verdict(growth: Array, here: Checkpoint) -> Array:
        near = here.h * jnp.exp(growth / _HALF).astype(here.h.dtype) > _NEAR * limit
        return (stopped(here) & near).astype(jnp.int32)

    any_stopped = jnp.any(lanes.leave(lanes.call(stopped, here)))
    start = lanes.carry(lanes.call(first, here.y))
    # a loop of no iterations instead of a conditional, which would copy what it reads
    _, (_, growth) = while_loop(
        lambda carry: any_stopped & (carry[0] < 2 * _HALF),
        iterate,
        (jnp.zeros((), jnp.int32), start),
        like=(here, operands, any_stopped),
    )
    return lanes.leave(lanes.call(verdict, growth, here))


def _product(
    integrator: Integrator, direction: PyTree, growth: Array, counts: Array, here: Checkpoint, operands: Operands
) -> tuple[PyTree, Array]:
    """Returns the Jacobian times a direction, scaled to one, and the logarithm of what the products have grown by."""
    field, time = integrator.bound(operands), integrator.time(here.elapsed, operands)
    # a difference, since a field may have no forward mode, for example with a custom reverse-mode rule or a host call
    here_size = _norm(here.y)
    step = jnp.sqrt(jnp.finfo(here_size.dtype).eps) * jnp.where(here_size > 0, here_size, jnp.ones_like(here_size))
    moved = jax.tree.map(lambda y, v: y + step.astype(y.dtype) * v, here.y, direction)
    image = jax.tree.map(lambda a, b: (a - b) / step.astype(a.dtype), field(time, moved), field(time, here.y))
    size = _norm(image)
    remains = size > 0
    size = jnp.where(remains, size, jnp.ones_like(size))
    image = jax.tree.map(lambda x: x / size.astype(x.dtype), image)
    # where nothing is left there is no eigenvalue but zero
    larger = jnp.where(remains, growth + jnp.log(size), jnp.full_like(growth, -jnp.inf))
    return image, jnp.where(counts, larger, growth)


def _direction(y: PyTree) -> PyTree:
    """Returns a direction that has something of every eigenvector."""

    def part(x: Array) -> Array:
        return jnp.reshape(jnp.asarray(np.cos(np.arange(x.size)), x.dtype), x.shape) + jnp.zeros_like(x)

    direction = jax.tree.map(part, y)
    size = _norm(direction)
    return jax.tree.map(lambda x: x / size.astype(x.dtype), direction)


def _norm(tree: PyTree) -> Array:
    dtype = _real_dtype(tree)
    return jnp.sqrt(sum(jnp.sum(jnp.abs(x) ** 2).astype(dtype) for x in jax.tree.leaves(tree)))


def _real_dtype(tree: PyTree) -> Any:
    return max((jnp.finfo(x.dtype).dtype for x in jax.tree.leaves(tree)), key=lambda d: d.itemsize)
