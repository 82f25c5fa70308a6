"""Who runs the blocks: the devices of this process, or an executor's workers."""

import collections
import concurrent.futures
import queue
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._mesh import member_groups, mesh as make_mesh
from ..members._pytree import is_array, to_host
from ._executable import Batch, Machine, Outcome, Task, to_numpy

Batches = Callable[[int], Batch]
"""Returns the members of a block by its number."""


def run_here(machine: Machine, numbers: Iterable[int], batch: Batches) -> Iterator[tuple[int, Outcome]]:
    """Runs blocks on the devices of this process, each of which has its next block waiting while one is fetched."""
    flying = collections.deque()
    numbers = list(numbers)
    if numbers:
        machine.compile(batch(numbers[0]), len(numbers))
    for turn, number in enumerate(numbers):
        flying.append((number, machine.run(turn % len(machine.groups), batch(number))))
        if len(flying) > len(machine.groups):
            number, outcome = flying.popleft()
            yield number, to_numpy(outcome)
    for number, outcome in flying:
        yield number, to_numpy(outcome)


_TRIES = 3
"""How often a block is given to the executor before its error is raised."""

_WINDOW = 256
"""How many blocks the executor has at a time."""


class Job(NamedTuple):
    """What a worker needs beside the members.

    Attributes:
        token: Tells this job from others, so that a worker compiles it once.
        task: What to do, with NumPy arrays.
        x64: Whether 64 bits are on where the sweep was called.
    """

    token: str
    task: Task
    x64: bool


def run_elsewhere(
    executor: concurrent.futures.Executor, task: Task, numbers: Iterable[int], batch: Batches, like: Outcome
) -> Iterator[tuple[int, Outcome]]:
    """Runs blocks on an executor's workers, and returns them as they come.

    A block is a task that may run anywhere, late, or twice: its result is the same. One that raises is given
    to the executor again.

    Raises:
        RuntimeError: If a block has failed as often as it may, or the executor takes no more tasks.
    """
    job = Job(uuid.uuid4().hex, to_host(task), jnp.result_type(float) == np.float64)
    done: queue.SimpleQueue = queue.SimpleQueue()
    tries: collections.Counter[int] = collections.Counter()
    finished: set[int] = set()
    waiting = iter(numbers)
    flying = 0

    def submit(number: int) -> None:
        tries[number] += 1
        try:
            future = executor.submit(work, job, batch(number))
        except Exception as error:
            raise RuntimeError(
                f"`sweep`: the executor takes no more blocks ({type(error).__name__}: {error}). Its workers may have "
                "died, of too little memory for example, or because they cannot import `fn`: define it at the top of a "
                "module. With a `store`, call again to go on."
            ) from error
        future.add_done_callback(lambda future: done.put((number, future)))

    def fill() -> int:
        added = 0
        while flying + added < _WINDOW and (number := next(waiting, None)) is not None:
            submit(number)
            added += 1
        return added

    flying += fill()
    while flying:
        number, future = done.get()
        error = future.exception()
        if error is not None and tries[number] < _TRIES:
            submit(number)
            continue
        flying -= 1
        if error is not None:
            raise RuntimeError(
                f"`sweep`: block {number} failed {_TRIES} times on the executor, the last time with "
                f"{type(error).__name__}: {error}. The function and what it uses must be importable by the workers: "
                "define them at the top of a module, or use an executor that sends functions by value, as Dask does."
            ) from error
        flying += fill()
        if number not in finished:
            finished.add(number)
            yield number, _with_arrays(like, future.result())


_machines: collections.OrderedDict[str, Machine] = collections.OrderedDict()
_lock = threading.Lock()


def work(job: Job, batch: Batch) -> list[np.ndarray]:
    """Runs one block in a worker, on its first device, and returns the arrays of the outcome."""
    with jax.enable_x64(job.x64), _lock:  # one block at a time where the workers are threads
        if job.token not in _machines:
            _machines[job.token] = Machine(member_groups(make_mesh(devices=jax.local_devices()[:1])), job.task)
            while len(_machines) > 2:
                _machines.popitem(last=False)
        outcome = to_numpy(_machines[job.token].run(0, batch))
    return [x for x in jax.tree.leaves(outcome) if is_array(x)]


def _with_arrays(like: Outcome, arrays: list[np.ndarray]) -> Outcome:
    shapes, static = eqx.partition(like, lambda x: hasattr(x, "shape"))
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), arrays), static)
