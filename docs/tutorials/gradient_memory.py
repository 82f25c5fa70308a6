"""The memory of a gradient: a wave on a grid, its gradient with respect to the speed of sound, and five adjoints.

Run it with `python docs/tutorials/gradient_memory.py`: it takes about a minute and writes a figure into the folder
`--out`. Times depend on the machine.
"""

import argparse
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.ticker
import numpy as np

import sciml

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

SIZE, STEPS = 128, 400
END = 0.4
MIB = 2**20
COLOURS = {
    "Direct": "#000000",
    "Checkpointed": "#0072B2",
    "Reversible": "#009E73",
    "Backsolve": "#D55E00",
    "Gauss": "#CC79A7",
}
POLICIES = {
    "Direct()": sciml.adjoints.Direct(),
    "Checkpointed(levels=1)": sciml.adjoints.Checkpointed(levels=1),
    "Checkpointed(levels=2)": sciml.adjoints.Checkpointed(levels=2),
    "Checkpointed(levels=3)": sciml.adjoints.Checkpointed(levels=3),
    "Reversible()": sciml.adjoints.Reversible(),
    "Backsolve()": sciml.adjoints.Backsolve(),
    "Gauss(memory=4 MiB)": sciml.adjoints.Gauss(memory=4 * MIB),
}


def wave(t: Any, y: tuple[jax.Array, jax.Array], speed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sound on the periodic unit square: pressure and its rate, with a speed at every point."""
    del t
    pressure, rate = y
    around = sum(jnp.roll(pressure, shift, axis) for axis in (0, 1) for shift in (-1, 1))
    return rate, speed**2 * SIZE**2 * (around - 4 * pressure)


def start() -> tuple[jax.Array, jax.Array]:
    """A pulse at rest."""
    x = (jnp.arange(SIZE) + 0.5) / SIZE
    pulse = jnp.exp(-200 * ((x[:, None] - 0.4) ** 2 + (x - 0.5) ** 2))
    return pulse, jnp.zeros_like(pulse)


def loss(speed: jax.Array, adjoint: Any) -> jax.Array:
    """The signal of a line of receivers at the end."""
    sol = sciml.solve(
        wave, start(), t0=0.0, t1=END, dt=END / STEPS, args=speed, solver=diffrax.Ralston(), adjoint=adjoint
    )
    return jnp.mean(sol.ys[0][-1][SIZE // 8] ** 2)


def seconds(run: Callable[..., Any], *args: Any, repeats: int = 3) -> float:
    """The median time of a compiled function."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(run(*args))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(speed: jax.Array) -> dict[str, tuple[float, float]]:
    """Memory in MiB, and the time of the gradient relative to the solve, for each adjoint."""
    solve = jax.jit(lambda speed: loss(speed, sciml.adjoints.Checkpointed())).lower(speed).compile()
    base = seconds(solve, speed)
    state = sum(x.size * x.dtype.itemsize for x in start())
    print(f"a state takes {state / MIB:.2f} MiB, the solve {base:.2f} s")
    found, exact = {}, None
    for name, adjoint in POLICIES.items():
        compiled = jax.jit(jax.grad(lambda speed, adjoint=adjoint: loss(speed, adjoint))).lower(speed).compile()
        memory = compiled.memory_analysis().temp_size_in_bytes / MIB
        gradient = compiled(speed)
        exact = gradient if exact is None else exact
        error = float(jnp.linalg.norm(gradient - exact) / jnp.linalg.norm(exact))
        ratio = seconds(compiled, speed) / base
        print(f"{name:24} {memory:8.1f} MiB   {ratio:5.1f} times the solve   differs by {error:.0e} from Direct()")
        found[name] = memory, ratio
    return found


def draw(found: dict[str, tuple[float, float]], speed: jax.Array, path: pathlib.Path) -> None:
    """Time over memory, and the gradient itself."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(3, 2))
    for kind, colour in COLOURS.items():
        points = sorted(point for name, point in found.items() if name.startswith(kind))
        left.plot(*zip(*points, strict=True), "o-", color=colour, label=kind)
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    left.set_ylim(bottom=0)
    left.set_xlabel("temporary memory of the gradient, MiB")
    left.set_ylabel("time of the gradient over that of the solve")
    left.legend(frameon=False)
    gradient = np.asarray(jax.jit(jax.grad(loss), static_argnums=1)(speed, sciml.adjoints.Checkpointed()))
    extreme = np.abs(gradient).max()
    drawn = right.imshow(gradient.T, origin="lower", extent=(0, 1, 0, 1), cmap="RdBu_r", vmin=-extreme, vmax=extreme)
    right.set_title("derivative by the speed at each point", loc="left", fontsize="medium")
    figure.colorbar(drawn, ax=right, shrink=0.8)
    figure.savefig(path, dpi=120)
    print(f"\nwrote {path}")


def main() -> None:
    """Predicts, measures and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/gradient_memory"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    speed = jnp.ones((SIZE, SIZE))
    options = dict(args=speed, t0=0.0, t1=END, dt=END / STEPS, solver=diffrax.Ralston(), budget=32 * MIB)
    table = sciml.inspect.adjoint_memory(wave, start(), **options)
    print("predicted, before anything runs:")
    print(table)
    print(f"recommended within 32 MiB: {table.recommended}\n")
    draw(measure(speed), speed, out / "gradient_memory.png")


if __name__ == "__main__":
    main()
