"""Barriers between the stages of a step whose vector field reads neighbours.

On the CPU, XLA computes again what it fuses: a stencil that reads a stage at five places evaluates the expression
of that stage five times, and the stage before it twenty-five times. A method of several stages then takes
tens of times as long as its evaluations, and its gradient more. A barrier that the CPU keeps
(`behind_a_branch`) prevents that. A field that combines numbers at the same place only is left to be fused, which
makes it faster, and so is the evaluation of a method of one stage.
"""

import jax
import jax.extend as jex
from jaxtyping import Array, PyTree

from ..._jax._barrier import behind_a_branch

_MOVES = {"concatenate", "dynamic_slice", "gather", "pad", "rev", "slice"}

_MESSAGES = {"all_to_all", "ppermute"}

_LARGE = 1024
"""A number of elements that takes longer to compute again than a conditional."""


def reads_neighbours(jaxpr: jex.core.Jaxpr) -> bool:
    """Returns whether a program moves elements of large arrays to other places, or asks other devices."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in _MESSAGES:
            return True
        if eqn.primitive.name in _MOVES and any(getattr(v.aval, "size", 0) >= _LARGE for v in eqn.outvars):
            return True
        subs = [getattr(p, "jaxpr", p) for p in eqn.params.values()]
        if any(reads_neighbours(sub) for sub in subs if isinstance(sub, jex.core.Jaxpr)):
            return True
    return False


def stage_barrier(tree: PyTree[Array], t: Array) -> PyTree[Array]:
    """Returns arrays as they are, but computed once.

    Args:
        tree: The arrays.
        t: A real number of which the compiler knows nothing; where it is NaN, so is the result.
    """

    def computed(t, *leaves):
        # not NaN, which the compiler cannot know: it must keep the branch, and fuses nothing across it
        return behind_a_branch(t == t, *leaves, otherwise=float("nan"))

    leaves, treedef = jax.tree.flatten(tree)
    leaves = jax.lax.platform_dependent(t, *leaves, cpu=computed, default=lambda t, *x: x)
    return jax.tree.unflatten(treedef, leaves)
