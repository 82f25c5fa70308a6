"""The first iterate of an optimisation: the problem on segments, sizes, and unknowns inside of their bounds."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._types import Args, Y
from ..solvers.methods._ravel import flattened
from ._plan import ControlPlan
from ._problem import ControlProblem, box
from ._transcription import (
    Basis,
    Boxes,
    Inequalities,
    SegmentFlow,
    Transcription,
    Variables,
    basis_of,
    numbers,
)

_INSIDE = 1e-2
"""The first iterate is inside of bounds by this share of their distance, or of the size of the unknown."""

_COLD, WARM = 0.1, 1e-3
"""The first barrier parameter, without and with a plan to start from."""


class Given(NamedTuple):
    """Checked arguments of an optimisation, which may be traced."""

    problem: ControlProblem
    args: Args
    y0: Y
    u0: PyTree
    t0: Array
    t1: Array
    mesh: Array


class Numerics(NamedTuple):
    """Checked options of an optimisation."""

    degree: int
    control_degree: int
    free: tuple[bool, ...]
    tolerance: float
    flow: SegmentFlow | None = None
    by_ilqr: bool = False


def on_segments(given: Given, numerics: Numerics, sizes: tuple[Array, Array, Array], scale: Array) -> Transcription:
    """Returns the problem on segments, for unknowns and a cost in these units."""
    dtype, y0, bounds = given.mesh.dtype, given.y0, given.problem.t1_bounds
    of_y, of_u = _boxes(given)
    of_time = box(bounds, given.t0, dtype, "t1_bounds")
    free = np.append(np.asarray(numerics.free), bounds is not None)

    def of_start(number: int, default: float) -> Array:
        bound = jnp.append(of_y[number] / sizes[0], (of_time[number][0] - given.t0) / sizes[2])
        return jnp.where(free, bound, jnp.full_like(bound, default))

    return Transcription(
        problem=given.problem,
        args=given.args,
        y=y0,
        u=given.u0,
        t0=given.t0,
        fixed=jnp.append(flattened(y0).astype(dtype) / sizes[0], (given.t1 - given.t0) / sizes[2]),
        mesh=given.mesh,
        boxes=Boxes(
            (of_y[0] / sizes[0], of_y[1] / sizes[0]),
            (of_u[0] / sizes[1], of_u[1] / sizes[1]),
            (of_start(0, -jnp.inf), of_start(1, jnp.inf)),
        ),
        sizes=sizes,
        scale=scale,
        basis=basis_of(numerics.degree, numerics.control_degree, dtype),
        free=free,
        flow=numerics.flow,
    )


def _boxes(given: Given) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    dtype, problem = given.mesh.dtype, given.problem
    return box(problem.y_bounds, given.y0, dtype, "y_bounds"), box(problem.u_bounds, given.u0, dtype, "u_bounds")


def started(given: Given, numerics: Numerics, guess: Any) -> tuple[Transcription, Variables, Array]:
    """Returns the problem on segments, the first iterate and the first barrier parameter."""
    dtype, mesh = given.mesh.dtype, given.mesh
    if isinstance(guess, ControlPlan):
        sizes = jax.lax.stop_gradient(guess.warm.sizes)
        problem = on_segments(given, numerics, sizes, guess.warm.scale)
        return problem, *rewarmed(problem, guess.warm.unknowns)
    basis, duration = basis_of(numerics.degree, numerics.control_degree, dtype), given.t1 - given.t0
    places = mesh[:-1, None] + (mesh[1:] - mesh[:-1])[:, None] * basis.places[None]
    y0, u0 = flattened(given.y0).astype(dtype), flattened(given.u0).astype(dtype)
    states, controls = _guessed(guess, given.t0 + duration * places, y0, u0, basis)
    of_y, of_u = _boxes(given)
    sizes = jax.lax.stop_gradient((_sizes(states, of_y), _sizes(controls, of_u), jnp.abs(duration)))
    problem = on_segments(given, numerics, sizes, jnp.ones((), dtype))
    mu = jnp.asarray(_COLD, dtype)
    end, at_end = jax.eval_shape(problem.at_end, problem.fixed)[1:]
    width = problem.fixed.size + controls.shape[2]
    limits = jax.eval_shape(problem.limits, jnp.zeros(width, dtype), mu)
    none = Inequalities(
        jnp.zeros(2 * problem.fixed.size, dtype),
        jnp.zeros((*places.shape, limits.size), dtype),
        jnp.zeros(at_end.size, dtype),
    )
    v = Variables(
        start=_inside(problem.fixed, problem.boxes.start),
        inner=_inside(states / sizes[0][None, None], problem.boxes.y),
        controls=_inside(controls / sizes[1][None, None], problem.boxes.u),
        defects=jnp.zeros_like(states),
        end=jnp.zeros(end.size, dtype),
        slack=none,
        force=none,
    )
    slack = jax.tree.map(lambda c: jnp.maximum(-c, _INSIDE), problem.values(v)[1].force)
    v = v._replace(slack=slack)
    gradient, shares = problem.gradient(v, jnp.zeros_like(mu))[0], problem.shares
    steepest = jnp.maximum(
        jnp.max(jnp.abs(gradient.inner) / shares[:, :, None]),
        jnp.max(jnp.abs(gradient.controls) / jnp.sum(shares, axis=1)[:, None, None]),
    )
    problem = problem._replace(scale=jax.lax.stop_gradient(jnp.minimum(1.0, 100 / steepest)))
    return problem, v._replace(force=jax.tree.map(lambda s, w: mu * w / s, slack, problem.barrier())), mu


def rewarmed(problem: Transcription, v: Variables, mu: float = WARM) -> tuple[Variables, Array]:
    """Returns the first iterate, and the first barrier parameter, from the solution of a similar problem."""
    barrier = jnp.asarray(mu, v.inner.dtype)
    centred = jax.tree.map(lambda s, z, w: _centred(s, z / w, barrier), v.slack, v.force, problem.barrier())
    force = jax.tree.map(lambda s, w: barrier * w / s, centred, problem.barrier())
    return v._replace(start=problem.start(v), slack=centred, force=force), barrier


def _guessed(guess: Any, ts: Array, y0: Array, u0: Array, basis: Basis) -> tuple[Array, Array]:
    """Returns states and controls at all points."""
    if guess is None:
        states = jnp.broadcast_to(y0, (*ts.shape, y0.size))
        controls = jnp.broadcast_to(u0, (*ts.shape, u0.size))
    else:

        def at(t: Array) -> tuple[Array, Array]:
            y, u = guess(t)
            return numbers(y, t.dtype), numbers(u, t.dtype)

        states, controls = jax.vmap(jax.vmap(at))(ts)
    return states, jnp.einsum("ej,kjm->kem", np.linalg.pinv(basis.spread), controls)


def _sizes(x: Array, bounds: tuple[Array, Array]) -> Array:
    """Returns the size of each element, by the guess or else by the bounds."""
    largest = jnp.max(jnp.abs(x), axis=(0, 1))
    bound = jnp.maximum(*(jnp.where(jnp.isfinite(b), jnp.abs(b), jnp.zeros_like(b)) for b in bounds))
    largest = jnp.where(largest > 0, largest, bound)
    return jnp.where(largest > 0, largest, jnp.ones_like(largest))


def _inside(x: Array, bounds: tuple[Array, Array]) -> Array:
    """Returns numbers that are inside of bounds."""
    low, high = bounds
    margin = jnp.minimum(_INSIDE, _INSIDE * (high - low))
    shape = (1,) * (x.ndim - 1) + low.shape
    return jnp.clip(x, (low + margin).reshape(shape), (high - margin).reshape(shape))


def _centred(slack: Array, force: Array, mu: Array) -> Array:
    """Returns the slack whose product with a multiplier is the barrier parameter, and whose difference is given."""
    difference = slack - force
    larger = (jnp.abs(difference) + jnp.sqrt(difference**2 + 4 * mu)) / 2
    return jnp.where(difference > 0, larger, mu / larger)  # without cancellation
