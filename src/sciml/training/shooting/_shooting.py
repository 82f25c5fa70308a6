"""Multiple shooting: the states between windows are unknowns, and what does not meet there is penalised."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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
    itself,
    mean_square,
    starts_of,
)
from ._windows import Windows, joined, records_of, windows_of


class Shooting(eqx.Module):
    """The trained parts of multiple shooting: a model, and the states from which its windows start.

    Attributes:
        dynamics: The vector field, `dynamics(t, y, args)`.
        starts: The states, each leaf of shape `(windows, ...)`.
    """

    dynamics: PyTree
    starts: PyTree[Float[Array, "windows ..."]]


class ShootingLoss(eqx.Module):
    r"""The loss of multiple shooting, for `sciml.training.train`: `loss(shooting, windows, key)`.

    Attributes:
        penalty: The weight of the gaps between windows.
        scale: The size of one unit of an observation.
        observe: `observe(y)`: the observed part of a state.
        conditions: The third argument of the model, a row for each experiment; or None.
        options: Options for `sciml.solve`.
    """

    penalty: Float[Array, ""]
    scale: PyTree
    observe: Callable
    conditions: PyTree
    options: dict[str, Any]

    def __call__(self, shooting: Shooting, windows: Windows, key: Key | None) -> tuple[Array, dict[str, Array]]:
        """Returns the loss, and its two parts."""
        del key
        starts = jax.tree.map(lambda x: x[windows.number], shooting.starts)

        def one(y0, ts, args):
            options = self.options if args is None else self.options | dict(args=args)
            return solve(shooting.dynamics, y0, t0=ts[0], t1=ts[-1], saveat=ts, throw=False, **options).ys

        ys = jax.vmap(one)(starts, windows.ts, conditions_of(self.conditions, windows))
        misfit = mean_square(jax.vmap(jax.vmap(self.observe))(ys), windows.ys, windows.seen, self.scale)
        gap = self._gap(shooting.starts, ys, windows)
        return misfit + self.penalty.astype(misfit.dtype) * gap, {"misfit": misfit, "gap": gap}

    def _gap(self, starts: PyTree, ys: PyTree, windows: Windows) -> Float[Array, ""]:
        """Returns the mean square of the gaps between the end of a window and the start of the next."""
        total: Any = 0.0
        count: Any = 0
        for x, y in zip(jax.tree.leaves(starts), jax.tree.leaves(ys), strict=True):
            following = x[jnp.minimum(windows.number + 1, len(x) - 1)]
            inner = jnp.broadcast_to(windows.followed.reshape((-1,) + (1,) * (x.ndim - 1)), following.shape)
            total = total + jnp.sum(jnp.where(inner, y[:, -1] - following, 0) ** 2)
            count = count + jnp.sum(inner)
        return total / jnp.maximum(count, 1).astype(total.dtype)


class ShootingProblem(NamedTuple):
    """A model, a loss and data for `sciml.training.train(*problem)`.

    Attributes:
        model: The model with the states from which windows start.
        loss: The loss.
        data: The windows, rows of which make a batch.
    """

    model: Shooting
    loss: ShootingLoss
    data: Windows

    def longer(
        self, shooting: Shooting, factor: int = 2, *, penalty: RealScalarLike | None = None
    ) -> "ShootingProblem":
        """Returns the problem with longer windows, from the result with shorter ones.

        Args:
            shooting: The result of the training.
            factor: How many windows become one.
            penalty: A new weight of the gaps, if it should change.
        """
        factor = check_count(factor, "factor", "longer")
        # the windows of each experiment, one after another
        ends = np.flatnonzero(~np.asarray(self.data.followed)) + 1
        pieces = [slice(a, b) for a, b in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]

        def some(x: Array) -> Array:
            return jnp.concatenate([x[piece][::factor] for piece in pieces])

        starts = jax.tree.map(some, shooting.starts)
        loss = self.loss
        if penalty is not None:
            loss = eqx.tree_at(lambda loss: loss.penalty, loss, jnp.asarray(penalty, loss.penalty.dtype))
        parts = [_merged(jax.tree.map(lambda x, p=piece: x[p], self.data), factor) for piece in pieces]
        return ShootingProblem(Shooting(shooting.dynamics, starts), loss, joined(parts))


def _merged(windows: Windows, factor: int) -> Windows:
    """Returns windows of which each is several of the given ones; the point where two meet is one point."""
    count, times = windows.ts.shape
    length = (times - 1) * factor
    whole = -(-count // factor)

    def flat(x: Any) -> np.ndarray:
        x = np.asarray(x)
        return np.concatenate([x[:, :-1].reshape(count * (times - 1), *x.shape[2:]), x[-1:, -1]])

    ts, ys, seen = (jax.tree.map(flat, x) for x in (windows.ts, windows.ys, windows.seen))
    rows = np.arange(whole)[:, None] * length + np.arange(length + 1)
    inside = rows < len(ts)
    rows = np.minimum(rows, len(ts) - 1)

    def there(x: np.ndarray) -> Array:
        return jnp.asarray(x[rows] & inside.reshape(inside.shape + (1,) * (x.ndim - 1)))

    number = jnp.arange(whole)
    return Windows(
        number,
        jnp.asarray(ts[rows]),
        jax.tree.map(lambda y: jnp.asarray(y[rows]), ys),
        jax.tree.map(there, seen),
        jnp.zeros_like(number),
        number < whole - 1,
    )


def multiple_shooting(
    model: PyTree,
    ts: Any,
    ys: PyTree,
    *,
    length: int,
    penalty: RealScalarLike = 1.0,
    scale: Any = 1.0,
    observe: Callable[[PyTree], PyTree] | None = None,
    starts: PyTree = None,
    conditions: PyTree = None,
    **options: Any,
) -> ShootingProblem:
    r"""Splits one observed trajectory into windows, each of which is solved from its own initial state.

    A model that is far from right leaves a long trajectory soon, and the loss of all of it is rough and has many
    minima. Over short windows it is smooth. The states $s_k$ at which the windows start, at times $t_k$, are additional
    unknowns, and the gaps between windows are penalised:

    $$L = \frac{1}{n} \sum_{k, j} \Bigl(\frac{h(y_k(t_j)) - y_j}{\sigma}\Bigr)^2
        + \frac{\lambda}{m} \sum_k \lVert y_k(t_{k+1}) - s_{k+1} \rVert^2$$

    where $y_k$ is the solution from $s_k$, the first sum is over the $n$ numbers that were seen in windows, and $m$ is
    how many numbers the second one has. An observation where two windows meet belongs to both. Windows are solved side
    by side, and may be batches and be spread over devices. Longer windows, by `ShootingProblem.longer`, and larger
    penalties bring the result closer to one trajectory.

    Args:
        model: The vector field, `model(t, y, args)`.
        ts: The times of the observations, which ascend and need not be evenly spaced, shape `(times,)`; or a list of
            such arrays, one for each experiment, as long as each is.
        ys: The observations, a PyTree of arrays of shape `(times, ...)`; NaN for missing values; or a list of these.
        length: The number of intervals between observations in a window.
        penalty: The weight $\lambda$.
        scale: The unit of observations $\sigma$: a number, or one for each component, which broadcasts against a row.
        observe: $h$, the observed part of a state, with the structure of `ys`; by default all of it.
        starts: The states at the starts of windows, each leaf of shape `(windows, ...)`; by default the observations,
            on straight lines between their neighbours where they are missing.
        conditions: The `args` of the model, if they differ between experiments: a PyTree of arrays with a row for each
            experiment.
        options: For `sciml.solve`: `rtol`, `atol`, `dt`, `solver`, `adjoint`, `args` and others.

    Returns:
        A `ShootingProblem`: model, loss and data for `sciml.training.train(*problem)`. The loss notes its two parts,
        "misfit" and "gap", in the history.

    Raises:
        ValueError: If the times do not ascend, observations are not one for each, `starts` do not suit the windows, or
            a number makes no sense.
        TypeError: If observations are not real numbers, or an option is not an option of `sciml.solve`.

    Source:
        H. G. Bock, Recent advances in parameter identification techniques for O.D.E., 1983.

    Example:
        ```python
        import jax.numpy as jnp
        import optax
        from sciml import training

        ts = jnp.linspace(0.0, 4.0, 21)
        ys = jnp.stack([jnp.cos(2 * ts), -2 * jnp.sin(2 * ts)], axis=1).at[5:9].set(jnp.nan)  # a gap

        def oscillator(t, y, args):
            return jnp.stack([y[1], -y[0]])

        problem = training.multiple_shooting(oscillator, ts, ys, length=5)
        assert problem.model.starts.shape == (4, 2) and not problem.data.seen[1, 1].any()
        ```
    """
    records = records_of(ts, ys, "multiple_shooting")
    length = check_count(length, "length", "multiple_shooting")
    check_solve_options(options, "multiple_shooting")
    data = joined([windows_of(times, values, length) for times, values in records])
    conditions = check_conditions(conditions, len(records), options, "multiple_shooting")
    count = len(data.number)
    if starts is None:
        if observe is not None:
            raise ValueError(
                "`multiple_shooting`: with `observe` the observations are not states. Pass `starts`, an array of "
                f"shape ({count}, ...) with a state for the start of each window."
            )
        starts = starts_of(records, length, "multiple_shooting")
    starts = jax.tree.map(jnp.asarray, starts)
    wrong = [x.shape for x in jax.tree.leaves(starts) if x.ndim == 0 or x.shape[0] != count]
    if wrong:
        raise ValueError(
            f"`multiple_shooting`: `starts` must have a state for each of the {count} windows, but has shape "
            f"{wrong[0]}."
        )
    loss = ShootingLoss(
        penalty=check_weight(penalty, "penalty", "multiple_shooting"),
        scale=check_scale(scale, "multiple_shooting"),
        observe=itself if observe is None else observe,
        conditions=conditions,
        options=options,
    )
    return ShootingProblem(Shooting(model, starts), loss, data)
