"""What splitting a field costs by itself: equal total work on one device, on eight, and in processes that never talk.

The eight devices share this machine's cores, so nothing can be gained beyond what independent processes
gain: that ceiling is measured beside. Each row runs in processes of its own, because the number of CPU
devices is fixed when a process starts. What a device needs of memory, by the compiler's plan, stands below.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ._harness import Candidate, Group, Measured, report
from ._workers import in_processes

SIZE, STEPS = 512, 200


def _heat(p: Any) -> Any:
    return p[1:-1, 1:-1] + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * p[1:-1, 1:-1])


def _worker(devices: int, rows: int, steps_per_exchange: int) -> None:
    """Compiles, then runs once for every line that comes in."""
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    import jax.numpy as jnp

    from sciml import parallel

    axes = {1: (1, 1), 8: (4, 2)}[devices]
    domain = parallel.Domain(("x", "y"), mesh=parallel.mesh(member=1, x=axes[0], y=axes[1]))

    step = domain.map(_heat, steps_per_exchange=steps_per_exchange)

    def run(u: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, STEPS // steps_per_exchange, lambda _, u: step(u), u)

    u = domain.split(jnp.zeros((rows, SIZE), jnp.float32).at[rows // 2, SIZE // 2].set(1.0))
    compiled = jax.jit(run if devices == 1 else lambda u: domain.run(run, u)).lower(u).compile()
    print("ready", flush=True)
    for _ in sys.stdin:
        jax.block_until_ready(compiled(u))
        print("done", flush=True)


def _processes(count: int, devices: int, rows: int, steps_per_exchange: int = 1) -> Callable[[], Callable[[], Any]]:
    return in_processes("benchmarks.domain", devices, rows, steps_per_exchange, count=count)


def groups() -> list[Group]:
    one = f"one device, {SIZE} x {SIZE}"
    rows = [
        Candidate(one, _processes(1, 1, SIZE)),
        Candidate("8 devices, 4 x 2", _processes(1, 8, SIZE), one),
        Candidate("8 devices, 5 steps per exchange", _processes(1, 8, SIZE, 5), one),
        *(
            Candidate(f"{k} processes that never talk, {SIZE // k} x {SIZE} each", _processes(k, 1, SIZE // k), one)
            for k in (2, 4)
        ),
    ]
    title = f"Diffusion on {SIZE} x {SIZE} cells, {STEPS} steps, float32: equal total work"
    return [Group(title, rows, finish=_report_memory)]


def _memory(devices: int) -> None:
    """Prints the bytes that a step of the whole field needs on one of so many devices, and those of its gradient."""
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    import jax.numpy as jnp

    from sciml import inspect, parallel

    domain = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=devices))
    u = domain.split(jnp.zeros((SIZE, SIZE), jnp.float32))

    def run(u: jax.Array) -> jax.Array:
        return domain.run(lambda u: jax.lax.scan(lambda u, _: (domain.map(_heat)(u), None), u, length=16)[0], u)

    gradient = jax.grad(lambda u: jnp.sum(run(u) ** 2))
    print(inspect.memory(run, u).total, inspect.memory(gradient, u).total)


def _report_memory(measured: list[Measured]) -> None:
    del measured
    lines = [
        "| devices | 16 steps, each device | times devices | their gradient | times devices |",
        "|---" * 5 + "|",
    ]
    for devices in (1, 2, 4, 8):
        command = [sys.executable, "-m", "benchmarks.domain", "memory", str(devices)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        cells = [str(devices)]
        for needed in map(int, found):
            cells += [f"{needed / 2**20:.3f} MiB", f"{needed * devices / 2**20:.2f} MiB"]
        lines.append("| " + " | ".join(cells) + " |")
    report("\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        _memory(int(sys.argv[2]))
    else:
        _worker(*map(int, sys.argv[1:]))
