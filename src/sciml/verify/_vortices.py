"""Exact solutions of two-dimensional incompressible flow."""

import jax.numpy as jnp
from jax.typing import DTypeLike

from .._types import RealScalarLike
from ..models import Vorticity
from ._common import elapsed, floating
from ._problem import Problem


def taylor_green_vortex(
    viscosity: RealScalarLike = 0.05,
    *,
    waves: int = 1,
    points: int = 32,
    t1: RealScalarLike = 1.0,
    dtype: DTypeLike | None = None,
) -> Problem:
    r"""Returns the vortices of Taylor and Green, $\omega = 2 k \cos k x \cos k y\, e^{-2 \nu k^2 t}$, which decay.

    The velocity is $u = (-\cos k x \sin k y, \sin k x \cos k y)\, e^{-2 \nu k^2 t}$, in a periodic box of length
    $2 \pi$, and the mean energy $\tfrac14 e^{-4 \nu k^2 t}$. Transport and pressure cancel, whatever the viscosity.

    Args:
        viscosity: $\nu$.
        waves: $k$, an integer.
        points: The number of points along each axis.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Source:
        G. I. Taylor, A. E. Green, Proc. R. Soc. A 158:499, 1937.

    Example:
        ```python
        from sciml import verify

        problem = verify.taylor_green_vortex()
        assert abs(problem.model.energy(problem.y0) - 0.25) < 1e-6
        ```
    """
    dtype = floating(dtype)
    x = 2 * jnp.pi / points * jnp.arange(points, dtype=dtype)
    wave = jnp.cos(waves * x)
    return Problem(
        model=Vorticity((points, points), viscosity=viscosity),
        y0=2 * waves * wave[:, None] * wave[None, :],
        t0=0.0,
        t1=t1,
        exact=_decayed(2.0 * waves**2),
        accuracy=1e-12,
        name="vortices of Taylor and Green",
        source="exact",
    )


def _decayed(square: float):
    def exact(problem, t):
        dtype = problem.y0.dtype
        rate = square * problem.model.viscosity.astype(dtype) + problem.model.drag.astype(dtype)
        return problem.y0 * jnp.exp(-rate * elapsed(problem, t, dtype))

    return exact
