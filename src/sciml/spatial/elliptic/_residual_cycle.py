r"""A cycle through the levels whose every correction is as long as the residual asks for.

Sweeps of Gauss-Seidel, and corrections from a coarse grid, diverge where an operator is indefinite: between waves and
the unknowns of a level that are too few for them. Here a correction $z$ is taken times the number $\alpha$ that makes
$|r - \alpha A z|$ least. So no residual grows, and what a level cannot do it leaves alone. That depends on the residual
as no linear function does: the method around it has to be flexible.

Source: H. C. Elman, O. G. Ernst, D. P. O'Leary, SIAM J. Sci. Comput. 23:1291, 2001; Y. Notay, P. S. Vassilevski, Numer.
Linear Algebra Appl. 15:473, 2008.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import scan
from ._coarsening import prolong, restrict
from ._couplings import AbstractCouplings, inverse
from ._cycles import Hierarchy, Level


def residual_cycle(hierarchy: Hierarchy, f: Array, sweeps: int = 3, visits: int = 2) -> Array:
    """Returns an approximate solution on the finest level, from zero.

    Args:
        hierarchy: The levels, of a real or complex operator.
        f: The right-hand side.
        sweeps: The corrections by the diagonal before and after that from the coarse level.
        visits: How often every level visits the next one.
    """
    return _descend(hierarchy.levels, hierarchy, f, sweeps, visits)


def _descend(levels: Sequence[Level], hierarchy: Hierarchy, f: Array, sweeps: int, visits: int) -> Array:
    if not levels:
        return (hierarchy.inverse @ f.reshape(-1)).reshape(f.shape)
    level = levels[0]
    operator = level.operator
    reciprocal = inverse(operator.diagonal())

    def sweep(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        return _corrected(operator, *now, reciprocal * now[1]), None

    def visit(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        below = _descend(levels[1:], hierarchy, restrict(now[1], level.transfers), sweeps, visits)
        return _corrected(operator, *now, prolong(below, level.transfers)), None

    like = (hierarchy, f)
    now, _ = scan(sweep, (jnp.zeros_like(f), f), length=sweeps, like=like)
    now, _ = scan(visit, now, length=visits if levels[1:] else 1, like=like)
    now, _ = scan(sweep, now, length=sweeps, like=like)
    return now[0]


def _corrected(operator: AbstractCouplings, u: Array, residual: Array, z: Array) -> tuple[Array, Array]:
    """A field and its residual after a correction, times the number that makes the residual least."""
    product = operator(z)
    size = jnp.sum(jnp.real(product) ** 2 + jnp.imag(product) ** 2)
    length = jnp.vdot(product, residual) / jnp.where(size == 0, jnp.ones_like(size), size).astype(residual.dtype)
    return u + length * z, residual - length * product
