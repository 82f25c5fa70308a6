"""When a run ends before its end time."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from ..._types import Args, RealScalarLike, Y


class SteadyState(eqx.Module):
    r"""Ends a run when the state no longer changes: $\|f(t, y)\| \le \mathrm{atol} + \mathrm{rtol} \, \|y\|$.

    The norms are root mean squares over all elements. Looked at at every saved time. A quantity that decays to zero
    needs an absolute tolerance: its rate of change stays in proportion to itself.

    Attributes:
        rtol: Relative tolerance, per unit of time.
        atol: Absolute tolerance, in units of the state per unit of time.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        run = sciml.simulate(
            lambda t, y, args: 1.0 - y, jnp.zeros(2), t0=0.0, t1=1e6, save_every=1.0,
            stop=sciml.runs.SteadyState(rtol=1e-4), progress=False,
        )
        assert "steady state" in run.reason and run.t_reached < 100
        ```
    """

    rtol: float = eqx.field(static=True, default=1e-6)
    atol: float = eqx.field(static=True, default=1e-9)

    def __call__(self, rate: PyTree, y: PyTree) -> Bool[Array, ""]:
        """Returns whether a state with this rate of change is steady."""
        return _norm(rate) <= self.atol + self.rtol * _norm(y)


class WallTime(eqx.Module):
    """Ends this call of a run after a number of seconds, with a checkpoint: the same call resumes from there.

    For queues that end a job after a time. The current segment is finished first, so leave some time for it.

    Attributes:
        seconds: The time from the start of the call.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        options = dict(t0=0.0, t1=1.0, dt=1e-3, save_every=0.5, store="run", segment_steps=100, progress=False)
        run = sciml.simulate(lambda t, y, args: -y, jnp.ones(2), **options, stop=sciml.runs.WallTime(0.0))
        assert not run.finished and "wall time" in run.reason
        run = sciml.simulate(lambda t, y, args: -y, jnp.ones(2), **options)
        assert run.finished and len(run) == 3
        ```
    """

    seconds: float = eqx.field(static=True)


class Stops(eqx.Module):
    """The conditions that may end a run.

    Attributes:
        traced: The conditions that are checked at saved times, in traced code.
        seconds: The wall time of one call; infinite where there is no limit.
    """

    traced: tuple
    seconds: float = eqx.field(static=True)

    def __call__(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Array:
        """Returns the number of the first condition that holds for a solve, from 1; 0 if none does."""
        return self.first(
            lambda stop: stop(model(t, y, args), y) if isinstance(stop, SteadyState) else stop(t, y, args)
        )

    def first(self, holds: Callable[[Any], Any]) -> Array:
        """Returns the number of the first condition of which `holds` is true, from 1; 0 if there is none."""
        found = jnp.zeros((), jnp.int8)
        for number, stop in reversed(list(enumerate(self.traced, 1))):
            found = jnp.where(_checked(stop, holds(stop)), jnp.asarray(number, jnp.int8), found)
        return found

    def name(self, number: int) -> str:
        """Returns what to call a condition."""
        stop = self.traced[number - 1]
        if isinstance(stop, SteadyState):
            return "steady state"
        return f"`{getattr(stop, '__name__', type(stop).__name__)}`"


def read_stops(stop: Any, saves: bool, *, form: str = "stop(t, y, args)") -> Stops:
    """Returns the conditions of the argument `stop`, whose functions are called as in `form`.

    Raises:
        TypeError: If one is not a condition.
        ValueError: If a condition needs saved times and there are none, or a wall time is negative.
    """
    stops = () if stop is None else tuple(stop) if isinstance(stop, Sequence) else (stop,)
    traced, seconds = [], float("inf")
    for one in stops:
        if isinstance(one, WallTime):
            if not one.seconds >= 0:
                raise ValueError(f"`WallTime(seconds=...)` must not be negative, but is {one.seconds}.")
            seconds = min(seconds, one.seconds)
        elif callable(one) and not isinstance(one, type):
            traced.append(one)
        else:
            raise TypeError(
                f"`stop` must be a function `{form} -> bool`, `sciml.runs.SteadyState()`, "
                f"`sciml.runs.WallTime(seconds)` or several of these in a list, but got {one!r}."
            )
    if traced and not saves:
        raise ValueError("`stop` is checked at saved times, but there are none. Pass `save_every` or `saveat`.")
    return Stops(tuple(traced), seconds)


def _checked(stop: Callable, holds: Any) -> Any:
    if np.shape(holds) != () or not jnp.issubdtype(jnp.result_type(holds), jnp.bool_):
        raise TypeError(
            f"`stop` must return one boolean per member, but {getattr(stop, '__name__', stop)!r} returned "
            f"{jax.typeof(jnp.asarray(holds))}. Combine several with `jnp.all` or `jnp.any`."
        )
    return holds


def _norm(tree: PyTree) -> Array:
    leaves = [jnp.abs(x) for x in jax.tree.leaves(tree)]
    dtype = max((x.dtype for x in leaves), key=lambda dtype: jnp.finfo(dtype).bits)
    total = jnp.zeros((), dtype)
    for x in leaves:
        total = total + jnp.sum(x * x).astype(dtype)
    return jnp.sqrt(total / sum(x.size for x in leaves))
