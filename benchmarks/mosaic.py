"""The tasks of Mosaic (pasteurlabs/mosaic) that ask for flow in three dimensions and around a cylinder.

Vortices of Taylor and Green in a periodic box, 50 steps of 0.01: the error on 16 points along each axis, and what
solve and gradient cost beside exponax. A channel with a cylinder, whose drag is differentiated by the 32 values of the
velocity at its inlet. Sizes, viscosities, steps and starts are Mosaic's.
"""

import functools as ft
import math
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml.models import IncompressibleFlow, NavierStokes3D, Obstacle
from sciml.solvers import ETDRK, SSPRK33
from sciml.spatial import Grid, NoSlip, PressureOutlet, VelocityInlet

from ._harness import Candidate, Group, Measured, duration, in_float64, report

SMALL, SIZES = 16, (32, 48)
VISCOSITIES = (0.001, 0.01, 0.05)
END, STEPS = 0.5, 50
FINE = 32  # points of the reference


def vortices(points: int, dtype: Any = None) -> jax.Array:
    """The start: a wave of one length along each axis, at points that begin in the corner."""
    places = 2 * math.pi * np.arange(points) / points
    x, y, z = np.meshgrid(places, places, places, indexing="ij")
    u = np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * x])
    return jnp.asarray(u, dtype or jnp.result_type(float))


def box(points: int) -> Grid:
    """The periodic box."""
    return Grid((points,) * 3, 0.0, 2 * math.pi)


def kept(u: np.ndarray, points: int) -> np.ndarray:
    """The waves of a field that fewer points can hold, as values there."""
    modes, axes = np.fft.rfftn(u, axes=(1, 2, 3)), (1, 2, 3)
    numbers = [np.fft.fftfreq(u.shape[1], 1 / u.shape[1])] * 2 + [np.fft.rfftfreq(u.shape[1], 1 / u.shape[1])]
    for axis, k in zip(axes, numbers, strict=True):
        modes = np.take(modes, np.flatnonzero(np.abs(k) < points / 2), axis=axis)
    low = np.zeros((3, points, points, points // 2 + 1), complex)
    whole = np.r_[0 : points // 2, points // 2 + 1 : points]
    low[np.ix_(range(3), whole, whole, range(points // 2))] = modes
    return np.fft.irfftn(low, s=(points,) * 3, axes=axes) * (points / u.shape[1]) ** 3


@ft.cache
def reference(viscosity: float, points: int) -> np.ndarray:
    """The end on a fine grid, without the waves that `points` cannot hold."""
    fine = max(FINE, points)
    with jax.enable_x64(True):
        model = NavierStokes3D(box(fine), viscosity, dealiasing="three_halves")
        solve = jax.jit(lambda u: sciml.solve(model, u, t0=0.0, t1=END, dt=END / STEPS, solver=ETDRK(order=4)).ys[-1])
        return kept(np.asarray(solve(vortices(fine))), points)


def apart(viscosity: float, points: int) -> Callable[[Any], float]:
    """The difference from the reference over the reference, in the mean square, as Mosaic has it."""

    def error(found: Any) -> float:
        wanted = reference(viscosity, points)
        return float(np.linalg.norm(np.asarray(found, np.float64) - wanted) / np.linalg.norm(wanted))

    return error


def ours(
    points: int, viscosity: float, solver: Any, steps: int, dealiasing: Any, **adjoint: Any
) -> Callable[[jax.Array], jax.Array]:
    """A solve by sciml."""
    model = NavierStokes3D(box(points), viscosity, dealiasing=dealiasing)
    return lambda u: sciml.solve(model, u, t0=0.0, t1=END, dt=END / steps, solver=solver, **adjoint).ys[-1]


def theirs(points: int, viscosity: float, order: int, steps: int) -> Callable[[jax.Array], jax.Array] | None:
    """A solve by exponax as Mosaic sets it, with all modes; None where it is not installed."""
    try:
        import exponax  # in the extra `bench`
    except ImportError:
        return None
    step = exponax.stepper.NavierStokesVelocity(
        3, 2 * math.pi, points, END / steps, diffusivity=viscosity, order=order, dealiasing_fraction=1.0
    )
    return exponax.repeat(step, steps)


MISSING = "exponax is not installed (the extra `bench`): its rows are missing."


def _errors() -> Group:
    found: dict[tuple[str, float], float] = {}
    codes = {
        "sciml, ETDRK2, 50 steps, ThreeHalves": lambda nu: ours(SMALL, nu, ETDRK(order=2), STEPS, "three_halves"),
        "sciml, ETDRK4, 10 steps, ThreeHalves": lambda nu: ours(SMALL, nu, ETDRK(order=4), STEPS // 5, "three_halves"),
        "sciml, ETDRK4, 10 steps, TwoThirds": lambda nu: ours(SMALL, nu, ETDRK(order=4), STEPS // 5, "two_thirds"),
        "exponax, ETDRK2, 50 steps": lambda nu: theirs(SMALL, nu, 2, STEPS),
    }

    def row(name: str, code: Callable) -> Candidate | None:
        if code(VISCOSITIES[0]) is None:
            return None

        def build() -> Callable[[], Any]:
            for nu in VISCOSITIES:
                found[name, nu] = apart(nu, SMALL)(jax.jit(code(nu))(vortices(SMALL)))
            return lambda: [found[name, nu] for nu in VISCOSITIES]

        return Candidate(name, build, error=max)

    rows = [one for one in (row(name, code) for name, code in codes.items()) if one is not None]

    def table(group: Group, measured: list[Measured]) -> str:
        lines = ["", f"### {group.title}", "", "| | " + " | ".join(f"viscosity {nu:g}" for nu in VISCOSITIES) + " |"]
        lines.append("|---" * (1 + len(VISCOSITIES)) + "|")
        for one in measured:
            cells = [one.failure] if one.failure else [f"{found[one.label, nu]:.1e}" for nu in VISCOSITIES]
            lines.append("| " + " | ".join([one.label, *cells]) + " |")
        return "\n".join(lines if len(rows) == len(codes) else [*lines, "", MISSING])

    title = f"Vortices of Taylor and Green, {SMALL}^3 points, t = {END:g}, float32: error beside {FINE}^3 points"
    return Group(title, rows, repeats=1, table=table)


def _costs(points: int) -> Group:
    memory: dict[str, int] = {}
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(3,) + (points,) * 3), jnp.float32)
    start, nu = vortices(points, jnp.float32), VISCOSITIES[1]

    def gradient(solve: Callable) -> Callable:
        return lambda u: jax.vjp(solve, u)[1](weights)[0]

    def compiled(label: str, fn: Callable) -> Callable[[], Callable[[], Any]]:
        def build() -> Callable[[], Any]:
            program = jax.jit(fn).lower(start).compile()
            memory[label] = program.memory_analysis().temp_size_in_bytes
            return lambda: jax.block_until_ready(program(start))

        return build

    codes = {
        "exponax, ETDRK2, 50 steps": theirs(points, nu, 2, STEPS),
        "sciml, ETDRK2, 50 steps": ours(points, nu, ETDRK(order=2), STEPS, "two_thirds"),
        "exponax, ETDRK4, 10 steps": theirs(points, nu, 4, STEPS // 5),
        "sciml, ETDRK4, 10 steps": ours(points, nu, ETDRK(order=4), STEPS // 5, "two_thirds"),
    }
    installed = {name: code for name, code in codes.items() if code is not None}
    base = next(iter(codes))
    rows = [
        Candidate(name, compiled(name, code), base if name != base else None, apart(nu, points))
        for name, code in installed.items()
    ]
    plain = ours(points, nu, ETDRK(order=2), STEPS, "two_thirds", adjoint=sciml.adjoints.Direct())
    for name, code in {**installed, "sciml, ETDRK2, 50 steps, Direct()": plain}.items():
        label = f"{name}, gradient"
        rows.append(Candidate(label, compiled(label, gradient(code)), f"{base}, gradient" if name != base else None))

    def table(group: Group, measured: list[Measured]) -> str:
        """With the memory, and that of the first row of its kind."""
        by_label = {one.label: one for one in measured}
        head = ["", "median", "time over exponax's 50 steps", "temporary memory", "over exponax's", "compile", "error"]
        lines = ["", f"### {group.title}", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for one in measured:
            if one.failure:
                lines.append(f"| {one.label} | failed: {one.failure} |")
                continue
            first = by_label.get(one.against or "")
            ratio = f"{one.median / first.median:.2f}" if first else ""
            share = f"{memory[one.label] / memory[first.label]:.2f}" if first else ""
            error = "" if math.isnan(one.error) else f"{one.error:.1e}"
            size = f"{memory[one.label] / 2**20:.1f} MiB"
            cells = [one.label, duration(one.median), ratio, size, share, duration(one.compile), error]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines if len(installed) == len(codes) else [*lines, "", MISSING])

    title = f"Vortices of Taylor and Green, {points}^3 points, t = {END:g}, viscosity {nu:g}, float32, end state"
    return Group(title, rows, repeats=5, table=table)


CELLS, SPEED, RADIUS = 32, 0.5, 0.05


def mean_drag(profile: jax.Array, steps: int = 200) -> jax.Array:
    """The drag over the density of a cylinder in a channel at a Reynolds number of 20, the mean of the later half.

    The body is one and a half cells thick, as in Mosaic, and the flow leaves through an outlet; there the box is
    periodic, and what enters is written over it.
    """
    grid = Grid((CELLS, CELLS))
    x, y = grid.centers
    share = jnp.clip(0.5 - (jnp.hypot(x - 0.5, y - 0.5) - RADIUS) * CELLS, 0.0, 1.0)
    cylinder = Obstacle(share, time=0.02)
    sides = {"x-": VelocityInlet((profile, 0.0)), "x+": PressureOutlet(), "y": NoSlip()}
    flow = IncompressibleFlow(grid, sides, viscosity=0.0025, forces=[cylinder])
    dt = 0.02
    times = dt * np.arange(steps // 2 + 1, steps + 1)
    late = diffrax.SaveAt(ts=times, fn=lambda t, y, args: cylinder.force(flow, y)[0])
    start = flow.start((SPEED, 0.0))
    return jnp.mean(sciml.solve(flow, start, t0=0.0, t1=times[-1], dt=dt, solver=SSPRK33(), saveat=late).ys)


def cosine_with_differences(step: float = 1e-4, steps: int = 200) -> tuple[float, float]:
    """The cosine between the gradient by the 32 values at the inlet and central differences, and the drag."""
    profile = jnp.full(CELLS, SPEED)
    drag, gradient = jax.jit(jax.value_and_grad(lambda p: mean_drag(p, steps)))(profile)
    moved = step * jnp.concatenate([jnp.eye(CELLS), -jnp.eye(CELLS)])
    drags = jax.jit(jax.vmap(lambda d: mean_drag(profile + d, steps)))(moved)
    central = (drags[:CELLS] - drags[CELLS:]) / (2 * step)
    cosine = jnp.vdot(gradient, central) / (jnp.linalg.norm(gradient) * jnp.linalg.norm(central))
    return float(cosine), float(drag)


def _channel() -> Group:
    def build() -> Callable[[], Any]:
        cosine, drag = cosine_with_differences()
        report(
            f"- A channel of {CELLS} x {CELLS} cells with a cylinder, Re = 20, 200 steps: drag {drag:.4f}; cosine "
            f"between its gradient by {CELLS} values at the inlet and central differences: 1 - {1 - cosine:.0e}."
        )
        return lambda: cosine

    rows = [Candidate("the gradient of a drag", in_float64(build))]
    return Group("A channel with a cylinder", rows, repeats=1, table=lambda group, measured: "\n".join(
        f"- {row.label} failed: {row.failure}" for row in measured if row.failure
    ))  # fmt: skip


def groups() -> list[Group]:
    return [_errors(), *(_costs(points) for points in SIZES), _channel()]
