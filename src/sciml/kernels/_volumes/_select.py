"""`choose`: what computes a divergence, and why."""

import logging
from typing import Any, NamedTuple

from jaxtyping import Array, PyTree

from ..._jax._platform import default_platform
from .._backends import KERNEL_OF, KernelRequest, check_interpreter, kernel_for, log_once, log_refused
from ..stencil._ghost_weights import NotForKernelsError
from ._divergence import FluxDivergence, GhostLayers
from ._trial import trial_of

_WHAT = "a conservation law"


class VolumesSelection(NamedTuple):
    """The computation of a divergence, without arrays.

    Attributes:
        backend: `"xla"`, or the name of a kernel.
        reason: Why, in words.
        interpreted: Whether the kernel runs in JAX's interpreter.
    """

    backend: str
    reason: str
    interpreted: bool = False


def choose(
    request: KernelRequest, problem: FluxDivergence, operands: PyTree, shape: tuple[int, ...], dtype: Any
) -> VolumesSelection:
    """Returns the program of a divergence for a request.

    Args:
        request: The requested backend.
        problem: The divergence.
        operands: The numbers that all cells share.
        shape: The shape of the fields on one device.
        dtype: Their dtype.

    Raises:
        ValueError: If a kernel was requested that cannot compute it.
    """
    name, reason = kernel_for(request, lambda: trial_of(len(shape), dtype, kernel_of))
    if name is None:
        log_refused(_WHAT, request, reason)
        return VolumesSelection("xla", reason)
    try:
        kernel_of(name)(problem, operands, shape, dtype)
    except NotForKernelsError as error:
        return refused(request, error)
    return VolumesSelection(name, reason, request.interpret)


def refused(request: KernelRequest, error: NotForKernelsError) -> VolumesSelection:
    """Returns XLA if no kernel can, with the reason.

    Raises:
        ValueError: If a kernel was requested.
    """
    if request.impl not in ("auto", "xla"):
        raise ValueError(
            f"`{request}` cannot run this conservation law: {error}. The kernel supports float32 states (also float64 "
            "on GPUs) on a `Grid`, and laws whose parameters are numbers. `impl='auto'` and `'xla'` support every law."
        ) from error
    if request.impl == "auto" and default_platform() in KERNEL_OF:
        log_once(_WHAT, str(error), logging.WARNING)
    return VolumesSelection("xla", str(error))


def divergence(
    chosen: VolumesSelection, problem: FluxDivergence, y: Array, ghosts: GhostLayers, operands: PyTree
) -> Array:
    """Returns the rates of a state, by the kernel that was chosen.

    Args:
        chosen: The choice.
        problem: The divergence.
        y: The state, `(*components, *shape)`.
        ghosts: The cells beyond each end of each axis, primitive variables.
        operands: The numbers that all cells share.
    """
    if chosen.interpreted:
        check_interpreter((y, ghosts, operands))
    kernel = kernel_of(chosen.backend)(problem, operands, y.shape[y.ndim - problem.ndim :], y.dtype)
    return kernel(y, ghosts, operands, chosen.interpreted)


def kernel_of(name: str) -> Any:
    """Returns a kind of kernel by its name; JAX's Pallas is imported when it is needed."""
    if name == "mosaic_gpu":
        from ._gpu import GpuVolumes

        return GpuVolumes
    from ._tpu import TpuVolumes

    return TpuVolumes
