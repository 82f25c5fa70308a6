"""A field on eight devices and in two processes: a wave behind a lens.

Run it with `python docs/tutorials/split_field.py`: it takes less than a minute and writes a figure into the folder
`--out`. The devices are parts of the CPU of this machine. This demonstrates the code, the memory and the messages,
but not the speed.
"""

import argparse
import collections
import os
import pathlib
import socket
import subprocess
import sys
import zlib

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import parallel
from sciml.spatial import Boundaries, Dirichlet, Grid

GRID = Grid((128, 128))
STEPS = 150
COURANT = 0.5  # of a wave of speed one: c dt / h


def lens() -> np.ndarray:
    """The speed of the waves: lower within a disc."""
    x, y = (np.asarray(a) for a in GRID.centers)
    return np.asarray(1.0 - 0.4 * ((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.03), np.float32)


def pulse() -> np.ndarray:
    """A ring around a point on the left."""
    x, y = (np.asarray(a) for a in GRID.centers)
    r = np.sqrt((x - 0.2) ** 2 + (y - 0.5) ** 2)
    return np.asarray(np.exp(-((r / 0.04) ** 2)), np.float32)


def make_domain(**axes: int) -> parallel.Domain:
    """Fields on the grid, zero at the walls, over a mesh of these sizes."""
    count = int(np.prod(list(axes.values())))
    mesh = parallel.mesh(member=1, devices=jax.devices()[:count], **axes)
    return parallel.Domain(("x", "y"), boundary=Boundaries(GRID, Dirichlet(0.0)), mesh=mesh)


def wave(domain: parallel.Domain, steps: int = STEPS):
    """Leapfrog steps of the wave equation, as a function of the start and of the speed, both fields."""

    def run(fields):
        start, speed = fields
        factor = (COURANT * speed) ** 2

        def step(_, state):
            before, now = state
            p = domain.pad(now, 1)
            laplacian = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * now
            return now, 2 * now - before + factor * laplacian

        _, end = jax.lax.fori_loop(0, steps, step, (start, start))
        return end, domain.norm(end)

    return run


def loudness(domain: parallel.Domain):
    """The signal in a patch on the right, as a function of the speed."""
    x, y = (np.asarray(a) for a in GRID.centers)
    patch = np.asarray(((x - 0.8) ** 2 + (y - 0.5) ** 2 < 0.01), np.float32)
    start = pulse()

    def measured(speed):
        def run(fields):
            start, speed, patch = fields
            end, _ = wave(domain)((start, speed))
            return domain.sum((patch * end) ** 2)

        return domain.run(run, (start, speed, patch))

    return measured


def one_and_eight() -> tuple[np.ndarray, np.ndarray]:
    """The same function on one device and on eight, with the same bits; and the gradient with respect to the speed."""
    eight = make_domain(x=4, y=2)
    fields = pulse(), lens()
    end, norm = jax.jit(wave(eight))(tuple(map(jnp.asarray, fields)))  # called plainly: one device
    split, split_norm = eight.run(wave(eight), eight.split(fields))
    print(f"one device: norm {float(norm):.6f}; eight devices: norm {float(split_norm):.6f}")
    print(f"the fields have the same bits: {np.array_equal(end, eight.gather(split))}")
    print(f"each device holds {split.addressable_shards[0].data.shape} of {split.shape}")
    gradient = eight.gather(jax.jit(jax.grad(loudness(eight)))(eight.split(lens())))
    return np.asarray(end), gradient


def messages_and_memory() -> None:
    """The messages of a step, and the memory of a device, for more and more devices."""
    field = jax.ShapeDtypeStruct(GRID.shape, jnp.float32)
    for axes in ({"x": 1, "y": 1}, {"x": 2, "y": 1}, {"x": 2, "y": 2}, {"x": 4, "y": 2}):
        domain = make_domain(**axes)
        place = jax.sharding.NamedSharding(domain.mesh, jax.sharding.PartitionSpec("x", "y"))
        placed = jax.ShapeDtypeStruct(field.shape, field.dtype, sharding=place)

        def step(fields, domain=domain):
            return domain.run(lambda fields: wave(domain, 1)(fields)[0], fields)

        sent = collections.Counter(
            c.kind for c in sciml.inspect.collectives(step, (placed, placed))
        )
        kib = sciml.inspect.memory(step, (placed, placed)).total / 1024
        print(
            f"{np.prod(list(axes.values()))} devices: {kib:6.1f} KiB on each, a step sends {dict(sent)}"
        )


def as_process(number: int, count: int, address: str) -> None:
    """The program of each process: it joins the others, and computes its part of the field."""
    jax.config.update("jax_num_cpu_devices", 4)
    parallel.initialize(address, count, number)
    domain = make_domain(x=4, y=2)
    end, norm = domain.run(wave(domain), domain.split((pulse(), lens())))
    whole = domain.gather(end)
    print(
        f"process {jax.process_index()} of {jax.process_count()}: {len(jax.local_devices())} of {jax.device_count()} "
        f"devices, norm {float(norm):.6f}, checksum {zlib.crc32(whole.tobytes()):08x}"
    )


def two_processes(expected: np.ndarray) -> None:
    """Starts this script twice, as the two processes of a job."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    command = [sys.executable, __file__, "--address", address, "--process"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen([*command, str(i)], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    for process in started:
        printed = process.communicate(timeout=120)[0]
        print(*(line for line in printed.splitlines() if line.startswith("process")))
    print(
        f"one process alone:                             checksum {zlib.crc32(expected.tobytes()):08x}"
    )


def draw(end: np.ndarray, gradient: np.ndarray, path: pathlib.Path) -> None:
    """The wave with the blocks of the devices, and the sensitivity to the speed."""
    import matplotlib

    matplotlib.use("Agg")  # figures go to files; no screen is needed
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    titles = "the wave, on 4 x 2 devices", "gradient of what arrives, by the speed"
    for at, field, title in zip(axes, (end, gradient), titles):
        top = np.quantile(np.abs(field), 0.995)
        at.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), cmap="RdBu_r", vmin=-top, vmax=top)
        at.add_patch(
            plt.Circle((0.5, 0.5), np.sqrt(0.03), fill=False, color="black", linewidth=0.8)
        )
        at.set_title(title, loc="left", fontsize="medium")
        at.set_xlabel("x")
        at.set_ylabel("y")
    for x in (0.25, 0.5, 0.75):
        axes[0].axvline(x, color="gray", linewidth=0.6)
    axes[0].axhline(0.5, color="gray", linewidth=0.6)
    axes[1].add_patch(
        plt.Circle((0.8, 0.5), 0.1, fill=False, color="black", linestyle=":", linewidth=0.8)
    )
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    """Runs all parts, or one process of the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/split_field"))
    parser.add_argument("--process", type=int, help="run as one of the two processes")
    parser.add_argument("--address", help="where process 0 listens")
    given = parser.parse_args()
    if given.process is not None:
        as_process(given.process, 2, given.address)
        return
    jax.config.update("jax_num_cpu_devices", 8)
    given.out.mkdir(parents=True, exist_ok=True)
    end, gradient = one_and_eight()
    messages_and_memory()
    two_processes(end)
    draw(end, gradient, given.out / "split_field.png")


if __name__ == "__main__":
    main()
