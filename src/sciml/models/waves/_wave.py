"""The wave equation."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import StencilRates
from ...spatial import Laplacian
from ...spatial._abstract_grid import AbstractGrid
from .._cells import as_inputs, check_axes, rates


class Wave(AbstractModel):
    r"""Waves of a constant or varying speed.

    $$\partial_t u = w, \qquad \partial_t w = c^2 \nabla^2 u$$

    The state is the pair $(u, w)$ of displacement and its rate, shape `(2, *grid)`. A mode oscillates with
    $\omega = c |k|$; where nothing passes the walls and $c$ is constant, the energy
    $\tfrac12 \int w^2 + c^2 |\nabla u|^2$ is conserved.

    Good values: `speed=1`, a box of length 1, time from 0 to 2.

    Attributes:
        laplacian: The operator, with the boundary conditions of $u$.
        speed: $c$, a number or an array over the grid.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        speed: $c$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Raises:
        ValueError: If the state or the speed has the wrong shape.

    Source:
        J. d'Alembert, Hist. Acad. Sci. Berlin 3:214, 1747.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Wave
        from sciml.spatial import Dirichlet, Grid

        grid = Grid(64)
        (x,) = grid.centers
        u0 = jnp.sin(jnp.pi * x)
        model = Wave(grid, Dirichlet(0.0), speed=1.0)
        sol = sciml.solve(model, jnp.stack([u0, 0 * u0]), t0=0.0, t1=1.0, dt=0.005)
        assert jnp.allclose(sol.ys[-1, 0], -u0, atol=1e-3)  # after half a period
        ```
    """

    laplacian: Laplacian
    speed: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, speed: Any = 1.0, order: int = 2):
        self.laplacian = Laplacian(grid, boundary, order)
        self.speed = parameter(speed)
        if self.speed.ndim and self.speed.shape != grid.shape:
            raise ValueError(
                f"`speed` must be a number or an array over the grid {grid.shape}, but has shape {self.speed.shape}."
            )

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        if y.ndim != self.laplacian.grid.ndim + 1 or y.shape[0] != 2:
            raise ValueError(f"the state must be the pair (u, w) of shape (2, *grid), but has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        return jnp.stack([y[1], jnp.square(p.speed) * p.laplacian(y[0], t=t, args=args)])

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels."""
        check_axes(y, self.laplacian, 1)
        number, varying = as_inputs("c", with_dtype(self.speed, y.dtype))

        def rate(nb, number):
            c = nb("c") if number is None else number
            return nb("w"), c * c * self.laplacian.cell(nb, "u")

        return rates(rate, self.laplacian, ("u", "w"), params=number, coefficients=varying)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the largest frequency, a bound on the modulus of the Jacobian's eigenvalues."""
        del t, args
        p = with_dtype(self, y.dtype)
        return jnp.max(jnp.abs(p.speed)) * p.laplacian.spectral_radius**0.5

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the largest frequency on the imaginary axis, by which `sciml.solve` knows stable steps."""
        frequency = self.spectral_radius(t, y, args)
        return jax.lax.complex(jnp.zeros_like(frequency), frequency)
