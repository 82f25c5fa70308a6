"""Integrals over a few free variables by Laplace's method and by Gauss-Hermite quadrature about the maximum."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._derivatives import hessian_of
from ._peak import peak_of
from ._positive import cholesky, solve_lower


def curvature_at(function: Callable[[Array], Array], z: Float[Array, " q"]) -> Float[Array, "q q"]:
    """Returns minus the Hessian."""
    return -hessian_of(function, z)(z)


def log_integral(
    function: Callable[[Array], Array],
    start: Float[Array, " q"],
    nodes: int,
    curvature: Callable[[Array], Array] | None = None,
) -> Float[Array, ""]:
    r"""Returns $\log \int e^{f(z)} dz$ by Gauss-Hermite quadrature about the maximum; one node is Laplace's method.

    With $B = L L^T$ at the maximum $z^*$ and $z = z^* + \sqrt 2\, L^{-T} x$ the integral is
    $\frac{2^{q/2}}{\det L} \sum_k w_k e^{x_k^2} e^{f(z_k)}$ over nodes $x_k$ and weights $w_k$ for $e^{-x^2}$. It is
    NaN where there is no maximum, with derivatives of zero where those of the function are finite.

    Args:
        function: $f$.
        start: Where the search for the maximum begins.
        nodes: The number of nodes along each axis; $q$ axes take this number to the power of $q$.
        curvature: $B(z)$, a positive matrix near minus the Hessian; that itself by default.
    """
    z, good = peak_of(function, start, curvature)
    matrix = curvature_at(function, z) if curvature is None else curvature(z)
    good = good & jnp.all(jnp.isfinite(matrix))
    # what has no maximum has a curvature that may have no factor either, whose derivatives would be NaN
    factor = cholesky(jnp.where(good, matrix, jnp.eye(z.size, dtype=z.dtype)))
    size = jnp.sum(jnp.log(jnp.diagonal(factor)))
    x, log_w = _rule(nodes, z.size)

    def at_node(x: Array) -> Array:
        return function(z + float(np.sqrt(2)) * solve_lower(factor, x, transposed=True))

    values = jax.vmap(at_node)(jnp.asarray(x, z.dtype)) if nodes > 1 else function(z)[None]
    total = jax.scipy.special.logsumexp(values + jnp.asarray(log_w, z.dtype))
    return jnp.where(good, total - size + 0.5 * z.size * float(np.log(2)), jnp.nan)


def _rule(nodes: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes, shape `(nodes**q, q)`, and the logarithms of their weights times $e^{x^2}$."""
    x, w = np.polynomial.hermite.hermgauss(nodes)
    points = np.array(list(itertools.product(x, repeat=q))).reshape(-1, q)
    weights = np.array(list(itertools.product(np.log(w) + x**2, repeat=q))).reshape(-1, q)
    return points, weights.sum(axis=1)
