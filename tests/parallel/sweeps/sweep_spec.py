"""A sweep for processes of its own: the tests run it from the command line, kill it, and send it to workers."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from sciml import parallel

RHO = np.linspace(25.0, 31.0, 101, dtype=np.float32)


def chaotic(rho, scale):
    """Euler's method on the Lorenz system: a difference in the last bit grows to order one."""

    def step(_, u):
        x, y, z = u[0], u[1], u[2]
        return u + 0.005 * jnp.stack([10 * (y - x), x * (rho - z) - y, x * y - scale * z])

    return jax.lax.fori_loop(0, 4000, step, jnp.ones(3, jnp.float32))


def sweep():
    """The arguments, from the environment where a test says so."""
    return dict(
        fn=chaotic,
        params=RHO,
        shared=np.float32(8 / 3),
        block=int(os.environ.get("SPEC_BLOCK", "8")),
        store=os.environ["SPEC_STORE"],
    )


if __name__ == "__main__":
    slow = float(os.environ.get("SPEC_DELAY", "0"))

    def report(progress):
        """Tells the test how far it is, and takes its time."""
        print(progress.done, flush=True)
        time.sleep(slow)

    parallel.sweep(**sweep(), progress=report)
