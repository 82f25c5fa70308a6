"""Draw the pictures of the gallery of PDEs: `python docs/guides/pde_gallery.py --out docs/guides/figures`."""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import plot, verify
from sciml.models import (
    Brusselator,
    Buoyancy,
    CahnHilliard,
    Carried,
    FitzHughNagumo,
    FokkerPlanck,
    GrossPitaevskii,
    IncompressibleFlow,
    KellerSegel,
    KleinGordon,
    ReactionDiffusion,
    Schnakenberg,
    SwiftHohenberg,
)
from sciml.spatial import Dirichlet, Grid, Neumann, NoSlip, OrthogonalGrid, Periodic, Polar

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams["font.size"] = 12  # pages show figures at about two thirds of their width

KEY = jax.random.key(0)


def panels(count, size, **options):
    """Axes side by side, with room for the numbers where they meet."""
    figure, axes = plt.subplots(1, count, figsize=size, layout="constrained", **options)
    figure.get_layout_engine().set(w_pad=0.15)
    return figure, axes


def images(rows, grid, titles, label, limits=None):
    """Fields of two dimensions side by side, with one scale of colours."""
    figure, axes = panels(len(rows), (3.2 * len(rows) + 0.8, 3.2), sharey=True)
    extent = (grid.lower[0], grid.upper[0], grid.lower[1], grid.upper[1])
    low, high = limits or (float(np.min(rows)), float(np.max(rows)))
    for ax, field, title in zip(axes, rows, titles, strict=True):
        image = ax.imshow(np.asarray(field).T, origin="lower", extent=extent, cmap="cividis", vmin=low, vmax=high)
        ax.set_title(title, loc="left", fontsize="medium")
        ax.set_xlabel("x")
    axes[0].set_ylabel("y")
    figure.colorbar(image, ax=axes, label=label)
    return figure


def cahn_hilliard():
    """Two phases, and the energy of their walls."""
    grid = Grid((128, 128))
    model = CahnHilliard(grid, Periodic(), width=0.012)
    noise = 0.05 * jax.random.normal(KEY, grid.shape)
    times = 1e-4 * np.arange(301)
    sol = sciml.solve(model, noise, t0=0.0, t1=0.03, dt=5e-5, saveat=times)
    energy, mass = jax.vmap(model.energy)(sol.ys), jax.vmap(model.mass)(sol.ys)
    drift = float(jnp.max(jnp.abs(mass - mass[0])))
    falls = bool(jnp.all(jnp.diff(energy) < 0))
    print(f"Cahn-Hilliard: energy falls at every step: {falls}; mass drifts by {drift:.0e}")
    figure, axes = panels(4, (13.6, 3.2))
    for ax, at in zip(axes, (20, 60, 300)):
        ax.imshow(np.asarray(sol.ys[at]).T, origin="lower", extent=(0, 1, 0, 1), cmap="cividis", vmin=-1, vmax=1)
        ax.set_title(f"t = {times[at]:g}", loc="left", fontsize="medium")
        ax.set(xlabel="x", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes[0].set_ylabel("y")
    axes[3].loglog(times[1:], energy[1:], color="#0072B2")
    axes[3].set_title("energy", loc="left", fontsize="medium")
    axes[3].set_xlabel("t")
    axes[3].set_yticks([0.12, 0.16, 0.2, 0.24], labels=["0.12", "0.16", "0.20", "0.24"])
    axes[3].minorticks_off()
    axes[3].grid(color="0.9")
    return figure


def swift_hohenberg():
    """Rolls, and hexagons with a quadratic term."""
    grid = Grid((96, 96), 0.0, 20 * np.pi)
    start = 0.1 * jax.random.normal(KEY, grid.shape)
    ends = []
    for quadratic, rate in ((0.0, 0.3), (1.0, 0.1)):
        model = SwiftHohenberg(grid, Periodic(), rate=rate, quadratic=quadratic)
        ends.append(sciml.solve(model, start, t0=0.0, t1=150.0, dt=0.25).ys[-1])
    top = float(jnp.max(jnp.abs(jnp.stack(ends))))
    return images(ends, grid, ("r = 0.3, g = 0: rolls", "r = 0.1, g = 1: hexagons"), "u", (-top, top))


def gross_pitaevskii():
    """A narrow cloud, free and repelled by itself, swings in the trap."""
    grid = Grid(128, -8.0, 8.0)
    (x,) = grid.centers
    start = verify.reference("coherent_state", 2.0 * x, 0.0, 4.0) * 2**0.5
    figure, axes = panels(2, (9.0, 4.0), sharey=True)
    for ax, coupling in zip(axes, (0.0, 10.0)):
        model = GrossPitaevskii(grid, Periodic(), potential=x**2 / 2, coupling=coupling)
        sol = sciml.solve(model, start, t0=0.0, t1=12.5, dt=0.005, saveat=np.linspace(0.0, 12.5, 126))
        norm, energy = jax.vmap(model.mass)(sol.ys), jax.vmap(model.energy)(sol.ys)
        drifts = [float(jnp.max(jnp.abs(q / q[0] - 1))) for q in (norm, energy)]
        print(f"Gross-Pitaevskii, g = {coupling:g}: norm drifts by {drifts[0]:.0e}, energy by {drifts[1]:.0e}")
        image = ax.imshow(
            jnp.abs(sol.ys) ** 2, origin="lower", aspect="auto", extent=(-8, 8, 0, 12.5), cmap="cividis", vmax=0.6
        )
        ax.plot(2 * jnp.cos(sol.ts), sol.ts, color="white", linewidth=0.8, linestyle="--")
        ax.set_title(f"g = {coupling:g}", loc="left", fontsize="medium")
        ax.set_xlabel("x")
    axes[0].set_ylabel("t")
    figure.colorbar(image, ax=axes, label=r"$|\psi|^2$")
    return figure


def klein_gordon():
    """A breather, and a kink and an antikink that pass through one another."""
    grid = Grid(400, -20.0, 20.0)
    (x,) = grid.centers
    model = KleinGordon(grid, Neumann(0.0), potential=lambda u: 1 - jnp.cos(u))

    def breather(t):
        return verify.reference("sine_gordon_breather", x, t, 0.6)

    def meeting(t):
        return verify.reference("sine_gordon_kink", x + 8.0, t, 0.6) - verify.reference(
            "sine_gordon_kink", x - 8.0, t, -0.6
        )

    figure, axes = panels(2, (9.0, 4.0), sharey=True)
    for ax, exact, title in zip(axes, (breather, meeting), ("a breather", "a kink and an antikink")):
        sol = sciml.solve(
            model, jax.jvp(exact, (0.0,), (1.0,)), t0=0.0, t1=30.0, dt=0.05, saveat=np.linspace(0.0, 30.0, 121)
        )
        energy = jax.vmap(model.energy)(sol.ys)
        print(f"sine-Gordon, {title}: energy {energy[0]:.3f} to {energy[-1]:.3f}, by {sol.solver}")
        image = ax.imshow(
            sol.ys[0], origin="lower", aspect="auto", extent=(-20, 20, 0, 30), cmap="RdBu_r", vmin=-6.3, vmax=6.3
        )
        ax.set_title(title, loc="left", fontsize="medium")
        ax.set_xlabel("x")
    axes[0].set_ylabel("t")
    figure.colorbar(image, ax=axes, label="u")
    return figure


def brusselator():
    """Turing's instability: which waves grow, and the spots they become."""
    reaction, diffusivities, rest = Brusselator(3.0, 9.0), (5.0, 12.0), jnp.array([3.0, 3.0])
    grid = Grid((80, 80), 0.0, 80.0)
    model = ReactionDiffusion(reaction, grid, Periodic(), diffusivities)
    noise = 0.01 * jax.random.normal(KEY, (2, *grid.shape))
    sol = sciml.solve(
        model,
        rest[:, None, None] + noise,
        t0=0.0,
        t1=60.0,
        dt=0.05,
        saveat=[0.0, 6.0, 60.0],
        solver=sciml.solvers.RKC2(),
    )
    k = jnp.linspace(0.0, 1.3, 200)
    rates = verify.reference("turing_growth", reaction, rest, diffusivities, k)[:, 0].real
    figure, axes = panels(3, (11.2, 3.2))
    axes[0].plot(k, rates, color="#0072B2")
    axes[0].axhline(0.0, color="0.6", linewidth=0.8)
    axes[0].set_title("growth of small waves", loc="left", fontsize="medium")
    axes[0].set(xlabel="k", ylim=(-1.0, None))
    axes[1].set_ylabel("y")
    for ax, at in zip(axes[1:], (1, 2)):
        image = ax.imshow(np.asarray(sol.ys[at, 0]).T, origin="lower", extent=(0, 80, 0, 80), cmap="cividis")
        ax.set_title(f"u, t = {float(sol.ts[at]):g}", loc="left", fontsize="medium")
        ax.set(xlabel="x", xticks=[0, 40, 80], yticks=[0, 40, 80])
        figure.colorbar(image, ax=ax)
    return figure


def schnakenberg():
    """From which ratio of the diffusivities on waves grow, and what they become on a square and a disc."""
    reaction = Schnakenberg()
    rest = reaction.rest()
    ratio, wavenumber = verify.reference("turing_onset", reaction, rest)
    print(f"Schnakenberg: from a ratio of {float(ratio):.3f} on, first of the length {2 * np.pi / wavenumber:.2f}")
    k = jnp.linspace(0.0, 1.3, 200)
    figure, axes = panels(3, (11.2, 3.2))
    for d, colour in ((float(ratio), "black"), (20.0, "#0072B2"), (40.0, "#D55E00")):
        rates = verify.reference("turing_growth", reaction, rest, (1.0, d), k)[:, 0].real
        axes[0].plot(k, rates, color=colour, label=f"D = {d:.3g}")
    axes[0].axhline(0.0, color="0.6", linewidth=0.8)
    axes[0].set_title("growth of small waves", loc="left", fontsize="medium")
    axes[0].set(xlabel="k", ylim=(-0.4, 1.0))
    axes[0].legend(frameon=False)
    square = Grid((64, 64), 0.0, 60.0)
    disc = OrthogonalGrid([np.linspace(0.0, 30.0, 33), np.linspace(0.0, 2 * np.pi, 97)], Polar())
    for ax, grid, title in zip(axes[1:], (square, disc), ("u on a square", "u on a disc")):
        model = ReactionDiffusion(reaction, grid, Neumann(0.0), (1.0, 40.0))
        start = rest[:, None, None] * (1 + 0.01 * jax.random.normal(KEY, (2, *grid.shape)))
        u = sciml.solve(model, start, t0=0.0, t1=60.0, dt=0.2).ys[-1, 0]
        plot.field(u, grid, ax=ax, labels="u", vmin=0.5, vmax=3.0)
        ax.set_title(title, loc="left", fontsize="medium")
    return figure


def keller_segel():
    """How fast heaps of cells begin, beside the linear theory, and how they run into one another."""
    growing, sensitivity = Grid(64, 0.0, 40.0), 1.0
    model = KellerSegel(growing, Neumann(0.0), sensitivity=sensitivity)
    figure, axes = panels(3, (11.2, 3.2))
    k = jnp.linspace(0.0, 1.6, 200)
    axes[0].axhline(0.0, color="0.6", linewidth=0.8)
    for density, colour in ((0.9, "black"), (2.0, "#0072B2"), (3.0, "#D55E00")):
        rates = verify.reference("keller_segel_growth", k, density=density)[:, 0]
        axes[0].plot(k, rates, color=colour, label=f"u = {density:g}")
    axes[0].set_title("growth of small waves", loc="left", fontsize="medium")
    axes[0].set(xlabel="k", ylim=(-1.0, 1.0))
    axes[0].legend(frameon=False)
    cells = 2.0 + 0.1 * jax.random.normal(KEY, (64,))
    sol = sciml.solve(
        model, jnp.stack([cells, cells]), t0=0.0, t1=80.0, dt=0.04, saveat=np.linspace(0.0, 80.0, 161)
    )  # fmt: skip
    axes[1].imshow(sol.ys[:, 0], origin="lower", aspect="auto", extent=(0, 40, 0, 80), cmap="cividis", vmax=12)
    axes[1].set_title("heaps on a line", loc="left", fontsize="medium")
    axes[1].set(xlabel="x", ylabel="t")
    drift = float(jnp.max(jnp.abs(jnp.sum(sol.ys[:, 0], 1) / jnp.sum(cells) - 1)))
    print(f"Keller-Segel: cells kept to {drift:.0e}; the least density is {float(jnp.min(sol.ys)):.3f}")
    plane = Grid((64, 64), 0.0, 30.0)
    model = KellerSegel(plane, Periodic(), sensitivity=sensitivity)
    noise = 3.0 + 0.2 * jax.random.normal(KEY, plane.shape)
    sol = sciml.solve(model, jnp.stack([noise, noise]), t0=0.0, t1=14.0, dt=0.02, saveat=np.linspace(0.0, 14.0, 57))
    before = int(np.argmax(np.max(np.asarray(sol.ys[:, 0]), axis=(1, 2)) > 15.0))  # heaps soon collapse
    plot.field(sol.ys[before, 0], plane, ax=axes[2], labels="u", vmin=0.0)
    axes[2].set_title(f"cells on a plane, t = {sol.ts[before]:g}", loc="left", fontsize="medium")
    return figure


def fokker_planck():
    """Two wells: how a density settles, and the law it settles to; the same with two coordinates."""
    grid = Grid(200, -2.2, 2.2)
    (x,) = grid.centers
    model = FokkerPlanck(grid, Neumann(0.0), lambda x: x**4 / 4 - x**2 / 2, 0.1)
    start = jnp.exp(-((x + 1.5) ** 2) / 0.01)
    start = start / grid.integrate(start)
    times = np.array([0.0, 0.5, 5.0, 20.0, 200.0])
    sol = sciml.solve(model, start, t0=0.0, t1=200.0, dt=0.05, saveat=times)
    energy = jax.vmap(model.free_energy)(sol.ys)
    off = float(jnp.max(jnp.abs(sol.ys[-1] - model.stationary())))
    kept = float(jnp.max(jnp.abs(jax.vmap(grid.integrate)(sol.ys) - 1)))
    falls = bool(jnp.all(jnp.diff(energy) < 0))
    print(f"Fokker-Planck: kept to {kept:.0e}, {off:.0e} from the law; the free energy falls: {falls}")
    figure, axes = panels(2, (9.0, 3.4))
    for t, u, colour in zip(times[1:], sol.ys[1:], ("#56B4E9", "#0072B2", "#009E73", "#D55E00")):
        axes[0].plot(x, u, color=colour, label=f"t = {t:g}", linewidth=1.2)
    axes[0].plot(x, model.stationary(), color="black", linestyle=":", label="the law")
    axes[0].set_title("a density in two wells", loc="left", fontsize="medium")
    axes[0].set(xlabel="x", ylim=(0, 2.8))
    axes[0].legend(frameon=False)
    plane = Grid((72, 72), -2.0, 2.0)
    x, y = plane.centers
    hills = (jnp.square(x) - 1) ** 2 + (jnp.square(y) - 1) ** 2 / 2 + 0.4 * x * y
    model = FokkerPlanck(plane, Neumann(0.0), hills, 0.25)
    start = jnp.where((x < -1) & (y < -1), 1.0, 0.0)
    u = sciml.solve(model, start / plane.integrate(start), t0=0.0, t1=8.0, dt=0.05).ys[-1]
    plot.field(u, plane, ax=axes[1], labels="u", vmin=0.0)
    line = np.ravel(x)
    axes[1].contour(line, line, np.asarray(hills).T, levels=8, colors="0.7", linewidths=0.5)
    axes[1].set_title("four wells, on the way", loc="left", fontsize="medium")
    return figure


def fitzhugh_nagumo():
    """A front with an open end curls into a spiral wave."""
    grid = Grid((160, 160), 0.0, 240.0)
    reaction = FitzHughNagumo(current=0.0, epsilon=0.03)
    model = ReactionDiffusion(reaction, grid, Neumann(0.0), (1.0, 0.0))
    v, w = sciml.steady_state(reaction, jnp.array([-1.2, -0.6])).ys[-1]
    x, y = grid.centers
    voltage = jnp.where(x < 108.0, 1.8, v) + jnp.zeros(grid.shape)  # a front that goes right
    recovery = jnp.where(y < 120.0, w + 1.2, w) + jnp.zeros(grid.shape)  # and cannot in the lower half, at first
    sol = sciml.solve(
        model, jnp.stack([voltage, recovery]), t0=0.0, t1=400.0, dt=0.25, saveat=[80.0, 160.0, 400.0],
        solver=sciml.solvers.RKC2(),
    )  # fmt: skip
    return images(list(sol.ys[:, 0]), grid, [f"t = {float(t):g}" for t in sol.ts], "v")


def layer(rayleigh, grid, prandtl=1.0):
    """A layer of fluid, heated from below, in units of its depth and of the time heat takes through it."""
    heat = Carried({"x": Periodic(), "y-": Dirichlet(1.0), "y+": Dirichlet(0.0)}, diffusivity=1.0)
    lift = Buoyancy("heat", jnp.stack([0.0 * rayleigh, prandtl * rayleigh]))
    sides = {"x": Periodic(), "y": NoSlip()}
    return IncompressibleFlow(grid, sides, viscosity=prandtl, carried={"heat": heat}, forces=[lift])


def heated_layer():
    """How fast a layer begins to turn over, beside the linear theory, and what becomes of it."""
    onset, wavenumber = verify.reference("rayleigh_benard_onset")
    narrow = Grid((24, 24), (0.0, 0.0), (2 * np.pi / wavenumber, 1.0))
    x, y = narrow.centers
    bent = 1 - y + 1e-3 * jnp.cos(wavenumber * x) * jnp.sin(np.pi * y)

    @jax.jit
    @jax.vmap
    def growth(rayleigh):
        flow = layer(rayleigh, narrow)
        start, ts = flow.start(carried={"heat": bent}), jnp.array([0.2, 0.3])
        ys = sciml.solve(flow, start, t0=0.0, t1=0.3, dt=5e-4, saveat=ts, solver=sciml.solvers.SSPRK33()).ys
        speed = jnp.sqrt(jnp.mean(ys.velocity[1] ** 2, axis=(1, 2)))
        return jnp.log(speed[1] / speed[0]) / 0.1

    numbers = np.linspace(1400.0, 2200.0, 5)
    rates = np.asarray(growth(jnp.array(numbers)))
    exact = [verify.reference("rayleigh_benard_growth", number, wavenumber) for number in numbers]
    crossing = float(np.interp(0.0, rates, numbers))
    apart = np.max(np.abs(rates - exact))
    print(f"layers of 24 cells: growth within {apart:.2f}; onset at {crossing:.0f}, exact {onset:.0f}")
    wide = Grid((128, 32), (0.0, 0.0), (4.0, 1.0))
    flow = layer(jnp.array(1e5), wide, 0.7)
    noise = 0.01 * jax.random.normal(KEY, wide.shape)
    start = flow.start(carried={"heat": 1 - wide.centers[1] + noise})
    sol = sciml.solve(flow, start, t0=0.0, t1=0.2, cfl=0.9, solver=sciml.solvers.SSPRK33(), max_steps=100_000)
    figure, axes = plt.subplots(1, 2, figsize=(11.0, 3.2), layout="constrained", width_ratios=(1, 2.4))
    fine = np.linspace(1400.0, 2200.0, 33)
    line = [verify.reference("rayleigh_benard_growth", number, wavenumber) for number in fine]
    axes[0].plot(fine, line, color="black", linewidth=1.0, label="linear theory")
    axes[0].plot(numbers, rates, "o", color="#D55E00", markersize=4, label="24 cells")
    axes[0].axhline(0.0, color="0.6", linewidth=0.8)
    axes[0].set(xlabel="Rayleigh number", ylabel="growth")
    axes[0].legend(frameon=False)
    image = axes[1].imshow(
        np.asarray(sol.ys.carried["heat"][-1]).T, origin="lower", extent=(0, 4, 0, 1), cmap="cividis", vmin=0, vmax=1
    )
    axes[1].set_title("temperature at a Rayleigh number of 100 000", loc="left", fontsize="medium")
    axes[1].set(xlabel="x", ylabel="y")
    figure.colorbar(image, cax=axes[1].inset_axes((1.02, 0.0, 0.02, 1.0)))
    return figure


PICTURES = (
    cahn_hilliard,
    swift_hohenberg,
    gross_pitaevskii,
    klein_gordon,
    brusselator,
    schnakenberg,
    fitzhugh_nagumo,
    keller_segel,
    fokker_planck,
    heated_layer,
)


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
