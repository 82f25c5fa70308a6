# %% [markdown]
# # Resume a killed sweep: parameter sweeps on disk
#
# A parameter sweep runs for hours on a shared machine, and the queue kills it at its time limit. This tutorial kills a
# sweep on purpose and resumes it on twice as many devices. You will learn to
#
# - store a sweep in a folder, block by block ([parameter sweeps](../guides/sweeps_and_scale.md));
# - resume it: make the same call again, on any number of devices;
# - read its files without sciml;
# - recognise the error that protects a store from another sweep.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/killed_sweep"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The sweep
#
# A double pendulum is released at two angles. When does its second rod first flip over the top? Each pair of angles is a
# member. For small angles the energy is too low for a flip. Elsewhere the motion is chaotic, and the time of the first
# flip depends on the last digits: if a sweep computed some members differently after the kill, the picture would show it.
#
# The process that is killed and the process that resumes need the same program, so write it into a file. `progress=` is
# called after each block, and prints the number of finished members.

# %%
import signal
import subprocess
import sys
import tempfile

import jax
import matplotlib.pyplot as plt
import numpy as np

import sciml

jax.config.update("jax_num_cpu_devices", 2)  # the killed process will have one

PROGRAM = """
import sys

import jax.numpy as jnp
import numpy as np
import sciml
from sciml import parallel

ANGLES = np.linspace(-3.0, 3.0, 96, dtype=np.float32)


def double_pendulum(t, y, args):  # rods of equal length and mass, in units of length and gravity
    a, b, p, q = y
    d = a - b
    cos, sin = jnp.cos(d), jnp.sin(d)
    below = 3 - jnp.cos(2 * d)
    p_dot = (-3 * jnp.sin(a) - jnp.sin(a - 2 * b) - 2 * sin * (q**2 + p**2 * cos)) / below
    q_dot = 2 * sin * (2 * p**2 + 2 * jnp.cos(a) + q**2 * cos) / below
    return jnp.stack([p, q, p_dot, q_dot])


def swing(angles):
    start = jnp.stack([angles["first"], angles["second"], jnp.zeros(()), jnp.zeros(())])
    options = dict(saveat=jnp.linspace(0.0, 15.0, 151), rtol=1e-4, atol=1e-4)
    return sciml.solve(double_pendulum, start, t0=0.0, t1=15.0, max_steps=20_000, throw=False, **options)


def first_flip(sol):
    over = jnp.abs(sol.ys[:, 1]) > jnp.pi
    return jnp.where(jnp.any(over), sol.ts[jnp.argmax(over)], 15.0)


def sweep(store=None, output=first_flip, progress=False):
    grid = parallel.parameter_grid(first=ANGLES, second=ANGLES)
    return parallel.sweep(swing, grid, output=output, block=256, store=store, progress=progress)


if __name__ == "__main__":
    sweep(sys.argv[1], progress=lambda now: print(now.done, now.total, flush=True))
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "pendulums.py").write_text(PROGRAM)
store = folder / "store"

# %% [markdown]
# ## The kill
#
# Start the program in another process with one device, and send it SIGKILL after its 14th block. A program cannot catch
# this signal, so it has no chance to clean up.

# %%
command = [sys.executable, folder / "pendulums.py", store]
environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
    for number, line in enumerate(process.stdout, 1):
        if number == 14:
            process.send_signal(signal.SIGKILL)
            done, total = line.split()
            print(f"killed after {done} of {total} members")

# %% [markdown]
# ## Files of a store
#
# Each block of members is written when it is done: to a temporary file, which is flushed to disk and then renamed. A
# block is therefore complete or absent, whenever the process dies. The blocks are npz files, which NumPy reads without
# sciml.

# %%
blocks = sorted(store.glob("block_*.npz"))
on_disk = np.full(96 * 96, np.nan)
for path in blocks:
    with np.load(path) as block:
        on_disk[block["members"]] = block["values"]
print(f"on disk: {np.count_nonzero(~np.isnan(on_disk))} members in {len(blocks)} blocks")

# %% [markdown]
# ## Resume
#
# Make the same call again. It reads the existing blocks and computes the others, here on two devices.

# %%
sys.path.insert(0, str(folder))
import pendulums

result = pendulums.sweep(store)
print(f"resumed on {len(jax.devices())} devices: {result.summary()}")

# %% Figure
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
shown = {"When it was killed": on_disk.reshape(96, 96), "Resumed": result.on_grid()}
for ax, (title, values) in zip(axes, shown.items()):
    options = dict(origin="lower", extent=(-3, 3, -3, 3), vmin=0, vmax=15)
    image = ax.imshow(values.T, cmap="viridis", **options)
    ax.set(xlabel="first angle")
    ax.set_title(title, loc="left", fontsize="medium")
axes[0].set_ylabel("second angle")
figure.colorbar(image, ax=axes, label="time of the first flip (15: none)")
figure.savefig(OUT / "killed_sweep.png", dpi=120)

# %% [markdown]
# ![Results on disk when the process was killed, and all results after resuming](figures/killed_sweep.png)
#
# Compare it with a sweep that was not interrupted:

# %%
undisturbed = pendulums.sweep()
same = result.values.tobytes() == undisturbed.values.tobytes()
print(f"the same bits as a sweep that nobody killed: {same}")

# %% [markdown]
# The bits are the same on any number of devices, because a block always has the same number of members and runs in the
# same single-device program.
#
# ## Checks of the store
#
# `manifest.json` contains a fingerprint of everything that the results depend on: the members, the function with its
# solver, shared values, the key, the size and order of the blocks, dtypes, and the versions of JAX and sciml. A sweep that
# differs in any of these raises an error that names the difference, and the store stays unchanged. Here the saved number
# is another one:

# %%
try:
    pendulums.sweep(store, output=lambda sol: sol.ys[-1, 0])
except sciml.stores.StoreError as error:
    print(error)

# %% [markdown]
# The function is compared by its traced program: a comment or a new variable name does not matter, another tolerance
# does.
#
# ## Next steps
#
# - Job arrays, Dask, failed members and retries: [parameter sweeps](../guides/sweeps_and_scale.md).
# - One long run instead of many members: [resume a killed run](killed_and_resumed.md).
# - Ensembles in one batch: [ensembles and batching](../guides/ensembles.md).
