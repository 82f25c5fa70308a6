"""States that satisfy the algebraic equations of a differential-algebraic system, and the rates of such states."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ...._choices import choices
from ...._jax._largest import largest
from ...._jax._loops import scan
from ...._jax._vma import match
from ...._types import BoolScalarLike, RealScalarLike, Y
from ...linear._entries import DenseMatrix
from ...linear._structure import solve
from ...linear._written_out import WrittenOut
from .._ravel import flattened, unflattened
from .._stepper import BoundField
from ._mass_matrix import Mass

_NEWTON_ITERATIONS = 12
"""Newton steps before the derivative is taken."""


def consistent_start(field: BoundField, t: RealScalarLike, y: Y, mass: Mass | None) -> tuple[Y, BoolScalarLike | None]:
    """Returns a state to start from, and whether one was found; None where there are no algebraic equations.

    Args:
        field: The vector field.
        t: The start time.
        y: A guess, of which the differential variables are kept.
        mass: The mass matrix, or None for the identity.
    """
    if mass is None or mass.null_spaces[0].shape[1] == 0:
        return y, None
    return consistent_state(field, t, y, mass)


def consistent_state(field: BoundField, t: RealScalarLike, y: Y, mass: Mass) -> tuple[Y, BoolScalarLike]:
    r"""Solves the algebraic equations of $M \dot y = f(t, y)$ for the algebraic variables.

    With $U^T M = 0$ and $M V = 0$, Newton's method solves $U^T f(t, y + V z) = 0$ for $z$; the differential variables
    keep their values. The iterations are not differentiated, the two steps after them are. Each multiplies the number
    of correct derivatives, so that first and second derivatives agree with the implicit function theorem.

    Source:
        P. N. Brown, A. C. Hindmarsh, L. R. Petzold, SIAM J. Sci. Comput. 19:1495, 1998.

    Args:
        field: The vector field.
        t: The start time.
        y: A guess, of which the differential variables are kept.
        mass: A singular mass matrix.

    Returns:
        The state, and whether Newton's method converged.
    """
    x = flattened(y)
    left, right = (jnp.asarray(basis, x.dtype) for basis in mass.null_spaces)

    def state(z):
        return x + jnp.matmul(right, z, precision="highest")

    def residual(z):
        return jnp.matmul(flattened(field(t, unflattened(state(z), y))), left, precision="highest")

    def correction(z):
        value, along = jax.linearize(residual, z)
        nothing = np.zeros((z.shape[0], z.shape[0]))
        small = z.shape[0] <= choices().linear.small_at_most
        structure = WrittenOut(nothing, pivot=True) if small else DenseMatrix(nothing)
        matrix = structure.assemble(along, z, -jnp.ones((), z.dtype))
        return solve(structure, matrix, structure.factorise(jax.lax.stop_gradient(matrix)), value)

    def iterate(z, _):
        return z - correction(z), None

    zero = match(jnp.zeros(right.shape[1], x.dtype), x)
    z, _ = scan(iterate, zero, jnp.arange(_NEWTON_ITERATIONS))
    z = jax.lax.stop_gradient(z)
    # two steps from the root: they move it only by rounding, and have its first and second derivatives
    z = z - correction(z)
    last = correction(z)
    z = z - last
    x = state(z)
    eps = float(jnp.finfo(x.dtype).eps)
    converged = largest(jnp.abs(last)) <= eps**0.5 * largest(jnp.abs(x))
    return unflattened(x, y), converged


def rate_with_mass(field: BoundField, t: RealScalarLike, y: Y, mass: Mass | None) -> Y:
    r"""Returns the rate $\dot y$ of $M \dot y = f(t, y)$ at a consistent state.

    With $U^T M = 0$, the algebraic equations stay true, $U^T (f_t + f_y \dot y) = 0$, which with the rows of the others
    makes one system, $(M + U U^T f_y) \dot y = (1 - U U^T) f - U U^T f_t$.

    Args:
        field: The vector field.
        t: The time.
        y: The state.
        mass: The mass matrix, or None for the identity.
    """
    if mass is None:
        return field(t, y)
    x = flattened(y)
    matrix, left = jnp.asarray(mass.matrix, x.dtype), jnp.asarray(mass.null_spaces[0], x.dtype)
    product = functools.partial(jnp.matmul, precision="highest")

    def flat(t, x):
        return flattened(field(t, unflattened(x, y)))

    def algebraic(v):
        return product(left, product(left.T, v))

    if not left.shape[1]:
        return unflattened(jnp.linalg.solve(match(matrix, x), flat(t, x)), y)
    t = jnp.asarray(t)
    value, by_time = jax.jvp(lambda t: flat(t, x), (t,), (jnp.ones_like(t),))
    along = jax.linearize(lambda x: flat(t, x), x)[1]
    jacobian = jax.vmap(along, out_axes=1)(match(jnp.eye(x.size, dtype=x.dtype), x))
    right = value - algebraic(value) - algebraic(by_time)
    return unflattened(jnp.linalg.solve(match(matrix, x) + algebraic(jacobian), right), y)
