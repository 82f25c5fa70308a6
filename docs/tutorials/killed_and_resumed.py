# %% [markdown]
# # Resume a killed run: checkpoints
#
# A run of several days can meet a power cut, the time limit of a queue or a full disk. This tutorial kills a run on
# purpose and resumes it from its checkpoint. You will learn to
#
# - store a long run in a folder with `sciml.simulate` ([long runs](../guides/long_runs.md));
# - resume it after a crash: make the same call again;
# - verify that the resumed run has the same bits as an uninterrupted one.
#
# The model is the Lorenz-96 atmosphere over a thousand units of time. It is chaotic: a difference in the last bit grows to
# the size of the weather within 40 units, so any error in resuming would show.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/killed_and_resumed"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The run
#
# The process that is killed and the process that resumes need the same program, so write it into a file. `store=` names
# the folder of the run, and `output=` selects the saved values. A checkpoint after every segment of 1000 steps
# (`checkpoint_every=0.0`, in seconds) suits a run that takes seconds; the default suits one that takes days.

# %%
import subprocess
import sys
import tempfile
import time

import matplotlib.pyplot as plt
import numpy as np

import sciml

PROGRAM = """
import sys

import jax
import jax.numpy as jnp
import sciml


def output(t, y, args):
    return {"y": y, "energy": jnp.mean(y**2) / 2}


def run(folder):
    return sciml.simulate(
        sciml.models.Lorenz96(),
        8.0 + 0.01 * jax.random.normal(jax.random.key(0), (40,)),
        t0=0.0,
        t1=1000.0,
        rtol=1e-5,
        atol=1e-5,
        save_every=0.1,
        output=output,
        store=folder,
        checkpoint_every=0.0,
        segment_steps=1000,
        progress=False,
    )


if __name__ == "__main__":
    run(sys.argv[1])
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "weather.py").write_text(PROGRAM)

# %% [markdown]
# First run it without interruption, to have something to compare with.

# %%
sys.path.insert(0, str(folder))
import weather

whole = weather.run(folder / "whole")
print(f"{len(whole)} frames to time {whole.ts[-1]:.0f}: {whole.reason}")

# %% [markdown]
# ## The kill
#
# Start the program in another process, wait until its third checkpoint is on disk, and send it SIGKILL, which a program
# cannot catch. The checkpoint contains the number of frames that are already saved.

# %%
checkpoints = folder / "killed" / "checkpoints"
with subprocess.Popen([sys.executable, folder / "weather.py", folder / "killed"]) as process:
    while process.poll() is None and not list(checkpoints.glob("checkpoint_*[3-9].npz")):
        time.sleep(0.01)
    process.kill()

store = sciml.stores.NpzStore(checkpoints, prefix="checkpoint")
frames = int(store.get(max(store.numbers()))["frames"])
print(f"killed; the last checkpoint holds {frames} of {len(whole)} frames")

# %% [markdown]
# ## Resume
#
# Make the same call again. It finds the folder, reads the last checkpoint and computes the rest.

# %%
resumed = weather.run(folder / "killed")
same = all(np.array_equal(whole.values[name], resumed.values[name]) for name in whole.values)
print(f"resumed: {resumed.reason}")
print(f"the same bits as the run that was not killed: {same}")

# %% Figure
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
last = slice(len(resumed) - 200, None)
field = left.pcolormesh(
    np.arange(40), resumed.ts[last], resumed[last]["y"], cmap="RdBu_r", rasterized=True
)
figure.colorbar(field, ax=left, label="state")
left.set(xlabel="place", ylabel="time", title="The last 20 units of time")
energy = resumed.values["energy"]
right.plot(resumed.ts, np.cumsum(energy) / np.arange(1, len(energy) + 1), color="#0072B2")
right.axvline(resumed.ts[frames - 1], color="#D55E00", linestyle="--", label="resumed from here")
right.set(xlabel="time", ylabel="energy", title="Mean energy so far", ylim=(9, 11))
right.spines[["top", "right"]].set_visible(False)
right.legend(frameon=False)
figure.savefig(OUT / "killed_and_resumed.png", dpi=120)

# %% [markdown]
# ![The last twenty units of time, and the mean energy with the place where the run was resumed](figures/killed_and_resumed.png)
#
# ## Why the bits are the same
#
# A checkpoint contains everything that the next steps depend on: the state, the time and its rounding error, the next step
# size, the memory of the step size controller, and the last step, which can contain the next frame.
#
# A finished run is also found again: a third call reads all frames and computes nothing.

# %%
begin = time.perf_counter()
again = weather.run(folder / "killed")
print(f"{len(again)} frames, read in {time.perf_counter() - begin:.2f} s")

# %% [markdown]
# ## Next steps
#
# - Intervals of checkpoints, storage formats, and limits of wall time: [long runs](../guides/long_runs.md).
# - Many members instead of one long run: [resume a killed sweep](killed_sweep.md).
