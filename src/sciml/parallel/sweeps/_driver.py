"""A sweep at work: all members once, and those that failed again."""

import collections
import concurrent.futures
import hashlib
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from ..._progress import Report
from ..._status import SolveError, raise_for_status
from ..._warn import warn
from ...stores._abstract import AbstractStore
from ...stores._atomic import DamagedBlockError
from ...stores._fingerprint import Part, calls_python, describe, fingerprint, leaves_of, program as compiled
from ...stores._manifest import digest_of_run, open_run
from ...stores._npz_store import NpzStore
from ...stores._pytree_names import check_names
from ...stores._zarr_store import ZarrStore
from .._blocks import check_block
from .._mesh import member_groups, mesh as make_mesh
from ..members._generated import Generated, lowered_text
from ..members._pytree import is_array, to_host
from ._batches import BlockPlan, choose_block
from ._executable import BlockResult, Executable, MemberBatch, SweepSpec, is_reduction, to_numpy
from ._result import SweepResult

# Executors of blocks: the devices of this process, or an executor's workers.


_LOG = logging.getLogger("sciml.parallel")

BatchOf = Callable[[int], MemberBatch]
"""Returns the members of a block by its number."""


def run_here(executable: Executable, numbers: Iterable[int], batch: BatchOf) -> Iterator[tuple[int, BlockResult]]:
    """Runs blocks on the devices of this process, each of which has its next block waiting while one is fetched."""
    in_flight = collections.deque()
    numbers = list(numbers)
    if not numbers:
        return
    flow = executable.compile(batch(numbers[0]), len(numbers))
    patience = Patience(flow.groups)
    for position, number in enumerate(numbers):
        in_flight.append((number, executable.run(position % flow.groups, batch(number))))
        if len(in_flight) >= flow.groups + flow.ahead:
            yield patience.fetch(*in_flight.popleft())
    while in_flight:
        yield patience.fetch(*in_flight.popleft())


class Patience:
    """Fetches blocks, and reports the one it waits for if that takes much longer than the first one.

    Args:
        groups: How many blocks run side by side, and may take each other's time.
    """

    first = 120.0
    """Seconds after which a sweep reports that it waits for its first block."""

    def __init__(self, groups: int):
        self._groups = groups
        self._seconds = self.first

    def fetch(self, number: int, result: BlockResult) -> tuple[int, BlockResult]:
        """Returns a block with NumPy arrays; waits for them."""
        began = time.perf_counter()
        timer = threading.Timer(self._seconds, self._say, (number, result, self._seconds))
        timer.daemon = True
        timer.start()
        try:
            found = to_numpy(result)
        finally:
            timer.cancel()
        if self._seconds == self.first:
            # ten times as long as the first is what stiff members among easy ones take
            self._seconds = max(self.first / 4, 10 * self._groups * (time.perf_counter() - began))
        return number, found

    def _say(self, number: int, result: BlockResult, seconds: float) -> None:
        where = ", ".join(sorted({str(d) for x in jax.tree.leaves(result) if is_array(x) for d in x.devices()}))
        _LOG.warning(
            "sweep: block %d on %s is not done after %.3g s%s. Either its members are much slower, or the device does "
            "not respond. With `store=` an interrupted sweep can be resumed.",
            number,
            where,
            seconds,
            "" if seconds == self.first else ", ten times the time of the first block",
        )


_TRIES_OF_A_BLOCK = 3
"""How often a block is given to the executor before its error is raised."""

_WINDOW = 256
"""How many blocks the executor has at a time."""


class Job(NamedTuple):
    """The inputs of a worker in addition to the members.

    Attributes:
        token: Tells this job from others, so that a worker compiles it once.
        spec: The work, with NumPy arrays.
        x64: Whether 64 bits are on where the sweep was called.
    """

    token: str
    spec: SweepSpec
    x64: bool


def run_elsewhere(
    executor: concurrent.futures.Executor, spec: SweepSpec, numbers: Iterable[int], batch: BatchOf, like: BlockResult
) -> Iterator[tuple[int, BlockResult]]:
    """Runs blocks on an executor's workers, and returns them as they come.

    A block may run anywhere, late, or twice: its result is the same. One that raises is given
    to the executor again.

    Raises:
        RuntimeError: If a block has failed as often as it may, or the executor takes no more tasks.
    """
    job = Job(uuid.uuid4().hex, to_host(spec), jnp.result_type(float) == np.float64)
    done: queue.SimpleQueue = queue.SimpleQueue()
    tries: collections.Counter[int] = collections.Counter()
    finished: set[int] = set()
    waiting = iter(numbers)
    in_flight = 0

    def submit(number: int) -> None:
        tries[number] += 1
        try:
            future = executor.submit(work, job, batch(number))
        except Exception as error:
            raise RuntimeError(
                f"`sweep`: the executor no longer accepts blocks ({type(error).__name__}: {error}). Its workers may "
                "have died because of too little memory, or because they cannot import `fn`: define it at the top "
                "level of a module. With a `store`, call again to resume."
            ) from error
        future.add_done_callback(lambda future: done.put((number, future)))

    def fill() -> int:
        added = 0
        while in_flight + added < _WINDOW and (number := next(waiting, None)) is not None:
            submit(number)
            added += 1
        return added

    in_flight += fill()
    while in_flight:
        number, future = done.get()
        error = future.exception()
        if error is not None and tries[number] < _TRIES_OF_A_BLOCK:
            submit(number)
            continue
        in_flight -= 1
        if error is not None:
            raise RuntimeError(
                f"`sweep`: block {number} failed {_TRIES_OF_A_BLOCK} times on the executor, the last time with "
                f"{type(error).__name__}: {error}. Workers must be able to import the function and its dependencies: "
                "define them at the top level of a module, or use an executor that sends functions by value, such as "
                "Dask."
            ) from error
        in_flight += fill()
        if number not in finished:
            finished.add(number)
            yield number, _with_arrays(like, future.result())


_executables: collections.OrderedDict[str, Executable] = collections.OrderedDict()
_lock = threading.Lock()


def work(job: Job, batch: MemberBatch) -> list[np.ndarray]:
    """Runs one block in a worker, on its first device, and returns the arrays of the result."""
    with jax.enable_x64(job.x64), _lock:  # one block at a time where the workers are threads
        if job.token not in _executables:
            _executables[job.token] = Executable(member_groups(make_mesh(devices=jax.local_devices()[:1])), job.spec)
            while len(_executables) > 2:
                _executables.popitem(last=False)
        result = to_numpy(_executables[job.token].run(0, batch))
    return [x for x in jax.tree.leaves(result) if is_array(x)]


def _with_arrays(like: BlockResult, arrays: list[np.ndarray]) -> BlockResult:
    shapes, static = eqx.partition(like, lambda x: hasattr(x, "shape"))
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), arrays), static)


def open_store(store: Any, *, rows_only: bool) -> AbstractStore:
    """Returns the store for `store`, a folder or a store.

    Args:
        store: The argument of `sweep`.
        rows_only: Whether all that is written has a row for each member, and every member one.

    Raises:
        TypeError: If it is neither.
        ValueError: If it cannot hold the blocks of this sweep.
    """
    if isinstance(store, (str, os.PathLike)):
        return NpzStore(store)
    if not isinstance(store, AbstractStore):
        raise TypeError(f"`sweep`: `store` must be a folder or a store of `sciml.stores`, got {type(store).__name__}.")
    if isinstance(store, ZarrStore) and not rows_only:
        raise ValueError(
            "`sweep`: a `ZarrStore` stores one row per member, and does not support reductions and retries. Pass a "
            "folder as `store`; `SweepResult.to_xarray().to_zarr(...)` writes the results as zarr."
        )
    return store


class StoredBlocks:
    """The blocks of one sweep in a store.

    Every block carries a digest: in the first pass the digest of the run, and in retries the digest of their inputs,
    which may be changed later. A block with another digest counts as missing, and so does one that was damaged.

    Args:
        store: The store.
        like: The result of a block.
        run: The digest of the run.
    """

    def __init__(self, store: AbstractStore, like: BlockResult, run: np.ndarray):
        self._store = store
        self._like = like
        self._run = run
        self._there = set(store.numbers())

    def read(self, number: int, ids: np.ndarray, origin: np.ndarray | None = None) -> BlockResult | None:
        """Returns a block, or None if it is missing; `origin` is the input of a retry."""
        if number not in self._there:
            return None
        origin = self._run if origin is None else origin
        shapes, static = eqx.partition(self._tree(self._like, ids, origin), _has_shape)
        try:
            found = eqx.combine(self._store.get(number, shapes), static)
        except DamagedBlockError as error:
            warn(f"`sweep` recomputes block {number} of the store: {error}")
            return None
        if not np.array_equal(found["origin"], np.tile(origin, (ids.size, 1))) or not np.array_equal(
            found["members"], ids
        ):
            return None
        return BlockResult(found["values"], found["status"], found["work"], found["summaries"])

    def write(self, number: int, ids: np.ndarray, result: BlockResult, origin: np.ndarray | None = None) -> None:
        """Writes a block, without the copies that fill it up."""
        origin = self._run if origin is None else origin
        self._store.put(number, eqx.filter(self._tree(result, ids, origin), _has_shape))

    def _tree(self, result: BlockResult, ids: np.ndarray, origin: np.ndarray) -> dict[str, Any]:
        def cut(x):
            if isinstance(x, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct((ids.size, *x.shape[1:]), x.dtype)
            return x[: ids.size] if is_array(x) else x

        members = jax.tree.map(cut, (result.values, result.status, result.work))
        values, status, work = members
        tree = {"values": values, "status": status, "work": work, "summaries": result.summaries}
        # one row for each member in every array, as a store that lays the blocks end to end needs it
        return {**tree, "members": ids, "origin": np.tile(origin, (ids.size, 1))}


def open_sweep(
    store: AbstractStore, spec: SweepSpec, members: Any, plan: BlockPlan, program: str, *, batching: str, resume: bool
) -> np.ndarray:
    """Checks that a store belongs to this sweep, or claims it, and returns the digest of the sweep.

    Raises:
        StoreError: If it is another's, or holds any and `resume` is not set, or cannot be written to.
    """
    code = _code(program, spec, (spec.fn, spec.output, spec.reduce))
    found = fingerprint(
        members=_arrays(members),
        shared=_arrays(spec.shared),
        key=spec.key,
        block=plan.block,
        batching=batching,
        order=None if np.array_equal(plan.order, np.arange(plan.order.size)) else plan.order,
    )
    if isinstance(members, Generated):
        generator = compiled(lowered_text(members)).digest
        found.parts["generator"] = Part(generator, f"{len(members)} generated")
    for name, tree in (("members", members), ("shared", spec.shared)):  # by arrays alone, but named as the caller does
        named = eqx.filter(tree, is_array)
        found.parts[name] = Part(found.parts[name].digest, describe(named), leaves_of(name, named))
    text = describe(_named(spec.fn)) + ("" if spec.output is None else f" with output={describe(spec.output)}")
    # the program also depends on the members' shapes and the block
    found = found._replace(parts={"function": Part(code, text, follows=True), **found.parts})
    info = {"members": int(plan.order.size), "block": plan.block, "blocks": plan.blocks, "batching": batching}
    return digest_of_run(open_run(store, found, info, kind="sweep", resume=resume), store)


def stored_block(store: AbstractStore) -> int | None:
    """Returns the block size of the sweep that a store holds, if it holds any."""
    block = (store.read_manifest() or {}).get("block")
    return block if isinstance(block, int) else None


def origin_of(program: str, spec: SweepSpec, ids: np.ndarray) -> np.ndarray:
    """Returns a digest of the inputs of a retry."""
    found = hashlib.blake2b(_code(program, spec, spec).encode(), digest_size=16)
    found.update(np.ascontiguousarray(ids).tobytes())
    return np.frombuffer(found.digest(), np.uint8)


def _arrays(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if is_array(x)]


def _code(program: str, spec: SweepSpec, holds: Any) -> str:
    """Returns a digest of a program and of arrays that its functions hold."""
    functions = (spec.fn, spec.output, spec.reduce) if calls_python(program) else ()
    return compiled(program, (_arrays(holds), functions)).digest


def _has_shape(x: Any) -> bool:
    return hasattr(x, "shape")


def _named(fn: Any) -> Any:
    while not hasattr(fn, "__qualname__") and hasattr(fn, "func"):
        fn = fn.func
    return fn


class Collected:
    """The results of all members so far, on the host.

    Attributes:
        values: The stored values of each member, with a leading axis of all members.
        status: A code for each member.
        work: Own and executed steps of each member, or None.
        attempts: How often each member has run.
        done: The number of members that have run.
        failed: How many of them failed and have not succeeded since.
        end: One more than the largest number of a member that has run.
    """

    def __init__(self, n: int, like: BlockResult, reduce: Any):
        def whole(x):
            return np.empty((n, *x.shape[1:]), x.dtype) if hasattr(x, "shape") else x

        self.values = jax.tree.map(whole, like.values)
        self.status = np.zeros(n, np.int32)
        self.attempts = np.zeros(n, np.int32)
        self.work = None if like.work is None else np.zeros((n, 2), np.int64)
        self.done = self.failed = self.end = 0
        self._reductions, self._treedef = jax.tree.flatten(reduce, is_leaf=is_reduction)
        self._merged: list[Any] = [None] * len(self._reductions)
        self._waiting: dict[int, Any] = {}
        self._next = 0

    def add(self, number: int, ids: np.ndarray, result: BlockResult) -> None:
        """Puts a block in place. Summaries are merged in the order of the numbers, whenever they come."""
        self._fill(ids, result, np.arange(ids.size))
        self.attempts[ids] = 1
        self.done += ids.size
        self.failed += int(np.count_nonzero(self.status[ids]))
        self.end = max(self.end, int(ids.max()) + 1)
        self._merge(number, result.summaries)

    def add_again(self, number: int, ids: np.ndarray, result: BlockResult) -> None:
        """Puts a block of members that had failed in place, where they succeeded now."""
        self.attempts[ids] += 1
        good = np.flatnonzero(np.asarray(result.status)[: ids.size] == 0)
        self._fill(ids[good], result, good)
        self.failed -= good.size
        self._merge(number, result.summaries)

    @property
    def reduced(self) -> Any:
        """The results of the reductions over all members; None if there are none."""
        if not self._reductions:
            return None
        pairs = zip(self._reductions, self._merged, strict=True)
        return jax.tree.unflatten(self._treedef, [r.result(merged) for r, merged in pairs])

    def _fill(self, ids: np.ndarray, result: BlockResult, rows: np.ndarray) -> None:
        def put(whole, part):
            if is_array(whole):
                whole[ids] = np.asarray(part)[rows]

        jax.tree.map(put, self.values, result.values)
        self.status[ids] = np.asarray(result.status)[rows]
        if self.work is not None:
            self.work[ids] = np.asarray(result.work)[rows]

    def _merge(self, number: int, summaries: Any) -> None:
        if not self._reductions:
            return
        # blocks come in any order from an executor, and floating-point sums depend on theirs
        self._waiting[number] = self._treedef.flatten_up_to(summaries)
        while self._next in self._waiting:
            blocks = self._waiting.pop(self._next)
            pairs = zip(self._reductions, self._merged, blocks, strict=True)
            self._merged = [r.merge(merged, block) for r, merged, block in pairs]
            self._next += 1


class Sweep:
    """The state of a sweep.

    Attributes:
        members: The members, with NumPy arrays.
        n: Their number.
        plan: The members of each block.
        collected: The results so far.
    """

    def __init__(
        self,
        spec: SweepSpec,
        members: Any,
        order: np.ndarray,
        chosen: Mesh,
        *,
        block: int | None,
        memory: int | None,
        batching: str,
        store: Any,
        resume: bool,
        stop: bool,
        attempts: Sequence[Any],
        executor: Any,
    ):
        self.members = members
        self.n = order.size
        self._executable = executable = Executable(member_groups(chosen), spec)
        self._stop = stop
        self._attempts = attempts
        self._executor = executor
        opened = None if store is None else open_store(store, rows_only=spec.reduce is None and not attempts)
        if block is None and opened is not None:
            block = stored_block(opened)
        if block is None:

            def measure(block: int) -> int:
                return executable.measure(BlockPlan(order, block).batch(members, 0))

            block = choose_block(self.n, chosen, batching, memory, measure)
        self.plan = BlockPlan(order, check_block(block, where="sweep"))
        first = self.plan.batch(members, 0)
        self._like = executable.shapes(first)
        if spec.reduce is None and not any(hasattr(x, "shape") for x in jax.tree.leaves(self._like.values)):
            raise TypeError(
                f"`sweep`: a member has no values, because `fn` or `output` returned {self._like.values!r}. Does the "
                "function end with `return`?"
            )
        self.collected = Collected(self.n, self._like, spec.reduce)
        self._blocks = None
        self._stored, self._written, self._store = 0, 0, opened
        if opened is not None:
            check_names(self._like)
            program = executable.lower(first).as_text()
            run = open_sweep(opened, spec, members, self.plan, program, batching=batching, resume=resume)
            self._blocks = StoredBlocks(opened, self._like, run)

    def first_pass(self, numbers: Sequence[int], report: Report) -> None:
        """Runs the blocks `numbers`, of all members, where they are not in the store.

        Raises:
            SolveError: If a member failed and the sweep is to stop then.
        """
        missing = []
        for number in numbers:
            stored = None if self._blocks is None else self._blocks.read(number, self.plan.ids(number))
            if stored is None:
                missing.append(number)
            else:
                self._stored += self.plan.ids(number).size
                self._add(number, stored, report)
        for number, result in self._run(self._executable, self.plan, missing):
            if self._blocks is not None:
                self._blocks.write(number, self.plan.ids(number), result)
                self._written += self.plan.ids(number).size
            self._add(number, result, report)

    def retry(self, report: Report) -> None:
        """Runs the members that failed again, as often as there are attempts."""
        at = self.plan.blocks
        for change in self._attempts:
            failed = np.flatnonzero(self.collected.status)
            if not failed.size:
                return
            spec, plan = self._executable.spec.changed(change), BlockPlan(failed, self.plan.block)
            executable, first = Executable(self._executable.groups, spec), plan.batch(self.members, 0)
            _check_like(executable.shapes(first), self._like)
            missing, origin = list(range(plan.blocks)), np.zeros(16, np.uint8)
            if self._blocks is not None:
                origin = origin_of(executable.lower(first).as_text(), spec, failed)
                found = {number: self._blocks.read(at + number, plan.ids(number), origin) for number in missing}
                missing = [number for number in missing if found[number] is None]
                for number, result in found.items():
                    if result is not None:
                        self.collected.add_again(at + number, plan.ids(number), result)
            for number, result in self._run(executable, plan, missing):
                if self._blocks is not None:
                    self._blocks.write(at + number, plan.ids(number), result, origin)
                self.collected.add_again(at + number, plan.ids(number), result)
                report(self.n, failed=self.collected.failed)
            at += plan.blocks

    def result(self, seconds: float) -> SweepResult:
        """Returns the results so far."""
        found = self.collected
        return SweepResult(
            values=found.values,
            status=found.status,
            members=self.members,
            seconds=seconds,
            reduced=found.reduced,
            attempts=found.attempts,
            n_steps=found.work,
            block=self.plan.block,
            stored=self._stored,
        )

    def kept(self) -> str:
        """Reports the stored part of an interrupted sweep; empty if there is none."""
        if self._blocks is None:
            return ""
        there = self._stored + self._written
        return f"`sweep`: {there} of {self.n} members are in {self._store}; the same call resumes from there."

    def _run(self, executable: Executable, plan: BlockPlan, numbers: list[int]) -> Iterator[tuple[int, BlockResult]]:
        def batch(number):
            return plan.batch(self.members, number)

        if self._executor is None:
            return run_here(executable, numbers, batch)
        return run_elsewhere(self._executor, executable.spec, numbers, batch, self._like)

    def _add(self, number: int, result: BlockResult, report: Report) -> None:
        self.collected.add(number, self.plan.ids(number), result)
        if self._stop and self.collected.failed:
            self._raise()
        report(self.collected.done, failed=self.collected.failed)

    def _raise(self) -> None:
        """Raises an error about the members that failed."""
        try:
            raise_for_status(self.collected.status, where="sweep")
        except SolveError as error:
            seen = f"The sweep stopped after {self.collected.done} of {self.n} members."
            raise SolveError(f"{error}\n{seen}", error.status) from None


def _check_like(found: BlockResult, expected: BlockResult) -> None:
    """Checks that the result of a retry can replace the failed result."""
    if _shapes(found) != _shapes(expected):
        raise ValueError(
            "`sweep`: an attempt of `on_fail` must return arrays of the same shapes and dtypes as `fn`, but returns "
            f"{_shapes(found)} instead of {_shapes(expected)}."
        )


def _shapes(result: BlockResult) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path((result.values, result.work))
    return [f"{jax.tree_util.keystr(path)} {x.dtype}{list(x.shape[1:])}" for path, x in leaves if hasattr(x, "shape")]
