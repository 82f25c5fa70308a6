"""The host's part of a training: it hands out batches, and looks up now and then."""

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..._progress import Report
from ..._types import Key
from ._batches import AbstractBatches, Drawn
from ._checkpoints import Checkpoints, Saved
from ._history import HistoryWriter
from ._placement import MeshPlacement
from ._record import TrainingRecord
from ._step import CompiledStep, Recipe, StepState, copied
from ._validation import Best, Validator

# A thread that prepares the next batches and sends them to the devices while a step runs.
_DEPTH = 2
_END = object()


@contextlib.contextmanager
def prefetched(
    source: AbstractBatches, step: int, place: Any, placement: MeshPlacement, count: int | None
) -> Iterator[Iterator[Drawn]]:
    """Gives the batches from a step on, on their devices.

    Args:
        source: The source of the batches.
        step: The number of the first.
        place: The place from which a loader continues.
        placement: The placement of the batches.
        count: The maximum number of batches, so that a loader is not asked for more; None if it is unknown.
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


_SECONDS = 0.5
"""How often the bar moves, which is when the host learns of NaN."""


class TrainingPlan(NamedTuple):
    """When the host does what.

    Attributes:
        steps: How many to take in all; None to continue until the loader ends.
        check_every: Steps between two checks.
        patience: How many validations in a row may bring nothing better, or None.
        callbacks: The functions called at every check.
    """

    steps: int | None
    check_every: int
    patience: int | None
    callbacks: Sequence[Callable]

    def out_of_patience(self, best: Best) -> bool:
        """Whether the last validations brought nothing better."""
        return self.patience is not None and best.stale >= self.patience

    def left(self, saved: Saved, taken: int) -> int | None:
        """Returns the number of steps that remain after a number of steps; None if only the loader knows."""
        if bool(saved.state.halted) or self.out_of_patience(saved.best):
            return 0
        return None if self.steps is None else max(self.steps - taken, 0)


class Ended(NamedTuple):
    """How a training ended.

    Attributes:
        state: The last state.
        best: The best weights, by validation.
        stopped: Whether a callback ended it.
    """

    state: StepState
    best: Best
    stopped: bool


class Host:
    """Runs the steps of one training.

    Args:
        recipe: The definition of a step.
        source: The source of the batches.
        key: Of the steps.
        plan: When to do what.
        validator: The validation of a model.
        history: The history to append to.
        checkpoints: The store for checkpoints, or None.
        report: Moves the bar.
    """

    def __init__(
        self,
        recipe: Recipe,
        source: AbstractBatches,
        key: Key,
        plan: TrainingPlan,
        validator: Validator,
        history: HistoryWriter,
        checkpoints: Checkpoints | None,
        report: Report,
    ):
        self._recipe, self._source, self._key, self._plan = recipe, source, key, plan
        self._validator, self._history, self._checkpoints, self._report = validator, history, checkpoints, report
        self._began = self._looked = time.monotonic()
        self._stopped = False

    def run(self, saved: Saved) -> Ended:
        """Takes the steps that are left."""
        state, best, place = saved
        plan, history, checkpoints = self._plan, self._history, self._checkpoints
        first = taken = history.steps
        left = plan.left(saved, taken)
        epoch = 0
        step = CompiledStep(self._recipe, state, self._key)
        arrays = jax.tree.leaves(state)
        with prefetched(self._source, taken, place, self._recipe.placement, left) as batches:
            for drawn in batches:
                arrays, report = step(drawn.batch, arrays)
                history.add(report)
                taken, place, epoch = taken + 1, drawn.place, drawn.epoch
                checking = taken % plan.check_every == 0 or taken == plan.steps
                writing = checkpoints is not None and checkpoints.due
                if not (checking or writing or time.monotonic() - self._looked >= _SECONDS):
                    continue
                state = step.state(arrays)
                if self._look(state):
                    break
                if checking:
                    best = self._check(state, best, epoch)
                if checkpoints is not None and writing:
                    checkpoints.write(Saved(state, best, place), history)
                if self._stopped or plan.out_of_patience(best):
                    break
        state = step.state(arrays)
        halted = self._look(state) if history.steps < taken else bool(state.halted)
        if first < taken and not halted and history.last_checked < taken:
            best = self._check(state, best, epoch)  # a loader has ended
        if checkpoints is not None and history.steps > first:
            checkpoints.write(Saved(state, best, place), history)
        return Ended(state, best, self._stopped)

    def _look(self, state: StepState) -> bool:
        """Waits for the steps so far and moves the bar; returns whether there was too much NaN to go on."""
        rows = self._history.settle()
        self._looked = time.monotonic()
        losses = rows[:, 0][np.isfinite(rows[:, 0])]
        loss = {"loss": float(losses.mean())} if len(losses) else {}
        self._report(self._history.steps, failed=len(self._history.skipped), **loss)
        return bool(state.halted)

    def _check(self, state: StepState, best: Best, epoch: int) -> Best:
        """Validates, and calls the callbacks."""
        history = self._history
        judged, since = state.judged, history.last_checked
        value = self._validator(judged)
        kept: Any = copied(judged) if self._plan.callbacks or value < best.value else None
        if self._validator.validates:
            best = best.updated(value, history.steps, kept)
        loss, metrics = history.mean_since(since)
        history.check(value)
        record = TrainingRecord(
            step=history.steps,
            epoch=epoch,
            seconds=time.monotonic() - self._began,
            loss=loss,
            metrics=metrics,
            validation=value if self._validator.validates else None,
            is_best=self._validator.validates and best.step == history.steps,
            make_model=lambda: self._recipe.model(kept),
        )
        for notify in self._plan.callbacks:
            self._stopped |= notify(record) is True
        return best
