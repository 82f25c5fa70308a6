"""Solver in the loop: turbulence on a coarse grid with a learnt corrector, trained through the solver.

Run it with `python docs/tutorials/kolmogorov.py`: it takes two to three minutes and writes a figure, to the folder that
`--out` names. `--points 64` takes a coarse grid of twice as many points along each axis, and several times as long.

Kolmogorov flow is driven by a force like sin(k y) and becomes turbulent. A grid of a third of the points along each
axis takes a fiftieth of the work of a fine one, and goes astray: eddies that it does not show act on those that it
does. A convolutional network, told of vorticity and velocity, gives the fluxes of vorticity that are missing, in every
stage of every step.
"""

import argparse
import pathlib
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml import training
from sciml.models import Vorticity, kolmogorov_forcing
from sciml.models.neural import SpectralClosure
from sciml.spatial import Grid, gaussian_random_field

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
FINER = 3  # how many points of the fine grid there are to one of the coarse grid, along an axis
WARM, END = 5.0, 6.0  # how long it takes until the flow is turbulent, and how long it is recorded from there
RECORDS, HELD_BACK = 12, 4
COLOURS = {"coarse": "0.6", "corrected": "#0072B2"}


def flow(points, viscosity):
    """Kolmogorov flow in a box of side 2 pi, with four waves of the force along y."""
    shape = (points, points)
    return Vorticity(shape, viscosity=viscosity, drag=0.1, forcing=kolmogorov_forcing(shape, waves=4))


def start(key, model):
    """Random vortices of a quarter of the box, with a root mean square velocity of one."""
    grid = Grid(model.shape, 0.0, 2 * np.pi)
    w = gaussian_random_field(grid, lambda k: (k / 4) ** 6 / (1 + (k / 4) ** 18), key=key)
    return w / jnp.sqrt(2 * model.energy(w))


def filtered(w, points):
    """A field by the modes alone that a coarse grid resolves, at the points of that grid."""
    numbers = np.fft.fftfreq(points, 1 / points).astype(int)
    half = np.arange(points // 2 + 1)
    modes = jnp.fft.rfft2(w)[numbers][:, half] * (points / len(w)) ** 2
    resolved = jnp.asarray((np.abs(numbers)[:, None] < points / 3) & (half < points / 3))
    return jnp.fft.irfft2(jnp.where(resolved, modes, 0), (points, points))


def seen(model, w):
    """What the network is told: vorticity and velocity. The latter depends on the whole field, not on a few points."""
    return jnp.concatenate([w[None], model.velocity(w)])


def solved(model, w, end, dt, spacing, adjoint=None):
    """The vorticity at all times that are kept."""
    saveat = jnp.linspace(0.0, end, round(end / spacing) + 1)
    return sciml.solve(model, w, t0=0.0, t1=end, saveat=saveat, dt=dt, adjoint=adjoint, throw=False).ys


def record(fine, points, step):
    """Returns fields of the fine grid as the coarse one would show them, their rates, and the fine ones at the end."""

    @jax.jit
    def one(key):
        w = solved(fine, start(key, fine), WARM, step / 6, WARM)[-1]
        ws = solved(fine, w, END, step / 6, step)
        rates = jax.lax.map(lambda w: filtered(fine(0.0, w, None), points), ws)
        return jax.vmap(lambda w: filtered(w, points))(ws), rates, ws[-1]

    found = [jax.tree.map(np.asarray, one(key)) for key in jax.random.split(jax.random.key(0), RECORDS)]
    return (np.stack(x) for x in zip(*found))


def train(model, fields, rates, step, updates):
    """Returns the corrected model: matched to rates first, which takes no solve, then trained through predictions."""

    def energy(ws):
        """That of velocities: the many small eddies have more vorticity, the few large ones more of the velocity."""
        return jnp.mean(jax.vmap(model.model.energy)(ws.reshape(-1, *ws.shape[-2:])))

    def off_by(model, batch, key):
        w, rate = batch
        return energy(jax.vmap(lambda w: model(0.0, w, None))(w) - rate)

    def astray(model, windows, key):
        length = windows.shape[1] - 1
        adjoint = sciml.adjoints.Checkpointed(memory=2**24)
        found = jax.vmap(lambda w: solved(model, w, length * step, step, step, adjoint))(windows[:, 0])
        return energy(found[:, 1:] - windows[:, 1:])

    def trained(model, loss, data, rate, steps, batch_size):
        optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps, 0.05))
        options = dict(where=lambda model: model.net, progress=False)
        found = training.train(model, loss, data, optimiser=optimiser, steps=steps, batch_size=batch_size, **options)
        first, last = (np.sqrt(x.mean()) for x in (found.history.loss[:5], found.history.loss[-20:]))
        return found.model, f"{first:.5f}, then {last:.5f}"

    pairs = tuple(x.reshape(-1, *x.shape[2:]) for x in (fields, rates))
    model, words = trained(model, off_by, pairs, 1e-2, 6 * updates, 8)
    print(f"rates are off by {words}")
    for length, size in ((4, 8), (12, 4)):
        starts = range(0, fields.shape[1] - length, length // 2)
        windows = np.concatenate([fields[:, i : i + length + 1] for i in starts])
        model, words = trained(model, astray, windows, 3e-3, updates, size)
        print(f"predictions over {length} steps are off by {words}")
    return model


def errors(coarse, found, truth):
    """How far velocities are off, over their size, for each record and time."""
    velocity = jax.jit(jax.vmap(jax.vmap(coarse.velocity)))
    off, size = (np.sum(np.asarray(velocity(w)) ** 2, axis=(2, 3, 4)) for w in (found - truth, truth))
    return np.sqrt(off / size)


def draw(path, ts, last, shown, off):
    """Draws the vorticity at the end: fine, coarse, corrected; and the errors over time."""
    figure, axes = plt.subplots(1, 4, figsize=(13.0, 3.3), layout="constrained", width_ratios=(1, 1, 1, 1.2))
    extreme = 0.8 * np.abs(last).max()
    for ax, (name, w) in zip(axes, {"fine": last, **shown}.items()):
        options = dict(origin="lower", extent=(0, 2 * np.pi) * 2, cmap="RdBu_r", vmin=-extreme, vmax=extreme)
        drawn = ax.imshow(w.T, **options)
        ax.set(title=f"{name}, {len(w)}² points", xlabel="x", xticks=[0, np.pi, 2 * np.pi], yticks=[])
        ax.set_xticklabels(["0", "π", "2π"])
    figure.colorbar(drawn, ax=axes[2], label="vorticity")
    for name, x in off.items():
        for one in x:
            axes[3].plot(ts, one, color=COLOURS[name], alpha=0.3, linewidth=1)
        axes[3].plot(ts, x.mean(axis=0), color=COLOURS[name], linewidth=2, label=name)
    axes[3].set(xlabel="time", ylabel="error of the velocity", xlim=(0, ts[-1]), ylim=(0, None))
    axes[3].legend(frameon=False, fontsize=8)
    axes[3].spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    """Makes the data, trains, compares with records that were held back, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure")
    parser.add_argument("--points", type=int, default=32, help="points of the coarse grid along an axis")
    parser.add_argument("--updates", type=int, default=80, help="steps of training for each length of predictions")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    points, viscosity = given.points, 0.64 / given.points
    step = 3.2 / points
    fine, coarse = flow(FINER * points, viscosity), flow(points, viscosity)
    fields, rates, last = record(fine, points, step)
    print(f"{RECORDS} records of {FINER * points}² points: {time.perf_counter() - begun:.0f} s")

    model = SpectralClosure(
        coarse, 2, seen, 3, width=16, depth=2, scale=(5.0, 1.0, 1.0), time=1.0, key=jax.random.key(1)
    )
    model = train(model, fields[HELD_BACK:], rates[HELD_BACK:], step, given.updates)
    print(f"trained after {time.perf_counter() - begun:.0f} s")

    truth = fields[:HELD_BACK]
    run = eqx.filter_jit(lambda model, w: jax.vmap(lambda w: solved(model, w, END, step, step))(w))
    runs = {name: np.asarray(run(m, truth[:, 0])) for name, m in (("coarse", coarse), ("corrected", model))}
    off = {name: errors(coarse, w, truth) for name, w in runs.items()}
    ts = step * np.arange(truth.shape[1])
    for at in (END / 3, END):
        i = int(np.argmin(np.abs(ts - at)))
        gone, left = (x[:, i].mean() for x in off.values())
        print(
            f"at time {at:g} the velocity is off by {gone:.1%}, corrected by {left:.1%}: {gone / left:.2f} times less"
        )
    draw(given.out / "kolmogorov.png", ts, last[0], {name: w[0, -1] for name, w in runs.items()}, off)
    print(f"wrote {given.out / 'kolmogorov.png'} after {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
