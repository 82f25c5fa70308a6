"""Two-dimensional decaying turbulence: merging vortices, spectra, and viscous dissipation.

Run it with `python docs/tutorials/turbulence.py`: it takes less than a minute and writes a figure into the folder
`--out`.
"""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml.models import Vorticity
from sciml.spatial import Grid, gaussian_random_field

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
POINTS, VISCOSITY = 128, 2e-3
GRID = Grid((POINTS, POINTS), 0.0, 2 * np.pi)
TIMES = (0.0, 5.0, 20.0)


def start() -> jax.Array:
    """Random vortices of about an eighth of the box, with a root mean square velocity of one."""
    vorticity = gaussian_random_field(GRID, lambda k: (k / 6) ** 6 / (1 + (k / 6) ** 18), key=jax.random.key(3))
    model = Vorticity(GRID)
    return vorticity / jnp.sqrt(2 * model.energy(vorticity))


def run(model: Vorticity) -> sciml.Solution:
    """Every step integrates viscosity exactly; transport limits its size."""
    return sciml.solve(model, start(), t0=0.0, t1=TIMES[-1], dt=0.0125, saveat=jnp.linspace(0.0, TIMES[-1], 81))


def draw(model: Vorticity, sol: sciml.Solution, path: pathlib.Path) -> None:
    """The vorticity at three times, the spectra there, and energy and enstrophy over time."""
    figure = plt.figure(figsize=(10, 7), layout="constrained")
    grid = figure.add_gridspec(2, 6, height_ratios=(1.2, 1))
    left, right = figure.add_subplot(grid[1, :3]), figure.add_subplot(grid[1, 3:])
    for i, (t, colour) in enumerate(zip(TIMES, ("0.6", "#0072B2", "#D55E00"))):
        vorticity = sol.ys[int(np.argmin(np.abs(np.asarray(sol.ts) - t)))]
        extreme = float(jnp.max(jnp.abs(vorticity))) * 0.8
        ax = figure.add_subplot(grid[0, 2 * i : 2 * i + 2])
        extent = (0, 2 * np.pi, 0, 2 * np.pi)
        drawn = ax.imshow(vorticity.T, origin="lower", extent=extent, cmap="RdBu_r", vmin=-extreme, vmax=extreme)
        ax.set_title(f"vorticity, t = {t:g}", loc="left", fontsize="medium")
        ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
        ax.set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
        figure.colorbar(drawn, ax=ax, shrink=0.56)
        k, energy = model.energy_spectrum(vorticity)
        shown = (k >= 1) & (k <= POINTS / 3)
        left.loglog(k[shown], energy[shown], color=colour, label=f"t = {t:g}")
    k = np.array([8.0, 40.0])
    left.loglog(k, 8 * k**-3, color="0.3", linestyle="--", linewidth=1)
    left.text(22, 2e-3, "$k^{-3}$", color="0.3")
    left.set_ylim(1e-9, 1)
    left.set_xlabel("wavenumber k")
    left.set_ylabel("energy E(k)")
    left.legend(frameon=False, fontsize="small")
    for quantity, name, colour in ((model.energy, "energy", "#0072B2"), (model.enstrophy, "enstrophy", "#D55E00")):
        values = jax.vmap(quantity)(sol.ys)
        right.semilogy(sol.ts, values / values[0], color=colour, label=name)
    right.set_xlabel("time")
    right.set_ylabel("over that of the start")
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs, compares the losses with the viscous dissipation, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    model = Vorticity(GRID, viscosity=VISCOSITY)
    begin = time.perf_counter()
    sol = jax.block_until_ready(run(model))
    print(f"{sol.solver}, {int(sol.stats.accepted)} steps: {time.perf_counter() - begin:.1f} s")
    energy, enstrophy = (np.asarray(jax.vmap(f)(sol.ys)) for f in (model.energy, model.enstrophy))
    taken = 2 * VISCOSITY * np.trapezoid(enstrophy, np.asarray(sol.ts))
    print(f"energy fell by {1 - energy[-1] / energy[0]:.1%}, enstrophy by {1 - enstrophy[-1] / enstrophy[0]:.1%}")
    print(f"energy lost {energy[0] - energy[-1]:.5f}, taken by viscosity {taken:.5f}")
    draw(model, sol, out / "turbulence.png")
    print(f"wrote {out / 'turbulence.png'}")


if __name__ == "__main__":
    main()
