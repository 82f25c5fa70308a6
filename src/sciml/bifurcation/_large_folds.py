r"""Folds of large states, located without a dense matrix.

A fold solves $F(x, p) = 0$, $J a = 0$ and $c \cdot a = 1$ for the state, the parameter and the null vector $a$ of $J =
F_x$; see `_special`. Newton's steps, and the derivatives of the fold, need its linear system, whose parts are systems
with $(J, F_p)$ and the row $(c, 0)$ below it: two give $\dot u$ up to a multiple of the tangent $e$ of the branch, and
two more $\dot a$, where the multiple is the one with which $\dot a$ exists.

Source:
    G. Moore and A. Spence, SIAM Journal on Numerical Analysis 17 (1980) 567.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._jax._vma import match
from .._status import Status
from ..solvers.roots._implicit_root import with_derivatives
from ._bordered import Bordered
from ._problem import Equilibria
from ._special import Kind, SpecialPoint, newton, sizes_of_unknowns


def fold_near(
    problem: Equilibria, guess: Float[Array, " m"], way: Float[Array, " m"], kind: Array, inside: Callable
) -> SpecialPoint:
    """Returns the fold near a guess, with its derivatives; NaN if it was not found, or the point is of another kind.

    Args:
        problem: The equations.
        guess: The state and the parameter nearby.
        way: The direction of the branch, whose state is about the null vector.
        kind: A code of `Kind`.
        inside: Whether a point is where it was detected.
    """
    n, none = guess.size - 1, jnp.asarray(jnp.nan, guess.dtype)
    usable = (kind == int(Kind.fold)) & jnp.all(jnp.isfinite(guess)) & jnp.all(jnp.isfinite(way))
    guess, way = jnp.where(usable, guess, problem.start), jnp.where(usable, way, 1)
    c = way[:-1] / jnp.linalg.norm(way[:-1])
    start = jnp.concatenate([guess, c])
    still = problem._replace(constants=jax.lax.stop_gradient(problem.constants))

    def step(z: Array) -> Array:
        return -_solved(still, z, c)(_equations(still, z, c))

    units = jnp.append(sizes_of_unknowns(problem, guess), jnp.ones_like(c))
    z, close = newton(step, start, units, (still.constants, kind), usable)
    good = usable & close & inside(z[: n + 1])
    safe = jnp.where(good, z, start)

    def solve(along: Callable, b: Array) -> Array:
        solved = _solved(still, safe, c)
        across = jax.linear_transpose(solved, b)
        choose = functools.partial(jnp.where, good)
        return jax.lax.custom_linear_solve(
            along, b, lambda _, b: choose(solved(b), b), lambda _, b: choose(across(b)[0], b)
        )

    def equations(z: Array) -> Array:
        # an identity in a row that is not used, by which the derivatives of others are not NaN
        return jnp.where(good, _equations(problem, z, c), z - safe)

    z = with_derivatives(equations, safe, good | True, solve)
    z = jnp.where(good, z, none)
    status = jnp.where(good | (kind == int(Kind.none)), int(Status.successful), int(Status.diverged))
    zero = jnp.where(good, jnp.zeros_like(none), none)
    direction = problem.state(z[n + 1 :]), zero
    return SpecialPoint(kind, z[n], problem.state(z), zero, direction, match(status.astype(jnp.int32), z))


def _equations(problem: Equilibria, z: Float[Array, " k"], c: Float[Array, " n"]) -> Float[Array, " k"]:
    u, a = z[: c.size + 1], z[c.size + 1 :]
    value, along = jax.linearize(lambda u: problem.equations(u, problem.constants), u)
    return jnp.concatenate([value, along(jnp.append(a, jnp.zeros_like(a[:1]))), jnp.dot(c, a)[None] - 1])


def _solved(problem: Equilibria, z: Float[Array, " k"], c: Float[Array, " n"]) -> Callable[[Array], Array]:
    """Returns the solution of linear systems with the Jacobian of the equations, of fixed constants."""
    n, zero = c.size, jnp.zeros_like(z[:1])
    u, a = z[: n + 1], jnp.append(z[n + 1 :], zero)
    bordered = Bordered(problem, u, jnp.append(c, zero))

    def times_a(u: Array) -> Array:
        return jax.jvp(lambda u: problem.equations(u, problem.constants), (u,), (a,))[1]

    _, turned = jax.linearize(times_a, u)
    tangent = bordered(jnp.zeros_like(a).at[-1].set(1))
    per_tangent = bordered(jnp.append(turned(tangent), zero))

    def solved(b: Array) -> Array:
        first = bordered(jnp.append(b[:n], zero))
        second = bordered(jnp.append(b[n:-1] - turned(first), b[-1]))
        part = second[-1] / per_tangent[-1]
        return jnp.concatenate([first + part * tangent, (second - part * per_tangent)[:-1]])

    return solved
