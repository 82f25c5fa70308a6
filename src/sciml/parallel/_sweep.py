"""One function over any number of members, driven from Python."""

import collections
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from .._status import raise_for_status
from .._types import Key
from ._apart import is_tracing, put
from ._blocks import check_block, default_block, split_static
from ._codes import status_of
from ._members import count_members, is_array, take, to_host
from ._mesh import concrete_mesh, member_groups, mesh as make_mesh
from ._progress import check_progress, reporting
from ._result import SweepResult


def sweep(
    fn: Callable[..., PyTree],
    params: PyTree,
    shared: PyTree = None,
    *,
    key: Key | None = None,
    mesh: Mesh | None = None,
    block: int | None = None,
    output: Callable[[PyTree], PyTree] | None = None,
    on_fail: str = "keep",
    progress: bool | Callable[[int, int], Any] = True,
) -> SweepResult:
    """Runs `fn` for every member, block by block, and collects the results on the host.

    Every device runs one block of exactly `block` members at a time, at its own pace, and has the next
    one waiting while the host fetches the last. The results do not depend on the number of
    devices, to the last bit: the function is traced once, and the same program compiled for each
    device that is used. A member that fails is marked in `status`, and changes no other. `sweep` runs
    from Python; inside `jax.jit`, or for gradients, use `ensemble`.

    Args:
        fn: What to run: `fn(one_members_params)`, with `shared` as the next argument if it is given,
            and a random key if `key` is given: as the keyword `key` where `fn` has a parameter of that
            name, else as the last argument. May return any PyTree, a `sciml.Solution` for example.
        params: The members: a PyTree of arrays with a leading axis of length `n`, or a `grid`.
        shared: What all members have in common, a PyTree.
        key: A random key; member `i` gets `jax.random.fold_in(key, i)`.
        mesh: The devices, from `sciml.parallel.mesh`; by default the mesh set by `jax.set_mesh`, or
            else all devices of this process.
        block: How many members run together on a device. By default a number that depends on `n` and
            the platform alone. The last bit of a result may depend on it.
        output: Applied to what `fn` returned, on the device, to keep less of it.
        on_fail: "keep" to go on when members fail, "raise" to stop with an error after their block.
        progress: Whether to show a progress bar, or a function to call as `progress(done, total)`.

    Returns:
        A `SweepResult`. A member's status is that of the solution it returned. Where it returned none,
        or `output` kept none, members with NaN or infinite numbers have `Status.nonfinite`.

    Raises:
        ValueError: If `params` is empty or its leaves' leading axes differ, or `block`, `mesh` or
            `on_fail` cannot be used.
        TypeError: If an argument has the wrong type, or a function is being traced.
        SolveError: If a member failed and `on_fail` is "raise".

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        from sciml import Status, parallel

        result = parallel.sweep(lambda x: jnp.log(x), np.array([-1.0, 1.0, 2.0]), progress=False)
        assert result.failed.tolist() == [0]
        assert result.status[0] == Status.nonfinite
        np.testing.assert_allclose(result.values[1:], np.log([1.0, 2.0]))
        print(result.summary())
        ```
    """
    start = time.perf_counter()
    _check_callables(fn, output)
    if on_fail not in ("keep", "raise"):
        raise ValueError(f'`sweep`: `on_fail` must be "keep" or "raise", got {on_fail!r}.')
    check_progress(progress, where="sweep")
    if is_tracing():
        raise TypeError("`sweep` runs from Python. Inside `jax.jit`, `jax.grad` or `jax.vmap` use `ensemble`.")
    n = count_members(params, where="sweep")
    chosen = _local_mesh(mesh)
    groups = member_groups(chosen)
    if block is None:
        block = default_block(n, chosen.devices.flat[0].platform)
    block = check_block(block, where="sweep")

    members = to_host(params)
    by_name = key is not None and _takes_key_by_name(fn)
    common = [put((fn, output, shared, key), group) for group in groups[: -(-n // block)]]
    status = np.zeros(n, np.int32)
    values = None

    def dispatch() -> Iterator[tuple[int, Any, Any]]:
        for number, first in enumerate(range(0, n, block)):
            at = number % len(groups)
            ids = np.minimum(np.arange(first, first + block), n - 1)  # the last member again fills up the last block
            with jax.set_mesh(groups[at]):
                batch = put((take(members, ids), ids.astype(np.int32)), groups[at])
                yield first, *_run(batch, common[at], by_name)

    with reporting(progress, n) as report:
        for first, out, codes in _ahead(dispatch(), len(groups)):
            last = min(first + block, n)
            status[first:last] = np.asarray(codes)[: last - first]
            if on_fail == "raise":
                raise_for_status(status[:last], where="sweep")
            if values is None:
                values = jax.tree.map(lambda x: np.empty((n,) + x.shape[1:], x.dtype) if is_array(x) else x, out)
            jax.tree.map(lambda whole, part: _fill(whole, part, first, last), values, out)
            report(last, int(np.count_nonzero(status[:last])))
    return SweepResult(values=values, status=status, members=members, seconds=time.perf_counter() - start)


@eqx.filter_jit
def _run(batch: Any, common: Any, by_name: bool) -> Any:
    """Runs one block; returns what to keep and a status code, per member.

    A program for one device, or for the devices that one member spans: XLA compiles a program for
    many devices through other passes than a program for one, and the last bits of the two can differ.
    """
    batch, batch_static = eqx.partition(batch, is_array)
    static = None

    def member(batch):
        nonlocal static
        params, i = eqx.combine(batch, batch_static)
        fn, output, shared, key = common
        args = (params,) if shared is None else (params, shared)
        if key is None:
            returned = fn(*args)
        elif by_name:
            returned = fn(*args, key=jax.random.fold_in(key, i))
        else:
            returned = fn(*args, jax.random.fold_in(key, i))
        kept, static = split_static(returned if output is None else output(returned))
        return jax.tree.map(_plain, kept), status_of(returned, kept)

    kept, codes = jax.vmap(member)(batch)
    return eqx.combine(kept, static), codes


def _ahead(blocks: Iterator[Any], devices: int) -> Iterator[Any]:
    # Every device has its next block waiting while the host collects the last.
    flying = collections.deque()
    for block in blocks:
        flying.append(block)
        if len(flying) > devices:
            yield flying.popleft()
    yield from flying


def _fill(whole: Any, part: Any, first: int, last: int) -> None:
    if is_array(part):
        whole[first:last] = np.asarray(part)[: last - first]


def _plain(x: Any) -> Any:
    # NumPy cannot hold typed random keys; their data can be wrapped again.
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _local_mesh(mesh: Mesh | None) -> Mesh:
    if mesh is None and jax.sharding.get_abstract_mesh().empty:
        mesh = make_mesh(devices=jax.local_devices())
    chosen = concrete_mesh(mesh, where="sweep")
    if any(device.process_index != jax.process_index() for device in chosen.devices.flat):
        raise ValueError(
            "`sweep`: `mesh` holds devices of other processes. Members are independent: let every process "
            "sweep over its own part of them, with `mesh(devices=jax.local_devices())`."
        )
    return chosen


def _check_callables(fn: Any, output: Any) -> None:
    if not callable(fn):
        raise TypeError(f"`sweep`: `fn` must be callable, got {type(fn).__name__}.")
    if output is not None and not callable(output):
        raise TypeError(f"`sweep`: `output` must be callable or None, got {type(output).__name__}.")


def _takes_key_by_name(fn: Callable) -> bool:
    try:
        found = inspect.signature(fn).parameters.get("key")
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    return found is not None and found.kind is not inspect.Parameter.POSITIONAL_ONLY
