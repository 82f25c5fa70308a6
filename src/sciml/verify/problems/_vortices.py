"""Exact solutions of incompressible flow: vortices that decay."""

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._types import RealScalarLike
from ...models import Vorticity
from ._problem import Problem, elapsed, floating


def taylor_green_flow(
    x: Float[Array, "..."],
    y: Float[Array, "..."],
    t: float | Array = 0.0,
    *,
    viscosity: float | Array = 0.05,
    waves: int = 1,
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    r"""Returns velocity and pressure of the vortices of Taylor and Green in the plane.

    $$u = -\cos k x \sin k y\, e^{-2 \nu k^2 t}, \quad v = \sin k x \cos k y\, e^{-2 \nu k^2 t}, \quad
      p = -\tfrac14 (\cos 2 k x + \cos 2 k y)\, e^{-4 \nu k^2 t}$$

    Args:
        x: Along the first axis.
        y: Along the second; it broadcasts against `x`.
        t: The time.
        viscosity: $\nu$.
        waves: $k$, an integer for a box of length $2 \pi$.

    Returns:
        Both components of the velocity, and the pressure over the density.

    Source:
        G. I. Taylor, A. E. Green, Proc. R. Soc. A 158:499, 1937.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u, v, p = verify.reference("taylor_green_flow", jnp.zeros(1), jnp.full(1, jnp.pi / 2), 1.0, viscosity=0.5)
        assert abs(u[0] + jnp.exp(-1.0)) < 1e-6 and abs(v[0]) < 1e-6
        ```
    """
    dtype = jnp.result_type(x, y)
    decay = jnp.exp(-2 * waves**2 * jnp.asarray(viscosity, dtype) * jnp.asarray(t, dtype))
    x, y = waves * x, waves * y
    u, v = -jnp.cos(x) * jnp.sin(y) * decay, jnp.sin(x) * jnp.cos(y) * decay
    return u, v, -(jnp.cos(2 * x) + jnp.cos(2 * y)) / 4 * decay**2


def beltrami_flow(
    x: Float[Array, "..."],
    y: Float[Array, "..."],
    z: Float[Array, "..."],
    t: float | Array = 0.0,
    *,
    viscosity: float | Array = 0.05,
    amplitudes: tuple[float, float, float] = (1.0, 0.8, 0.6),
) -> Float[Array, "3 ..."]:
    r"""Returns the flow of Arnold, Beltrami and Childress, whose vorticity is its velocity, in three dimensions.

    $$u = \begin{pmatrix} A \sin z + C \cos y \\ B \sin x + A \cos z \\ C \sin y + B \cos x \end{pmatrix} e^{-\nu t}$$

    All of its transport is balanced by the pressure, so that it decays as it is: an exact solution of the Navier-Stokes
    equations whose transport is not zero, in a periodic box of length $2 \pi$.

    Args:
        x: Along the first axis.
        y: Along the second.
        z: Along the third; all three broadcast.
        t: The time.
        viscosity: $\nu$.
        amplitudes: $A$, $B$ and $C$.

    Source:
        T. Dombre et al., Chaotic streamlines in the ABC flows, J. Fluid Mech. 167:353, 1986.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("beltrami_flow", jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
        assert jnp.allclose(u[:, 0], jnp.array([0.6, 1.0, 0.8]))
        ```
    """
    dtype = jnp.result_type(x, y, z)
    a, b, c = amplitudes
    decay = jnp.exp(-jnp.asarray(viscosity, dtype) * jnp.asarray(t, dtype))
    parts = (a * jnp.sin(z) + c * jnp.cos(y), b * jnp.sin(x) + a * jnp.cos(z), c * jnp.sin(y) + b * jnp.cos(x))
    shape = jnp.broadcast_shapes(x.shape, y.shape, z.shape)
    return jnp.stack([jnp.broadcast_to(part, shape) for part in parts]) * decay


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

        problem = verify.problem("taylor_green_vortex")
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
