"""The Allen-Cahn equation."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import StencilRates
from ...spatial import Laplacian
from ...spatial._abstract_grid import AbstractGrid
from .._cells import check_axes, rates
from ._diffusing import AbstractDiffusing


class AllenCahn(AbstractDiffusing):
    r"""Two phases, $u = \pm 1$, between which walls form and shrink.

    $$\partial_t u = \epsilon^2 \nabla^2 u + u - u^3$$

    The state is the field $u$. A wall at rest is $\tanh(x / (\sqrt 2 \epsilon))$; a circle of radius $r$ that is large
    against $\epsilon$ shrinks as $r^2 = r_0^2 - 2 \epsilon^2 t$; the energy
    $\int \tfrac12 \epsilon^2 |\nabla u|^2 + \tfrac14 (1 - u^2)^2$ never grows.

    Good values: `width=0.02`, a box of length 1, time from 0 to 50.

    Attributes:
        laplacian: The operator, with the boundary conditions.
        width: $\epsilon$, a length: the width of a wall.

    Args:
        grid: The grid; a wall needs a few cells.
        boundary: The conditions at the sides.
        width: $\epsilon$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Source:
        S. M. Allen and J. W. Cahn, Acta Metall. 27:1085, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import AllenCahn
        from sciml.spatial import Grid, Neumann

        grid = Grid(128, -1.0, 1.0)
        wall = jnp.tanh(grid.centers[0] / (2**0.5 * 0.1))
        model = AllenCahn(grid, Neumann(0.0), width=0.1)
        assert jnp.max(jnp.abs(model(0.0, wall, None))) < 5e-3  # at rest
        ```
    """

    laplacian: Laplacian
    width: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, width: Any = 0.02, order: int = 2):
        self.laplacian = Laplacian(grid, boundary, order)
        self.width = parameter(width)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        padded = p.laplacian.pad(y, t=t, args=args)
        u = p.laplacian.inside(padded)
        return jnp.square(p.width) * p.laplacian.on(padded) + u - u**3

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels."""
        check_axes(y, self.laplacian)

        def rate(nb, width):
            u = nb("u")
            return width * width * self.laplacian.cell(nb, "u") + u - u * u * u

        return rates(rate, self.laplacian, ("u",), params=with_dtype(self.width, y.dtype))

    def diffusions(self) -> Array:
        r"""Returns its coefficient, $\epsilon^2$."""
        return jnp.square(self.width)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues at a state."""
        del t, args
        p = with_dtype(self, y.dtype)
        return jnp.square(p.width) * p.laplacian.spectral_radius + jnp.max(jnp.abs(1 - 3 * y * y))

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the lower end of the Jacobian's eigenvalues, by which `sciml.solve` knows stable steps."""
        del t, args
        p = with_dtype(self, y.dtype)
        return -jnp.square(p.width) * p.laplacian.spectral_radius - jnp.max(jnp.maximum(3 * y * y - 1, 0))
