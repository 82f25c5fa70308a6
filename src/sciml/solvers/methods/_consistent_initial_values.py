"""Initial states that satisfy the algebraic equations of a differential-algebraic system."""

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax._largest import largest
from ..._jax._loops import scan
from ..._jax._vma import match
from ..._types import BoolScalarLike, RealScalarLike, Y
from ..linear._dense import DenseMatrix
from ..linear._structure import solve
from ..linear._written_out import SMALL, WrittenOut
from ._mass_matrix import Mass
from ._ravel import flattened, unflattened
from ._stepper import BoundField

_ITERATIONS = 12
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

    With $U^T M = 0$ and $M V = 0$, Newton's method solves $U^T f(t, y + V z) = 0$ for $z$; the differential
    variables keep their values. The iterations are not differentiated, the two steps after them are.
    Each multiplies the number of correct derivatives, so that first and second derivatives are those
    of the implicit function.

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
        structure = WrittenOut(nothing, pivot=True) if z.shape[0] <= SMALL else DenseMatrix(nothing)
        matrix = structure.assemble(along, z, -jnp.ones((), z.dtype))
        return solve(structure, matrix, structure.factorise(jax.lax.stop_gradient(matrix)), value)

    def iterate(z, _):
        return z - correction(z), None

    zero = match(jnp.zeros(right.shape[1], x.dtype), x)
    z, _ = scan(iterate, zero, jnp.arange(_ITERATIONS))
    z = jax.lax.stop_gradient(z)
    # two steps from the root: they move it by rounding alone, and have its first and second derivatives
    z = z - correction(z)
    last = correction(z)
    z = z - last
    x = state(z)
    eps = float(jnp.finfo(x.dtype).eps)
    converged = largest(jnp.abs(last)) <= eps**0.5 * largest(jnp.abs(x))
    return unflattened(x, y), converged
