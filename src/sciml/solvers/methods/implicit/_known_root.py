r"""A root that an iteration has found, with the derivatives of the implicit function.

If $r(z, p) = 0$, the root moves with the parameters by $r_z\, dz = -r_p\, dp$, however it was found. The rule is stated
at the root as a function of the parameters, to which it applies again: derivatives of every order follow. If nothing is
differentiated, the residual is not evaluated. (`jax.lax.custom_root` says the same, but JAX before 0.12 forgets such
rules within rules where a gradient through a scan is differentiated once more. There the rule is stated at
$z - r_z^{-1} r(z, p)$ with an $r$ of zero, which has the root's first derivatives, and the same of that those up to the
third, so that the fourth ones follow.)

The iteration that found the root had a matrix $W$ near $r_z$, whose factors may be used again: a system is solved by
$x \leftarrow x + W^{-1} (b - r_z x)$, which contracts where that iteration did. Reverse mode does so with the
transposed matrices.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._largest import largest
from ...._jax._loops import while_loop
from ...._jax._promoted import as_varying, run_program
from ...._jax._vma import jax_version, match

MOST_NEWTON = 50
"""Iterations that have not converged by then are given up."""

_KEEPS_RULES = (0, 12)
"""The version of JAX from which rules within rules are kept in gradients through scans."""


def known_root(
    residual: Callable[[Array], Array],
    z: Array,
    divide: Callable,
    divide_transposed: Callable,
    factors_at: Callable[[Array], PyTree],
    exact: bool,
    rounding: float | None = None,
    least: int = 0,
) -> Array:
    """Returns `z` with all derivatives of the root of `residual`, which is evaluated only for these.

    Args:
        residual: A function that may close over differentiated values.
        z: The root, as it was found.
        divide: `divide(factors, b)`, the solution of the linearised system or about that.
        divide_transposed: The same of the transposed system.
        factors_at: The values that both read, computed at the root.
        exact: Whether they are the factors of the system, and not of a nearby one, whose solutions must be refined.
        rounding: How closely, relative to the solution; by default to rounding.
        least: The number of refinements that are made even if their corrections grow at first.
    """
    program = jax.make_jaxpr(residual)(z)
    near, shape = jax.make_jaxpr(factors_at, return_shape=True)(z)
    consts, of_factors = list(program.consts), jax.lax.stop_gradient(list(near.consts))
    z = match(jax.lax.stop_gradient(z), (z, consts))
    moving = [jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in consts]

    def at(z: Array, consts: list) -> Array:
        return run_program(program.jaxpr, consts, z)[0]

    def solved(along: Callable, b: Array, factors: PyTree) -> Array:
        solves = [as_varying(partial(f, factors), b) for f in (divide, divide_transposed)]
        of = [
            (lambda _, b, f=f: f(b)) if exact else partial(_refined, divide=f, rounding=rounding, least=least)
            for f in solves
        ]
        return jax.lax.custom_linear_solve(along, b, *of)

    @jax.custom_jvp
    def root(z: Array, of_factors: list, consts: list) -> Array:
        del of_factors, consts
        return z

    @root.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        z, of_factors, consts = primals
        factors = jax.tree.unflatten(jax.tree.structure(shape), run_program(near.jaxpr, of_factors, z))
        factors = jax.lax.stop_gradient(factors)
        if jax_version() >= _KEEPS_RULES:
            found = root(*primals)
        else:
            found = z
            for _ in range(2):
                value, along = jax.linearize(lambda z: at(z, consts), found)
                found = found - solved(along, value - jax.lax.stop_gradient(value), factors)

        def of_moving(some: list) -> Array:
            rest = iter(some)
            return at(found, [next(rest) if m else x for x, m in zip(consts, moving)])

        given, moved = ([x for x, m in zip(tree, moving) if m] for tree in (consts, tangents[2]))
        change = jax.jvp(of_moving, (given,), (moved,))[1]
        along = jax.linearize(lambda z: at(z, consts), found)[1]
        return found, -solved(along, change, factors)

    return root(z, of_factors, consts)


def _refined(
    along: Callable[[Array], Array],
    b: Array,
    divide: Callable[[Array], Array],
    rounding: float | None = None,
    least: int = 0,
) -> Array:
    """Solves a linear system by an inverse of a matrix nearby, until corrections no longer shrink or are small."""

    def iterate(carry: tuple) -> tuple:
        count, x, size, _ = carry
        correction = divide(b - along(x))
        now = largest(jnp.abs(correction))
        return count + 1, x + correction, now, shrinks(count, now, size, x)

    def shrinks(count: Array, now: Array, before: Array, x: Array) -> Any:
        # NaN also ends it
        smaller = now < 0.9 * before
        return (smaller if least == 0 else smaller | (count < least)) & (now > enough * largest(jnp.abs(x)))

    closest = float(jnp.finfo(b.dtype).eps) / 4
    enough = closest if rounding is None else max(rounding, closest)
    x = divide(b)
    size = largest(jnp.abs(x))
    start = (match(jnp.zeros((), jnp.int32), x), x, size, size > 0)
    return while_loop(lambda c: c[3] & (c[0] < MOST_NEWTON), iterate, start, like=x)[1]
