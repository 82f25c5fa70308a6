"""Rollouts: short predictions from observed states, with noise and with the model's own errors at their starts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..._checks import check_count
from ..._types import Key, RealScalarLike
from ...solvers._solve import solve
from ._residuals import (
    check_conditions,
    check_scale,
    check_solve_options,
    check_weight,
    conditions_of,
    mean_square,
    starts_of,
)
from ._windows import Windows, joined, records_of, windows_of


class Rollouts(eqx.Module):
    """Windows of records, and the states that were seen where they start.

    Attributes:
        starts: The states, each leaf of shape `(windows, ...)`.
        windows: The windows, which may overlap.
    """

    starts: PyTree[Float[Array, "windows ..."]]
    windows: Windows


class RolloutLoss(eqx.Module):
    r"""The loss of rollouts, for `sciml.training.train`: `loss(model, rollouts, key)`.

    Attributes:
        scale: The size of one unit of a component.
        noise: The standard deviation of the noise added to the starts, in these units.
        pushforward: How many intervals are predicted first, through which no gradient passes.
        conditions: The third argument of the model, a row for each experiment; or None.
        options: Options for `sciml.solve`.
    """

    scale: PyTree
    noise: Float[Array, ""]
    pushforward: int = eqx.field(static=True)
    conditions: PyTree
    options: dict[str, Any]

    def __call__(self, model: Callable, rollouts: Rollouts, key: Key) -> Float[Array, ""]:
        """Returns the mean square of what predictions lack."""
        windows, k = rollouts.windows, self.pushforward
        starts = self._disturbed(rollouts.starts, key)

        def solved(y0, ts, args):
            options = self.options if args is None else self.options | dict(args=args)
            return solve(model, y0, t0=ts[0], t1=ts[-1], saveat=ts, throw=False, **options).ys

        args = conditions_of(self.conditions, windows)
        if k > 0:
            warm = jax.vmap(solved)(jax.lax.stop_gradient(starts), windows.ts[:, : k + 1], args)
            starts = jax.lax.stop_gradient(jax.tree.map(lambda y: y[:, -1], warm))
        found = jax.vmap(solved)(starts, windows.ts[:, k:], args)
        later = [
            jax.tree.map(lambda y, m=m: y[:, m:], x)
            for x, m in ((found, 1), (windows.ys, k + 1), (windows.seen, k + 1))
        ]
        return mean_square(*later, self.scale)

    def _disturbed(self, starts: PyTree, key: Key) -> PyTree:
        """Returns the starts with noise."""
        leaves, treedef = jax.tree.flatten(starts)
        one = jax.tree.structure(self.scale) != treedef
        scales = [self.scale] * len(leaves) if one else jax.tree.leaves(self.scale)
        keys = jax.random.split(key, len(leaves))
        moved = [
            x
            + self.noise.astype(x.dtype)
            * jnp.broadcast_to(s.astype(x.dtype), x.shape)
            * jax.random.normal(k, x.shape, x.dtype)
            for x, s, k in zip(leaves, scales, keys, strict=True)
        ]
        return jax.tree.unflatten(treedef, moved)


class RolloutProblem(NamedTuple):
    """A model, a loss and data for `sciml.training.train(*problem)`.

    Attributes:
        model: The model.
        loss: The loss.
        data: The windows with their starts, rows of which make a batch.
    """

    model: Any
    loss: RolloutLoss
    data: Rollouts


def rollouts(
    model: PyTree,
    ts: Any,
    ys: PyTree,
    *,
    length: int,
    stride: int = 1,
    pushforward: int = 0,
    noise: RealScalarLike = 0.0,
    scale: Any = 1.0,
    conditions: PyTree = None,
    **options: Any,
) -> RolloutProblem:
    r"""Predictions over `length` intervals from observed states (teacher forcing), made robust to their own errors.

    $$L = \frac{1}{n} \sum_{k, j} \Bigl(\frac{y_k(t_j) - y_j}{\sigma}\Bigr)^2, \qquad
    y_k(t_k) = y_k^{\text{seen}} + \nu \sigma \epsilon$$

    with a normal $\epsilon$ that is drawn again in every step. A model that was trained only on true states cannot
    correct its own errors, so long predictions drift away. Noise $\nu$ shows it nearby states, and `pushforward` shows
    it states that it reaches itself: the model first runs for this number of intervals without a gradient, and is then
    compared with the states that follow. Unlike in `multiple_shooting`, starts are observations, not unknowns: for
    records with little noise, and for fields, which would have too many unknowns.

    Args:
        model: The vector field, `model(t, y, args)`.
        ts: The times of the states, shape `(times,)`; or a list of such arrays, one for each experiment.
        ys: The states, a PyTree of arrays of shape `(times, ...)`, NaN for missing values; or a list of these.
        length: The number of intervals over which predictions are judged.
        stride: How many intervals there are from the start of one to the start of the next.
        pushforward: How many intervals come before, without a gradient.
        noise: $\nu$.
        scale: $\sigma$: a number, or one for each component, which broadcasts against a state.
        conditions: The `args` of the model, if they differ between experiments: a PyTree of arrays with a row for each
            experiment.
        options: For `sciml.solve`: `rtol`, `atol`, `dt`, `solver`, `adjoint`, `args` and others.

    Returns:
        A `RolloutProblem`: model, loss and data for `sciml.training.train(*problem)`.

    Raises:
        ValueError: If times do not ascend, states are not one for each, or a number makes no sense.
        TypeError: If states are not real numbers, or an option is not an option of `sciml.solve`.

    Source:
        Noise: A. Sanchez-Gonzalez et al., Learning to Simulate Complex Physics with Graph Networks, ICML 2020.
            Pushforward:
        J. Brandstetter, D. Worrall and M. Welling, Message Passing Neural PDE Solvers, ICLR 2022.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import optax
        from sciml import training
        from sciml.models.neural import NeuralODE

        ts = jnp.linspace(0.0, 6.0, 41)
        circle = jnp.stack([jnp.cos(ts), jnp.sin(ts)], axis=1)
        model = NeuralODE(2, width=16, depth=1, key=jax.random.key(0))
        problem = training.rollouts(model, ts, circle, length=3, pushforward=1, noise=0.01, dt=0.075)
        assert problem.data.windows.ts.shape == (37, 5)
        found = training.train(*problem, optimiser=optax.adam(1e-2), steps=100, batch_size=16, progress=False)
        assert found.history.loss[-1] < 0.1 * found.history.loss[0]
        ```
    """
    records = records_of(ts, ys, "rollouts")
    length, stride = check_count(length, "length", "rollouts"), check_count(stride, "stride", "rollouts")
    if isinstance(pushforward, bool) or not isinstance(pushforward, int) or pushforward < 0:
        raise ValueError(
            f"`rollouts(pushforward=...)` must be a nonnegative number of intervals, but is {pushforward!r}."
        )
    check_solve_options(options, "rollouts")
    parts = [windows_of(times, values, length + pushforward, stride) for times, values in records]
    data = joined(parts)
    conditions = check_conditions(conditions, len(records), options, "rollouts")
    every = starts_of(records, stride, "rollouts")
    # a window that would begin within the last one is left out
    counts = [-(-(len(times) - 1) // stride) for times, _ in records]
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    rows = [first + i for first, part in zip(firsts, parts, strict=True) for i in range(len(part.number))]
    starts = jax.tree.map(lambda x: x[jnp.asarray(rows)], every)
    loss = RolloutLoss(
        scale=check_scale(scale, "rollouts"),
        noise=check_weight(noise, "noise", "rollouts"),
        pushforward=pushforward,
        conditions=conditions,
        options=options,
    )
    return RolloutProblem(model, loss, Rollouts(starts, data))
