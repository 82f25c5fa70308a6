r"""Consistent initial values of $F(t, y, \dot y) = 0$ by its derivative array.

A consistent state of a system of index $\nu$ satisfies $F = 0$ and its first $\nu - 1$ derivatives in time, for some
derivatives $\dot y, \ddot y, \dots, y^{(\nu)}$ of the solution. These equations, the derivative array, contain the
hidden constraints. They are solved by the method of Gauss and Newton for unknowns of two ranks:

- first the derivatives of the solution, and the part of the state whose rate does not occur in $F$, along the null
  space of $\partial F / \partial \dot y$: the algebraic components;
- then the rest of the state, only as far as equations remain that the first ones cannot satisfy.

So differential components keep their values where these are consistent.

Source:
    S. L. Campbell, C. W. Gear, The index of general nonlinear DAEs, Numer. Math. 72 (1995).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...._jax._largest import largest
from ...._jax._loops import while_loop
from ...._jax._vma import match

Residual = Callable[[Array, Array, Array], Array]
"""`residual(t, x, rate)` of vectors."""

_LEAST_NEWTON, _MOST_NEWTON = 3, 25
"""Iterations that are made whatever their rate, and after how many they are given up."""

_NEAR = 0.25
"""Differential components may be off hidden constraints by this power of the rounding: they are rounded, not wrong."""

_FREE = 0.5
"""A component is not determined if its share in directions without an equation is above this power of the rounding."""


class Consistent(NamedTuple):
    """A consistent state.

    Attributes:
        x: The state.
        rate: Its rate; components that nothing determines are as near the guess as possible.
        found: Whether the iteration converged, with every algebraic component determined and no other one far away.
        is_free: Whether the equations do not determine a component.
        is_moved: Whether a differential component was far from satisfying the hidden constraints.
    """

    x: Float[Array, " n"]
    rate: Float[Array, " n"]
    found: Bool[Array, ""]
    is_free: Bool[Array, " n"]
    is_moved: Bool[Array, " n"]


def derivative_array(residual: Residual, t: Array, x: Array, ups: Array, levels: int) -> Float[Array, "m n"]:
    """Returns the residual and its derivatives in time along a solution, of shape `(levels + 1, n)`.

    Args:
        residual: $F$.
        t: The time.
        x: The state.
        ups: Its derivatives in time, from the first on, of shape `(levels + 1, n)`.
        levels: The number of derivatives of the residual.
    """

    def along(s: Array) -> Array:
        # the Taylor polynomials of the state and of its rate
        of_x, of_rate, power = x, ups[0], jnp.ones_like(s)
        for j in range(levels + 1):
            power = power * s / (j + 1)
            of_x = of_x + power.astype(x.dtype) * ups[j]
            if j < levels:
                of_rate = of_rate + power.astype(x.dtype) * ups[j + 1]
        return residual(t + s, of_x, of_rate)

    rows, function = [], along
    for level in range(levels + 1):
        rows.append(function(jnp.zeros_like(t)))
        if level < levels:
            function = _derivative(function)
    return jnp.stack(rows)


def _derivative(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda s: jax.jvp(function, (s,), (jnp.ones_like(s),))[1]


def consistent(residual: Residual, t: Array, guess: Array, rate: Array, levels: int, fixed: bool = False) -> Consistent:
    """Returns a consistent state near a guess, with its rate.

    The iterations are not differentiated, the two steps after them are. Each multiplies the number of correct
    derivatives, so that first and second derivatives agree with the implicit function theorem.

    Args:
        residual: $F$.
        t: The time.
        guess: The state.
        rate: A guess of its rate.
        levels: The number of derivatives of the residual: the index minus one, or the index to determine the rate.
        fixed: Whether the whole state keeps its value.
    """
    eps, tiny = float(jnp.finfo(guess.dtype).eps), jnp.finfo(guess.dtype).tiny
    program, consts = jax.closure_convert(residual, *jax.lax.stop_gradient((t, guess, rate)))
    consts = jax.lax.stop_gradient(list(consts))
    still = _Array.of(lambda *x: program(*x, *consts), *jax.lax.stop_gradient((t, guess, rate)), levels, fixed)

    def iterate(carry: tuple) -> tuple:
        count, u, before, _, again, _ = carry
        back, free, size = still.inverse(u)
        values = still.equations(u)
        change = _along(back, values)
        u = u - change
        now = largest(jnp.abs(change[:2])) / (largest(jnp.abs(still.state(u))) + tiny)
        more = (now > eps) & ((count < _LEAST_NEWTON) | (now < 0.5 * before)) & (count < _MOST_NEWTON)
        # differential components move once more, in the directions at the root, which their derivatives have
        restarts = again & ~more
        u = jnp.where(restarts, u.at[1].set(0), u)
        count, now = jnp.where(restarts, 0, count + 1), jnp.where(restarts, jnp.inf, now)
        return count, u, now, more | restarts, again & ~restarts, (back, free, largest(jnp.abs(values) / size))

    u = jnp.zeros((levels + 3, guess.shape[0]), guess.dtype).at[2].set(still.rate)
    found = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(iterate, (0, u, 0.0, 0, True, 0))[-1])
    true, none = jnp.ones((), bool), jnp.zeros((), jnp.int32)
    start = match((none, u, jnp.full_like(u[0, 0], jnp.inf), true, true, found), (t, guess, rate, consts))
    _, u, *_, (back, free, left) = while_loop(lambda c: c[3], iterate, start, like=(t, guess, rate, consts))
    moving = _Array.of(residual, t, guess, rate, levels, fixed)
    last = jnp.zeros_like(u)
    # two steps from the root: they move it only by rounding, and have its first and second derivatives
    for _ in range(2):
        last = _along(back, moving.equations(u))
        u = u - last
    x, moved = moving.state(u), _times(still.kept, u[1])
    size = largest(jnp.abs(x)) + tiny
    near = largest(jnp.abs(last[:2])) <= eps**0.5 * size
    solved = left <= eps**0.5 * (size + largest(jnp.abs(u)))
    is_free, is_moved = free > eps**_FREE, jnp.abs(moved) > eps**_NEAR * size
    return Consistent(x, u[2], near & solved & ~jnp.any(is_free) & ~jnp.any(is_moved), is_free, is_moved)


class _Array(NamedTuple):
    """A derivative array as equations for the algebraic and the other corrections of a state, and its derivatives."""

    residual: Residual
    t: Array
    guess: Array
    rate: Array
    levels: int
    fixed: bool
    kept: Array

    @classmethod
    def of(cls, residual: Residual, t: Array, guess: Array, rate: Array, levels: int, fixed: bool) -> "_Array":
        mass = jax.jacfwd(lambda rate: residual(t, guess, rate))(rate)
        one = match(jnp.eye(guess.shape[0], dtype=guess.dtype), mass)
        return cls(residual, t, guess, rate, levels, fixed, one if fixed else _times(jnp.linalg.pinv(mass), mass))

    def state(self, u: Array) -> Array:
        """Returns the state with its corrections."""
        if self.fixed:
            return self.guess
        return self.guess + u[0] + _times(self.kept, u[1] - u[0])

    def equations(self, u: Array) -> Array:
        """Returns the derivative array as one vector."""
        return derivative_array(self.residual, self.t, self.state(u), u[2:], self.levels).reshape(-1)

    def inverse(self, u: Array) -> tuple[Array, Array, Array]:
        """Returns the map from equations to corrections, the shares that are free, and the scales of the equations."""
        n, eps = u.shape[1], float(jnp.finfo(u.dtype).eps)
        jacobian = jax.jacfwd(self.equations)(u)
        size = jnp.sqrt(jnp.sum(jacobian**2, axis=(1, 2)))
        size = jnp.where(size > 0, size, jnp.ones_like(size))  # rows of equal size, so that ranks are read correctly
        jacobian = jacobian / size[:, None, None]
        first = jnp.concatenate([jacobian[:, :1], jacobian[:, 2:]], axis=1).reshape(size.shape[0], -1)
        of_first, left, right = _inverse(first, lambda values: 10 * max(first.shape) * eps * jnp.max(values))
        free = 1 - jnp.diagonal(self.kept) - jnp.sum(right[:, :n] ** 2, axis=0)
        of_second = jnp.zeros((n, size.shape[0]), u.dtype)
        if not self.fixed:
            # the equations that no unknown of the first rank satisfies; exactly those in which none occurs
            left = jnp.where(jnp.any(first != 0, axis=1, keepdims=True), left, 0)
            rest = jnp.eye(size.shape[0], dtype=u.dtype) - _times(left, left.T)
            of_second = _times(_inverse(_times(rest, jacobian[:, 1]), lambda _: eps**0.5)[0], rest)
            of_first = of_first - _times(of_first, _times(jacobian[:, 1], of_second))
        rows = jnp.concatenate([of_first[:n], of_second, of_first[n:]])
        return rows.reshape(*u.shape, -1) / size[None, None], free, size


def _inverse(matrix: Array, least: Callable[[Array], Any]) -> tuple[Array, Array, Array]:
    """Returns the pseudo-inverse by the singular values above the least one, with their vectors; others are zero."""
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    some = values > least(values)
    kept = some.astype(values.dtype)
    left, right = left * kept[None], right * kept[:, None]
    return _times(right.T / jnp.where(some, values, jnp.ones_like(values))[None], left.T), left, right


def _along(back: Array, equations: Array) -> Array:
    return jnp.einsum("ijk,k->ij", back, equations, precision="highest")


def _times(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, precision="highest")
