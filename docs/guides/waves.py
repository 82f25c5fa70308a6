"""Draw the pictures of the guide to waves: `python docs/guides/waves.py --out docs/guides/figures`."""

import argparse
import pathlib

import diffrax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import models, verify
from sciml.models import Acoustic, ElasticWave, FieldSource, Maxwell, PointSources, Ricker, TimeHarmonicWave
from sciml.spatial import Grid, Points

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams["font.size"] = 12  # pages show figures at about two thirds of their width


def field(ax, values, extent, title, share=0.5):
    """A field that swings around zero."""
    size = share * float(np.abs(values).max())
    ax.imshow(np.asarray(values).T, origin="lower", extent=extent, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto")
    ax.set_title(title, loc="left", fontsize="medium")
    ax.locator_params(nbins=5)


def solved(model, t1):
    """The state at a time, by steps that are stable."""
    dt = 1.5 / float(model.spectral_radius(0.0, model.start(), None))
    return sciml.solve(model, model.start(), t0=0.0, t1=t1, dt=dt, solver=diffrax.Bosh3()).ys.fields


def waves_kinds():
    """Light, light in a metal, the ground, sound in space, and waves of one frequency."""
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 6.6), layout="constrained")
    axes = iter(axes.ravel())

    grid = Grid((160, 120), (-4.0, -3.0), (4.0, 3.0))
    x, y = grid.centers
    glass = jnp.where((x - 1.0) ** 2 + y**2 < 1.2**2, 3.0, 1.0)
    metal = models.Drude(jnp.where(x + 0 * y > 1.0, 9.0, 0.0), 0.1)
    for title, permittivity, media in (("Maxwell: a lens", glass, []), ("Maxwell: a metal (Drude)", 1.0, [metal])):
        empty = Maxwell(grid, permittivity, layers=12, polarization="Ez")
        dipole = FieldSource("Ez", empty.points("Ez", [-2.0, 0.5]), Ricker(1.2))
        light = Maxwell(grid, permittivity, layers=12, media=media, polarization="Ez", source=dipole)
        ax = next(axes)
        field(ax, solved(light, 5.5)["Ez"][-1], (-4, 4, -3, 3), title, 0.4)
        ax.contour(*map(np.ravel, (x, y)), np.asarray(glass if not media else metal.plasma).T, levels=1, linewidths=0.5)

    ground = Grid((160, 100), (0.0, -100.0), (160.0, 0.0))
    (x, y) = ground.centers
    soft = jnp.where(y > -40.0 + 0 * x, 1.0, 2.5)
    medium = dict(boundary={"x": "roller", "y-": "roller", "y+": "free"}, layers={"x": 12, "y-": 12})
    still = ElasticWave(ground, soft, soft, 1.0, **medium)
    blow = FieldSource("vy", still.points("vy", [60.0, 0.0]), Ricker(0.06))
    shaken = ElasticWave(ground, soft, soft, 1.0, **medium, source=blow)
    ends = solved(shaken, 75.0)
    field(
        next(axes),
        shaken.places.centered("vy", ends["vy"][-1]),
        (0, 160, -100, 0),
        "ElasticWave: two soils, a blow",
        0.3,
    )

    room = Grid((48, 48, 48), 0.0, 4.8)
    source = PointSources(room, [2.0, 2.4, 2.4], Ricker(1.0))
    sound = Acoustic(room, speed=1.0, layers=8, source=source)
    dt = 1.5 / float(sound.spectral_radius(0.0, sound.rest(), None))
    sol = sciml.solve(sound, sound.rest(), t0=0.0, t1=2.9, dt=dt, solver=diffrax.Bosh3())
    heard = sound.pressure(sol.ys)[-1]
    field(next(axes), heard[:, :, 23], (0, 4.8, 0, 4.8), "Acoustic in space, a section")

    tank = Grid((128, 128), 0.0, 6.4)
    x, y = tank.centers
    speed = jnp.where((x - 3.8) ** 2 + (y - 3.2) ** 2 < 1.0, 0.6, 1.0)
    wave = TimeHarmonicWave(tank, 2 * np.pi * 1.2, speed, layers=16, tuned=1.0)
    tone = Points(tank, [1.6, 3.2]).spread(jnp.ones(()))
    print(f"TimeHarmonicWave: {int(wave.steps(tone))} steps for {tank.shape[0] * tank.shape[1]} unknowns")
    ax = next(axes)
    field(ax, wave.solve(tone).real, (0, 6.4, 0, 6.4), "TimeHarmonicWave: a slow disc", 0.25)

    ax = next(axes)
    omega = np.linspace(1.0, 9.0, 200)
    for thickness, colour in ((0.2, "#0072B2"), (0.5, "#D55E00")):
        passed = [
            verify.reference("layered_medium", float(w), [1.0, 4.0, 1.0], [thickness]).transmittance for w in omega
        ]
        ax.plot(omega, np.asarray(passed), color=colour, label=f"thickness {thickness}")
    ax.set_title("exact: a slab of glass", loc="left", fontsize="medium")
    ax.set_ylim(0.6, 1.2)
    ax.set_xlabel("frequency")
    ax.set_ylabel("transmittance")
    ax.legend(frameon=False, loc="upper left")
    ax.set_yticks([0.6, 0.8, 1.0])
    return figure


PICTURES = (waves_kinds,)


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
