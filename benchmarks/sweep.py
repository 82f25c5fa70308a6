"""Members of unequal length, block by block from Python: what the driver, the schedules and a store cost."""

import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import parallel

from ._harness import Candidate, Group, jitted

N = 10_000
T1 = 5.0
RTOL = ATOL = 1e-4


def end(mu: jax.Array, *, batching: str = "lockstep") -> sciml.Solution:
    """A Van der Pol oscillator, which takes the more steps the larger mu is."""
    y0 = jnp.asarray([2.0, 0.0], mu.dtype)
    model = sciml.models.VanDerPol(mu=mu)
    return sciml.solve(model, y0, t0=0.0, t1=T1, rtol=RTOL, atol=ATOL, throw=False, batching=batching)


def last(sol: sciml.Solution) -> jax.Array:
    return sol.ys[-1]


def swept(mus: np.ndarray, **options: Any) -> Callable[[], Callable[[], Any]]:
    """A `build` for a sweep that starts anew at every call."""

    def build() -> Callable[[], Any]:
        store = options.get("store")

        def run() -> Any:
            if store is not None:
                shutil.rmtree(store, ignore_errors=True)
            return parallel.sweep(end, mus, output=last, progress=False, **options).values

        run()
        return run

    return build


def efficiency(mus: np.ndarray, **options: Any) -> str:
    found = parallel.sweep(end, mus, output=last, progress=False, **options)
    return f"lane efficiency {found.efficiency:.2f}, blocks of {found.block}"


def groups() -> list[Group]:
    mus = np.random.default_rng(0).permutation(np.logspace(-1, 2, N)).astype(np.float32)
    device = parallel.mesh(devices=jax.devices()[:1])
    settings = {
        "sweep, lockstep": dict(block=500),
        "sweep, sorted": dict(block=500, batching="sorted", cost=mus),
        "sweep, refill": dict(batching="refill"),
        "sweep, lockstep, stored": dict(block=500, store=pathlib.Path(tempfile.mkdtemp()) / "store"),
        "sweep, lockstep, mean and variance": dict(block=500, reduce=[parallel.Mean(), parallel.Variance()]),
    }
    many = jnp.asarray(mus).reshape(-1, 500)

    def loop(mus: jax.Array) -> jax.Array:
        return jax.lax.map(jax.vmap(lambda mu: last(end(mu))), mus)

    rows = [Candidate("jax.vmap, all at once", jitted(jax.vmap(lambda mu: last(end(mu))), many.ravel()))]
    rows.append(Candidate("jax.lax.map over blocks of 500", jitted(loop, many), rows[0].label))
    for label, options in settings.items():
        options = {"mesh": device, **options}
        said = "" if "store" in options or "reduce" in options else f", {efficiency(mus, **options)}"
        rows.append(Candidate(label + said, swept(mus, **options), rows[1].label))
    setting = f"mu from 0.1 to 100, t in [0, {T1:g}], Tsit5, rtol and atol {RTOL:g}, one device"
    return [Group(f"A sweep of Van der Pol oscillators, {N} members, {setting}", rows)]
