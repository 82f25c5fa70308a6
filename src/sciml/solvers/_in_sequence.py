"""Work on small arrays, kept apart from large ones that a loop writes to or reads from.

On the CPU, XLA runs the operations of a program one after another where all arrays that they touch are small. If one of
them touches a larger array, it puts all operations of that program into a queue for several threads, and each then
takes several times as long. A step of a small state is some hundred operations on scalars, so a loop that writes to a
record of its steps would lose most of its time to the queue. The branch of a conditional is a program of its own.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
from jaxtyping import Array, Bool, PyTree

from .._vma import promote, to_varying, vma_of

_Out = TypeVar("_Out")

SMALL = 512
"""The size in bytes up to which an array is small to XLA."""


def in_sequence(
    holds: Bool[Array, ""],
    work: Callable[..., _Out],
    otherwise: Callable[..., _Out],
    *inputs: PyTree[Array],
) -> _Out:
    """Returns what `work` makes of its inputs, on a CPU from a branch of its own where they are all small.

    Args:
        holds: Whether there is anything to do; the compiler must not know.
        work: What is to be done.
        otherwise: What stands for it where there is nothing to do: `work` may have run all the same.
        inputs: All that both read.
    """
    if jax.default_backend() != "cpu" or any(x.size * x.dtype.itemsize > SMALL for x in jax.tree.leaves(inputs)):
        return work(*inputs)
    inputs = promote(inputs)
    axes = vma_of(inputs)
    branches = [lambda *xs, fn=fn: to_varying(fn(*xs), axes) for fn in (work, otherwise)]
    return jax.lax.cond(to_varying(holds, axes), *branches, *inputs)
