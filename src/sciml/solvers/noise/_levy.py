r"""Levy areas of several Brownian motions, which a step of strong order 1 needs if noise does not commute.

Over an interval from $s$ to $t$,

$$A_{ij} = \tfrac12 \int_s^t (W^i_r - W^i_s) \, dW^j_r - (W^j_r - W^j_s) \, dW^i_r.$$

With the coefficients $\xi_k$ of a path of length $h$ in Legendre polynomials, all normal, $W = \sqrt h \, \xi_0$,
$H = -\sqrt{h / 12} \, \xi_1$ and

$$A_{ij} = \sum_{k \ge 0} \frac{h}{2 \sqrt{(2 k + 1)(2 k + 3)}} (\xi^i_k \xi^j_{k + 1} - \xi^i_{k + 1} \xi^j_k).$$

The first terms are taken, and the rest as a normal number of its variance, $h^2 / (4 (2 n + 1))$ after $n$ terms. The
law of $A$ is then off by 0.006 in its characteristic function. Areas of longer intervals are sums by Chen's relation,
$A(s, u) = A(s, t) + A(t, u) + \tfrac12 W(s, t) \wedge W(t, u)$, so they do not depend on the steps, and are nearer to
the exact law.

Source:
    K. Habermann, J. Foster, Brownian bridge expansions for Levy area approximations and particular values of the
    Riemann zeta function, Combinatorics, Probability and Computing 32 (2023) 370. Chen's relation with variable steps:
    J. G. Gaines, T. J. Lyons, Variable step size control in the numerical solution of stochastic differential
    equations, SIAM Journal on Applied Mathematics 57 (1997) 1455.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

TERMS = 3
"""The number of terms of the expansion for a single step. Sums of areas need one: they have the law of sums."""


def wedge(a: Float[Array, " m"], b: Float[Array, " m"]) -> Float[Array, "m m"]:
    r"""Returns $a_i b_j - a_j b_i$."""
    product = a[:, None] * b[None, :]
    return product - product.T


def numbers_for(count: int, terms: int = TERMS) -> int:
    """Returns how many normal numbers the areas of some Brownian motions take, in addition to $W$ and $H$."""
    return (terms - 1) * count + count * (count - 1) // 2


def area_of(w: Array, area: Array, numbers: Array, root: Array, terms: int = TERMS) -> Float[Array, "m m"]:
    """Returns the Levy areas over an interval.

    Args:
        w: The increments.
        area: The space-time Levy areas.
        numbers: Independent normal numbers, see `numbers_for`.
        root: The root of the length of the interval.
        terms: The number of terms of the expansion.
    """
    count = w.shape[0]
    found, last = wedge(area, w), -math.sqrt(12) * area  # of the size of the root, like the following ones
    for k in range(1, terms):
        following = root * numbers[(k - 1) * count : k * count]
        found = found + wedge(last, following) / (2 * math.sqrt((2 * k + 1) * (2 * k + 3)))
        last = following
    rest = numbers[(terms - 1) * count :] * (root**2 / math.sqrt(4 * (2 * terms + 1)))
    rows, start = [], 0
    for i in range(count):  # those of an upper triangle
        following = rest[start : start + count - 1 - i]
        rows.append(jnp.concatenate([jnp.zeros(i + 1, w.dtype), following]))
        start += count - 1 - i
    upper = jnp.stack(rows)
    return found + upper - upper.T


def joined(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """Returns increments and areas over an interval and one that follows, by Chen's relation."""
    return first[0] + second[0], first[1] + second[1] + 0.5 * wedge(first[0], second[0])
