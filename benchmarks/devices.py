"""An ensemble on eight CPU devices and on one, beside what independent processes reach on the same machine.

Devices of one CPU share its cores, so that no speed-up is to be expected beyond what independent processes show:
that is the ceiling, and it stands in the table. What the rows tell is what `shard_map` costs at equal total work.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ._harness import Candidate, Group

N = 16384

WORKER = f"""
import sys
import jax, jax.numpy as jnp
import sciml
from sciml import parallel

def end(rho):
    model = sciml.models.Lorenz63(rho=rho)
    return sciml.solve(model, jnp.ones(3), t0=0.0, t1=5.0, rtol=1e-5, atol=1e-5, throw=False).ys[-1]

rhos = jnp.linspace(0.0, 21.0, {N})
run = jax.jit(lambda rhos: parallel.ensemble(end, rhos)).lower(rhos).compile()
jax.block_until_ready(run(rhos))
for line in sys.stdin:
    jax.block_until_ready(run(rhos))
    print("done", flush=True)
"""


def served(processes: int, devices: int) -> Callable[[], Callable[[], Any]]:
    """A `build` that starts processes of so many devices; each call has each of them run the whole ensemble once."""

    def build() -> Callable[[], Any]:
        environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", WORKER]
        started = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for _ in range(processes)
        ]

        def run() -> None:
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            for process in started:
                assert process.stdout is not None
                if not process.stdout.readline():
                    raise RuntimeError("a worker has died")

        run()
        return run

    return build


def groups() -> list[Group]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    one = "one process, one device"
    rows = [Candidate(one, served(1, 1))]
    rows += [Candidate(f"one process, {count} devices", served(1, count), one) for count in (2, 8)]
    rows.append(Candidate("two processes, one device each, twice the work", served(2, 1), one))
    title = f"`ensemble`, {N} Lorenz systems to t = 5, CPU with {cores} cores: equal work, and the ceiling"
    return [Group(title, rows)]
