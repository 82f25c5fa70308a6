"""`read_petab`: problems of parameter estimation that others wrote."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_count, check_key
from .._jax._differentiable import as_one_operation
from .._types import Key, RealScalarLike
from ..inference import Custom, Improper, LogDensity, Normal, Uniform, log_density
from ..inference._profile import ProfileLikelihood
from ..inference.distributions._abstract import AbstractDistribution
from ..models.networks._read_sbml import read_sbml
from ..models.networks._sbml_model import SBMLModel
from ..solvers import Rodas5P
from ..solvers._solve import solve
from ..solvers.adjoints._direct import Direct
from ..solvers.linear._choose import LinearChoice
from ..training import AbstractTransform, Bounded
from ..training._transforms import Identity
from ._expansion import Expansion, expansion
from ._fit import PEtabFit, fit_problem
from ._hybrid import evaluated_before, start_ranges, with_networks, with_values
from ._measured import Noise, Predicted, log_probability, measured, noise_of, predicted, residual
from ._parameters_of import Conditions, Pool, conditions_of
from ._priors import log_prior, log_prior_of, log_slope, on_scale_of
from ._profile import profile_problem
from ._read import read_tables
from ._tables import EstimatedParameter, Tables

# Simulations of all conditions of a problem, side by side.


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

    def solve(self, model: SBMLModel, y0: Array, t0: Any, t1: Any, saveat: Array) -> Array:
        """Returns states at given times."""
        events = model.events() or None
        solver = self.solver
        if solver is None:  # systems written out are long to compile, see `read_petab`
            solver = dataclasses.replace(Rodas5P().stepper(y0), linear=LinearChoice(by_library=True))
        rtol, atol = self.tolerances(y0.dtype)
        sol = solve(
            model, y0, t0=t0, t1=t1, solver=solver, rtol=rtol, atol=atol, saveat=saveat, events=events,
            adjoint=self.adjoint, max_steps=self.max_steps, throw=False,
        )  # fmt: skip
        return sol.ys


class Simulations(NamedTuple):
    """The simulations for a problem's measurements.

    Attributes:
        before: For each simulation the condition before it, or -1.
        condition: For each the condition.
        times: For each the times at which it is measured, of shape `(simulations, times)`, the last one repeated;
            `REST` for a measurement of the model at rest.
        starts: For each the start time.
        ends: For each the end time.
        rows: For each measurement the simulation.
        columns: For each measurement the place of its time.
    """

    before: np.ndarray
    condition: np.ndarray
    times: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


def simulations_of(tables: Tables, numbers: dict[str, int]) -> Simulations:
    """Returns which simulations a problem's measurements need."""
    pairs: dict[tuple[str, str], set[float]] = {}
    for m in tables.measurements:
        for name in (m.condition, m.before):
            if name and name not in numbers:
                raise ValueError(f"a measurement of `{m.observable}` refers to `{name}`, which is not a condition.")
        pairs.setdefault((m.before, m.condition), set()).add(min(m.time, REST))
    order = list(pairs)
    starts = np.array([tables.starts.get(condition, 0.0) for _, condition in order])
    times = [sorted(found) for found in pairs.values()]
    if any(found[0] < start for found, start in zip(times, starts)):
        raise ValueError("a measurement is before the start of its simulation, or has a negative time.")
    last = np.array([found[-1] for found in times])
    width = max(map(len, times))
    rows = np.array([order.index((m.before, m.condition)) for m in tables.measurements])
    return Simulations(
        np.array([numbers[b] if b else -1 for b, _ in order]),
        np.array([numbers[c] for _, c in order]),
        np.array([found + [found[-1]] * (width - len(found)) for found in times]),
        starts,
        np.where(last > starts, last, starts + 1.0),
        rows,
        np.array([times[row].index(min(m.time, REST)) for row, m in zip(rows, tables.measurements)]),
    )


class _Phase(NamedTuple):
    """A solve of all simulations, side by side; of all phases there is one row each.

    Attributes:
        conditions: The condition of each simulation.
        kept: Of shape `(simulations, n)`: which states go on from where the phase before has ended.
        times: Of shape `(simulations, times)`.
        starts: For each simulation the start time.
        ends: For each simulation the end time.
    """

    conditions: np.ndarray
    kept: np.ndarray
    times: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def _phases(conditions: Conditions, found: Simulations) -> list[_Phase]:
    """Returns the simulations in sequence: pre-equilibration, and up to the measured times."""
    kept = conditions.kept[found.condition] & (found.before >= 0)[:, None]
    phases = [_Phase(found.condition, kept, found.times, found.starts, found.ends)]
    if np.any(found.before >= 0):
        before = np.where(found.before >= 0, found.before, found.before.max())
        rest = np.full(len(before), REST)
        times = np.full(found.times.shape, REST)
        phases.insert(0, _Phase(before, np.zeros_like(kept), times, np.zeros_like(rest), rest))
    return phases


def simulate_all(
    conditions: Conditions, simulations: Simulations, constants: Float[Array, "conditions p"], options: Options
) -> Float[Array, "measurements n"]:
    """Returns the state of the model at each measurement."""
    found, model, dtype = simulations, conditions.model, constants.dtype
    if not model.states:
        return jnp.zeros((len(found.rows), 0), dtype)

    def initial(row: Array) -> Array:
        return _with(model, row).y0.astype(dtype)

    def one(row: Array, y: Array, kept: Array, times: Array, start: Array, end: Array) -> Array:
        member = _with(model, row)
        t0 = start if np.any(found.starts) else 0.0  # a number that is known is a shorter program
        ys = options.solve(member, jnp.where(kept, y, initial(row)), t0, end, times)
        still = _at_rest(*jax.lax.stop_gradient((member, ys[-1])), options)
        return jnp.where(still | (times < REST)[:, None], ys, jnp.nan)

    def solved(y: Array, phase: _Phase) -> tuple[Array, Array]:
        times, starts, ends = (x.astype(dtype) for x in (phase.times, phase.starts, phase.ends))
        ys = _over(one)(constants[phase.conditions], y, phase.kept, times, starts, ends)
        return ys[:, -1], ys

    phases = [jax.tree.map(jnp.asarray, phase) for phase in _phases(conditions, found)]
    y0 = _over(initial)(constants[found.condition])
    if len(phases) == 1:
        ys = solved(y0, phases[0])[1]
    else:  # a loop over them, so that the solve is compiled once
        ys = jax.lax.scan(solved, y0, jax.tree.map(lambda *x: jnp.stack(x), *phases))[1][-1]
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


def _at_rest(model: SBMLModel, end: Array, options: Options) -> Array:
    """Whether a model has come to rest at the end."""
    slope = jnp.abs(model(REST, end, None))
    size = jnp.abs(end) + options.tolerances(end.dtype)[1]
    return ~jnp.any(slope > 1e-4 * jnp.maximum(size, 1e-3 * jnp.max(size)))


class MeasuredData(AbstractDistribution):
    """The distribution of a problem's measurements."""

    prediction: Predicted
    noise: Any = eqx.field(static=True)

    def __init__(self, prediction: Predicted, noise: Noise):
        self.prediction = prediction
        self.noise = _Same(noise)

    @property
    def transform(self) -> AbstractTransform:
        """The transform of real numbers."""
        return Identity()

    def log_prob(self, x: Float[Array, " measurements"]) -> Float[Array, " measurements"]:
        """Returns the logarithm of the density of each measurement."""
        return log_probability(self.noise.value, self.prediction, x)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Float[Array, " measurements"]:
        """Returns measurements as they might have been made."""
        del shape
        noise: Noise = self.noise.value
        value, sigma = self.prediction
        normal = jax.random.normal(key, value.shape, value.dtype)
        laplace = jax.random.laplace(key, value.shape, value.dtype)
        error = sigma * jnp.where(noise.laplace, laplace, normal)
        base = jnp.where(noise.scale == 2, 10.0, jnp.e).astype(value.dtype)
        return jnp.where(noise.scale > 0, value * base**error, value + error)

    def moments(self) -> tuple[Float[Array, " measurements"], Float[Array, " measurements"]]:
        """Returns prediction and variance, of noise on a logarithm to first order."""
        noise: Noise = self.noise.value
        value, sigma = self.prediction
        variance = sigma**2 * jnp.where(noise.laplace, 2.0, 1.0).astype(value.dtype)
        slope = jnp.where(noise.scale == 2, jnp.log(10.0), 1.0).astype(value.dtype) * value
        return value, jnp.where(noise.scale > 0, variance * slope**2, variance)


class _Same:
    """Wraps arrays that are compared by identity, so that a static field may hold them."""

    def __init__(self, value: Noise):
        self.value = value

    def __hash__(self) -> int:
        return hash((id(self.value.scale), id(self.value.laplace)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value.scale is self.value.scale


class _PriorOnScale(eqx.Module):
    """The density of a parameter on its scale."""

    row: EstimatedParameter = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        found = log_prior_of(self.row, x)
        scaled = self.row.prior is not None and self.row.prior[0].startswith("parameterScale")
        return found if scaled else found + log_slope(self.row, x)


class _BetweenBounds(eqx.Module):
    """Draws between bounds."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __call__(self, key: Key, shape: tuple[int, ...]) -> Array:
        return jax.random.uniform(key, shape, minval=self.lower, maxval=self.upper)


def prior_of(row: EstimatedParameter) -> AbstractDistribution:
    """Returns the prior of a parameter on its scale, within its bounds."""
    lower, upper = (on_scale_of(row, x) for x in (row.lower, row.upper))
    if math.isinf(upper - lower):  # a weight of a network
        if row.prior is None:
            return Improper()
        if row.prior[0] == "truncated normal" and lower == -upper:
            return Normal(*row.prior[1][:2])
        raise ValueError(f"`log_density` requires bounds for `{row.name}`, unless its prior is normal.")
    if row.prior is None:
        return Uniform(lower, upper)
    kind, numbers = row.prior
    if kind == "parameterScaleUniform":
        return Uniform(max(lower, numbers[0]), min(upper, numbers[1]))
    return Custom(_PriorOnScale(row), Bounded(lower, upper), _BetweenBounds(lower, upper))


_LOG10 = math.log(10.0)


class _Compiled:
    """The parts of a problem that are not numbers: one object for each problem that was read."""

    def __init__(self, tables: Tables):
        pool = Pool([p.name for p in tables.parameters])
        self.tables = tables
        model = read_sbml(tables.sbml)
        if not isinstance(model, SBMLModel):
            raise ValueError(f"{tables.name}: the model uses an unsupported feature, delayed states.")
        self.conditions = conditions_of(tables, with_networks(model, tables), pool)
        self.before = evaluated_before(tables, self.conditions, pool)
        self.observables = measured(tables, self.conditions, pool)
        self.numbers = np.array(pool.numbers)  # with those of measurements
        self.simulations = simulations_of(tables, self.conditions.numbers)
        self.noise = noise_of(tables)
        self.times = np.array([m.time for m in tables.measurements])
        self.estimated = np.array([i for i, p in enumerate(tables.parameters) if p.estimated], np.int64)


class PEtabProblem:
    r"""A parameter estimation problem in PEtab; returned by `read_petab`.

    Its functions are of the vector $x$ of the estimated parameters, each on its own scale (`scales`), in the order of
    `names`. They can be compiled, differentiated and batched; all conditions, and the members of a `jax.vmap`, run
    side by side as lanes.

    Attributes:
        data: The measurements, in the order of their table, of shape `(measurements,)`.

    Source:
        L. Schmiester et al., PEtab - Interoperable specification of parameter estimation problems in systems biology,
        PLOS Comput. Biol. 17 (2021) e1008646.

    Example:
        ```python
        import jax
        import sciml

        def misfit_and_slope(path):
            problem = sciml.petab.read_petab(path)
            return jax.jit(jax.value_and_grad(problem.log_likelihood))(problem.nominal)
        ```
    """

    def __init__(self, data: Float[Array, " measurements"], compiled: _Compiled, options: Options):
        # no PyTree: its methods are functions that `jax.jit` knows again
        self.data, self._compiled, self._options = data, compiled, options

    def with_data(self, data: Float[Array, " measurements"]) -> "PEtabProblem":
        """Returns the problem with other measurements, as drawn ones, in the order of their table.

        Raises:
            ValueError: If they are of another number.
        """
        if jnp.shape(data) != self.data.shape:
            raise ValueError(
                f"`data` must have shape {self.data.shape}, one for each measurement, not {jnp.shape(data)}."
            )
        return PEtabProblem(jnp.asarray(data, self.data.dtype), self._compiled, self._options)

    @property
    def name(self) -> str:
        """The name of its file."""
        return self._compiled.tables.name

    @property
    def model(self) -> SBMLModel:
        """The model. Values that conditions and parameters set are among its parameters."""
        return self._compiled.conditions.model

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the estimated parameters."""
        return tuple(p.name for p in self._rows())

    @property
    def scales(self) -> tuple[str, ...]:
        """The scale of each of them: `lin`, `log` or `log10`."""
        return tuple(p.scale for p in self._rows())

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of the conditions."""
        return tuple(self._compiled.tables.conditions)

    @property
    def observables(self) -> tuple[str, ...]:
        """The name of the observable of each measurement."""
        return tuple(m.observable for m in self._compiled.tables.measurements)

    @property
    def times(self) -> Float[np.ndarray, " measurements"]:
        """When each measurement was made; infinite if the model has come to rest."""
        return self._compiled.times.copy()

    @property
    def nominal(self) -> Float[Array, " p"]:
        """The values that the table of parameters gives, on their scales."""
        return self._scaled([p.nominal for p in self._rows()])

    @property
    def lower(self) -> Float[Array, " p"]:
        """The least values, on the parameters' scales."""
        return self._scaled([p.lower for p in self._rows()])

    @property
    def upper(self) -> Float[Array, " p"]:
        """The largest values, on the parameters' scales."""
        return self._scaled([p.upper for p in self._rows()])

    def parameters(self, x: Float[Array, " p"]) -> dict[str, Float[Array, ""]]:
        """Returns all parameters of the problem in their own units, with those that are not estimated."""
        values = self._all(x)
        return {p.name: values[i] for i, p in enumerate(self._compiled.tables.parameters)}

    def networks(self, x: Float[Array, " p"]) -> dict[str, Any]:
        """Returns the neural networks by name, Equinox modules whose arrays hold the parameters."""
        values, found = self._all(x), {}
        start = len(values) - sum(len(network.weights) for network in self._compiled.tables.networks)
        for network in self._compiled.tables.networks:
            found[network.name] = with_values(network.module, values[start : start + len(network.weights)])
            start += len(network.weights)
        return found

    def predict(self, x: Float[Array, " p"]) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Returns the model's prediction of each measurement, and the scale of its noise; NaN if a simulation fails."""
        found = self._predicted(x)
        return found.value, found.noise

    def pointwise(self, x: Float[Array, " p"]) -> Float[Array, " measurements"]:
        """Returns the logarithm of the density of each measurement."""
        return log_probability(self._compiled.noise, self._predicted(x), self.data)

    def residuals(self, x: Float[Array, " p"]) -> Float[Array, " measurements"]:
        """Returns how far each measurement is from the model in units of its noise, on the scale that has the noise."""
        return residual(self._compiled.noise, self._predicted(x), self.data)

    def log_likelihood(self, x: Float[Array, " p"]) -> Float[Array, ""]:
        """Returns the logarithm of the density of all measurements; minus infinity where a simulation fails."""
        total = jnp.sum(self.pointwise(x))
        return jnp.where(jnp.isnan(total), -jnp.inf, total)

    def log_prior(self, x: Float[Array, " p"]) -> Float[Array, ""]:
        """Returns the logarithm of the priors' densities, each on the scale on which it is given; zero without one.

        Those named `parameterScale...` are densities of `x`, all others of the parameter in its own unit. There is no
        Jacobian from one to the other: that is part of `log_density`.
        """
        return log_prior(self._rows(), x)

    def log_posterior(self, x: Float[Array, " p"]) -> Float[Array, ""]:
        """Returns the logarithm of likelihood times prior, which `fit` maximises."""
        return self.log_likelihood(x) + self.log_prior(x)

    def log_density(self) -> LogDensity:
        """Returns the posterior in the form of `sciml.inference`, for samplers, Laplace's approximation and profiles.

        Its model is a dictionary of the estimated parameters on their scales. A parameter without a prior has a uniform
        one between its bounds, on its scale; bounds hold for the others too. A prior on a parameter's own scale
        includes the Jacobian to the scale of `x`.
        """
        wrong = [p.name for p in self._rows() if p.prior is None and not math.isfinite(p.upper - p.lower)]
        if wrong:
            raise ValueError(
                f"`log_density` requires a prior or finite bounds for every parameter: `{wrong[0]}` has none."
            )
        inside = jnp.where(jnp.isfinite(self.upper - self.lower), 1e-6 * (self.upper - self.lower), 0.0)
        bounded = jnp.clip(self.nominal, self.lower + inside, self.upper - inside)
        start = {name: value for name, value in zip(self.names, bounded)}
        priors = [((lambda m, name=p.name: m[name]), prior_of(p)) for p in self._rows()]
        return log_density(start, self._observe, self.data, priors)

    def fit(
        self,
        *,
        starts: int | Float[Array, "starts p"] = 1,
        key: Key | None = None,
        max_steps: int = 200,
        rtol: float | None = None,
    ) -> PEtabFit:
        """Returns where likelihood times prior is largest, from several starts in one compiled call.

        Each step is the best one within a trust region and between the bounds, for the curvature that Gauss, Newton and
        Fisher give the likelihood: noise that is estimated is part of it. A step takes one simulation, with a tangent
        for each estimated parameter of the model; all starts are lanes of one program.

        Args:
            starts: How many starts: a single one is at `nominal`; several are all drawn between the bounds. An array of
                shape `(starts, p)` holds initial points on the scales, for example near a vector where bounds are wide.
            key: A random key, where `starts` is a number above 1.
            max_steps: The most steps of a start.
            rtol: A start ends where steps change the logarithm by less than this part, by default 1e-6 in float64 and
                1e-4 in float32.

        Raises:
            ValueError: If an argument makes no sense, or no start has a likelihood.
        """
        return fit_problem(self, starts=starts, key=key, max_steps=max_steps, rtol=rtol)

    def profile(
        self,
        names: str | Sequence[str] | None = None,
        *,
        found: PEtabFit | None = None,
        level: RealScalarLike = 0.95,
        n: int = 16,
        max_steps: int = 50,
        tolerance: RealScalarLike = 1e-3,
    ) -> ProfileLikelihood:
        r"""Follows likelihood times prior along parameters, with all others fitted again, and returns intervals.

        The profile of a parameter is $2 (\log L_{\max} - \log L)$ with the maximum over all others. Each point is a fit
        as in `fit`, with the parameter held, that starts on the line through the last two points. Both sides of all
        parameters are lanes of one program. A profile ends where it exceeds the threshold of `level`, or at a bound.

        Args:
            names: The parameter or the parameters that have profiles; all by default.
            found: The maximum, from `fit`, which is called with a single start if None.
            level: The level of confidence.
            n: The most points on each side.
            max_steps: The most steps of each fit.
            tolerance: A fit ends where steps change the logarithm by less.

        Returns:
            A `ProfileLikelihood`, whose values and intervals are on the parameters' scales.

        Raises:
            ValueError: If an argument makes no sense, or there is no parameter with a name.

        Warns:
            UserWarning: If a profile rises above the maximum, which then was none.

        Source:
            A. Raue and others, Structural and practical identifiability analysis of partially observed dynamical models
            by exploiting the profile likelihood, Bioinformatics 25:1923, 2009.

        Example:
            ```python
            import jax
            import sciml

            def interval(path, name):
                problem = sciml.petab.read_petab(path)
                found = problem.fit(starts=20, key=jax.random.key(0))
                return problem.profile(name, found=found).intervals[0]
            ```
        """
        options = {"level": level, "n": n, "max_steps": max_steps, "tolerance": tolerance}
        return profile_problem(self, names, found, **options)

    def plot(self, x: Any, **options: Any) -> Any:
        """Draws measurements and predictions of each observable, with the noise as bands, by `sciml.plot.observables`.

        Args:
            x: The parameters on their scales, shape `(p,)`, such as `x` of a fit.
            options: Options of `sciml.plot.observables`.
        """
        from ..plot import observables

        tables, scale = self._compiled.tables, self._compiled.noise.scale
        value, noise = (np.asarray(part, np.float64) for part in self.predict(jnp.asarray(x)))
        factor = np.where(scale == 2, 10.0, np.e) ** np.where(scale > 0, noise, 0.0)
        ends = (value - noise, value + noise), (value / factor, value * factor)
        band = tuple(np.where(scale > 0, log, plain) for plain, log in zip(*ends, strict=True))
        conditions = [m.condition for m in tables.measurements]
        options = {"band": band, "conditions": conditions} | options
        return observables(self.observables, self.times, self.data, value, **options)

    def draw(self, key: Key, starts: int) -> Float[Array, "starts p"]:
        """Returns vectors that are drawn uniformly between the bounds, on the parameters' scales.

        They are a Latin hypercube: of each parameter's range, cut into `starts` parts, each part has one of them.
        A matrix of a network, without bounds, is drawn within the root of one over its number of inputs, as in PyTorch;
        a vector keeps its nominal values, or is zero without them.
        """
        starts, key = check_count(starts, "starts", "draw"), check_key(key, "draw")
        of_order, of_place = jax.random.split(key)
        shape, dtype = (starts, len(self.names)), self.lower.dtype
        part = jnp.broadcast_to(jnp.arange(starts, dtype=dtype)[:, None], shape)
        part = jax.random.permutation(of_order, part, axis=0, independent=True)
        share = (part + jax.random.uniform(of_place, shape, dtype)) / starts
        lower, upper = self._ranges()
        return jax.vmap(lambda share: lower + share * (upper - lower))(share)

    def _ranges(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """The bounds between which starts are drawn."""
        ranges = start_ranges(self._compiled.tables)
        own = [(p.lower, p.upper) for p in self._rows()]
        ends = [x if math.isfinite(x[1] - x[0]) else ranges.get(p.name, x) for p, x in zip(self._rows(), own)]
        found = [
            jnp.where(jnp.isfinite(x), x, self._scaled(list(y))) for x, y in zip((self.lower, self.upper), zip(*ends))
        ]
        return found[0], found[1]

    def expansion(self, x: Float[Array, " p"]) -> Expansion:
        """Returns minus `log_posterior` about a vector: value, gradient and curvature, by one solve."""
        return expansion(x, self._rows(), self._compiled.noise, self.data, self._sensitivities, self._observed)

    def _rows(self) -> list[EstimatedParameter]:
        return [self._compiled.tables.parameters[i] for i in self._compiled.estimated]

    def _scaled(self, values: list[float]) -> Float[Array, " p"]:
        function = {"lin": lambda v: v, "log": np.log, "log10": np.log10}
        with np.errstate(all="ignore"):
            found = [float(function[scale](v)) for scale, v in zip(self.scales, values)]
        return jnp.asarray(found, jnp.result_type(float))

    def _all(self, x: Float[Array, " p"]) -> Float[Array, " parameters"]:
        """All parameters in their own units."""
        compiled = self._compiled
        if jnp.shape(x) != (len(compiled.estimated),):
            raise ValueError(
                f"`x` must have shape ({len(compiled.estimated)},), one for each of `names`, not {jnp.shape(x)}."
            )
        factors = np.array([{"lin": 0.0, "log": 1.0, "log10": _LOG10}[scale] for scale in self.scales])
        powers = jnp.exp(x * jnp.asarray(factors, x.dtype))  # of those on a linear scale it is 1
        estimated = jnp.where(factors > 0, powers, x)
        values = jnp.asarray([p.nominal for p in compiled.tables.parameters], x.dtype)
        return values.at[compiled.estimated].set(estimated)

    def _predicted(self, x: Float[Array, " p"]) -> Predicted:
        if self._options.adjoint is not None:
            return self._observed(self._states(x, self._options), x)

        # one operation for `jax.grad`, which would go through loops twice to learn that nothing there is linear
        sensitivities = as_one_operation(self._sensitivities)

        @jax.custom_jvp
        def states_of(x: Array) -> Array:
            return self._states(x, self._options)

        @states_of.defjvp
        def rule(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
            states, columns = sensitivities(*primals)
            return states, jnp.tensordot(*tangents, columns, axes=1, precision="highest")

        return self._observed(states_of(x), x)

    def _sensitivities(
        self, x: Float[Array, " p"]
    ) -> tuple[Float[Array, "measurements n"], Float[Array, "p measurements n"]]:
        """The state of the model at each measurement, and its derivatives; zero where it is NaN."""
        compiled, options = self._compiled, self._options.for_tangents()
        # parameters that only occur in observables and noise need no simulation
        used = [compiled.conditions.places.ravel(), *(x.weights for x in compiled.before)]
        moving = np.flatnonzero(np.isin(compiled.estimated, np.concatenate(used)))

        def states_of(moved: Array) -> tuple[Array, Array]:
            states = self._states(x.at[moving].set(moved), options)
            return states, states

        if not moving.size:
            states, _ = states_of(x[moving])
            return states, jnp.zeros((x.size, *states.shape), x.dtype)
        columns, states = jax.jacfwd(states_of, has_aux=True)(x[moving])
        columns = jnp.where(jnp.isnan(states)[None], 0, jnp.moveaxis(columns, -1, 0))
        return states, jnp.zeros((x.size, *states.shape), x.dtype).at[moving].set(columns)

    def _states(self, x: Float[Array, " p"], options: Options) -> Float[Array, "measurements n"]:
        """The state of the model at each measurement."""
        compiled, constants = self._compiled, self._constants(x)[1]
        return simulate_all(compiled.conditions, compiled.simulations, constants, options)

    def _observed(self, states: Float[Array, "measurements n"], x: Float[Array, " p"]) -> Predicted:
        """The model's prediction of each measurement in these states."""
        compiled = self._compiled
        values, constants = self._constants(x)
        of_rows = constants[compiled.simulations.condition][compiled.simulations.rows]
        parameters = [p.name for p in compiled.tables.parameters]
        return predicted(compiled.observables, states, compiled.times, of_rows, values, parameters)

    def _constants(self, x: Float[Array, " p"]) -> tuple[Float[Array, " pool"], Float[Array, "conditions constants"]]:
        """All numbers of the problem, and the constants of the model in each condition."""
        values = jnp.concatenate([self._all(x), jnp.asarray(self._compiled.numbers, x.dtype)])
        constants = values[self._compiled.conditions.places]
        for network in self._compiled.before:
            constants = network(values, constants)
        return values, constants

    def _observe(self, model: dict[str, Array]) -> MeasuredData:
        x = jnp.stack([model[name] for name in self.names])
        return MeasuredData(self._predicted(x), self._compiled.noise)


def read_petab(
    path: str | os.PathLike,
    *,
    networks: Mapping[str, Any] | None = None,
    solver: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 10_000,
    adjoint: Any = None,
) -> PEtabProblem:
    """Reads a problem of parameter estimation in PEtab, version 1 or 2, with a model in SBML.

    It supports conditions, with pre-equilibration, measurements at steady state, parameters of observables and of their
    noise, normal and Laplace noise on linear and logarithmic scales, and all priors. The steady state is found by a
    simulation to a time of 1e8, so that conserved totals are preserved; if the model still changes then, the prediction
    is NaN.

    An empty cell of the table of conditions leaves a parameter at the model's value. It leaves a state at the end of
    the condition before, or at the model's own start if there is none before.

    In version 2, each experiment is a condition. petab translates the changes of its periods to initial assignments and
    events of the model.

    Args:
        path: The YAML file.
        networks: Equinox modules by the names of the problem's neural networks, with their arrays. Those that are not
            given are read from YAML, and their arrays from HDF5, which requires h5py.
        solver: A method, by default `sciml.solvers.Rodas5P()` with its linear systems left to LAPACK, whose program is
            short, so that a first call takes seconds. If a likelihood is computed thousands of times without its
            gradient, `solver=sciml.solvers.Rodas5P()` pays off: it writes small systems out, which takes longer to
            compile and less to run.
        rtol: Its relative tolerance, by default 1e-7 in float64 and 1e-5 in float32.
        atol: Its absolute tolerance, by default 1e-10 in float64 and 1e-8 in float32.
        max_steps: Its most steps.
        adjoint: How derivatives are computed, as for `solve`. By default a tangent for each estimated parameter of the
            model is propagated through the simulations, whose program is short.

    Raises:
        ImportError: If petab or sbmlode, or h5py for arrays, is not installed: `pip install 'sciml-jax[sbml]'`.
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a PEtab problem, or uses an unsupported feature, which the message names.

    Example:
        ```python
        import sciml

        try:
            problem = sciml.petab.read_petab("no_such_problem.yaml")
        except (FileNotFoundError, ImportError) as error:
            print(error)
        ```
    """
    tables = read_tables(path, networks or {})
    data = jnp.asarray([m.value for m in tables.measurements], jnp.result_type(float))
    return PEtabProblem(data, _Compiled(tables), Options(solver, rtol, atol, max_steps, adjoint))
