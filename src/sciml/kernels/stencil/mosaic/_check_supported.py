"""What every kernel asks of an update before it cuts fields into tiles."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from .._ghost_weights import NotForKernelsError, Sides, check_coefficients, ghost_weights_of
from .._update import StencilUpdate
from ._packed_operands import check_operands
from ._primitives import missing


def check_supported(
    update: StencilUpdate,
    params: PyTree,
    shape: tuple[int, ...],
    dtype: Any,
    kernel: str,
    dtypes: tuple[str, ...],
    ndims: tuple[int, ...],
) -> tuple[Sides, ...]:
    """Checks that a kernel supports an update, and returns the weights of its ghost cells.

    Args:
        update: The update.
        params: The parameters.
        shape: The shape of the fields.
        dtype: Their dtype.
        kernel: The kernel's name.
        dtypes: The dtypes that it takes.
        ndims: The numbers of axes that it takes.

    Raises:
        NotForKernelsError: If it does not.
    """
    ndim = len(shape)
    if ndim not in ndims:
        raise NotForKernelsError(f"fields have {ndim} axes, and the kernel takes {' or '.join(map(str, ndims))}")
    if jnp.dtype(dtype).name not in dtypes:
        raise NotForKernelsError(f"fields have dtype {jnp.dtype(dtype)}, and the kernel takes {' and '.join(dtypes)}")
    check_operands(update, params, dtype)
    check_coefficients(update, ndim, dtype, params)
    if found := missing(update, ndim, dtype, params, kernel):
        raise NotForKernelsError(f"`fn` uses {', '.join(found)}, which the kernel does not support")
    sides = ghost_weights_of(update, ndim, dtype)
    for axis, walls in enumerate(zip(*sides)):
        # Beyond a side, a pass has copies of the other side's cells or what a wall makes of these: not both at once.
        if len({wall is None for wall in walls}) > 1:
            raise NotForKernelsError(f"along axis {axis} some fields are periodic and some have walls")
    return sides
