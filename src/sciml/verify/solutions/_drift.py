"""What is known exactly of drift and diffusion: laws at rest, a Gaussian in a parabola, and how heaps of cells grow."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def ornstein_uhlenbeck_density(
    x: Float[Array, "..."],
    t: RealScalarLike,
    rate: RealScalarLike = 1.0,
    diffusivity: RealScalarLike = 1.0,
    mean: RealScalarLike = 0.0,
    variance: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns the density of `sciml.models.FokkerPlanck` in the potential $V = k x^2 / 2$, from a Gaussian on.

    It stays a Gaussian, of the mean $m e^{-k t}$ and the variance $D / k + (s - D / k) e^{-2 k t}$.

    Args:
        x: Places, any shape.
        t: The time.
        rate: $k$.
        diffusivity: $D$.
        mean: $m$, at the time 0.
        variance: $s$, at the time 0.

    Source:
        G. E. Uhlenbeck and L. S. Ornstein, Phys. Rev. 36:823, 1930.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        x = jnp.linspace(-6.0, 6.0, 200)
        u = reference("ornstein_uhlenbeck_density", x, 0.7, mean=2.0, variance=0.1)
        assert abs(jnp.sum(u * x) * (x[1] - x[0]) - 2.0 * jnp.exp(-0.7)) < 1e-4
        ```
    """
    k, d, m, s, time = (jnp.asarray(value, x.dtype) for value in (rate, diffusivity, mean, variance, t))
    center, spread = m * jnp.exp(-k * time), d / k + (s - d / k) * jnp.exp(-2 * k * time)
    return jnp.exp(-jnp.square(x - center) / (2 * spread)) / jnp.sqrt(2 * jnp.pi * spread)


def keller_segel_growth(
    wavenumber: Float[Array, "..."],
    density: RealScalarLike = 1.0,
    sensitivity: RealScalarLike = 1.0,
    diffusivity_u: RealScalarLike = 1.0,
    diffusivity_c: RealScalarLike = 1.0,
    production: RealScalarLike = 1.0,
    decay: RealScalarLike = 1.0,
) -> Float[Array, "... 2"]:
    r"""Returns the rates at which small waves on a uniform state of `sciml.models.KellerSegel` grow.

    They are the eigenvalues of

    $$\begin{pmatrix} -D_u k^2 & \chi u k^2 \\ \alpha & -D_c k^2 - \beta \end{pmatrix},$$

    which are real. Long waves grow where $\chi \alpha u > D_u \beta$. On a grid give the root of the negative `symbol`
    of the Laplacian in place of $k$: its waves grow at exactly that rate.

    Args:
        wavenumber: $|k|$, any shape.
        density: $u$.
        sensitivity: $\chi$.
        diffusivity_u: $D_u$.
        diffusivity_c: $D_c$.
        production: $\alpha$.
        decay: $\beta$.

    Returns:
        The larger and the smaller rate, of the shape of the wavenumbers with one axis more.

    Source:
        E. F. Keller and L. A. Segel, J. Theor. Biol. 26:399, 1970.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        k = jnp.array([0.0, 0.5, 1.0, 2.0])
        rates = reference("keller_segel_growth", k, density=2.0)[:, 0]
        assert rates[1] > 0 and abs(rates[2]) < 1e-6 and rates[3] < 0  # those with k^2 < 1 grow
        ```
    """
    u, chi, du, dc, alpha, beta = (
        jnp.asarray(value, wavenumber.dtype)
        for value in (density, sensitivity, diffusivity_u, diffusivity_c, production, decay)
    )
    square = jnp.square(wavenumber)
    cells, attractant = -du * square, -dc * square - beta
    middle, apart = (cells + attractant) / 2, (cells - attractant) / 2
    root = jnp.sqrt(jnp.square(apart) + chi * u * alpha * square)
    return jnp.stack([middle + root, middle - root], axis=-1)


def gibbs_density(grid: Any, potential: Float[Array, "*grid"], diffusivity: RealScalarLike = 1.0) -> Array:
    r"""Returns the density $e^{-V / D} / \int e^{-V / D}$, at which drift and diffusion balance.

    Args:
        grid: A grid of `sciml.spatial`.
        potential: $V$, an array over the grid.
        diffusivity: $D$.

    Source:
        H. Risken, The Fokker-Planck Equation, Springer, 1989, chapter 5.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid
        from sciml.verify import reference

        grid = Grid(64, -3.0, 3.0)
        u = reference("gibbs_density", grid, grid.centers[0] ** 2 / 2, 0.1)
        assert abs(grid.integrate(u * grid.centers[0] ** 2) - 0.1) < 1e-3
        ```
    """
    shares = jnp.exp((jnp.min(potential) - potential) / jnp.asarray(diffusivity, potential.dtype))
    return shares / grid.integrate(shares)
