# %% [markdown]
# # Several processes (multi-host JAX)
#
# A cluster consists of many machines, each with a separate Python process. JAX joins them: after one call at the
# start, `jax.devices()` lists the devices of all processes, an array can span all of them, and the *same* program
# runs in each process. The main difference is input and output, because no process holds a whole array.
#
# ## A multi-process program
#
# This starts two processes on one machine, with four devices each. The queue of a cluster would start them for you.

# %%
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import textwrap

PROGRAM = textwrap.dedent(
    """
    import sys

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    import sciml

    me, count, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    jax.config.update("jax_num_cpu_devices", 8 // count)
    sciml.parallel.initialize(address, count, me)  # under SLURM: no arguments
    print(f"process {jax.process_index()}: {len(jax.local_devices())} of {jax.device_count()} devices")

    # 1. Input: every process provides its part of one array.
    mesh = jax.make_mesh((8,), ("members",), axis_types=(AxisType.Auto,))
    place = NamedSharding(mesh, P("members"))
    rows = 64 // count
    mine = np.linspace(0.1, 2.0, 64, dtype=np.float32)[me * rows : (me + 1) * rows]
    angles = jax.make_array_from_process_local_data(place, mine)
    print(f"process {me}: {mine.size} of {angles.size} members; whole array here: {angles.is_fully_addressable}")

    # 2. The program is the same in all processes.
    pendulum = sciml.models.Pendulum()

    @jax.jit
    def run(angles):
        solve = lambda a: sciml.solve(pendulum, jnp.stack([a, 0 * a]), t0=0.0, t1=2.0, dt=0.02).ys[-1]
        ends = jax.vmap(solve)(angles)
        return ends, jnp.mean(ends[:, 0])

    ends, mean = run(angles)

    # 3. Output: the shards of this process, or a number that is the same in all processes.
    local = np.concatenate([np.asarray(shard.data) for shard in ends.addressable_shards])
    print(f"process {me}: {local.shape} of {ends.shape}, mean over all {float(mean):.6f}")
    try:
        np.asarray(ends)
    except RuntimeError as error:
        print(f"process {me}: {str(error)[:66]}...")
    """
)


def job(count):
    """Starts the processes of a job, and returns their output."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()} | {
        "JAX_PLATFORMS": "cpu"
    }
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "job.py"
        script.write_text(PROGRAM)
        options = dict(env=environment, stdout=subprocess.PIPE, text=True)
        command = [sys.executable, str(script)]
        started = [
            subprocess.Popen([*command, str(i), str(count), address], **options)
            for i in range(count)
        ]
        try:
            printed = [process.communicate(timeout=120)[0] for process in started]
        finally:
            for process in started:
                process.kill()
    return "".join(
        line + "\n" for text in printed for line in text.splitlines() if line.startswith("process")
    )


together = job(2)
print(together)

# %% [markdown]
# Note three things. `angles` is one array of 64 members; each process holds 32 and cannot print the others:
# `is_fully_addressable` is False, and the last lines show the error. The mean is a number of which both processes
# have a copy. The middle part of the program does not depend on the number of processes.
#
# ## The same program in one process

# %%
alone = job(1)
print(alone)
means = [float(text) for text in re.findall(r"mean over all ([-\d.]+)", together + alone)]

# %% [markdown]
# ## Rules for multi-process programs
#
# - **Same program, same order.** If one process does not reach a collective, the others wait forever. Never branch on
#   `process_index()` around a computation on shared arrays, only around printing and writing.
# - **Failures spread.** If one process dies, the others end. Run independent members in processes that are *not*
#   joined.
# - **Randomness** comes from keys, so it is the same in every process: [random keys](keys.md).
# - **Files**: let each process write its own shards, or let process 0 write small results.
#
# ## Exercise
#
# In which of these cases would the program hang, and in which would it crash? (a) `if me == 0: print(float(mean))`,
# (b) `if me == 0: print(run(angles)[1])`, (c) `np.asarray(ends)`.

# %% Answer
# (a) works: `mean` is on every process. (b) hangs: process 1 does not join the sum. (c) raises a RuntimeError in
# every process, as above: the array spans devices that this process cannot read. With one process it would have
# worked.
assert together.count("spans non-addressable") == 2 and "spans" not in alone

# %% [markdown]
# ## Use in sciml
#
# `sciml.parallel.initialize` calls JAX's function, and does nothing if there is nothing to join, so one script runs
# alone and on a cluster. `Domain.split` and `gather` handle input and output of fields, and `simulate` writes frames
# of a state that spans processes ([domain decomposition](../guides/domains.md#several-processes)). Sweeps do not need
# joined processes: [from a notebook to a cluster](to_a_cluster.md).

# %%
spread = max(means) - min(means)
assert len(means) == 3 and spread < 1e-5
print(f"figure of merit: {spread:.1e} < 1e-05 (the mean in two joined processes, and in one)")
