"""Starts of branches: steady states, limit cycles, and the cycles that begin at special points."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..solvers.methods._ravel import flattened
from ._orbits import LimitCycle, Near, Orbits, orbits, phase_weights
from ._problem import Equilibria


class BranchStart(eqx.Module):
    """The start of a branch.

    Attributes:
        kind: `state`, `cycle`, `hopf` for the cycles of a Hopf point, or `doubling` for cycles of twice the period.
        direction: Of a special point its direction.
        frequency: Of a Hopf point the angular frequency.
        cycle: The cycle, if it is one.
        intervals: The number of intervals of cycles from a Hopf point.
    """

    kind: str = eqx.field(static=True)
    direction: Any = None
    frequency: Any = None
    cycle: LimitCycle | None = None
    intervals: int = eqx.field(static=True, default=0)


def started(steady: Equilibria, start: BranchStart) -> tuple[Equilibria | Orbits, Array | None]:
    """Returns the equations of a branch with their start, and its direction there, if that is known.

    Args:
        steady: The equations of steady states.
        start: The start.
    """
    start = jax.lax.stop_gradient(start)
    if start.kind == "hopf":
        return _at_hopf_point(steady, start)
    if start.kind == "doubling" and start.cycle is not None:
        return _at_period_doubling(steady, start, start.cycle)
    ahead, problem = None, steady
    if start.cycle is not None:
        x, widths = _nodes_of(start.cycle)
        problem = orbits(steady, x, start.cycle.period, _near(steady, x, widths))
    if start.direction is not None:
        way, slope = start.direction
        parts = flattened(way) if start.cycle is None else jnp.append(_nodes_of(way)[0], way.period)
        ahead = jnp.append(parts, slope.astype(parts.dtype))
    return problem, ahead


def _nodes_of(cycle: LimitCycle) -> tuple[Float[Array, "nodes n"], Float[Array, " nodes"]]:
    """Returns the states at the nodes, without the last, and the intervals relative to the period."""
    return jax.vmap(flattened)(cycle.ys)[:-1], jnp.diff(cycle.ts) / cycle.period


def _near(steady: Equilibria, x: Array, widths: Array) -> Near:
    parameter = steady.start[x.shape[1] :]
    rates = jax.vmap(lambda x: steady.equations(jnp.append(x, parameter), steady.constants))(x)
    return Near(widths, x, phase_weights(x, widths, rates))


def _at_hopf_point(steady: Equilibria, start: BranchStart) -> tuple[Orbits, Array]:
    r"""The cycles $x + \epsilon (a \cos \omega t - b \sin \omega t)$ of a Hopf point, from $\epsilon = 0$."""
    rest, parameter = steady.start[:-1], steady.start[-1:]
    a, omega = flattened(start.direction[0]).astype(rest.dtype), start.frequency.astype(rest.dtype)
    _, slope = jax.jvp(lambda x: steady.equations(jnp.append(x, parameter), steady.constants), (rest,), (a,))
    b = -slope / omega
    angles = (2 * jnp.pi * jnp.arange(start.intervals, dtype=rest.dtype) / start.intervals)[:, None]
    a, b = a[None], b[None]
    wave, rate = a * jnp.cos(angles) - b * jnp.sin(angles), -a * jnp.sin(angles) - b * jnp.cos(angles)
    x, widths = jnp.broadcast_to(rest[None], wave.shape), jnp.full_like(angles[:, 0], 1 / start.intervals)
    near = Near(widths, x, phase_weights(wave, widths, rate))
    return orbits(steady, x, 2 * jnp.pi / omega, near), jnp.append(wave.reshape(-1), jnp.zeros(2, rest.dtype))


def _at_period_doubling(steady: Equilibria, start: BranchStart, cycle: LimitCycle) -> tuple[Orbits, Array]:
    """The cycles of twice the period, from the cycle itself: a change has the other sign in the second half."""
    x, widths = _nodes_of(cycle)
    change, _ = _nodes_of(start.direction[0])
    x, widths = jnp.concatenate([x, x]), jnp.concatenate([widths, widths]) / 2
    ahead = jnp.concatenate([change.reshape(-1), -change.reshape(-1), jnp.zeros(2, x.dtype)])
    return orbits(steady, x, 2 * cycle.period, _near(steady, x, widths)), ahead
