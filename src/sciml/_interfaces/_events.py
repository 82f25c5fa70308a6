"""`Event` and `Schedule`: what happens when a condition changes its sign, and what at times that are given."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import check_call, concrete, no_instance
from .._types import Args, RealScalarLike, Y


class Event(eqx.Module):
    r"""An update of the state when $g(t, y, \mathrm{args})$ crosses zero, or when a condition becomes true.

    The crossing is located on the dense output of a step, and the step is then repeated up to it, so the event is as
    accurate as the steps. A condition that already holds at the start of a solve does not fire, and neither does one
    that touches zero without crossing it or that the `update` of another event jumps over. A condition that is exactly
    zero at `t1` has not crossed zero: it fires in a solve that resumes from there with `resume=`, or at `t1` if a
    `Schedule` fires there. Derivatives account for the dependence of the event time on the solution: $\mathrm{d}t^* =
    -\mathrm{d}g / (\mathrm{d}g/\mathrm{d}t)$.

    Attributes:
        condition: $g$, a function `condition(t, y, args)`. If it returns a real number, the event fires when the number
            crosses zero; if it returns a boolean, when it becomes true. The time of a boolean has no derivative.
        update: The state after the event, `update(t, y, args) -> y`; without it the solve ends there, with
            `Status.event`.
        direction: 1 for a rising $g$ only, -1 for a falling one, 0 for both.

    Raises:
        TypeError: If the condition or the update is not a function.
        ValueError: If the direction is not 1, -1 or 0.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        ball = lambda t, y, args: jnp.stack([y[1], -9.81])
        bounce = sciml.Event(lambda t, y, args: y[0], lambda t, y, args: jnp.stack([y[0], -0.8 * y[1]]), direction=-1)
        sol = sciml.solve(ball, jnp.array([1.0, 0.0]), t0=0.0, t1=1.2, events=bounce)
        assert sol.events.count == 2
        assert abs(sol.events.times[0] - (2 / 9.81) ** 0.5) < 1e-6
        ```
    """

    condition: Callable[[RealScalarLike, Y, Args], Any]
    update: Callable[[RealScalarLike, Y, Args], Y] | None = None
    direction: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        if not callable(self.condition):
            raise TypeError(
                f"`condition` must be a function `condition(t, y, args)`, but {no_instance(self.condition)}."
            )
        check_call(self.condition, "condition(t, y, args)", "`condition` of an `Event`")
        if self.update is not None and not callable(self.update):
            raise TypeError(
                f"`update` must be a function `update(t, y, args)` that returns the state after the event, or None "
                f"to end the solve, but {no_instance(self.update)}."
            )
        if self.update is not None:
            check_call(self.update, "update(t, y, args)", "`update` of an `Event`")
        if isinstance(self.direction, bool) or self.direction not in (-1, 0, 1):
            raise ValueError(f"`direction` must be 1, -1 or 0, but is {self.direction!r}.")


class Schedule(eqx.Module):
    """Updates of the state at given times: doses, resets, steps of a forcing.

    Steps end at these times and continue after them with their previous length. Times before the start or after the end
    of a solve are ignored; times at the start or at the end fire. `sol.events.count` is the number of updates. Times
    and values may be traced, differ between members, and be differentiated. Pad shorter lists of some members with
    infinite times.

    A time that occurs twice fires twice, in the order of the rows. If the times are traced or have members, at most 8
    rows may share a time (more end with `Status.crowded_events`), and only one may be at the end of the solve (two end
    with `Status.invalid_argument`). For these cases, pass two schedules; the first fires first.

    Attributes:
        times: The times, of shape `(times,)`, in the direction of time.
        update: The state after each time, `update(t, y, args) -> y`, or `update(t, y, args, value)` with `values`.
            Without it steps end at these times without a change, for example because the vector field jumps there.
        values: A PyTree of arrays with one row for each time, or a list of one number for each.

    Raises:
        TypeError: If the times are not real numbers or `update` is not a function.
        ValueError: If the times are not in order or the number of values differs.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        doses = sciml.Schedule(jnp.array([0.0, 8.0]), lambda t, y, args, dose: y + dose, jnp.array([100.0, 50.0]))
        sol = sciml.solve(lambda t, y, args: -0.1 * y, jnp.array(0.0), t0=0.0, t1=8.0, events=doses)
        assert abs(sol.ys[-1] - (100 * jnp.exp(-0.8) + 50)) < 1e-3
        ```
    """

    times: Any
    update: Callable[..., Y] | None = None
    values: PyTree = None

    def __init__(self, times: Any, update: Callable[..., Y] | None = None, values: PyTree = None):
        known = not isinstance(times, jax.Array) and all(map(concrete, jax.tree.leaves(times)))
        self.times = np.asarray(times) if known else jnp.asarray(times)
        self.update = update
        numbers = isinstance(values, list | tuple) and len(values) > 0 and all(map(_is_number, values))
        self.values = jnp.asarray(values) if numbers else jax.tree.map(jnp.asarray, values)

    def __check_init__(self):
        dtype, shape = self.times.dtype, self.times.shape
        if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
            raise TypeError(f"`times` of a `Schedule` must be real numbers, but have dtype {dtype}.")
        if len(shape) != 1 or shape[0] == 0:
            raise ValueError(f"`times` of a `Schedule` must have shape `(times,)` with at least one, but have {shape}.")
        if self.update is not None and not callable(self.update):
            raise TypeError(f"`update` of a `Schedule` must be a function, but {no_instance(self.update)}.")
        for path, x in jax.tree_util.tree_leaves_with_path(self.values):
            if x.shape[:1] != shape:
                where = jax.tree_util.keystr(path)
                raise ValueError(
                    f"`values{where}` of a `Schedule` must have a row for each of its {shape[0]} times, but has shape "
                    f"{x.shape}. For the same value at all times write `jnp.full({shape[0]}, value)`."
                )
        if self.values is not None and self.update is None:
            raise ValueError("`values` of a `Schedule` require an `update(t, y, args, value)`, which is missing.")
        if self.update is not None:
            call = "update(t, y, args)" if self.values is None else "update(t, y, args, value)"
            check_call(
                self.update, call, f"`update` of a `Schedule` with{'out' if self.values is None else ''} `values`"
            )
        if concrete(self.times) and np.any(np.isnan(np.asarray(self.times))):
            raise ValueError("`times` of a `Schedule` must not be NaN; use infinity for a time that never comes.")


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.generic | np.ndarray | jax.Array) and np.ndim(x) == 0
