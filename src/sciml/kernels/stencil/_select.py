"""`select`: which way an update runs, and why."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from ..._checks import check_count
from .._ways import INTERPRETED, Tested, check_way, kernel_for, log_once, log_untested
from ._divided import is_divided
from ._update import StencilUpdate, as_params
from ._walls import NotForKernelsError

TESTED: Tested = {}
"""Where kernels run without being asked; empty as long as no table of `python -m benchmarks.gpu` stands beside it."""

_WHAT = "a stencil"


class Selection(NamedTuple):
    """Which way an update runs.

    Attributes:
        way: `"xla"`, `"mosaic_gpu"` or `"mosaic_tpu"`.
        reason: Why, in words.
        steps_per_pass: How many steps it takes for each pass over memory.
        interpreted: Whether the kernel is interpreted by XLA instead of compiled.
        plan: How the kernel cuts the fields; None for `"xla"`.
    """

    way: str
    reason: str
    steps_per_pass: int = 1
    interpreted: bool = False
    plan: Any = None


def select(
    update: StencilUpdate,
    state: PyTree,
    params: PyTree = None,
    *,
    coefficients: Mapping[str, Any] | None = None,
    impl: str = "auto",
    steps_per_pass: int | None = None,
) -> Selection:
    """Says which way `evolve` runs an update with the same arguments, and why. It runs nothing.

    | `impl` | what runs |
    |---|---|
    | `"auto"` | a kernel where the platform, its kind of device and the version of JAX are tested; else XLA |
    | `"xla"` | XLA, without a rule for reverse mode |
    | `"pallas"` | the kernel for this machine's platform |
    | `"mosaic_gpu"`, `"mosaic_tpu"` | this kernel, to be compiled for such a machine |
    | `"interpret_gpu"`, `"interpret_tpu"` | the body of this kernel, run by XLA on any machine, slowly, to check it |
    | `"interpret"` | `"interpret_gpu"` |

    Where `"auto"` turns a kernel down on a machine that it is for, the logger `sciml.kernels` says so in one line: a
    warning that names what the kernel cannot hold, or for information that the machine is not tested.

    Args:
        update: The update.
        state: The fields, or their shapes and dtypes (`jax.ShapeDtypeStruct`).
        params: The parameters.
        coefficients: The coefficients by name.
        impl: See the table.
        steps_per_pass: How many steps a kernel takes for each pass over memory; without it, the kernel chooses.

    Raises:
        ValueError: If there is no such `impl`, or a kernel that was asked for cannot run the update; the message says
            what it can.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels.stencil import StencilUpdate, select

        update = StencilUpdate(lambda nb, p: nb("u") + p * (nb("u", 1, 0) - nb("u")))
        chosen = select(update, jnp.zeros((64, 64)), 0.1)
        print(chosen.way, "because", chosen.reason)
        ```
    """
    check_way(impl)
    if steps_per_pass is not None:
        steps_per_pass = check_count(steps_per_pass, "steps_per_pass", "evolve")
    deep = steps_per_pass if steps_per_pass and update.turns == 1 and is_divided(update) else 1
    fields, _ = jax.eval_shape(lambda s, c: update.arrays_of(s, c), state, dict(coefficients or {}))
    kernel, reason = kernel_for(impl, TESTED)
    if kernel is None:
        log_untested(_WHAT, impl, reason)
        return Selection("xla", reason, deep)
    try:
        plan = _plan(kernel, update, as_params(params, fields[0].dtype), fields, steps_per_pass)
    except NotForKernelsError as error:
        if impl == "auto":
            log_once(_WHAT, str(error), logging.WARNING)
            return Selection("xla", str(error), deep)
        raise ValueError(
            f"`impl={impl!r}` cannot run this update: {error}. The kernel takes fields with two or three axes, float32 "
            "(on GPUs float64 too), numbers as parameters, and conditions at walls that are the same all along a side; "
            "`impl='auto'` and `'xla'` take every update."
        ) from error
    return Selection(kernel, reason, plan.steps // update.turns, impl in INTERPRETED, plan)


def _plan(kernel: str, update: StencilUpdate, params: PyTree, fields: Any, steps_per_pass: int | None) -> Any:
    """The kernel's plan; its steps are single functions, of which a pass runs all that take turns."""
    steps, module = steps_per_pass, kernel_of(kernel, fields[0].ndim)
    if update.turns > 1:
        if not module.TAKES_TURNS:
            raise NotForKernelsError("its functions take turns, as the stages of a method do")
        steps = max(1, 4 // (update.turns * update.radius)) if steps is None else steps
        steps = steps * update.turns
    return module.plan(update, params, fields[0].shape, fields[0].dtype, steps)


def kernel_of(name: str, ndim: int) -> Any:
    """Returns the module of a kernel, with `plan` and `advance`; JAX's Pallas is imported when it is needed."""
    if name == "mosaic_gpu" and ndim == 3:
        from . import _mosaic_gpu_3d

        return _mosaic_gpu_3d
    if name == "mosaic_gpu":
        from . import _mosaic_gpu

        return _mosaic_gpu
    from . import _mosaic_tpu

    return _mosaic_tpu
