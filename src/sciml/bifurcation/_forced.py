"""`Forced`: a model that is driven periodically, as one that does not depend on time."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import no_instance
from .._types import Args, RealScalarLike, Y


class Forced(eqx.Module):
    r"""A periodically forced (non-autonomous) model, whose responses are limit cycles.

    The state is a pair `(y, clock)` of the model's state and of a point on the unit circle, which goes around once in
    the period $T$ of the force:

    $$\dot y = f(t, y), \quad \dot c = \omega (1 - c^2 - s^2) \, c - \omega s, \quad
    \dot s = \omega (1 - c^2 - s^2) \, s + \omega c, \qquad t = \frac{T}{2 \pi} \operatorname{arg}(c + i s), \quad
    \omega = \frac{2 \pi}{T} .$$

    Every function of this package so follows forced oscillations: `limit_cycle` finds one, whose period is the one of
    the force or a multiple of it; `continuation` follows it as the amplitude or the frequency changes. The clock adds
    the multipliers 1 and about 3e-6 (or a power of it).

    Attributes:
        model: `f(t, y, args) -> dy/dt`, periodic in time with the period.
        period: The period of the force, or a function `period(args)` of the third argument of the model.

    Raises:
        TypeError: If `model` is not a function.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import bifurcation

        driven = bifurcation.Forced(
            lambda t, y, omega: jnp.stack([y[1], jnp.cos(omega * t) - y[0] - 0.5 * y[1]]),
            period=lambda omega: 2 * jnp.pi / omega,
        )
        y0 = jnp.array([0.8, 0.0]), jnp.array([1.0, 0.0])  # the clock at time zero
        cycle = bifurcation.limit_cycle(driven, y0, period=3.1, args=2.0)
        amplitude = jnp.max(cycle.ys[0][:, 0])
        assert abs(amplitude - 1 / jnp.sqrt((1 - 2.0**2) ** 2 + (0.5 * 2.0) ** 2)) < 1e-2
        ```
    """

    model: Callable[[RealScalarLike, Y, Args], Y]
    period: Any

    def __check_init__(self):
        if not callable(self.model):
            raise TypeError(f"`model` must be a function `model(t, y, args)`, but {no_instance(self.model)}.")

    def __call__(self, t: RealScalarLike, pair: tuple[Y, Float[Array, "2"]], args: Args) -> tuple[Y, Float[Array, "2"]]:
        """Returns the rates of the state and of the clock, whatever the time is."""
        del t
        y, clock = pair
        period = jnp.asarray(self.period(args) if callable(self.period) else self.period, clock.dtype)
        turn = 2 * jnp.pi / period
        c, s = clock
        inwards = 1 - c**2 - s**2
        rate = turn * jnp.stack([inwards * c - s, inwards * s + c])
        return self.model(jnp.mod(jnp.arctan2(s, c) / turn, period), y, args), rate
