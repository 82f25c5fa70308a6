"""Draw the pictures of the guide to flows: `python docs/guides/flows.py --out docs/guides/figures`."""

import argparse
import pathlib

import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import verify
from sciml.models import Euler, ShallowWater
from sciml.spatial import WENO5Z, Constant, Grid, Outflow, Reflecting

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

BLUE, VERMILION = "#0072B2", "#D55E00"


def flows_shock_tube():
    """Sod's shock tube beside the exact solution."""
    grid = Grid(100)
    (x,) = grid.centers
    left, right = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.125, 0.0, 0.1])
    fine = jnp.linspace(0.0, 1.0, 2001)
    exact = verify.riemann_euler(left, right, (fine - 0.5) / 0.2)
    schemes = (
        ("first order", dict(reconstruction=Constant()), "0.6", "s"),
        ("Muscl", dict(), VERMILION, "^"),
        ("WENO5Z", dict(reconstruction=WENO5Z()), BLUE, "o"),
    )
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for ax, row, label in zip(axes, (0, 1), ("density", "velocity"), strict=True):
        ax.plot(fine, exact[row], color="black", linewidth=1.0, label="exact")
        ax.set(xlabel="x", ylabel=label)
    for name, options, colour, marker in schemes:
        law = Euler(grid, Outflow(), **options)
        start = law.conserved(jnp.where((x < 0.5)[None], left[:, None], right[:, None]))
        w = law.primitive(sciml.solve(law, start, t0=0.0, t1=0.2).ys[-1])
        error = jnp.mean(jnp.abs(w - verify.riemann_euler(left, right, (x - 0.5) / 0.2)), axis=1)
        print(f"Sod with 100 cells, {name}: mean error of the density {error[0]:.4f}")
        for ax, row in zip(axes, (0, 1), strict=True):
            ax.plot(x, w[row], marker, color=colour, markersize=2.5, label=name)
    axes[0].legend(frameon=False)
    return figure


def flows_riemann():
    """Four gases that meet, configuration 3 of Lax and Liu."""
    grid = Grid((256, 256))
    x, y = grid.centers
    law = Euler(grid, Outflow(), reconstruction=WENO5Z())
    quarters = {
        (True, True): (1.5, 0.0, 0.0, 1.5),
        (False, True): (0.5323, 1.206, 0.0, 0.3),
        (False, False): (0.138, 1.206, 1.206, 0.029),
        (True, False): (0.5323, 0.0, 1.206, 0.3),
    }
    w = sum(
        jnp.array(state)[:, None, None] * (((x > 0.8) == right) & ((y > 0.8) == above))[None]
        for (right, above), state in quarters.items()
    )
    sol = sciml.solve(law, law.conserved(w), t0=0.0, t1=0.8)
    density = np.asarray(law.primitive(sol.ys[-1])[0])
    print(
        f"four gases: {int(sol.stats.accepted)} steps, {int(sol.stats.rejected)} tried again, least {density.min():.3f}"
    )
    figure, ax = plt.subplots(figsize=(5.6, 4.8), layout="constrained")
    image = ax.imshow(density.T, origin="lower", extent=(0, 1, 0, 1), cmap="cividis")
    ax.contour(density.T, levels=24, extent=(0, 1, 0, 1), colors="black", linewidths=0.3)
    ax.set(xlabel="x", ylabel="y")
    figure.colorbar(image, ax=ax, label="density")
    return figure


def flows_dam_break():
    """Water on a dry bed beside Ritter's solution, and water around hills."""
    figure, axes = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained", width_ratios=(1, 1.3))
    line = Grid(100, -10.0, 10.0)
    (x,) = line.centers
    law = ShallowWater(line, Outflow())
    sol = sciml.solve(law, jnp.stack([jnp.where(x < 0, 1.0, 0.0), jnp.zeros(100)]), t0=0.0, t1=1.2)
    fine = jnp.linspace(-10.0, 10.0, 1001)
    depth, _ = verify.dam_break(x, 1.2, 1.0)
    print(f"a dam above a dry bed, 100 cells: mean error of the depth {jnp.mean(jnp.abs(sol.ys[-1][0] - depth)):.4f}")
    axes[0].plot(fine, verify.dam_break(fine, 1.2, 1.0)[0], color="black", linewidth=1.0, label="Ritter")
    axes[0].plot(x, sol.ys[-1][0], "o", color=BLUE, markersize=2.5, label="Muscl, HLLC")
    axes[0].set(xlabel="x", ylabel="depth")
    axes[0].legend(frameon=False)

    grid = Grid((150, 60), (0.0, 0.0), (75.0, 30.0))
    x, y = grid.centers
    bed = sum(
        height * jnp.maximum(1 - jnp.sqrt((x - a) ** 2 + (y - b) ** 2) / width, 0.0)
        for a, b, width, height in ((30.0, 6.0, 8.0, 1.0), (30.0, 24.0, 8.0, 1.0), (47.5, 15.0, 10.0, 2.8))
    )
    law = ShallowWater(grid, Reflecting(), bed, friction=0.003)
    depth = jnp.where(x < 16.0, 1.875, 0.0) + jnp.zeros(grid.shape)
    sol = sciml.solve(law, jnp.stack([depth, 0 * depth, 0 * depth]), t0=0.0, t1=12.0)
    end = sol.ys[-1][0]
    kept = float(grid.integrate(end) / grid.integrate(depth))
    print(f"water around hills: {kept:.6f} of it is there at the end; least depth {float(end.min()):.1e}")
    axes[1].contour(np.asarray(bed).T, levels=8, extent=(0, 75, 0, 30), colors="0.5", linewidths=0.6)
    shown = np.ma.masked_less(np.asarray(end), 1e-3)
    image = axes[1].imshow(shown.T, origin="lower", extent=(0, 75, 0, 30), cmap="Blues", vmin=0.0)
    axes[1].set(xlabel="x", ylabel="y")
    figure.colorbar(image, cax=axes[1].inset_axes((1.03, 0.0, 0.03, 1.0)), label="depth")
    return figure


PICTURES = (flows_shock_tube, flows_riemann, flows_dam_break)


def main():
    """Draws all of them, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "figures")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for draw in PICTURES:
        if not given.names or draw.__name__ in given.names:
            path = given.out / f"{draw.__name__}.png"
            draw().savefig(path, dpi=100)
            print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
