"""The backend of an update, and the reason."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from ..._checks import check_count
from .._backends import KernelRequest, check_interpreter, kernel_for, log_once, log_refused
from .._cache_file import cache_file, warn_unused
from ._closure import closure_converted
from ._ghost_weights import NotForKernelsError
from ._kernel import AbstractStencilKernel
from ._rates import rates_of, update_by
from ._sharded import is_sharded, sharded_axes, update_of_block, with_halo
from ._trial import trial_of
from ._tuning_cache import cache_key, look_up
from ._update import StencilUpdate, as_params, without_periodic

_WHAT = "a stencil"

_TAKES = (
    "The kernel supports float32 fields (also float64 on GPUs), numbers as parameters, and boundary conditions that "
    "are constant along a side; "
)


class StencilSelection(NamedTuple):
    """The backend of an update.

    Attributes:
        backend: `"xla"`, or the name of a kernel, such as `"mosaic_gpu"` or `"mosaic_tpu"`.
        reason: Why, in words.
        steps_per_pass: The number of steps per pass over memory.
        interpreted: Whether the kernel runs in JAX's interpreter instead of being compiled.
        plan: How the kernel cuts the fields; None for `"xla"`.
        kernel: The kernel; None for `"xla"`.
        one_exchange: Whether XLA fetches the layers of neighbouring devices once for all these steps and their stages.
    """

    backend: str
    reason: str
    steps_per_pass: int = 1
    interpreted: bool = False
    plan: Any = None
    kernel: AbstractStencilKernel | None = None
    one_exchange: bool = False


def choose(
    request: KernelRequest,
    update: StencilUpdate,
    state: PyTree,
    params: PyTree = None,
    *,
    coefficients: Mapping[str, Any] | None = None,
    steps_per_pass: int | None = None,
) -> StencilSelection:
    """Returns the backend of an update for a request; see `kernels.select`."""
    if steps_per_pass is not None:
        steps_per_pass = check_count(steps_per_pass, "steps_per_pass", "evolve")
    # XLA takes more than one step at a time only where that saves exchanges between devices
    many = steps_per_pass if steps_per_pass is not None and is_sharded(update) else 0
    by_xla = {"steps_per_pass": many or 1, "one_exchange": many * update.stages > 1}
    fields, _ = jax.eval_shape(lambda s, c: update.arrays_of(s, c), state, dict(coefficients or {}))
    if isinstance(request.impl, AbstractStencilKernel):
        kernel, reason = request.impl, f"`{request}` requests it"
    else:
        name, reason = kernel_for(request, lambda: trial_of(fields[0].ndim, fields[0].dtype, kernel_of))
        kernel = None if name is None else kernel_of(name, fields[0].ndim)
    if kernel is None:
        log_refused(_WHAT, request, reason)
        return StencilSelection("xla", reason, **by_xla)
    if request.interpret:
        check_interpreter(fields)
    try:
        params = as_params(params, fields[0].dtype)
        update = without_periodic(update, fields[0].shape)
        update = closure_converted(update, fields[0].ndim, fields[0].dtype, params)
        make = _plan_of_block if is_sharded(update) else _plan
        plan, tuned = make(kernel, request.interpret, update, params, fields, steps_per_pass)
    except NotForKernelsError as error:
        if request.impl == "auto":
            log_once(_WHAT, str(error), logging.WARNING)
            return StencilSelection("xla", str(error), **by_xla)
        takes = _TAKES if isinstance(request.impl, str) else ""
        raise ValueError(
            f"`{request}` cannot run this update: {error}. {takes}`impl='auto'` and `'xla'` support every update."
        ) from error
    reason = f"{reason}, and its tiles were tuned" if tuned else reason
    return StencilSelection(kernel.name, reason, plan.steps // update.stages, request.interpret, plan, kernel)


def choose_for_model(request: KernelRequest, model: Any, y: PyTree) -> StencilSelection:
    """Returns the backend of steps of one stage of a model that has a method `stencil`; see `kernels.select`."""
    try:
        rates = rates_of(model, y)
    except NotForKernelsError as error:
        if request.impl not in ("auto", "xla"):
            raise ValueError(f"`{request}` cannot run `{type(model).__name__}`: {error}.") from error
        return StencilSelection("xla", str(error))
    fields = jax.eval_shape(rates.fields_of, y)
    return choose(request, update_by(rates, rates.fn), fields, rates.params, coefficients=rates.coefficients)


def _plan(
    kernel: AbstractStencilKernel,
    interpreted: bool,
    update: StencilUpdate,
    params: PyTree,
    fields: Any,
    steps: int | None,
) -> tuple[Any, bool]:
    """The kernel's plan, whose steps count every stage, and whether `tune` found it."""
    stages = steps
    if update.stages > 1:
        if not kernel.takes_stages:
            raise NotForKernelsError(
                f"its steps have several stages, which this kernel does not support in {fields[0].ndim} dimensions"
            )
        stages = update.stages * (max(1, 4 // (update.stages * update.radius)) if steps is None else steps)
    # asked first, for what it refuses whatever the tiles
    plan = kernel.plan(update, params, fields[0].shape, fields[0].dtype, stages)
    known = _tuned(kernel, interpreted, update, params, fields) if steps is None else None
    return (plan, False) if known is None else (known, True)


def _plan_of_block(
    kernel: AbstractStencilKernel,
    interpreted: bool,
    update: StencilUpdate,
    params: PyTree,
    fields: Any,
    steps: int | None,
) -> tuple[Any, bool]:
    """The plan for a block with the layers that its steps need; tuned if it is for a field as large as the block."""
    block, like, sharded = update_of_block(update), fields[0], sharded_axes(update)
    alone, tuned = _plan(kernel, interpreted, block, params, fields, steps)
    least = min((n for n, cut in zip(like.shape, sharded) if cut), default=alone.steps * update.radius)
    # the number of steps is free: take as many as one neighbour has layers for
    if steps is None and least < alone.steps * update.radius:
        steps, tuned = max(1, least // (update.stages * update.radius)), False
        alone, _ = _plan(kernel, interpreted, block, params, fields, steps)
    width = alone.steps * update.radius
    if least < width:
        raise NotForKernelsError(f"a pass needs {width} layers of its neighbours, but a device has {least}")
    wide = jax.ShapeDtypeStruct(with_halo(like.shape, sharded, width), like.dtype)
    tilings = ((alone.steps, alone.rows), (alone.steps,)) if tuned else ((alone.steps,),)
    return first_plan(kernel, block, params, wide, *tilings), tuned


def first_plan(kernel: AbstractStencilKernel, update: StencilUpdate, params: PyTree, like: Any, *tilings: tuple) -> Any:
    """Returns the first of the plans with the given stages for each pass, and rows, that a kernel has.

    Raises:
        NotForKernelsError: If it has none.
    """
    for tiling in tilings[:-1]:
        try:
            return kernel.plan(update, params, like.shape, like.dtype, *tiling)
        except NotForKernelsError:
            continue
    return kernel.plan(update, params, like.shape, like.dtype, *tilings[-1])


def _tuned(kernel: AbstractStencilKernel, interpreted: bool, update: StencilUpdate, params: PyTree, fields: Any) -> Any:
    """The plan that `tune` found, or None."""
    key = cache_key(kernel.name, interpreted, update, params, fields)
    tiling = look_up(key)
    if tiling is None:
        return None
    try:
        if tiling.steps % update.stages:
            raise NotForKernelsError(f"{tiling.steps} stages are not a whole number of steps")
        if tiling.rows not in kernel.sizes:
            raise NotForKernelsError(f"there are no tiles of {tiling.rows} rows")
        return kernel.plan(update, params, fields[0].shape, fields[0].dtype, *tiling)
    except NotForKernelsError as error:
        warn_unused(cache_file(), f"{key}: {error}")
        return None


def kernel_of(name: str, ndim: int) -> AbstractStencilKernel:
    """Returns a kernel by its name; JAX's Pallas is imported when it is needed."""
    if name == "mosaic_gpu":
        from .mosaic._gpu_1d import MosaicGpu1d
        from .mosaic._gpu_2d import MosaicGpu2d
        from .mosaic._gpu_3d import MosaicGpu3d

        return (MosaicGpu1d, MosaicGpu2d, MosaicGpu3d)[ndim - 1]()
    from .mosaic._tpu import MosaicTpu, MosaicTpu1d

    return MosaicTpu1d() if ndim == 1 else MosaicTpu()
