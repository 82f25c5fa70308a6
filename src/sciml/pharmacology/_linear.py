r"""Linear compartments in closed form: exponentials of matrices of rates, and responses to constant inputs.

Amounts obey $\dot x = K x + r$. Over an interval $h$ with constant $K$ and $r$

$$x(t + h) = e^{K h} x(t) + \Big( \int_0^h e^{K s} ds \Big) r$$

Both matrices come from a power series for a short interval, which is doubled. Off the diagonal $K$ has no negative
entry, so the doublings add and multiply positive numbers: small amounts keep their digits and stay positive. The
functions are smooth where eigenvalues are equal, such as a rate of absorption that equals one of elimination, because
no eigenvalue is computed.

Matrices have the batch as their last axis, over which a program for CPUs is vectorised.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_DOUBLINGS = 20
"""The length of the longest interval, as a power of two, in units in which the first norm of the rates is one."""

_BLOCKS = 5
"""The degree of the power series is four times this, minus one: its remainder for a norm of one is 1 / 21!."""


def product(a: Float[Array, "n n *#rows"], b: Float[Array, "n n *#rows"]) -> Float[Array, "n n *#rows"]:
    """Returns products of matrices of each row."""
    return sum(a[:, k, None] * b[None, k] for k in range(a.shape[1]))  # type: ignore[return-value]


def applied(matrix: Float[Array, "n n *#rows"], vector: Float[Array, "n *#rows"]) -> Float[Array, "n *#rows"]:
    """Returns products of a matrix and a vector of each row."""
    return sum(matrix[:, k] * vector[None, k] for k in range(matrix.shape[1]))  # type: ignore[return-value]


def propagators(
    rates: Float[Array, "n n #rows"], times: Float[Array, " rows"]
) -> tuple[Float[Array, "n n rows"], Float[Array, "n n rows"]]:
    r"""Returns $e^{K t}$ and $\int_0^t e^{K s} ds$.

    They are NaN for negative times, and beyond $2^{20}$ units of time in which the rates are of size one: the rounding
    of the doublings grows with the interval.

    Args:
        rates: $K$ of each row, or one matrix with a last axis of length one.
        times: $t$ of each row.
    """
    n = rates.shape[0]
    size = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(rates), axis=0), axis=0) * times)
    count = jnp.ceil(jnp.log2(jnp.where(size > 1, size, 1))).astype(jnp.int32)
    good = (size >= 0) & (size <= 2.0**_DOUBLINGS)
    count = jnp.where(good, count, 0)
    short = jnp.ldexp(jnp.where(good, times, 0), -count)
    short = short[None, None]
    small = rates * short
    unit = jnp.broadcast_to(jnp.eye(n, dtype=small.dtype)[..., None], small.shape)

    # the powers by the method of Paterson and Stockmeyer, sum_k small^k / (k + 1)!
    powers = [unit, small]
    for _ in range(3):
        powers.append(product(powers[-1], small))
    factors = [1.0]
    for k in range(2, 4 * _BLOCKS + 1):
        factors.append(factors[-1] / k)
    mean = jnp.zeros_like(small)
    for block in reversed(range(_BLOCKS)):
        mean = product(mean, powers[4]) if block < _BLOCKS - 1 else mean
        mean = mean + sum(factors[4 * block + i] * powers[i] for i in range(4))

    def double(carry: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        decay, mass = carry
        new = product(decay, decay), mass + product(decay, mass)
        return jax.tree.map(lambda a, b: jnp.where(i < count, a, b), new, carry), None

    first = unit + product(small, mean), mean * short
    (decay, mass), _ = jax.lax.scan(double, first, jnp.arange(_DOUBLINGS, dtype=jnp.int32))
    return jnp.where(good, decay, jnp.nan), jnp.where(good, mass, jnp.nan)


def periodic(decay: Float[Array, "n n"], gained: Float[Array, " n"]) -> Float[Array, " n"]:
    r"""Returns the amounts $x = E x + g$ that a period reproduces, of decay $E$ over a period and $g$ gained in it.

    $I - E$ has no positive entry off the diagonal, and columns of a positive sum: elimination without pivots is stable.
    """
    n = gained.shape[0]
    rows = [jnp.append(-decay[i], gained[i]).at[i].add(1) for i in range(n)]
    for k in range(n):
        rows[k] = rows[k] / rows[k][k]
        rows = [row if i == k else row - row[k] * rows[k] for i, row in enumerate(rows)]
    return jnp.stack([row[n] for row in rows])
