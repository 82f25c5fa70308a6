"""Finite volumes compared with exact solutions: errors of shock tubes, the order in smooth flow, and positivity."""

import functools as ft
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import verify
from sciml.models import Euler
from sciml.spatial import WENO5, WENO5Z, Grid, Muscl, Outflow, Periodic, Reflecting

from ._harness import Candidate, Group, Measured, in_float64, report

CELLS, FINE = (200, 400), 1200
SCHEMES = {"Muscl": Muscl(), "WENO5Z": WENO5Z()}
TUBES = {
    "Sod": ((1.0, 0.0, 1.0), (0.125, 0.0, 0.1), 0.2, 0.5),
    "Lax": ((0.445, 0.698, 3.528), (0.5, 0.0, 0.571), 0.13, 0.5),
    "Toro 1, a sonic point": ((1.0, 0.75, 1.0), (0.125, 0.0, 0.1), 0.2, 0.3),
    "Toro 2, two rarefactions": ((1.0, -2.0, 0.4), (1.0, 2.0, 0.4), 0.15, 0.5),
    "Toro 3, a blast": ((1.0, 0.0, 1000.0), (1.0, 0.0, 0.01), 0.012, 0.5),
}
"""Left, right, the time, and where the jump is, in a tube of length 1."""


def shu_osher(x: jax.Array) -> jax.Array:
    """A shock of Mach 3 that runs into ripples of the density, in a tube of ten lengths that are one here."""
    place = 10 * x - 5
    behind, ahead = (
        jnp.array([3.857143, 2.629369, 10.33333]),
        jnp.stack([1 + 0.2 * jnp.sin(5 * place), 0 * x, 0 * x + 1]),
    )
    return jnp.where((place < -4)[None], behind[:, None], ahead)


def woodward_colella(x: jax.Array) -> jax.Array:
    """Two blasts between walls that collide."""
    pressure = jnp.where(x < 0.1, 1000.0, jnp.where(x > 0.9, 100.0, 0.01))
    return jnp.stack([0 * x + 1, 0 * x, pressure])


@ft.cache
def _solver(scheme: str, cells: int, walls: bool) -> Callable[..., Any]:
    law = Euler(Grid(cells), Reflecting() if walls else Outflow(), reconstruction=SCHEMES[scheme])

    def solve(w: jax.Array, t: jax.Array) -> tuple:
        sol = sciml.solve(law, law.conserved(w), t0=0.0, t1=t, throw=False, max_steps=40_000)
        return law.primitive(sol.ys[-1]), sol.stats.accepted

    return jax.jit(solve)


def _jump(left: Any, right: Any, at: float) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jnp.where((x < at)[None], jnp.asarray(left)[:, None], jnp.asarray(right)[:, None])


@ft.cache
def _fine(name: str) -> np.ndarray:
    start, t, walls = OTHERS[name]
    w, _ = _solver("WENO5Z", FINE, walls)(start(Grid(FINE).centers[0]), t)
    return np.asarray(w[0])


OTHERS = {"Shu-Osher": (shu_osher, 0.18, False), "Woodward-Colella": (woodward_colella, 0.038, True)}


def _row(name: str, scheme: str, kept: dict) -> Candidate:
    def build() -> Callable[[], Any]:
        def run() -> list[float]:
            errors = []
            for cells in CELLS:
                (x,) = Grid(cells).centers
                if name in TUBES:
                    left, right, t, at = TUBES[name]
                    start, walls = _jump(left, right, at), False
                    exact = verify.reference("riemann_euler", jnp.array(left), jnp.array(right), (x - at) / t)[0]
                else:
                    start, t, walls = OTHERS[name]
                    exact = _fine(name).reshape(cells, -1).mean(1)
                w, steps = _solver(scheme, cells, walls)(start(x), t)
                kept[name, scheme, cells] = float(jnp.mean(jnp.abs(w[0] - exact))), int(steps), float(w[0].min())
                errors.append(kept[name, scheme, cells][0])
            return errors

        found = run()  # once: nothing is timed
        return lambda: found

    return Candidate(f"{name}, {scheme}", in_float64(build), error=lambda errors: errors[-1])


def _tubes() -> Group:
    kept: dict[tuple[str, str, int], tuple[float, int, float]] = {}

    def table(group: Group, measured: list[Measured]) -> str:
        """Errors only: times are those of `python -m benchmarks euler`."""
        failed = [f"{row.label}: {row.failure}" for row in measured if row.failure]
        head = [f"{scheme}, {cells}" for scheme in SCHEMES for cells in CELLS]
        lines = [
            f"### {group.title}",
            "",
            "| | " + " | ".join(head) + " | least density |",
            "|---" * (len(head) + 2) + "|",
        ]
        for name in (*TUBES, *OTHERS):
            cells = [f"{kept[name, s, n][0]:.5f} ({kept[name, s, n][1]})" for s in SCHEMES for n in CELLS]
            least = min(kept[name, s, n][2] for s in SCHEMES for n in CELLS)
            lines.append("| " + " | ".join([name, *cells, f"{least:.4f}"]) + " |")
        return "\n".join([*lines, "", *failed])

    rows = [_row(name, scheme, kept) for name in (*TUBES, *OTHERS) for scheme in SCHEMES]
    title = (
        f"Mean error of the density (and steps) with {CELLS[0]} and {CELLS[1]} cells, float64, HLLC, Courant number "
        f"0.45: compared with the exact solution, the last two with WENO5Z on {FINE} cells"
    )
    return Group(title, rows, repeats=1, table=table)


def _vortex(reconstruction: Any) -> list[float]:
    errors = []
    for cells in (40, 80):
        grid = Grid((cells, cells), -7.0, 7.0)
        law = Euler(grid, Periodic(), reconstruction=reconstruction, limiter=None)
        vortex = ft.partial(verify.reference, "isentropic_vortex", *grid.centers, velocity=(1.0, 0.5), period=14.0)

        @jax.jit
        def solve(y: jax.Array, law: Euler = law, cells: int = cells) -> jax.Array:
            dt = 0.5 / (10 * (cells / 40) ** 2)  # the error in time does not count
            return law.primitive(sciml.solve(law, y, t0=0.0, t1=0.5, dt=dt).ys[-1])

        errors.append(float(jnp.mean(jnp.abs(solve(law.conserved(vortex(0.0)))[0] - vortex(0.5)[0]))))
    return errors


def _problems(count: int) -> tuple[int, float, float]:
    """Random states of nine orders of magnitude; returns how many failed, and the least density and pressure."""
    draw = np.random.default_rng(0)
    size = 4 * 10 ** draw.uniform(-1, 1, count)
    states = [
        np.stack([10 ** draw.uniform(-6, 3, count), size * draw.normal(size=count), 10 ** draw.uniform(-6, 3, count)])
        for _ in range(2)
    ]
    law = Euler(Grid(16), Outflow(), reconstruction=WENO5Z())
    (x,) = law.volumes.grid.centers

    @jax.jit
    @ft.partial(jax.vmap, in_axes=1)
    def solve(left: jax.Array, right: jax.Array) -> tuple:
        y = law.conserved(_jump(left, right, 0.5)(x))
        sol = sciml.solve(law, y, t0=0.0, t1=4.0 / law.crossing_rate(0.0, y, None), throw=False)
        return jnp.stack([jnp.min(p) for p in law.positive(sol.ys[-1])]), sol.status

    least, status = solve(*map(jnp.asarray, states))
    return int(jnp.sum(status != 0)), float(least[:, 0].min()), float(least[:, 1].min())


def _other_checks() -> Group:
    def kept(run: Callable[[], Any], say: Callable[[Any], str]) -> Callable[[], Callable[[], Any]]:
        def build() -> Callable[[], Any]:
            found = run()
            report(say(found))
            return lambda: found

        return in_float64(build)

    def order(name: str) -> Callable[[Any], str]:
        return lambda e: (
            f"- An isentropic vortex by {name}: mean error of the density {e[0]:.2e} on 40 x 40 and {e[1]:.2e} on "
            f"80 x 80 cells, order {np.log2(e[0] / e[1]):.2f}."
        )

    rows = [
        Candidate(f"vortex, {type(r).__name__}", kept(ft.partial(_vortex, r), order(type(r).__name__)))
        for r in (WENO5(), WENO5Z())
    ]
    count = 10_000

    def positive(found: tuple[int, float, float]) -> str:
        return (
            f"- {count} random Riemann problems by WENO5Z with the positivity limiter, 16 cells: {found[0]} failed; "
            f"least density {found[1]:.1e}, least pressure {found[2]:.1e}."
        )

    rows.append(Candidate("random Riemann problems", kept(lambda: _problems(count), positive)))
    return Group("Order and positivity", rows, repeats=1, table=lambda group, measured: "\n".join(
        f"- {row.label} failed: {row.failure}" for row in measured if row.failure
    ))  # fmt: skip


def groups() -> list[Group]:
    return [_tubes(), _other_checks()]
