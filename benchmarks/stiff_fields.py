"""Two species on a line and on a plane, 200 to 40,000 unknowns, beside CVODE, and by which power of them costs grow.

CVODE is C, with the field in NumPy; it runs only where it is installed (`make bench` installs it).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._harness import Candidate, Group, Measured, in_float64, jitted
from .stiff_groups import (
    METHODS,
    brusselator,
    brusselator_on_a_grid,
    exact,
    ours,
    relative,
    start,
    start_on_a_grid,
    with_winner,
)

CELLS = (100, 200, 1000, 5000, 20000)
SIDES = (10, 16, 32, 64, 141)
WIDEST = 32  # points along a side to which CVODE is asked to factorise a band: above it takes minutes


def _cvode(cells: int, rtol: float, atol: float) -> Callable[[], Callable[[], Any]]:
    def build() -> Callable[[], Any]:
        from sksundae.cvode import CVODE  # pyright: ignore[reportMissingImports]

        def field(t: float, y: np.ndarray, rate: np.ndarray) -> None:
            u, v = y[0::2], y[1::2]
            spread = (cells + 1) ** 2 / 50
            wide_u, wide_v = np.empty(cells + 2), np.empty(cells + 2)
            wide_u[1:-1], wide_u[0], wide_u[-1] = u, 1.0, 1.0
            wide_v[1:-1], wide_v[0], wide_v[-1] = v, 3.0, 3.0
            product = u * u * v
            rate[0::2] = 1 + product - 4 * u + spread * (wide_u[2:] - 2 * u + wide_u[:-2])
            rate[1::2] = 3 * u - product + spread * (wide_v[2:] - 2 * v + wide_v[:-2])

        solver = CVODE(field, rtol=rtol, atol=atol, linsolver="band", lband=2, uband=2)
        y0 = start(cells)
        return lambda: solver.solve(np.array([0.0, 10.0]), y0).y[-1]

    return build


def _cvode_on_a_grid(side: int, rtol: float, atol: float, **linear: Any) -> Callable[[], Callable[[], Any]]:
    def build() -> Callable[[], Any]:
        from sksundae.cvode import CVODE  # pyright: ignore[reportMissingImports]

        def field(t: float, y: np.ndarray, rate: np.ndarray) -> None:
            state = y.reshape(side, side, 2)
            wide = np.pad(state, ((1, 1), (1, 1), (0, 0)), mode="edge")
            around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * state
            u, v = state[..., 0], state[..., 1]
            product = u * u * v
            found = np.stack([1 + product - 4.4 * u, 3.4 * u - product], axis=-1) + side**2 / 500 * around
            rate[:] = found.reshape(-1)

        solver = CVODE(field, rtol=rtol, atol=atol, **linear)
        y0 = start_on_a_grid(side)
        return lambda: solver.solve(np.array([0.0, 1.0]), y0).y[-1]

    return build


def _both(run: Callable, start: jax.Array, error: Callable[[Any], float]) -> list[Candidate]:
    """A row for each method of sciml."""
    return [
        Candidate(f"sciml, {name}", in_float64(jitted(partial(run, solver=solver), start)), error=error)
        for name, solver in METHODS.items()
    ]


class Growth:
    """The tables of one problem at several sizes, and below the last of them how the cost grows with the size.

    Attributes:
        sizes: The numbers of unknowns, in the order in which they are measured.
    """

    def __init__(self, sizes: Sequence[int]):
        self.sizes, self._medians = tuple(sizes), {}

    def table(self, size: int, group: Group, measured: list[Measured]) -> str:
        """Returns the table of a size."""
        for row in measured:
            if row.times:
                self._medians.setdefault(row.label, {})[size] = row.median
        text = with_winner(group, measured)
        return f"{text}\n{self._fits()}" if size == self.sizes[-1] else text

    def _fits(self) -> str:
        peers = [times for label, times in self._medians.items() if not label.startswith("sciml")]
        lines = []
        for label, times in self._medians.items():
            if len(times) < 3:
                continue
            power = np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0]
            line = f"{label}: time proportional to n^{power:.2f}"
            best = {n: min((peer[n] for peer in peers if n in peer), default=np.nan) for n in times}
            if label.startswith("sciml") and not all(np.isnan(list(best.values()))):
                ratios = ", ".join(f"{times[n] / best[n]:.2f} at {n}" for n in times)
                line += f"; times that of the fastest of CVODE's: {ratios}"
            lines.append(line + ".")
        return "\n".join(lines) + "\n"


def _line(cells: int, growth: Growth) -> Group:
    y0, rtol, atol = start(cells), 1e-5, 1e-7
    with jax.enable_x64(True):
        y = jnp.asarray(y0)
    error = relative(exact(brusselator, y0, 10.0), 1e-3)
    rows = [
        *_both(lambda y, solver: ours(brusselator, y, 10.0, rtol, atol, solver), y, error),
        Candidate("CVODE, BDF with a band", _cvode(cells, rtol, atol), "sciml, Rodas5P", error),
        Candidate("CVODE at a tenth of the tolerance", _cvode(cells, rtol / 10, atol / 10), "sciml, Rodas5P", error),
    ]
    title = f"Brusselator on a line of {cells} points, {2 * cells} unknowns, t to 10, rtol = {rtol:g}"
    return Group(title, rows, table=partial(growth.table, 2 * cells))


def _plane(side: int, growth: Growth) -> Group:
    y0, rtol, atol = start_on_a_grid(side), 1e-5, 1e-7
    with jax.enable_x64(True):
        y = jnp.asarray(y0)
    error = relative(exact(brusselator_on_a_grid, y0, 1.0), 1e-3)
    band = dict(linsolver="band", lband=2 * side, uband=2 * side)
    rows = [
        *_both(lambda y, solver: ours(brusselator_on_a_grid, y, 1.0, rtol, atol, solver), y, error),
        Candidate(
            "CVODE, BDF with GMRES", _cvode_on_a_grid(side, rtol, atol, linsolver="gmres"), "sciml, Rodas5P", error
        ),
    ]
    if side <= WIDEST:
        build = _cvode_on_a_grid(side, rtol, atol, **band)
        rows.append(Candidate("CVODE, BDF with a band", build, "sciml, Rodas5P", error))
    title = f"Brusselator on {side} x {side} points, {2 * side**2} unknowns, t to 1, rtol = {rtol:g}"
    return Group(title, rows, table=partial(growth.table, 2 * side**2))


def groups() -> list[Group]:
    line, plane = Growth([2 * n for n in CELLS]), Growth([2 * n * n for n in SIDES])
    return [*(_line(n, line) for n in CELLS), *(_plane(n, plane) for n in SIDES)]
