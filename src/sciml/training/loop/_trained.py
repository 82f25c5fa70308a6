"""What a training returns."""

import equinox as eqx
from jaxtyping import PyTree

from ..._interfaces._horizon import Horizon
from ..._status import Status
from ._history import TrainingHistory


class Trained(eqx.Module):
    """A trained model; what `sciml.training.train` returns.

    Attributes:
        model: The model to use: the one with the lowest validation loss, or where there is nothing to validate on, that
            after the last step. With `average=` its weights are the averaged ones.
        last: The model after the last step, its weights not averaged.
        best_step: The number of steps after which `model` was.
        history: The losses of all steps and of all validations.
        status: `Status.successful`; `Status.nonfinite` where NaN or infinity ended it; `Status.beyond_horizon` where
            gradients do not reach to the end of the solution.
        n_steps: The number of steps taken.
        message: How it ended, in words.
        horizon: Until when gradients through the solution of `model` say anything, where `train` was asked to look;
            else None.

    Example:
        ```python
        import jax.numpy as jnp
        import optax
        from sciml import training

        x = jnp.linspace(0.0, 1.0, 20)

        def loss(model, batch, key):
            x, y = batch
            return jnp.mean((model[0] + model[1] * x - y) ** 2)

        found = training.train(
            jnp.zeros(2), loss, (x, 1.0 + 2.0 * x), steps=300, optimiser=optax.adam(0.1), progress=False
        )
        print(found.message)
        assert found.history.loss[-1] < 0.01 * found.history.loss[0]
        ```
    """

    model: PyTree
    last: PyTree
    best_step: int = eqx.field(static=True)
    history: TrainingHistory
    status: Status = eqx.field(static=True)
    n_steps: int = eqx.field(static=True)
    message: str = eqx.field(static=True)
    horizon: Horizon | None = None

    def __str__(self) -> str:
        losses = self.history.loss
        if not len(losses):
            return self.message
        return f"loss {losses[0]:.6g} in the first step, {losses[-1]:.6g} in the last of {len(losses)}\n{self.message}"
