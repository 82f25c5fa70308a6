r"""Conserved quantities of a vector field, and the term that holds them while its root is sought.

A conserved quantity $c$ has $C(y) f(y) = 0$ for every state $y$, with $C = \partial c / \partial y$. So $f$ by itself
does not determine its root, and its Jacobian is singular there. The function

$$g(y) = f(y) - C(y)^T D \, (c(y) - c(y_0)), \qquad D > 0 \text{ diagonal},$$

has the size of $f$ and vanishes only where $f(y) = 0$ and $c(y) = c(y_0)$, since $C g = - C C^T D (c(y) - c(y_0))$.
Solutions of $\dot y = g(y)$ from $y_0$ are solutions of $f$; if $c$ differs, it comes back.

Linear conserved quantities $W^T y$ are found. The columns of $W$ are a basis of the common left null space of the
Jacobians at several states: a singular Jacobian at a single state conserves nothing. The number of columns depends on
values, so that the term is computed from the projector $W W^T$, whose shape does not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..._checks import check_call
from ..._jax._vma import match
from ..._types import Y
from ..methods._ravel import flattened, unflattened

_DISTANCES = (1.0, 0.1, 0.01)
"""The distances from the start, relative to it, of the states at which Jacobians are compared: the larger distances
separate conserved quantities from quantities that are only conserved at one state, the smaller ones stay within the
range of most models."""

_SHRUNK = 1e-6
"""The size of one more state, relative to the one at the largest distance: products of components are small there, and
their rounding does not hide slow linear rates."""

_ROUNDING = 16.0
"""A linear combination of rows is zero if it is smaller than the sum of its terms by the precision times this."""

_ROUNDS = 3
"""Rounds of dividing rows and columns by the roots of their largest entries: rates of reactions may differ by 1e12."""


class LinearQuantities(NamedTuple):
    """Linear conserved quantities that were found.

    Attributes:
        matrix: The projector to them, by which the distance from the start is zero where they are held.
        back: The projector times a rate. With both, the term only has the rounding of the small product.
    """

    matrix: Float[Array, "n n"]
    back: Float[Array, "n n"]

    def distance(self, x: Float[Array, " n"], start: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns how far the quantities are from their values at the start."""
        return jnp.matmul(self.matrix, x - start, precision="highest")

    def term(self, x: Float[Array, " n"], start: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the term that holds the quantities."""
        return jnp.matmul(self.back, self.distance(x, start), precision="highest")


class GivenQuantities(NamedTuple):
    """Conserved quantities that were given as a function.

    Attributes:
        function: The function, of the state as a vector.
        weights: The diagonal of $D$.
    """

    function: Callable
    weights: Float[Array, " m"]

    def distance(self, x: Float[Array, " n"], start: Float[Array, " n"]) -> Float[Array, " m"]:
        """Returns how far the quantities are from their values at the start."""
        return self.function(x) - self.function(start)

    def term(self, x: Float[Array, " n"], start: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the term that holds the quantities."""
        value, pull = jax.vjp(self.function, x)
        return pull(match(self.weights * (value - self.function(start)), value))[0]


def conserved_quantities(
    f: Callable[[Y], Y], y0: Y, conserved: Callable[[Y], Array] | None
) -> LinearQuantities | GivenQuantities:
    """Returns the conserved quantities of a vector field, differentiable with respect to its parameters.

    Args:
        f: The vector field at one time, which may close over differentiated values.
        y0: The state that sets the quantities.
        conserved: The quantities as a function of the state, or None to find the linear ones.
    """

    def rates(x):
        return flattened(f(unflattened(x, y0)))

    start = jax.lax.stop_gradient(flattened(y0))
    states, good = _states_nearby(rates, start)
    if conserved is None:
        return _found(rates, states, good)
    function = eqx.filter_closure_convert(lambda x: _numbers(conserved(unflattened(x, y0))).astype(x.dtype), start)
    jacobian = jax.lax.stop_gradient(jacobian_of(rates, states[1]))
    slopes = jax.lax.stop_gradient(jax.jacrev(function)(states[1]))
    squares = jnp.sum(_finite(slopes) ** 2, axis=1)
    return GivenQuantities(function, rate_of(_finite(jacobian)[None]) / _or_one(squares))


def vanishes(quantities: LinearQuantities | GivenQuantities, rate: Array, jacobian: Array, x: Array) -> Bool[Array, ""]:
    """Returns whether the rates of linear quantities that were found vanish at a state, compared with their own terms.

    If one rate constant is larger than another by more than the precision can represent, the Jacobians at the start may
    suggest a sum that the model does not conserve. The term that holds this sum then hides its rate.
    """
    if isinstance(quantities, GivenQuantities):
        return jnp.ones((), bool)
    terms = jnp.matmul(jnp.abs(jacobian), jnp.abs(x), precision="highest")
    changes = jnp.abs(jnp.matmul(quantities.matrix, rate, precision="highest"))
    sizes = jnp.matmul(jnp.abs(quantities.matrix), terms, precision="highest")
    tiny = jnp.finfo(x.dtype).tiny
    return jax.lax.stop_gradient(jnp.all(changes <= jnp.sqrt(jnp.finfo(x.dtype).eps) * sizes + tiny))


def is_conserved(quantities: LinearQuantities | GivenQuantities, jacobian: Array, x: Array) -> Bool[Array, ""]:
    """Returns whether given quantities are conserved at a state at rest, where $C f' = 0$ follows from it."""
    if isinstance(quantities, LinearQuantities):
        return jnp.ones((), bool)
    slopes = jax.jacrev(quantities.function)(x)
    product = jnp.abs(jnp.matmul(slopes, jacobian, precision="highest"))
    terms = jnp.matmul(jnp.abs(slopes), jnp.abs(jacobian), precision="highest")
    # the state is at rest to within tolerances of about the root of the precision
    rough = jnp.sqrt(jnp.finfo(x.dtype).eps) * jnp.max(terms, axis=1, keepdims=True, initial=0.0)
    return jnp.all(product <= 10 * rough)


def left_inverse_of(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> tuple[Float[Array, "n m"], Bool[Array, ""]]:
    """Returns a left inverse, without derivatives, and whether the columns are independent to within rounding.

    Args:
        matrix: A Jacobian.
        x: The state there. Columns are scaled by it: rounding is then relative to each component, however small.
    """
    matrix, x = jax.lax.stop_gradient((matrix.T, x))
    finite = jnp.all(jnp.isfinite(matrix))
    size = jnp.abs(_finite(x))
    size = _or_one(jnp.maximum(size, jnp.finfo(x.dtype).eps * jnp.max(size, initial=0.0)))
    space = _null_space(_finite(matrix), size)
    inverse = space.columns[:, None] * _inverse_of_scaled(space) * space.rows[None]
    return inverse.T, finite & ~jnp.any(space.free)


def check_conserved(conserved: Any, y0: Y) -> None:
    """Checks a function of conserved quantities.

    Raises:
        TypeError: If it is not a function of the state, or its values are not real.
    """
    if conserved is None:
        return
    if not callable(conserved):
        raise TypeError(
            f"`conserved` must be a function `conserved(y)` that returns an array of conserved quantities, but is "
            f"{conserved!r:.60}. For a sum write `lambda y: y[0] + y[1]`."
        )
    check_call(conserved, "conserved(y)", "`conserved`")
    for leaf in jax.tree.leaves(jax.eval_shape(conserved, y0)):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(f"`conserved` must return real numbers, but returns an array of {leaf.dtype}.")


class _NullSpace(NamedTuple):
    """The left null space of a matrix, after its rows and columns are scaled.

    Attributes:
        rows: Factors of the rows.
        columns: Factors of the columns.
        left: Singular vectors, in columns.
        values: Singular values.
        right: Singular vectors, in rows.
        free: The columns of `left` that span the null space.
    """

    rows: Array
    columns: Array
    left: Array
    values: Array
    right: Array
    free: Array


def _null_space(matrix: Float[Array, "n m"], rows: Float[Array, " n"]) -> _NullSpace:
    """Returns the left null space; `rows` are the first factors of the rows."""
    columns = jnp.ones_like(matrix[0])
    size = jnp.abs(matrix)
    for _ in range(_ROUNDS):
        scaled = rows[:, None] * size * columns[None]
        rows = rows / jnp.sqrt(_or_one(jnp.max(scaled, axis=1)))
        columns = columns / jnp.sqrt(_or_one(jnp.max(scaled, axis=0)))
    scaled = rows[:, None] * matrix * columns[None]
    left, values, right = jnp.linalg.svd(scaled, full_matrices=False)
    terms = jnp.linalg.norm(jnp.matmul(jnp.abs(left).T, jnp.abs(scaled), precision="highest"), axis=1)
    free = values <= _ROUNDING * jnp.finfo(matrix.dtype).eps * terms
    return _NullSpace(rows, columns, left, values, right, free)


def _inverse_of_scaled(space: _NullSpace) -> Array:
    """Returns the inverse of the scaled matrix, which is zero on the null space."""
    reciprocal = jnp.where(space.free, 0, 1 / jnp.where(space.free, 1, space.values))
    return jnp.matmul(space.right.T * reciprocal[None], space.left.T, precision="highest")


def _found(rates: Callable, states: Float[Array, "k n"], good: Bool[Array, " k"]) -> LinearQuantities:
    r"""Returns the linear quantities, with their derivatives.

    With the Jacobians side by side as $M(p)$, of which $M_0 = M(p_0)$ has the projector $Q$ to its left null space,
    $A(p) = M(p) M_0^+$ has the left null space of $M(p)$ and $A(p) Q = 0$. So the columns of
    $W(p) = (A(p)^T + Q)^{-1} Q$ span it: where $A^T W = 0$ and $Q W = Q$. At $p_0$, $A + Q$ is the identity.
    """
    jacobians = jax.vmap(lambda x: jacobian_of(rates, x))(states)
    matrix = jnp.moveaxis(jacobians, 0, 1).reshape(states.shape[1], -1)
    constant = jax.lax.stop_gradient(matrix)
    usable = (jnp.sum(good) > 1) & jnp.all(jnp.isfinite(constant))
    space = _null_space(jnp.where(usable, constant, jnp.zeros_like(constant)), jnp.ones_like(states[0]))
    projector = jnp.matmul(jnp.where(space.free[None], space.left, 0), space.left.T, precision="highest")
    scaled = space.rows[:, None] * matrix * space.columns[None]
    moved = jnp.matmul(scaled, _inverse_of_scaled(space), precision="highest") + projector
    moved = jnp.where(usable, moved, jnp.eye(*moved.shape, dtype=moved.dtype))
    held = _solved_by_identity(moved.T, projector).T
    speed = rate_of(jax.lax.stop_gradient(jacobians))
    matrix = jnp.where(usable, held / space.rows[:, None] * space.rows[None], jnp.zeros_like(held))
    return LinearQuantities(matrix, speed * jax.lax.stop_gradient(matrix))


def _solved_by_identity(matrix: Float[Array, "n n"], right: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Solves a system whose matrix is the identity, although its derivatives are not zero."""

    def times(x):
        return jnp.matmul(matrix, x, precision="highest")

    return jax.lax.custom_linear_solve(times, right, lambda _, b: b, lambda _, b: b)


def _states_nearby(rates: Callable, start: Float[Array, " n"]) -> tuple[Float[Array, "k n"], Bool[Array, " k"]]:
    """Returns states near the start, and a mask of those at which the model is defined; a good one replaces others."""
    size = jnp.abs(start)
    size = jnp.where(size > 0, size, _or_one(jnp.max(size, initial=0.0)))
    shares = np.random.default_rng(0).uniform(0.25, 1.0, (len(_DISTANCES), start.size)) * np.array(_DISTANCES)[:, None]
    states = start[None] + jnp.asarray(shares, start.dtype) * size[None]
    states = jnp.concatenate([states, _SHRUNK * states[:1]])
    direction = jnp.asarray(shares[0], start.dtype)

    def defined(x):
        value, slope = jax.jvp(rates, (x,), (match(direction, x),))
        return jnp.all(jnp.isfinite(value)) & jnp.all(jnp.isfinite(slope))

    good = jax.lax.stop_gradient(jax.vmap(defined)(states))
    other = jnp.where(jnp.any(good), states[jnp.argmax(good)], start)
    return jnp.where(good[:, None], states, other[None]), good


def with_jacobian(f: Callable, x: Float[Array, " n"]) -> tuple[PyTree, PyTree]:
    """Returns the value of a function and its Jacobian, by a program that evaluates the function once."""
    value, along = jax.linearize(f, x)
    return value, jax.vmap(along, out_axes=1)(match(jnp.eye(x.size, dtype=x.dtype), x))


def jacobian_of(f: Callable, x: Float[Array, " n"]) -> Float[Array, "m n"]:
    """Returns a Jacobian, one tangent for each column."""
    unit = match(jnp.eye(x.size, dtype=x.dtype), x)
    return jax.vmap(lambda v: jax.jvp(f, (x,), (v,))[1], out_axes=1)(unit)


def rate_of(jacobians: Float[Array, "k n n"]) -> Float[Array, ""]:
    """Returns how fast the model is, whatever the units of its components; 1 for one that does not move."""
    squares = jnp.sum(jnp.abs(jacobians * jnp.swapaxes(jacobians, 1, 2)), axis=(1, 2)) / jacobians.shape[1]
    return _or_one(jnp.sqrt(jnp.max(squares)))


def _numbers(values: PyTree) -> Float[Array, " m"]:
    leaves = [jnp.reshape(jnp.asarray(x), -1) for x in jax.tree.leaves(values)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros(0)


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))


def _or_one(x: Array) -> Array:
    return jnp.where(x > 0, x, jnp.ones_like(x))
