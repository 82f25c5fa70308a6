"""The outcome of a member that takes a known number of equal steps, after some of which it may not be finite."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._status import Status
from ._integrator import Operands, known
from ._result import Result


def result_of_steps(y: PyTree, finite: Array, count: int, operands: Operands, cause: Array | None = None) -> Result:
    """Returns the result of `count` equal steps of a member, whose state was finite after `finite` of them.

    Args:
        y: The state after all of them.
        finite: After how many it was still finite.
        count: Their number.
        operands: The inputs of the integration.
        cause: The status where one failed, given where steps after that count as not taken; None to count them all.
    """
    assert operands.dt is not None  # equal steps have their size
    good = finite == count
    failed = jnp.full_like(finite, int(Status.nonfinite)) if cause is None else cause
    status = jnp.where(good, int(Status.successful), failed).astype(jnp.int32)
    elapsed = jnp.where(good, operands.span, finite.astype(operands.span.dtype) * operands.dt)
    executed = jnp.full_like(finite, count)
    if cause is None:
        return Result(known(y, good), status, elapsed, executed, jnp.zeros_like(finite), executed)
    return Result(known(y, good), status, elapsed, finite, (~good).astype(finite.dtype), executed)


def count_finite(finite: Array, y: PyTree, number: Array) -> Array:
    """Returns the number of steps after which the state was still finite, given that before and the last step's."""
    ok = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]).all()
    return jnp.where(ok, number, finite)
