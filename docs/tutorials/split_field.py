# %% [markdown]
# # A field on eight devices: domain decomposition
#
# A circular wave starts on the left of a square and passes a disc in which waves are slower. This tutorial computes it on
# one device, on eight devices, and in two joined processes. You will learn to
#
# - write a step of a field once, for any number of devices ([domain decomposition](../guides/domains.md));
# - differentiate through the exchange of ghost cells (halo exchange);
# - print the messages and the memory of a step;
# - run the same program in several processes, as on a cluster.
#
# The devices are parts of the CPU of this machine. This demonstrates the code, the memory, the messages and the
# correctness, but not the speed.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/split_field"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## One function for all devices
#
# The processes at the end need the same program, so write it into a file. `wave` returns a function of the initial field
# and the speed of waves, which takes leapfrog steps. Only one line knows about devices: `domain.pad` adds a ghost cell on
# every side.

# %%
import collections
import socket
import subprocess
import sys
import tempfile
import zlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml

jax.config.update("jax_num_cpu_devices", 8)

PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np
from sciml import parallel
from sciml.spatial import Boundaries, Dirichlet, Grid

GRID = Grid((128, 128))
x, y = (np.asarray(a) for a in GRID.centers)
PULSE = np.asarray(np.exp(-((x - 0.2) ** 2 + (y - 0.5) ** 2) / 0.04**2), np.float32)
SPEED = np.asarray(1.0 - 0.4 * ((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.03), np.float32)


def make_domain(x, y):
    mesh = parallel.mesh(member=1, x=x, y=y, devices=jax.devices()[: x * y])
    return parallel.Domain(("x", "y"), boundary=Boundaries(GRID, Dirichlet(0.0)), mesh=mesh)


def wave(domain, steps=150):
    def run(fields):
        start, speed = fields
        factor = (0.5 * speed) ** 2  # the Courant number is 0.5 where the speed is 1

        def step(_, state):
            before, now = state
            p = domain.pad(now, 1)
            laplacian = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * now
            return now, 2 * now - before + factor * laplacian

        _, end = jax.lax.fori_loop(0, steps, step, (start, start))
        return end, domain.norm(end)

    return run
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "waves.py").write_text(PROGRAM)
sys.path.insert(0, str(folder))
from waves import GRID, PULSE, SPEED, make_domain, wave

# %% [markdown]
# Called as a plain function, `pad` adds ghost cells around the whole field, and one device computes everything.
# `domain.run` calls the same function on every device with its block, and `pad` fetches the ghost cells from the
# neighbours. `domain.split` and `domain.gather` distribute a field and collect it.

# %%
domain = make_domain(x=4, y=2)
whole, norm = jax.jit(wave(domain))((jnp.asarray(PULSE), jnp.asarray(SPEED)))
split, split_norm = domain.run(wave(domain), domain.split((PULSE, SPEED)))
print(f"one device: norm {norm:.6f}; eight devices: norm {split_norm:.6f}")
print(f"each device holds {split.addressable_shards[0].data.shape} of {split.shape}")
print(f"the fields have the same bits: {np.array_equal(whole, domain.gather(split))}")

# %% [markdown]
# The norm is a sum over devices, so its last digits can depend on the number of devices. The fields do not.
#
# ## The gradient
#
# The signal in a circle on the right is one number, and its gradient with respect to the speed is a field. The backward
# pass reverses the steps and sends the cotangents of ghost cells back to the neighbours.

# %%
x, y = (np.asarray(a) for a in GRID.centers)
CIRCLE = np.asarray((x - 0.8) ** 2 + (y - 0.5) ** 2 < 0.01, np.float32)


def signal(speed):
    def run(fields):
        start, speed, circle = fields
        end, _ = wave(domain)((start, speed))
        return domain.sum((circle * end) ** 2)

    return domain.run(run, (PULSE, speed, CIRCLE))


gradient = domain.gather(jax.jit(jax.grad(signal))(domain.split(SPEED)))

# %% Figure
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
titles = "the wave, on 4 x 2 devices", "gradient of the signal"
for ax, field, title in zip(axes, (whole, gradient), titles):
    top = np.quantile(np.abs(field), 0.995)
    options = dict(origin="lower", extent=(0, 1, 0, 1), vmin=-top, vmax=top)
    ax.imshow(field.T, cmap="RdBu_r", **options)
    ax.add_patch(plt.Circle((0.5, 0.5), 0.03**0.5, fill=False, color="black", linewidth=0.8))
    ax.set(xlabel="x", ylabel="y")
    ax.set_title(title, loc="left", fontsize="medium")
for line in (0.25, 0.5, 0.75):
    axes[0].axvline(line, color="gray", linewidth=0.6)
axes[0].axhline(0.5, color="gray", linewidth=0.6)
axes[1].add_patch(plt.Circle((0.8, 0.5), 0.1, fill=False, color="black", linestyle=":"))
figure.savefig(OUT / "split_field.png", dpi=120)

# %% [markdown]
# ![The wave with the blocks of eight devices; the gradient of the received signal with respect to the speed](figures/split_field.png)
#
# Left: the wave in its blocks; waves are slower in the disc. Right: the signal in the dotted circle depends most
# the dotted circle most. The fastest path to the circle passes there.
#
# ## Messages and memory
#
# `sciml.inspect.collectives` lists the messages of a compiled function, and `sciml.inspect.memory` its memory per device.
# Both only need shapes.

# %%
field = jax.ShapeDtypeStruct(GRID.shape, jnp.float32)
for across, along in ((1, 1), (2, 1), (2, 2), (4, 2)):
    parts = make_domain(x=across, y=along)
    place = jax.sharding.NamedSharding(parts.mesh, jax.sharding.PartitionSpec("x", "y"))
    placed = jax.ShapeDtypeStruct(field.shape, field.dtype, sharding=place)

    def step(fields, parts=parts):
        return parts.run(lambda fields: wave(parts, 1)(fields)[0], fields)

    kinds = collections.Counter(
        sent.kind for sent in sciml.inspect.collectives(step, (placed, placed))
    )
    kib = sciml.inspect.memory(step, (placed, placed)).total / 1024
    print(f"{across * along} devices: {kib:6.1f} KiB on each, a step sends {dict(kinds)}")

# %% [markdown]
# If both dimensions are split, a step sends four messages, one to each neighbour, each as long as the side of a block.
# The memory per device decreases with the number of devices, so a field that does not fit on one device fits on several.
#
# ## Two processes
#
# On a cluster every machine runs a process. Two lines differ from the program above: `parallel.initialize` joins the
# processes, and each one prints its part. Here it gets an address and numbers; on a cluster the call is
# `parallel.initialize()`, because environment variables identify the processes.

# %%
JOB = """
import sys, zlib
import jax
from sciml import parallel

jax.config.update("jax_num_cpu_devices", 4)
parallel.initialize(sys.argv[1], 2, int(sys.argv[2]))

from waves import PULSE, SPEED, make_domain, wave

domain = make_domain(x=4, y=2)
end, norm = domain.run(wave(domain), domain.split((PULSE, SPEED)))
here, everywhere = len(jax.local_devices()), jax.device_count()
checksum = zlib.crc32(domain.gather(end).tobytes())
print(f"process {jax.process_index()}: {here} of {everywhere} devices, checksum {checksum:08x}")
"""
(folder / "job.py").write_text(JOB)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
command = [sys.executable, folder / "job.py", address]
options = dict(env=os.environ | {"JAX_PLATFORMS": "cpu"}, stdout=subprocess.PIPE, text=True)
processes = [subprocess.Popen([*command, str(number)], **options) for number in range(2)]
for process in processes:
    printed, _ = process.communicate(timeout=120)
    print(*(line for line in printed.splitlines() if line.startswith("process")))
print(f"one process alone:            checksum {zlib.crc32(np.asarray(whole).tobytes()):08x}")

# %% [markdown]
# The two processes have four devices each, and their field has the same bits as the field of one device.
#
# ## Next steps
#
# - Boundary conditions, error control, transforms, members that span devices: [domain
#   decomposition](../guides/domains.md).
# - Members that fit on one device: [ensembles](../guides/ensembles.md).
# - The lesson [several processes](../learn/processes.md) shows input and output.
