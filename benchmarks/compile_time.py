"""How long a solve and its gradient take to trace, lower and compile, with JAX's caches cleared before each."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

import sciml

from ._harness import Candidate, Group
from ._problems import lorenz

TOL = 1e-6


def _ours(**steps: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def solve(y0: jax.Array, rho: jax.Array) -> jax.Array:
        return sciml.solve(lorenz, y0, t0=0.0, t1=1.0, args=rho, **steps).ys[-1]

    return solve


def _theirs(controller: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def solve(y0: jax.Array, rho: jax.Array) -> jax.Array:
        term = diffrax.ODETerm(lorenz)
        solution = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, 1e-3, y0, args=rho, stepsize_controller=controller
        )
        assert solution.ys is not None
        return solution.ys[-1]

    return solve


def _compiler(fn: Callable[..., jax.Array], gradient: bool) -> Callable[[], Callable[[], Any]]:
    """The compilation is what is timed here, so it stands where other benchmarks have their run."""
    args = jnp.asarray([1.0, 0.0, 0.0], jnp.float32), jnp.asarray(21.0, jnp.float32)

    def run() -> Any:
        jax.clear_caches()
        target = jax.grad(lambda y0, rho: jnp.sum(fn(y0, rho)), argnums=(0, 1)) if gradient else fn
        return jax.jit(lambda y0, rho: target(y0, rho)).lower(*args).compile()

    return lambda: run


def groups() -> list[Group]:
    found = []
    for how, steps, controller in (
        ("1000 fixed steps", dict(dt=1e-3), diffrax.ConstantStepSize()),
        (f"adaptive, rtol = atol = {TOL:g}", dict(rtol=TOL, atol=TOL), diffrax.PIDController(rtol=TOL, atol=TOL)),
    ):
        rows = []
        for gradient in (False, True):
            what = "gradient" if gradient else "solve"
            rows += [
                Candidate(f"sciml, {what}", _compiler(_ours(**steps), gradient)),
                Candidate(f"diffrax, {what}", _compiler(_theirs(controller), gradient), f"sciml, {what}"),
            ]
        found.append(
            Group(
                f"Time to trace, lower and compile: one Lorenz system, {how}, float32", rows, repeats=3, compiled=False
            )
        )
    return found
