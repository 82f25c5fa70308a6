"""Diffusion, with a constant, variable or anisotropic coefficient."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import NotForKernelsError, StencilRates
from ...spatial import Laplacian, VariableLaplacian
from ...spatial._abstract_grid import AbstractGrid
from ...spatial._implicit import diffuse
from .._cells import check_axes, rates
from ._diffusing import AbstractDiffusing


class Diffusion(AbstractDiffusing):
    r"""Diffusion of heat or of a solute.

    $$\partial_t u = \nabla \cdot (D \nabla u)$$

    The state is the field $u$, an array whose last axes are those of the grid. Modes $e^{i k x}$ decay as
    $e^{-D k^2 t}$.

    Good values: `diffusivity=1`, a box of length 1, time from 0 to 0.1.

    Attributes:
        laplacian: The operator, with the boundary conditions.
        diffusivity: $D$, a length squared over time: a number, an array over the grid, or a tensor of shape
            `(ndim, ndim)` or `(ndim, ndim, *grid)`, for which `order` is 2.

    Args:
        grid: The grid.
        boundary: The conditions at the sides; see `sciml.spatial.Boundaries`.
        diffusivity: $D$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Source:
        J. Crank, The Mathematics of Diffusion, Oxford, 1975.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Diffusion
        from sciml.spatial import Dirichlet, Grid

        grid = Grid(32)
        (x,) = grid.centers
        model = Diffusion(grid, Dirichlet(0.0))
        sol = sciml.solve(model, jnp.sin(jnp.pi * x), t0=0.0, t1=0.1, dt=0.005)
        assert jnp.allclose(sol.ys[-1], jnp.exp(-0.1 * jnp.pi**2) * jnp.sin(jnp.pi * x), atol=1e-3)
        ```
    """

    laplacian: Laplacian
    diffusivity: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, diffusivity: Any = 1.0, order: int = 2):
        self.laplacian = Laplacian(grid, boundary, order)
        self.diffusivity = parameter(diffusivity)
        diffuse(self.laplacian, self.diffusivity)  # refuses a wrong shape

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        return diffuse(p.laplacian, p.diffusivity)(y, t=t, args=args)

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels, where the diffusivity is no tensor."""
        check_axes(y, self.laplacian)
        d, n = with_dtype(self.diffusivity, y.dtype), self.laplacian.grid.ndim
        if d.ndim == 0:
            return rates(lambda nb, d: d * self.laplacian.cell(nb, "u"), self.laplacian, ("u",), params=d)
        if d.shape == (n, n) or d.ndim == n + 2:
            raise NotForKernelsError("the diffusivity is a tensor")
        operator = VariableLaplacian(self.laplacian.grid, self.laplacian.boundary, d, self.laplacian.order)
        if operator.order != 2:
            raise NotForKernelsError(f"the diffusivity varies and the order is {operator.order}, not 2")
        return rates(lambda nb, _: operator.cell(nb, "u"), self.laplacian, ("u",), coefficients=operator.faces(y.shape))

    def diffusions(self) -> Array:
        """Returns the coefficient."""
        return self.diffusivity

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues; explicit Euler is stable up to 2 over it."""
        del t, args
        p = with_dtype(self, y.dtype)
        operator = diffuse(p.laplacian, p.diffusivity)
        largest = getattr(operator, "spectral_radius", None)
        if largest is None:
            largest = jnp.abs(p.diffusivity) * p.laplacian.spectral_radius
        return largest.astype(y.dtype)
