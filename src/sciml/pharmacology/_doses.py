"""`Doses`: a dosing table of one subject, and the updates of amounts and rates of infusion that it makes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import concrete

NOTHING, STEADY_STATE, RESET, ADDED_STEADY_STATE = 0, 1, 2, 3
"""The kinds of a row that replaces the amounts before its dose, or adds to them."""

_PERIODS_UNKNOWN = 2
"""Infusions of a steady state that may overlap where durations or intervals are traced."""


class Doses(eqx.Module):
    r"""The doses of one subject, as rows of a table in the conventions of NONMEM.

    A row is an instantaneous dose (bolus), or an infusion at a constant rate, into a compartment of a model. The same
    rows serve oral doses, which are boluses into the depot, and zero-order absorption, which is an infusion into it.
    Amounts and times have the units of the model's parameters.

    All numbers except `addl`, `ss` and `reset` may be traced and differentiated. Several subjects are a `Doses` whose
    leaves have a leading axis, for `jax.vmap`; tables of unequal length end with infinite times. `read_nonmem` makes
    such tables.

    Attributes:
        times: The time of each dose, shape `(doses,)`, in any order.
        amounts: The amount of each dose.
        cmt: The number of the compartment, from 1: a model's `names` lists them. 1 is the dose compartment before
            transit compartments or the depot if there is one, else the central compartment.
        durations: The duration of each infusion; zero for a bolus, and NaN for a duration that `modified` sets. None
            if there are no infusions.
        lags: The lag of each dose; None without lags.
        periods: The dosing interval of each dose; None without steady states.

    Args:
        times: The time of each dose, a number or shape `(doses,)`; infinite for rows that are left over.
        amounts: The amount of each dose, not negative; a number or shape `(doses,)`.
        cmt: The number of the compartment.
        rate: The rate of each infusion, zero for a bolus.
        duration: The duration of each infusion instead of its rate, zero for a bolus.
        addl: The number of additional doses after each dose, at intervals of `ii`; known integers.
        ii: The dosing interval.
        ss: Whether the amounts at the time of the dose are in the steady state of doses like it at intervals of `ii`,
            the last one `ii` earlier. Earlier doses have no effect afterwards; with 2 the steady state is added to
            their amounts, which requires a linear model.
        lag: The time from the row until the dose arrives.
        reset: Whether the amounts, and infusions, return to their initial values before the dose.

    Raises:
        ValueError: If both `rate` and `duration` are given, shapes do not match, `ii` is missing or not positive where
            `addl` or `ss` needs it, `ss` is not 0, 1 or 2, `reset` is not 0 or 1, a row has `ss=2` and `reset`, a known
            amount, rate or duration is negative, a known amount is not finite, or a known infusion of a steady state
            has a rate but no amount.
        TypeError: If `addl`, `ss` or `reset` is traced or not an integer, or `cmt` is a name.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import pharmacology

        drug = pharmacology.Compartments(cl=2.0, v1=10.0, ka=1.0)
        daily = pharmacology.Doses(0.0, 100.0, addl=6, ii=24.0)  # seven doses
        states = pharmacology.solve_doses(drug, daily, jnp.array([0.5, 24.5, 168.0]))
        assert daily.times.shape == (7,) and drug.concentration(states).shape == (3,)
        ```
    """

    times: Float[Array, " doses"]
    amounts: Float[Array, " doses"]
    cmt: Int[Array, " doses"]
    durations: Float[Array, " doses"] | None
    lags: Float[Array, " doses"] | None
    periods: Float[Array, " doses"] | None
    by_rate: Bool[Array, " doses"] | None
    resets: tuple[Int[Array, " resets"], Int[Array, " resets"]] | None
    overlaps: int = eqx.field(static=True)
    _modelled: frozenset[int] = eqx.field(static=True)  # the compartments whose durations `modified` has to set

    def __init__(
        self,
        times: Any,
        amounts: Any,
        *,
        cmt: Any = 1,
        rate: Any = None,
        duration: Any = None,
        addl: Any = 0,
        ii: Any = None,
        ss: Any = False,
        lag: Any = None,
        reset: Any = False,
    ):
        if rate is not None and duration is not None:
            raise ValueError("`rate` and `duration` of `Doses` determine each other; pass one of them.")
        times = _floats(times)
        times = times.reshape(-1) if times.ndim == 0 else times
        if times.ndim != 1:
            raise ValueError(f"`times` of `Doses` must be a number or have shape `(doses,)`, but have {times.shape}.")
        n = times.shape[0]

        def column(name: str, value: Any, dtype: Any = times.dtype) -> Any:
            array = _array(value).astype(dtype)
            if array.ndim > 1 or array.shape not in ((), (1,), (n,)):
                raise ValueError(
                    f"`{name}` of `Doses` must be a number or have one row for each of the {n} times, but has shape "
                    f"{array.shape}."
                )
            return _of(array).broadcast_to(array.reshape(-1), (n,))

        addl, ss, reset = (_known(*x, n) for x in (("addl", addl), ("ss", ss), ("reset", reset)))
        _check_flags(ss, reset)
        if np.any(addl < 0):
            raise ValueError(f"`addl` of `Doses` must not be negative, but is {addl}.")
        needs = (addl > 0) | (ss > 0)
        if np.any(needs) and ii is None:
            raise ValueError("`addl` and `ss` of `Doses` require `ii`, the dosing interval, which is missing.")
        periods = None if ii is None else column("ii", ii)
        if periods is not None and concrete(periods) and np.any(needs & ~(np.asarray(periods) > 0)):
            raise ValueError(f"`ii` of `Doses` must be positive where `addl` or `ss` needs it, but is {ii}.")
        if periods is not None and not concrete(periods):
            periods = jnp.where(needs & ~(periods > 0), jnp.nan, periods)
        amounts = column("amounts", amounts)
        check_where_known(AMOUNTS, amounts, times == np.inf)
        durations, by_rate = _durations(column, amounts, rate, duration, ss > 0)
        rows = np.repeat(np.arange(n), 1 + addl)
        number = np.concatenate([np.arange(1 + k) for k in addl]) if n else np.zeros(0)
        later = 0 if periods is None else np.asarray(number, times.dtype) * periods[rows]
        self.times = jnp.asarray(times[rows] + later)
        self.amounts = jnp.asarray(amounts[rows])
        self.cmt = jnp.asarray(column("cmt", _numbers(cmt), np.int32)[rows])
        self.durations = None if durations is None else jnp.asarray(durations[rows])
        self.by_rate = None if by_rate is None else jnp.asarray(by_rate[rows])
        self.lags = None if lag is None else jnp.asarray(column("lag", lag)[rows])
        kinds = np.where(reset > 0, RESET, NOTHING)
        kinds = np.where(ss > 0, np.where(ss == 2, ADDED_STEADY_STATE, STEADY_STATE), kinds)
        found = np.flatnonzero((kinds[rows] != NOTHING) & (number == 0))
        self.resets = None
        if found.size:
            self.resets = jnp.asarray(found, jnp.int32), jnp.asarray(kinds[rows][found], jnp.int32)
        steady = bool(np.any(ss > 0))
        self.periods = jnp.asarray(periods[rows]) if periods is not None and steady else None
        self._modelled = frozenset()
        if durations is not None and concrete(durations) and concrete(self.cmt):
            self._modelled = frozenset(np.asarray(self.cmt)[np.isnan(np.asarray(self.durations))].tolist())
        self.overlaps = 0
        if steady and durations is not None:
            self.overlaps = _PERIODS_UNKNOWN
            if concrete(durations) and concrete(periods):
                given = np.asarray(durations)[ss > 0] / np.asarray(periods)[ss > 0]
                self.overlaps = 1 + int(np.max(np.nan_to_num(given, nan=1.0)))

    @staticmethod
    def stack(doses: Sequence["Doses"]) -> "Doses":
        """Returns the doses of several subjects, with a leading axis; shorter tables end with infinite times.

        Example:
            ```python
            import jax
            import jax.numpy as jnp
            from sciml import pharmacology

            both = pharmacology.Doses.stack([pharmacology.Doses(0.0, 9.0), pharmacology.Doses([0.0, 8.0], 5.0)])
            drug, ts = pharmacology.Compartments(cl=1.0, v1=10.0), jnp.array([12.0])
            states = jax.vmap(lambda doses: pharmacology.solve_doses(drug, doses, ts))(both)
            assert both.times.shape == (2, 2) and states.shape == (2, 1, 1)
            ```
        """
        most = max(x.times.shape[0] for x in doses)
        most_resets = max(0 if x.resets is None else x.resets[0].shape[0] for x in doses)

        def column(given: Sequence[Array | None], fill: Any, count: int = most) -> Array | None:
            if all(x is None for x in given):
                return None
            dtype = jnp.result_type(*(x.dtype for x in given if x is not None))
            padded = []
            for x in given:
                own = jnp.zeros(0, dtype) if x is None else x.astype(dtype)
                padded.append(jnp.concatenate([own, jnp.full(count - own.shape[0], fill, dtype)]))
            return jnp.stack(padded)

        fills = {"times": jnp.inf, "cmt": 1, "periods": 1.0, "by_rate": False}
        names = ("times", "amounts", "cmt", "durations", "lags", "periods", "by_rate")
        values: dict[str, Any] = {x: column([getattr(d, x) for d in doses], fills.get(x, 0)) for x in names}
        values["resets"] = None
        if most_resets:
            parts = [(None, None) if d.resets is None else d.resets for d in doses]
            index, kinds = (column([x[i] for x in parts], 0, most_resets) for i in range(2))
            values["resets"] = index, kinds
        values["overlaps"] = max(x.overlaps for x in doses)
        values["_modelled"] = frozenset().union(*(x._modelled for x in doses))
        stacked = object.__new__(Doses)  # the constructor is of one subject
        for name, value in values.items():
            object.__setattr__(stacked, name, value)
        return stacked

    def modified(
        self, *, cmt: Any = None, f: Any = None, lag: Any = None, duration: Any = None, rate: Any = None
    ) -> "Doses":
        """Returns the doses with parameters of the model: bioavailability, lag time, modelled duration or rate.

        These are F, ALAG, D and R of NONMEM, for each compartment. As there, `f` also multiplies the duration of an
        infusion that is given by its rate.

        Args:
            cmt: The number of the compartment; all compartments by default.
            f: The bioavailability, by which amounts are multiplied.
            lag: The lag time, which is added to earlier ones.
            duration: The duration of infusions whose duration is NaN: those of `RATE=-2` in a table.
            rate: The rate of these infusions, of `RATE=-1` in a table.

        Raises:
            ValueError: If both `duration` and `rate` are given, or no infusion has a duration of NaN.

        Example:
            ```python
            import jax.numpy as jnp
            from sciml import pharmacology

            doses = pharmacology.Doses(jnp.array([0.0, 12.0]), 100.0).modified(f=0.6, lag=0.5)
            assert jnp.allclose(doses.amounts, 60.0) and jnp.allclose(doses.lags, 0.5)
            ```
        """
        if duration is not None and rate is not None:
            raise ValueError("`duration` and `rate` determine each other; pass one of them.")
        if (duration is not None or rate is not None) and self.durations is None:
            raise ValueError(
                "`duration` and `rate` apply to infusions whose duration is NaN, and these doses have no infusions. "
                "Pass `duration=` to `Doses`."
            )
        dtype = self.times.dtype
        cmt = None if cmt is None else _numbers(cmt)
        here = jnp.ones_like(self.cmt, bool) if cmt is None else self.cmt == cmt
        amounts, lags, durations = self.amounts, self.lags, self.durations
        if f is not None:
            factor = jnp.where(here, jnp.asarray(f).astype(dtype), 1)
            amounts = amounts * factor
            if durations is not None:
                durations = durations * jnp.where(cast(Array, self.by_rate), factor, 1)
        if lag is not None:
            lags = (0 if lags is None else lags) + jnp.where(here, jnp.asarray(lag).astype(dtype), 0)
        if duration is not None or rate is not None:
            modelled = (
                jnp.asarray(duration).astype(dtype) if rate is None else amounts / jnp.asarray(rate).astype(dtype)
            )
            durations = jnp.where(here & jnp.isnan(cast(Array, self.durations)), modelled, cast(Array, durations))
        changed = eqx.tree_at(
            lambda d: (d.amounts, d.lags, d.durations),
            self,
            (amounts, lags, durations),
            is_leaf=lambda x: x is None,
        )
        if duration is not None or rate is not None:
            left = frozenset() if cmt is None or not concrete(cmt) else self._modelled - {int(cmt)}
            object.__setattr__(changed, "_modelled", left)
        return changed


class Rule(NamedTuple):
    """A rule for numbers of `Doses`: its words, and where it holds."""

    words: str
    holds: Callable[[Any], Any]


AMOUNTS = Rule("`amounts` of `Doses` must be finite and not negative", lambda x: (x >= 0) & (x < np.inf))


def check_where_known(rule: Rule, values: Any, left_over: Any) -> None:
    """Checks numbers, except in rows that are left over, if both are known.

    Raises:
        ValueError: If one violates the rule.
    """
    if concrete(values) and concrete(left_over):
        known = np.asarray(values)
        if np.any(wrong := ~(rule.holds(known) | np.asarray(left_over))):
            raise ValueError(f"{rule.words}, but one is {known[wrong][0]:g}.")


def _check_flags(ss: np.ndarray, reset: np.ndarray) -> None:
    for name, flags, most in (("ss", ss, 2), ("reset", reset, 1)):
        if np.any(wrong := (flags < 0) | (flags > most)):
            values = "0, 1 or 2" if name == "ss" else "0 or 1"
            raise ValueError(f"`{name}` of `Doses` must be {values}, but is {flags[wrong][0]}.")
    if np.any((ss == 2) & (reset > 0)):
        raise ValueError("`Doses(ss=2)` adds a steady state to amounts that `reset` removes. Use `ss=1`.")


def _durations(column: Callable, amounts: Any, rate: Any, duration: Any, steady: np.ndarray) -> tuple[Any, Any]:
    """Returns the durations of infusions, and whether they are given by rates; None if there are no infusions."""
    if rate is None and duration is None:
        return None, None
    if rate is None:
        durations = column("duration", duration)
        by_rate = np.zeros(durations.shape, bool)
    else:
        rates = column("rate", rate)
        if concrete(rates) and np.any(np.asarray(rates) < 0):
            raise ValueError(
                f"`rate` of `Doses` must not be negative, but is {np.asarray(rates).min():g}. For RATE=-1 or -2 of a "
                "table pass the `rate` or `duration` of your model."
            )
        if concrete(rates) and concrete(amounts) and np.any(steady & (rates > 0) & (amounts == 0)):
            raise ValueError(
                "an infusion of `Doses` with `ss` and `rate` must have an amount, but one has `amounts=0`. A constant "
                "infusion to steady state is not supported; write `Doses(t, rate * ii, duration=ii, ss=True, ii=ii)`."
            )
        xp = jnp if jnp in (_of(rates), _of(amounts)) else np
        durations, by_rate = xp.where(rates == 0, 0, amounts / xp.where(rates == 0, 1, rates)), rates != 0
    if concrete(durations):
        known = np.asarray(durations)
        if np.any(known < 0):
            raise ValueError(
                f"an infusion of `Doses` must have a duration that is not negative, but one has {known.min()}. "
                "Pass zero for a bolus."
            )
        if not np.any(known != 0):
            return None, None
    return durations, by_rate


def _numbers(cmt: Any) -> Any:
    if names := [x for x in jax.tree.leaves(cmt) if isinstance(x, str)]:
        raise TypeError(
            f"`cmt` of `Doses` must be the number of a compartment, but is {names[0]!r}. Write "
            f"`cmt=drug.cmt({names[0]!r})`."
        )
    if concrete(cmt) and np.any(wrong := np.asarray(cmt) % 1 != 0):
        raise TypeError(f"`cmt` of `Doses` must be an integer, but is {np.asarray(cmt)[wrong].reshape(-1)[0]:g}.")
    return cmt


def _array(x: Any) -> Any:
    """Returns an array of NumPy if its numbers are known, also within `jax.jit`."""
    return np.asarray(x) if all(map(concrete, jax.tree.leaves(x))) else jnp.asarray(x)


def _of(x: Any) -> Any:
    return jnp if isinstance(x, jax.Array) else np


def _floats(x: Any) -> Any:
    x = _array(x)
    strong = isinstance(x, np.ndarray) and not isinstance(x, np.generic) and x.dtype == np.float64
    dtype = jnp.result_type(float) if strong or not np.issubdtype(x.dtype, np.floating) else x.dtype
    return x.astype(dtype)


def _known(name: str, value: Any, n: int) -> np.ndarray:
    if not all(map(concrete, jax.tree.leaves(value))):
        raise TypeError(f"`{name}` of `Doses` sets the number of rows or their kind: it must be known, not traced.")
    array = np.asarray(value)
    if array.dtype != bool and not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"`{name}` of `Doses` must be integers, but has dtype {array.dtype}.")
    if array.shape not in ((), (1,), (n,)):
        raise ValueError(f"`{name}` of `Doses` must be a number or have one row for each of the {n} times.")
    return np.broadcast_to(array.reshape(-1), (n,)).astype(int)


class Steady(NamedTuple):
    """A dose that is repeated for ever, at a time of its period.

    Attributes:
        at: The time at which the amounts are needed, a multiple of the period after the row of a dose.
        period: The dosing interval.
        phase: The time since the last dose, at most the period.
        duration: The duration of an infusion, zero for a bolus.
        bolus: The amount that arrives at once in each compartment, shape `(n,)`.
        rate: The rate of infusion into each compartment.
    """

    at: Float[Array, ""]
    period: Float[Array, ""]
    phase: Float[Array, ""]
    duration: Float[Array, ""]
    bolus: Float[Array, " n"]
    rate: Float[Array, " n"]


class DoseRows(NamedTuple):
    """Updates in the order of time: amounts and rates of infusion are replaced if `resets`, then added to.

    Attributes:
        times: The times; infinite for rows that are left over.
        order: The order of rows at one time.
        resets: Whether amounts and rates are replaced.
        amounts: The amounts that replace those before.
        rates: The rates that replace those before.
        bolus: The amounts to add.
        change: The rates to add.
    """

    times: Float[Array, " rows"]
    order: Int[Array, " rows"]
    resets: Bool[Array, " rows"]
    amounts: Float[Array, "rows n"]
    rates: Float[Array, "rows n"]
    bolus: Float[Array, "rows n"]
    change: Float[Array, "rows n"]


ENDS, RESETS, STARTS = 1, 2, 3
"""The order at one time: infusions end, amounts are replaced, doses arrive."""


def rows_of(doses: Doses, initial: Float[Array, " n"], steady: Callable[[Steady], Float[Array, " n"]]) -> DoseRows:
    """Returns the updates that doses make.

    Args:
        doses: The doses.
        initial: The amounts after a reset.
        steady: The amounts of a steady state.
    """
    dtype, n = initial.dtype, initial.shape[0]
    comes = jnp.isfinite(doses.times)
    records = doses.times.astype(dtype)
    lags = jnp.zeros_like(records) if doses.lags is None else doses.lags.astype(dtype)
    starts, amounts = records + lags, jnp.where(comes, doses.amounts.astype(dtype), 0)
    inside = (doses.cmt >= 1) & (doses.cmt <= n)
    # by `where`: XLA may turn a product with a converted comparison, zero times NaN, into zero
    where_to = jnp.where((inside | ~comes)[:, None], jax.nn.one_hot(doses.cmt - 1, n, dtype=dtype), jnp.nan)
    if doses.durations is None:
        lasting, rate = jnp.zeros_like(starts), jnp.zeros_like(starts)
    else:
        lasting = doses.durations.astype(dtype)
        flows = comes & (lasting != 0)
        rate = jnp.where(flows, amounts / jnp.where(flows, lasting, 1), 0)
        amounts = jnp.where(flows, 0, amounts)
    bolus, rates = amounts[:, None] * where_to, rate[:, None] * where_to

    def block(times: Array, order: int, **given: Array) -> DoseRows:
        zeros, count = jnp.zeros((times.shape[0], n), dtype), times.shape[0]
        empty = DoseRows(times, jnp.full(count, order), jnp.zeros(count, bool), zeros, zeros, zeros, zeros)
        return empty._replace(**given)

    d = records.shape[0]
    blocks, begun = [block(starts, STARTS, bolus=bolus, change=rates)], [jnp.arange(d)]
    ends: list[tuple[DoseRows, Array]] = []
    if doses.durations is not None:
        ends.append((block(starts + lasting, ENDS, change=-rates), jnp.arange(d)))
    if doses.resets is not None:
        index, kinds = doses.resets
        at, of_bolus, of_rate = records[index], bolus[index], rates[index]
        adds, own = (kinds == ADDED_STEADY_STATE) & jnp.isfinite(at), d + jnp.arange(index.shape[0])
        replaces = (kinds != NOTHING) & jnp.isfinite(at) & ~adds
        replaced, flowing = jnp.broadcast_to(initial, (index.shape[0], n)), jnp.zeros_like(of_rate)
        if doses.periods is not None:
            is_steady = (replaces & (kinds == STEADY_STATE)) | adds
            period, late = jnp.where(is_steady, doses.periods.astype(dtype)[index], 1), lags[index]
            # until `late` the last dose is one period earlier; a lag of a period or more has no such meaning
            phase = jnp.where((late >= 0) & (late < period), period - late, jnp.nan)
            phase = jnp.where(is_steady, phase, period)
            last = jnp.where(is_steady, lasting[index], 0)
            found = jax.vmap(steady)(Steady(at, period, phase, last, of_bolus, of_rate))
            replaced = jnp.where(is_steady[:, None], found, replaced)
            for k in range(doses.overlaps):
                left = last - phase - k * period  # of the infusion that began `k + 1` periods before the last one
                on = jnp.where((left > 0)[:, None], of_rate, 0)
                flowing = flowing + on
                ends.append((block(at + jnp.maximum(left, 0), ENDS, change=-on), own))
            if doses.durations is not None:
                too_long = last - phase - doses.overlaps * period > 0
                flowing = jnp.where(too_long[:, None], jnp.nan, flowing)
        more = {"bolus": jnp.where(adds[:, None], replaced, 0), "change": jnp.where(adds[:, None], flowing, 0)}
        blocks.append(block(at, RESETS, resets=replaces, amounts=replaced, rates=flowing, **more))
        begun.append(own)
    blocks, begun = blocks + [x for x, _ in ends], begun + [x for _, x in ends]
    rows = jax.tree.map(lambda *x: jnp.concatenate(x), *blocks)
    order = jnp.lexsort((rows.order, rows.times))
    rows = jax.tree.map(lambda x: x[order], rows)
    if doses.resets is not None and ends:  # an infusion ends only if amounts were not replaced since it began
        place = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
        epoch = jnp.cumsum(rows.resets)
        stopped = (rows.order == ENDS) & (epoch[place[jnp.concatenate(begun)[order]]] != epoch)
        rows = rows._replace(change=jnp.where(stopped[:, None], 0, rows.change))
    return rows
