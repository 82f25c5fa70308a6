"""Draw the pictures of the guide to geometry: `python docs/guides/geometry.py --out docs/guides/figures`."""

import argparse
import pathlib

import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import models, plot
from sciml.spatial import (
    Axisymmetric,
    Boundaries,
    Dirichlet,
    EllipticOperator,
    Grid,
    Immersed,
    Neumann,
    OrthogonalGrid,
    Polar,
    clustered_faces,
    solve_elliptic,
)

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams["font.size"] = 13  # pages show figures at about two thirds of their width


def grids():
    """The cells of three grids."""
    return (
        ("clustered at a wall", OrthogonalGrid([np.linspace(0, 1, 13), clustered_faces(12, widest=1.0)])),
        ("a disc", OrthogonalGrid([np.linspace(0, 1, 9), np.linspace(0, 2 * np.pi, 25)], Polar())),
    )


def geometry_grids():
    """Cells in two kinds of coordinates, a membrane that has been struck, and heat that leaves a can."""
    figure, axes = plt.subplots(1, 4, figsize=(13.6, 3.4), layout="constrained")
    for ax, (title, grid) in zip(axes, grids()):
        x, y = np.broadcast_arrays(*map(np.asarray, grid.cartesian(*grid.coordinates("node"))))
        ax.plot(x, y, color="#0072B2", linewidth=0.6)
        ax.plot(x.T, y.T, color="#0072B2", linewidth=0.6)
        ax.set_title(title, loc="left", fontsize="medium")
        ax.set_aspect("equal")
    drum = OrthogonalGrid([np.linspace(0, 1, 33), np.linspace(0, 2 * np.pi, 49)], Polar())
    x, y = drum.cartesian(*drum.centers)
    strike = jnp.exp(-((x - 0.4) ** 2 + y**2) / 0.02)
    model = models.Wave(drum, Dirichlet(0.0))
    sol = sciml.solve(model, jnp.stack([strike, 0 * strike]), t0=0.0, t1=0.6)
    u = sol.ys[-1, 0]
    high = float(jnp.max(jnp.abs(u)))
    plot.field(u, drum, ax=axes[2], labels="u", cmap="RdBu_r", vmin=-high, vmax=high)
    axes[2].set_title("a drum, struck off its middle", loc="left", fontsize="medium")
    can = OrthogonalGrid([clustered_faces(24, widest=0.0), clustered_faces(30, 0.0, 2.0)], Axisymmetric())
    model = models.Diffusion(can, {"r+": Dirichlet(0.0), "z-": Neumann(0.0), "z+": Dirichlet(0.0)})
    sol = sciml.solve(model, jnp.ones(can.shape), t0=0.0, t1=0.05, dt=0.0025)
    lost = 1 - float(can.integrate(sol.ys[-1])) / (2 * np.pi)
    plot.field(sol.ys[-1], can, ax=axes[3], labels="heat", vmin=0.0, vmax=1.0)
    axes[3].set_title(f"a can, {lost:.0%} is gone", loc="left", fontsize="medium")
    print(f"the can has lost {lost:.3f} of its heat; around the axis the drum is smooth: {_around_the_axis(u):.3f}")
    return figure


def _around_the_axis(u):
    """How much neighbours across the axis differ, over those along the radius."""
    across = np.asarray(u[0] - jnp.roll(u[0], u.shape[1] // 2))
    return float(np.max(np.abs(across)) / np.max(np.abs(np.diff(np.asarray(u), axis=0))))


def around_a_disc(n, cells):
    """The logarithm between a disc and a square, and its largest error."""
    square = Grid((n, n), -1.0, 1.0)
    x, y = square.centers
    exact = jnp.log(jnp.hypot(x, y) / 0.4)
    edge = jnp.log(jnp.hypot(1.0, x[:, 0]) / 0.4)
    distance = jnp.hypot(x, y) - 0.4
    body = Immersed(distance < 0 if cells else distance, Dirichlet(0.0))
    u = solve_elliptic(EllipticOperator(Boundaries(square, Dirichlet(edge), body=body)), jnp.zeros(square.shape))
    error = jnp.where(body.fluid, u - exact, 0.0)
    return float(jnp.sqrt(jnp.mean(error**2)))


def geometry_bodies():
    """Heat around bodies, and the errors of solutions around a disc."""
    figure, axes = plt.subplots(1, 3, figsize=(11.4, 3.4), layout="constrained")
    square = Grid((96, 96), -1.0, 1.0)
    x, y = square.centers
    angle, distance = jnp.arctan2(y, x), jnp.hypot(x, y)
    flower = distance - 0.45 - 0.12 * jnp.cos(5 * angle)
    hot = Boundaries(square, Dirichlet(0.0), body=Immersed(flower, Dirichlet(1.0)))
    u = solve_elliptic(EllipticOperator(hot), jnp.zeros(square.shape))
    plot.field(jnp.where(flower > 0, u, jnp.nan), square, ax=axes[0], labels="heat", vmin=0.0, vmax=1.0)
    axes[0].set_title("a hot body in a cold box", loc="left", fontsize="medium")
    posts = jnp.minimum(jnp.hypot(x + 0.3, y - 0.35), jnp.hypot(x - 0.2, y + 0.3)) - 0.28
    rocks = Boundaries(square, {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0), "y": Neumann(0.0)}, body=Immersed(posts))
    p = models.Darcy(square, rocks, q=0.0).steady()
    flow = -np.stack(np.gradient(np.asarray(jnp.where(posts > 0, p, jnp.nan)), 2 / 96))
    line = np.linspace(-1, 1, 96)
    axes[1].streamplot(line, line, flow[0].T, flow[1].T, color="#0072B2", linewidth=0.7, density=0.9, arrowsize=0.7)
    axes[1].contourf(line, line, np.asarray(posts).T, levels=[-1, 0], colors="0.8")
    axes[1].set_aspect("equal")
    axes[1].set_title("water in the ground, around rocks", loc="left", fontsize="medium")
    sizes = np.array([12, 20, 32, 52, 84])  # of cells the errors scatter
    for cells, label, colour in ((True, "its cells", "#D55E00"), (False, "a level set", "#0072B2")):
        errors = [around_a_disc(int(n), cells) for n in sizes]
        axes[2].loglog(sizes, errors, "o-", color=colour, label=label, markersize=4)
        order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
        print(f"a disc by {label}: order {order:.2f}")
    axes[2].set(xlabel="cells along the square", xticks=sizes, xticklabels=sizes)
    axes[2].minorticks_off()
    axes[2].set_title("error around a disc", loc="left", fontsize="medium")
    axes[2].legend(frameon=False)
    axes[2].grid(color="0.9")
    return figure


PICTURES = (geometry_grids, geometry_bodies)


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
