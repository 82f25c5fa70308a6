r"""Conjugate gradients on a field that is split over devices.

The solution of $A x = b$ depends on $b$ and on what $A$ is made of. With $A$ symmetric the pullback of a
cotangent $\bar x$ takes one more solve with the same operator,

$$A \bar b = \bar x, \qquad \bar p = -\Big(\frac{\partial A(p)\, x}{\partial p}\Big)^{*} \bar b,$$

by the implicit function theorem; no iteration is recorded.

The iteration updates its residual by a recurrence, which drifts away from $b - A x$ by rounding: in float32 and with
many cells by orders of magnitude. So the recurrence by itself never decides that a solution is found. If its residual
is small enough, $b - A x$ is computed, for one more product with $A$; if this is still too large, the iteration
restarts from it, as long as that at least halves its norm.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, Real

from ..._jax._interpreters import ClosedJaxpr
from ..._jax._loops import while_loop
from ..._jax._promoted import as_promoted_function
from ..._jax._vma import match, to_varying, vma_of
from ..._status import Status
from ..._types import RealScalarLike


class LinearSolution(NamedTuple):
    """The result of `Domain.cg`.

    Attributes:
        value: The solution; NaN where it was not found.
        status: A code of `Status`: `diverged` if `max_steps` were not enough or $A$ has a direction without curvature,
            `stagnated` if rounding does not allow so small a residual, `nonfinite` if `b` or $A$ is not finite.
        n_steps: The number of iterations. Each takes one product with $A$, and every start one more.
        residual: The norm of $b - A x$, computed from $x$ where the iteration ended.
    """

    value: PyTree
    status: Int[Array, ""]
    n_steps: Int[Array, ""]
    residual: Real[Array, ""]


class CGOptions(NamedTuple):
    """How the iteration runs.

    Attributes:
        dot: The inner product over all devices.
        rtol: How small the residual must become, over the norm of the right-hand side.
        atol: How small it must become at least.
        accept: How large it may stay, over the norm of the right-hand side, where it gets no smaller.
        max_steps: The limit on iterations.
        collective: The mesh axes along which devices iterate in lockstep.
    """

    dot: Callable[[PyTree, PyTree], Array]
    rtol: RealScalarLike
    atol: RealScalarLike
    accept: RealScalarLike
    max_steps: int
    collective: tuple[str, ...]


def cg(operator: Callable[[PyTree], PyTree], b: PyTree, options: CGOptions) -> LinearSolution:
    """Solves `operator(x) = b`; see `Domain.cg`."""
    program, consts, b = _as_program(operator, b, options.collective)
    # the rule may close over nothing, these limits among it, which may be traced
    limits = tuple(map(jax.lax.stop_gradient, (options.rtol, options.atol, options.accept)))

    def iterate(consts, b, limits):
        rtol, atol, accept = limits
        return _iterate(lambda x: program(consts, x), b, options._replace(rtol=rtol, atol=atol, accept=accept))

    solve = jax.custom_vjp(iterate)

    def forward(consts, b, limits):
        found = iterate(consts, b, limits)
        return found, _CGResiduals(consts, found.value, limits, tuple(map(vma_of, consts)))

    def backward(residuals, cotangent):
        consts, x = residuals.consts, residuals.x
        b_bar = iterate(consts, cotangent.value, residuals.limits).value
        _, pull = jax.vjp(lambda consts: jax.tree.map(jnp.negative, program(consts, x)), consts)
        return list(map(_summed, pull(b_bar)[0], residuals.axes)), b_bar, None

    solve.defvjp(forward, backward)
    return solve(consts, b, limits)


class _CGResiduals(eqx.Module):
    """The inputs of the pullback; a loop around it may have promoted values that were the same on all devices."""

    consts: list[Any]
    x: PyTree
    limits: tuple[RealScalarLike, RealScalarLike, RealScalarLike]
    axes: tuple[frozenset, ...] = eqx.field(static=True)


def _summed(cotangent: Array, axes: frozenset) -> Array:
    """Returns the cotangent of what varied over fewer axes before it was promoted."""
    more = tuple(sorted(vma_of(cotangent) - axes))
    return jax.lax.psum(cotangent, more) if more else cotangent


def _as_program(operator: Callable, b: PyTree, collective: tuple[str, ...]) -> tuple[Callable, list, PyTree]:
    """Returns the operator as a function of the values it closes over and of a field; the rule may close over none.

    The values that it closes over keep their types. If it is the same on all devices, its cotangent is the sum over
    them by JAX's own rules.
    """
    b = to_varying(b, vma_of(b) | frozenset(collective))
    closed, out = jax.make_jaxpr(operator, return_shape=True)(b)
    structure = jax.tree.structure(b)
    shapes = [jnp.shape(x) for x in jax.tree.leaves(b)]
    if jax.tree.structure(out) != structure or [x.shape for x in jax.tree.leaves(out)] != shapes:
        raise ValueError(f"`Domain.cg`: `operator` must return arrays like `b`, {shapes}, but returned {out}.")

    def program(consts, x):
        run = as_promoted_function(ClosedJaxpr(closed.jaxpr, consts))  # backwards more may vary than forwards
        return jax.tree.unflatten(structure, run(*jax.tree.leaves(x)))

    return program, closed.consts, b


class _CGStart(NamedTuple):
    """The point at which the iteration starts, and restarts.

    Attributes:
        x: The solution so far.
        r: $b - A x$, computed from `x`.
        square: The square of the norm of `r`.
        before: The norm at the previous start.
        steps: The number of iterations so far.
        flat: Whether $A$ has no curvature along a direction, so that there is no step to take.
        met: Whether the residual by recurrence had become small enough before.
    """

    x: PyTree
    r: PyTree
    square: Array
    before: Array
    steps: Array
    flat: Array
    met: Array


class _CGStep(NamedTuple):
    """The carry of an iteration: like `_CGStart`, with the residual by recurrence and the direction to search along."""

    x: PyTree
    r: PyTree
    p: PyTree
    square: Array
    steps: Array
    flat: Array


def _iterate(operator: Callable[[PyTree], PyTree], b: PyTree, options: CGOptions) -> LinearSolution:
    def size(r):
        return jnp.real(options.dot(r, r))

    def combine(x, factor, y):
        return jax.tree.map(lambda x, y: x + factor.astype(x.dtype) * y, x, y)

    whole = size(b)
    atol, rtol, accept = (jnp.asarray(x, whole.dtype) for x in (options.atol, options.rtol, options.accept))
    limit = jnp.maximum(atol, rtol * jnp.sqrt(whole)) ** 2
    accepted = jnp.maximum(limit, accept**2 * whole)

    def running(now):
        return (now.square > limit) & (now.steps < options.max_steps) & ~now.flat

    def again(start):
        # of squares: the norm has at least halved; NaN has not
        return running(start) & ~(start.met & (start.square <= accepted)) & (start.square <= start.before / 4)

    def step(now: _CGStep) -> _CGStep:
        image = operator(now.p)
        curvature = jnp.real(options.dot(now.p, image))
        # without curvature there is no step: for a definite operator only at the solution, otherwise it is indefinite
        flat = curvature == 0
        length = jnp.where(flat, 0, now.square / jnp.where(flat, 1, curvature))
        x, r = combine(now.x, length, now.p), combine(now.r, -length, image)
        square = size(r)
        p = combine(r, square / now.square, now.p)
        # an inner product is the same on all devices, and the carry that it enters varies over them
        return _CGStep(x, r, p, match(square, now.square), now.steps + 1, match(flat, now.flat))

    def run(start: _CGStart) -> _CGStart:
        first = _CGStep(start.x, start.r, start.r, start.square, start.steps, start.flat)
        end = while_loop(running, step, first, collective=options.collective)
        r = jax.tree.map(jnp.subtract, b, operator(end.x))
        return _CGStart(end.x, r, match(size(r), start.square), start.square, end.steps, end.flat, end.square <= limit)

    zero, none = jax.tree.map(jnp.zeros_like, b), jnp.zeros((), jnp.int32)
    start = _CGStart(zero, b, whole, jnp.full_like(whole, jnp.inf), none, jnp.asarray(False), jnp.asarray(False))
    end = while_loop(again, run, start, collective=options.collective)
    flat, met = (x.astype(jnp.int32) for x in (end.flat, end.met))
    square, steps, flat, met = (_same(x, options.collective) for x in (end.square, end.steps, flat, met))
    # `accept` does not excuse an iteration that was stopped early
    good = (square <= limit) | ((met > 0) & (square <= accepted))
    unfinished = (steps >= options.max_steps) | (flat > 0)
    status = jnp.where(unfinished, int(Status.diverged), int(Status.stagnated))
    status = jnp.where(jnp.isfinite(square), status, int(Status.nonfinite))
    status = jnp.where(good, int(Status.successful), status).astype(jnp.int32)
    value = jax.tree.map(lambda x: jnp.where(status == 0, x, jnp.full_like(x, jnp.nan)), end.x)
    return LinearSolution(value, status, steps, jnp.sqrt(square))


def _same(x: Array, collective: tuple[str, ...]) -> Array:
    """Returns a number that is the same on all devices as such."""
    names = tuple(name for name in collective if name in vma_of(x))
    return jax.lax.pmax(x, names) if names else x
