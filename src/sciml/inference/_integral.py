"""Integrals over a few free variables by Laplace's method and by Gauss-Hermite quadrature about the maximum."""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float

from ._derivatives import gradient_of, hessian_of, needs_forward_rule, with_forward_rule

# BFGS goes near, and Newton's steps, which the derivatives are of, go on to rounding.
_NEAR = 1e-3
_MOST_STEPS = 100
_NEWTON_STEPS = 8


def peak_of(function: Callable[[Array], Array], start: Float[Array, " q"]) -> Float[Array, " q"]:
    r"""Returns the maximum of a function, differentiable by what the function closes over.

    At the maximum $g(z^*, \theta) = 0$ for the gradient $g$, so that $dz^* = -H^{-1}\, \partial_\theta g \, d\theta$
    with its Jacobian $H$: optimistix's implicit differentiation.
    """
    closed = eqx.filter_closure_convert(function, start)
    constants, static = eqx.partition(closed, eqx.is_array)
    frozen_function = eqx.combine(jax.lax.stop_gradient(constants), static)
    if needs_forward_rule(frozen_function, start):
        frozen_function = with_forward_rule(frozen_function)
    near = optimistix.minimise(
        lambda z, _: -_finite(frozen_function(z)),
        optimistix.BFGS(_NEAR, _NEAR),
        start,
        max_steps=_MOST_STEPS,
        throw=False,
    ).value
    near = jax.lax.stop_gradient(near)
    gradient = gradient_of(function, start)
    tolerance = 1e-10 if jnp.finfo(start.dtype).bits == 64 else 1e-5
    return optimistix.root_find(
        lambda z, _: gradient(z),
        optimistix.Newton(tolerance, tolerance),
        near,
        max_steps=_NEWTON_STEPS,
        throw=False,
    ).value


def _finite(x: Array) -> Array:
    return jnp.where(jnp.isnan(x), -jnp.inf, x)


def curvature_at(function: Callable[[Array], Array], z: Float[Array, " q"]) -> Float[Array, "q q"]:
    """Returns minus the Hessian."""
    return -hessian_of(function, z)(z)


def log_integral(function: Callable[[Array], Array], start: Float[Array, " q"], nodes: int) -> Float[Array, ""]:
    r"""Returns $\log \int e^{f(z)} dz$ by Gauss-Hermite quadrature about the maximum; one node is Laplace's method.

    With $-H = L L^T$ at the maximum $z^*$ and $z = z^* + \sqrt 2\, L^{-T} x$ the integral is
    $\frac{2^{q/2}}{\det L} \sum_k w_k e^{x_k^2} e^{f(z_k)}$ over nodes $x_k$ and weights $w_k$ for $e^{-x^2}$.

    Args:
        function: $f$.
        start: Where the search for the maximum begins.
        nodes: The number of nodes along each axis; $q$ axes take this number to the power of $q$.
    """
    z = peak_of(function, start)
    factor = jnp.linalg.cholesky(curvature_at(function, z))
    size = jnp.sum(jnp.log(jnp.diagonal(factor)))
    x, log_w = _rule(nodes, z.size)
    steps = jax.scipy.linalg.solve_triangular(factor, jnp.asarray(x.T, z.dtype), lower=True, trans=1).T
    values = jax.vmap(function)(z[None] + float(np.sqrt(2)) * steps) if nodes > 1 else function(z)[None]
    total = jax.scipy.special.logsumexp(values + jnp.asarray(log_w, z.dtype))
    return total - size + 0.5 * z.size * float(np.log(2))


def _rule(nodes: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes, shape `(nodes**q, q)`, and the logarithms of their weights times $e^{x^2}$."""
    x, w = np.polynomial.hermite.hermgauss(nodes)
    points = np.array(list(itertools.product(x, repeat=q))).reshape(-1, q)
    weights = np.array(list(itertools.product(np.log(w) + x**2, repeat=q))).reshape(-1, q)
    return points, weights.sum(axis=1)
