# %% [markdown]
# # From a notebook to a cluster
#
# A study starts with one run in a notebook, grows to a hundred, and then to a million in a queue (SLURM). The model
# does not change; only the caller does: `vmap`, then `sweep`, then one job per part of the sweep. This lesson takes
# all the steps on one machine.
#
# ## 1. One run
#
# The question is when a damped pendulum with a constant torque rotates continuously. The model returns the number of
# turns after some time:

# %%
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import parallel


def pendulum(t, y, args):
    return jnp.stack([y[1], -jnp.sin(y[0]) - 0.1 * y[1] + args])


def turns(push):
    y0 = jnp.array([0.0, 0.0])
    sol = sciml.solve(pendulum, y0, t0=0.0, t1=40.0, rtol=1e-4, atol=1e-5, args=push, throw=False)
    return sol.ys[-1, 0] / (2 * jnp.pi)


print("one:", jax.jit(turns)(0.9))

# %% [markdown]
# ## 2. A thousand runs in the notebook

# %%
pushes = jnp.linspace(0.0, 1.5, 1024)
many = jax.jit(jax.vmap(turns))(pushes)
print("many:", many.shape, "turns from", float(many.min()), "to", float(many.max()))

# %% [markdown]
# ## 3. A sweep: blocks, progress bar, files
#
# `sweep` runs the same function in blocks of a fixed number of members on all devices of the machine, and writes
# every block to disk. If it is killed, the same call resumes it:

# %%
with tempfile.TemporaryDirectory() as folder:
    result = parallel.sweep(turns, pushes, block=128, store=f"{folder}/store", progress=False)
    again = parallel.sweep(
        turns, pushes, block=128, store=f"{folder}/store", progress=False
    )  # reads, computes nothing
    print(result.summary())
    here = np.asarray(again.values)

# %% [markdown]
# ## 4. A script for the queue
#
# The queue runs a file that defines the sweep. Its function `sweep()` returns the arguments:

# %%
SPEC = textwrap.dedent(
    """
    import jax.numpy as jnp
    import sciml

    def pendulum(t, y, args):
        return jnp.stack([y[1], -jnp.sin(y[0]) - 0.1 * y[1] + args])

    def turns(push):
        y0 = jnp.array([0.0, 0.0])
        sol = sciml.solve(pendulum, y0, t0=0.0, t1=40.0, rtol=1e-4, atol=1e-5, args=push, throw=False)
        return sol.ys[-1, 0] / (2 * jnp.pi)

    def sweep():
        return dict(fn=turns, params=jnp.linspace(0.0, 1.5, 1024), block=128, store="store", progress=False)
    """
)

# %% [markdown]
# ## 5. SLURM jobs
#
# Each job of a SLURM array runs its share of the blocks. Jobs do not communicate, so any of them can start late, be
# killed, or run on another machine:
#
# ```bash
# #!/bin/bash
# #SBATCH --array=0-1
# #SBATCH --gres=gpu:1
# #SBATCH --time=02:00:00
# #SBATCH --requeue
# python -m sciml.parallel run spec.py --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
# ```
#
# Here two processes act as the jobs, and a third call collects the results from the folder:

# %%
folder = tempfile.TemporaryDirectory()
spec = pathlib.Path(folder.name) / "spec.py"
spec.write_text(SPEC)
command = [sys.executable, "-m", "sciml.parallel", "run", "spec.py"]
environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
options = dict(cwd=folder.name, env=environment, check=True, capture_output=True, text=True)
for shard in ("0/2", "1/2"):
    subprocess.run([*command, "--shard", shard], **options)
    blocks = len(list((pathlib.Path(folder.name) / "store").glob("*.npz")))
    print(f"after shard {shard}: {blocks} files of blocks")
print(subprocess.run(command, **options).stdout.strip())

# %% [markdown]
# In the notebook, the same call reads the store without computing anything:

# %%
loading = importlib.util.spec_from_file_location("spec", spec)
module = importlib.util.module_from_spec(loading)
loading.loader.exec_module(module)
collected = parallel.sweep(**{**module.sweep(), "store": f"{folder.name}/store"})
error = float(np.max(np.abs(np.asarray(collected.values) - here)))
print(f"{len(collected.values)} members, largest difference from the notebook {error:.1e}")
folder.cleanup()

# %% [markdown]
# ## If one member is too large for a machine
#
# Then the processes must communicate in every step: see [several processes](processes.md). In all other cases
# independent jobs are more robust. With Dask, submitit or MPI, pass `executor=` instead of shards
# ([clusters](../guides/sweeps_and_scale.md#clusters-executors-dask-and-slurm)).
#
# ## Exercise
#
# Which of these may change between two jobs of one sweep without changing the result: the number of devices, the
# version of jaxlib, `block`, the order of the jobs?

# %% Answer
# Number of devices and order: yes, because the unit of work is a block of a fixed number of members. The others are
# part of the fingerprint of the sweep, and the store raises an error. Try `block`:
with tempfile.TemporaryDirectory() as other:
    parallel.sweep(turns, pushes[:64], block=32, store=f"{other}/store", progress=False)
    try:
        parallel.sweep(turns, pushes[:64], block=16, store=f"{other}/store", progress=False)
    except sciml.stores.StoreError as refused:
        print(str(refused).replace(other, "..."))
    else:
        raise AssertionError("blocks of another size in one store")

# %% [markdown]
# ## Use in sciml
#
# [Parameter sweeps](../guides/sweeps_and_scale.md) describes sampling, reductions without storing members, and failed
# members. The tutorial [resuming a killed sweep](../tutorials/killed_sweep.md) kills one.

# %%
assert len(collected.values) == 1024 and error < 1e-12  # the same bits
print(f"figure of merit: {error:.1e} < 1e-12 (1024 members by two jobs, and in the notebook)")
