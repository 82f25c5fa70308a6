"""Problems and helpers that the tests of `sciml.parallel` share."""

import re

import jax
import jax.numpy as jnp
import numpy as np

from sciml import parallel

_COLLECTIVE = re.compile(r"= .*?\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def collectives(fn, *args):
    """The collectives in the compiled program of `fn(*args)`."""
    return collectives_in(jax.jit(fn).lower(*args).compile().as_text())


def collectives_in(text):
    return [found.group(1) for line in text.splitlines() if (found := _COLLECTIVE.search(line))]


def devices(n):
    return parallel.mesh(devices=jax.devices()[:n])


def same_bits(a, b):
    return jax.tree.all(
        jax.tree.map(lambda x, y: np.asarray(x).tobytes() == np.asarray(y).tobytes() and x.shape == y.shape, a, b)
    )


RHO = np.linspace(25.0, 31.0, 101, dtype=np.float32)


def lorenz(rho, *, steps=2000, dt=0.01):
    """Heun's method on the Lorenz system, 20 time units: a difference in the last bit grows to order one."""

    def rhs(u):
        x, y, z = u[0], u[1], u[2]
        return jnp.stack([10 * (y - x), x * (rho - z) - y, x * y - (8 / 3) * z])

    def step(_, u):
        k = rhs(u)
        return u + (dt / 2) * (k + rhs(u + dt * k))

    return jax.lax.fori_loop(0, steps, step, jnp.ones(3, jnp.float32))


def adaptive(mu, scale, t1=3.0, tol=1e-3):
    """Heun-Euler with error control on the Van der Pol oscillator; the number of steps depends on the member."""

    def rhs(y):
        return scale * jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    def body(c):
        t, dt, y, n = c
        dt = jnp.minimum(dt, t1 - t)
        k1 = rhs(y)
        k2 = rhs(y + dt * k1)
        error = jnp.max(jnp.abs(dt / 2 * (k2 - k1))) / tol
        good = error <= 1
        y = jnp.where(good, y + dt / 2 * (k1 + k2), y)
        t = jnp.where(good, t + dt, t)
        return t, dt * jnp.clip(0.9 / jnp.sqrt(jnp.maximum(error, 1e-6)), 0.2, 5.0), y, n + 1

    zero = jnp.zeros((), mu.dtype)
    start = (zero, zero + 1e-2, jnp.array([2.0, 0.0], mu.dtype), jnp.zeros((), jnp.int32))
    t, dt, y, n = jax.lax.while_loop(lambda c: (c[0] < t1) & (c[3] < 10_000), body, start)
    return y, n
