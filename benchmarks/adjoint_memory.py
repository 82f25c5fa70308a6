"""What memory buys for the gradient of a PDE: Gray-Scott by the method of lines, thousands of explicit steps."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import inspect
from sciml.inspect._compiled import Memory

from ._harness import Candidate, Group, Measured, jitted, max_error

# Pearson (1993), doi:10.1126/science.261.5118.189, on a grid of unit spacing and with steps of one.
DIFFUSION = 0.16, 0.08
FEED, KILL = 0.035, 0.065
SIZE, STEPS = 512, 10_000
SMALL_SIZE, SMALL_STEPS = 256, 1_000
STATES = 200
FIGURE = pathlib.Path("build/benchmarks/adjoint_memory.png")
# name, how it is drawn, and what it is called with; an adjoint more is a line more
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "jax.lax.scan": ("lax", {}),
    "Direct()": ("solve", {"adjoint": sciml.adjoints.Direct()}),
    **{
        f"Checkpointed(levels={n})": ("solve", {"adjoint": sciml.adjoints.Checkpointed(levels=n)})
        for n in (1, 2, 3, 4, 5)
    },
    **{f"checkpointed_scan(levels={n})": ("scan", {"levels": n}) for n in (1, 2, 3, 4, 5)},
}
MARKS = {
    "jax.lax.scan": ("s", "#000000"),
    "Direct": ("D", "#009E73"),
    "Checkpointed": ("o-", "#0072B2"),
    "checkpointed_scan": ("^--", "#D55E00"),
}


def gray_scott(t: Any, y: tuple[jax.Array, jax.Array], args: tuple[jax.Array, jax.Array]) -> tuple:
    """Feed and kill of two reacting and diffusing substances on a periodic grid."""
    del t

    def laplacian(u: jax.Array) -> jax.Array:
        return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u

    (u, v), (feed, kill) = y, args
    reaction = u * v * v
    return (
        DIFFUSION[0] * laplacian(u) - reaction + feed * (1 - u),
        DIFFUSION[1] * laplacian(v) + reaction - (feed + kill) * v,
    )


def start(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Two spots in every tile of 64 x 64 cells; they grow and divide."""
    x = np.arange(64) / 64 - 0.5
    spots = np.exp(-200 * (x[:, None] ** 2 + x**2)) + np.exp(-200 * ((x[:, None] - 0.2) ** 2 + (x + 0.1) ** 2))
    spots = np.tile(spots, (size // 64, size // 64)) * np.linspace(0.95, 1.05, size)
    return 1 - 0.5 * spots, 0.25 * spots


def _reference(size: int, steps: int) -> tuple[float, float]:
    """The mean of the second substance squared and its derivative by the feed, in float64 by NumPy alone."""

    def laplacian(u: np.ndarray) -> np.ndarray:
        return np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u

    u, v = start(size)
    du, dv = np.zeros_like(u), np.zeros_like(v)
    for _ in range(steps):
        reaction, change = u * v * v, du * v * v + 2 * u * v * dv
        step = DIFFUSION[0] * laplacian(du) - change + 1 - u - FEED * du
        dv = dv + DIFFUSION[1] * laplacian(dv) + change - (FEED + KILL) * dv - v
        du = du + step
        step = DIFFUSION[0] * laplacian(u) - reaction + FEED * (1 - u)
        v = v + DIFFUSION[1] * laplacian(v) + reaction - (FEED + KILL) * v
        u = u + step
    return float(np.mean(v**2)), float(np.mean(2 * v * dv))


def _end(kind: str, steps: int, options: dict[str, Any], y0: Any, args: Any) -> Any:
    """The end state of explicit Euler steps of one, by `solve` or by a scan over the step written out."""
    if kind == "solve":
        times: dict[str, Any] = dict(t0=0.0, t1=float(steps), dt=1.0)
        ys = sciml.solve(gray_scott, y0, args=args, solver=diffrax.Euler(), **times, **options).ys
        return jax.tree.map(lambda y: y[-1], ys)

    def step(y: Any, _: None) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, y, gray_scott(None, y, args)), None

    scan = jax.lax.scan if kind == "lax" else sciml.checkpointed_scan
    return scan(step, y0, length=steps, **options)[0]


def _loss(kind: str, steps: int, options: dict[str, Any], y0: Any, args: Any) -> jax.Array:
    return jnp.mean(_end(kind, steps, options, y0, args)[1] ** 2)


def _row(
    name: str, kind: str, steps: int, options: dict[str, Any], inputs: tuple, error: Any = None
) -> tuple[Candidate, Candidate]:
    """The solve, and its gradient by the initial state and both parameters."""
    loss = functools.partial(_loss, kind, steps, options)
    gradient = jax.grad(loss, argnums=(0, 1))
    of_feed = None if error is None else lambda out: error(out[1][0])
    return (
        Candidate(name, jitted(loss, *inputs)),
        Candidate(f"{name}, gradient", jitted(gradient, *inputs), name, of_feed),
    )


def _inputs(size: int) -> tuple:
    return tuple(jnp.asarray(u, jnp.float32) for u in start(size)), (jnp.float32(FEED), jnp.float32(KILL))


def _full() -> Group:
    inputs = _inputs(SIZE)
    memory = STATES * 2 * 4 * SIZE**2
    rows = [
        *_row("sciml.solve", "solve", STEPS, {"adjoint": sciml.adjoints.Checkpointed(memory=memory)}, inputs),
        *_row("checkpointed_scan", "scan", STEPS, {"memory": memory}, inputs),
    ]
    setting = f"{STEPS} explicit Euler steps, float32, end state, memory for {STATES} states"
    return Group(f"Gray-Scott on {SIZE} x {SIZE} cells, {setting}", rows)


def _curve() -> Group:
    inputs = _inputs(SMALL_SIZE)
    error = max_error(np.asarray(_reference(SMALL_SIZE, SMALL_STEPS)[1]), relative=True)
    base = _row("sciml.solve", "solve", SMALL_STEPS, {}, inputs)[0]
    rows, memory = [base], {}
    for name, (kind, options) in POLICIES.items():
        row = _row(base.label, kind, SMALL_STEPS, options, inputs, error)[1]
        gradient = jax.grad(functools.partial(_loss, kind, SMALL_STEPS, options), argnums=(0, 1))
        label = _label(name, functools.partial(inspect.memory, gradient, *inputs), memory)
        rows.append(Candidate(label, row.build, base.label, row.error))
    setting = f"{SMALL_STEPS} explicit Euler steps, float32: the gradient by initial state and parameters"
    title = f"Gray-Scott on {SMALL_SIZE} x {SMALL_SIZE} cells, {setting}, with the states' worth of its memory"
    return Group(title, rows, repeats=5, finish=functools.partial(_draw, memory))


def _label(name: str, measure: Callable[[], Memory], memory: dict[str, float]) -> str:
    """The row's name with its memory, which is kept for the picture."""
    found = measure().temporaries
    label = f"{name}, {found / (2 * 4 * SMALL_SIZE**2):.0f} states"
    memory[label] = found / 2**20
    return label


def _draw(memory: dict[str, float], measured: list[Measured]) -> str | None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    base = measured[0].median
    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, (mark, colour) in MARKS.items():
        here = [row for row in measured[1:] if row.label.startswith(name) and row.times]
        points = [(memory[row.label], row.median / base) for row in here]
        if points:
            ax.plot(*zip(*points, strict=True), mark, color=colour, label=name)
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("temporary memory of the gradient, MiB")
    ax.set_ylabel("time of the gradient over that of the solve")
    ax.legend(frameon=False)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, dpi=120)
    plt.close(figure)
    return str(FIGURE)


def groups() -> list[Group]:
    return [_curve(), _full()]
