"""The ways that a kernel can run, and which of them a machine takes."""

import functools
import logging
from typing import Any

import jax

from .._jax._vma import jax_version, vma_of

KERNELS = ("mosaic_gpu", "mosaic_tpu")
"""The kernels by name."""

KERNEL_OF = {"gpu": "mosaic_gpu", "cuda": "mosaic_gpu", "tpu": "mosaic_tpu"}
"""The kernel for a platform."""

INTERPRETED = {"interpret": "mosaic_gpu", "interpret_gpu": "mosaic_gpu", "interpret_tpu": "mosaic_tpu"}
"""The kernel whose body is run by XLA."""

WAYS = ("auto", "xla", "pallas", *KERNELS, *INTERPRETED)

Tested = dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]]
"""Where kernels run without being asked: from platform and kind of device to the first and the last version of JAX."""

_LOG = logging.getLogger("sciml.kernels")


def check_way(impl: str) -> str:
    """Returns a way of running.

    Raises:
        ValueError: If there is no such way.
    """
    if impl not in WAYS:
        raise ValueError(f"`impl` must be one of {', '.join(map(repr, WAYS))}, but is {impl!r}.")
    return impl


def kernel_for(impl: str, tested: Tested) -> tuple[str | None, str]:
    """Returns the kernel to try, or None for XLA, and why.

    Args:
        impl: The way that is asked for.
        tested: Where `"auto"` takes a kernel.

    Raises:
        ValueError: If there is no such way, or no kernel for this machine.
    """
    if check_way(impl) == "xla":
        return None, "`impl='xla'` asks for it"
    platform = jax.default_backend()
    if impl == "auto":
        if platform not in KERNEL_OF:
            return None, f"there is no kernel for {platform!r}"
        device = jax.devices()[0].device_kind
        versions = tested.get((platform, device))
        if versions is None or not versions[0] <= jax_version() <= versions[1]:
            return None, f"kernels are not tested on {device} with JAX {'.'.join(map(str, jax_version()))}"
        return KERNEL_OF[platform], f"it is tested on {device}"
    if impl == "pallas" and platform not in KERNEL_OF:
        raise ValueError(
            f"`impl='pallas'` needs a GPU or a TPU, but JAX runs on {platform!r} here: `impl='interpret'` runs the "
            "body of the kernel anywhere, `impl='mosaic_gpu'` and `'mosaic_tpu'` compile it for another machine."
        )
    kernel = INTERPRETED.get(impl) or (KERNEL_OF[platform] if impl == "pallas" else impl)
    return kernel, f"`impl={impl!r}` asks for it"


def check_interpreter(operands: Any) -> None:
    """Checks that JAX's interpreter can run a kernel on arrays: it stops at types that say where they vary.

    Raises:
        ValueError: If it cannot.
    """
    if vma_of(operands):
        raise ValueError(
            "a kernel cannot be interpreted where `jax.shard_map` checks what varies over devices, as it does in "
            "`Domain.run`: to interpret it there, call `jax.shard_map(..., check_vma=False)`. `impl='xla'` and "
            "kernels that are compiled pass the checks."
        )


def log_untested(what: str, impl: str, reason: str) -> None:
    """Says that `"auto"` takes no kernel on a machine that there is one for."""
    if impl == "auto" and jax.default_backend() in KERNEL_OF:
        log_once(what, reason, logging.INFO)


@functools.cache
def log_once(what: str, reason: str, level: int) -> None:
    """Says once why something runs without a kernel."""
    _LOG.log(level, "%s runs by XLA, without a kernel: %s", what, reason)
