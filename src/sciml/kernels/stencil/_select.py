"""`select`: which way an update runs, and why."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from ..._checks import check_count
from .._backends import INTERPRETED, Tested, check_interpreter, kernel_for, log_once, log_untested
from .._use import asked
from ._closure import opened
from ._ghost_weights import NotForKernelsError
from ._sharded import divided_axes, is_divided, of_block, with_layers
from ._tuning_cache import file_of, find, ignore, key_of
from ._update import StencilUpdate, as_params

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
    impl: str | None = None,
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
        impl: See the table; without it, what the block of `kernels.use` says that the call stands in, else "auto".
        steps_per_pass: How many steps a kernel takes for each pass over memory; without it, what `tune` found for such
            an update, or else the kernel's choice.

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
    impl = asked(impl)
    if steps_per_pass is not None:
        steps_per_pass = check_count(steps_per_pass, "steps_per_pass", "evolve")
    deep = steps_per_pass if steps_per_pass and update.turns == 1 and is_divided(update) else 1
    fields, _ = jax.eval_shape(lambda s, c: update.arrays_of(s, c), state, dict(coefficients or {}))
    kernel, reason = kernel_for(impl, TESTED)
    if kernel is None:
        log_untested(_WHAT, impl, reason)
        return Selection("xla", reason, deep)
    interpreted = impl in INTERPRETED
    if interpreted:
        check_interpreter(fields)
    try:
        numbers = as_params(params, fields[0].dtype)
        update = opened(update, fields[0].ndim, fields[0].dtype, numbers)
        make = _plan_of_block if is_divided(update) else _plan
        plan, tuned = make(kernel, interpreted, update, numbers, fields, steps_per_pass)
    except NotForKernelsError as error:
        if impl == "auto":
            log_once(_WHAT, str(error), logging.WARNING)
            return Selection("xla", str(error), deep)
        raise ValueError(
            f"`impl={impl!r}` cannot run this update: {error}. The kernel takes float32 fields (on GPUs float64 too), "
            "numbers as parameters, and conditions at walls that are the same all along a side; `impl='auto'` and "
            "`'xla'` take every update."
        ) from error
    reason = f"{reason}, and its tiles were tuned" if tuned else reason
    return Selection(kernel, reason, plan.steps // update.turns, interpreted, plan)


def _plan(
    kernel: str, interpreted: bool, update: StencilUpdate, params: PyTree, fields: Any, steps: int | None
) -> tuple[Any, bool]:
    """The kernel's plan, whose steps count every function that takes turns, and whether `tune` found it."""
    module, functions = kernel_of(kernel, fields[0].ndim), steps
    if update.turns > 1:
        if not module.TAKES_TURNS:
            raise NotForKernelsError(
                f"its functions take turns, as the stages of a method do, which in {fields[0].ndim} dimensions this "
                "kernel's do not"
            )
        functions = update.turns * (max(1, 4 // (update.turns * update.radius)) if steps is None else steps)
    plan = module.plan(update, params, fields[0].shape, fields[0].dtype, functions)
    known = _known(kernel, interpreted, update, params, fields) if steps is None else None
    return (plan, False) if known is None else (known, True)


def _plan_of_block(
    kernel: str, interpreted: bool, update: StencilUpdate, params: PyTree, fields: Any, steps: int | None
) -> tuple[Any, bool]:
    """The plan for a block with the layers that its steps need; tuned if it is for a field as large as the block."""
    block, like, divided = of_block(update), fields[0], divided_axes(update)
    alone, tuned = _plan(kernel, interpreted, block, params, fields, steps)
    least = min((n for n, cut in zip(like.shape, divided) if cut), default=alone.steps * update.radius)
    if steps is None and least < alone.steps * update.radius:
        steps, tuned = max(1, least // (update.turns * update.radius)), False
        alone, _ = _plan(kernel, interpreted, block, params, fields, steps)
    width = alone.steps * update.radius
    if least < width:
        raise NotForKernelsError(f"a pass needs {width} layers of its neighbours, and a device holds {least}")
    wide = jax.ShapeDtypeStruct(with_layers(like.shape, divided, width), like.dtype)
    cuts = ((alone.steps, alone.rows), (alone.steps,)) if tuned else ((alone.steps,),)
    return first_plan(kernel, block, params, wide, *cuts), tuned


def first_plan(kernel: str, update: StencilUpdate, params: PyTree, like: Any, *cuts: tuple) -> Any:
    """Returns the first of the plans with the given steps for each pass, and rows, that a kernel has.

    Raises:
        NotForKernelsError: If it has none.
    """
    module = kernel_of(kernel, like.ndim)
    for cut in cuts[:-1]:
        try:
            return module.plan(update, params, like.shape, like.dtype, *cut)
        except NotForKernelsError:
            continue
    return module.plan(update, params, like.shape, like.dtype, *cuts[-1])


def _known(kernel: str, interpreted: bool, update: StencilUpdate, params: PyTree, fields: Any) -> Any:
    """The plan that `tune` found, or None."""
    key = key_of(kernel, interpreted, update, params, fields)
    cut = find(key)
    if cut is None:
        return None
    try:
        if cut.steps % update.turns:
            raise NotForKernelsError(f"{cut.steps} steps are no whole number of turns")
        module = kernel_of(kernel, fields[0].ndim)
        if cut.rows not in module.SIZES:
            raise NotForKernelsError(f"there are no tiles of {cut.rows} rows")
        return module.plan(update, params, fields[0].shape, fields[0].dtype, *cut)
    except NotForKernelsError as error:
        ignore(file_of(), f"{key}: {error}")
        return None


def kernel_of(name: str, ndim: int) -> Any:
    """Returns the module of a kernel, with `plan` and `advance`; JAX's Pallas is imported when it is needed."""
    file = {
        ("mosaic_gpu", 1): "_gpu_1d",
        ("mosaic_gpu", 2): "_gpu_2d",
        ("mosaic_gpu", 3): "_gpu_3d",
        ("mosaic_tpu", 1): "_tpu_1d",
    }.get((name, ndim), "_tpu")
    return importlib.import_module(f".mosaic.{file}", __package__)
