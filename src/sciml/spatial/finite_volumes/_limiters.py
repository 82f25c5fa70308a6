r"""Limited slopes: functions of the differences to both neighbours.

Each is zero at an extremum, so that a reconstruction makes no new ones, and between the two differences elsewhere.

Source:
    B. van Leer, J. Comput. Phys. 14:361, 1974 and 23:276, 1977; P. L. Roe, Annu. Rev. Fluid Mech. 18:337, 1986.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def minmod(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the smaller of two differences, the most diffusive of the limited slopes.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import minmod

        assert minmod(jnp.array(1.0), jnp.array(3.0)) == 1.0
        assert minmod(jnp.array(1.0), jnp.array(-3.0)) == 0.0
        ```
    """
    return jnp.maximum(jnp.minimum(behind, ahead), jnp.minimum(jnp.maximum(behind, ahead), jnp.zeros_like(behind)))


def van_leer(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the harmonic mean of two differences: smooth, between `minmod` and `monotonized_central`.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import van_leer

        assert van_leer(jnp.array(1.0), jnp.array(3.0)) == 1.5
        ```
    """
    product, total = behind * ahead, behind + ahead
    counts = product > 0
    return jnp.where(counts, 2 * product / jnp.where(counts, total, jnp.ones_like(total)), jnp.zeros_like(total))


def monotonized_central(behind: Float[Array, "..."], ahead: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns the mean of two differences, at most twice either: the least diffusive of these.

    Args:
        behind: The difference to the neighbour behind.
        ahead: That to the neighbour ahead.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import monotonized_central

        assert monotonized_central(jnp.array(1.0), jnp.array(2.0)) == 1.5
        assert monotonized_central(jnp.array(1.0), jnp.array(9.0)) == 2.0
        ```
    """
    return minmod((behind + ahead) / 2, 2 * minmod(behind, ahead))
