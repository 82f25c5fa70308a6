"""The Lorenz ensemble in float64 beside gradsolve, where that is installed: `pip install gradsolve`."""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._harness import Candidate, Group, in_float64, jitted, max_error
from ._problems import lorenz, lorenz_reference
from .lorenz_ensemble import N, ours

TOL = 1e-6


@dataclasses.dataclass
class LorenzProblem:
    """What gradsolve asks of a problem."""

    name: str = "lorenz_of_rho"
    dim: int = 3
    t0: float = 0.0
    t1: float = 1.0
    is_stiff: bool = False

    def f_jax(self, t: Any, y: jax.Array, params: jax.Array) -> jax.Array:
        return lorenz(t, y, params[0])


def _gradsolve() -> Any:
    """Imports gradsolve, which switches x64 on, and leaves the switch as it was."""
    before = bool(jax.config.read("jax_enable_x64"))
    import gradsolve  # pyright: ignore[reportMissingImports]

    jax.config.update("jax_enable_x64", before)
    return gradsolve


def groups() -> list[Group]:
    if importlib.util.find_spec("gradsolve") is None:
        return []
    gradsolve = _gradsolve()
    rho = np.linspace(0.0, 21.0, N)
    ends, slopes = lorenz_reference(tuple(rho), 1.0)
    y0, params, problem = np.tile([1.0, 0.0, 0.0], (N, 1)), rho[:, None], LorenzProblem()
    tolerances = dict(rtol=TOL, atol=TOL)
    with jax.enable_x64(True):
        rhos = jnp.asarray(rho)
    solve = functools.partial(ours, **tolerances)

    def forward() -> Callable[[], Any]:
        return lambda: gradsolve.solve(problem, y0, params, engine="tsit5_replay", **tolerances).y_final

    def gradient() -> Callable[[], Any]:
        def run() -> Any:
            closure = gradsolve.grad_closure(problem, y0, params, engine="tsit5_replay", **tolerances)
            return jax.block_until_ready(jax.grad(lambda p: jnp.sum(closure(p)))(jnp.asarray(params)))

        return run

    def replay() -> Callable[[], Any]:
        closure = gradsolve.grad_closure(problem, y0, params, engine="tsit5_replay", **tolerances)
        compiled = jax.jit(jax.grad(lambda p: jnp.sum(closure(p)))).lower(jnp.asarray(params)).compile()
        return lambda: jax.block_until_ready(compiled(jnp.asarray(params)))

    error = max_error(ends)
    slope_error = max_error(slopes.sum(axis=-1), relative=True)
    rows = [
        Candidate("sciml", in_float64(jitted(jax.vmap(solve), rhos)), error=error),
        Candidate("gradsolve", in_float64(forward), "sciml", error),
        Candidate(
            "sciml, gradient",
            in_float64(jitted(jax.grad(lambda r: jnp.sum(jax.vmap(solve)(r))), rhos)),
            "sciml",
            slope_error,
        ),
        Candidate(
            "gradsolve, gradient with its record",
            in_float64(gradient),
            "sciml, gradient",
            lambda out: slope_error(np.asarray(out)[:, 0]),
        ),
        Candidate(
            "gradsolve, replay of a record alone",
            in_float64(replay),
            "sciml, gradient",
            lambda out: slope_error(np.asarray(out)[:, 0]),
        ),
    ]
    setting = f"t in [0, 1], float64, Tsit5, rtol = atol = {TOL:g}, end state"
    return [Group(f"Lorenz, {N} members, {setting}, beside gradsolve", rows, repeats=3)]
