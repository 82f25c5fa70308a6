"""`tune`: which tiles, and how many steps for each pass over memory, are fastest on the device that is there."""

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..._checks import check_count, concrete
from .._backends import KernelRequest
from .._cache_file import cache_file
from .._use import requested
from ._closure import closure_converted
from ._ghost_weights import NotForKernelsError
from ._kernel import AbstractStencilKernel, Tiling
from ._select import StencilSelection, choose
from ._tuning_cache import cache_key, store
from ._update import Fields, StencilUpdate, as_params, without_periodic


class Timing(NamedTuple):
    """How fast a kernel was with one tiling of the fields.

    Attributes:
        steps_per_pass: The steps for each pass over memory.
        rows: The size of a tile: its rows, or in one dimension on a GPU its cells.
        seconds: The time of one step; infinite if it did not run.
        failure: Why it did not run.
    """

    steps_per_pass: int
    rows: int
    seconds: float
    failure: str = ""


def tune(
    update: StencilUpdate,
    state: PyTree,
    params: PyTree = None,
    *,
    coefficients: Mapping[str, Any] | None = None,
    impl: str | AbstractStencilKernel | None = None,
    interpret: bool = False,
    steps_per_pass: int | Sequence[int] = (1, 2, 4, 8, 16),
    rows: int | Sequence[int] | None = None,
    n_steps: int = 48,
    repeats: int = 3,
    cache: str | os.PathLike | None = None,
) -> tuple[Timing, ...]:
    """Times the tilings that a kernel has for these fields, and keeps the fastest for later runs.

    If no `steps_per_pass` is given, `select`, and so `evolve`, `sciml.solve` and `sciml.simulate`, then use the stored
    tiling for the same kind of device, version of JAX, kernel, shape, dtype and structure of the update: its reads, its
    conditions and its operations, not their numbers. Programs that are compiled already stay as they are.

    It is kept in a JSON file: the one that the environment variable `SCIML_KERNEL_PLANS` names, else
    `sciml/stencils.json` in the user's folder of caches (`$XDG_CACHE_HOME` or `~/.cache`; on macOS `~/Library/Caches`,
    on Windows `%LOCALAPPDATA%`). A file that is missing or damaged counts as empty. One that cannot be written is a
    warning of the logger `sciml.kernels`.

    Args:
        update: The update.
        state: The fields to run it on.
        params: The parameters.
        coefficients: The coefficients by name.
        impl: The kernel, see `select`; by default the setting of the block of `kernels.use`. `"auto"` stands for the
            kernel of this machine's platform.
        interpret: Whether the kernel runs in JAX's interpreter.
        steps_per_pass: The steps for each pass to try; numbers that do not fit are left out.
        rows: The sizes of tiles to try; by default all that the kernel has.
        n_steps: The number of steps of a run that is timed.
        repeats: How often each is timed; the median counts.
        cache: Another file to write to. Later runs read it if the environment variable contains its path.

    Returns:
        The tried tilings, the fastest first.

    Raises:
        ValueError: If there is no kernel for this machine, or it cannot run the update, or nothing is left to try.
        TypeError: If it is called in a function that JAX transforms.
        RuntimeError: If no tried tiling runs.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels.stencil import StencilUpdate, tune

        update = StencilUpdate(lambda nb, p: nb("u") + p * (nb("u", 1) - 2 * nb("u") + nb("u", -1)))
        u = jnp.zeros(1000, jnp.float32)
        few = dict(steps_per_pass=(1, 4), rows=(256,), n_steps=4)
        tried = tune(update, u, 0.1, impl="pallas", interpret=True, cache="plans.json", **few)
        assert {timing.steps_per_pass for timing in tried} == {1, 4}
        ```
    """
    n_steps, repeats = check_count(n_steps, "n_steps", "tune"), check_count(repeats, "repeats", "tune")
    if not all(map(concrete, jax.tree.leaves((state, params, coefficients)))):
        raise TypeError("`tune` measures time, so it must be called outside of `jax.jit` and other transformations.")
    depths = _counts(steps_per_pass, "steps_per_pass")
    tiles = None if rows is None else _counts(rows, "rows")
    request = requested(impl, interpret, by_name=True)
    request = KernelRequest("pallas") if request.impl == "auto" else request
    if request.impl == "xla":
        raise ValueError("`tune(impl='xla')` has nothing to tune, because XLA chooses its own tiles.")
    chosen = choose(request, update, state, params, coefficients=coefficients)  # for its errors
    kernel = chosen.kernel
    assert kernel is not None  # else it was an error
    fields, rest = update.arrays_of(state, coefficients)
    params = as_params(params, fields[0].dtype)
    update = without_periodic(update, fields[0].shape)
    update = closure_converted(update, fields[0].ndim, fields[0].dtype, params)
    tilings = _tilings(kernel, update, params, fields, depths, tiles)
    if not tilings:
        raise ValueError(
            f"`tune` has nothing to try: no tile of `rows`={rows or kernel.sizes} supports "
            f"`steps_per_pass`={steps_per_pass} of radius {update.radius} on fields of shape "
            f"{fields[0].shape}. Tiles may have {kernel.sizes} rows."
        )
    found = [_timed(chosen, update, params, fields, rest, tiling, n_steps, repeats) for tiling in tilings]
    order = sorted(range(len(found)), key=lambda i: found[i].seconds)
    best = found[order[0]]
    if best.failure:
        raise RuntimeError(
            f"none of the {len(found)} tilings that `tune` tried runs; the first failed with: {found[0].failure}"
        )
    key = cache_key(kernel.name, chosen.interpreted, update, params, fields)
    store(cache_file(cache), key, tilings[order[0]], best.seconds)
    return tuple(found[i] for i in order)


def _counts(numbers: Any, name: str) -> tuple[int, ...]:
    """The numbers to try; a single one may be given without a list."""
    numbers = numbers if isinstance(numbers, Sequence | np.ndarray) else (numbers,)
    return tuple(check_count(n, name, "tune") for n in numbers)


def _tilings(
    kernel: AbstractStencilKernel,
    update: StencilUpdate,
    params: PyTree,
    fields: Fields,
    steps_per_pass: Sequence[int],
    rows: Sequence[int] | None,
) -> list[Tiling]:
    found = []
    for k in steps_per_pass:
        steps = k * update.stages
        for size in (n for n in kernel.sizes if rows is None or n in rows):
            try:
                plan = kernel.plan(update, params, fields[0].shape, fields[0].dtype, steps, size)
            except NotForKernelsError:
                continue
            found.append(Tiling(plan.steps, plan.rows))
    return found


def _timed(
    chosen: StencilSelection,
    update: StencilUpdate,
    params: PyTree,
    fields: Fields,
    rest: Fields,
    tiling: Tiling,
    n_steps: int,
    repeats: int,
) -> Timing:
    kernel = chosen.kernel
    assert kernel is not None
    plan = kernel.plan(update, params, fields[0].shape, fields[0].dtype, *tiling)

    def run(fields: Fields, rest: Fields) -> Fields:
        return kernel.advance(update, params, fields, rest, n_steps * update.stages, plan, chosen.interpreted)

    times = []
    try:
        compiled = jax.jit(run).lower(fields, rest).compile()
        jax.block_until_ready(compiled(fields, rest))
        for _ in range(repeats):
            start = time.perf_counter()
            jax.block_until_ready(compiled(fields, rest))
            times.append(time.perf_counter() - start)
    except Exception as failure:  # what does not fit the device must not stop the others
        return Timing(tiling.steps // update.stages, tiling.rows, float(np.inf), f"{type(failure).__name__}: {failure}")
    return Timing(tiling.steps // update.stages, tiling.rows, statistics.median(times) / n_steps)
