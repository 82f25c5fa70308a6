"""The Green's function of advection and diffusion."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def heat_kernel(
    coordinates: Sequence[Float[Array, "..."]],
    t: RealScalarLike,
    diffusivity: RealScalarLike | Sequence[RealScalarLike] | Float[Array, " ndim"] = 1.0,
    velocity: RealScalarLike | Sequence[RealScalarLike] | Float[Array, " ndim"] = 0.0,
) -> Float[Array, "..."]:
    r"""Returns what has become of one unit at the origin: the Green's function of $u_t + v \cdot \nabla u = D \nabla^2 u$.

    $$u = \prod_i \frac{1}{\sqrt{4 \pi D_i t}} \exp\left(-\frac{(x_i - v_i t)^2}{4 D_i t}\right)$$

    From the time $t_0$ on it is an exact solution that starts as a Gaussian pulse of the variance $2 D t_0$. It fills
    all of space, and serves a box as long as it is small at the walls.

    Args:
        coordinates: The places, one array for each axis that broadcasts against the others, such as `grid.centers`.
        t: The time, positive.
        diffusivity: $D$, a number or one for each axis.
        velocity: $v$, a number or one for each axis.

    Raises:
        ValueError: If there is not one diffusivity or velocity for each axis.

    Source:
        J. Crank, The Mathematics of Diffusion, Oxford, 1975.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify
        from sciml.spatial import Grid

        grid = Grid((64, 64), -4.0, 4.0)
        u = verify.reference("heat_kernel", grid.centers, 0.5, velocity=(1.0, -0.5))
        assert abs(grid.integrate(u) - 1.0) < 1e-3
        ```
    """  # noqa: E501
    dtype = jnp.result_type(*coordinates)
    each = [
        jnp.broadcast_to(_one_each(v, len(coordinates), n), (len(coordinates),)).astype(dtype)
        for v, n in ((diffusivity, "diffusivity"), (velocity, "velocity"))
    ]
    time = jnp.asarray(t, dtype)
    result = jnp.ones((), dtype)
    for i, x in enumerate(coordinates):
        spread = 4 * each[0][i] * time
        result = result * jnp.exp(-jnp.square(x - each[1][i] * time) / spread) / jnp.sqrt(jnp.pi * spread)
    return result


def _one_each(value: Any, ndim: int, name: str) -> Array:
    found = jnp.asarray(value)
    if found.shape not in ((), (ndim,)):
        raise ValueError(f"`{name}` must be a number or one for each of {ndim} axes, but has shape {found.shape}.")
    return found
