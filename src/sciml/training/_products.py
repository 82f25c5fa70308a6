"""Products of the curvature of a loss with a vector, by one forward and one reverse mode, without the matrix."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._structure_words import first_difference, structure_words

_P = TypeVar("_P")


def gauss_newton_product(
    residuals: Callable[[_P], PyTree], params: _P, v: _P, *, precision: Callable[[PyTree], PyTree] | PyTree = 1.0
) -> _P:
    r"""Returns $J^T W J v$ with $J = \partial r / \partial p$: the Gauss-Newton matrix of $\tfrac12 r^T W r$ times $v$.

    It is the Hessian of the loss without the curvature of the residuals, and never negative.
    The residuals are linearised once and applied to `v` and, transposed, to the result, so a solve in
    them needs an adjoint with both modes: `sciml.adjoints.Forward()` for few parameters, or
    `sciml.adjoints.Direct()` with fixed steps. A Hessian's own product is `jax.jvp(jax.grad(loss), (p,), (v,))`, which
    `sciml.adjoints.Checkpointed()` allows too.

    With predictions instead of residuals it is the product with the Fisher information: for observations
    $y \sim N(f(p), W^{-1})$ the information is $J^T W J$ with $J = \partial f / \partial p$, and its inverse bounds the
    covariance of unbiased estimates from below. For other distributions $W$ is the Fisher information of the
    predictions.

    Args:
        residuals: `residuals(params)`, a PyTree of floating-point or complex arrays.
        params: The parameters, a PyTree of floating-point arrays.
        v: The vector, with the structure of `params`.
        precision: $W$: one number, arrays that broadcast to the residuals (independent observations, $1 /
            \sigma^2$ for each), or a function that returns $W u$ for `u` like the residuals, linear and symmetric.

    Returns:
        The product, with the structure of `params`.

    Raises:
        ValueError: If `precision` has neither the structure of the residuals nor one leaf.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        ts, data = jnp.linspace(0.1, 1.0, 10), jnp.exp(-2 * jnp.linspace(0.1, 1.0, 10))

        def residuals(rate):
            decay = lambda t, y, args: -rate * y
            options = {"t0": 0.0, "t1": 1.0, "saveat": ts, "adjoint": sciml.adjoints.Forward()}
            return sciml.solve(decay, jnp.ones(()), **options).ys - data

        product = sciml.training.gauss_newton_product(residuals, jnp.array(2.0), jnp.array(1.0))
        assert abs(float(product) - jnp.sum((ts * data) ** 2)) < 1e-3

        line = lambda p: p[0] + p[1] * jnp.arange(4.0)
        fisher = sciml.training.gauss_newton_product(line, jnp.zeros(2), jnp.array([1.0, 0.0]), precision=1 / 0.5**2)
        assert jnp.allclose(fisher, 4 * jnp.array([4.0, 6.0]))
        ```
    """
    _, push = jax.linearize(residuals, params)
    along = push(v)
    back = jax.linear_transpose(push, params)
    # JAX transposes without conjugation, and |r|^2 of a complex residual is the sum over its two parts
    (product,) = back(jax.tree.map(jnp.conj, _weighted(precision, along)))
    return product


def _weighted(precision, u):
    if callable(precision):
        return precision(u)
    leaves, treedef = jax.tree.flatten(u)
    weights = jax.tree.leaves(precision)
    if len(weights) == 1:
        weights = weights * len(leaves)
    elif jax.tree.structure(precision) != treedef:
        raise ValueError(
            f"`precision` must be a number, an array, a function, or a PyTree with the structure of the residuals, "
            f"{structure_words(u)}, but is {structure_words(precision)}.{first_difference(u, precision)}"
        )
    return treedef.unflatten([jnp.asarray(w, x.dtype) * x for w, x in zip(weights, leaves)])
