"""Small programs as one call of XLA's runtime on CPUs.

XLA compiles a loop over small arrays, with all that is in it, into one call. What stands before the loop are calls of
their own, some fifty for the first step and the carry of a solve: its runtime shares them among threads, which takes
longer to begin than a small solve to end. In a loop of one iteration they are part of its call.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..._jax._interpreters import jaxpr_as_fun
from ..._jax._loops import while_loop
from ..._jax._platform import default_platform
from ..._jax._vma import typed_sharding


def may_be_one_call(y: PyTree[Array], others: PyTree) -> bool:
    """Returns whether a program of a state may be one call, and of others that it closes over.

    Args:
        y: The state of one member, or of all.
        others: A PyTree; arrays on a mesh with explicit axes would be in the carry of the loop without being typed so.
    """
    leaves = jax.tree.leaves(y)
    small = sum(np.size(x) * x.dtype.itemsize for x in leaves) <= choices().loops.one_call_at_most
    real = any(jnp.issubdtype(x.dtype, jnp.floating) for x in leaves)
    meshless = jax.sharding.get_abstract_mesh().empty and not any(map(typed_sharding, jax.tree.leaves((y, others))))
    return default_platform() == "cpu" and small and real and meshless


def in_one_call(fn: Callable[[PyTree[Array]], PyTree[Array]], y: PyTree[Array]) -> PyTree[Array]:
    """Returns `fn(y)`, from a loop of one iteration.

    XLA would undo a loop whose number of iterations it knows, and take out of it what does not change. So the number
    depends on the state, and so does the state on the number, by a factor of one.

    Args:
        fn: The program.
        y: Its input, which has a leaf of real numbers.
    """
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(y)  # traced once
    program, structure = jaxpr_as_fun(closed), jax.tree.structure(shapes)
    leaves = jax.tree.leaves(y)
    blank = [jnp.zeros(x.shape, x.dtype) for x in jax.tree.leaves(shapes)]
    known = next(x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating))
    once = jnp.minimum(1, 1 + jnp.sum(jnp.isnan(known), dtype=jnp.int32))

    def iterate(carry):
        number, leaves, _ = carry
        return (
            number + 1,
            [x if x.dtype == bool else x * (number + 1).astype(x.dtype) for x in leaves],
            program(*leaves),
        )

    found = while_loop(lambda carry: carry[0] < once, iterate, (jnp.zeros((), jnp.int32), leaves, blank))[2]
    return jax.tree.unflatten(structure, found)
