"""The requested backend, the backends that can run it, and the one that a machine uses."""

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any

import equinox as eqx

from .._jax._platform import default_platform
from .._jax._vma import vma_of
from ._verdicts import Trial, verdict_of

IMPLS = ("auto", "xla", "pallas")
"""The backends that users may request."""

KERNELS = ("mosaic_gpu", "mosaic_tpu")
"""The kernels by name."""

KERNEL_OF = {"gpu": "mosaic_gpu", "cuda": "mosaic_gpu", "tpu": "mosaic_tpu"}
"""The kernel for a platform."""

_LOG = logging.getLogger("sciml.kernels")


class AbstractKernel(eqx.Module):
    """A kernel that may be given instead of a name.

    Attributes:
        name: Its name.
    """

    name: eqx.AbstractClassVar[str]


@dataclasses.dataclass(frozen=True)
class KernelRequest:
    """The backend that a call requests.

    Attributes:
        impl: One of `IMPLS`, or the name of a kernel, or a kernel.
        interpret: Whether the kernel runs in JAX's interpreter.
    """

    impl: str | AbstractKernel = "auto"
    interpret: bool = False

    def __str__(self) -> str:
        impl = repr(self.impl) if isinstance(self.impl, str) else f"{type(self.impl).__name__}()"
        return f"impl={impl}, interpret=True" if self.interpret else f"impl={impl}"


AUTO, XLA = KernelRequest("auto"), KernelRequest("xla")


def kernel_for(request: KernelRequest, trial: Callable[[], Trial]) -> tuple[str | None, str]:
    """Returns the name of the kernel to take, or None for XLA, and why.

    Args:
        request: The requested backend, by name.
        trial: Returns what `"auto"` tries a kernel with, once, before it takes it.

    Raises:
        ValueError: If there is no kernel for this machine.
    """
    impl, platform = request.impl, default_platform()
    if not isinstance(impl, str):
        return None, f"{impl.name!r} is another kind of kernel"
    if impl == "xla":
        return None, "`impl='xla'` requests it"
    if impl == "auto":
        if platform not in KERNEL_OF:
            return None, f"there is no kernel for {platform!r}"
        seen = verdict_of(KERNEL_OF[platform], trial())
        return (seen.kernel if seen.taken else None), seen.reason
    if impl == "pallas":
        if platform not in KERNEL_OF and not request.interpret:
            raise ValueError(
                f"`impl='pallas'` requires a GPU or a TPU, but JAX runs on {platform!r} here. Add `interpret=True` "
                "to run the kernel in JAX's interpreter on any machine."
            )
        impl = KERNEL_OF.get(platform, "mosaic_gpu")
    return impl, f"`{request}` requests it"


def check_interpreter(operands: Any) -> None:
    """Checks that JAX's interpreter can run a kernel on arrays: it does not support types with varying axes.

    Raises:
        ValueError: If it cannot.
    """
    if vma_of(operands):
        raise ValueError(
            "a kernel cannot be interpreted inside `jax.shard_map` with `check_vma=True`, which `Domain.run` uses. "
            "Call `jax.shard_map(..., check_vma=False)` to interpret it; `impl='xla'` and compiled kernels support "
            "the checks."
        )


def log_refused(what: str, request: KernelRequest, reason: str) -> None:
    """Says that `"auto"` takes no kernel on a machine that there is one for."""
    if request.impl == "auto" and default_platform() in KERNEL_OF:
        log_once(what, reason, logging.INFO)


@functools.cache
def log_once(what: str, reason: str, level: int) -> None:
    """Says once why something runs without a kernel."""
    _LOG.log(level, "%s runs with XLA, without a kernel: %s", what, reason)
