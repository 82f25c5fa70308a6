"""Runs a program in several processes joined by `sciml.parallel.initialize`, and collects what they say."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap

import jax

SRC = pathlib.Path(__file__).resolve().parents[2] / "src"

_HEAD = """
import json, sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", {devices})
jax.config.update("jax_enable_x64", {x64})
from sciml import parallel
ME = int(sys.argv[1])
if {count} > 1:
    parallel.initialize("127.0.0.1:{port}", {count}, ME, initialization_timeout=60, shutdown_timeout_seconds=30)
import jax.numpy as jnp
import numpy as np

def say(**values):
    print("@@" + json.dumps(values), flush=True)
"""

# What would make JAX look for a job of its own, or a proxy for an address on this machine.
_FOREIGN = ("SLURM_", "OMPI_", "PMI_", "PMIX_")


def free_port() -> int:
    """A port that nobody listens at; another process may take it before it is used."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(source: str, *, count: int, devices: int, timeout: float = 120.0, attempts: int = 2) -> list[list[dict]]:
    """Runs `source` in `count` processes of `devices` CPU devices each; returns what each process said.

    A process that does not end in time is killed with the others.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    environment["no_proxy"] = environment["NO_PROXY"] = "127.0.0.1"
    for attempt in range(attempts):
        head = _HEAD.format(count=count, devices=devices, port=free_port(), x64=jax.config.jax_enable_x64)
        program = head + textwrap.dedent(source) + ("\njax.distributed.shutdown()\n" if count > 1 else "")
        command = [sys.executable, "-c", program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
        started = [subprocess.Popen([*command, str(i)], **pipes) for i in range(count)]
        try:
            ended = [process.communicate(timeout=timeout) for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        failed = [error[-3000:] for process, (_, error) in zip(started, ended) if process.returncode]
        if not failed:
            return [[json.loads(line[2:]) for line in out.splitlines() if line.startswith("@@")] for out, _ in ended]
        if attempt + 1 == attempts or not any("address already in use" in error.lower() for error in failed):
            raise AssertionError("\n".join(failed))
    raise AssertionError("unreachable")
