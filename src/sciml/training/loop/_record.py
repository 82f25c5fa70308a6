"""The argument of a callback."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class TrainingRecord:
    """The progress of a training: the argument of a function among `callbacks=`. One that returns True ends it.

    Attributes:
        step: The number of steps taken.
        epoch: The pass over the data of the last batch, from 0; 0 if it is unknown.
        seconds: The time since the call of `train`.
        loss: The mean of the losses since the last record.
        metrics: The means of the other results of the loss.
        validation: The validation loss; None if there is nothing to validate on.
        is_best: Whether that is the lowest so far.
        make_model: Returns the model; see `model`.

    Example:
        ```python
        import jax.numpy as jnp
        import optax
        from sciml import training

        def small_enough(record):
            print(record.step, record.loss)
            return record.loss < 1e-3

        found = training.train(
            jnp.zeros(2),
            lambda model, batch, key: jnp.sum((model - 1.0) ** 2),
            steps=1000,
            check_every=10,
            optimiser=optax.sgd(0.1),
            callbacks=[small_enough],
            progress=False,
        )
        assert found.n_steps < 100
        ```
    """

    step: int
    epoch: int
    seconds: float
    loss: float
    metrics: dict[str, float]
    validation: float | None
    is_best: bool
    make_model: Callable[[], Any]

    @property
    def model(self) -> Any:
        """The model that was validated, a copy."""
        return self.make_model()
