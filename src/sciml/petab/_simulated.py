"""Simulations of all conditions of a problem, side by side."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models.networks._sbml_model import SBMLModel
from ..solvers import Rodas5P, solve
from ..solvers.adjoints import Direct
from ..solvers.linear._choose import LinearChoice
from ._parameters_of import Conditions
from ._tables import Tables

REST = 1e8
"""The time after which a model counts as at rest, if nothing moves any more by then."""


class Options(NamedTuple):
    """How a model is solved.

    Attributes:
        solver: The method.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        max_steps: The most steps.
        adjoint: How derivatives are computed.
    """

    solver: Any = None
    rtol: float = 1e-7
    atol: float = 1e-10
    max_steps: int = 10_000
    adjoint: Any = None

    def for_tangents(self) -> "Options":
        """Returns the same for a solve that is differentiated in forward mode."""
        return self._replace(adjoint=Direct())

    def solve(self, model: SBMLModel, y0: Array, t1: Any, saveat: Array | None = None) -> Array:
        """Returns states at given times, or at the end."""
        events = model.events() or None
        solver = self.solver
        if solver is None:  # systems written out are long to compile, see `read_petab`
            solver = dataclasses.replace(Rodas5P().stepper(y0), linear=LinearChoice(by_library=True))
        sol = solve(
            model, y0, t0=0.0, t1=t1, solver=solver, rtol=self.rtol, atol=self.atol, saveat=saveat, events=events,
            adjoint=self.adjoint, max_steps=self.max_steps, throw=False,
        )  # fmt: skip
        return sol.ys


class Simulations(NamedTuple):
    """What is simulated for a problem's measurements.

    Attributes:
        before: For each simulation the condition before it, or -1.
        condition: For each the condition.
        times: For each the times at which it is measured, of shape `(simulations, times)`, the last one repeated.
        ends: For each the end time.
        rests: Whether a measurement is of the model at rest.
        rows: For each measurement the simulation.
        columns: For each measurement the place of its time; behind the last where the model has come to rest.
    """

    before: np.ndarray
    condition: np.ndarray
    times: np.ndarray
    ends: np.ndarray
    rests: bool
    rows: np.ndarray
    columns: np.ndarray


def simulations_of(tables: Tables, numbers: dict[str, int]) -> Simulations:
    """Returns which simulations a problem's measurements need."""
    pairs: dict[tuple[str, str], list[float]] = {}
    for m in tables.measurements:
        for name in (m.condition, m.before):
            if name and name not in numbers:
                raise ValueError(f"a measurement of `{m.observable}` is in `{name}`, which is no condition.")
        pairs.setdefault((m.before, m.condition), []).append(m.time)
    finite = [sorted({t for t in times if np.isfinite(t)}) for times in pairs.values()]
    if any(t < 0 for times in finite for t in times):
        raise ValueError("a measurement has a negative time.")
    ends = np.array([max([*times, 0.0]) or 1.0 for times in finite])
    width = max(map(len, finite))
    padded = [times + [end] * (width - len(times)) for times, end in zip(finite, ends)]
    order = list(pairs)
    rows = np.array([order.index((m.before, m.condition)) for m in tables.measurements])
    columns = np.array(
        [finite[r].index(m.time) if np.isfinite(m.time) else width for r, m in zip(rows, tables.measurements)]
    )
    return Simulations(
        np.array([numbers[b] if b else -1 for b, _ in order]),
        np.array([numbers[c] for _, c in order]),
        np.array(padded).reshape(len(order), width),
        ends,
        bool((columns == width).any()),
        rows,
        columns,
    )


def simulate_all(
    conditions: Conditions, simulations: Simulations, constants: Float[Array, "conditions p"], options: Options
) -> Float[Array, "measurements n"]:
    """Returns the state of the model at each measurement."""
    found, model = simulations, conditions.model
    dtype = constants.dtype

    def start(row: Array) -> Array:
        return _with(model, row).y0.astype(dtype)

    def rest(row: Array, y: Array) -> Array:
        return _at_rest(_with(model, row), y, options)

    own = constants[found.condition]
    y0 = _over(start)(own)
    if np.any(found.before >= 0):
        first, which = np.unique(np.where(found.before >= 0, found.before, found.before.max()), return_inverse=True)
        before = constants[first]
        settled = _over(rest)(before, _over(start)(before))[which]
        kept = conditions.kept[found.condition] & (found.before >= 0)[:, None]
        y0 = jnp.where(kept, settled, y0)

    def one(row: Array, y: Array, times: Array, end: Array) -> Array:
        return options.solve(_with(model, row), y, end, times)

    if found.times.shape[1]:
        ys = _over(one)(own, y0, jnp.asarray(found.times, dtype), jnp.asarray(found.ends, dtype))
    else:
        ys = y0[:, None][:, :0]
    if found.rests:
        last = ys[:, -1] if found.times.shape[1] else y0
        ys = jnp.concatenate([ys, _over(rest)(own, last)[:, None]], axis=1)
    return ys[found.rows, found.columns]


def _over(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function over the first axis of its arguments, as lanes where it is longer than one."""

    def every(*args: Array) -> Array:
        if args[0].shape[0] == 1:
            return function(*(x[0] for x in args))[None]
        return jax.vmap(function)(*args)

    return every


def _with(model: SBMLModel, constants: Float[Array, " p"]) -> SBMLModel:
    """The model with its constants from a vector in the order of their names, which it takes for one parameter."""
    return eqx.tree_at(lambda m: m.parameters, model, dict(constants=constants))


def _at_rest(model: SBMLModel, y: Array, options: Options) -> Array:
    """The state in which a model comes to rest; NaN where it does not."""
    end = options.solve(model, y, REST)[-1]
    slope = jax.lax.stop_gradient(jnp.abs(model(REST, end, None)))
    size = jax.lax.stop_gradient(jnp.abs(end)) + options.atol
    moves = jnp.any(slope > 1e-4 * jnp.maximum(size, 1e-3 * jnp.max(size)))
    return jnp.where(moves, jnp.nan, end)
