"""Full-waveform inversion in three dimensions with limited memory: a block of rock from six shots.

Run it with `python docs/tutorials/waveform_inversion_3d.py`: it takes about two minutes on two cores and writes a
figure, to the folder that `--out` names.

A block of 24 x 24 x 16 cells has soft rock above harder rock, and two hidden bodies. Six charges, in boreholes around
it and below, are fired one after the other; 100 receivers on the surface and in the boreholes record the pressure.
The unknown is the speed of sound in every cell, such that the computed sound matches the records:

    minimise  J(c) = sum over shots and receivers of  int (p(c) - recorded)^2 dt.

The field and its three velocities are too large to store for every step. The adjoint is an argument, and the script
prints the memory and time of several adjoints before it selects one.

Lengths are in kilometres, times in seconds, speeds in km/s.
"""

import argparse
import pathlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml.models import Acoustic, PointSources, Ricker, Sampled, Sound
from sciml.spatial import Grid, Points

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CELLS, LAYER, H = (
    (24, 24, 16),
    6,
    0.05,
)  # the block, the absorbing layers around it but for the surface, and a cell
SHAPE = (CELLS[0] + 2 * LAYER, CELLS[1] + 2 * LAYER, CELLS[2] + LAYER)
GRID = Grid(
    SHAPE, (-LAYER * H, -LAYER * H, -(CELLS[2] + LAYER) * H), ((CELLS[0] + LAYER) * H,) * 2 + (0.0,)
)
PULSE = Ricker(4.0)  # Hz: waves of half a kilometre
END, STEPS = 1.2, 160
FASTEST = 2.8
MIB = 2**20


def coordinates() -> tuple[np.ndarray, ...]:
    """The centres of the cells of the block: from its corner, and the depth below zero."""
    x, y, z = ((np.arange(n) + 0.5) * H for n in CELLS)
    return x[:, None, None], y[None, :, None], (z - CELLS[2] * H)[None, None, :]


def background() -> jax.Array:
    """The known part: the speed increases with depth."""
    x, y, z = coordinates()
    return jnp.asarray(1.8 - 0.6 * z + 0 * x * y, float)


def rock() -> jax.Array:
    """The unknown part: a hard body and a soft one."""
    x, y, z = coordinates()
    speed = np.asarray(background())
    for middle, radii, more in (
        ((0.4, 0.45, -0.4), (0.2, 0.15, 0.12), 0.3),
        ((0.85, 0.75, -0.3), (0.14, 0.2, 0.1), -0.3),
    ):
        far = np.sqrt(sum(((a - m) / r) ** 2 for a, m, r in zip((x, y, z), middle, radii)))
        speed = speed + more / (1 + np.exp((far - 1) * min(radii) / (0.5 * H)))
    return jnp.asarray(speed, float)


def receivers() -> np.ndarray:
    """An array of 8 x 8 just below the surface, and 9 in each of four boreholes at the corners."""
    side = CELLS[0] * H
    u = (np.arange(8) + 0.5) / 8 * side
    top = np.stack(np.meshgrid(u, u, [-0.025], indexing="ij"), -1).reshape(-1, 3)
    depths = -0.06 - 0.085 * np.arange(9)
    holes = [[a, b, z] for a in (-0.05, side + 0.05) for b in (-0.05, side + 0.05) for z in depths]
    return np.concatenate([top, holes])


RECEIVERS = Points(GRID, receivers())
SHOTS = np.array(
    [
        [-0.05, 0.6, -0.6],
        [1.25, 0.6, -0.6],
        [0.6, -0.05, -0.3],
        [0.6, 1.25, -0.3],
        [0.35, 0.35, -0.85],
        [0.85, 0.85, -0.85],
    ]
)


def medium(speed: jax.Array, place: Any, order: int = 4) -> Acoustic:
    """The block with one charge, its speeds continued into the layers."""
    around = ((LAYER, LAYER), (LAYER, LAYER), (LAYER, 0))
    speed = jnp.pad(speed, around, mode="edge")
    source = PointSources(GRID, place, PULSE)
    layers = {"x": LAYER, "y": LAYER, "z-": LAYER}
    sides = {"x": "rigid", "y": "rigid", "z-": "rigid", "z+": "free"}
    return Acoustic(
        GRID, speed, boundary=sides, layers=layers, source=source, order=order, tuned=FASTEST
    )


class Mismatch(sciml.AbstractPartitioned):
    """A medium, and how far its sound is from the recorded one, integrated over time with the velocity.

    So leapfrog takes it, and compares the sound with the record at the ends of steps, where both are known.
    """

    medium: Acoustic
    recorded: Sampled

    def first_drive(self, t: Any, y: tuple[Sound, jax.Array], args: Any) -> tuple[Any, jax.Array]:
        """The rates of the velocity and of the mismatch at this time."""
        apart = self.medium.record(y[0], RECEIVERS) - self.recorded(t)
        return self.medium.first_drive(t, y[0], args), jnp.sum(apart**2)

    def second_drive(self, t: Any, y: tuple[Sound, jax.Array], args: Any) -> Any:
        """The rate of the pressure."""
        return self.medium.second_drive(t, y[0], args)

    def move_first(
        self, h: Any, y: tuple[Sound, jax.Array], drive: Any, args: Any
    ) -> tuple[Sound, jax.Array]:
        """Velocity and integral after a time."""
        return self.medium.move_first(h, y[0], drive[0], args), y[1] + h * drive[1]

    def move_second(
        self, h: Any, y: tuple[Sound, jax.Array], drive: Any, args: Any
    ) -> tuple[Sound, jax.Array]:
        """Pressure after a time."""
        return self.medium.move_second(h, y[0], drive, args), y[1]


BY_DEFAULT = sciml.adjoints.Checkpointed(memory=32 * MIB)


def mismatch(
    speed: jax.Array, place: Any, recorded: jax.Array, adjoint: Any = BY_DEFAULT
) -> jax.Array:
    """The mismatch of one shot."""
    model = Mismatch(medium(speed, place), Sampled(recorded, END / STEPS))
    start = model.medium.rest(), jnp.zeros(())
    return sciml.solve(model, start, t0=0.0, t1=END, dt=END / STEPS, adjoint=adjoint).ys[1][-1]


class Shots(NamedTuple):
    """The position of each shot, (shots, 3), and the records of the receivers, (shots, times, receivers)."""

    places: jax.Array
    recorded: jax.Array


@jax.jit
@jax.value_and_grad
def evaluate(speed: jax.Array, shots: Shots) -> jax.Array:
    """The mismatch of all shots, one after another, and its gradient with respect to the speed in every cell."""
    return jnp.sum(jax.lax.map(lambda shot: mismatch(speed, *shot), shots))


def record(truth: jax.Array) -> Shots:
    """The experiment, computed with differences of order eight and half the step, and with noise."""
    ts = jnp.linspace(0.0, END, STEPS + 1)

    def listen(place: jax.Array) -> jax.Array:
        model = medium(truth, place, order=8)
        keep = sciml.solve(model, model.rest(), t0=0.0, t1=END, dt=END / STEPS / 2, saveat=ts).ys
        return model.record(keep, RECEIVERS)

    places = jnp.asarray(SHOTS, float)
    traces = jax.jit(lambda places: jax.lax.map(listen, places))(places)
    noise = 0.02 * jnp.std(traces) * jax.random.normal(jax.random.key(0), traces.shape)
    return Shots(places, traces + noise)


ADJOINTS = {
    "Checkpointed(levels=1)": sciml.adjoints.Checkpointed(levels=1),
    "Checkpointed(memory=32 MiB)": BY_DEFAULT,
    "Checkpointed(levels=3)": sciml.adjoints.Checkpointed(levels=3),
    "Reversible()": sciml.adjoints.Reversible(),
}


class Row(NamedTuple):
    """The cost of the gradient of a shot with an adjoint: bytes, seconds, and the difference from the first adjoint."""

    memory: float
    seconds: float
    error: float


def compare(speed: jax.Array, shots: Shots) -> dict[str, Row]:
    """The gradient of one shot by each adjoint."""
    model = medium(speed, shots.places[0])
    state = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(model.rest()))
    print(
        f"a state of {sum(x.size for x in jax.tree.leaves(model.rest()))} numbers takes {state / MIB:.2f} MiB",
        end="",
    )
    print(f", those of all {STEPS} steps {STEPS * state / MIB:.0f} MiB")
    found, exact = {}, None
    for name, adjoint in ADJOINTS.items():
        run = jax.grad(
            lambda speed, adjoint=adjoint: mismatch(
                speed, shots.places[0], shots.recorded[0], adjoint
            )
        )
        compiled = jax.jit(run).lower(speed).compile()
        memory = compiled.memory_analysis().temp_size_in_bytes
        gradient = jax.block_until_ready(compiled(speed))
        begin = time.perf_counter()
        jax.block_until_ready(compiled(speed))
        seconds = time.perf_counter() - begin
        exact = gradient if exact is None else exact
        error = float(jnp.linalg.norm(gradient - exact) / jnp.linalg.norm(exact))
        what = (
            "lost: layers absorb what steps back would need"
            if np.isnan(error)
            else f"differs by {error:.0e}"
        )
        print(f"  {name:28} {memory / MIB:7.1f} MiB  {seconds:5.2f} s a shot  {what}", flush=True)
        found[name] = Row(memory, seconds, error)
    return found


def check(speed: jax.Array, shots: Shots) -> None:
    """Compares the gradient with finite differences, along a direction."""
    ahead = jnp.asarray(np.random.default_rng(0).normal(size=speed.shape), float)
    slope = float(jnp.vdot(evaluate(speed, shots)[1], ahead))
    values = [float(evaluate(speed + step * ahead, shots)[0]) for step in (-2e-3, 2e-3)]
    print(
        f"along a direction: {slope:.4g} by the adjoint, {(values[1] - values[0]) / 4e-3:.4g} by finite differences"
    )


class Step(NamedTuple):
    """One optimiser step: the mismatch relative to the start, and the error of the speed in km/s."""

    mismatch: float
    error: float


def invert(shots: Shots, truth: jax.Array, steps: int) -> tuple[jax.Array, list[Step]]:
    """L-BFGS, starting from the known part. The truth is only used to print the progress."""
    optimiser = optax.scale_by_lbfgs(memory_size=8)
    speed = background()
    value, gradient = evaluate(speed, shots)
    first, state, history = float(value), optimiser.init(speed), []
    scale = float(
        0.04 / jnp.max(jnp.abs(gradient / first))
    )  # the first step changes no speed by more
    advance = jax.jit(optimiser.update)

    def report():
        error = float(jnp.sqrt(jnp.mean((speed - truth) ** 2)))
        history.append(Step(float(value) / first, error))
        latest = f"mismatch {float(value) / first:.4f}, error {1000 * error:4.1f} m/s"
        print(f"  step {len(history) - 1:2}: {latest}", flush=True)

    report()
    for number in range(steps):
        ahead, state = advance(gradient / first, state, speed)
        ahead = ahead * (
            scale * jnp.linalg.norm(gradient / first) / jnp.linalg.norm(ahead)
            if number == 0
            else 1.0
        )
        for length in (1.0, 0.5, 0.25, 0.125):  # shorter until the mismatch falls
            trial = evaluate(speed - length * ahead, shots)
            if trial[0] < value:
                break
        speed, (value, gradient) = speed - length * ahead, trial
        report()
    return speed, history


INK, BLUE, RED = "0.15", "#0072B2", "#D55E00"


def draw(
    truth: jax.Array,
    found: jax.Array,
    history: list[Step],
    rows: dict[str, Row],
    path: pathlib.Path,
) -> None:
    """Sections of the block and of its reconstruction, the progress, and the cost of adjoints."""
    figure = plt.figure(figsize=(10, 7.6), layout="constrained")
    grid = figure.add_gridspec(3, 4, height_ratios=(1.1, 0.8, 1))
    side, deep = CELLS[0] * H, CELLS[2] * H
    level, row = 8, 9  # z = -0.375, y = 0.475
    shown = {"the rock": truth, "found from six shots": found}
    off = float(jnp.max(jnp.abs(truth - background())))
    for i, (title, speed) in enumerate(shown.items()):
        change = np.asarray(speed - background())
        style = dict(origin="lower", cmap="RdBu_r", vmin=-off, vmax=off)
        ax = figure.add_subplot(grid[0, 2 * i : 2 * i + 2])
        drawn = ax.imshow(change[:, :, level].T, extent=(0, side, 0, side), **style)
        ax.set_title(
            f"{title}: at a depth of {-float(coordinates()[2][0, 0, level]):.2f} km",
            loc="left",
            fontsize="medium",
        )
        ax.axhline((row + 0.5) * H, color="0.5", linewidth=0.8, linestyle="--")
        places = np.asarray(RECEIVERS.positions)
        ax.plot(places[:, 0], places[:, 1], ".", color=INK, markersize=3, label="receivers")
        ax.plot(SHOTS[:, 0], SHOTS[:, 1], "*", color=RED, markersize=9, label="charges")
        ax.set(
            xlabel="x (km)", ylabel="y (km)", xlim=(-0.12, side + 0.12), ylim=(-0.12, side + 0.12)
        )
        if i == 0:
            ax.legend(loc="upper left", fontsize="x-small", framealpha=0.9)
        ax = figure.add_subplot(grid[1, 2 * i : 2 * i + 2])
        ax.imshow(change[:, row, :].T, extent=(0, side, -deep, 0), **style)
        ax.set(xlabel="x (km)", ylabel="z (km)")
    figure.colorbar(
        drawn,
        ax=figure.axes,
        label="speed beside what one knew (km/s)",
        shrink=0.8,
        location="right",
    )
    ax = figure.add_subplot(grid[2, :2])
    ax.semilogy([h.mismatch for h in history], color=INK, label="mismatch")
    ax.semilogy(
        [h.error / history[0].error for h in history], color=RED, label="error of the speed"
    )
    ax.set(xlabel="step of L-BFGS", ylabel="over that of the start")
    ax.set_yticks([1, 0.5, 0.2, 0.1, 0.05], labels=["1", "0.5", "0.2", "0.1", "0.05"])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    ax = figure.add_subplot(grid[2, 2:])
    good = {name: row for name, row in rows.items() if not np.isnan(row.error)}
    ax.plot(
        [r.memory / MIB for r in good.values()],
        [r.seconds for r in good.values()],
        "o-",
        color=BLUE,
    )
    for number, (name, one) in enumerate(good.items()):
        place = dict(
            xytext=(4, 6 if number != 1 else -12), textcoords="offset points", fontsize="x-small"
        )
        ax.annotate(name, (one.memory / MIB, one.seconds), **place)
    ax.set_xscale("log")
    ax.set_xticks([10, 20, 50, 100, 200], labels=["10", "20", "50", "100", "200"])
    ax.minorticks_off()
    ax.set(xlabel="memory of a gradient (MiB)", ylabel="seconds a shot", xlim=(8, 400))
    ax.set_ylim(0, 1.2 * max(one.seconds for one in good.values()))
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Records, compares adjoints, inverts and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure"
    )
    parser.add_argument("--steps", type=int, default=12, help="steps of the optimiser")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    truth = rock()
    shots = record(truth)
    print(
        f"recorded {len(SHOTS)} shots at {len(RECEIVERS.positions)} receivers: {shots.recorded.size} numbers"
    )
    rows = compare(background(), shots)
    check(background(), shots)
    print(f"looking for {truth.size} speeds:")
    found, history = invert(shots, truth, arguments.steps)
    print(
        f"the error of the speed fell from {1000 * history[0].error:.1f} to {1000 * history[-1].error:.1f} m/s"
    )
    print(f"the mismatch fell to {100 * history[-1].mismatch:.1f}% of that of the start")
    draw(truth, found, history, rows, arguments.out / "waveform_inversion_3d.png")
    print(f"{time.perf_counter() - begin:.0f} s in all; the figure is in {arguments.out}")


if __name__ == "__main__":
    main()
