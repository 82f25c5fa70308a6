"""Shape optimisation: minimise the drag of a cylinder with a fixed cross-sectional area.

Run it with `python docs/tutorials/drag_shape.py`: it takes half a minute on a core and writes a figure into the
folder `--out`.

A cylinder stands in a stream with a Reynolds number of 20 (speed and diameter are 1). Its cross-section can become
longer, and blunt at one end and sharp at the other, with a fixed area. The incompressible Navier-Stokes equations,
solved in time, give the force on it and the gradient of the force with respect to the shape.
"""

import argparse
import pathlib
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml.models import FlowState, IncompressibleFlow, Obstacle
from sciml.solvers import SSPRK33
from sciml.spatial import FreeSlip, OrthogonalGrid, PressureOutlet, VelocityInlet, stretched_faces

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

jax.config.update(
    "jax_enable_x64", True
)  # finite differences of the drag need more digits than float32 has

HERE = pathlib.Path(__file__).resolve().parent
VISCOSITY, LET_THROUGH, WIDTH, DT = 1 / 20, 0.04, 0.18, 0.03
LONGEST = 4.0  # the largest length relative to the circle
ANGLES = jnp.linspace(0.0, 2 * jnp.pi, 257)[:-1]


def along(s: np.ndarray) -> np.ndarray:
    """From -5 to 10, finest at the body."""
    u = -1 + 2.35 * s
    return 2 * u + 3 * u**3


def across(s: np.ndarray) -> np.ndarray:
    """From -5 to 5."""
    u = -1 + 2 * s
    return 1.7 * u + 3.3 * u**3


GRID = OrthogonalGrid([stretched_faces(52, along), stretched_faces(40, across)])
SIDES = {"x-": VelocityInlet((1.0, 0.0)), "x+": PressureOutlet(), "y": FreeSlip()}


class Shape(NamedTuple):
    """An ellipse with different ends; zeros give a circle."""

    stretch: jax.Array
    egg: jax.Array


def radius(shape: Shape, angle: jax.Array) -> jax.Array:
    """The distance of the surface from the centre in a direction; the area is that of a circle with diameter 1."""

    def outline(angle):
        length = LONGEST ** jnp.tanh(shape.stretch)
        ellipse = 1 / jnp.hypot(jnp.cos(angle) / length, jnp.sin(angle) * length)
        return ellipse * (1 + 0.5 * jnp.tanh(shape.egg) * jnp.cos(angle))

    return 0.5 * outline(angle) / jnp.sqrt(jnp.mean(outline(ANGLES) ** 2))


def body(shape: Shape) -> Obstacle:
    """The obstacle, from the distances of the cells, to first order near the surface."""
    x, y = GRID.centers
    r, angle = jnp.hypot(x, y), jnp.arctan2(y, x)
    surface, turns = jax.jvp(lambda angle: radius(shape, angle), (angle,), (jnp.ones_like(angle),))
    distance = (r - surface) / jnp.hypot(1.0, turns / surface)
    return Obstacle.of_distance(distance, WIDTH, VISCOSITY, LET_THROUGH)


def run(shape: Shape, start: FlowState | None, end: float) -> tuple[jax.Array, FlowState]:
    """The drag coefficient after some time, and the flow."""
    obstacle = body(shape)
    flow = IncompressibleFlow(GRID, SIDES, viscosity=VISCOSITY, forces=[obstacle])
    begin = flow.start((1.0, 0.0)) if start is None else start
    sol = sciml.solve(flow, begin, t0=0.0, t1=end, dt=DT, solver=SSPRK33())
    y = jax.tree.map(lambda x: x[-1], sol.ys)
    return 2 * obstacle.force(flow, y)[
        0
    ], y  # divided by half of density times speed squared times diameter


settle = jax.jit(lambda shape: run(shape, None, 15.0))
drag = jax.jit(jax.value_and_grad(lambda shape, start: run(shape, start, 4.5), has_aux=True))


def check(shape: Shape, start: FlowState, gradient: Shape) -> None:
    """Compares the gradient with finite differences."""
    for name, slope in zip(Shape._fields, gradient):
        values = [
            drag(shape._replace(**{name: getattr(shape, name) + s}), start)[0][0]
            for s in (2e-3, -2e-3)
        ]
        difference = float(values[0] - values[1]) / 4e-3
        print(
            f"by {name}: {slope:.4f} by the adjoint, {difference:.4f} by finite differences",
            flush=True,
        )


def improve(
    shape: Shape, start: FlowState, steps: int
) -> tuple[Shape, list[float], list[FlowState]]:
    """Gradient descent; steps grow, and a step that does not reduce the drag is repeated with a smaller size."""
    (value, flow), gradient = drag(shape, start)
    check(shape, start, gradient)
    rate, history, flows = 0.08, [float(value)], [flow]
    print(f"  step  0: drag {value:.4f}", flush=True)
    while len(history) <= steps and rate > 1e-2:
        tried = jax.tree.map(lambda p, g: p - rate * g, shape, gradient)
        (value, flow), slopes = drag(tried, start)
        if not value < history[-1]:
            rate /= 3
            continue
        shape, gradient, rate = tried, slopes, 1.5 * rate
        history.append(float(value))
        print(f"  step {len(history) - 1:2}: drag {value:.4f}", flush=True)
    return shape, history, [flows[0], drag(shape, start)[0][1]]


INK, BLUE, RED = "0.15", "#0072B2", "#D55E00"


def draw(
    shapes: list[Shape], flows: list[FlowState], history: list[float], path: pathlib.Path
) -> None:
    """Speed and stream lines before and after, the shapes, and the drag."""
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 6.0), layout="constrained")
    flow = IncompressibleFlow(GRID, SIDES, viscosity=VISCOSITY)
    faces = [np.asarray(f) for f in GRID.faces]
    x, y = (np.asarray(c).ravel() for c in GRID.centers)
    even = np.linspace(-2.0, 4.0, 121), np.linspace(-1.6, 1.6, 65)
    closed = jnp.append(ANGLES, 0.0)
    outlines = [
        np.asarray(radius(shape, closed) * jnp.stack([jnp.cos(closed), jnp.sin(closed)]))
        for shape in shapes
    ]
    for ax, state, outline, title in zip(axes[0], flows, outlines, ("before", "after")):
        u, v = np.asarray(flow.at_centers(state))
        image = ax.pcolormesh(
            *faces, np.hypot(u, v).T, cmap="cividis", vmin=0.0, vmax=1.25, rasterized=True
        )
        on_lines = [np.array([np.interp(even[0], x, row) for row in w.T]) for w in (u, v)]
        on_even = [np.array([np.interp(even[1], y, column) for column in w.T]).T for w in on_lines]
        ax.streamplot(*even, *on_even, color="white", linewidth=0.5, arrowsize=0.6, density=1.0)
        ax.fill(*outline, color="0.85")
        ax.set(xlim=(-2, 4), ylim=(-1.6, 1.6), aspect="equal", xlabel="x", ylabel="y")
        ax.set_title(f"speed of the flow {title}", loc="left", fontsize="medium")
    figure.colorbar(image, ax=axes[0], shrink=0.7)
    ax = axes[1, 0]
    for outline, colour, name in zip(outlines, ("0.6", BLUE), ("before", "after")):
        ax.plot(*outline, color=colour, label=name)
    ax.set(aspect="equal", xlabel="x", ylabel="y", yticks=(-0.5, 0, 0.5))
    ax.set_title(
        "sections of the same area; the wind is from the left", loc="left", fontsize="medium"
    )
    ax.legend(frameon=False, fontsize="small")
    axes[1, 1].plot(history, "o-", color=RED, markersize=3)
    axes[1, 1].set(xlabel="step", ylabel="drag coefficient")
    for ax in axes[1]:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Optimises and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure"
    )
    parser.add_argument("--steps", type=int, default=10, help="steps of the optimiser")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    circle = Shape(jnp.zeros(()), jnp.zeros(()))
    before, start = settle(circle)
    shape, history, flows = improve(circle, start, arguments.steps)
    after, _ = settle(shape)
    length, height = (float(jnp.ptp(radius(shape, ANGLES) * f(ANGLES))) for f in (jnp.cos, jnp.sin))
    print(f"{length:.2f} long, {height:.2f} high: stretch {shape.stretch:.3f}, egg {shape.egg:.3f}")
    longer = jnp.arctanh(jnp.tanh(shape.stretch) + np.log(1.3) / np.log(LONGEST))
    beyond, _ = settle(shape._replace(stretch=longer))
    print(
        f"from rest, after 15 units of time: drag {before:.3f} of the circle, {after:.3f} of the shape found,"
    )
    print(f"  {beyond:.3f} of one 1.3 times as long")
    draw([circle, shape], flows, history, arguments.out / "drag_shape.png")
    print(f"{time.perf_counter() - begin:.0f} s in all; the figure is in {arguments.out}")


if __name__ == "__main__":
    main()
