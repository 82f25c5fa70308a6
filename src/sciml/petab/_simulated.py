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
from ..solvers import Rodas5P
from ..solvers._solve import solve
from ..solvers.adjoints._direct import Direct
from ..solvers.linear._choose import LinearChoice
from ._parameters_of import Conditions
from ._tables import Tables

REST = 1e8
"""The time after which a model counts as at rest, if nothing moves any more by then."""

_TOLERANCES = {64: (1e-7, 1e-10), 32: (1e-5, 1e-8)}
"""The default relative and absolute tolerances by the number of bits. Likelihoods add up the errors of all
measurements, so they are below the defaults of `solve`."""


class Options(NamedTuple):
    """How a model is solved.

    Attributes:
        solver: The method.
        rtol: Relative tolerance; by default it follows from the dtype, as `atol`.
        atol: Absolute tolerance.
        max_steps: The most steps.
        adjoint: How derivatives are computed.
    """

    solver: Any = None
    rtol: float | None = None
    atol: float | None = None
    max_steps: int = 10_000
    adjoint: Any = None

    def for_tangents(self) -> "Options":
        """Returns the same for a solve that is differentiated in forward mode."""
        return self._replace(adjoint=Direct())

    def tolerances(self, dtype: Any) -> tuple[Any, Any]:
        """Returns relative and absolute tolerance for a dtype."""
        defaults = _TOLERANCES[min(64, max(32, jnp.finfo(dtype).bits))]
        rtol, atol = (default if x is None else x for x, default in zip((self.rtol, self.atol), defaults))
        return rtol, atol

    def solve(self, model: SBMLModel, y0: Array, t1: Any, saveat: Array) -> Array:
        """Returns states at given times."""
        events = model.events() or None
        solver = self.solver
        if solver is None:  # systems written out are long to compile, see `read_petab`
            solver = dataclasses.replace(Rodas5P().stepper(y0), linear=LinearChoice(by_library=True))
        rtol, atol = self.tolerances(y0.dtype)
        sol = solve(
            model, y0, t0=0.0, t1=t1, solver=solver, rtol=rtol, atol=atol, saveat=saveat, events=events,
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


class _Phase(NamedTuple):
    """A solve of all simulations, side by side; of all phases there is one row each.

    Attributes:
        conditions: The condition of each simulation.
        kept: Of shape `(simulations, n)`: which states go on from where the phase before has ended.
        times: Of shape `(simulations, times)`.
        ends: For each simulation the end time.
        rests: Whether a model that still moves at the end is NaN.
    """

    conditions: np.ndarray
    kept: np.ndarray
    times: np.ndarray
    ends: np.ndarray
    rests: bool


def _phases(conditions: Conditions, found: Simulations) -> list[_Phase]:
    """Returns what is solved after one another: to rest in conditions before, to the measured times, and to rest."""
    count, width = found.times.shape
    kept = conditions.kept[found.condition] & (found.before >= 0)[:, None]
    times = found.times if width else np.full((count, 1), REST)
    to_rest = dict(times=np.full(times.shape, REST), ends=np.full(count, REST), rests=True)
    phases = []
    if np.any(found.before >= 0):
        before = np.where(found.before >= 0, found.before, found.before.max())
        phases.append(_Phase(before, np.zeros_like(kept), **to_rest))
    if width:
        phases.append(_Phase(found.condition, kept, times, found.ends, False))
    if found.rests:
        phases.append(_Phase(found.condition, np.ones_like(kept) if width else kept, **to_rest))
    return phases


def simulate_all(
    conditions: Conditions, simulations: Simulations, constants: Float[Array, "conditions p"], options: Options
) -> Float[Array, "measurements n"]:
    """Returns the state of the model at each measurement."""
    found, model, dtype = simulations, conditions.model, constants.dtype

    def start(row: Array) -> Array:
        return _with(model, row).y0.astype(dtype)

    def one(row: Array, y: Array, kept: Array, times: Array, end: Array, rests: Array) -> Array:
        member = _with(model, row)
        ys = options.solve(member, jnp.where(kept, y, start(row)), end, times)
        still = jnp.logical_not(rests) | _at_rest(*jax.lax.stop_gradient((member, ys[-1])), options)
        return jnp.where(still, ys, jnp.nan)

    def solved(y: Array, phase: _Phase) -> tuple[Array, Array]:
        rests = jnp.broadcast_to(phase.rests, phase.ends.shape)
        times, ends = phase.times.astype(dtype), phase.ends.astype(dtype)
        ys = _over(one)(constants[phase.conditions], y, phase.kept, times, ends, rests)
        return ys[:, -1], ys

    phases = [jax.tree.map(jnp.asarray, phase) for phase in _phases(conditions, found)]
    y0 = _over(start)(constants[found.condition])
    if len(phases) == 1:
        of_phases = solved(y0, phases[0])[1][None]
    else:  # a loop over them, so that the solve is compiled once
        _, of_phases = jax.lax.scan(solved, y0, jax.tree.map(lambda *x: jnp.stack(x), *phases))
    # measured at times, or at rest, which the last phase is then
    measured = len(phases) - 1 - found.rests
    at_rest = found.columns == found.times.shape[1]
    phase = np.where(at_rest, len(phases) - 1, measured)
    return of_phases[phase, found.rows, np.where(at_rest, -1, found.columns)]


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


def _at_rest(model: SBMLModel, end: Array, options: Options) -> Array:
    """Whether a model has come to rest at the end."""
    slope = jnp.abs(model(REST, end, None))
    size = jnp.abs(end) + options.tolerances(end.dtype)[1]
    return ~jnp.any(slope > 1e-4 * jnp.maximum(size, 1e-3 * jnp.max(size)))
