"""A sweep that is killed and resumed without loss.

Run it with `python docs/tutorials/killed_sweep.py`: it takes less than a minute, starts a process of its own, kills
it, and writes a figure into the folder `--out`.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import parallel

POINTS, BLOCK, KILL_AT = 96, 256, 14
END = 15.0


def double_pendulum(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """Two rods of equal length and mass, in units of the length and of gravity; angles from the vertical."""
    a, b, p, q = y
    d = a - b
    cos, sin = jnp.cos(d), jnp.sin(d)
    below = 3 - jnp.cos(2 * d)
    p_dot = (-3 * jnp.sin(a) - jnp.sin(a - 2 * b) - 2 * sin * (q**2 + p**2 * cos)) / below
    q_dot = 2 * sin * (2 * p**2 + 2 * jnp.cos(a) + q**2 * cos) / below
    return jnp.stack([p, q, p_dot, q_dot])


def swing(angles: dict[str, jax.Array]) -> sciml.Solution:
    """One member: the pendulum is released at two angles."""
    start = jnp.stack([angles["first"], angles["second"], jnp.zeros(()), jnp.zeros(())])
    saveat = jnp.linspace(0.0, END, 151)
    options = dict(rtol=1e-4, atol=1e-4, max_steps=20_000, throw=False)
    return sciml.solve(double_pendulum, start, t0=0.0, t1=END, saveat=saveat, **options)


def first_flip(sol: sciml.Solution) -> jax.Array:
    """The time when the second rod first flips over the top, or the end time if it does not."""
    over = jnp.abs(sol.ys[:, 1]) > jnp.pi
    return jnp.where(jnp.any(over), sol.ts[jnp.argmax(over)], END)


def arguments() -> dict[str, Any]:
    """The arguments of the sweep, the same in all processes."""
    angles = np.linspace(-3.0, 3.0, POINTS, dtype=np.float32)
    return dict(
        fn=swing,
        params=parallel.parameter_grid(first=angles, second=angles),
        output=first_flip,
        block=BLOCK,
    )


def worker(store: pathlib.Path) -> None:
    """The process that will be killed: it runs the sweep, and prints the number of finished members per block."""
    parallel.sweep(
        **arguments(), store=store, progress=lambda now: print(now.done, now.total, flush=True)
    )


def killed(store: pathlib.Path) -> None:
    """Starts the sweep in a separate process and kills it while it runs."""
    command = [sys.executable, __file__, "--worker", "--out", str(store)]
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for blocks, line in enumerate(process.stdout, 1):
            if blocks == KILL_AT:
                process.send_signal(
                    signal.SIGKILL
                )  # without a handler or a warning, like a queue at its time limit
                print(f"killed after {line.split()[0]} of {line.split()[1]} members")


def on_disk(store: pathlib.Path) -> np.ndarray:
    """The blocks of the killed process, read without sciml; NaN for missing members."""
    found = np.full(POINTS * POINTS, np.nan, np.float32)
    for path in store.glob("block_*.npz"):
        with np.load(path) as block:
            found[block["members"]] = block["values"]
    return found.reshape(POINTS, POINTS)


def draw(left: np.ndarray, whole: np.ndarray, path: pathlib.Path) -> None:
    """The results on disk after the kill, and all results."""
    import matplotlib

    matplotlib.use("Agg")  # figures go to files; no screen is needed
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    for ax, values, title in zip(
        axes, (left, whole), ("When it was killed", "Resumed"), strict=True
    ):
        image = ax.imshow(
            values.T, origin="lower", extent=(-3, 3, -3, 3), cmap="viridis", vmin=0, vmax=END
        )
        ax.set_xlabel("first angle")
        ax.set_title(title, loc="left", fontsize="medium")
    axes[0].set_ylabel("second angle")
    figure.colorbar(image, ax=axes, label=f"time of the first flip ({END:.0f}: none)")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/killed_sweep"))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return worker(given.out)
    jax.config.update(
        "jax_num_cpu_devices", 2
    )  # the process that resumes has twice as many devices
    given.out.mkdir(parents=True, exist_ok=True)
    store = given.out / "store"
    shutil.rmtree(store, ignore_errors=True)

    killed(store)
    left = on_disk(store)
    there = np.count_nonzero(~np.isnan(left))
    print(f"on disk: {there} members in {len(list(store.glob('*.npz')))} blocks")

    result = parallel.sweep(**arguments(), store=store, progress=False)
    print(f"resumed on {len(jax.devices())} devices: {result.summary()}")

    undisturbed = parallel.sweep(**arguments(), progress=False)
    same = result.values.tobytes() == undisturbed.values.tobytes()
    print(f"the same bits as a sweep that nobody killed: {same}")

    try:
        parallel.sweep(
            **{**arguments(), "output": lambda sol: sol.ys[-1, 0]}, store=store, progress=False
        )
    except sciml.stores.StoreError as error:
        print(f"\nanother sweep in the same store is refused:\n{error}\n")
    draw(left, result.on_grid(), given.out / "killed_sweep.png")


if __name__ == "__main__":
    main()
