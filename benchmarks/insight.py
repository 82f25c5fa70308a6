"""The times that `inspect.report` predicts, compared with measurements, for ten programs."""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

import sciml
from sciml import inspect

from ._harness import Candidate, Group, Measured, jitted, report


def _lorenz(t: Any, y: Any, rho: Any) -> Any:
    del t
    return jnp.stack([10.0 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]])


def _end(rho: Any, **how: Any) -> Any:
    return sciml.solve(_lorenz, jnp.ones(3), t0=0.0, t1=2.0, args=rho, throw=False, **how).ys[-1]


def _heat(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4.0 * u)

    return jax.lax.fori_loop(0, 50, step, u)


def _spectral(u: Any) -> Any:
    k = jnp.fft.rfftfreq(u.shape[1])
    step = lambda _, u: jnp.fft.irfft(jnp.exp(-(k**2)) * jnp.fft.rfft(u, axis=1), u.shape[1], axis=1)  # noqa: E731
    return jax.lax.fori_loop(0, 20, step, u)


def _network(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def programs() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Names, functions and arguments."""
    key = jax.random.key(0)
    rho = jnp.linspace(0.0, 28.0, 10_000)
    square = jax.random.normal(key, (512, 512)) / 23
    yield "product of two matrices", lambda a: a @ a, (square,)
    yield "sum over 16 million numbers", jnp.sum, (jnp.ones(2**24),)
    yield (
        "exp of a million numbers, 20 times",
        lambda x: jax.lax.fori_loop(0, 20, lambda _, x: jnp.exp(-x), x),
        (jnp.ones(2**20),),
    )
    yield "heat equation on 512 x 512, 50 steps", _heat, (jnp.ones((512, 512)),)
    yield "Fourier transforms of 256 rows, 20 times", _spectral, (jnp.ones((256, 1024)),)
    yield "network of four layers, 4096 inputs", _network, ([square[:64, :64]] * 4, jnp.ones((4096, 64)))
    yield "Lorenz, one member, 20 000 steps", lambda r: _end(r, dt=1e-4), (jnp.float32(28.0),)
    yield "Lorenz, 10 000 members, 200 steps", jax.vmap(lambda r: _end(r, dt=0.01, solver=diffrax.Heun())), (rho,)
    yield "Lorenz, 1000 members, error control", jax.vmap(_end), (rho[:1000],)
    gradient = jax.grad(lambda r: jnp.sum(jax.vmap(lambda r: _end(r, dt=0.01, solver=diffrax.Heun()))(r)))
    yield "its gradient, 1000 members, 200 steps", gradient, (rho[:1000],)


def _compare(measured: list[Measured]) -> str | None:
    """Prints predictions beside the shortest times: the rates are of the shortest, too."""
    report(f"{inspect.rates()}\n")
    rows, near = [], 0
    for row, (_, fn, args) in zip(measured, programs(), strict=True):
        with contextlib.redirect_stdout(io.StringIO()):
            found = inspect.report(jax.jit(fn), *args)
        assert found.predicted is not None and found.measured is not None  # all loops are counted
        expected, real = found.predicted.total, found.measured
        factor = max(expected / real, real / expected)
        near += factor <= 2
        rows.append(f"| {row.label} | {expected * 1e3:.3f} ms | {real * 1e3:.3f} ms | {factor:.2f} |")
    report("\n".join(["| program | predicted | shortest | apart |", "|---|---|---|---|", *rows]))
    report(f"\n{near} of {len(rows)} within a factor of two\n")
    return None


def groups() -> list[Group]:
    """Returns the programs, and what is said of them in the end."""
    candidates = [Candidate(name, jitted(fn, *args)) for name, fn, args in programs()]
    return [Group("What `inspect.report` predicts for ten programs, float32", candidates, finish=_compare)]
