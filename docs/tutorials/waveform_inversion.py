"""Full-waveform inversion: the speed of sound in a body from eight shots.

Run it with `python docs/tutorials/waveform_inversion.py`: it takes a few minutes on two cores and writes two figures
into the folder `--out`.

A body of 64 x 64 cells lies in a tank of water. Eight transmitters around it send a pulse, one after the other, and
64 receivers record the sound. The unknown is the speed of sound in every cell, such that the computed sound matches
the records:

    minimise  J(c) = sum over shots and receivers of  int (p(c) - recorded)^2 dt.

Lengths are in millimetres, times in microseconds, speeds in mm/us, which is km/s.
"""

import argparse
import pathlib
import time
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml.models import Acoustic, PointSources, Ricker, Sampled
from sciml.spatial import Grid, Points

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SIZE, WATER, LAYER = (
    64,
    3,
    8,
)  # cells of 1 mm: the body, the water around it, and the absorbing layers around that
EDGE = WATER + LAYER
GRID = Grid((SIZE + 2 * EDGE,) * 2, -EDGE, SIZE + EDGE)
TANK = 1.5  # the speed in water
PULSE = Ricker(0.12)  # MHz: waves of 12 mm
END, STEPS = 60.0, 240
SHOTS, NOISE = 8, 0.02


def around(count: int, distance: float = 2.0) -> jax.Array:
    """Places at equal distances around the body, of shape (count, 2)."""
    side, corner = SIZE + 2 * distance, -distance
    along = (np.arange(count) + 0.5) / count * 4
    edge, part = along.astype(int), along % 1
    x = np.choose(edge, [part, 1 + 0 * part, 1 - part, 0 * part])
    y = np.choose(edge, [0 * part, part, 1 + 0 * part, 1 - part])
    return jnp.asarray(corner + side * np.stack([x, y], axis=1), float)


RECEIVERS = Points(GRID, around(64))


def phantom() -> jax.Array:
    """The true body: a soft ellipse with one hard and two softer inclusions."""
    x, y = (np.arange(SIZE) + 0.5)[:, None], (np.arange(SIZE) + 0.5)[None, :]
    speed = np.full((SIZE, SIZE), TANK)
    for middle, radii, value in (
        ((32, 32), (26, 22), 1.54),
        ((24, 36), (8, 6), 1.60),
        ((42, 38), (5, 7), 1.46),
        ((36, 22), (9, 4), 1.49),
    ):
        far = np.hypot((x - middle[0]) / radii[0], (y - middle[1]) / radii[1])
        inside = 1 / (1 + np.exp((far - 1) * min(radii) / 0.6))  # over about two cells
        speed += inside * (value - speed)
    return jnp.asarray(speed, float)


def medium(speed: jax.Array, place: jax.Array, order: int = 4) -> Acoustic:
    """The tank with a body of this speed and one transmitter."""
    source = PointSources(GRID, place, PULSE)
    speed = jnp.pad(speed, EDGE, constant_values=TANK)
    return Acoustic(GRID, speed, layers=LAYER, source=source, order=order, tuned=TANK)


class Mismatch(sciml.AbstractModel):
    """A medium, and the mismatch of its sound from the records, integrated over time."""

    medium: Acoustic
    recorded: Sampled

    def __call__(self, t: Any, y: tuple, args: Any) -> tuple:
        sound, _ = y
        apart = self.medium.record(sound, RECEIVERS) - self.recorded(t)
        return self.medium(t, sound, args), jnp.sum(apart**2)


def mismatch(speed: jax.Array, place: jax.Array, recorded: jax.Array) -> jax.Array:
    """The mismatch of one shot. Its gradient recomputes the steps within 32 MiB."""
    model = Mismatch(medium(speed, place), Sampled(recorded, END / STEPS))
    start = model.medium.rest(), jnp.zeros(())
    adjoint = sciml.adjoints.Checkpointed(memory=2**25)
    options = dict(t0=0.0, t1=END, dt=END / STEPS, solver=diffrax.Bosh3(), adjoint=adjoint)
    return sciml.solve(model, start, **options).ys[1][-1]


class Shots(NamedTuple):
    """The position of each shot, (shots, 2), and the records of the receivers, (shots, times, receivers)."""

    places: jax.Array
    recorded: jax.Array


@jax.jit
@jax.value_and_grad
def evaluate(speed: jax.Array, shots: Shots) -> jax.Array:
    """The mismatch of all shots, one after another, and its gradient with respect to the speed in every cell."""
    return jnp.sum(jax.lax.map(lambda shot: mismatch(speed, *shot), shots))


def listen(
    speed: jax.Array, place: jax.Array, order: int = 4, refine: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Returns the receiver records of a shot, and the pressure at three times."""
    model = medium(speed, place, order)
    ts = jnp.linspace(0.0, END, STEPS + 1)
    options = dict(
        t0=0.0, t1=END, dt=END / STEPS / refine, saveat=ts, solver=diffrax.Bosh3(), throw=False
    )
    sounds = sciml.solve(model, model.rest(), **options).ys
    frames = model.pressure(jax.tree.map(lambda x: x[np.array(FRAMES)], sounds))
    return model.record(sounds, RECEIVERS), frames


FRAMES = (80, 116, 152)


def record(truth: jax.Array) -> tuple[Shots, jax.Array]:
    """The experiment: with a finer method than the inversion, and with noise."""
    places = around(SHOTS)
    run = jax.jit(
        lambda places: jax.lax.map(lambda place: listen(truth, place, order=8, refine=2), places)
    )
    traces, frames = run(places)
    noise = NOISE * jnp.std(traces) * jax.random.normal(jax.random.key(0), traces.shape)
    return Shots(places, traces + noise), frames[0]


def check(speed: jax.Array, shots: Shots) -> None:
    """Compares the gradient with finite differences, along a direction."""
    ahead = jnp.asarray(np.random.default_rng(0).normal(size=speed.shape), float)
    slope = float(jnp.vdot(evaluate(speed, shots)[1], ahead))
    values = [float(evaluate(speed + step * ahead, shots)[0]) for step in (-1e-3, 1e-3)]
    print(
        f"along a direction: {slope:.4g} by the adjoint, {(values[1] - values[0]) / 2e-3:.4g} by finite differences"
    )


class Step(NamedTuple):
    """One optimiser step: the mismatch relative to the start, and the error of the speed in mm/us."""

    mismatch: float
    error: float


def invert(shots: Shots, truth: jax.Array, steps: int) -> tuple[jax.Array, list[Step]]:
    """L-BFGS, starting from water. The truth is only used to print the progress."""
    optimiser = optax.scale_by_lbfgs(memory_size=10)
    speed = jnp.full((SIZE, SIZE), TANK)
    value, gradient = evaluate(speed, shots)
    first, state, history = float(value), optimiser.init(speed), []
    advance = jax.jit(optimiser.update)

    def report():
        error = float(jnp.sqrt(jnp.mean((speed - truth) ** 2)))
        history.append(Step(float(value) / first, error))
        latest = f"mismatch {float(value) / first:.5f}, error {1000 * error:4.1f} m/s"
        print(f"  step {len(history) - 1:2}: {latest}", flush=True)

    report()
    for _ in range(steps):
        ahead, state = advance(gradient / first, state, speed)
        for length in (1.0, 0.5, 0.25, 0.125, 0.0625):  # shorter until the mismatch falls
            trial = evaluate(speed - length * ahead, shots)
            if trial[0] < value:
                break
        speed, (value, gradient) = speed - length * ahead, trial
        report()
    return speed, history


INK, BLUE, RED = "0.15", "#0072B2", "#D55E00"
FRAME = (0.0, float(SIZE), 0.0, float(SIZE))
WHOLE = (-float(EDGE), float(SIZE + EDGE)) * 2


def draw_medium(
    truth: jax.Array, found: jax.Array, history: list[Step], path: pathlib.Path
) -> None:
    """The medium, its reconstruction, a section, and the progress."""
    figure, panels = plt.subplots(2, 2, figsize=(9, 7.6), layout="constrained")
    low, high = float(truth.min()), float(truth.max())
    for ax, speed, title in (
        (panels[0, 0], truth, "the body"),
        (panels[0, 1], found, "found from eight shots"),
    ):
        drawn = ax.imshow(
            np.asarray(speed).T, origin="lower", extent=FRAME, cmap="viridis", vmin=low, vmax=high
        )
        ax.set_title(title, loc="left", fontsize="medium")
        ax.set_xlabel("x (mm)")
        ax.plot(
            *np.asarray(around(SHOTS)).T,
            "*",
            color=RED,
            markersize=10,
            clip_on=False,
            label="transmitter",
        )
        ax.plot(
            *np.asarray(RECEIVERS.positions).T,
            ".",
            color=INK,
            markersize=4,
            clip_on=False,
            label="receiver",
        )
        ax.set_xlim(-3, SIZE + 3)
        ax.set_ylim(-3, SIZE + 3)
    panels[0, 0].set_ylabel("y (mm)")
    panels[0, 1].axhline(36.5, color="white", linewidth=1, linestyle="--")
    panels[0, 0].legend(
        loc="lower right", bbox_to_anchor=(0.97, 0.03), fontsize="small", framealpha=0.9
    )
    figure.colorbar(drawn, ax=panels[0], label="speed of sound (mm/µs)", shrink=0.9)
    x = np.arange(SIZE) + 0.5
    section = panels[1, 0]
    section.plot(x, np.asarray(truth)[:, 36], color=INK, label="the body")
    section.plot(x, np.asarray(found)[:, 36], color=BLUE, label="found")
    section.axhline(TANK, color="0.6", linestyle=":", label="water, the start")
    section.set_xlabel("x (mm)")
    section.set_ylabel("speed at y = 36.5 mm (mm/µs)")
    section.legend(frameon=False, fontsize="small")
    progress = panels[1, 1]
    progress.semilogy([h.mismatch for h in history], color=INK, label="mismatch")
    progress.semilogy(
        [h.error / history[0].error for h in history], color=RED, label="error of the speed"
    )
    progress.set_xlabel("step of L-BFGS")
    progress.set_ylabel("over that of the start")
    progress.legend(frameon=False, fontsize="small")
    for ax in panels[1]:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_shot(
    frames: jax.Array, shots: Shots, truth: jax.Array, found: jax.Array, path: pathlib.Path
) -> None:
    """The sound of the first shot, and the signals of the opposite receivers."""
    run = jax.jit(lambda speed: listen(speed, shots.places[0])[0])
    start, end = (np.asarray(run(speed)) for speed in (jnp.full_like(truth, TANK), found))
    figure = plt.figure(figsize=(10, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 3, height_ratios=(1.15, 1))
    extreme = 0.5 * float(jnp.max(jnp.abs(frames)))
    for i, frame in enumerate(frames):
        ax = figure.add_subplot(grid[0, i])
        ax.imshow(
            np.asarray(frame).T,
            origin="lower",
            extent=WHOLE,
            cmap="RdBu_r",
            vmin=-extreme,
            vmax=extreme,
        )
        x, y = (np.arange(SIZE) + 0.5,) * 2
        ax.contour(
            x, y, np.asarray(truth).T, levels=(1.48, 1.52, 1.57), colors="0.4", linewidths=0.6
        )
        ax.add_patch(
            plt.Rectangle(
                (-WATER, -WATER), *(SIZE + 2 * WATER,) * 2, fill=False, linestyle="--", color="0.5"
            )
        )
        ax.set_title(
            f"pressure after {FRAMES[i] * END / STEPS:.0f} µs", loc="left", fontsize="medium"
        )
        ax.set_xlabel("x (mm)")
        if i == 0:
            ax.set_ylabel("y (mm)")
    opposite = [36, 40, 44]
    ts = np.linspace(0.0, END, STEPS + 1)
    for i, receiver in enumerate(opposite):
        ax = figure.add_subplot(grid[1, i])
        ax.plot(
            ts,
            np.asarray(shots.recorded[0])[:, receiver],
            color=INK,
            linewidth=2.5,
            alpha=0.5,
            label="recorded",
        )
        ax.plot(ts, start[:, receiver], color="0.55", linestyle=":", label="in water")
        ax.plot(ts, end[:, receiver], color=BLUE, linewidth=1, label="in the medium found")
        place = np.asarray(RECEIVERS.positions)[receiver]
        ax.set_title(
            f"receiver at ({place[0]:.0f}, {place[1]:.0f}) mm", loc="left", fontsize="medium"
        )
        ax.set_xlim(30, END)
        ax.set_xlabel("time (µs)")
        ax.spines[["top", "right"]].set_visible(False)
        if i == 0:
            ax.set_ylabel("pressure")
            ax.legend(frameon=False, fontsize="small", loc="upper left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Records, inverts and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figures"
    )
    parser.add_argument("--steps", type=int, default=12, help="steps of the optimiser")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    truth = phantom()
    shots, frames = record(truth)
    print(
        f"recorded {SHOTS} shots at {len(RECEIVERS.positions)} receivers: {shots.recorded.size} numbers"
    )
    check(jnp.full((SIZE, SIZE), TANK), shots)
    print(f"looking for {truth.size} speeds:")
    found, history = invert(shots, truth, arguments.steps)
    print(
        f"the error of the speed fell from {1000 * history[0].error:.1f} to {1000 * history[-1].error:.1f} m/s"
    )
    print(f"the mismatch fell to {100 * history[-1].mismatch:.2f}% of that in water")
    draw_medium(truth, found, history, arguments.out / "waveform_inversion.png")
    draw_shot(frames, shots, truth, found, arguments.out / "waveform_inversion_shot.png")
    print(f"{time.perf_counter() - begin:.0f} s in all; the figures are in {arguments.out}")


if __name__ == "__main__":
    main()
