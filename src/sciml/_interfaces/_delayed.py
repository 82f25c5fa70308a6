"""Equations whose rate depends on the state some time ago."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_call, concrete, no_instance
from .._types import Args, RealScalarLike, Y


class AbstractDelayed(eqx.Module):
    r"""A delay equation whose parameters are its leaves.

    $$\dot y(t) = f(t, y(t), y(t - \tau_1), \ldots, y(t - \tau_k))$$

    A custom model defines its delays, its rate and the state before the start; `Delayed` creates one from functions.
    `sciml.solve(model, y0)` solves it.

    Attributes:
        delays: $\tau$, positive numbers, a scalar or an array of shape `(delays,)`, or a method `delays(t, y, args)`
            that returns them.
        kept: How many of the last steps are kept; see `Delayed`.
        neutral: Whether the rate also depends on past rates; see `Delayed`.

    Example:
        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import sciml

        class Shower(sciml.AbstractDelayed):
            gain: jax.Array = eqx.field(converter=sciml.parameter)
            delays: jax.Array = eqx.field(default=1.0, converter=sciml.parameter)
            kept = 64

            def rate(self, t, y, delayed, args):
                return -self.gain * delayed[0]

            def before(self, t, args):
                return jnp.ones(())

        end = lambda gain: sciml.solve(Shower(gain), 1.0, t0=0.0, t1=20.0, dt=0.125).ys[-1]
        assert abs(end(1.0)) < 0.05 < 1.0 < abs(end(2.0))  # beyond pi / 2 it never settles
        ```
    """

    delays: eqx.AbstractVar[Any]
    kept: eqx.AbstractVar[int]
    neutral = False

    @property
    def history_jumps(self) -> Array:
        """The times before the start at which the history jumps, of shape `(jumps,)`; by default none."""
        found = getattr(self, "jumps", None)
        return jnp.zeros((0,)) if found is None else found

    @abc.abstractmethod
    def rate(self, t: RealScalarLike, y: Y, delayed: tuple[Y, ...], args: Args) -> PyTree:
        """Returns $f$, with the structure, shapes and dtypes of `y`.

        Args:
            t: The time.
            y: The state.
            delayed: One past state for each delay; of a neutral equation a pair, these and the past rates.
            args: The arguments of the solve.
        """

    @abc.abstractmethod
    def before(self, t: RealScalarLike, args: Args) -> PyTree:
        """Returns the state at a time before the start."""


class Delayed(AbstractDelayed):
    r"""A delay equation, $\dot y(t) = f(t, y(t), y(t - \tau_1), \ldots, y(t - \tau_k))$.

    `sciml.solve` supports it with explicit Runge-Kutta methods, and with implicit methods for stiff equations such as
    `sciml.solvers.Rodas5P()`. Past states are interpolated between the steps, to fourth order. At breaking points
    derivatives of the solution jump: $t_0$, jumps of the history, and each time at which a past state passes an earlier
    breaking point. Adaptive steps end there; fixed steps should divide constant delays.

    - **Constant delays**: no step is longer than the shortest one.
    - **Delays that depend on the time or the state**: a function `delays(t, y, args)`. They require error control. A
      delay may vanish at isolated times: a step that is longer than a delay reads itself, by iterations.
    - **Neutral equations**, with `neutral=True`: $f$ also depends on past rates $\dot y(t - \tau)$.

    Attributes:
        field: $f$, a function `field(t, y, delayed, args)`, where `delayed` is a tuple of past states, one for each
            delay; for a single scalar delay it is the past state itself. With `neutral=True` it is
            `field(t, y, delayed, rates, args)`, and `rates` are past rates.
        delays: $\tau$, positive numbers, a scalar or an array of shape `(delays,)`, or a function `delays(t, y, args)`
            that returns them. They may be traced and differentiated. A negative delay ends the solve with
            `Status.negative_delay`; a known one at the start raises a `ValueError`.
        history: The state before the start, a function `history(t, args)`, or a constant state.
        kept: The number of stored steps. With fixed steps and known `dt` and delays the required number is stored. A
            delay that reaches farther back ends the solve with `Status.history_too_short`.
        jumps: The times before the start at which the history, or a derivative of it, jumps; a number or an array of
            shape `(jumps,)`. Steps, also fixed ones, end where a jump comes back, after each sum of delays. Jumps may
            be traced and differentiated. A jump from the history to `y0` at the start is detected automatically.
        neutral: Whether `field` also gets past rates.

    Raises:
        TypeError: If the field is not a function, or the delays are not numbers.
        ValueError: If the delays are not positive, or `kept` is not a valid number.

    Source:
        A. Bellen, M. Zennaro, Numerical Methods for Delay Differential Equations, Oxford (2003).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.Delayed(lambda t, y, past, args: -past, 1.0, history=1.0)
        sol = sciml.solve(model, 1.0, t0=0.0, t1=3.0, dt=0.125, saveat=jnp.array([1.0, 2.0, 3.0]))
        assert jnp.allclose(sol.ys, jnp.array([0.0, -1 / 2, -1 / 6]), atol=1e-5)

        # a delay that depends on the state: y' = y(y(t) - sqrt(2) + 1) / (2 sqrt(t)), whose solution is sqrt(t)
        field = lambda t, y, past, args: past / (2 * jnp.sqrt(t))
        model = sciml.Delayed(field, lambda t, y, args: t - y + jnp.sqrt(2.0) - 1, history=1.0)
        sol = sciml.solve(model, 1.0, t0=1.0, t1=2.0, rtol=1e-5, atol=1e-6)
        assert jnp.allclose(sol.ys[-1], jnp.sqrt(2.0), atol=1e-4)
        ```
    """

    field: Callable[..., Y]
    delays: Any
    history: Any
    kept: int = eqx.field(static=True)
    jumps: Array | None = None
    neutral: bool = eqx.field(static=True, default=False)

    def __init__(
        self,
        field: Any,
        delays: Any,
        history: Any,
        kept: int = 64,
        jumps: Any = None,
        neutral: bool = False,
    ):
        self.field, self.history, self.kept = field, history, kept
        self.delays = delays if callable(delays) else _as_delays(delays)
        self.jumps = None if jumps is None else jnp.atleast_1d(jnp.asarray(jumps, float))
        self.neutral = neutral

    @property
    def _call(self) -> str:
        return "field(t, y, delayed, rates, args)" if self.neutral else "field(t, y, delayed, args)"

    def __check_init__(self):
        if not callable(self.field):
            raise TypeError(f"`field` must be a function `{self._call}`, but {no_instance(self.field)}.")
        check_call(self.field, self._call, "`field`")
        if callable(self.history):
            check_call(self.history, "history(t, args)", "`history`")
        if callable(self.delays):
            check_call(self.delays, "delays(t, y, args)", "`delays`")
        elif self.delays.ndim > 1 or self.delays.size == 0:
            raise ValueError(f"`delays` must be a number or of shape `(delays,)`, but have shape {self.delays.shape}.")
        elif concrete(self.delays) and not np.all((np.asarray(self.delays) > 0) & np.isfinite(np.asarray(self.delays))):
            raise ValueError(f"`delays` must be positive, but are {self.delays}.")
        if self.jumps is not None and (self.jumps.ndim > 1 or self.jumps.size == 0):
            raise ValueError(f"`jumps` must be a number or of shape `(jumps,)`, but have shape {self.jumps.shape}.")
        if isinstance(self.kept, bool) or not isinstance(self.kept, int) or self.kept < 4:
            raise ValueError(f"`kept` must be an integer of at least 4, but is {self.kept!r}.")

    def rate(self, t: RealScalarLike, y: Y, delayed: tuple[Y, ...], args: Args) -> PyTree:
        """Returns $f$ with the past states, one for each delay, and of a neutral equation also with the past rates."""
        found = jax.eval_shape(self.delays, t, y, args) if callable(self.delays) else self.delays
        past: tuple = delayed if self.neutral else (delayed,)
        return self.field(t, y, *(each[0] if jnp.ndim(found) == 0 else each for each in past), args)

    def before(self, t: RealScalarLike, args: Args) -> PyTree:
        """Returns the state at a time before the start."""
        return self.history(t, args) if callable(self.history) else self.history


def _as_delays(delays: Any) -> Array:
    """Returns delays as an array.

    Raises:
        TypeError: If they are not numbers.
    """
    if any(callable(x) for x in jax.tree.leaves(delays)):
        raise TypeError(
            f"`delays` must be a number, an array of shape `(delays,)` or one function `delays(t, y, args)` that "
            f"returns all delays, but {no_instance(delays)}."
        )
    try:
        return jnp.asarray(delays, float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`delays` must be a number or an array of shape `(delays,)`, but is {delays!r:.60}."
        ) from error
