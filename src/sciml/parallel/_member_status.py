"""The status of one member, from its result."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from .._status import Status, has_failed


def status_of(returned: PyTree, kept: PyTree) -> Int[Array, ""]:
    """Returns a member's `Status` as an int32 code.

    A solution carries its status, one that an event has ended being successful, and its arrays may rightly hold
    infinities beyond its end. A result without a status is checked for numbers that are not finite.

    Args:
        returned: The result of the member's function.
        kept: The stored part of it.
    """
    code = jnp.asarray(Status.successful, jnp.int32)
    for solution in _solutions(returned):
        own = jnp.asarray(solution.status, jnp.int32)
        code = jnp.where((code == Status.successful) & has_failed(own), own, code)
    if _solutions(kept):
        return code
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(kept) if jnp.issubdtype(x.dtype, jnp.inexact)]
    if not finite:
        return code
    all_finite = jnp.all(jnp.stack(finite))
    return jnp.where((code == Status.successful) & ~all_finite, jnp.asarray(Status.nonfinite, jnp.int32), code)


def _solutions(tree: PyTree) -> list[Any]:
    return [x for x in jax.tree.leaves(tree, is_leaf=_is_solution) if _is_solution(x)]


def _is_solution(x: Any) -> bool:
    # By its attributes, not by its class: a user's own result type may carry a status as well.
    status: Any = getattr(x, "status", None)
    return eqx.is_array(status) and jnp.issubdtype(status.dtype, jnp.integer) and status.shape == ()


def work_of(returned: PyTree) -> Int[Array, "2"] | None:
    """Returns a member's own steps and the steps executed on its lane, or None if its result does not contain them.

    Args:
        returned: The result of the member's function.
    """
    counts = [_steps(solution) for solution in _solutions(returned)]
    known = [x for x in counts if x is not None]
    return sum(known[1:], known[0]) if known else None


def _steps(solution: Any) -> Array | None:
    stats = getattr(solution, "stats", None)
    found: list[Any] = [getattr(stats, name, None) for name in ("accepted", "rejected", "executed")]
    if not all(eqx.is_array(x) and x.shape == () for x in found):
        return None
    accepted, rejected, executed = (jnp.asarray(x, jnp.int32) for x in found)
    return jnp.stack([accepted + rejected, executed])
