"""Ten thousand Lorenz systems with one event each, compared with a solve without events and with `vmap(diffrax)`."""

import functools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import optimistix

import sciml

from ._harness import Candidate, Group, jitted
from ._problems import lorenz

N = 10_000
TOL = 1e-6
HEIGHT = 12.0
"""The third component of most members passes it once or twice, that of some never."""


def ours(rho: jax.Array, *, event: Any, kept: int | None = None, **options: Any) -> Any:
    y0 = jnp.asarray([1.0, 0.0, 0.0], rho.dtype)
    times = dict(t0=0.0, t1=1.0, rtol=TOL, atol=TOL)
    sol = sciml.solve(lorenz, y0, args=rho, events=event, max_events=kept, throw=False, **times, **options)
    return sol.ys[-1] if event is None else (sol.ys[-1], sol.t_reached, sol.events.times)


def theirs(rho: jax.Array) -> Any:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        t0=0.0,
        t1=1.0,
        dt0=1e-3,
        y0=jnp.asarray([1.0, 0.0, 0.0], rho.dtype),
        args=rho,
        stepsize_controller=diffrax.PIDController(rtol=TOL, atol=TOL),
        event=diffrax.Event(_height_of_diffrax, optimistix.Newton(1e-5, 1e-5)),
        throw=False,
    )
    assert solution.ys is not None and solution.ts is not None
    return solution.ys[-1], solution.ts[-1]


def _height(t: Any, y: Any, args: Any) -> Any:
    return y[2] - HEIGHT


def _height_of_diffrax(t: Any, y: Any, args: Any, **rest: Any) -> Any:
    return y[2] - HEIGHT


def _same(t: Any, y: Any, args: Any) -> Any:
    return y


def groups() -> list[Group]:
    found = []
    for dtype in (jnp.float32, jnp.float64):
        rho = jnp.linspace(0.0, 28.0, N, dtype=dtype)
        plain = Candidate("sciml, no event", jitted(jax.vmap(functools.partial(ours, event=None)), rho))
        ends, passes = sciml.Event(_height), sciml.Event(_height, _same)

        def row(label: str, rho: jax.Array, **options: Any) -> Candidate:
            solve = functools.partial(ours, **options)
            return Candidate(label, jitted(jax.vmap(solve), rho), against="sciml, no event")

        rows = [
            plain,
            row("sciml, an event ends it", rho, event=ends),
            row("sciml, goes on, one kept", rho, event=passes, kept=1),
            row("sciml, goes on, 16 kept", rho, event=passes, kept=16),
            Candidate("diffrax, an event ends it", jitted(jax.vmap(theirs), rho), against="sciml, an event ends it"),
        ]
        title = f"{N} Lorenz systems, adaptive, rtol = atol = {TOL:g}, {jnp.dtype(dtype).name}, one event each"
        found.append(Group(title, rows))
        if not jax.config.jax_enable_x64:
            break
    return found
