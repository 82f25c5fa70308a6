"""The equation of Fisher, Kolmogorov, Petrovsky and Piskunov."""

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


class FisherKPP(AbstractDiffusing):
    r"""Logistic growth that spreads by diffusion, as a front.

    $$\partial_t u = D \nabla^2 u + r u (1 - u)$$

    The state is the field $u$ between 0 and 1. Fronts that start steep travel at the speed $2 \sqrt{r D}$; one of speed
    $\tfrac{5}{\sqrt 6} \sqrt{r D}$ is known exactly (`sciml.verify.reference("fisher_kpp_front")`).

    Good values: the defaults, a box of length 60 with `Neumann(0)`, time from 0 to 10.

    Attributes:
        laplacian: The operator, with the boundary conditions.
        diffusivity: $D$.
        rate: $r$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        diffusivity: $D$.
        rate: $r$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Source:
        R. A. Fisher, Ann. Eugenics 7:355, 1937; M. J. Ablowitz and A. Zeppetella, Bull. Math. Biol. 41:835, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import FisherKPP
        from sciml.spatial import Grid, Neumann

        model = FisherKPP(Grid(16, 0.0, 10.0), Neumann(0.0))
        assert jnp.allclose(model(0.0, jnp.full(16, 0.5), None), 0.25)
        ```
    """

    laplacian: Laplacian
    diffusivity: Parameter
    rate: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, diffusivity: Any = 1.0, rate: Any = 1.0, order: int = 2):
        self.laplacian = Laplacian(grid, boundary, order)
        self.diffusivity, self.rate = parameter(diffusivity), parameter(rate)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        padded = p.laplacian.pad(y, t=t, args=args)
        u = p.laplacian.inside(padded)
        return p.diffusivity * p.laplacian.on(padded) + p.rate * u * (1 - u)

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels."""
        check_axes(y, self.laplacian)

        def rate(nb, params):
            diffusivity, growth = params
            u = nb("u")
            return diffusivity * self.laplacian.cell(nb, "u") + growth * u * (1 - u)

        params = with_dtype((self.diffusivity, self.rate), y.dtype)
        return rates(rate, self.laplacian, ("u",), params=params)

    def diffusions(self) -> Array:
        """Returns its coefficient."""
        return self.diffusivity

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues at a state."""
        del t, args
        p = with_dtype(self, y.dtype)
        growth = jnp.abs(p.rate) * jnp.max(jnp.abs(1 - 2 * y))
        return jnp.abs(p.diffusivity) * p.laplacian.spectral_radius + growth

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the lower end of the Jacobian's eigenvalues, by which `sciml.solve` knows stable steps."""
        del t, args
        p = with_dtype(self, y.dtype)
        decay = jnp.max(jnp.maximum(p.rate * (2 * y - 1), 0))
        return -jnp.abs(p.diffusivity) * p.laplacian.spectral_radius - decay
