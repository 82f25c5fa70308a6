"""`ControlProblem`: an optimal control problem in continuous time."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_call, concrete, no_instance
from .._structure_words import structure_words
from .._types import Y

_CALLS = {
    "model": "model(t, y, u, args)",
    "running": "running(t, y, u, args)",
    "terminal": "terminal(t1, y1, args)",
    "path": "path(t, y, u, args)",
    "end": "end(t1, y1, args)",
    "end_limits": "end_limits(t1, y1, args)",
}


class ControlProblem(eqx.Module):
    r"""An optimal control problem: a model with controls, a cost to minimise, and constraints.

    $$\min_u \; M(t_1, y(t_1)) + \int_{t_0}^{t_1} L(t, y, u) \, dt , \qquad \dot y = f(t, y, u)$$

    State and control are any PyTrees of real arrays. All functions get `args`, any PyTree, as their last argument.

    Attributes:
        model: $f$, a function `model(t, y, u, args)` that returns the rate of the state. For a model without a control,
            such as those of `sciml.models`, write `lambda t, y, u, args: model(t, y, u)`.
        running: $L$, the running cost, a function that returns a number.
        terminal: $M$, the terminal cost, a function `terminal(t1, y1, args)` that returns a number.
        path: Path constraints, a function `path(t, y, u, args)` whose results must be at most zero at all times.
        end: End conditions, a function `end(t1, y1, args)` whose results must be zero.
        end_limits: A function `end_limits(t1, y1, args)` whose results must be at most zero.
        y_bounds: The lower and the upper bound of the state, each a number or a PyTree like the state, infinite for
            elements without a bound. They hold after the start.
        u_bounds: The same for the control.
        t1_bounds: The lower and the upper bound of the final time if it is free.
        free: Which elements of the initial state are free, as booleans: one, or a PyTree like the state. A parameter to
            be optimised is a component of the state that is free and whose rate is zero.

    Raises:
        TypeError: If a function cannot be called with these arguments, or bounds are not a pair.
        ValueError: If there is no cost.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import control

        # a cart that must move by 1 and stop
        problem = control.ControlProblem(
            model=lambda t, y, u, args: jnp.stack([y[1], u]),
            running=lambda t, y, u, args: u**2,
            end=lambda t1, y1, args: y1 - jnp.array([1.0, 0.0]),
            u_bounds=(-10.0, 10.0),
        )
        plan = control.optimise(problem, jnp.zeros(2), 0.0, t1=1.0)
        assert abs(plan.cost - 12.0) < 1e-3
        ```
    """

    model: Callable[..., Y]
    running: Callable[..., Any] | None = None
    terminal: Callable[..., Any] | None = None
    path: Callable[..., Any] | None = None
    end: Callable[..., Any] | None = None
    end_limits: Callable[..., Any] | None = None
    y_bounds: Any = None
    u_bounds: Any = None
    t1_bounds: Any = None
    free: Any = False

    def __check_init__(self):
        for name, call in _CALLS.items():
            value = getattr(self, name)
            if value is None and name != "model":
                continue
            if not callable(value) or isinstance(value, type):
                raise TypeError(f"`{name}` must be a function `{call}`, but {no_instance(value)}.")
            check_call(value, call, f"`{name}`")
        if self.running is None and self.terminal is None:
            raise ValueError(
                "A problem must have a cost: pass `running=`, `terminal=` or both, such as "
                "`terminal=lambda t1, y1, args: t1` for the shortest time."
            )
        for name in ("y_bounds", "u_bounds", "t1_bounds"):
            bounds = getattr(self, name)
            if bounds is not None and (not isinstance(bounds, tuple | list) or len(bounds) != 2):
                raise TypeError(f"`{name}` must be a pair `(lower, upper)`, but is {bounds!r:.60}.")


def spread(value: Any, like: PyTree[Array], name: str) -> Array:
    """Returns one value for each element of a state or a control, from a number or a PyTree like it.

    Raises:
        ValueError: If its structure or its shapes differ.
    """
    leaves, structure = jax.tree.flatten(like)
    one = jax.tree_util.all_leaves([value]) and not (len(leaves) == 1 and np.ndim(value) > 0)
    if not one and jax.tree.structure(value) != structure:
        raise ValueError(f"`{name}` must be a number or {structure_words(like)}, but is {structure_words(value)}.")
    parts = [value] * len(leaves) if one else jax.tree.leaves(value)
    out = []
    for x, part in zip(leaves, parts):
        part = jnp.asarray(part)
        if part.shape not in ((), x.shape):
            raise ValueError(f"`{name}` must be a number or have the shape {x.shape}, but has shape {part.shape}.")
        out.append(jnp.broadcast_to(part, x.shape).reshape(-1))
    return jnp.concatenate(out)


def box(bounds: Any, like: PyTree[Array], dtype: Any, name: str) -> tuple[Array, Array]:
    """Returns lower and upper bounds of all elements, infinite ones if there are none.

    Raises:
        ValueError: If they do not fit the state or the control, or are not in order.
    """
    low, high = (-jnp.inf, jnp.inf) if bounds is None else bounds
    low, high = (spread(x, like, name).astype(dtype) for x in (low, high))
    if concrete(low) and concrete(high) and not bool(jnp.all(low < high)):
        raise ValueError(f"`{name}` must have lower bounds below upper bounds, but is {bounds!r:.80}.")
    return low, high
