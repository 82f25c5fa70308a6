"""The history of a training: a row for every step, and one for every check."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ._step import StepReport


class TrainingHistory(eqx.Module):
    """The course of a training, as NumPy arrays.

    Attributes:
        loss: The loss where each step began, shape `(steps,)`.
        gradient_norm: The norm of its gradient with respect to the free variables, shape `(steps,)`.
        metrics: The other values that the loss returned, by name, each of shape `(steps,)`.
        checked_steps: The number of steps after which the model was checked, shape `(checks,)`.
        validation: The validation loss there, shape `(checks,)`; NaN if there is nothing to validate on.
        skipped: The numbers of steps, from 0, that changed nothing because of NaN or infinity.

    Example:
        ```python
        import jax.numpy as jnp
        import optax
        from sciml import training

        def loss(model, batch, key):
            return jnp.sum((model - 1.0) ** 2), {"size": jnp.sum(model**2)}

        found = training.train(jnp.zeros(2), loss, steps=5, optimiser=optax.sgd(0.1), progress=False)
        assert found.history.loss.shape == (5,) and found.history.metrics["size"][0] == 0
        ```
    """

    loss: np.ndarray
    gradient_norm: np.ndarray
    metrics: dict[str, np.ndarray]
    checked_steps: np.ndarray
    validation: np.ndarray
    skipped: np.ndarray


class HistoryWriter:
    """Collects what steps report, which may still be computed.

    Args:
        metrics: The names of the values that the loss returns in addition to the loss.
        parts: The parts that `StepReport.finite` refers to, in words.
    """

    def __init__(self, metrics: tuple[str, ...], parts: tuple[str, ...]):
        self._metrics, self._parts = metrics, parts
        self._pending: list[StepReport] = []
        self._rows: list[np.ndarray] = [np.zeros((0, 2 + len(metrics)))]
        self._checks: list[tuple[int, float]] = []
        self._skipped: list[int] = []
        self._culprits: tuple[str, ...] = ()
        self.steps = 0

    def add(self, report: StepReport) -> None:
        """Records the report of a step, without waiting for it, but for the step before the last."""
        self._pending.append(report)
        if len(self._pending) > 1:
            jax.block_until_ready(self._pending[-2].taken)

    def settle(self) -> np.ndarray:
        """Waits for all steps, and returns the rows that are new."""
        found = jax.device_get([(r.numbers, r.finite, r.taken) for r in self._pending])
        self._pending.clear()
        rows = []
        for numbers, finite, taken in found:
            if not taken:
                continue
            rows.append(np.asarray(numbers, np.float64))
            if not finite.all():
                self._skipped.append(self.steps)
                self._culprits = tuple(part for part, good in zip(self._parts, finite, strict=True) if not good)
            self.steps += 1
        new = np.stack(rows) if rows else np.zeros((0, 2 + len(self._metrics)))
        self._rows.append(new)
        return new

    def check(self, validation: float) -> None:
        """Notes a validation after the steps so far."""
        self._checks.append((self.steps, validation))

    @property
    def last_checked(self) -> int:
        """After how many steps the model was checked last."""
        return self._checks[-1][0] if self._checks else 0

    @property
    def skipped(self) -> list[int]:
        """The steps that changed nothing."""
        return self._skipped

    def blame(self) -> str:
        """Returns a description of the values that were not finite in the last skipped step."""
        shown = ", ".join(self._culprits[:6]) + (", ..." if len(self._culprits) > 6 else "")
        return shown or "something"

    def mean_since(self, step: int) -> tuple[float, dict[str, float]]:
        """Returns the means of loss and metrics since a step."""
        rows = self._table()[step:]
        rows = rows[np.isfinite(rows).all(axis=1)]
        means = rows.mean(axis=0) if len(rows) else np.full(rows.shape[1], np.nan)
        return float(means[0]), dict(zip(self._metrics, means[2:].tolist(), strict=True))

    def rows(self, start: int) -> np.ndarray:
        """Returns the rows of the steps from `start` on: loss, norm of the gradient, metrics."""
        return self._table()[start:]

    def _table(self) -> np.ndarray:
        if len(self._rows) > 1:
            self._rows = [np.concatenate(self._rows)]
        return self._rows[0]

    def notes(self) -> dict[str, Any]:
        """Returns the part of it that a checkpoint stores in addition to the rows, for JSON."""
        return {"checks": self._checks, "skipped": self._skipped, "culprits": self._culprits}

    def restore(self, rows: np.ndarray, notes: dict[str, Any]) -> None:
        """Continues from the contents of a checkpoint."""
        self._rows = [rows]
        self._checks = [(step, value) for step, value in notes["checks"]]
        self._skipped = list(notes["skipped"])
        self._culprits = tuple(notes["culprits"])
        self.steps = len(rows)

    def history(self) -> TrainingHistory:
        """Returns all of it."""
        rows = self._table()
        checks = np.asarray(self._checks, np.float64).reshape(-1, 2)
        return TrainingHistory(
            loss=rows[:, 0],
            gradient_norm=rows[:, 1],
            metrics={name: rows[:, 2 + i] for i, name in enumerate(self._metrics)},
            checked_steps=checks[:, 0].astype(np.int64),
            validation=checks[:, 1],
            skipped=np.asarray(self._skipped, np.int64),
        )
