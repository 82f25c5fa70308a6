"""Collocation: a field is matched to the slopes of smoothed measurements, without a solve."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._types import Args, Key, RealScalarLike
from ._smooth import Smoothed, smooth
from .shooting._windows import is_several, records_of


class CollocationLoss(eqx.Module):
    r"""The loss of collocation, for `sciml.training.train`: `loss(model, smoothed, key)`.

    Attributes:
        scale: The size of the rates, one number for each component.
        args: The third argument of the model.
    """

    scale: PyTree
    args: Args

    def __call__(self, model: Callable, smoothed: Smoothed, key: Key | None) -> Float[Array, ""]:
        """Returns the mean square of the field's error, in units of the rates."""
        del key
        found = jax.vmap(lambda t, y: model(t, y, self.args))(smoothed.ts, smoothed.states)

        def square(f: Array, rate: Array, scale: Array) -> Array:
            size = jnp.broadcast_to(scale.astype(f.dtype), f.shape[1:])
            return jnp.sum(((f - rate) / jnp.broadcast_to(size, f.shape)) ** 2)

        squares = jax.tree.leaves(jax.tree.map(square, found, smoothed.rates, self.scale))
        count = sum(x.size for x in jax.tree.leaves(found))
        total: Any = sum(squares[1:], squares[0])
        return total / count


class CollocationProblem(NamedTuple):
    """A model, a loss and data for `sciml.training.train(*problem)`.

    Attributes:
        model: The model.
        loss: The loss.
        data: Times, states and rates, rows of which make a batch.
    """

    model: Any
    loss: CollocationLoss
    data: Smoothed


def collocate(
    model: PyTree,
    ts: Any,
    ys: PyTree,
    *,
    at: Any = None,
    smoothing: RealScalarLike | None = None,
    args: Args = None,
) -> CollocationProblem:
    r"""Matches a field to slopes: the quick way to the weights from which shooting starts.

    Measurements are smoothed by splines $s(t)$, and the field is fitted to their slopes by regression,

    $$L = \frac{1}{n m} \sum_{i, j} \Bigl(\frac{f_j(t_i, s(t_i)) - \dot s_j(t_i)}{\sigma_j}\Bigr)^2,$$

    with $\sigma_j$ the root mean square of the rates. Nothing is solved, and there is nothing that a bad start could
    leave: a step costs as much as a step of any regression. The error of the splines remains in the result, so
    `multiple_shooting` of `found.model` should follow. The whole state has to be seen.

    Args:
        model: The vector field, `model(t, y, args)`.
        ts: The times of the measurements, shape `(times,)`; or a list of such arrays, one for each experiment.
        ys: The measurements, a PyTree of arrays of shape `(times, ...)`, NaN for missing values; or a list of these.
        at: The times at which slopes are matched; by default the times of the measurements. For one experiment.
        smoothing: As for `smooth`; by default by cross-validation.
        args: The third argument of the model.

    Returns:
        A `CollocationProblem`: model, loss and data for `sciml.training.train(*problem)`.

    Raises:
        ValueError: If times do not ascend, or a component was measured fewer than five times.
        TypeError: If measurements are not real numbers.

    Source:
        J. M. Varah, A spline least squares method for numerical parameter estimation in differential equations, SIAM J.
        Sci. Stat. Comput. 3:28, 1982; E. Roesch, C. Rackauckas and M. P. H. Stumpf, Collocation based training of
        neural ordinary differential equations, Stat. Appl. Genet. Mol. Biol. 20:37, 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import optax
        from sciml import training
        from sciml.models.neural import NeuralODE

        ts = jnp.linspace(0.0, 6.0, 41)
        circle = jnp.stack([jnp.cos(ts), jnp.sin(ts)], axis=1)
        problem = training.collocate(NeuralODE(2, width=16, depth=1, key=jax.random.key(0)), ts, circle)
        found = training.train(*problem, optimiser=optax.adam(1e-2), steps=300, progress=False)
        assert found.history.loss[-1] < 0.01
        ```
    """
    if is_several(ts):
        if at is not None:
            raise ValueError(
                "`collocate(at=...)` supports only one experiment. Leave `at` out, or pass one experiment."
            )
        each = [smooth(t, y, smoothing=smoothing) for t, y in records_of(ts, ys, "collocate")]
        data = jax.tree.map(lambda *parts: jnp.concatenate(parts), *each)
    else:
        data = smooth(ts, ys, at=at, smoothing=smoothing)
    scale = jax.tree.map(_root_mean_square, data.rates)
    return CollocationProblem(model, CollocationLoss(scale, args), data)


def _root_mean_square(rates: Array) -> Array:
    """Returns the size of each component's rates; one where they are zero."""
    size = np.sqrt(np.mean(np.square(np.asarray(rates, np.float64)), axis=0))
    return jnp.asarray(np.where(size > 0, size, 1.0), rates.dtype)
