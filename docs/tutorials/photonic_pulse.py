"""Inverse design of an antireflection coating: six layers on silicon, optimised by the gradient of a pulse.

Run it with `python docs/tutorials/photonic_pulse.py`: it takes about a minute on two cores and writes a figure into
the folder `--out`.

Silicon reflects a third of an incident pulse. The permittivities of six layers, each a tenth of a wavelength thick,
are optimised to reduce this. Maxwell's equations are solved in time, once for a broadband pulse, and the gradient of
the reflected energy processes the steps in reverse order.

Lengths are in wavelengths of the middle of the spectrum, times in its periods, and the speed of light is 1.
"""

import argparse
import pathlib
import time

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml import verify
from sciml.models import FieldSource, Maxwell, Ricker
from sciml.spatial import Grid

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CELLS = 60  # of a wave in vacuum
GRID = Grid(6 * CELLS, 0.0, 6.0)
ABSORB = 12  # cells of the absorbing layers
LAYERS, THICK, SURFACE, SILICON = 6, 0.1, 2.0, 12.0
END, DT = 9.0, 1 / 150
TIMES = jnp.linspace(0.0, END, 451)
COLOURS = np.linspace(0.6, 1.5, 46)  # frequencies that the pulse has


def block(coating: jax.Array) -> jax.Array:
    """The permittivity in every cell: vacuum, the coating, and silicon to the end."""
    layer = jnp.repeat(coating, round(THICK * CELLS))
    before = jnp.ones(round(SURFACE * CELLS))
    return jnp.concatenate(
        [before, layer, jnp.full(GRID.shape[0] - len(before) - len(layer), SILICON)]
    )


def run(permittivity: jax.Array) -> jax.Array:
    """The electric field at all times and places."""
    options = dict(layers=ABSORB, polarization="Ez", tuned=1.0)
    empty = Maxwell(GRID, permittivity, **options)
    sheet = FieldSource("Ez", empty.points("Ez", [0.6]), Ricker(1.0))
    model = Maxwell(GRID, permittivity, **options, source=sheet)
    adjoint = sciml.adjoints.Checkpointed(memory=2**25)
    settings = dict(t0=0.0, t1=END, dt=DT, saveat=TIMES, solver=diffrax.Bosh3(), adjoint=adjoint)
    return sciml.solve(model, model.start(), **settings).ys.fields["Ez"]


RECEIVER = round(1.2 * CELLS)
INCOMING = run(jnp.ones(GRID.shape))[:, RECEIVER]


def comes_back(coating: jax.Array) -> jax.Array:
    """The signal at the receiver on its way back."""
    return run(block(coating))[:, RECEIVER] - INCOMING


def permittivities(z: jax.Array) -> jax.Array:
    """Maps any numbers to permittivities between vacuum and silicon."""
    return 1 + (SILICON - 1) * jax.nn.sigmoid(z)


@jax.jit
def share(z: jax.Array) -> jax.Array:
    """The reflected fraction of the energy of the pulse."""
    return jnp.sum(comes_back(permittivities(z)) ** 2) / jnp.sum(INCOMING**2)


def check(z: jax.Array, gradient: jax.Array) -> None:
    """Compares the gradient with finite differences, along a direction."""
    ahead = jnp.asarray(np.random.default_rng(0).normal(size=z.shape), float)
    values = [float(share(z + step * ahead)) for step in (-1e-2, 1e-2)]
    slope = float(jnp.vdot(gradient, ahead))
    print(
        f"along a direction: {slope:.4g} by the adjoint, {(values[1] - values[0]) / 2e-2:.4g} by finite differences"
    )


def design(z: jax.Array, steps: int) -> tuple[jax.Array, list[float]]:
    """Adam, starting with the same permittivity in all layers."""
    optimiser = optax.adam(0.15)
    state, evaluate, history = optimiser.init(z), jax.jit(jax.value_and_grad(share)), []
    for number in range(steps + 1):
        value, gradient = evaluate(z)
        history.append(float(value))
        if number == 0:
            check(z, gradient)
        if number % 10 == 0:
            print(
                f"  step {number:3}: {100 * float(value):6.3f}% of the pulse comes back", flush=True
            )
        if number < steps:
            update, state = optimiser.update(gradient, state)
            z = optax.apply_updates(z, update)
    return z, history


def reflectance(coating: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Reflectance spectra, of the pulse and exact ones."""
    back, there = np.asarray(comes_back(coating)), np.asarray(INCOMING)
    turns = np.exp(2j * np.pi * COLOURS[:, None] * np.asarray(TIMES))
    found = np.abs(turns @ back) ** 2 / np.abs(turns @ there) ** 2
    stack = [1.0, *map(float, coating), SILICON]
    exact = [
        float(
            verify.reference("layered_medium", 2 * np.pi * f, stack, [THICK] * LAYERS).reflectance
        )
        for f in COLOURS
    ]
    return found, np.array(exact)


INK, BLUE, RED = "0.15", "#0072B2", "#D55E00"


def draw(coating: jax.Array, spectra: dict, history: list[float], path: pathlib.Path) -> None:
    """The field over place and time, the layers, the spectra, and the progress."""
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 7), layout="constrained")
    bare = jnp.full(LAYERS, SILICON)
    for ax, medium, title in (
        (axes[0, 0], bare, "bare silicon"),
        (axes[0, 1], coating, "with the layers found"),
    ):
        field = np.asarray(run(block(medium)))
        size = 0.5 * np.abs(field).max()
        ax.imshow(
            field,
            origin="lower",
            aspect="auto",
            extent=(0, 6, 0, END),
            cmap="RdBu_r",
            vmin=-size,
            vmax=size,
        )
        ax.axvline(SURFACE, color=INK, linewidth=0.6)
        ax.axvline(SURFACE + LAYERS * THICK, color=INK, linewidth=0.6)
        ax.set_title(title, loc="left", fontsize="medium")
        ax.set_xlabel("x")
    axes[0, 0].set_ylabel("time")
    ax = axes[1, 0]
    for (name, (found, exact)), colour in zip(spectra.items(), ("0.5", RED, BLUE)):
        ax.plot(COLOURS, 100 * exact, color=colour, linewidth=1)
        ax.plot(COLOURS[::3], 100 * found[::3], "o", color=colour, markersize=3, label=name)
    ax.set(xlabel="frequency", ylabel="reflectance (%)", ylim=(0, None))
    ax.set_title("dots: of the pulse; lines: exact", loc="left", fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
    ax = axes[1, 1]
    ax.semilogy(100 * np.array(history), color=INK)
    ax.set(xlabel="step", ylabel="of the pulse comes back (%)")
    inset = ax.inset_axes((0.5, 0.5, 0.45, 0.42))
    edges = SURFACE + THICK * np.arange(LAYERS + 1)
    heights = [1.0, *map(float, coating), SILICON]
    inset.stairs(heights, [edges[0] - 0.2, *edges, edges[-1] + 0.2], color=BLUE, baseline=None)
    inset.set(xlabel="x", ylabel="permittivity")
    for one in (axes[1, 0], ax, inset):
        one.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Optimises and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure"
    )
    parser.add_argument("--steps", type=int, default=60, help="steps of the optimiser")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    start = jnp.zeros(LAYERS)
    z, history = design(start, arguments.steps)
    coating = permittivities(z)
    print("permittivities: " + ", ".join(f"{float(x):.2f}" for x in coating))
    spectra = {
        "bare silicon": reflectance(jnp.full(LAYERS, SILICON)),
        "the start": reflectance(permittivities(start)),
        "found": reflectance(coating),
    }
    off = max(float(np.max(np.abs(found - exact))) for found, exact in spectra.values())
    bare = float(share(jnp.full(LAYERS, 40.0)))
    print(
        f"of the pulse comes back: {100 * bare:.2f}% from bare silicon, {100 * history[-1]:.3f}% from the layers found"
    )
    print(f"reflectances differ from the exact ones by {100 * off:.2f} percent points at most")
    draw(coating, spectra, history, arguments.out / "photonic_pulse.png")
    print(f"{time.perf_counter() - begin:.0f} s in all; the figure is in {arguments.out}")


if __name__ == "__main__":
    main()
