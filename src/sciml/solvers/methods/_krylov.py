r"""The functions $\varphi_k$ of a matrix times a vector: of the whole matrix, or of what it is on a Krylov space.

With $Q^T J Q = H$ on the space of $v, J v, J^2 v, \dots$ and $v = Q b$,

$$\varphi_k(h J) v \approx Q \varphi_k(h H) b, \qquad
  \text{missing about } h\, \beta\, e_m^T \varphi_{k+1}(h H) b\; q_{m+1},$$

with $\beta$ the norm of what $J q_m$ has outside of the space, and $q_{m+1}$ its direction. All $\varphi_k(h H) b$
are in one exponential,

$$\exp \begin{pmatrix} h H & b e_1^T \\ 0 & N \end{pmatrix}
  = \begin{pmatrix} \exp(h H) & \varphi_1(h H) b & \varphi_2(h H) b & \cdots \\ 0 & & \exp N & \end{pmatrix},$$

with $N$ the shift by one.

Source:
    Y. Saad, SIAM J. Numer. Anal. 29 (1992), doi:10.1137/0729014; R. B. Sidje, Expokit, ACM Trans. Math. Softw. 24
    (1998).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._jax._loops import scan
from ..._jax._vma import match

_BREAKDOWN = 2 / 3
"""A direction that is shorter than this power of the rounding, relative to what it was computed from, is none."""

_SQUARINGS = 33
"""An exponential is squared so often at most: a step times an eigenvalue may be some 1e9. As a loop: lanes write out
shorter ones."""

_TERMS = 15
"""Terms of the series of an exponential of a matrix of norm one half, to rounding in float64."""


class Space(NamedTuple):
    """A vector, and a matrix on a space with it.

    Attributes:
        basis: The rows $q_i$; None for the whole space.
        matrix: $H$.
        vector: $b$.
        beyond: What the matrix makes of the last row, as far as it is outside of the space; None where nothing is.
    """

    basis: Float[Array, "m n"] | None
    matrix: Float[Array, "m m"]
    vector: Float[Array, " m"]
    beyond: Float[Array, " n"] | None

    def phi(self, h: Array, most: int) -> list[Float[Array, " n"]]:
        r"""Returns $\varphi_1(h J) v$ to the one of number `most`, and behind these what each of them misses."""
        return self._parts(h, exponential(self._whole(h, most)), most)

    def phi_of_half_and_whole(self, h: Array) -> tuple[Float[Array, " n"], list[Float[Array, " n"]]]:
        r"""Returns $\varphi_1(\frac h2 J) v$, and $\varphi_1(h J) v$ with what it misses."""
        half = exponential(self._whole(h, 1) / 2)
        values = 2 * self._parts(h / 2, half, 1)[0]  # of half of the vector
        return values, self._parts(h, jnp.matmul(half, half, precision="highest"), 1)

    def _whole(self, h: Array, most: int) -> Float[Array, "k k"]:
        """The matrix whose exponential holds the functions."""
        m, count = self.vector.shape[0], most + (self.basis is not None)
        block = jnp.zeros((m, count), self.matrix.dtype).at[:, 0].set(self.vector)
        shift = match(jnp.eye(count, k=1, dtype=self.matrix.dtype), self.vector)
        upper = jnp.concatenate([h.astype(self.matrix.dtype) * self.matrix, match(block, self.vector)], axis=1)
        lower = jnp.concatenate([jnp.zeros_like(block.T), shift], axis=1)
        return jnp.concatenate([upper, match(lower, self.vector)])

    def _parts(self, h: Array, found: Float[Array, "k k"], most: int) -> list[Float[Array, " n"]]:
        m = self.vector.shape[0]
        columns = found[:m, m:].T
        if self.basis is None or self.beyond is None:
            return [*columns, *(jnp.zeros_like(c) for c in columns)]
        values = [jnp.matmul(c, self.basis, precision="highest") for c in columns[:most]]
        return [*values, *(h.astype(c.dtype) * c[-1] * self.beyond for c in columns[1:])]


def exponential(a: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Returns the exponential of a matrix, by its series and squaring; NaN where its norm is beyond 2**32.

    Its program is a tenth of that of `jax.scipy.linalg.expm`, and it is differentiated in either mode.
    """
    norm = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(a), axis=0)))
    _, exponent = jnp.frexp(norm)
    count = jnp.clip(exponent + 1, 0, _SQUARINGS)
    small = a * jnp.where(exponent < _SQUARINGS, jnp.exp2(-count.astype(a.dtype)), jnp.full_like(norm, jnp.nan))
    unit = match(jnp.eye(a.shape[0], dtype=a.dtype), a)

    def add(total: Array, number: Array) -> tuple[Array, None]:
        return unit + jnp.matmul(small, total, precision="highest") / number, None

    def square(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        x, left = carry
        x = jax.lax.cond(left > 0, lambda x: jnp.matmul(x, x, precision="highest"), lambda x: x, x)
        return (x, left - 1), None

    total, _ = scan(add, unit, jnp.arange(_TERMS, 0, -1, dtype=a.dtype), like=a)
    return scan(square, (total, count), length=_SQUARINGS, like=a)[0][0]


def krylov_space(along: Callable[[Array], Array], vector: Float[Array, " n"], size: int) -> Space:
    """Returns the space of a vector and of products with it, by Arnoldi's iteration.

    Args:
        along: The product with the matrix.
        vector: The vector.
        size: The number of dimensions, fewer than the vector has.
    """
    length, first = _normalised(vector, jnp.linalg.norm(jax.lax.stop_gradient(vector)))
    basis = jnp.zeros((size, vector.shape[0]), vector.dtype)

    def extend(carry: tuple, number: Array) -> tuple:
        basis, direction = carry
        basis = basis.at[number].set(direction)
        product = along(direction)
        rest, column = product, jnp.zeros((size,), vector.dtype)
        for _ in range(2):  # once leaves what rounding adds
            more = jnp.matmul(basis, rest, precision="highest")
            rest, column = rest - jnp.matmul(more, basis, precision="highest"), column + more
        outside, direction = _normalised(rest, jnp.linalg.norm(jax.lax.stop_gradient(product)))
        return (basis, direction), (column, outside, rest)

    start = match((basis, first), (vector, first))
    numbers = jnp.arange(size)
    (basis, _), (columns, outside, rests) = scan(extend, start, numbers, like=vector)
    below = jnp.concatenate([jnp.diag(outside[:-1]), jnp.zeros((size - 1, 1), vector.dtype)], axis=1)
    matrix = columns.T + jnp.concatenate([jnp.zeros((1, size), vector.dtype), below])
    unit = jnp.zeros((size,), vector.dtype).at[0].set(1.0)
    return Space(basis, matrix, length * unit, rests[-1])


def _normalised(x: Float[Array, " n"], of: Array) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """Returns length and direction of a vector; zero where it is rounding of something of length `of`."""
    square = jnp.sum(x * x)
    there = jnp.sqrt(jax.lax.stop_gradient(square)) > float(jnp.finfo(x.dtype).eps) ** _BREAKDOWN * of
    length = jnp.sqrt(jnp.where(there, square, jnp.ones_like(square)))
    return jnp.where(there, length, jnp.zeros_like(length)), jnp.where(there, x / length, jnp.zeros_like(x))


def whole_space(matrix: Float[Array, "n n"], vector: Float[Array, " n"]) -> Space:
    """Returns a matrix as it is."""
    return Space(None, matrix, vector, None)


def jacobian_of(along: Callable[[Array], Array], x: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Returns a matrix by its products with all unit vectors."""
    return jax.vmap(along, out_axes=1)(match(jnp.asarray(np.eye(x.shape[0]), x.dtype), x))
