"""A thread that prepares the next batches and sends them to the devices while a step runs."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Iterator
from typing import Any

from ._batches import AbstractBatches, Drawn
from ._placement import MeshPlacement

_DEPTH = 2
_END = object()


@contextlib.contextmanager
def prefetched(
    source: AbstractBatches, step: int, place: Any, placement: MeshPlacement, count: int | None
) -> Iterator[Iterator[Drawn]]:
    """Gives the batches from a step on, on their devices.

    Args:
        source: Where they come from.
        step: The number of the first.
        place: Where a loader goes on.
        placement: Where they belong.
        count: How many will be taken at most, so that a loader is asked for no more; None where nobody knows.
    """
    if source.constant:
        yield itertools.islice(_constant(source, step, placement), count)
        return
    waiting: queue.Queue = queue.Queue(maxsize=_DEPTH)
    stop = threading.Event()

    def put(item: Any) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            batches = source.draw(step, place)
            for number, drawn in enumerate(batches, 1):
                if not put(drawn._replace(batch=placement.batch(drawn.batch))) or number == count:
                    break
            put(_END)
        except BaseException as error:  # noqa: BLE001, it is raised where the batch is asked for
            put(error)

    if count == 0:
        yield iter(())
        return
    thread = threading.Thread(target=work, name="sciml batches", daemon=True)
    thread.start()
    try:
        yield _taken(waiting)
    finally:
        stop.set()
        thread.join()


def _taken(waiting: queue.Queue) -> Iterator[Drawn]:
    while (item := waiting.get()) is not _END:
        if isinstance(item, BaseException):
            raise item
        yield item


def _constant(source: AbstractBatches, step: int, placement: MeshPlacement) -> Iterator[Drawn]:
    placed: Any = None
    for drawn in source.draw(step, None):
        if placed is None and drawn.batch is not None:
            placed = placement.batch(drawn.batch)
        yield drawn._replace(batch=placed)
