"""`solve_doses`: the state of a model under doses, in closed form if the model is linear."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._checks import concrete
from .._interfaces._events import Schedule
from .._interfaces._held import Held
from .._interfaces._model import AbstractModel
from .._same_code import filter_jit
from ..solvers._solve import solve
from ..solvers.adjoints._direct import Direct
from ..solvers.roots._steady_state import steady_state
from ._compartments import AbstractDrug
from ._doses import ADDED_STEADY_STATE, AMOUNTS, DoseRows, Doses, Rule, Steady, check_where_known, rows_of
from ._linear import applied, periodic, propagators

_LITTLE = 16
"""How many roundings of the times lie between a record before a dose and the dose."""

_OWN_OPTIONS = ("args", "events", "key", "max_events", "resume", "saveat", "t0", "t1")
"""Options of `sciml.solve` that follow from doses and times, or have no meaning here."""

_BEFORE, _AFTER = 0, 4
"""The order of a record among the rows of doses at its time; see `_doses.ENDS`."""


def solve_doses(
    model: AbstractDrug | AbstractModel | Callable[..., Any],
    doses: Doses,
    ts: Any,
    *,
    covariates: Any = None,
    before: Any = None,
    y0: Any = None,
    **options: Any,
) -> Float[Array, "times n"]:
    r"""Returns the states of a model under doses at given times.

    Linear `Compartments` are evaluated in closed form; other models are solved by `sciml.solve`, in which doses are
    events. The first time of the doses and of `ts` is the start. At the time of a dose the state is the one after the
    dose, unless `before` is true. An additional dose (`addl`) arrives before records at its time.

    Steady states (`ss`) are exact: the solution of a linear system for linear models, and a root of the map over one
    period otherwise. The root is accurate to the tolerances of `options`.

    Args:
        model: A drug, or any model with a state of shape `(n,)`; a function of covariates that returns a model, if
            `covariates` are given.
        doses: The doses of one subject; several subjects run under `jax.vmap`.
        ts: The times, shape `(times,)`, in any order.
        covariates: The values over time: a `sciml.Held` of steps, with which linear models remain exact, or a path with
            a method `evaluate(t)`, such as `diffrax.LinearInterpolation`, for `solve`.
        before: Whether a state is the one before doses at its time, shape `(times,)`.
        y0: The initial state; the model's own by default.
        options: Further options of `sciml.solve`, such as `rtol`, `atol`, `solver`, `adjoint` and `throw`, which the
            closed form does not need. The default adjoint is `Direct`, for few parameters and for
            `inference.hierarchical`.

    Returns:
        The states, shape `(times, n)`; columns have the names `model.names`.

    Raises:
        ValueError: If a model that is not a drug has no `y0`, a compartment does not exist, an infusion has no
            duration, a known time is NaN, a known amount or lag is negative, shapes do not match, or doses have `ss=2`
            and the model is not linear. If such values are traced, the states are NaN.
        TypeError: If an option is not one of `sciml.solve`, or sets its times or events.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import pharmacology

        drug = pharmacology.Compartments(cl=2.0, v1=20.0, ka=0.8)
        usual = pharmacology.Doses(0.0, 100.0, ss=True, ii=12.0)  # taken for a long time
        many = pharmacology.Doses(0.0, 100.0, addl=99, ii=12.0)
        trough = pharmacology.solve_doses(drug, usual, jnp.array([12.0]))
        assert jnp.allclose(trough, pharmacology.solve_doses(drug, many, jnp.array([1200.0]), before=True), rtol=1e-4)
        ```
    """
    ts = jnp.asarray(ts)
    if ts.ndim != 1 or ts.shape[0] == 0:
        raise ValueError(f"`ts` must have shape `(times,)` with at least one, but have {ts.shape}.")
    _check_options(options)
    before = jnp.broadcast_to(False if before is None else jnp.asarray(before), ts.shape)
    at = _model_at(model, covariates)
    dtype = jnp.result_type(float, ts, doses.times)
    first = jnp.min(jnp.where(jnp.isfinite(doses.times), doses.times, jnp.inf), initial=jnp.inf)
    first = jnp.minimum(first.astype(dtype), jnp.min(ts).astype(dtype))
    example = at(first)
    if y0 is None:
        if not hasattr(example, "initial"):
            raise ValueError("`solve_doses` requires `y0`, the initial state, for a model that does not define it.")
        y0 = example.initial(dtype)
    y0 = jnp.asarray(y0).astype(dtype)
    if y0.ndim != 1:
        raise ValueError(f"`solve_doses` requires a state of shape `(n,)`, but `y0` has shape {y0.shape}.")
    _check_compartments(doses, y0.shape[0])
    _check_durations(doses)
    y0 = jnp.where(_in_range(doses, ts), y0, jnp.nan)
    steps = covariates is None or isinstance(covariates, Held)
    if getattr(example, "is_linear", False) and steps:
        return _in_closed_form(model, covariates, doses, ts.astype(dtype), before, y0, first)
    y0 = jnp.where(_adds_nothing(doses), y0, jnp.nan)
    return _by_solving(at, covariates, doses, ts.astype(dtype), before, y0, first, options)


def _model_at(model: Any, covariates: Any) -> Callable[[Array], Any]:
    """Returns the model as a function of time."""
    if covariates is None:
        return lambda t: model
    return lambda t: model(covariates.evaluate(t) if hasattr(covariates, "evaluate") else covariates(t))


def _check_compartments(doses: Doses, n: int) -> None:
    if concrete(doses.cmt):
        given = np.asarray(doses.cmt)
        if np.any(wrong := (given < 1) | (given > n)):
            raise ValueError(f"`cmt` of `Doses` must be between 1 and {n} for this model, but is {given[wrong][0]}.")


def _check_durations(doses: Doses) -> None:
    missing = doses._modelled
    if doses.durations is not None and concrete(doses.durations) and concrete(doses.times):
        wrong = np.isnan(np.asarray(doses.durations)) & np.isfinite(np.asarray(doses.times))
        missing = {int(x) for x in np.asarray(doses.cmt)[wrong]}
    if missing:
        raise ValueError(
            f"infusions into compartment {min(missing)} have no duration: it is NaN, as for RATE=-1 or -2 of a table. "
            "Set it by `doses.modified(duration=...)` or `doses.modified(rate=...)` before `solve_doses`."
        )


def _in_range(doses: Doses, ts: Array) -> Bool[Array, ""]:
    """Returns whether all times, amounts, lags and durations are in range.

    Raises:
        ValueError: If a known one is not.
    """
    never = doses.times == np.inf
    given = [
        (Rule("`ts` must be finite", lambda x: (x > -np.inf) & (x < np.inf)), ts, False),
        (Rule("`times` of `Doses` must not be NaN or -inf", lambda x: x > -np.inf), doses.times, never),
        (AMOUNTS, doses.amounts, never),
        (Rule("`lag` of `Doses` must not be negative", lambda x: x >= 0), doses.lags, never),
        (Rule("`duration` of `Doses` must be finite", lambda x: (x >= 0) & (x < np.inf)), doses.durations, never),
    ]
    good = jnp.ones((), bool)
    for rule, values, left_over in given:
        if values is None:
            continue
        check_where_known(rule, values, left_over)
        good = good & jnp.all(rule.holds(values) | left_over)
    return good


def _adds_nothing(doses: Doses) -> Bool[Array, ""]:
    """Returns whether no steady state is added to amounts, which are sums for linear models only.

    Raises:
        ValueError: If one is known to be.
    """
    if doses.resets is None:
        return jnp.ones((), bool)
    added = doses.resets[1] == ADDED_STEADY_STATE
    if concrete(added) and np.any(added):
        raise ValueError(
            "`Doses(ss=2)`, SS=2 of a table, adds a steady state to the amounts of earlier doses, which requires "
            "`Compartments`, a linear model. Use `ss=1`, which replaces them."
        )
    return ~jnp.any(added)


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name in _OWN_OPTIONS:
            raise TypeError(f"`solve_doses` sets `{name}` of `sciml.solve` itself, by `doses` and `ts`. Leave it out.")
        if name not in inspect.signature(solve).parameters:
            raise TypeError(f"`solve_doses` has no option `{name}`. It also takes the options of `sciml.solve`.")


@filter_jit
def _in_closed_form(
    model: Any, covariates: Any, doses: Doses, ts: Array, before: Array, y0: Array, first: Array
) -> Array:
    at = _model_at(model, covariates)

    def steady(given: Steady) -> Array:
        rates = at(given.at).rates(y0.dtype)[..., None]
        whole = jnp.floor(given.duration / given.period)
        left = given.duration - whole * given.period
        ends = jnp.stack([given.period, given.phase])
        flowing = jnp.minimum(ends, left)
        decay, mass = propagators(rates, jnp.concatenate([ends, flowing, ends - flowing]))
        # the doses of one period: a bolus, infusions for all of it, and one infusion for a part of it
        bolus, rate = given.bolus[:, None], given.rate[:, None]
        gained = applied(decay[..., :2], bolus) + whole * applied(mass[..., :2], rate)
        gained = gained + applied(decay[..., 4:], applied(mass[..., 2:4], rate))
        start = periodic(decay[..., 0], gained[:, 0])
        return (applied(decay[..., 1:2], start[:, None]) + gained[:, 1:])[:, 0]

    rows = rows_of(doses, y0, steady)
    records = _empty(ts, jnp.where(before, _BEFORE, _AFTER), y0)
    changes = []
    if covariates is not None:
        changes.append(_empty(jnp.maximum(covariates.ts.astype(ts.dtype), first), _BEFORE, y0))
    every = jax.tree.map(lambda *x: jnp.concatenate(x), rows, records, *changes)
    last = jnp.max(jnp.where(jnp.isfinite(every.times), every.times, -jnp.inf))
    times = jnp.where(every.times == jnp.inf, last, every.times)  # rows that are left over change nothing
    order = jnp.lexsort((every.order, times))
    every, times = jax.tree.map(lambda x: x[order], every), times[order]
    starts = jnp.concatenate([first[None], times[:-1]])
    if covariates is None:
        rates = at(first).rates(y0.dtype)[..., None]
    else:
        rates = jnp.moveaxis(jax.vmap(lambda t: at(t).rates(y0.dtype))(starts), 0, -1)
    decay, mass = propagators(rates, times - starts)

    def advance(carry: tuple[Array, Array], row: tuple) -> tuple[tuple[Array, Array], Array]:
        x, flow = carry
        decay, mass, update = row
        x = jnp.sum(decay * x[None], axis=1) + jnp.sum(mass * flow[None], axis=1)
        x, flow = _updated(x, flow, update)
        return (x, flow), x

    per_row = jnp.moveaxis(decay, -1, 0), jnp.moveaxis(mass, -1, 0), every
    _, states = jax.lax.scan(advance, (y0, jnp.zeros_like(y0)), per_row)
    place = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
    n_rows = rows.times.shape[0]
    return states[place[n_rows : n_rows + ts.shape[0]]]


def _empty(times: Array, order: Any, y0: Array) -> DoseRows:
    zeros, count = jnp.zeros((times.shape[0], y0.shape[0]), y0.dtype), times.shape[0]
    return DoseRows(times, jnp.broadcast_to(order, (count,)), jnp.zeros(count, bool), zeros, zeros, zeros, zeros)


def _updated(x: Array, flow: Array, row: DoseRows) -> tuple[Array, Array]:
    return jnp.where(row.resets, row.amounts, x) + row.bolus, jnp.where(row.resets, row.rates, flow) + row.change


def _by_solving(
    at: Any,
    covariates: Any,
    doses: Doses,
    ts: Array,
    before: Bool[Array, " times"],
    y0: Array,
    first: Array,
    options: dict[str, Any],
) -> Array:
    options = {"adjoint": Direct()} | options

    def run(y: tuple[Array, Array], t0: Array, t1: Array, events: list[Schedule], saveat: Any, model: Any) -> Any:
        def field(t: Any, y: tuple[Array, Array], args: Any) -> tuple[Array, Array]:
            x, flow = y
            return model(t)(t, x, None) + flow, jnp.zeros_like(flow)

        more = {"events": events, "max_events": 1} if events else {}
        return solve(field, y, t0=t0, t1=t1, saveat=saveat, **more, **options)

    def steady(given: Steady) -> Array:
        drug = at(given.at)
        whole = jnp.floor(given.duration / given.period)
        left = given.duration - whole * given.period
        stops = Schedule(left[None], _stop, given.rate[None])

        def over(x: Array, end: Array) -> Array:
            on = jnp.where(left > 0, 1, 0).astype(x.dtype)
            y = x + given.bolus, (whole + on) * given.rate
            events = [stops] if doses.durations is not None else []
            return run(y, jnp.zeros_like(end), end, events, None, lambda t: drug).ys[0][-1]

        root = steady_state(lambda t, x, args: over(x, given.period) - x, y0, throw=options.get("throw", True))
        return over(root.ys[-1], given.phase)

    # a state before a dose is saved so little earlier that only rounding tells the difference
    little = _LITTLE * jnp.finfo(ts.dtype).eps * jnp.maximum(jnp.max(jnp.abs(ts)), jnp.abs(first))
    if doses.durations is not None:  # both ends of an infusion that time does not resolve are one event: a bolus
        durations = jnp.where(doses.durations < 4 * little, 0, doses.durations)
        doses = eqx.tree_at(lambda doses: doses.durations, doses, durations)
    rows = rows_of(doses, y0, steady)
    events = []
    if rows.times.shape[0]:
        merged = _merged(rows)
        events.append(Schedule(merged.times, _update, merged._replace(times=jnp.zeros_like(merged.times))))
    if isinstance(covariates, Held):
        events.append(covariates.jumps())
    saved = jnp.where(before, ts - little, ts)
    order = jnp.argsort(saved)
    saved = saved[order]
    # times that are all the same need an interval, short but resolved
    end = jnp.maximum(saved[-1], first + jnp.finfo(ts.dtype).eps ** 0.5 * jnp.maximum(jnp.abs(first), 1))
    sol = run((y0, jnp.zeros_like(y0)), first, end, events, jnp.maximum(saved, first), at)
    place = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
    states = sol.ys[0][place]
    return jnp.where((before & (ts <= first))[:, None], y0, states)


def _merged(rows: DoseRows) -> DoseRows:
    """Returns the updates with those at one time as one; times that are left over are infinite."""
    count = rows.times.shape[0]
    index = jnp.arange(count)
    differs = jnp.concatenate([jnp.zeros(1, bool), rows.times[1:] != rows.times[:-1]])
    group = jnp.cumsum(differs)
    last_reset = jnp.full(count, -1).at[group].max(jnp.where(rows.resets, index, -1))
    after, here = index >= last_reset[group], index == last_reset[group]

    def total(x: Array, counts: Array) -> Array:
        return jnp.zeros_like(x).at[group].add(jnp.where(counts[:, None], x, 0))

    times = jnp.full_like(rows.times, jnp.inf).at[group].min(rows.times)
    amounts, rates = total(rows.amounts, here), total(rows.rates, here)
    return DoseRows(
        times, rows.order, last_reset >= 0, amounts, rates, total(rows.bolus, after), total(rows.change, after)
    )


def _update(t: Any, y: tuple[Array, Array], args: Any, row: DoseRows) -> tuple[Array, Array]:
    return _updated(*y, row)


def _stop(t: Any, y: tuple[Array, Array], args: Any, rate: Array) -> tuple[Array, Array]:
    return y[0], y[1] - rate
