"""A long run in a process of its own: `killed.py FOLDER KIND [REPORTS SECONDS]`, which kills itself so much later."""

import os
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import inspect

many_blocks = inspect.choose({"runs.frames": 2**10})
many_blocks.__enter__()


def field(t, y, rho):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def out(t, y, rho):
    return y[2] > 40


if __name__ == "__main__":
    folder, kind, *after = sys.argv[1:]
    reports = 0

    def progress(_):
        global reports
        reports += 1
        if after and reports == int(after[0]):
            threading.Timer(float(after[1]), os.kill, (os.getpid(), signal.SIGKILL)).start()
        time.sleep(0.004)

    options = dict(t0=0.0, t1=40.0, rtol=1e-5, atol=1e-5, save_every=0.05, segment_steps=25, checkpoint_every=0.0)
    if kind == "one":
        y0, rho = jnp.ones(3, jnp.float32), jnp.float32(28.0)
    elif kind == "spread":  # a state over four devices, of whose checkpoints each writes its part
        jax.config.update("jax_num_cpu_devices", 4)
        layout = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P(None, "x"))
        y0 = jax.device_put(1 + jnp.arange(24, dtype=jnp.float32).reshape(3, 8) / 100, layout)
        rho = jnp.float32(28.0)
        options |= dict(t1=10.0, segment_steps=40, checkpoints=sciml.stores.OrbaxStore(f"{folder}/checkpoints"))
    else:
        y0, rho = jnp.ones((40, 3), jnp.float32), jnp.linspace(20.0, 40.0, 40, dtype=jnp.float32)
        options |= dict(in_axes=(None, 0, 0), stop=out, segment_steps=40)
    run = sciml.simulate(field, y0, args=rho, store=folder, progress=progress, **options)
    os.write(1, run.reason.encode())
    os._exit(0)
