"""Records of a training in files: a table, and TensorBoard."""

import csv
import importlib
import os
import pathlib
import time
from typing import Any

from ...stores._atomic import make_folder
from ._record import TrainingRecord


class CSVLog:
    """A callback that writes a row for every check: step, epoch, seconds, loss, validation loss, metrics.

    A resumed training continues the file: rows of repeated steps are written again.

    Args:
        path: The file. Its folder is made.

    Example:
        ```python
        import pathlib
        import jax.numpy as jnp
        import optax
        from sciml import training

        training.train(
            jnp.zeros(2),
            lambda model, batch, key: jnp.sum((model - 1.0) ** 2),
            steps=20,
            check_every=10,
            optimiser=optax.sgd(0.1),
            callbacks=[training.CSVLog("losses.csv")],
            progress=False,
        )
        print(pathlib.Path("losses.csv").read_text())
        ```
    """

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._begun = False

    def __call__(self, record: TrainingRecord) -> None:
        """Writes a row."""
        names = ["step", "epoch", "seconds", "loss", "validation", *record.metrics]
        if not self._begun:
            self._begin(names, record.step)
        row = [record.step, record.epoch, f"{record.seconds:.3f}", repr(record.loss), _shown(record.validation)]
        with open(self._path, "a", newline="") as file:
            csv.writer(file).writerow([*row, *map(repr, record.metrics.values())])

    def _begin(self, names: list[str], step: int) -> None:
        self._begun = True
        make_folder(self._path.parent)
        kept = []
        if self._path.exists():
            with open(self._path, newline="") as file:
                rows = list(csv.reader(file))
            if rows and rows[0] == names:  # a row that a killed process cut short is too short
                kept = [row for row in rows[1:] if len(row) == len(names) and row[0].isdigit() and int(row[0]) < step]
        with open(self._path, "w", newline="") as file:
            csv.writer(file).writerows([names, *kept])


def _shown(value: float | None) -> str:
    return "" if value is None else repr(value)


class TensorBoardLog:
    """A callback that writes loss, validation loss and metrics for TensorBoard, by step. Needs tensorboard.

    Args:
        path: The folder where TensorBoard looks: `tensorboard --logdir FOLDER`.

    Raises:
        ImportError: If tensorboard is not installed.

    Example:
        ```python
        from sciml import training

        try:
            callbacks = [training.TensorBoardLog("runs/first")]
        except ImportError:  # pip install tensorboard
            callbacks = []
        ```
    """

    def __init__(self, path: str | os.PathLike):
        self._api = _tensorboard()
        self._writer = self._api.writer(str(make_folder(path)))

    def __call__(self, record: TrainingRecord) -> None:
        """Writes the numbers of a check."""
        numbers = {"loss": record.loss, **record.metrics}
        if record.validation is not None:
            numbers["validation"] = record.validation
        values = [self._api.Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        event = self._api.Event(step=record.step, wall_time=time.time(), summary=self._api.Summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()


class _TensorBoard:
    """The parts of the package `tensorboard` that are needed; it writes events without TensorFlow."""

    def __init__(self) -> None:
        self.Event = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self.Summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        self.writer = importlib.import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter


def _tensorboard() -> Any:
    try:
        return _TensorBoard()
    except ImportError as error:
        raise ImportError("`TensorBoardLog` requires tensorboard: `pip install tensorboard`.") from error
