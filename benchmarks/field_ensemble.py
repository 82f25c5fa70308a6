"""An ensemble of fields: members with large states, which differ in the steps that they need."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml.spatial import Grid, Laplacian, Periodic

from ._harness import Candidate, Group, jitted
from ._problems import diffrax_end

N, CELLS, TOL = 16, 64, 1e-4


def groups() -> list[Group]:
    laplacian = Laplacian(Grid((CELLS, CELLS), upper=1.0 * CELLS), Periodic())
    rates = jnp.geomspace(0.1, 1.0, N)

    def start(dtype: Any) -> jax.Array:
        x, y = laplacian.boundary.coordinates
        return (0.5 + 0.4 * jnp.sin(x / 5) * jnp.cos(y / 3)).astype(dtype)

    def field(t: Any, u: jax.Array, rate: jax.Array) -> jax.Array:
        del t
        return rate * (laplacian(u) + u - u**3)

    def ours(rate: jax.Array, tol: float = TOL) -> jax.Array:
        return sciml.solve(field, start(rate.dtype), t0=0.0, t1=20.0, args=rate, rtol=tol, atol=tol).ys[-1]

    def theirs(rate: jax.Array, adjoint: Any) -> jax.Array:
        options: dict[str, Any] = dict(solver=diffrax.Tsit5(), rtol=TOL, atol=TOL, adjoint=adjoint, max_steps=256)
        return diffrax_end(field, start(rate.dtype), 0.0, 20.0, args=rate, **options)

    with jax.enable_x64(True):
        precise = jax.jit(jax.vmap(lambda rate: ours(rate, 1e-9)))(rates.astype(jnp.float64))
    reference = np.asarray(precise)

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out, np.float64) - reference)))

    def gradient(solve: Any) -> Any:
        return jax.grad(lambda rates: jnp.sum(jax.vmap(solve)(rates) ** 2))

    forward_mode = lambda rate: theirs(rate, diffrax.ForwardMode())  # noqa: E731
    reverse_mode = lambda rate: theirs(rate, diffrax.RecursiveCheckpointAdjoint())  # noqa: E731
    rows = [
        Candidate("sciml, `vmap`", jitted(jax.vmap(ours), rates), error=error),
        Candidate("sciml, `lax.map`", jitted(lambda rates: jax.lax.map(ours, rates), rates), "sciml, `vmap`", error),
        Candidate("diffrax, `vmap`", jitted(jax.vmap(forward_mode), rates), "sciml, `vmap`", error),
        Candidate("sciml, gradient", jitted(gradient(ours), rates), "sciml, `vmap`"),
        Candidate("diffrax, gradient", jitted(gradient(reverse_mode), rates), "sciml, gradient"),
    ]
    setting = f"t in [0, 20], float32, Tsit5, rtol = atol = {TOL:g}, end state"
    return [Group(f"Reaction and diffusion on {CELLS} x {CELLS} cells, {N} members, {setting}", rows, repeats=5)]
