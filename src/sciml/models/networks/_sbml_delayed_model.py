"""Models in SBML that depend on their own past."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._delayed import AbstractDelayed
from ..._parameters import Parameter
from ..._types import Args, RealScalarLike
from ._program import scalars, taken_from
from ._sbml_equations import past_of, sbml_equations
from ._sbml_model import SBMLModel


class DelayedSBMLModel(AbstractDelayed):
    r"""A model in SBML with the function `delay`; what `read_sbml` returns for one.

    $$\dot y = f(t, y(t), y(t - \tau_1), \ldots, y(t - \tau_k), p)$$

    `sciml.solve(model, model.y0, ...)` solves it with an explicit method. Lags are constant, and may be parameters.
    Before the start, states have their initial values, or the values of their initial assignments at that time.

    Attributes:
        model: The states, parameters, initial state and events of the model.
        kept: The number of past steps that are stored; see `sciml.Delayed`.
    """

    model: SBMLModel
    kept: int = eqx.field(static=True, default=256)

    @property
    def delays(self) -> Float[Array, " delays"]:
        """The different lags."""
        past = past_of(self.model._static)
        return taken_from(past.lags(self._constants(jnp.result_type(float))), past.lag_slots)

    def rate(self, t: RealScalarLike, y: Any, delayed: tuple, args: Args) -> Any:
        """Returns the time derivative of the state; `args` is not used."""
        del args
        return sbml_equations(self.model._static).sums(self.values(t, y, jnp.stack(delayed)))

    def before(self, t: RealScalarLike, args: Args) -> Any:
        """Returns the state at a time before the start; `args` is not used."""
        del args
        past, dtype = past_of(self.model._static), jnp.result_type(float)
        values = past.before(jnp.concatenate([jnp.asarray(t, dtype)[None], self._constants(dtype)]))
        return taken_from(values, past.before_slots)

    def values(self, t: RealScalarLike, y: Float[Array, " n"], past: Float[Array, "delays n"]) -> Float[Array, " m"]:
        """Returns all values of the model, in the order of `place`.

        Args:
            t: The time.
            y: The state.
            past: The states at `t - delays`.
        """
        found, equations = past_of(self.model._static), sbml_equations(self.model._static)
        inputs = [y, scalars([t, *self.parameters.values()], y.dtype), past[found.which, found.states]]
        return equations.program(jnp.concatenate(inputs))

    def times_for(self, ts: Float[Array, " times"]) -> Float[Array, " more"]:
        """Returns the times that `saveat` needs for `values_at` of some times: these, and those a lag earlier."""
        ts = jnp.asarray(ts, jnp.result_type(float))
        return jnp.sort(jnp.concatenate([ts, jnp.maximum(self._then(ts), 0.0).reshape(-1)]))

    def values_at(self, ts: Float[Array, " times"], sol: Any) -> Float[Array, "times m"]:
        """Returns all values of the model at times, in the order of `place`.

        Args:
            ts: The times.
            sol: A solution from the time 0 with `saveat=model.times_for(ts)`.
        """
        ts = jnp.asarray(ts, jnp.result_type(float))
        then = self._then(ts)
        history = jax.vmap(jax.vmap(lambda t: self.before(t, None)))(then)
        later = sol.ys[jnp.searchsorted(sol.ts, jnp.maximum(then, 0.0))]
        past = jnp.where((then < 0)[..., None], history, later)
        return jax.vmap(self.values)(ts, sol.ys[jnp.searchsorted(sol.ts, ts)], past)

    def _then(self, ts: Array) -> Array:
        return ts[:, None] - self.delays.astype(ts.dtype)[None]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of the model."""
        return self.model.parameters

    @property
    def states(self) -> tuple[str, ...]:
        """The identifiers of the state's components."""
        return self.model.states

    @property
    def y0(self) -> Float[Array, " n"]:
        """The state at the start."""
        return self.model.y0

    def place(self, name: str) -> int:
        """Returns the place of anything among `values`, by its identifier."""
        return self.model.place(name)

    def events(self) -> list:
        """Returns the events of the model, for `solve(..., events=)`."""
        return self.model.events()

    def _constants(self, dtype: Any) -> Array:
        return scalars(list(self.parameters.values()), dtype)
