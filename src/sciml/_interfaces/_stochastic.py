"""Models with noise: a drift and a diffusion."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from .._checks import check_call, no_instance
from .._types import Args, RealScalarLike, Y
from ._delayed import AbstractDelayed
from ._field_noise import AbstractFieldNoise
from ._levy_process import AbstractLevy

NOISES = ("diagonal", "scalar", "additive", "general")
INTERPRETATIONS = ("ito", "stratonovich")


class AbstractStochastic(eqx.Module):
    r"""A stochastic differential equation, $dy = f(t, y) \, dt + g(t, y) \, dW$.

    A custom model has a drift, a diffusion, and a `noise` that sets the shape of its diffusion; `Stochastic` creates
    one from two functions. `sciml.solve(model, y0, key=...)` solves it.

    Attributes:
        noise: The kind of noise, which sets the shape that `diffusion` returns; see `Stochastic`.
        interpretation: "ito", or "stratonovich" if the model declares it.
        driver: None, or a process in place of Brownian motion if the model declares it.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        class Noisy(sciml.AbstractStochastic):
            rate: jnp.ndarray
            noise = "additive"

            def drift(self, t, y, args):
                return -self.rate * y

            def diffusion(self, t, y, args):
                return 0.1 * jnp.ones_like(y)

        model = Noisy(jnp.array(2.0))
        sol = sciml.solve(model, jnp.ones(3), t0=0.0, t1=1.0, dt=0.01, key=jax.random.key(0))
        assert sol.ys.shape == (1, 3)
        ```
    """

    noise: eqx.AbstractVar[Any]

    @property
    def interpretation(self) -> str:
        """In what sense the integral over the noise is meant."""
        return "ito"

    @property
    def driver(self) -> Any:
        """The process in place of Brownian motion, such as `sciml.AlphaStable`; None for Brownian motion."""
        return None

    @property
    def without_noise(self) -> Callable[[RealScalarLike, Y, Args], Y]:
        """The equation without its noise, a model: methods for stiff equations read its structure."""
        return _Drift(self)

    @abc.abstractmethod
    def drift(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns $f(t, y)$, with the structure, shapes and dtypes of `y`."""

    @abc.abstractmethod
    def diffusion(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        """Returns $g(t, y)$, with the structure of `y` and the shapes required by `noise`."""


class Stochastic(AbstractStochastic):
    r"""A stochastic differential equation from two functions, $dy = f(t, y) \, dt + g(t, y) \, dW$.

    With a `Delayed` in place of the drift it is a delay equation with noise, and the diffusion also depends on past
    states: `diffusion(t, y, past, args)`. `sciml.solve` supports it with fixed steps `dt` that divide the delays.

    `noise` sets the kind of $W$:

    - "diagonal": $g$ has the shape of $y$, and each element has a separate Brownian motion.
    - "scalar": $g$ has the shape of $y$, and there is one Brownian motion for all of it.
    - "general": $g$ has one more axis, the last, over any number of Brownian motions: $dy_i = \ldots + g_{ij} dW_j$.
    - "additive": $g$ does not depend on $y$, and has the shape of $y$ or one more axis. Methods for additive noise are
      more accurate.
    - A `sciml.spatial.WhiteNoise`, a `sciml.spatial.ColouredNoise` or another `sciml.AbstractFieldNoise`: $g$ has the
      shape of $y$ or is a number, and there is one Brownian motion for each point of the field.

    Attributes:
        noise: One of these.
        without_noise: The drift, as given. For an `AbstractSplit` or an `AbstractSemilinear` there are methods for
            stiff noise: `sciml.solvers.SemiImplicitEuler` and `sciml.solvers.StochasticETD1`.
        driver: None for Brownian motion, or a process with jumps instead of it, such as `sciml.AlphaStable`.
        interpretation: The interpretation of $g \, dW$, "ito" or "stratonovich"; both agree for additive noise. A
            method that uses the other interpretation gets the corrected drift,
            $f \mp \tfrac12 \sum_j (\partial_y g_j) g_j$.

    Raises:
        TypeError: If drift or diffusion is not a function, or the driver is not a process.
        ValueError: If `noise` or `interpretation` is not a known value, or the driver does not support it.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        growth = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: 0.2 * y)
        keys = jax.random.split(jax.random.key(0), 1000)
        end = jax.vmap(lambda key: sciml.solve(growth, 1.0, t0=0.0, t1=1.0, dt=0.05, key=key).ys[-1])(keys)
        assert abs(end.mean() - jnp.exp(0.1)) < 0.03
        ```
    """

    _drift: Any
    _diffusion: Callable
    _word: Any = eqx.field(static=True)
    _field_noise: AbstractFieldNoise | None
    _interpretation: str = eqx.field(static=True)
    _driver: Any

    def __init__(
        self,
        drift: Any,
        diffusion: Any,
        *,
        noise: Any = "diagonal",
        interpretation: str = "ito",
        driver: Any = None,
    ):
        delayed = isinstance(drift, AbstractDelayed)
        calls = dict(drift="drift(t, y, args)", diffusion=f"diffusion(t, y, {'past, ' if delayed else ''}args)")
        for name, value in (("drift", drift), ("diffusion", diffusion))[delayed:]:
            if not callable(value):
                raise TypeError(f"`{name}` must be a function `{calls[name]}`, but {no_instance(value)}.")
            check_call(value, calls[name], f"`{name}`")
        of_field = isinstance(noise, AbstractFieldNoise)
        self._drift, self._diffusion, self._interpretation, self._driver = drift, diffusion, interpretation, driver
        self._word, self._field_noise = (None, noise) if of_field else (noise, None)

    def __check_init__(self):
        check_noise(self)

    @property
    def noise(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kind of the Brownian motions."""
        return self._word if self._field_noise is None else self._field_noise

    @property
    def without_noise(self) -> Any:
        """The drift."""
        return self._drift

    @property
    def interpretation(self) -> str:
        """In what sense the integral over the noise is meant."""
        return self._interpretation

    @property
    def driver(self) -> Any:
        """The process in place of Brownian motion."""
        return self._driver

    def drift(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns $f(t, y)$."""
        return self._without_delays(self._drift)(t, y, args)

    def diffusion(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        """Returns $g(t, y)$."""
        return self._without_delays(self._diffusion)(t, y, args)

    def _without_delays(self, function: Any) -> Callable:
        if isinstance(self._drift, AbstractDelayed):
            raise TypeError(
                "A `sciml.Stochastic` with a `sciml.Delayed` drift depends on the past. Only `sciml.solve` "
                "supports it, with fixed steps `dt` and an explicit method."
            )
        return function


def delays_of(model: Any) -> AbstractDelayed | None:
    """Returns the drift of an equation with noise if it is a delay equation, or None."""
    drift = model.without_noise if isinstance(model, Stochastic) else None
    return drift if isinstance(drift, AbstractDelayed) else None


def at_past(model: Any, past: tuple[Y, ...]) -> AbstractStochastic:
    """Returns an equation with noise for given past states, one for each delay; the same equation without delays."""
    delayed = delays_of(model)
    if delayed is None:
        return model
    read = past[0] if jnp.ndim(delayed.delays) == 0 else past
    return Stochastic(
        lambda t, y, args: delayed.rate(t, y, past, args),
        lambda t, y, args: model._diffusion(t, y, read, args),
        noise=model.noise,
        interpretation=model.interpretation,
        driver=model.driver,
    )


class _Drift(eqx.Module):
    """The drift of a model."""

    model: AbstractStochastic

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        return self.model.drift(t, y, args)


def check_noise(model: AbstractStochastic) -> None:
    """Checks the words of a model.

    Raises:
        ValueError: If one of them is not a known value.
    """
    if not isinstance(model.noise, AbstractFieldNoise) and model.noise not in NOISES:
        raise ValueError(
            f"`noise` must be one of {', '.join(map(repr, NOISES))}, or the noise of a field such as "
            f"`sciml.spatial.WhiteNoise(grid)`, but is {model.noise!r}."
        )
    if model.interpretation not in INTERPRETATIONS:
        words = ", ".join(map(repr, INTERPRETATIONS))
        raise ValueError(f"`interpretation` must be one of {words}, but is {model.interpretation!r}.")
    if model.driver is None:
        return
    if not isinstance(model.driver, AbstractLevy):
        raise TypeError(
            f"`driver` must be a process such as `sciml.AlphaStable(1.5)`, or None for Brownian motion, but is "
            f"{model.driver!r}."
        )
    if isinstance(model.noise, AbstractFieldNoise) or model.interpretation != "ito":
        raise ValueError(
            '`driver` requires `interpretation="ito"` and one of the words for `noise`. Other interpretations and '
            "noise of fields are defined for Brownian motion only."
        )
