"""Who runs the blocks: the devices of this process, or an executor's workers."""

import collections
import concurrent.futures
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._mesh import member_groups, mesh as make_mesh
from ..members._pytree import is_array, to_host
from ._executable import BlockResult, Executable, MemberBatch, SweepSpec, to_numpy

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
    """Fetches blocks, and says which one it waits for where that takes much longer than the first one took.

    Args:
        groups: How many blocks run side by side, and may take each other's time.
    """

    first = 120.0
    """Seconds after which a sweep says that it waits for its first block."""

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
    """What a worker needs beside the members.

    Attributes:
        token: Tells this job from others, so that a worker compiles it once.
        spec: What to do, with NumPy arrays.
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
