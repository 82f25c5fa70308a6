"""Solver in the loop: turbulence on a coarse grid with a learned closure, trained through the solver.

Run it with `python docs/tutorials/kolmogorov.py`: it takes about two minutes and writes a figure into the folder
`--out`. `--flow decaying` uses the flow of Mosaic, a benchmark of differentiable solvers, for its metric of closures.

Kolmogorov flow is driven by a force like sin(4 y) and becomes turbulent. Half of the points along each axis need an
eighth of the work of the fine grid, but the flow soon diverges because of discretisation errors. A small
convolutional network adds the missing stresses in every stage of every step.
"""

import argparse
import pathlib
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml import training
from sciml.models import AbstractFlowForce, BodyForce, FlowState, IncompressibleFlow
from sciml.models.neural import StressClosure
from sciml.solvers import SSPRK33
from sciml.spatial import Grid, Periodic, gaussian_random_field

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
FINER = 2  # how many points of the fine grid there are to one of the coarse grid, along an axis, and how many steps
STEP, STEPS = 0.02, 4  # a step of the coarse grid, and how many there are in a frame
JUDGED = 36  # frames in Mosaic's metric, up to time 2.88
COLOURS = {"coarse": "0.6", "corrected": "#0072B2"}


class Case(NamedTuple):
    """A flow, how long it is recorded, and how long it is trained.

    Attributes:
        points: Points of the coarse grid along an axis.
        viscosity: The viscosity.
        driven: Whether a force drives the flow.
        warm: For how long it runs before it is recorded.
        frames: How many frames are recorded.
        records: How many starts there are for training, and how many are held back.
        rates: How many updates match rates.
        lengths: Lengths of predictions in frames, with numbers of updates and sizes of batches.
        rate: Of learning, through predictions.
    """

    points: int
    viscosity: float
    driven: bool
    warm: float
    frames: int
    records: tuple[int, int]
    rates: int
    lengths: tuple[tuple[int, int, int], ...]
    rate: float


CASES = {
    "kolmogorov": Case(64, 1e-2, True, 5.0, 75, (6, 4), 250, ((4, 40, 4), (12, 12, 4)), 1e-3),
    "decaying": Case(32, 1e-3, False, 0.0, JUDGED, (16, 8), 400, ((8, 40, 4),), 3e-4),
}


class Drag(AbstractFlowForce):
    """Bottom friction."""

    rate: jax.Array

    def __call__(self, flow, t, y, args):
        return tuple(-self.rate * u for u in y.velocity)


def flow(case, points, closure=()):
    """The flow in a box of side 2 pi, on a grid of cells, with velocities at their faces."""
    grid = Grid((points, points), 0.0, 2 * np.pi)
    push = jnp.broadcast_to(jnp.sin(4 * grid.centers[1]), grid.shape)
    forces = [BodyForce((push, 0.0)), Drag(jnp.array(0.1))] if case.driven else []
    return IncompressibleFlow(grid, Periodic(), case.viscosity, forces=[*forces, *closure])


def start(case, model, key):
    """Random vortices: a quarter of the box wide, or of two waves along the box with a largest velocity of a half."""
    waves = (
        (lambda k: (k / 4) ** 5 / (1 + (k / 4) ** 18))
        if case.driven
        else (lambda k: jnp.exp(-2 * (k - 2) ** 2))
    )
    psi = gaussian_random_field(model.grid, waves, key=key)
    u, v = (
        jnp.roll(psi, -1, 1) - psi,
        psi - jnp.roll(psi, -1, 0),
    )  # differences along faces: without divergence
    square = u**2 + v**2
    size = jnp.sqrt(jnp.mean(square)) if case.driven else 2 * jnp.sqrt(jnp.max(square))
    return FlowState((u / size, v / size), {})


def solved(model, w, frames, finer=1, adjoint=None):
    """The velocities, of shape `(2, points, points)`, at the ends of all frames."""
    end, dt = frames * STEPS * STEP, STEP / finer
    saveat = jnp.linspace(0.0, end, frames + 1)
    options = dict(dt=dt, saveat=saveat, solver=SSPRK33(), adjoint=adjoint, throw=False)
    return jnp.stack(
        sciml.solve(model, FlowState((w[0], w[1]), {}), t0=0.0, t1=end, **options).ys.velocity, 1
    )


def rates_of(model, w):
    return jnp.stack(model(0.0, FlowState((w[0], w[1]), {}), None).velocity)


def coarsened(w):
    """The flux through the faces of the coarse grid: means over their fine faces."""
    u, v = w[0, ::FINER], w[1, :, ::FINER]
    across = u.reshape(len(u), -1, FINER).mean(2), v.reshape(-1, FINER, v.shape[1]).mean(1)
    return jnp.stack(across)


def record(case):
    """Returns coarsened runs of the fine grid, their rates, and the last fine field."""
    fine = flow(case, FINER * case.points)

    @jax.jit
    def one(key):
        w = jnp.stack(start(case, fine, key).velocity)
        if case.warm:
            w = solved(fine, w, round(case.warm / (STEP * STEPS)), FINER)[-1]
        ws = solved(fine, w, case.frames, FINER)
        rates = jax.lax.map(lambda w: coarsened(rates_of(fine, w)), ws)
        return jax.vmap(coarsened)(ws), rates, ws[-1]

    keys = jax.random.split(jax.random.key(0), sum(case.records))
    return (np.stack(x) for x in zip(*[jax.tree.map(np.asarray, one(key)) for key in keys]))


def train(case, coarse, model, fields, rates):
    """Returns the corrected flow: matched to rates first, which takes no solve, then trained through predictions.

    All losses are in units of what the coarse grid alone is off.
    """

    def trained(model, loss, data, rate, steps, batch_size):
        schedule = optax.cosine_decay_schedule(rate, steps, 0.02)
        optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
        options = dict(where=lambda model: model.forces[-1].net, progress=False)
        found = training.train(
            model, loss, data, optimiser=optimiser, steps=steps, batch_size=batch_size, **options
        )
        return (
            found.model,
            f"{np.sqrt(np.median(found.history.loss[-20:])):.3f} of what the coarse grid alone is off",
        )

    pairs = tuple(x.reshape(-1, *x.shape[2:]) for x in (fields, rates))
    apart = jax.jit(
        lambda w, rate: jnp.mean((jax.lax.map(lambda w: rates_of(coarse, w), w) - rate) ** 2)
    )
    missing = float(apart(*(x[::8] for x in pairs)))

    def off_by(model, batch, key):
        w, rate = batch
        return jnp.mean((jax.vmap(lambda w: rates_of(model, w))(w) - rate) ** 2) / missing

    model, words = trained(model, off_by, pairs, 1e-2, case.rates, 8)
    print(f"rates are off by {words}", flush=True)
    adjoint = sciml.adjoints.Checkpointed(memory=2**25)
    for length, updates, size in case.lengths:
        starts = range(0, fields.shape[1] - length, length // 2)
        windows = np.concatenate([fields[:, i : i + length + 1] for i in starts])
        some = windows[:: max(1, len(windows) // 16)]
        found = jax.jit(
            lambda w, length=length: jax.lax.map(lambda w: solved(coarse, w, length), w)
        )(some[:, 0])
        unit = jnp.mean((found - some)[:, 1:] ** 2, axis=(0, 2, 3, 4))

        def astray(model, windows, key, length=length, unit=unit):
            found = jax.vmap(lambda w: solved(model, w, length, adjoint=adjoint))(windows[:, 0])
            return jnp.mean(jnp.mean((found - windows)[:, 1:] ** 2, axis=(0, 2, 3, 4)) / unit)

        model, words = trained(model, astray, windows, case.rate, updates, size)
        print(f"predictions over {length} frames are off by {words}", flush=True)
    return model


def total(w):
    """The sum of squares of a velocity, for each record and time."""
    return np.sum(w**2, axis=(2, 3, 4))


def gain(alone, corrected):
    """Mosaic's metric: the factor by which the error decreases, as a geometric mean over starts and later frames."""
    return np.exp(np.mean(np.log(alone[:, 1:] / corrected[:, 1:])))


def draw(path, ts, last, shown, off):
    """Draws the vorticity at the end: fine, coarse, corrected; and the errors over time."""
    figure, axes = plt.subplots(
        1, 4, figsize=(13.0, 3.3), layout="constrained", width_ratios=(1, 1, 1, 1.2)
    )

    def vorticity(w):
        h = 2 * np.pi / len(w[0])
        return (w[1] - np.roll(w[1], 1, 0) - w[0] + np.roll(w[0], 1, 1)) / h

    extreme = 0.8 * np.abs(vorticity(last)).max()
    for ax, (name, w) in zip(axes, {"fine": last, **shown}.items()):
        options = dict(
            origin="lower", extent=(0, 2 * np.pi) * 2, cmap="RdBu_r", vmin=-extreme, vmax=extreme
        )
        drawn = ax.imshow(vorticity(w).T, **options)
        ax.set(
            title=f"{name}, {len(w[0])}² cells", xlabel="x", xticks=[0, np.pi, 2 * np.pi], yticks=[]
        )
        ax.set_xticklabels(["0", "π", "2π"])
    figure.colorbar(drawn, ax=axes[2], label="vorticity")
    for name, x in off.items():
        for one in x:
            axes[3].semilogy(ts[1:], one[1:], color=COLOURS[name], alpha=0.3, linewidth=1)
        axes[3].semilogy(
            ts[1:],
            np.exp(np.log(x[:, 1:]).mean(axis=0)),
            color=COLOURS[name],
            linewidth=2,
            label=name,
        )
    axes[3].set(xlabel="time", ylabel="error of the velocity", xlim=(0, ts[-1]))
    axes[3].legend(frameon=False, fontsize=8, loc="lower right")
    axes[3].spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    """Generates the data, trains, compares with held-out data, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure"
    )
    parser.add_argument("--flow", choices=CASES, default="kolmogorov", help="which flow")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    case, begun = CASES[given.flow], time.perf_counter()
    fields, rates, last = record(case)
    print(
        f"{len(fields)} records of {FINER * case.points}² cells: {time.perf_counter() - begun:.0f} s",
        flush=True,
    )

    held_back, coarse = case.records[1], flow(case, case.points)
    size = float(np.sqrt(np.mean(fields**2)))
    closure = StressClosure(width=16, scale=size, key=jax.random.key(1))
    model = flow(case, case.points, [closure])
    model = train(case, coarse, model, fields[held_back:], rates[held_back:])
    print(f"trained after {time.perf_counter() - begun:.0f} s", flush=True)

    truth = fields[:held_back]
    run = eqx.filter_jit(lambda model, w: jax.lax.map(lambda w: solved(model, w, case.frames), w))
    runs = {
        name: np.asarray(run(m, truth[:, 0]))
        for name, m in (("coarse", coarse), ("corrected", model))
    }
    off = {name: np.sqrt(total(w - truth) / total(truth)) for name, w in runs.items()}
    ts = STEP * STEPS * np.arange(truth.shape[1])
    for at in sorted({JUDGED, case.frames}):
        alone, corrected = (x[:, at].mean() for x in off.values())
        print(
            f"at time {ts[at]:.2f} the velocity is off by {alone:.2%}, corrected by {corrected:.2%}"
        )
    ratio = gain(*(x[:, : JUDGED + 1] for x in off.values()))
    print(f"Mosaic's metric, up to time {ts[JUDGED]:.2f}: errors are divided by {ratio:.2f}")
    name = given.out / ("kolmogorov.png" if case.driven else f"kolmogorov_{given.flow}.png")
    draw(name, ts, last[0], {name: w[0, -1] for name, w in runs.items()}, off)
    print(f"wrote {name} after {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
