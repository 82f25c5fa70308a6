"""A learned closure for the Kuramoto-Sivashinsky equation on a coarse grid.

Run it with `python docs/tutorials/coarse_waves.py`: it takes about a minute and writes a figure into the folder
`--out`.

A flame front is unstable to long waves, u_t = -u u_x - u_xx - u_xxxx. Three eighths of the points resolve nearly all
of its energy, but their solution diverges, because the effect of short waves on long ones is missing. A network of
fluxes adds it. It is first fitted to the missing rates, which needs no solve, and then trained through the solver.
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
from sciml.models import KuramotoSivashinsky
from sciml.models.neural import SpectralClosure

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LENGTH, FINE, COARSE = 96.0, 192, 72
SPACING = 0.5  # interval of saved times, and steps of the coarse grid; the fine grid uses half of them
RECORDS, HELD_BACK, KEPT = 24, 8, 121
GREY, BLUE = "0.6", "#0072B2"


def averaged(u, points=COARSE):
    """The lowest modes of the field, which a coarse grid resolves, at the points of that grid."""
    modes = jnp.fft.rfft(u)[..., : points // 2 + 1] * (points / u.shape[-1])
    resolved = jnp.arange(points // 2 + 1) < points / 3
    return jnp.fft.irfft(jnp.where(jnp.broadcast_to(resolved, modes.shape), modes, 0), points)


def starts(key, points):
    """Random long waves, which become chaotic after some hundred units of time."""
    heights, phases = jax.random.normal(key, (2, RECORDS + HELD_BACK, 8, 1))
    k = 2 * jnp.pi / points * jnp.arange(1.0, 9.0)[:, None]
    return jnp.sum(heights * jnp.sin(k * jnp.arange(points) + 2 * phases), axis=1) / 2


def solved(model, u, end, dt=SPACING, every=SPACING):
    """The field at all saved times, from an initial state."""
    saveat = jnp.linspace(0.0, end, round(end / every) + 1)
    return sciml.solve(model, u, t0=0.0, t1=end, saveat=saveat, dt=dt, throw=False).ys


def train(model, fields, rates):
    """Returns the closure, fitted to rates and then trained through predictions of growing length."""

    def misfit(model, batch, key):
        field, rate = batch
        return jnp.mean((jax.vmap(lambda u: model(0.0, u, None))(field) - rate) ** 2)

    rows = [jnp.asarray(x.reshape(-1, COARSE)) for x in (fields, rates)]
    none = float(misfit(model.model, rows, None))
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, 600, 0.05))
    only = lambda model: model.net  # noqa: E731
    found = training.train(
        model, misfit, tuple(rows), optimiser=optimiser, steps=600, batch_size=64, where=only, progress=False
    )
    print(f"rates: the coarse grid lacks {none:.2e}, with the closure {found.history.loss[-20:].mean():.2e}")
    ts = SPACING * np.arange(KEPT, dtype=np.float32)
    for length, steps in ((4, 150), (12, 150)):
        problem = training.rollouts(
            found.model, [ts] * len(fields), list(fields), length=length, stride=length // 2, dt=SPACING, scale=0.1
        )
        optimiser = optax.adam(optax.cosine_decay_schedule(2e-3, steps, 0.05))
        found = training.train(
            *problem, optimiser=optimiser, steps=steps, batch_size=16, where=only, progress=False, key=jax.random.key(1)
        )
        first, last = found.history.loss[:10].mean(), found.history.loss[-10:].mean()
        print(f"predictions over {length * SPACING:g}: loss {first:.4f}, then {last:.4f}")
    return found.model


def spectrum(u):
    """The mean energy of each mode."""
    return np.mean(np.abs(np.fft.rfft(u) / u.shape[-1]) ** 2, axis=tuple(range(u.ndim - 1)))


def draw(path, truth, runs, errors, spectra):
    """Draws fields over time, errors over time, and energies."""
    figure = plt.figure(figsize=(11.0, 6.2), layout="constrained")
    grid = figure.add_gridspec(2, 6)
    end = SPACING * (KEPT - 1)
    for i, (name, u) in enumerate((("fine", truth), *runs.items())):
        ax = figure.add_subplot(grid[0, 2 * i : 2 * i + 2])
        drawn = ax.imshow(
            u[0].T, origin="lower", aspect="auto", cmap="RdBu_r", vmin=-3, vmax=3, extent=(0, end, 0, LENGTH)
        )
        ax.set(title=name, xlabel="time", ylabel="x" if i == 0 else None)
    figure.colorbar(drawn, ax=ax, label="u")
    left, right = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
    for (name, error), colour in zip(errors.items(), (GREY, BLUE)):
        left.semilogy(SPACING * np.arange(1, KEPT), error[1:], color=colour, label=name)
    left.axhline(np.std(truth), color="black", linewidth=0.8, linestyle="--")
    left.text(1, 1.1 * np.std(truth), "size of the waves", fontsize=8)
    left.set(xlabel="time", ylabel="error of u", xlim=(0, end))
    k = 2 * np.pi / LENGTH * np.arange(1, COARSE // 3)
    for (name, energy), colour, width in zip(spectra.items(), ("black", GREY, BLUE), (3, 1.2, 1.2)):
        right.semilogy(k, energy[1 : COARSE // 3], color=colour, linewidth=width, label=name)
    right.set(xlabel="wavenumber", ylabel="energy, over long times")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    """Generates the data, trains, compares and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    fine, coarse = (KuramotoSivashinsky(points=n, length=LENGTH) for n in (FINE, COARSE))

    @jax.jit
    def record(u):
        chaos = solved(fine, u, 150.0, dt=0.25, every=150.0)[-1]
        us = solved(fine, chaos, SPACING * (KEPT - 1), dt=0.25)
        return averaged(us), averaged(jax.vmap(lambda u: fine(0.0, u, None))(us))

    fields, rates = map(np.asarray, jax.vmap(record)(starts(jax.random.key(0), FINE)))
    print(f"{len(fields)} records of the fine grid: {time.perf_counter() - begun:.1f} s")

    model = SpectralClosure(coarse, 1, width=12, depth=2, radius=2, scale=2.0, key=jax.random.key(1))
    model = train(model, fields[HELD_BACK:], rates[HELD_BACK:])
    print(f"trained after {time.perf_counter() - begun:.1f} s")

    truth, end = fields[:HELD_BACK], SPACING * (KEPT - 1)
    run = eqx.filter_jit(lambda m, u, end: jax.vmap(lambda u: solved(m, u, end))(u))
    models = {"coarse": coarse, "with the closure": model}
    runs = {name: np.asarray(run(m, truth[:, 0], end)) for name, m in models.items()}
    errors = {name: np.sqrt(np.mean((u - truth) ** 2, axis=(0, 2))) for name, u in runs.items()}
    for name, u in runs.items():
        each = np.sqrt(np.mean((u - truth) ** 2, axis=2)) > 0.5 * np.std(truth)
        until = SPACING * np.where(each.any(axis=1), each.argmax(axis=1), KEPT - 1)
        print(f"{name}: error {errors[name][20]:.4f} at time {20 * SPACING:g}, right until {np.median(until):.1f}")
    ratio = errors["coarse"][20] / errors["with the closure"][20]
    print(f"the closure divides the error by {ratio:.1f}")

    longer = {name: np.asarray(run(m, truth[:, 0], 600.0))[:, 200:] for name, m in models.items()}
    spectra = {"fine": spectrum(fields)} | {name: spectrum(u) for name, u in longer.items()}
    for name, energy in list(spectra.items())[1:]:
        off = np.abs(np.log(energy[1 : COARSE // 3] / spectra["fine"][1 : COARSE // 3]))
        print(f"{name}: energies of modes off by a factor of {np.exp(off.mean()):.2f} in the mean")
    draw(out / "coarse_waves.png", truth, runs, errors, spectra)
    print(f"wrote {out / 'coarse_waves.png'} after {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
