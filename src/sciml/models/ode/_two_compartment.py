"""A drug in two compartments, and what doses do to it."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import concrete
from ..._interfaces._events import Schedule
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class TwoCompartment(AbstractModel):
    r"""A drug in the blood, which exchanges it with tissue and is cleared of it; it may come from a depot.

    $$\dot d = -k_a d, \qquad
    \dot c = k_a d + r - (C\!L + Q) \frac{c}{V_1} + Q \frac{p}{V_2}, \qquad
    \dot p = Q \frac{c}{V_1} - Q \frac{p}{V_2}, \qquad \dot r = 0$$

    The state is $(d, c, p, r)$, shape `(4,)`: the amounts in the depot (the gut), in the central compartment (the
    blood) and in the peripheral one (tissue), and the rate of an infusion into the blood. It starts with zeros, and
    doses are events: `oral` into the depot, `boluses` and `infusions` into the blood, each a `sciml.Schedule`.

    Good values: the defaults are the means for miltefosine, in mg, litres and days; tablets give 150 mg a day for 28
    days. Without oral doses, the depot stays empty and `absorption` does not matter. One compartment is `exchange=0`.
    `sciml.verify.problem("two_compartment")` has the amounts after a dose in closed form.

    Attributes:
        clearance: $C\!L$, the volume of blood that is cleared in a unit of time.
        volume: $V_1$ of the central compartment.
        exchange: $Q$, the volume that both exchange in a unit of time.
        peripheral_volume: $V_2$.
        absorption: $k_a$ of the amount in the depot, 1/time.

    Source:
        M. Gibaldi and D. Perrier, Pharmacokinetics, 2nd edition, 1982, chapter 2. Values: T. P. C. Dorlo and others,
        Pharmacokinetics of miltefosine in Old World cutaneous leishmaniasis patients, Antimicrob. Agents Chemother.
        52:2855, 2008.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        drug = sciml.models.TwoCompartment()
        tablets = drug.oral(jnp.arange(28.0), jnp.full(28, 150.0))
        ts = jnp.linspace(0.0, 60.0, 61)
        sol = sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=60.0, saveat=ts, events=tablets)
        levels = drug.concentration(sol.ys)  # mg / litre
        assert 25 < levels.max() < 45 and levels[-1] < 3
        ```
    """

    clearance: Parameter = eqx.field(default=3.87, converter=parameter)
    volume: Parameter = eqx.field(default=39.6, converter=parameter)
    exchange: Parameter = eqx.field(default=0.0375, converter=parameter)
    peripheral_volume: Parameter = eqx.field(default=1.65, converter=parameter)
    absorption: Parameter = eqx.field(default=8.64, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 4"], args: Args) -> Float[Array, " 4"]:
        """Returns the rates of change of the amounts; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        depot, central, peripheral, infusion = y[0], y[1], y[2], y[3]
        absorbed = p.absorption * depot
        to_tissue = p.exchange * (central / p.volume - peripheral / p.peripheral_volume)
        cleared = p.clearance * central / p.volume
        return jnp.stack([-absorbed, absorbed + infusion - cleared - to_tissue, to_tissue, jnp.zeros_like(infusion)])

    def concentration(self, y: Float[Array, "*times 4"]) -> Float[Array, "*times"]:
        """Returns the concentration in the blood, of one state or of many."""
        return y[..., 1] / with_dtype(self, y.dtype).volume

    @staticmethod
    def oral(times: Any, amounts: Any) -> Schedule:
        """Returns doses that are swallowed: they go to the depot at once.

        Args:
            times: When, ascending, shape `(doses,)`; infinite ones at the end never come.
            amounts: How much, not negative, shape `(doses,)`. Where it is traced and negative, the state is NaN.

        Raises:
            ValueError: If a known amount is negative or not finite.
        """
        return Schedule(times, _swallow, _given(times, amounts))

    @staticmethod
    def boluses(times: Any, amounts: Any) -> Schedule:
        """Returns doses that are injected: they are in the blood at once. The arguments are the same as for `oral`."""
        return Schedule(times, _inject, _given(times, amounts))

    @staticmethod
    def infusions(times: Any, amounts: Any, durations: Any, start: Any = None) -> Schedule:
        """Returns doses that flow into the blood at a constant rate. They may overlap, and follow at once.

        Args:
            times: When each begins, shape `(doses,)`, in any order; infinite ones never come.
            amounts: How much each gives in all, not negative, shape `(doses,)`.
            durations: How long each takes, above zero, shape `(doses,)` or one for all.
            start: `t0` of the solve, where an infusion may have begun before it: from there on that flows into a state
                whose rate is zero. Without it such a start is refused, with `Status.invalid_argument`.

        Raises:
            ValueError: If a duration is not above zero, or a known amount is negative or not finite.

        Example:
            ```python
            import jax.numpy as jnp
            import sciml

            drug = sciml.models.TwoCompartment(clearance=0.0)
            drips = drug.infusions(jnp.array([0.0, 1.0]), jnp.array([50.0, 20.0]), 1.0)
            sol = sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=3.0, events=drips)
            assert abs(sol.ys[-1, 1:3].sum() - 70.0) < 0.01  # nothing is cleared, and both are in
            ```
        """
        starts = jnp.asarray(times)
        starts = starts.astype(jnp.result_type(float, starts))
        lasting = jnp.broadcast_to(jnp.asarray(durations, starts.dtype), starts.shape)
        comes, wrong = jnp.isfinite(starts), ~(lasting > 0)
        if concrete(wrong) and np.any(wrong):
            raise ValueError(
                f"`durations` of infusions must be positive, but are {durations}. For an instantaneous dose use a "
                "bolus."
            )
        amounts = _given(starts, jnp.broadcast_to(jnp.asarray(amounts, starts.dtype), starts.shape))
        rates = jnp.where(comes, amounts / jnp.where(comes & ~wrong, lasting, 1), 0)
        ends = starts + lasting
        if start is not None:
            start = jnp.asarray(start, starts.dtype)
            starts, ends = jnp.maximum(starts, start), jnp.maximum(ends, start)
        times = jnp.where(jnp.any(wrong), jnp.nan, jnp.concatenate([starts, ends]))
        return Schedule(*_merged(times, jnp.concatenate([rates, -rates])))


def _given(times: Any, amounts: Any) -> Array:
    """Returns amounts of doses; NaN for a traced one that is negative. Those of infinite times are not doses."""
    times, amounts = jnp.asarray(times), jnp.asarray(amounts)
    if amounts.shape != times.shape:  # the schedule explains it
        return amounts
    amounts = amounts if jnp.issubdtype(amounts.dtype, jnp.floating) else amounts.astype(float)
    wrong = ~((amounts >= 0) & (amounts < jnp.inf)) & jnp.isfinite(times)
    if concrete(wrong) and np.any(wrong):
        raise ValueError(f"`amounts` of doses must be finite and not negative, but are {amounts}.")
    return jnp.where(wrong, jnp.nan, amounts)


def _merged(times: Array, changes: Array) -> tuple[Array, Any, Array]:
    """Returns changes of the rate in order, those at one time as one; times that are left over are infinite."""
    order = jnp.argsort(times)
    times, changes = times[order], changes[order]
    first = jnp.concatenate([jnp.ones(1, bool), times[1:] > times[:-1]])
    together = jnp.zeros_like(changes).at[jnp.cumsum(first) - 1].add(changes)
    distinct = jnp.where(first, times, jnp.inf)
    return distinct[jnp.argsort(distinct)], _ChangeRate(), together


def _swallow(t, y, args, amount):
    return y.at[0].add(amount.astype(y.dtype))


def _inject(t, y, args, amount):
    return y.at[1].add(amount.astype(y.dtype))


class _ChangeRate(eqx.Module):
    """Changes the rate of an infusion."""

    def __call__(self, t, y, args, change):
        return y.at[3].add(change.astype(y.dtype))

    def lacks(self, y0, changes):
        """Returns whether an infusion flows at the start, and the state has no rate there."""
        rounding = 4 * jnp.finfo(changes.dtype).eps * jnp.sum(jnp.abs(changes))
        return (jnp.abs(jnp.sum(changes)) > rounding) & (y0[3] == 0)
