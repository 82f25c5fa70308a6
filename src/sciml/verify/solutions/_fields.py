"""Exact solutions of equations of diffusion, advection and Burgers, as functions of place and time."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def burgers_series(
    x: Float[Array, "..."], t: RealScalarLike, viscosity: RealScalarLike, *, points: int = 128
) -> Float[Array, "..."]:
    r"""Returns the solution of Burgers' equation from $\sin \pi x$ on $[0, 1]$ with $u = 0$ at both ends.

    By the transformation of Cole and Hopf, with the modified Bessel functions $I_n$ of $z = 1 / 2 \pi \nu$,

    $$u = 4 \pi \nu\, \frac{\sum_{n \ge 1} n\, I_n(z)\, e^{-n^2 \pi^2 \nu t} \sin n \pi x}
    {I_0(z) + 2 \sum_{n \ge 1} I_n(z)\, e^{-n^2 \pi^2 \nu t} \cos n \pi x}$$

    The values $e^{-z} I_n(z)$ are the Fourier coefficients of $e^{z (\cos \theta - 1)}$. `burgers_cole_hopf` is the
    same solution, shifted by 1, by another formula; it also serves small viscosities.

    Args:
        x: Places, any shape.
        t: The time, not negative.
        viscosity: $\nu$, at least about 0.03: below, the denominator loses its digits.
        points: Twice the number of terms.

    Returns:
        $u$ at the places.

    Source:
        J. D. Cole, Quart. Appl. Math. 9:225, 1951.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("burgers_series", jnp.array([0.25, 0.5, 0.75]), 0.25, 1.0)
        assert jnp.allclose(u, jnp.array([0.0592178, 0.0845376, 0.0603471]), atol=1e-5)
        ```
    """
    nu, time = (jnp.asarray(q, x.dtype) for q in (viscosity, t))
    angle = 2 * jnp.pi / points * jnp.arange(points, dtype=x.dtype)
    bessel = jnp.fft.rfft(jnp.exp((jnp.cos(angle) - 1) / (2 * jnp.pi * nu))).real.astype(x.dtype) / points
    n = jnp.arange(bessel.shape[0], dtype=x.dtype)
    terms = bessel * jnp.exp(-jnp.square(n * jnp.pi) * nu * time)
    n, terms = (v.reshape((1,) * x.ndim + (-1,)) for v in (n, terms))
    phase = jnp.pi * n * x[..., None]
    below = 2 * jnp.sum(terms * jnp.cos(phase), axis=-1) - terms.reshape(-1)[0]
    return 4 * jnp.pi * nu * jnp.sum(n * terms * jnp.sin(phase), axis=-1) / below


def heat_kernel(
    coordinates: Sequence[Float[Array, "..."]],
    t: RealScalarLike,
    diffusivity: RealScalarLike | Sequence[RealScalarLike] | Float[Array, " ndim"] = 1.0,
    velocity: RealScalarLike | Sequence[RealScalarLike] | Float[Array, " ndim"] = 0.0,
) -> Float[Array, "..."]:
    r"""Returns the solution for a unit at the origin: the Green's function of $u_t + v \cdot \nabla u = D \nabla^2 u$.

    $$u = \prod_i \frac{1}{\sqrt{4 \pi D_i t}} \exp\left(-\frac{(x_i - v_i t)^2}{4 D_i t}\right)$$

    From the time $t_0$ on it is an exact solution that starts as a Gaussian pulse of the variance $2 D t_0$. It is
    defined in unbounded space, and is valid in a box as long as it is small at the walls.

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


def burgers_cole_hopf(
    x: Float[Array, "..."], t: RealScalarLike, viscosity: RealScalarLike, *, points: int = 100
) -> Float[Array, "..."]:
    r"""Returns the solution of Burgers' equation from $-\sin \pi x$ on $[-1, 1]$ with $u = 0$ at both ends.

    By the transformation of Cole and Hopf,

    $$u = -\frac{\int \sin(\pi (x - \eta))\, f(x - \eta)\, e^{-\eta^2 / 4 \nu t}\, d\eta}
    {\int f(x - \eta)\, e^{-\eta^2 / 4 \nu t}\, d\eta}, \qquad f(y) = e^{-\cos(\pi y) / 2 \pi \nu}$$

    with the integrals by the quadrature of Gauss and Hermite.

    Args:
        x: Places, any shape.
        t: The time, positive.
        viscosity: $\nu$, down to about $0.01 / \pi$.
        points: The points of the quadrature; more where the shock is sharp.

    Returns:
        $u$ at the places.

    Source:
        C. Basdevant et al., Computers & Fluids 14:23, 1986: at $\nu = 0.01/\pi$ the slope at $x = 0$ reaches
        152.00516 at $t = 1.6037 / \pi$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("burgers_cole_hopf", jnp.array([0.1, 0.25, 0.5]), 0.25, 0.01 / jnp.pi)
        assert jnp.allclose(u, jnp.array([-0.7949744, -0.9920816, -0.8031984]), atol=1e-4)
        ```
    """
    roots, weights = np.polynomial.hermite.hermgauss(points)
    keep = weights > 1e-300  # of many points the outermost have none
    roots, weights = (jnp.asarray(v[keep], x.dtype).reshape((1,) * x.ndim + (-1,)) for v in (roots, np.log(weights)))
    places = x[..., None] - roots * jnp.sqrt(jnp.asarray(4 * viscosity * t, x.dtype))
    exponent = weights - jnp.cos(jnp.pi * places) / (2 * jnp.pi * viscosity)
    share = jax.nn.softmax(exponent, axis=-1)
    return -jnp.sum(jnp.sin(jnp.pi * places) * share, axis=-1)


def fisher_kpp_front(
    x: Float[Array, "..."], t: RealScalarLike, diffusivity: RealScalarLike = 1.0, rate: RealScalarLike = 1.0
) -> Float[Array, "..."]:
    r"""Returns the front of the Fisher-KPP equation with the speed $\tfrac{5}{\sqrt 6} \sqrt{r D}$.

    $$u = \left(1 + e^{\sqrt{r / 6 D}\, x - \tfrac56 r t}\right)^{-2}$$

    Args:
        x: Places, any shape.
        t: The time.
        diffusivity: $D$.
        rate: $r$.

    Returns:
        $u$ at the places, between 0 and 1.

    Source:
        M. J. Ablowitz and A. Zeppetella, Bull. Math. Biol. 41:835, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        assert verify.reference("fisher_kpp_front", jnp.zeros(()), 0.0) == 0.25
        ```
    """
    phase = jnp.sqrt(jnp.asarray(rate / (6 * diffusivity), x.dtype)) * x - 5 / 6 * rate * t
    return jnp.square(jax.nn.sigmoid(-phase))


def gray_scott_steady_states(feed: RealScalarLike, kill: RealScalarLike) -> Float[Array, "3 2"]:
    r"""Returns the uniform steady states $(u, v)$ of the Gray-Scott model.

    They are $(1, 0)$ and, where $F \ge 4 (F + k)^2$, the two with
    $u = \tfrac12 (1 \mp \sqrt{1 - 4 (F + k)^2 / F})$ and $v = F (1 - u) / (F + k)$; elsewhere those are NaN.

    Args:
        feed: $F$.
        kill: $k$.

    Returns:
        The states, one a row.

    Source:
        J. E. Pearson, Science 261:189, 1993.

    Example:
        ```python
        from sciml import verify

        u, v = verify.reference("gray_scott_steady_states", 0.04, 0.05)[1]
        assert abs(float(u * v * v - 0.04 * (1 - u))) < 1e-6
        ```
    """
    feed, kill = jnp.asarray(feed, jnp.result_type(float)), jnp.asarray(kill, jnp.result_type(float))
    root = jnp.sqrt(1 - 4 * (feed + kill) ** 2 / feed)
    u = jnp.stack([jnp.ones_like(root), (1 - root) / 2, (1 + root) / 2])
    return jnp.stack([u, feed * (1 - u) / (feed + kill)], axis=1)
