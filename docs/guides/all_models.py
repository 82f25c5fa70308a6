"""Draw every model that no other page draws: `python docs/guides/all_models.py --out docs/guides/figures`."""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import models, verify
from sciml.solvers import ETDRK, Rodas5P
from sciml.spatial import Dirichlet, Grid, Neumann, Outflow, Periodic, gaussian_random_field

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

plt.rcParams["font.size"] = 12  # pages show figures at about two thirds of their width

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "0.5", "black")


def panels(rows, columns, size):
    """A table of axes, one for each model."""
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure, iter(axes.ravel())


def over_time(ax, model, y0, t1, labels="", log=False, scales=(1.0,) * 8, **options):
    """Components over time, or as many as there are labels."""
    ts = np.geomspace(1e-5 * t1, t1, 300) if log else np.linspace(0.0, t1, 800)
    y0 = jnp.asarray(y0, float)
    ys = sciml.solve(model, y0, t0=0.0, t1=float(t1), saveat=jnp.asarray(ts), **options).ys
    for y, label, colour, scale in zip(np.asarray(ys).T, labels or [""] * 8, COLOURS, scales):
        ax.plot(ts, scale * y, color=colour, linewidth=1)
        top = int(np.argmax(y))
        side = "left" if top < len(ts) // 2 else "right"
        ax.text(ts[top], 1.02 * scale * y[top], label, color=colour, fontsize="small", ha=side, va="bottom")
    ax.margins(y=0.12)
    ax.set(xscale="log" if log else "linear", xlim=(ts[0], ts[-1]), xlabel="time")
    finish(ax, model)


def orbit(ax, model, y0, t1, *, title=None, **options):
    """The way through the plane of two components."""
    ts = jnp.linspace(0.0, t1, 4000)
    options = {"rtol": 1e-6, "atol": 1e-8} | options
    ys = np.asarray(sciml.solve(model, jnp.asarray(y0, float), t0=0.0, t1=t1, saveat=ts, **options).ys)
    ax.plot(ys[:, 0], ys[:, -1 if ys.shape[1] < 4 else 1], color=COLOURS[0], linewidth=0.8)
    finish(ax, model, title)
    return ys


def few(ax):
    """Few numbers along the axes, which are small."""
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        else:
            axis.set_major_locator(LogLocator(numticks=4))
            axis.set_minor_locator(NullLocator())


def finish(ax, model, title=None):
    few(ax)
    ax.set_title(title or type(model).__name__, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)


def models_ordinary():
    """Ordinary differential equations: components over time, or one against another."""
    figure, axes = panels(4, 4, (11.0, 10.5))
    over_time(next(axes), models.Linear([[-1.0, 4.0], [-4.0, -1.0]]), [1, 0], 2.0)
    over_time(next(axes), models.HarmonicOscillator(zeta=0.1), [1, 0], 20.0)
    over_time(next(axes), models.Pendulum(), [3.0, 0], 10.0)
    ellipse = [0.4, 0.0, 0.0, 2.0]  # an eccentricity of 0.6
    kepler = models.Kepler()
    ax = next(axes)
    ys = orbit(ax, kepler, ellipse, 2 * np.pi)
    ax.plot(0.0, 0.0, "o", color="black", markersize=4)
    ax.axis("equal")
    energy = np.asarray(jax.vmap(kepler.energy)(jnp.asarray(ys)))
    print(f"Kepler's energy differs by {np.ptp(energy):.0e} around an orbit")
    with jax.enable_x64(True):
        known = verify.problem("arenstorf", dtype=jnp.float64)
        options = dict(rtol=1e-10, atol=1e-12, solver=diffrax.Dopri8())
        ys = orbit(next(axes), known.model, known.y0, known.t1, **options)
        print(f"RestrictedThreeBody comes back to {np.abs(ys[-1, :2] - np.asarray(known.y0)[:2]).max():.0e}")
    over_time(next(axes), models.Logistic(), [0.1], 10.0)
    over_time(next(axes), models.SIR(), [762, 1, 0], 14.0, labels=["susceptible", "ill", "recovered"])
    over_time(next(axes), models.LotkaVolterra(), [30, 6], 20.0, labels=["prey", "predators"])
    orbit(next(axes), models.VanDerPol(mu=2.0), [2, 0], 20.0)
    over_time(next(axes), models.VanDerPolScaled(epsilon=1e-3), [2, 0], 3.0, labels=["x"], solver=Rodas5P())
    orbit(next(axes), models.Lorenz63(), [1, 0, 0], 40.0, rtol=1e-5, atol=1e-5)
    start = jnp.full(40, 8.0).at[19].set(8.01)
    times = jnp.linspace(0.0, 20.0, 201)
    ys = sciml.solve(models.Lorenz96(), start, t0=0.0, t1=20.0, saveat=times).ys
    image(next(axes), ys, (0, 40, 0, 20), "Lorenz96")
    stiff = dict(solver=Rodas5P(), rtol=1e-4, atol=1e-7)
    over_time(next(axes), models.HIRES(), [1, 0, 0, 0, 0, 0, 0, 0.0057], 321.8, log=True, **stiff)
    robertson = models.Robertson()
    over_time(next(axes), robertson, [1, 0, 0], 1e5, labels="ABC", log=True, scales=(1.0, 1e4, 1.0), **stiff)
    ax = next(axes)
    ts = jnp.linspace(0.0, 360.0, 800)
    ys = sciml.solve(models.Oregonator(), jnp.array([1.0, 2.0, 3.0]), t0=0.0, t1=360.0, saveat=ts, **stiff).ys
    for y, colour in zip(np.asarray(ys).T, COLOURS):
        ax.plot(ts, y, color=colour, linewidth=1)
    ax.set(yscale="log", xlim=(0, 360), xlabel="time")
    finish(ax, models.Oregonator())
    next(axes).axis("off")
    return figure


def image(ax, values, extent, title, cmap="cividis", **options):
    """A field of one dimension over time, or one of two dimensions."""
    drawn = ax.imshow(
        np.asarray(values),
        origin="lower",
        extent=extent,
        aspect="auto",
        cmap=cmap,
        interpolation="none",
        **options,
    )
    ax.set_title(title, loc="left", fontsize="medium")
    few(ax)
    return drawn


def models_lines():
    """Fields of one dimension, to the right, over time, upwards."""
    figure, axes = panels(4, 3, (10.0, 10.5))
    figure.supxlabel("x")
    figure.supylabel("time")

    def draw(model, u0, ends, t1, part=lambda ys: ys, **options):
        ts = jnp.linspace(0.0, t1, 161)
        ys = sciml.solve(model, u0, t0=0.0, t1=t1, saveat=ts, **options).ys
        image(next(axes), part(ys), (*ends, 0, t1), type(model).__name__)
        return ys

    ring, unit = Grid(128), (0.0, 1.0)
    (x,) = ring.centers
    hump, block = jnp.exp(-200 * (x - 0.3) ** 2), jnp.where(jnp.abs(x - 0.3) < 0.15, 1.0, 0.0)
    draw(models.Diffusion(ring, Dirichlet(0.0), 0.05), hump + 0.5 * block, unit, 0.2)
    draw(models.Advection(ring, Periodic()), hump, unit, 1.0)
    draw(models.AdvectionDiffusion(ring, Periodic(), 0.5), hump, unit, 1.0)
    ys = draw(models.Transport(ring, Periodic()), block, unit, 1.0)
    print(f"Transport keeps its amount to {abs(float(jnp.sum(ys[-1]) / jnp.sum(ys[0]) - 1)):.0e}")
    line = Grid(128, -1.0, 1.0)
    (x,) = line.centers
    draw(models.Burgers(line, Dirichlet(0.0)), -jnp.sin(jnp.pi * x), (-1, 1), 1.0)
    (x,) = ring.centers
    draw(models.InviscidBurgers(ring, Periodic()), jnp.sin(2 * jnp.pi * x), unit, 0.5)
    (x,) = line.centers
    draw(models.Traffic(line, Outflow()), jnp.where(x < 0, 1.0, 0.0), (-1, 1), 0.8)
    wide = Grid(128, 0.0, 60.0)
    spot = jnp.exp(-((wide.centers[0] - 30) ** 2))
    draw(models.FisherKPP(wide, Neumann(0.0)), spot, (0, 60), 12.0)
    (x,) = ring.centers
    draw(models.Wave(ring, Dirichlet(0.0)), jnp.stack([hump, 0 * hump]), unit, 2.0, part=lambda ys: ys[:, 0])
    kdv = models.KortewegDeVries(points=256, length=40.0)
    x = kdv.x()
    two = 2 / jnp.cosh(x - 8) ** 2 + 0.5 / jnp.cosh(0.5 * (x - 20)) ** 2  # the fast one overtakes
    ys = draw(kdv, two, (0, 40), 6.0, solver=ETDRK(order=4), dt=0.005)
    print(f"KortewegDeVries keeps its momentum to {abs(float(kdv.momentum(ys[-1]) / kdv.momentum(ys[0]) - 1)):.0e}")
    flame = models.KuramotoSivashinsky(points=128, length=32 * np.pi)
    x = flame.x()
    u0 = jnp.cos(x / 16) * (1 + jnp.sin(x / 16))
    draw(flame, u0, (0, 32 * np.pi), 150.0, solver=ETDRK(order=4), dt=0.25)
    pulse = models.NonlinearSchroedinger(shape=(256,), length=40.0)
    x = jnp.arange(256) * 40.0 / 256 - 20
    psi = jnp.exp(1j * x) / jnp.cosh(x + 6) + jnp.exp(-1j * x) / jnp.cosh(x - 6)
    draw(pulse, psi, (-20, 20), 12.0, part=jnp.abs, solver=ETDRK(order=4), dt=0.02)
    return figure


def models_planes():
    """Fields of two dimensions."""
    figure, axes = panels(2, 3, (11.0, 7.0))
    key = jax.random.key(0)
    unit = Grid((96, 96))
    noise = 0.1 * jax.random.normal(key, unit.shape)
    sol = sciml.solve(models.AllenCahn(unit, Neumann(0.0), width=0.02), noise, t0=0.0, t1=15.0)
    image(next(axes), sol.ys[-1].T, (0, 1, 0, 1), "AllenCahn")
    field = gaussian_random_field(unit, lambda k: 1 / (1 + (k / 20) ** 4), key=key)
    k = jnp.exp(field / jnp.std(field))
    pressure = models.Darcy(unit, Dirichlet(0.0), k).steady()
    image(next(axes), pressure.T, (0, 1, 0, 1), "Darcy: the pressure at rest")
    sea = Grid((120, 120), 0.0, 1200.0)
    x, y = sea.centers
    speed = jnp.where((x - 700) ** 2 + (y - 600) ** 2 < 200**2, 3000.0, 1500.0) + 0 * x * y
    source = models.PointSources(sea, [300.0, 600.0], models.Ricker(12.0))
    sound = models.Acoustic(sea, speed=speed, density=1000.0, layers=10, source=source)
    dt = 1.5 / float(sound.spectral_radius(0.0, sound.rest(), None))
    sol = sciml.solve(sound, sound.rest(), t0=0.0, t1=0.5, dt=dt, solver=diffrax.Bosh3())
    now = np.asarray(sound.pressure(sol.ys)[-1]).T
    image(next(axes), now, (0, 1200, 0, 1200), "Acoustic: a fast disc", vmax=0.3 * now.max())
    waves = models.GinzburgLandau(shape=(96, 96), length=75.0)
    parts = 0.1 * jax.random.normal(key, (2, 96, 96))
    sol = sciml.solve(waves, parts[0] + 1j * parts[1], t0=0.0, t1=80.0, dt=0.1, solver=ETDRK(order=4))
    image(next(axes), jnp.angle(sol.ys[-1]).T, (0, 75, 0, 75), "GinzburgLandau: the phase", "twilight")
    front = models.IntegralKuramotoSivashinsky(shape=(96, 96), length=60.0)
    sol = sciml.solve(front, 0.1 * parts[0], t0=0.0, t1=80.0, dt=0.1, solver=ETDRK(order=4))
    image(next(axes), (sol.ys[-1] - sol.ys[-1].mean()).T, (0, 60, 0, 60), "IntegralKuramotoSivashinsky")
    square = Grid((96, 96), 0.0, 2 * np.pi)
    flow = models.Vorticity(square, viscosity=5e-3, forcing=models.kolmogorov_forcing(square, waves=4))
    start = gaussian_random_field(square, lambda k: (k / 6) ** 6 / (1 + (k / 6) ** 18), key=key)
    sol = sciml.solve(flow, start / jnp.sqrt(2 * flow.energy(start)), t0=0.0, t1=8.0, dt=0.0125)
    image(next(axes), sol.ys[-1].T, (0, 6.28, 0, 6.28), "Vorticity, forced")
    return figure


PICTURES = (models_ordinary, models_lines, models_planes)


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
