"""Robertson's reaction: one member and a thousand, their gradients, beside SciPy's LSODA and diffrax's Kvaerno5.

And HIRES: what its gradients cost beside its solves.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import sciml

from ._harness import Candidate, Group, in_float64, jitted, max_error
from ._problems import diffrax_end

N = 1_000
T1 = 1e5
RTOL, ATOL = 1e-8, 1e-11
RATES = np.array([0.04, 3e7, 1e4])


def robertson(t: Any, y: jax.Array, k: jax.Array) -> jax.Array:
    """Robertson's reaction for one member, the vector field every library here is given."""
    del t
    slow, fast, back = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
    return jnp.stack([back - slow, slow - back - fast, fast])


def _scipy(k: np.ndarray, method: str, rtol: float, atol: float) -> np.ndarray:
    a, b, c = map(float, k)

    def slope(t: float, y: np.ndarray) -> list[float]:
        del t
        slow, fast, back = a * y[0], b * y[1] * y[1], c * y[1] * y[2]
        return [back - slow, slow - back - fast, fast]

    def jacobian(t: float, y: np.ndarray) -> list[list[float]]:
        del t
        return [
            [-a, c * y[2], c * y[1]],
            [a, -c * y[2] - 2 * b * y[1], -c * y[1]],
            [0.0, 2 * b * y[1], 0.0],
        ]

    solution = solve_ivp(slope, (0.0, T1), [1.0, 0.0, 0.0], method=method, rtol=rtol, atol=atol, jac=jacobian)
    return solution.y[:, -1]


def _error(rates: np.ndarray) -> Callable[[Any], float]:
    """The largest relative error of any component of the first members, by SciPy's Radau at 1e-12."""
    reference = np.stack([_scipy(k, "Radau", 1e-12, 1e-16) for k in rates[:4]])
    return lambda out: float(np.max(np.abs(np.asarray(out).reshape(-1, 3)[: len(reference)] / reference - 1)))


def ours(k: jax.Array) -> jax.Array:
    y0 = jnp.asarray([1.0, 0.0, 0.0], k.dtype)
    solver = sciml.solvers.Rodas5P()
    return sciml.solve(robertson, y0, t0=0.0, t1=T1, args=k, rtol=RTOL, atol=ATOL, solver=solver).ys[-1]


def theirs(k: jax.Array) -> jax.Array:
    y0 = jnp.asarray([1.0, 0.0, 0.0], k.dtype)
    return diffrax_end(robertson, y0, 0.0, T1, args=k, solver=diffrax.Kvaerno5(), rtol=RTOL, atol=ATOL)


def groups() -> list[Group]:
    with jax.enable_x64(True):
        one = jnp.asarray(RATES)
        many = jnp.asarray(RATES * (1 + 0.1 * np.random.default_rng(0).uniform(-1, 1, (N, 3))))

    def weighted_one(k: jax.Array) -> jax.Array:
        return jnp.sum(ours(k) * jnp.asarray([1.0, 1e4, 1.0], k.dtype))

    def weighted(k: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(weighted_one)(k))

    setting = f"Robertson, t in [0, {T1:g}], float64, rtol {RTOL:g}, atol {ATOL:g}, end state"
    single = [
        Candidate("sciml Rodas5P", in_float64(jitted(ours, one)), error=_error(RATES[None])),
        Candidate("its gradient by all rates", in_float64(jitted(jax.grad(weighted_one), one)), "sciml Rodas5P"),
        Candidate(
            "SciPy LSODA", lambda: lambda: _scipy(RATES, "LSODA", RTOL, ATOL), "sciml Rodas5P", _error(RATES[None])
        ),
        Candidate("diffrax Kvaerno5", in_float64(jitted(theirs, one)), "sciml Rodas5P", _error(RATES[None])),
    ]
    rates = np.asarray(many)
    ensemble = [
        Candidate("sciml Rodas5P, vmap", in_float64(jitted(jax.vmap(ours), many)), error=_error(rates)),
        Candidate("its gradient by all rates", in_float64(jitted(jax.grad(weighted), many)), "sciml Rodas5P, vmap"),
        Candidate(
            "diffrax Kvaerno5, vmap", in_float64(jitted(jax.vmap(theirs), many)), "sciml Rodas5P, vmap", _error(rates)
        ),
    ]
    return [
        Group(f"One member: {setting}", single),
        Group(f"{N} members, rates within 10 %: {setting}", ensemble, repeats=3),
        *_of_hires(),
    ]


def _of_hires() -> list[Group]:
    """HIRES by its ten parameters: eight unknowns, whose steps take far longer than those of three."""
    with jax.enable_x64(True):
        problem = sciml.verify.problem("hires")
        leaves, treedef = jax.tree.flatten(problem.model)
        one = jnp.stack(leaves)
        many = one * (1 + 0.1 * np.random.default_rng(0).uniform(-1, 1, (N, len(leaves))))

    def end(k: jax.Array) -> jax.Array:
        model = jax.tree.unflatten(treedef, list(k))
        options: dict[str, Any] = {"t0": problem.t0, "t1": problem.t1, "rtol": RTOL, "atol": ATOL}
        return sciml.solve(model, problem.y0, solver=sciml.solvers.Rodas5P(), **options).ys[-1]

    def loss(k: jax.Array) -> jax.Array:
        return jnp.sum(end(k))

    def rows(name: str, solve: Callable, gradient: Callable, k: jax.Array, error: Any = None) -> list[Candidate]:
        return [
            Candidate(name, in_float64(jitted(solve, k)), error=error),
            Candidate("its gradient by all rates", in_float64(jitted(gradient, k)), name),
        ]

    setting = f"HIRES, t in [0, {problem.t1:g}], float64, rtol {RTOL:g}, atol {ATOL:g}, end state"
    error = max_error(np.asarray(problem.reference), relative=True)
    total = jax.grad(lambda k: jnp.sum(jax.vmap(loss)(k)))
    return [
        Group(f"One member: {setting}", rows("sciml Rodas5P", end, jax.grad(loss), one, error)),
        Group(
            f"{N} members, rates within 10 %: {setting}", rows("Rodas5P, vmap", jax.vmap(end), total, many), repeats=3
        ),
    ]
