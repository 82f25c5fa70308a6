"""One function over any number of members, driven from Python."""

import concurrent.futures
import os
import time
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from jaxtyping import ArrayLike, PyTree

from ..._checks import check_call, check_key
from ..._option_names import knows_other_names
from ..._progress import ProgressOption, check_progress, reporting
from ..._types import Key
from ...stores._abstract import AbstractStore
from .._blocks import check_block
from .._mesh import concrete_mesh, mesh as make_mesh
from .._per_device import is_tracing
from ..members._pytree import count_members, numbers_as_array, to_host
from ._batches import make_order
from ._driver import Sweep
from ._executable import SweepSpec, is_reduction, needs, takes
from ._result import SweepResult
from ._retry import Retry, check_on_fail


@knows_other_names
def sweep(
    fn: Callable[..., PyTree],
    params: PyTree,
    shared: PyTree = None,
    *,
    key: Key | None = None,
    mesh: Mesh | None = None,
    block: int | None = None,
    memory: int | None = None,
    batching: str = "lockstep",
    cost: Callable[[PyTree], Any] | ArrayLike | None = None,
    output: Callable[[PyTree], PyTree] | None = None,
    reduce: PyTree = None,
    store: str | os.PathLike | AbstractStore | None = None,
    resume: bool = True,
    on_fail: str | Retry = "keep",
    executor: concurrent.futures.Executor | None = None,
    progress: ProgressOption = True,
    throw: bool = False,
) -> SweepResult:
    """Runs `fn` for every member, block by block, and collects the results on the host.

    Every device runs one block of exactly `block` members at a time, at its own pace, and the next block waits there
    while the host fetches the last. The results are bitwise independent of the number of devices: the function is
    traced and compiled once, and every device runs that program (compiled for each device if it calls Python, or if JAX
    keeps a cache of programs on disk). A member that fails is marked in `status` and does not affect the others.
    `sweep` must be called from Python; inside `jax.jit`, or for gradients, use `ensemble`.

    With `store`, every block is written to disk when it is done, complete or not at all. The same call made again after
    the process was killed reads the stored blocks and runs the rest, on any number of devices, with bitwise identical
    results. A store identifies its sweep: it raises an error for another one, whose members, function, solver, shared
    values, key, block, dtypes or versions differ, and lists the differences.

    Args:
        fn: The function to run: `fn(one_members_params)`, with `shared` as the next argument if it is given, and a
            random key if `key` is given: as the keyword `key` if `fn` has such a parameter, otherwise as the last
            argument. May return any PyTree, a `sciml.Solution` for example. As for `jax.jit`, values from outside are
            read when it is traced first: pass changing values as `shared`.
        params: The members: a PyTree of arrays with a leading axis of length `n`, for example from `sobol` or
            `latin_hypercube`, a list of numbers, a `grid`, or members computed from their index by `generate`.
        shared: Values that all members share, a PyTree.
        key: A random key; member `i` gets `jax.random.fold_in(key, i)`.
        mesh: The devices, from `sciml.parallel.mesh`; by default the mesh set by `jax.set_mesh`, or else all devices of
            this process.
        block: The number of members that run side by side on a device. The default is the block of the store, or a
            number that depends only on `n`, the platform and `memory`. The last bit of a result may depend on it.
        memory: The memory that a block may use on a device in bytes, if `block` is not given; by default 1 GiB on a CPU
            and a quarter of an accelerator's memory. XLA reports the memory of a block before anything runs.
        batching: How members of unequal length share a loop. "lockstep": in the given order; a block takes as long as
            its slowest member. "sorted": by decreasing `cost`, so that members of one block take about equally long.
            "refill": a lane whose member is done starts the next one; `fn` must have a parameter `batching`, gets
            "refill" for it and passes it to `sciml.solve`. With the other values it gets "lockstep" if it has no
            default.
        cost: With `batching="sorted"`, the expected cost of each member: one number per member, or a function of one
            member's parameters.
        output: A function applied to the result of `fn`, on the device, to keep less of it.
        reduce: A reduction, or a PyTree of reductions: `Mean`, `Variance`, `Quantiles`, `Histogram`, `TopK`, or your
            own. They replace the members' values, which then reach neither the host nor the store.
        store: A folder for the blocks, one npz file each, or a store of `sciml.stores`. A `ZarrStore` writes one data
            set, without reductions and retries.
        resume: Whether to continue the sweep in the store; if False, a store that already contains one raises an error.
        on_fail: "keep" to continue when members fail, "raise" to stop with an error after their block, or a `Retry` to
            run failed members again with other options.
        executor: Runs the blocks instead of this process: any `concurrent.futures` executor, such as
            `ProcessPoolExecutor` with the start method "spawn", or `dask.distributed.Client().get_executor()`. Each
            worker uses its first device. Forked processes would hang, and raise an error.
        progress: Whether to show a progress bar, or a function that is called with a `Progress` after every block.
        throw: Whether to raise an error at the end if members failed and no retry helped. By default check `status` and
            `failed`: of many members some may fail. All members have run by then, and a `store` contains them.

    Returns:
        A `SweepResult`. A member's status is the status of the solution it returned. If it returned none, or `output`
        kept none, members with NaN or infinite numbers have `Status.nonfinite`.

    Raises:
        ValueError: If `params` is empty or its leaves' leading axes differ, or an argument is invalid.
        TypeError: If an argument has the wrong type, a function is being traced, or `fn` returns no array.
        SolveError: If a member failed and `on_fail` is "raise", or `throw` is set.
        StoreError: If the store belongs to another sweep, or cannot be read or written.
        RuntimeError: If the executor cannot run a block.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml import Status, parallel

        result = parallel.sweep(lambda x: jnp.log(x), np.array([-1.0, 1.0, 2.0]), store="logs", progress=False)
        assert result.failed.tolist() == [0]
        assert result.status[0] == Status.nonfinite
        np.testing.assert_allclose(result.values[1:], np.log([1.0, 2.0]), rtol=1e-6)
        print(result)
        ```
    """
    start = time.perf_counter()
    check_progress(progress, where="sweep")
    work = prepare(
        fn, params, shared, key=key, mesh=mesh, block=block, memory=memory, batching=batching, cost=cost, output=output,
        reduce=reduce, store=store, resume=resume, on_fail=on_fail, executor=executor,
    )  # fmt: skip
    with reporting(progress, work.n, unit="member", name="sweep") as report:
        try:
            work.first_pass(range(work.plan.blocks), report)
            work.retry(report)
        except KeyboardInterrupt as stop:
            if kept := work.kept():
                stop.add_note(kept)
            raise
    result = work.result(time.perf_counter() - start)
    return result.raise_if_failed() if throw else result


def prepare(
    fn: Any,
    params: Any,
    shared: Any = None,
    *,
    key: Any = None,
    mesh: Any = None,
    block: Any = None,
    memory: Any = None,
    batching: Any = "lockstep",
    cost: Any = None,
    output: Any = None,
    reduce: Any = None,
    store: Any = None,
    resume: bool = True,
    on_fail: Any = "keep",
    executor: Any = None,
) -> Sweep:
    """Checks the arguments of `sweep` and makes it ready; nothing runs."""
    call = "fn(params)" if shared is None else "fn(params, shared)"
    hands_on = batching == "refill" or needs(fn, "batching")
    _check_callables(fn, output, call if key is None and not hands_on else None)
    if key is not None:
        key = check_key(key, "sweep")
    _check_reduce(reduce)
    attempts = check_on_fail(on_fail, fn)
    if is_tracing():
        raise TypeError(
            "`sweep` must be called from Python. Inside `jax.jit`, `jax.grad` or `jax.vmap` use `ensemble`."
        )
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(f"`sweep`: `executor` must be a `concurrent.futures` executor, got {type(executor).__name__}.")
    _check_start_method(executor)
    if memory is not None and memory <= 0:
        raise ValueError(f"`sweep`: `memory`, the bytes that a block may use, must be positive, got {memory}.")
    params = numbers_as_array(params)
    n = count_members(params, where="sweep")
    chosen = _local_mesh(mesh)
    members = to_host(params)
    order = make_order(members, n, batching, cost)
    spec = SweepSpec(fn, output, reduce, shared, key, key is not None and takes(fn, "key"))
    if batching == "refill":
        if not takes(fn, "batching"):
            raise ValueError(
                '`sweep`: with `batching="refill"`, `fn` gets the keyword `batching` to pass on to `sciml.solve`, but '
                "has no such parameter. Add it: `def run(p, *, batching): ... solve(..., batching=batching)`."
            )
    if hands_on:
        spec = spec.changed({"batching": "refill" if batching == "refill" else "lockstep"})
    return Sweep(
        spec,
        members,
        order,
        chosen,
        block=None if block is None else check_block(block, where="sweep"),
        memory=memory,
        batching=batching,
        store=store,
        resume=resume,
        stop=on_fail == "raise",
        attempts=attempts,
        executor=executor,
    )


def _check_start_method(executor: Any) -> None:
    """Checks that an executor does not fork: a child has none of JAX's threads, and would wait for them for ever."""
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "`sweep`: the worker processes of `executor` are forks of this process, in which JAX hangs. Spawn them: "
            "`ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))`."
        )


def _local_mesh(mesh: Mesh | None) -> Mesh:
    if mesh is None and jax.sharding.get_abstract_mesh().empty:
        mesh = make_mesh(devices=jax.local_devices())
    chosen = concrete_mesh(mesh, where="sweep")
    if any(device.process_index != jax.process_index() for device in chosen.devices.flat):
        raise ValueError(
            "`sweep`: `mesh` contains devices of other processes. Members are independent: let every process "
            "sweep over its own members, with `mesh(devices=jax.local_devices())`."
        )
    return chosen


def _check_callables(fn: Any, output: Any, call: str | None) -> None:
    if not callable(fn):
        raise TypeError(f"`sweep`: `fn` must be callable, got {type(fn).__name__}.")
    if call is not None:
        check_call(fn, call, "`sweep`: `fn`")
    if output is not None and not callable(output):
        raise TypeError(f"`sweep`: `output` must be callable or None, got {type(output).__name__}.")


def _check_reduce(reduce: Any) -> None:
    for x in jax.tree.leaves(reduce, is_leaf=is_reduction):
        if not is_reduction(x):
            raise TypeError(
                f"`sweep`: `reduce` must contain reductions such as `parallel.Mean()`, got {type(x).__name__}. Pass a "
                "function of each member as `output`."
            )
