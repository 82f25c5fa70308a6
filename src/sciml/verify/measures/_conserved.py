"""How well a solution keeps what should be constant."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._jax._largest import largest
from ..._types import RealScalarLike, Y


def conserved(
    quantity: Callable[[Y], Array], trajectory: Y, *, scale: RealScalarLike | None = None
) -> Float[Array, ""]:
    r"""Returns the largest relative drift $\max_n |Q(y_n) - Q(y_0)| / |Q(y_0)|$.

    Args:
        quantity: What should be constant, a function of one state, such as `Kepler().energy`. For a
            vector the largest elements count.
        trajectory: States, time first on every leaf, such as `sol.ys`.
        scale: What to divide by instead of $|Q(y_0)|$, for a quantity that is nearly zero at the start, such as the
            mass of a field of mean zero.

    Returns:
        The drift; zero where nothing changes, infinite if what was zero changes, NaN if a state has a NaN.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import verify

        problem = verify.problem("kepler", eccentricity=0.3)
        orbit = jax.vmap(problem.solution)(jnp.linspace(0.0, 6.0, 7))
        assert verify.conserved(problem.model.energy, orbit) < 1e-5
        ```
    """
    values = jax.vmap(quantity)(trajectory)
    size = jnp.max(jnp.abs(values[0])) if scale is None else jnp.asarray(scale, values.dtype)
    drift = largest(jnp.abs(values - values[:1]))
    return jnp.where(drift == 0, drift, drift / size)
