"""A custom stencil: waves in an excitable medium, with XLA and with an interpreted kernel.

Run it with `python docs/tutorials/own_stencil.py`: it takes less than a minute and writes a figure into the folder
`--out`. On a machine with a GPU or a TPU it also runs the kernel, and prints both times.
"""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

from sciml.kernels import select
from sciml.kernels.stencil import StencilUpdate, evolve
from sciml.spatial import Boundaries, Grid, Neumann

GRID = Grid((192, 160))
PARAMS = {"diffusivity": 0.18, "step": 0.02, "a": 0.75, "b": 0.02, "rate": 50.0}


def barkley(nb, p):
    """Barkley's model of an excitable medium: `u` fires above a threshold and spreads, `v` follows and inhibits it."""
    u, v = nb("u"), nb("v")
    around = nb("u", -1, 0) + nb("u", 1, 0) + nb("u", 0, -1) + nb("u", 0, 1) - 4 * u
    threshold = (v + p["b"]) / p["a"]
    fired = u + p["step"] * p["rate"] * u * (1 - u) * (u - threshold)
    return {"u": fired + p["diffusivity"] * nb("conductance") * around, "v": v + p["step"] * (u - v)}


def start() -> dict[str, jax.Array]:
    """A broken wave whose free end curls."""
    y, x = np.mgrid[: GRID.shape[0], : GRID.shape[1]]
    u = (x < GRID.shape[1] // 2) & (x > GRID.shape[1] // 2 - 12) & (y < GRID.shape[0] // 2)
    v = 0.4 * (x < GRID.shape[1] // 2 - 12) * (y < GRID.shape[0] // 2)
    return {"u": jnp.asarray(u, jnp.float32), "v": jnp.asarray(v, jnp.float32)}


def conductance() -> jax.Array:
    """One, and a fifth of it in a disc."""
    y, x = np.mgrid[: GRID.shape[0], : GRID.shape[1]]
    return jnp.asarray(np.where((y - 130) ** 2 + (x - 110) ** 2 < 20**2, 0.2, 1.0), jnp.float32)


def compare(update: StencilUpdate) -> None:
    """Compares a kernel in JAX's interpreter with the reference, on a corner of the field."""
    corner = Boundaries(Grid((40, 150)), Neumann(0.0))
    small = StencilUpdate(update.fn, fields=update.fields, coefficients=update.coefficients, boundary=corner)
    state = {name: x[70:110, :150] for name, x in start().items()}
    rest = {"conductance": conductance()[70:110, :150]}
    expected = evolve(small, state, 20, PARAMS, coefficients=rest)
    how = dict(impl="pallas", interpret=True, steps_per_pass=2)
    found = jax.jit(lambda s: evolve(small, s, 20, PARAMS, coefficients=rest, **how))(state)
    error = np.max([np.abs(found[name] - expected[name]) for name in found])
    moved = np.max(np.abs(expected["u"] - state["u"]))
    print(f"the kernel differs from XLA by {error:.1e} at most, after a change of {moved:.2f}")


def seconds(update: StencilUpdate, impl: str) -> float:
    """The time of 1000 steps, compiled."""
    rest = {"conductance": conductance()}
    run = jax.jit(lambda s: evolve(update, s, 1000, PARAMS, coefficients=rest, impl=impl))
    jax.block_until_ready(run(start()))
    began = time.perf_counter()
    jax.block_until_ready(run(start()))
    return time.perf_counter() - began


def main() -> None:
    """Compares, times and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/own_stencil"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    update = StencilUpdate(
        barkley, fields=("u", "v"), coefficients=("conductance",), boundary=Boundaries(GRID, Neumann(0.0))
    )
    rest = {"conductance": conductance()}
    chosen = select(update, start(), PARAMS, coefficients=rest)
    print(f"evolve runs by {chosen.backend}, because {chosen.reason}")
    compare(update)
    print(f"1000 steps by XLA: {1e3 * seconds(update, 'auto'):.0f} ms")
    if jax.default_backend() in ("gpu", "tpu"):
        print(f"1000 steps by the kernel: {1e3 * seconds(update, 'pallas'):.0f} ms")

    frames = [start()]
    for _ in range(2):
        frames.append(evolve(update, frames[-1], 1000, PARAMS, coefficients=rest))

    def fired(conductance):
        return jnp.mean(evolve(update, frames[1], 200, PARAMS, coefficients={"conductance": conductance})["u"])

    gradient = jax.jit(jax.grad(fired))(rest["conductance"])
    slope = (fired(rest["conductance"] + 0.002) - fired(rest["conductance"] - 0.002)) / 0.004
    print(f"slope along a uniform change: {float(jnp.sum(gradient)):.4f}, by differences {float(slope):.4f}")
    draw(frames[1:], gradient, given.out / "own_stencil.png")


def draw(frames: list, gradient: jax.Array, path: pathlib.Path) -> None:
    """The wave at two times, and the sensitivity of the excited area to the conductance."""
    import matplotlib

    matplotlib.use("Agg")  # figures go to files; no screen is needed
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 4), layout="constrained")
    top = float(np.quantile(np.abs(gradient), 0.995))
    shown = [
        ("u after 1000 steps", frames[0]["u"], {"cmap": "magma"}),
        ("u after 2000 steps", frames[1]["u"], {"cmap": "magma"}),
        ("what fires, by the conductance", gradient, {"cmap": "RdBu_r", "vmin": -top, "vmax": top}),
    ]
    for at, (title, field, how) in zip(axes, shown):
        at.imshow(np.asarray(field), origin="lower", **how)
        at.set_title(title, loc="left", fontsize="medium")
        at.set_xticks([])
        at.set_yticks([])
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
