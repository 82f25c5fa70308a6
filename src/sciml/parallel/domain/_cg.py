r"""Conjugate gradients on a field that is split over devices.

The solution of $A x = b$ depends on $b$ and on what $A$ is made of. With $A$ symmetric the pullback of a
cotangent $\bar x$ takes one more solve with the same operator,

$$A \bar b = \bar x, \qquad \bar p = -\Big(\frac{\partial A(p)\, x}{\partial p}\Big)^{*} \bar b,$$

by the implicit function theorem; no iteration is recorded.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.extend as jex
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, Real

from ..._jax._loops import while_loop
from ..._jax._vma import as_promoted_function, match, to_varying, vma_of
from ..._status import Status
from ..._types import RealScalarLike


class LinearSolution(NamedTuple):
    """What `Domain.cg` returns.

    Attributes:
        value: The solution; NaN where it was not found.
        status: A code of `Status`: `diverged` if `max_steps` were not enough.
        steps: The number of iterations.
        residual: The norm of $b - A x$, as the iteration kept it.
    """

    value: PyTree
    status: Int[Array, ""]
    steps: Int[Array, ""]
    residual: Real[Array, ""]


class Rule(NamedTuple):
    """How the iteration runs.

    Attributes:
        dot: The inner product over all devices.
        rtol: How small the residual must become, over the norm of the right-hand side.
        atol: How small it must become at least.
        max_steps: The limit on iterations.
        collective: The mesh axes along which devices iterate together.
    """

    dot: Callable[[PyTree, PyTree], Array]
    rtol: RealScalarLike
    atol: RealScalarLike
    max_steps: int
    collective: tuple[str, ...]


def cg(operator: Callable[[PyTree], PyTree], b: PyTree, rule: Rule) -> LinearSolution:
    """Solves `operator(x) = b`; see `Domain.cg`."""
    program, consts, b = _as_program(operator, b, rule.collective)

    @jax.custom_vjp
    def solve(consts, b):
        return _iterate(lambda x: program(consts, x), b, rule)

    def forward(consts, b):
        found = _iterate(lambda x: program(consts, x), b, rule)
        return found, _Kept(consts, found.value, tuple(map(vma_of, consts)))

    def backward(kept, cotangent):
        consts, x = kept.consts, kept.x
        b_bar = _iterate(lambda x: program(consts, x), cotangent.value, rule).value
        _, pull = jax.vjp(lambda consts: jax.tree.map(jnp.negative, program(consts, x)), consts)
        return list(map(_summed, pull(b_bar)[0], kept.axes)), b_bar

    solve.defvjp(forward, backward)
    return solve(consts, b)


class _Kept(eqx.Module):
    """What the pullback needs; a loop around it may have promoted what was the same on all devices."""

    consts: list[Any]
    x: PyTree
    axes: tuple[frozenset, ...] = eqx.field(static=True)


def _summed(cotangent: Array, axes: frozenset) -> Array:
    """Returns the cotangent of what varied over fewer axes before it was promoted."""
    more = tuple(sorted(vma_of(cotangent) - axes))
    return jax.lax.psum(cotangent, more) if more else cotangent


def _as_program(operator: Callable, b: PyTree, collective: tuple[str, ...]) -> tuple[Callable, list, PyTree]:
    """Returns the operator as a function of what it closes over and of a field; the rule may close over nothing.

    What it closes over keeps its type. Where it is the same on all devices, its cotangent is then the
    sum over them by JAX's own rules.
    """
    b = to_varying(b, vma_of(b) | frozenset(collective))
    closed, out = jax.make_jaxpr(operator, return_shape=True)(b)
    structure = jax.tree.structure(b)
    shapes = [jnp.shape(x) for x in jax.tree.leaves(b)]
    if jax.tree.structure(out) != structure or [x.shape for x in jax.tree.leaves(out)] != shapes:
        raise ValueError(f"`Domain.cg`: `operator` must return what is like `b`, of {shapes}, but returned {out}.")

    def program(consts, x):
        run = as_promoted_function(jex.core.ClosedJaxpr(closed.jaxpr, consts))  # backwards more may vary than forwards
        return jax.tree.unflatten(structure, run(*jax.tree.leaves(x)))

    return program, closed.consts, b


def _iterate(operator: Callable[[PyTree], PyTree], b: PyTree, rule: Rule) -> LinearSolution:
    def size(r):
        return jnp.real(rule.dot(r, r))

    def combine(x, factor, y):
        return jax.tree.map(lambda x, y: x + factor.astype(x.dtype) * y, x, y)

    start = size(b)
    limit = jnp.maximum(jnp.asarray(rule.atol, start.dtype), jnp.asarray(rule.rtol, start.dtype) * jnp.sqrt(start)) ** 2

    def going(carry):
        _, _, _, square, number = carry
        return (square > limit) & (number < rule.max_steps)

    def turn(carry):
        x, r, p, square, number = carry
        image = operator(p)
        step = square / jnp.real(rule.dot(p, image))
        x, r = combine(x, step, p), combine(r, -step, image)
        following = size(r)
        return x, r, combine(r, following / square, p), match(following, x), number + 1

    zero = jax.tree.map(jnp.zeros_like, b)
    carry = (zero, b, b, start, jnp.zeros((), jnp.int32))
    x, _, _, square, number = while_loop(going, turn, carry, collective=rule.collective)
    square, number = _same(square, rule.collective), _same(number, rule.collective)
    status = jnp.where(jnp.isfinite(square), int(Status.diverged), int(Status.nonfinite))
    status = jnp.where(square <= limit, int(Status.successful), status).astype(jnp.int32)
    value = jax.tree.map(lambda x: jnp.where(status == 0, x, jnp.full_like(x, jnp.nan)), x)
    return LinearSolution(value, status, number, jnp.sqrt(square))


def _same(x: Array, collective: tuple[str, ...]) -> Array:
    """Returns a number that is the same on all devices as such."""
    names = tuple(name for name in collective if name in vma_of(x))
    return jax.lax.pmax(x, names) if names else x
