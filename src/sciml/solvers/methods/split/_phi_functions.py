r"""The functions that exponential integrators are made of.

$$\varphi_0(z) = e^z, \qquad \varphi_{k+1}(z) = \frac{\varphi_k(z) - 1/k!}{z}, \qquad
  \varphi_k(z) = \sum_{n \ge 0} \frac{z^n}{(n + k)!}$$

Near zero the quotient cancels: there the series gives the last function, and the recursion runs down. Elsewhere it
runs up. In both cases the error is a few roundings, in any precision and for any complex $z$; the mean over a circle
(Kassam and Trefethen 2005) takes as many exponentials as the circle has points, and is as accurate.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Inexact

_RADIUS = 2.0


def phi(z: Inexact[Array, "*shape"], most: int) -> list[Inexact[Array, "*shape"]]:
    """Returns the functions of number 0 to `most`, at most 3, each of the shape and dtype of `z`."""
    eps = float(jnp.finfo(z.dtype).eps)
    near = jnp.abs(z) <= _RADIUS
    # each formula gets numbers that it can take: what is not chosen below must not make derivatives NaN
    inner, outer = jnp.where(near, z, jnp.zeros_like(z)), jnp.where(near, jnp.ones_like(z), z)
    up = [jnp.exp(outer)]
    for k in range(most):
        up.append((up[-1] - 1 / math.factorial(k)) / outer)
    terms = next(n for n in range(1, 60) if _RADIUS**n * math.factorial(most) / math.factorial(n + most) < eps / 4)
    series = jnp.full_like(inner, 1 / math.factorial(terms + most))
    for n in reversed(range(terms)):
        series = series * inner + 1 / math.factorial(n + most)
    down = [series]
    for k in reversed(range(most)):
        down.append(down[-1] * inner + 1 / math.factorial(k))
    return [jnp.where(near, a, b) for a, b in zip(reversed(down), up)]
