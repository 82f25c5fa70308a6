r"""A root with the derivatives of the implicit function theorem.

If $f(y, p) = 0$, the root moves with the parameters by

$$\frac{\partial f}{\partial y} \, dy = - \frac{\partial f}{\partial p} \, dp ,$$

however it was found. Forward mode solves this system, reverse mode its transpose once, and
`jax.lax.custom_root` derives both, and higher derivatives, from one linear solve.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._vma import match
from ..._types import BoolScalarLike, Y
from ..control._pid import Tolerances, scaled_error
from ..methods._ravel import flattened, unflattened
from ._conserved import (
    GivenQuantities,
    LinearQuantities,
    is_conserved,
    jacobian_of,
    left_inverse_of,
    vanishes,
    with_jacobian,
)


def implicit_root(f: Callable[[Y], Y], y: Y, tolerances: Tolerances) -> Y:
    """Returns `y` with the derivatives of the root of `f`; NaN derivatives if it is not a root.

    Args:
        f: A function of the state, which may close over differentiated values.
        y: The root, as it was found.
        tolerances: How long the Newton step from `y` may be.
    """
    y = jax.lax.stop_gradient(y)
    step = _solved(lambda v: jax.jvp(f, (y,), (v,))[1], jax.lax.stop_gradient(f(y)))
    return with_derivatives(f, y, scaled_error(jax.lax.stop_gradient(step), y, y, tolerances) <= 1)


_CHANGE = 0.25
"""How much of the Jacobian the last Newton step may change, relative to it: half of it at a double root, and more at
roots of higher order."""


class SteadyRoot(NamedTuple):
    """A state at rest that holds conserved quantities.

    Attributes:
        y: The state, with derivatives where it is good.
        close: Whether rates vanish there, and conserved quantities have their required values.
        determined: Whether both together determine it, or it is the start, which does not move.
        conserved: Whether quantities that were given are conserved there.
    """

    y: Y
    close: BoolScalarLike
    determined: BoolScalarLike
    conserved: BoolScalarLike


def steady_root(
    f: Callable[[Y], Y], y: Y, y0: Y, conserved: LinearQuantities | GivenQuantities, tolerances: Tolerances
) -> SteadyRoot:
    """Returns `y` with the derivatives of the root of `f` that has the conserved quantities of `y0`.

    Args:
        f: A vector field at one time, which may close over differentiated values.
        y: The root, as it was found.
        y0: The state that sets the conserved quantities.
        conserved: These.
        tolerances: How long the Newton steps from `y` may be, one by the rates and one by the conserved quantities.
    """
    start = flattened(y0)

    def rates(x):
        return flattened(f(unflattened(x, y0)))

    def equations(x):
        return jnp.concatenate([rates(x), conserved.distance(x, start).astype(x.dtype)])

    x = jax.lax.stop_gradient(flattened(y))
    left, matrix = jax.lax.stop_gradient(with_jacobian(equations, x))
    (rate, distance), jacobian = jnp.split(left, [x.size]), matrix[: x.size]
    # both parts side by side: in their sum a fast reaction would hide slow rates by its rounding
    inverse, regular = left_inverse_of(matrix, x)
    inverse = jnp.where(regular, inverse, jnp.eye(*inverse.shape, dtype=x.dtype))
    apart = jnp.stack([jnp.concatenate([rate, 0 * distance]), jnp.concatenate([0 * rate, distance])], axis=1)
    steps = jnp.matmul(inverse, apart, precision="highest")
    close = jnp.all(jax.vmap(lambda step: scaled_error(step, x, x, tolerances), in_axes=1)(steps) <= 1)
    # a matrix that is only singular at the root differs from this one completely in some direction
    scale = tolerances.atol + tolerances.rtol * jnp.abs(x)
    nearer = jax.lax.stop_gradient(jacobian_of(equations, x - jnp.sum(steps, axis=1)))
    change = jnp.matmul(inverse, nearer - matrix, precision="highest") * scale[None] / scale[:, None]
    regular &= ~(jnp.max(jnp.sum(jnp.abs(change), axis=1), initial=0.0) > _CHANGE)
    regular &= vanishes(conserved, rate, jacobian, x)

    def held(x):
        return jnp.matmul(inverse, equations(x), precision="highest")  # whose Jacobian is the identity

    y = unflattened(with_derivatives(held, x, close & regular), y0)
    stays = jnp.all(x == start) & jnp.all(rate == 0)
    return SteadyRoot(y, close, regular | stays, is_conserved(conserved, jacobian, x))


def with_derivatives(
    f: Callable[[Y], Y], y: Y, close: BoolScalarLike, solve: Callable[[Callable[[Y], Y], Y], Y] | None = None
) -> Y:
    """Returns a root of `f` with its derivatives, which are NaN unless it is `close` to the root.

    Args:
        f: A function of the state, which may close over differentiated values.
        y: The root.
        close: Whether it is one.
        solve: Solves a system with the Jacobian, which is given by its product with a state; by default as a dense one.
    """
    root = jax.lax.custom_root(f, y, lambda _, guess: guess, _solved if solve is None else solve)
    return jax.tree.map(lambda x: _known(match(x, close), close), root)


def _solved(along: Callable[[Y], Y], b: Y) -> Y:
    """Solves a linear system that is given by its product with a state."""
    x = flattened(b)
    unit = match(jnp.eye(x.size, dtype=x.dtype), x)
    matrix = jax.vmap(lambda v: flattened(along(unflattened(v, b))), out_axes=1)(unit)
    return unflattened(jnp.linalg.solve(matrix, x), b)


# NaN only in the tangent: the value is unchanged, but its derivative is not the derivative of a root
@jax.custom_jvp
def _known(x: Array, condition: BoolScalarLike) -> Array:
    del condition
    return x


@_known.defjvp
def _(primals: PyTree, tangents: PyTree) -> tuple[Array, Array]:
    x, condition = primals
    return _known(x, condition), tangents[0] * jnp.where(condition, jnp.ones_like(x), jnp.full_like(x, jnp.nan))
