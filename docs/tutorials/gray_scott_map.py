"""Patterns of the Gray-Scott model, and their map: a sweep over the feed and kill rates.

Run it with `python docs/tutorials/gray_scott_map.py`: it takes a minute or two on two cores and writes two figures
into the folder `--out`.
"""

import argparse
import pathlib
import time

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import models, parallel, spatial
from sciml.spatial import Grid, Periodic

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

GRID = Grid((64, 64), 0.0, 1.0)
END, STEP = 4000.0, 2.0
EULER = diffrax.Euler()
FEEDS = np.linspace(0.010, 0.065, 12, dtype=np.float32)
KILLS = np.linspace(0.045, 0.067, 12, dtype=np.float32)


def start() -> jax.Array:
    """The first substance everywhere, except for a few spots of the second."""
    spots = spatial.random_spots(GRID, 12, radius=0.04, key=jax.random.key(1))
    return jnp.stack([1.0 - 0.5 * spots, 0.25 * spots]).astype(jnp.float32)


def pattern(rates: dict[str, jax.Array], y0: jax.Array) -> sciml.Solution:
    """One member: the fields at the end, for one feed rate and one kill rate."""
    model = models.GrayScott(GRID, Periodic(), feed=rates["feed"], kill=rates["kill"])
    # the rates are traced, so an unstable step would set a status instead of raising an error
    return sciml.solve(model, y0, t0=0.0, t1=END, dt=STEP, solver=EULER, throw=False)


def one_pattern(out: pathlib.Path) -> None:
    """Spots that divide until they fill the box, with the largest stable steps."""
    model = models.GrayScott(GRID, Periodic(), feed=0.035, kill=0.062)
    times = jnp.array([0.0, 500.0, 1500.0, END])
    sol = sciml.solve(model, start(), t0=0.0, t1=END, saveat=times, solver=EULER)  # no `dt`: a stable step
    limit = sciml.solvers.stability(EULER).longest_step(model.spectrum(0.0, start(), None))
    print(f"the longest stable step is {float(limit):.3g}; {int(sol.stats.accepted)} steps of {END:.0f} time units")
    try:
        sciml.solve(model, start(), t0=0.0, t1=END, dt=10.0, solver=EULER)
    except ValueError as error:
        print(f"and a longer one is refused: {error}")

    figure, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout="constrained", sharey=True)
    for ax, t, (_, v) in zip(axes, np.asarray(sol.ts), np.asarray(sol.ys), strict=True):
        image = ax.imshow(v.T, origin="lower", extent=(0, 1, 0, 1), cmap="magma", vmin=0.0, vmax=0.4)
        ax.set_title(f"t = {t:.0f}", loc="left", fontsize="medium")
        ax.set_xlabel("x")
        ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    axes[0].set_ylabel("y")
    figure.colorbar(image, ax=axes, label="v", shrink=0.75)
    figure.savefig(out / "gray_scott_map_spots.png", dpi=120)


def sweep_rates() -> sciml.parallel.SweepResult:
    """All pairs of rates, one member each, with a progress bar."""
    begun = time.perf_counter()
    grid = parallel.parameter_grid(feed=FEEDS, kill=KILLS)
    result = parallel.sweep(pattern, grid, start(), output=lambda sol: sol.ys[-1, 1], block=12)
    print(f"{result.summary()}\nin {time.perf_counter() - begun:.1f} s")
    return result


def alive(fields: np.ndarray) -> np.ndarray:
    """The fraction of the box that contains the second substance."""
    return np.mean(fields > 0.1, axis=(-2, -1))


def varied(fields: np.ndarray) -> np.ndarray:
    """The standard deviation over the box: zero for a uniform state."""
    return np.std(fields, axis=(-2, -1))


def draw(fields: np.ndarray, path: pathlib.Path) -> None:
    """Every pattern at its position in the plane of the rates, and its variation over the box."""
    feeds, kills, n, _ = fields.shape
    mosaic = fields.transpose(0, 3, 1, 2).reshape(feeds * n, kills * n)
    half = (FEEDS[1] - FEEDS[0]) / 2, (KILLS[1] - KILLS[0]) / 2
    extent = (KILLS[0] - half[1], KILLS[-1] + half[1], FEEDS[0] - half[0], FEEDS[-1] + half[0])
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained", sharey=True)
    shown = dict(origin="lower", extent=extent, aspect="auto")
    image = left.imshow(mosaic, cmap="magma", vmin=0.0, vmax=0.4, **shown)
    figure.colorbar(image, ax=left, label="v at the end")
    image = right.imshow(varied(fields), cmap="viridis", vmin=0.0, **shown)
    figure.colorbar(image, ax=right, label="standard deviation of v over the box")
    f = np.linspace(float(extent[2]), float(extent[3]), 200)
    f = f[f > 0]
    right.plot(np.sqrt(f) / 2 - f, f, color="white", linestyle="--", label="F = 4 (F + k)²")
    right.set_xlim(extent[:2])
    right.legend(loc="upper left", frameon=False, labelcolor="white")
    for ax, title in ((left, "Patterns"), (right, "How much they vary")):
        ax.set_xlabel("kill k")
        ax.set_title(title, loc="left", fontsize="medium")
    left.set_ylabel("feed F")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    """Runs both parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gray_scott_map"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    one_pattern(out)
    fields = sweep_rates().on_grid()
    there = alive(fields) > 0
    patterns = int(np.sum(varied(fields) > 0.02))
    print(f"{int(np.sum(there))} of {there.size} are alive at the end, {patterns} of them with a pattern")
    draw(fields, out / "gray_scott_map.png")


if __name__ == "__main__":
    main()
