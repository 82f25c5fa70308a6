"""`choose`: what computes a divergence, and why."""

import logging
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._backends import KernelRequest, check_interpreter, kernel_for, log_once, log_refused
from ..stencil._ghost_weights import NotForKernelsError
from ._divergence import FluxDivergence, GhostLayers
from ._trial import trial_of

_WHAT = "a conservation law"


class VolumesSelection(NamedTuple):
    """What computes a divergence.

    Attributes:
        kernel: The kernel; None for XLA.
        reason: Why, in words.
        interpreted: Whether the kernel runs in JAX's interpreter.
    """

    kernel: Any
    reason: str
    interpreted: bool = False


def choose(
    request: KernelRequest, problem: FluxDivergence, operands: PyTree, shape: tuple[int, ...], dtype: Any
) -> VolumesSelection:
    """Returns what computes a divergence where so much is asked for.

    Args:
        request: What is asked for.
        problem: The divergence.
        operands: The numbers that all cells share.
        shape: The shape of the fields, those of one device.
        dtype: Their dtype.

    Raises:
        ValueError: If a kernel was asked for that cannot compute it.
    """
    if isinstance(request.impl, str):
        name, reason = kernel_for(request, lambda: trial_of(len(shape), dtype, kernel_of))
    else:
        name, reason = None, f"{request.impl.name!r} is a kernel of stencils"
    if name is None:
        log_refused(_WHAT, request, reason)
        return VolumesSelection(None, reason)
    if request.interpret:
        check_interpreter(operands)
    try:
        kernel = kernel_of(name)(problem, operands, shape, dtype)
    except NotForKernelsError as error:
        if request.impl == "auto":
            log_once(_WHAT, str(error), logging.WARNING)
            return VolumesSelection(None, str(error))
        raise ValueError(
            f"`{request}` cannot run this conservation law: {error}. The kernel takes float32 (on GPUs float64 too) and "
            "numbers as parameters, on a `Grid`. `impl='auto'` and `'xla'` take every law."
        ) from error
    return VolumesSelection(kernel, reason, request.interpret)


def divergence(chosen: VolumesSelection, y: Array, ghosts: GhostLayers, operands: PyTree) -> Array:
    """Returns the rates of a state, by the kernel that was chosen.

    Args:
        chosen: What was chosen.
        y: The state, `(*components, *shape)`.
        ghosts: The cells beyond each end of each axis, primitive variables.
        operands: The numbers that all cells share.
    """
    if chosen.interpreted:
        check_interpreter((y, ghosts, operands))
    return chosen.kernel(y, ghosts, jax.tree.map(jnp.asarray, operands), chosen.interpreted)


def kernel_of(name: str) -> Any:
    """Returns a kind of kernel by its name; JAX's Pallas is imported when it is needed."""
    if name == "mosaic_gpu":
        from ._gpu import GpuVolumes

        return GpuVolumes
    from ._tpu import TpuVolumes

    return TpuVolumes
