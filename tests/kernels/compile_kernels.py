"""Compiles the kernels for a GPU (sm_90a) and a TPU (v5e) on a machine that has neither: `make kernels`.

For the TPU it needs libtpu, for the GPU JAX's CUDA plugin with NVIDIA's compilers; all are Python packages, the extra
`kernels`. What is missing is said, and is an error. What `ptxas` says of registers is checked: no spills, and no more
registers than the ceilings below.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

CEILING = 64
"""Registers for each thread of a stencil kernel; 65536 / 128 / 64 leaves space for eight blocks."""

CEILING_3D = 192
"""Those of a kernel that keeps tiles of several planes in registers; it leaves space for two blocks."""

CEILING_OF_VOLUMES = 255
"""Those of a kernel of finite volumes, which has the states and waves at a face in registers: as many as there are."""

CEILING_OF_ENSEMBLES = 112
"""The same for a kernel of an ensemble, which has a member's state and stages in registers."""

CEILING_OF_COLUMNS = 160
"""The same where the columns of a Jacobian are in registers, too; it leaves space for three blocks."""

# The numbers of an H200 that the compiler asks for, from NVIDIA's data sheet.
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 151397597184
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""


def cases() -> dict:
    """Each update with its state's shape, parameters and steps for each pass."""
    from .stencil.stencil_cases import PEARSON, acoustic, boundaries, gray_scott, heat

    line, shape, box = (100_000,), (1024, 1024), (64, 64, 128)
    return {
        "heat in 1-D, 8 steps": (heat(1), line, 0.1, 8),
        "acoustic in 1-D, walls": (acoustic(1, 2, boundaries("walls", line)), line, 0.1, 4),
        "heat, 1 step": (heat(2), shape, 0.1, 1),
        "heat, 4 steps": (heat(2), shape, 0.1, 4),
        "heat, 8 steps": (heat(2), shape, 0.1, 8),
        "heat, walls": (heat(2, 1, boundaries("walls", shape)), shape, 0.1, 4),
        "Gray-Scott, 4 steps": (gray_scott(), shape, PEARSON, 4),
        "acoustic, radius 4": (acoustic(2, 4), shape, 0.1, 1),
        "heat in 3-D, 1 step": (heat(3), box, 0.1, 1),
        "heat in 3-D, 2 steps": (heat(3), box, 0.1, 2),
        "Gray-Scott in 3-D, walls": (gray_scott(3, boundaries("walls", box)), box, PEARSON, 2),
        "acoustic in 3-D, radius 4": (acoustic(3, 4), box, 0.1, 1),
    }


def volumes() -> dict:
    """Each conservation law with the shape of its fields."""
    from sciml.models import Euler, InviscidBurgers, ShallowWater
    from sciml.spatial import WENO5, WENO5Z, Grid, Muscl, Outflow, Periodic, Reflecting

    line, plane, box = Grid(10_000), Grid((512, 512)), Grid((64, 64, 128))
    return {
        "volumes, Burgers in 1-D": (InviscidBurgers(line, Outflow()), (10_000,)),
        "volumes, Euler in 1-D, WENO5": (Euler(line, Outflow(), reconstruction=WENO5()), (3, 10_000)),
        "volumes, Euler, Muscl": (Euler(plane, Periodic(), reconstruction=Muscl(), limiter=None), (4, 512, 512)),
        "volumes, Euler, WENO5Z": (Euler(plane, Reflecting(), reconstruction=WENO5Z(), limiter=None), (4, 512, 512)),
        "volumes, Euler, WENO5Z, positive": (Euler(plane, Outflow(), reconstruction=WENO5Z()), (4, 512, 512)),
        "volumes, shallow water": (ShallowWater(plane, Reflecting()), (3, 512, 512)),
        "volumes, Euler in 3-D, Muscl": (Euler(box, Periodic(), limiter=None), (5, *box.shape)),
        "volumes, Euler in 3-D, WENO5Z": (
            Euler(box, Periodic(), reconstruction=WENO5Z(), limiter=None),
            (5, *box.shape),
        ),
    }


def ensembles() -> dict:
    """Each ensemble as a function of parameters, `(members, 3)`."""
    import diffrax
    import jax
    import jax.numpy as jnp

    import sciml

    def lorenz(t, y, p):
        return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])

    def robertson(t, y, k):
        slow, fast, rest = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
        return jnp.stack([-slow + fast, slow - fast - rest, rest])

    def run(model, **how):
        def member(p):
            return sciml.solve(model, jnp.asarray([1.0, 0.0, 0.0], p.dtype), t0=0.0, t1=1.0, args=p, **how)

        return jax.vmap(member)

    def noisy(solver):
        """A thousand steps with noise that belongs to a member's number."""
        model = sciml.Stochastic(lorenz, lambda t, y, p: jnp.full_like(y, 0.3), noise="additive")

        def member(number, p):
            key, y0 = jax.random.fold_in(jax.random.key(0), number), jnp.asarray([1.0, 0.0, 0.0], p.dtype)
            return sciml.solve(model, y0, t0=0.0, t1=1.0, dt=1e-3, args=p, key=key, solver=solver)

        return lambda p: jax.vmap(member)(jnp.arange(p.shape[0]), p)

    def slopes(p):
        """The derivatives of the summed end states, by three columns beside the state."""
        solve = run(lorenz, adjoint=sciml.adjoints.Forward(), **within)
        return jax.grad(lambda p: jnp.sum(solve(p).ys))(p)

    within = dict(rtol=1e-5, atol=1e-6)
    stiff = dict(solver=sciml.solvers.Rodas5P(), rtol=1e-4, atol=1e-6)
    return {
        "ensemble, Tsit5": run(lorenz, **within),
        "ensemble, Tsit5, 100 saved times": run(lorenz, saveat=jnp.linspace(0.0, 1.0, 100), **within),
        "ensemble, 1000 fixed steps": run(lorenz, dt=1e-3),
        "ensemble, Tsit5, 3 columns": slopes,
        "ensemble, Euler-Maruyama": noisy(diffrax.Euler()),
        "ensemble, SRA1": noisy(diffrax.SRA1()),
        "ensemble, Rosenbrock23": run(robertson, **(stiff | {"solver": sciml.solvers.Rosenbrock23()})),
        "ensemble, Rodas5P": run(robertson, **stiff),
    }


def compile_all(kernel: str, only: str) -> None:
    """Compiles every case of whose name `only` is a part for a topology without devices; prints JSON for each."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from sciml.kernels._backends import KernelRequest
    from sciml.kernels.stencil import evolve

    if kernel == "tpu":
        topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    else:
        topology = topologies.get_topology_desc(
            platform="cuda", topology_name="h200", topology="1x1x1", target_config=H200
        )
    sharding = NamedSharding(Mesh(np.array(topology.devices[:1]), ("d",)), PartitionSpec())

    def compile_one(name: str, run, *shapes) -> None:
        if only in name:
            compiled(name, kernel, run, *shapes)

    for name, (update, shape, params, k) in cases().items():
        u = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
        state, rest = (u,) * len(update.fields), {c: u for c in update.coefficients}

        def run(state, rest, update=update, params=params, k=k):
            return evolve(update, state, k, params, coefficients=rest, steps_per_pass=k)

        compile_one(name, run, state, rest)
    for name, (law, shape) in volumes().items():
        y = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

        def rates(y, law=law):
            return law.with_kernel(y, KernelRequest(f"mosaic_{kernel}"))(0.0, y, None)

        compile_one(name, rates, y)
    members = jax.ShapeDtypeStruct((10000, 3), jnp.float32, sharding=sharding)
    for name, run in ensembles().items():
        compile_one(name, run, members)


def compiled(name: str, kernel: str, run, *shapes) -> None:
    """Compiles one case by a kernel and prints a line of JSON."""
    import jax

    from .running import running

    start = time.perf_counter()
    print(f"CASE {name}", flush=True)
    with running(f"mosaic_{kernel}"):
        jax.jit(run).trace(*shapes).lower().compile()
    print("DONE " + json.dumps({"case": name, "seconds": time.perf_counter() - start}), flush=True)


def child(kernel: str, only: str) -> subprocess.CompletedProcess:
    """Runs `compile_all` in a process of its own, with the environment that the compiler needs."""
    env = dict(os.environ, JAX_PLATFORMS="cpu", JAX_ENABLE_COMPILATION_CACHE="false")
    if kernel == "tpu":
        env |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_LOG_DIR": "disabled"}
    else:
        import nvidia

        root = pathlib.Path(next(iter(nvidia.__path__))) / "cu13"
        env |= {
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={root}",
            "PATH": f"{root / 'bin'}:{env['PATH']}",
            "CUDA_ROOT": str(root),
            "CUDA_HOME": str(root),
            "MOSAIC_GPU_DUMP_PTX": "1",
        }
    command = [sys.executable, "-m", "tests.kernels.compile_kernels", "--child", kernel, "--only", only]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def registers(text: str, ptxas: pathlib.Path) -> list[tuple[int, int]]:
    """Returns registers and spilled bytes of each entry of the PTX in a text, by `ptxas -v`."""
    found = []
    for module in re.findall(r"^\s*\.version.*?(?=^\s*\.version|^CASE|^DONE|\Z)", text, re.MULTILINE | re.DOTALL):
        module = module[: module.rindex("}") + 1]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "kernel.ptx"
            source.write_text(module)
            said = subprocess.run(
                [ptxas, "-v", "-arch=sm_90a", source, "-o", pathlib.Path(folder) / "kernel.cubin"],
                capture_output=True,
                text=True,
                check=True,
            ).stderr
        used = [int(n) for n in re.findall(r"Used (\d+) registers", said)]
        spilled = [int(n) for n in re.findall(r"(\d+) bytes spill", said)]
        found.append((max(used), sum(spilled)))
    return found


def missing(kernel: str) -> str | None:
    """Returns which package is missing, or None."""
    import importlib.util

    needed = {"tpu": ["libtpu"], "gpu": ["jax_plugins.xla_cuda13", "nvidia.cu13"]}[kernel]
    for name in needed:
        try:
            there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            return f"{name} is not installed: `pip install -e .[kernels]`"
    return None


def check(kernel: str, only: str) -> bool:
    """Compiles for one kind of machine and prints what came out; returns whether all is well."""
    if said := missing(kernel):
        print(f"{kernel}: {said}")
        return False
    done = child(kernel, only)
    well = done.returncode == 0
    parts = re.split(r"^CASE (.*)$", done.stdout + "\n" + ("" if kernel == "tpu" else done.stderr), flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2]):
        seconds = re.search(r'"seconds": ([\d.]+)', text)
        line = f"{kernel}: {name}: " + (f"compiled in {float(seconds[1]):.1f} s" if seconds else "FAILED")
        if kernel == "gpu" and seconds:
            import nvidia

            ptxas = pathlib.Path(next(iter(nvidia.__path__))) / "cu13" / "bin" / "ptxas"
            kernels = registers(text, ptxas)
            ceiling = CEILING_3D if "3-D" in name else CEILING
            ceiling = CEILING_OF_ENSEMBLES if name.startswith("ensemble") else ceiling
            ceiling = CEILING_OF_COLUMNS if "columns" in name else ceiling
            ceiling = CEILING_OF_VOLUMES if name.startswith("volumes") else ceiling
            for used, spilled in kernels:
                line += f", {used} registers, {spilled} bytes spilled"
                well = well and used <= ceiling and spilled == 0
            if not kernels:
                line += ", no PTX seen"
                well = False
        print(line)
    if done.returncode:
        print(done.stderr[-3000:])
    return well


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", choices=["gpu", "tpu"], help=argparse.SUPPRESS)
    parser.add_argument("kernels", nargs="*", default=["tpu", "gpu"], help="which to compile: tpu, gpu")
    parser.add_argument("--only", default="", help="compile what has this in its name")
    options = parser.parse_args()
    if options.child:
        compile_all(options.child, options.only)
    else:
        sys.exit(0 if all([check(kernel, options.only) for kernel in options.kernels]) else 1)
