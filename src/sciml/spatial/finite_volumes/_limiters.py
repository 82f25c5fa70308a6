r"""Limited slopes: functions of the differences to both neighbours.

Each is zero at an extremum, so that a reconstruction makes no new ones, and between the two differences elsewhere.

Source:
    B. van Leer, J. Comput. Phys. 14:361, 1974 and 23:276, 1977; P. L. Roe, Annu. Rev. Fluid Mech. 18:337, 1986.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float


def minmod(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the smaller of two differences, the most diffusive of the limited slopes.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.
    """
    return jnp.maximum(jnp.minimum(behind, ahead), jnp.minimum(jnp.maximum(behind, ahead), jnp.zeros_like(behind)))


def van_leer(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the harmonic mean of two differences: smooth, between `minmod` and `monotonized_central`.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.
    """
    product, total = behind * ahead, behind + ahead
    counts = product > 0
    return jnp.where(counts, 2 * product / jnp.where(counts, total, jnp.ones_like(total)), jnp.zeros_like(total))


def monotonized_central(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the mean of two differences, at most twice either: the least diffusive of these.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.
    """
    return minmod((behind + ahead) / 2, 2 * minmod(behind, ahead))


LIMITERS = {"minmod": minmod, "van_leer": van_leer, "monotonized_central": monotonized_central}


def as_limiter(limiter: Any) -> Callable[[Array, Array], Array]:
    """Returns the function that a limiter is given as, by name or itself.

    Raises:
        ValueError: If there is no limiter of this name.
        TypeError: If it is neither a name nor a function.
    """
    if isinstance(limiter, str):
        if limiter not in LIMITERS:
            raise ValueError(f"`limiter` must be one of {', '.join(map(repr, LIMITERS))}, but got {limiter!r}.")
        return LIMITERS[limiter]
    if not callable(limiter):
        raise TypeError(
            f"`limiter` must be a function of two differences or a name such as 'van_leer', but got {limiter!r}."
        )
    return limiter
