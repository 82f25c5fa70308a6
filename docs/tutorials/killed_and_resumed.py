"""A long run that is killed and resumed with identical bits.

Run it with `python docs/tutorials/killed_and_resumed.py`: it takes less than a minute and writes a figure into the
folder `--out`.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

BLUE, VERMILION = "#0072B2", "#D55E00"  # which colour-blind readers tell apart


def kept(t: jax.Array, y: jax.Array, args: None) -> dict[str, jax.Array]:
    """The saved values of a state."""
    return {"y": y, "energy": jnp.mean(y**2) / 2}


def run(folder: pathlib.Path, progress: bool = True) -> sciml.runs.Run:
    """The Lorenz-96 atmosphere, for 1000 units of time, some 14 years."""
    model = sciml.models.Lorenz96()
    y0 = 8.0 + 0.01 * jax.random.normal(jax.random.key(0), (40,))
    return sciml.simulate(
        model,
        y0,
        t0=0.0,
        t1=1000.0,
        rtol=1e-5,
        atol=1e-5,
        save_every=0.1,
        output=kept,
        store=folder,
        checkpoint_every=0.0,  # after every segment: this one is over in seconds
        segment_steps=1000,
        progress=progress,
    )


def kill(folder: pathlib.Path) -> int:
    """Starts the run in another process, kills it after its third checkpoint, and returns the saved frames."""
    with subprocess.Popen([sys.executable, __file__, "--only-run", str(folder)]) as process:
        checkpoints = folder / "checkpoints"
        while process.poll() is None and not list(checkpoints.glob("checkpoint_*[3-9].npz")):
            time.sleep(0.01)
        process.kill()
    number = max(sciml.stores.NpzStore(checkpoints, prefix="checkpoint").numbers())
    return int(sciml.stores.NpzStore(checkpoints, prefix="checkpoint").get(number)["frames"])


def main(out: pathlib.Path) -> None:
    """Runs once undisturbed and once killed, compares, and draws."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = run(pathlib.Path(scratch) / "whole")
        frames = kill(pathlib.Path(scratch) / "killed")
        print(f"killed; the last checkpoint holds {frames} of {len(whole)} frames")
        resumed = run(pathlib.Path(scratch) / "killed")
        print(f"resumed: {resumed.reason}")
        same = all(
            np.array_equal(whole.values[name], resumed.values[name]) for name in ("y", "energy")
        )
        print(f"the same bits as the run that was not killed: {same}")

        picture, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
        last = slice(len(resumed) - 200, None)
        field = left.pcolormesh(
            np.arange(40), resumed.ts[last], resumed[last]["y"], cmap="RdBu_r", rasterized=True
        )
        picture.colorbar(field, ax=left)
        left.set(xlabel="place", ylabel="time", title="The last 20 units of time")
        energy = resumed.values["energy"]
        right.plot(resumed.ts, np.cumsum(energy) / np.arange(1, len(energy) + 1), color=BLUE)
        right.axvline(
            resumed.ts[frames - 1], color=VERMILION, linestyle="--", label="resumed from here"
        )
        right.set(xlabel="time", title="Mean energy so far", ylim=(7, 11))
        right.legend()
        picture.savefig(out / "killed_and_resumed.png", dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "figures"
    )
    parser.add_argument("--only-run", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.only_run:
        run(arguments.only_run, progress=False)
    else:
        main(arguments.out)
