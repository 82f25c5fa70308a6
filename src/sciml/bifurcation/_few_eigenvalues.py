r"""A few eigenvalues of a large Jacobian, by Krylov spaces of its inverse.

With the factors of $J$, a basis of $V, J^{-1} V, J^{-2} V, \dots$ is computed for a block $V$ of vectors, in which
$J^{-1}$ is a small matrix. Its largest eigenvalues $\mu$ are the eigenvalues $1 / \mu$ of $J$ near zero: at once those
at which stability changes. A block finds multiple eigenvalues, too, which fields on a square have.

Source:
    Y. Saad, Numerical Methods for Large Eigenvalue Problems, revised edition, SIAM (2011), sections 6.5 and 8.1.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._jax._loops import scan, while_loop
from .._jax._vma import match
from ._bordered import Bordered

_MORE = 4
"""How many more vectors a block has than eigenvalues are asked for: random ones, for eigenvectors that are new."""

_BLOCKS = 10
"""How many blocks span the space."""

_ROUNDS = 4
"""How often such a space is built at most, each time from the vectors found before."""

_SEEN = 0.5
"""The largest relative residual of an eigenvalue that there may be; one that is not also resolved is NaN."""


def few_eigenvalues(
    along: Callable[[Array], Array], at: Bordered, near: Float[Array, "count n"]
) -> tuple[Complex[Array, " count"], Float[Array, "count n"]]:
    r"""Returns eigenvalues with the largest real parts, NaN if not resolved, and vectors for the next point.

    A derivative is $w^* \dot J v$ with the right eigenvectors $v$ and the left ones $w$, where $w^* v = 1$. There is no
    second one, since eigenvectors count as constants.

    Args:
        along: The product of the Jacobian and a vector, with its derivatives.
        at: The factors of the Jacobian.
        near: Real vectors that span about the eigenvectors, from a point nearby: eigenvalues far from zero are found by
            them.
    """
    values, vectors, resolved = _rightmost(lambda b: at.structure.substitute(at.factors, b), near)
    after, values = _spanning(values, vectors), jnp.where(resolved, values - at.shift.astype(values.dtype), jnp.nan)
    products = jax.lax.complex(*(jax.vmap(along)(v) for v in (vectors.real, vectors.imag)))
    return _with_derivatives(at.structure, products, values, vectors, at.factors), after


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_derivatives(structure: Any, products: Array, values: Array, vectors: Array, factors: Any) -> Any:
    del structure, products, vectors, factors
    return values


@_with_derivatives.defjvp
def _(structure: Any, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, values, vectors, factors = jax.lax.stop_gradient(primals)
    _, left, _ = _rightmost(lambda b: structure.substitute_transposed(factors, b), _spanning(values, vectors))
    # of a space of left eigenvectors the ones that belong to the right ones
    left, known = _constant(left, primals[0]), jnp.isfinite(values)
    meet = jnp.where(jnp.outer(known, known), left @ vectors.T, jnp.eye(values.size, dtype=left.dtype))
    rates = jnp.diagonal(jnp.linalg.solve(meet, left @ tangents[0].T))
    return values, jnp.where(known, rates, 0)


@jax.custom_jvp
def _constant(left: Array, products: Array) -> Array:
    """Returns eigenvectors, which have no derivative, as long as the Jacobian has none."""
    del products
    return left


@_constant.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    raise NotImplementedError(
        "`continuation` with a number for `eigenvalues` has first derivatives only. Set `eigenvalues=True` for second "
        "ones."
    )


def _rightmost(divided: Callable[[Array], Array], near: Array) -> tuple[Array, Array, Array]:
    """Returns eigenvalues, in rows their eigenvectors, and whether they are resolved."""

    def again(c: tuple) -> tuple:
        return c[0] + 1, *_by_krylov_space(divided, _spanning(*c[1:3]))

    def going(c: tuple) -> Array:
        return (c[0] < _ROUNDS) & ~jnp.all(c[3])

    start = jax.lax.complex(near, jnp.zeros_like(near))
    none = jnp.zeros((), jnp.int32), start[:, 0], start, jnp.zeros(len(near), bool)
    return while_loop(going, again, none, like=near)[1:]


def _spanning(values: Array, vectors: Array) -> Array:
    """Returns real vectors that span pairs of eigenvectors, too."""
    return jnp.where((values.imag < 0)[:, None], vectors.imag, vectors.real)


def _by_krylov_space(divided: Callable[[Array], Array], near: Array) -> tuple[Array, Array, Array]:
    (count, n), dtype = near.shape, near.dtype
    whole = n <= _BLOCKS * (count + _MORE)
    size, blocks = (n, 1) if whole else (count + _MORE, _BLOCKS)
    guess = jnp.asarray(np.random.default_rng(0).normal(size=(n, size - count)), dtype)
    first = jnp.linalg.qr(jnp.concatenate([near.T, match(guess, near)], axis=1))[0].T
    basis = match(jnp.zeros((blocks + 1, size, n), dtype), near).at[0].set(first)
    product = functools.partial(jnp.matmul, precision="highest")

    def extended(basis: Array, number: Array) -> tuple[Array, Array]:
        new, flat = jax.vmap(divided)(basis[number]), basis.reshape(-1, n)
        inside = product(new, flat.T)
        new = new - product(inside, flat)
        again = product(new, flat.T)
        left, right = jnp.linalg.qr((new - product(again, flat)).T)
        inside = (inside + again).reshape(size, blocks + 1, size)
        return basis.at[number + 1].set(left.T), inside.at[:, number + 1].set(right.T).reshape(size, -1)

    basis, parts = scan(extended, basis, jnp.arange(blocks), like=near)
    basis, parts = jax.lax.stop_gradient((basis, parts))
    inner, outer = jnp.split(parts.reshape(blocks * size, -1), [blocks * size], axis=1)
    finite = jnp.all(jnp.isfinite(inner))
    inverses, inside = jnp.linalg.eig(jnp.where(finite, inner, jnp.eye(blocks * size, dtype=dtype)).T)
    rest = jnp.linalg.norm(product(outer.T.astype(inside.dtype), inside), axis=0) / jnp.abs(inverses)
    values = 1 / jnp.where(inverses == 0, 1, inverses)
    chosen = jnp.argsort(jnp.where(rest <= _SEEN, -values.real, jnp.inf))[:count]
    vectors = product(inside.T[chosen], basis[:-1].reshape(-1, n).astype(inside.dtype))
    resolved = finite & (rest[chosen] <= float(jnp.finfo(dtype).eps) ** 0.5)
    return values[chosen], jnp.where(jnp.isfinite(vectors), vectors, 0), resolved
