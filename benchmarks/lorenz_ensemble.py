"""Ten thousand Lorenz systems, one value of rho each: fixed and adaptive steps, forward and gradient."""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._c_loop import c_lorenz
from ._harness import Candidate, Group, jitted, max_error
from ._problems import BETA, SIGMA, lorenz, lorenz_reference, tsit5_scan

N = 10_000
STEPS = 1_000
TOL = 1e-6


def ours(rho: jax.Array, **steps: Any) -> jax.Array:
    y0 = jnp.asarray([1.0, 0.0, 0.0], rho.dtype)
    return sciml.solve(lorenz, y0, t0=0.0, t1=1.0, args=rho, **steps).ys[-1]


def theirs(rho: jax.Array, *, fixed: bool, adjoint: Any, throw: bool, max_steps: int) -> jax.Array:
    controller = diffrax.ConstantStepSize() if fixed else diffrax.PIDController(rtol=TOL, atol=TOL)
    y0 = jnp.asarray([1.0, 0.0, 0.0], jnp.float32)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        t0=0.0,
        t1=1.0,
        dt0=1 / STEPS,
        y0=y0,
        args=rho,
        stepsize_controller=controller,
        adjoint=adjoint,
        max_steps=max_steps,
        throw=throw,
    )
    assert solution.ys is not None
    return solution.ys[-1]


def by_hand(rho: jax.Array) -> jax.Array:
    """The fixed steps with one array per component, members last: fast, and what no user should have to write."""

    def f(y: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        a, b, c = y
        return SIGMA * (b - a), a * (rho - c) - b, a * b - BETA * c

    zero = jnp.zeros_like(rho)
    return jnp.stack(tsit5_scan(f, (zero + 1, zero, zero), 1 / STEPS, STEPS), axis=-1)


def total(solve: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """The gradient of the summed end states of all members with respect to every rho."""
    return jax.grad(lambda rho: jnp.sum(jax.vmap(solve)(rho)))


def _diffrax_settings(fixed: bool, gradient: bool) -> dict[str, dict[str, Any]]:
    default = dict(adjoint=diffrax.RecursiveCheckpointAdjoint(), throw=True, max_steps=4096)
    tight = STEPS + 24 if fixed else 64
    if not gradient:
        return {
            "diffrax": default,
            "diffrax, ForwardMode, throw=False": dict(adjoint=diffrax.ForwardMode(), throw=False, max_steps=4096),
        }
    settings: dict[str, dict[str, Any]] = {"diffrax": default}
    if not fixed:  # over a thousand steps DirectAdjoint keeps gigabytes
        settings["diffrax, DirectAdjoint, throw=False, tight max_steps"] = dict(
            adjoint=diffrax.DirectAdjoint(), throw=False, max_steps=tight
        )
    return settings


def groups() -> list[Group]:
    rho = jnp.linspace(0.0, 21.0, N, dtype=jnp.float32)
    ends, slopes = lorenz_reference(tuple(np.asarray(rho, np.float64)), 1.0)
    found = []
    for fixed in (True, False):
        how = f"{STEPS} fixed steps" if fixed else f"adaptive, rtol = atol = {TOL:g}"
        steps = dict(dt=1 / STEPS) if fixed else dict(rtol=TOL, atol=TOL)
        solve = functools.partial(ours, **steps)
        error, slope_error = max_error(ends), max_error(slopes.sum(axis=-1), relative=True)
        forward = [Candidate("sciml", jitted(jax.vmap(solve), rho), error=error)]
        forward += [
            Candidate(label, jitted(jax.vmap(functools.partial(theirs, fixed=fixed, **setting)), rho), "sciml", error)
            for label, setting in _diffrax_settings(fixed, gradient=False).items()
        ]
        if fixed:
            forward.append(Candidate("lax.scan by hand, one array per component", jitted(by_hand, rho), "sciml", error))
        forward += c_lorenz(np.asarray(rho), fixed=fixed, steps=STEPS, tol=TOL, against="sciml", error=error)
        found.append(Group(f"Lorenz, {N} members, {how}, t in [0, 1], float32, end state only", forward))
        backward = [
            Candidate("sciml", jitted(jax.vmap(solve), rho), error=error),
            Candidate("sciml, gradient", jitted(total(solve), rho), "sciml", slope_error),
        ]
        if fixed:
            twice = functools.partial(solve, adjoint=sciml.adjoints.Checkpointed(levels=2))
            backward.append(Candidate("sciml, gradient, two levels", jitted(total(twice), rho), "sciml", slope_error))
        backward += [
            Candidate(
                f"{label}, gradient",
                jitted(total(functools.partial(theirs, fixed=fixed, **setting)), rho),
                "sciml, gradient",
                slope_error,
            )
            for label, setting in _diffrax_settings(fixed, gradient=True).items()
        ]
        found.append(Group(f"The same, {how}: gradient of the summed end states by every rho", backward, repeats=5))
    return found
