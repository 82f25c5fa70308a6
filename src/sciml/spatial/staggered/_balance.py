"""Whether as much fluid enters a box as leaves it, where no side lets it pass freely: else no velocity is right."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..._checks import concrete
from ..._types import Args, RealScalarLike
from .._conditions import Dirichlet, Neumann, Periodic, evaluated
from ..geometry._orthogonal_grid import OrthogonalGrid

_ROUNDING = 1e3
"""How far sums over two sides that balance may be apart, in units of their precision times what passes."""


class _Side(NamedTuple):
    """A side through which the fluid passes at a given velocity: the axis, 1 where that leaves the box, the value."""

    axis: int
    sign: float
    value: Any


def check_balance(velocity: Any) -> None:
    """Refuses sides whose known velocities do not balance.

    Raises:
        ValueError: If they do not.
    """
    sides = [side for side in _closed_sides(velocity) if not callable(side.value)]
    if sides and len(sides) == len(_closed_sides(velocity)) and all(concrete(side.value) for side in sides):
        _check(velocity, sides)


def balanced(velocity: Any, t: RealScalarLike | None, args: Args) -> Bool[Array, ""] | None:
    """Returns whether inflow and outflow balance, if they are traced; None if the balance is known.

    Args:
        velocity: The faces, a `StaggeredVelocity`.
        t: The time, for values at sides that are functions.
        args: Their second argument.

    Raises:
        ValueError: If all numbers are known and do not balance.
    """
    sides = [side._replace(value=evaluated(side.value, t, args)) for side in _closed_sides(velocity)]
    if not sides:
        return None
    if all(concrete(side.value) for side in sides):
        _check(velocity, sides)
        return None
    return _holds(*_net_and_gross(velocity, sides, jnp), _precision(sides))


def _closed_sides(velocity: Any) -> list[_Side]:
    """The sides of a box without an outlet at which a velocity across is given; none where there is an outlet."""
    found = []
    for axis, pair in enumerate(velocity.sides):
        for sign, side in zip((-1.0, 1.0), pair):
            if isinstance(side, Periodic):
                continue
            across = side.velocity(axis, axis)
            if not (isinstance(across, Dirichlet) and isinstance(side.pressure(), Neumann)):
                return []
            found.append(_Side(axis, sign, across.value))
    return found


def _check(velocity: Any, sides: list[_Side]) -> None:
    net, gross = _net_and_gross(velocity, sides, np)
    if not _holds(net, gross, _precision(sides)):
        enters, leaves = (gross - net) / 2, (gross + net) / 2
        raise ValueError(
            f"`boundary`: {enters:.6g} enters the box per unit of time and {leaves:.6g} leaves it, but an "
            "incompressible flow requires equal rates. Make one side a `PressureOutlet()`, or scale the velocities at "
            "the sides so that their sums over faces balance."
        )


def _precision(sides: list[_Side]) -> float:
    return max(float(jnp.finfo(jnp.result_type(side.value, float)).eps) for side in sides)


def _holds(net: Any, gross: Any, precision: float) -> Any:
    return abs(net) <= _ROUNDING * precision * gross  # false for NaN


def _net_and_gross(velocity: Any, sides: list[_Side], xp: Any) -> tuple[Any, Any]:
    """The volume that leaves through all sides per time, less what enters, and the sum of both."""
    grid = velocity.grid if velocity.blocks is None else velocity.blocks.grid
    net = gross = 0.0
    for axis, sign, value in sides:
        areas = np.ones(())
        for other in range(grid.ndim):
            if other != axis:
                widths = _widths(grid, other)
                areas = areas[..., None] * widths
        value = xp.asarray(value)
        if value.ndim == 0:
            flux = value * float(areas.sum())
        elif value.ndim <= areas.ndim and all(n in (1, m) for n, m in zip(value.shape[::-1], areas.shape[::-1])):
            flux = value * areas.astype(value.dtype)
        else:
            return 0.0, 0.0  # of a shape that is refused where it is used
        net, gross = net + sign * xp.sum(flux), gross + xp.sum(abs(flux))
    return net, gross


def _widths(grid: Any, axis: int) -> np.ndarray:
    if isinstance(grid, OrthogonalGrid):
        return np.asarray(grid.widths(axis))
    return np.full(grid.shape[axis], grid.spacing[axis])
