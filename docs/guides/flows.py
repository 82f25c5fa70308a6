"""Draw the pictures of the guide to flows: `python docs/guides/flows.py --out docs/guides/figures`."""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import verify
from sciml.models import Euler, IncompressibleFlow, Obstacle, ShallowWater
from sciml.solvers import RKC2, SSPRK33, SSPRK43
from sciml.spatial import (
    WENO5Z,
    Axisymmetric,
    Constant,
    FreeSlip,
    Grid,
    NoSlip,
    OrthogonalGrid,
    Outflow,
    PressureOutlet,
    Reflecting,
    Spherical,
    VelocityInlet,
)

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams["font.size"] = 12  # pages show figures at about two thirds of their width

BLUE, VERMILION = "#0072B2", "#D55E00"


def flows_shock_tube():
    """Sod's shock tube beside the exact solution."""
    grid = Grid(100)
    (x,) = grid.centers
    left, right = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.125, 0.0, 0.1])
    fine = jnp.linspace(0.0, 1.0, 2001)
    exact = verify.reference("riemann_euler", left, right, (fine - 0.5) / 0.2)
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
        error = jnp.mean(jnp.abs(w - verify.reference("riemann_euler", left, right, (x - 0.5) / 0.2)), axis=1)
        print(f"Sod with 100 cells, {name}: mean error of the density {error[0]:.4f}")
        for ax, row in zip(axes, (0, 1), strict=True):
            ax.plot(x, w[row], marker, color=colour, markersize=2.5, label=name)
    axes[0].legend(frameon=False)
    return figure


QUARTERS = {
    3: (0.3, (1.5, 0.0, 0.0, 1.5), (0.5323, 1.206, 0.0, 0.3), (0.138, 1.206, 1.206, 0.029), (0.5323, 0.0, 1.206, 0.3)),
    4: (
        0.25,
        (1.1, 0.0, 0.0, 1.1),
        (0.5065, 0.8939, 0.0, 0.35),
        (1.1, 0.8939, 0.8939, 1.1),
        (0.5065, 0.0, 0.8939, 0.35),
    ),
    6: (0.3, (1.0, 0.75, -0.5, 1.0), (2.0, 0.75, 0.5, 1.0), (1.0, -0.75, 0.5, 1.0), (3.0, -0.75, -0.5, 1.0)),
    12: (0.25, (0.5313, 0.0, 0.0, 0.4), (1.0, 0.7276, 0.0, 1.0), (0.8, 0.0, 0.0, 1.0), (1.0, 0.0, 0.7276, 1.0)),
}
"""Of Lax and Liu by number: the time, and density, velocities and pressure in the quarters, against the clock."""


def flows_riemann():
    """Four gases that meet, configurations 3, 4, 6 and 12 of Lax and Liu."""
    grid = Grid((200, 200))
    x, y = grid.centers
    law = Euler(grid, Outflow(), reconstruction=WENO5Z())

    @jax.jit
    def solve(w, t):
        sol = sciml.solve(law, law.conserved(w), t0=0.0, t1=t, throw=False)
        return law.primitive(sol.ys[-1]), sol.stats

    figure, axes = plt.subplots(2, 2, figsize=(8.0, 7.2), layout="constrained")
    for ax, (number, (t, *states)) in zip(axes.flat, QUARTERS.items(), strict=True):
        places = (True, True), (False, True), (False, False), (True, False)
        w = sum(
            jnp.array(state)[:, None, None] * (((x > 0.5) == right) & ((y > 0.5) == above))[None]
            for (right, above), state in zip(places, states, strict=True)
        )
        w, stats = solve(w, t)
        density = np.asarray(w[0])
        print(
            f"four gases, configuration {number}: {int(stats.accepted)} steps, {int(stats.rejected)} tried again, "
            f"density {density.min():.3f} to {density.max():.3f}"
        )
        image = ax.imshow(density.T, origin="lower", extent=(0, 1, 0, 1), cmap="cividis")
        ax.contour(density.T, levels=24, extent=(0, 1, 0, 1), colors="black", linewidths=0.3)
        ax.set(title=f"configuration {number}", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        figure.colorbar(image, ax=ax)
    return figure


def flows_blast():
    """An explosion along a line beside Sedov's solution: a quarter of it, between walls."""
    cells = 120
    grid = Grid((cells, cells), 0.0, 1.0)
    x, y = grid.centers
    r = jnp.hypot(x, y)
    law = Euler(
        grid, {"x-": Reflecting(), "y-": Reflecting(), "x+": Outflow(), "y+": Outflow()}, reconstruction=WENO5Z()
    )
    energy, core = 0.311357, jnp.where(r < 0.04, 1.0, 0.0)  # the shock is at 0.75 after a unit of time
    pressure = 1e-6 + 0.4 * energy / 4 * core / grid.integrate(core)
    start = law.conserved(jnp.stack([1 + 0 * r, 0 * r, 0 * r, pressure]))
    sol = sciml.solve(law, start, t0=0.0, t1=1.0)
    w = np.asarray(law.primitive(sol.ys[-1]))
    exact = verify.reference("sedov", r, 1.0, energy, ndim=2)
    print(
        f"an explosion on {cells} x {cells} cells: {int(sol.stats.accepted)} steps, mean error of the density "
        f"{jnp.mean(jnp.abs(w[0] - exact[0])):.3f}, most dense {w[0].max():.2f} of 6"
    )
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained", width_ratios=(1, 1.3))
    image = axes[0].imshow(w[0].T, origin="lower", extent=(0, 1, 0, 1), cmap="cividis")
    axes[0].set(xlabel="x", ylabel="y")
    figure.colorbar(image, ax=axes[0], label="density")
    fine = jnp.linspace(0.0, 1.0, 1001)
    axes[1].plot(
        np.asarray(r)[::3, ::3].ravel(), w[0][::3, ::3].ravel(), "o", color=BLUE, markersize=1.5, label="cells"
    )
    axes[1].plot(
        fine, verify.reference("sedov", fine, 1.0, energy, ndim=2)[0], color="black", linewidth=1.0, label="Sedov"
    )
    axes[1].set(xlabel="distance from the centre", ylabel="density", xlim=(0, 1))
    axes[1].legend(frameon=False, loc="upper left")
    return figure


def flows_dam_break():
    """Water on a dry bed beside Ritter's solution, and water around hills."""
    figure, axes = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained", width_ratios=(1, 1.3))
    line = Grid(100, -10.0, 10.0)
    (x,) = line.centers
    law = ShallowWater(line, Outflow())
    sol = sciml.solve(law, jnp.stack([jnp.where(x < 0, 1.0, 0.0), jnp.zeros(100)]), t0=0.0, t1=1.2)
    fine = jnp.linspace(-10.0, 10.0, 1001)
    depth, _ = verify.reference("dam_break", x, 1.2, 1.0)
    print(f"a dam above a dry bed, 100 cells: mean error of the depth {jnp.mean(jnp.abs(sol.ys[-1][0] - depth)):.4f}")
    axes[0].plot(fine, verify.reference("dam_break", fine, 1.2, 1.0)[0], color="black", linewidth=1.0, label="Ritter")
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


def finer(u):
    """A component of a velocity between walls on twice as many cells along each axis, by lines."""
    along = u.shape[0] < u.shape[1]  # its own axis has the faces between cells, one fewer
    u = u if along else u.T
    n = u.shape[1]
    faces, inner = np.arange(n + 1) / n, np.arange(1, 2 * n) / (2 * n)
    u = np.array([np.interp(inner, faces, [0.0, *column, 0.0]) for column in u.T]).T
    centers, closer = (np.arange(n) + 0.5) / n, (np.arange(2 * n) + 0.5) / (2 * n)
    u = np.array([np.interp(closer, centers, row) for row in u])
    return u if along else u.T


def flows_cavity():
    """The flow under a lid that moves, compared with the table of Ghia, Ghia and Shin."""
    figure, axes = plt.subplots(1, 3, figsize=(12.0, 3.8), layout="constrained", width_ratios=(1, 1, 1.15))
    walls = {"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}
    for reynolds, ends, colour in ((100, (20.0, 4.0), VERMILION), (1000, (60.0, 10.0), BLUE)):
        velocity = before = None
        for cells, end in zip((64, 128), ends, strict=True):  # on few cells until it is steady, then on more
            cavity = IncompressibleFlow(Grid((cells, cells)), walls, viscosity=1 / reynolds)
            start = cavity.start(velocity)
            sol = sciml.solve(cavity, start, t0=0.0, t1=end, cfl=0.95, solver=SSPRK33(), max_steps=20_000)
            y = jax.tree.map(lambda x: x[-1], sol.ys)
            velocity = [finer(np.asarray(u)) for u in y.velocity]
            places = np.concatenate([[0.0], (np.arange(cells) + 0.5) / cells, [1.0]])
            table = verify.reference("cavity_table", reynolds)
            u = np.concatenate([[0.0], y.velocity[0][cells // 2 - 1], [1.0]])
            v = np.concatenate([[0.0], y.velocity[1][:, cells // 2 - 1], [0.0]])
            found = np.concatenate([np.interp(table.y, places, u), np.interp(table.x, places, v)])
            apart = np.max(np.abs(found - np.concatenate([table.u, table.v])))
            moved = np.nan if before is None else np.max(np.abs(found - before))
            before = found
            changes = max(float(jnp.max(jnp.abs(u))) for u in cavity(0.0, y, None).velocity)
            print(
                f"cavity, Re = {reynolds}, {cells} by {cells}: {int(sol.stats.accepted)} steps, {apart:.4f} off the "
                f"table, {moved:.4f} off the coarser grid, divergence "
                f"{float(jnp.max(jnp.abs(cavity.divergence(y)))):.0e}, changes by {changes:.0e} in a unit of time",
                flush=True,
            )
        axes[0].plot(u, places, color=colour, linewidth=1.0, label=f"Re = {reynolds}")
        axes[0].plot(table.u, table.y, "o", color=colour, markersize=3.0)
        axes[1].plot(places, v, color=colour, linewidth=1.0)
        axes[1].plot(table.x, table.v, "o", color=colour, markersize=3.0)
    axes[0].set(xlabel="u at x = 0.5", ylabel="y")
    axes[0].legend(frameon=False, loc="lower right")
    axes[1].set(xlabel="x", ylabel="v at y = 0.5")
    inner = np.asarray(cavity.at_centers(y))
    speed = axes[2].imshow(np.hypot(*inner).T, origin="lower", extent=(0, 1, 0, 1), cmap="cividis", vmax=1.0)
    lines = places[1:-1]
    axes[2].streamplot(lines, lines, inner[0].T, inner[1].T, color="white", linewidth=0.5, arrowsize=0.6, density=1.1)
    axes[2].set(xlabel="x", ylabel="y", xlim=(0, 1), ylim=(0, 1), title="speed, Re = 1000")
    figure.colorbar(speed, cax=axes[2].inset_axes((1.03, 0.0, 0.04, 1.0)))
    return figure


def faces_around(lower, upper, width, before, after):
    """Faces of cells that are as wide as `width` at 0, and as the distance where that is beyond `before` or `after`."""

    def outwards(end, scale):
        last = np.arcsinh(end / scale)
        return end * np.sinh(np.linspace(0, last, round(scale * last / width) + 1)) / np.sinh(last)

    return np.concatenate([-outwards(-lower, before)[:0:-1], outwards(upper, after)])


def around_cylinder(reynolds, box, width, scale, time, solver, dt, end):
    """The flow around a cylinder of diameter 1 in a wide stream: places, the flow, the last state, drag and lift."""
    lower, upper, half = box
    grid = OrthogonalGrid([faces_around(lower, upper, width, 1.0, scale), faces_around(-half, half, width, 1.0, 1.0)])
    x, y = grid.centers
    cylinder = Obstacle.of_distance(jnp.hypot(x, y) - 0.5, 2 * width, 1 / reynolds, time)
    sides = {"x-": VelocityInlet((1.0, 0.0)), "x+": PressureOutlet(), "y": FreeSlip()}
    flow = IncompressibleFlow(grid, sides, viscosity=1 / reynolds, forces=[cylinder])
    start = flow.start(lambda x, y: (1.0 + 0 * x * y, 0.2 * jnp.exp(-((x - 1.0) ** 2) - y**2)))
    times = np.arange(1, round(5 * end) + 1) / 5
    force = diffrax.SubSaveAt(ts=times, fn=lambda t, y, args: cylinder.force(flow, y))
    record = diffrax.SaveAt(subs={"force": force, "end": diffrax.SubSaveAt(t1=True)})
    sol = sciml.solve(flow, start, t0=0.0, t1=times[-1], dt=dt, solver=solver, saveat=record)
    drag, lift = 2 * np.asarray(sol.ys["force"]).T  # over half of density, speed squared and diameter
    return flow, jax.tree.map(lambda x: x[-1], sol.ys["end"]), times, drag, lift


def flows_wake():
    """A cylinder in the wind, steady and as it sheds vortices, which swing the force on it."""
    flow, _, times, drag, _ = around_cylinder(20, (-60.0, 60.0, 60.0), 1 / 20, 1.5, 0.01, RKC2(), 0.04, 40.0)
    published = verify.reference("cylinder_table", 20).drag
    print(
        f"cylinder, Re = 20, {flow.grid.shape} cells: drag {drag[-1]:.3f}, {drag[-1] - drag[-26]:+.3f} in the last "
        f"five units of time; published {published[0]} to {published[1]}",
        flush=True,
    )
    flow, end, times, drag, lift = around_cylinder(100, (-40.0, 30.0, 40.0), 1 / 22, 4.0, 0.005, SSPRK43(), 0.009, 70.0)
    rises = np.flatnonzero((lift[:-1] < 0) & (lift[1:] >= 0) & (times[:-1] > 40))
    crossings = times[rises] - lift[rises] / (lift[rises + 1] - lift[rises]) * (times[1] - times[0])
    strouhal = (len(rises) - 1) / (crossings[-1] - crossings[0])
    mean = drag[rises[0] + 1 : rises[-1] + 1].mean()
    published = verify.reference("cylinder_table", 100)
    print(
        f"cylinder, Re = 100, {flow.grid.shape} cells: drag {mean:.3f}, published {published.drag[0]} to "
        f"{published.drag[1]}; Strouhal number {strouhal:.4f}, published {published.strouhal[0]} to "
        f"{published.strouhal[1]}; lift {lift[rises[0] :].max():.3f}"
    )
    vorticity = np.asarray(flow.vorticity(end))
    nodes = [np.array(faces) for faces in flow.grid.faces]
    figure, axes = plt.subplots(2, 1, figsize=(8.4, 5.6), layout="constrained", height_ratios=(2.2, 1))
    image = axes[0].pcolormesh(*nodes, vorticity.T, cmap="RdBu_r", vmin=-3, vmax=3, shading="gouraud", rasterized=True)
    axes[0].add_patch(plt.Circle((0, 0), 0.5, color="0.3"))
    axes[0].set(xlabel="x", ylabel="y", xlim=(-4, 18), ylim=(-4, 4), aspect="equal")
    figure.colorbar(image, cax=axes[0].inset_axes((1.02, 0.0, 0.025, 1.0)), label="vorticity")
    axes[1].plot(times, drag, color=VERMILION, label="drag coefficient")
    axes[1].plot(times, lift, color=BLUE, label="lift coefficient")
    axes[1].set(xlabel="t", ylim=(-1.0, 2.5), xlim=(0, times[-1]))
    axes[1].legend(frameon=False, ncols=2, loc="upper left")
    return figure


def flows_round():
    """An explosion above the ground, in r and z, and one in a point beside Sedov's solution."""
    grid = OrthogonalGrid([np.linspace(0.0, 1.2, 73), np.linspace(0.0, 1.2, 73)], Axisymmetric())
    r, z = grid.centers
    law = Euler(grid, {"r": Outflow(), "z-": Reflecting(), "z+": Outflow()})
    hot = 0.02 + 8.0 * jnp.exp(-((r**2 + (z - 0.35) ** 2) / 0.08**2))
    start = law.conserved(jnp.stack([1 + 0 * hot, 0 * hot, 0 * hot, hot]))
    ys = sciml.solve(law, start, t0=0.0, t1=0.9, saveat=[0.1, 0.4, 0.9]).ys
    lost = grid.integrate(ys[1, 0]) / grid.integrate(start[0]) - 1
    print(f"an explosion above the ground: the mass changes by {abs(lost):.0e} before it reaches the sides")
    figure, axes = plt.subplots(1, 4, figsize=(12.5, 3.3), layout="constrained", width_ratios=(1, 1, 1, 1.3))
    for ax, y, t in zip(axes, ys, ("0.1", "0.4", "0.9")):
        density = np.asarray(y[0]).T
        whole = np.concatenate([density[:, ::-1], density], 1)
        image = ax.imshow(whole, origin="lower", extent=(-1.2, 1.2, 0, 1.2), cmap="cividis", vmin=0, vmax=2.5)
        ax.set(xlabel="r", title=f"t = {t}")
    axes[0].set_ylabel("z")
    figure.colorbar(image, ax=axes[:3], label="density", location="bottom", shrink=0.6)
    energy = 0.851072
    fine = jnp.linspace(0.0, 1.2, 1001)
    for cells, colour in ((50, "0.6"), (150, BLUE)):
        ball = OrthogonalGrid([np.linspace(0.0, 1.2, cells + 1)], Spherical())
        (s,) = ball.centers
        core = jnp.where(s < 0.05, 1.0, 0.0)
        point = Euler(ball, Outflow())
        pressure = 1e-6 + 0.4 * energy * core / ball.integrate(core)
        sol = sciml.solve(point, point.conserved(jnp.stack([1 + 0 * s, 0 * s, pressure])), t0=0.0, t1=1.0)
        density = sol.ys[-1, 0]
        off = ball.integrate(jnp.abs(density - verify.reference("sedov", s, 1.0, energy)[0])) / ball.integrate(
            1 + 0 * s
        )
        print(f"an explosion in a point with {cells} cells along the radius: mean error of the density {off:.3f}")
        axes[3].plot(s, density, "o", color=colour, markersize=1.5, label=f"{cells} cells")
    axes[3].plot(fine, verify.reference("sedov", fine, 1.0, energy)[0], color="black", linewidth=1.0, label="Sedov")
    axes[3].set(xlabel="distance from the point", ylabel="density")
    axes[3].legend(frameon=False, loc="upper left")
    return figure


PICTURES = (flows_shock_tube, flows_riemann, flows_blast, flows_round, flows_dam_break, flows_cavity, flows_wake)


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
