"""Barriers between the stages of a step whose vector field reads neighbours.

On the CPU, XLA recomputes fused values: a stencil that reads a stage at five places evaluates the expression of that
stage five times, and the stage before it twenty-five times. A method of several stages then takes tens of times as long
as its evaluations, and its gradient more. A barrier that the CPU keeps (`behind_a_branch`) prevents that. A field that
combines numbers at the same place only is left to be fused, which makes it faster, and so is the evaluation of a method
of one stage.
"""

import jax
from jaxtyping import Array, PyTree

from ..._jax._barrier import behind_a_branch


def stage_barrier(tree: PyTree[Array], t: Array) -> PyTree[Array]:
    """Returns arrays as they are, but computed once.

    Args:
        tree: The arrays.
        t: A real number that the compiler cannot predict; if it is NaN, so is the result.
    """

    def computed(t, *leaves):
        # not NaN, which the compiler cannot know: it must keep the branch, and fuses nothing across it
        return behind_a_branch(t == t, *leaves, otherwise=float("nan"))

    leaves, treedef = jax.tree.flatten(tree)
    leaves = jax.lax.platform_dependent(t, *leaves, cpu=computed, default=lambda t, *x: x)
    return jax.tree.unflatten(treedef, leaves)
