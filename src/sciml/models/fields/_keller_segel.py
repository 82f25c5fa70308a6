"""The equations of Keller and Segel: cells that follow what they emit."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Laplacian
from ...spatial._abstract_grid import AbstractGrid
from ._diffusing import AbstractDiffusing
from ._drift_fluxes import drifted
from ._fokker_planck import check_insulating


class KellerSegel(AbstractDiffusing):
    r"""Cells that diffuse, climb the gradient of an attractant, and emit it: chemotaxis.

    $$\partial_t u = \nabla \cdot (D_u \nabla u - \chi\, u \nabla c), \qquad
      \partial_t c = D_c \nabla^2 c + \alpha u - \beta c$$

    The state is the density of cells and the concentration of the attractant, $(u, c)$, of shape `(2, *grid)`. A
    uniform state gathers into heaps where $\chi \alpha u > D_u \beta$, see
    `sciml.verify.reference("keller_segel_growth", ...)`. In two dimensions a heap of more than
    $8 \pi D_u D_c / (\chi \alpha)$ cells collapses to a point in a finite time, and the grid then says nothing more.

    The fluxes of cells are those of Scharfetter and Gummel: where nothing passes the sides the number of cells is
    conserved to rounding, explicit steps of at most `2 / spectral_radius` keep both fields positive, and
    $u \propto e^{\chi c / D_u}$ is at rest whatever the grid. Diffusion is the implicit part for implicit-explicit
    methods.

    Good values: the defaults, a box of length 10 with `Neumann(0.0)`, a density of 2 with some noise, time from 0 to
    20.

    Attributes:
        laplacian: The operator of diffusion, with the conditions of both fields.
        sensitivity: $\chi$.
        diffusivity_u: $D_u$.
        diffusivity_c: $D_c$.
        production: $\alpha$.
        decay: $\beta$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides, for both fields: `Periodic()`, or `Neumann(0.0)`, which nothing passes.
        sensitivity: $\chi$.
        diffusivity_u: $D_u$.
        diffusivity_c: $D_c$.
        production: $\alpha$.
        decay: $\beta$.

    Raises:
        TypeError: If a body has another condition than `Neumann`.

    Source:
        E. F. Keller and L. A. Segel, J. Theor. Biol. 26:399, 1970; T. Hillen and K. J. Painter, J. Math. Biol. 58:183,
        2009.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import KellerSegel
        from sciml.spatial import Grid, Neumann

        grid = Grid(32, 0.0, 10.0)
        model = KellerSegel(grid, Neumann(0.0))
        cells = 2.0 + 0.1 * jnp.cos(jnp.pi * grid.centers[0] / 10)
        sol = sciml.solve(model, jnp.stack([cells, cells]), t0=0.0, t1=10.0, dt=0.05)
        assert abs(grid.integrate(sol.ys[-1, 0]) - 20.0) < 1e-4 and jnp.ptp(sol.ys[-1, 0]) > 0.3
        ```
    """

    laplacian: Laplacian
    sensitivity: Parameter
    diffusivity_u: Parameter
    diffusivity_c: Parameter
    production: Parameter
    decay: Parameter

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        sensitivity: Any = 1.0,
        diffusivity_u: Any = 1.0,
        diffusivity_c: Any = 1.0,
        production: Any = 1.0,
        decay: Any = 1.0,
    ):
        self.laplacian = Laplacian(grid, boundary)
        check_insulating(self.laplacian.boundary, "KellerSegel")
        self.sensitivity = parameter(sensitivity)
        self.diffusivity_u, self.diffusivity_c = parameter(diffusivity_u), parameter(diffusivity_c)
        self.production, self.decay = parameter(production), parameter(decay)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        grid = self.laplacian.grid
        if y.ndim != grid.ndim + 1 or y.shape[0] != 2:
            raise ValueError(f"the state must be the pair (u, c) of shape (2, *grid), but has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        padded = p.laplacian.pad(y, t=t, args=args)
        u, c = p.laplacian.inside(padded)
        cells = drifted(p.laplacian.boundary, grid, padded[0], -p.sensitivity * padded[1], p.diffusivity_u)
        spread = p.diffusivity_c * p.laplacian.on(padded)[1]
        return jnp.stack([cells, spread + p.production * u - p.decay * c])

    def diffusions(self) -> tuple[Array, ...]:
        """Returns both coefficients."""
        return self.diffusivity_u, self.diffusivity_c

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues at a state, and on the rates of both fields."""
        del t, args
        p = with_dtype(self, y.dtype)
        largest, n = p.laplacian.spectral_radius, self.laplacian.grid.ndim
        steps = [jnp.max(jnp.abs(y[1] - jnp.roll(y[1], 1, axis - n))) for axis in range(n)]
        steepest = jnp.max(jnp.stack(steps)) * jnp.abs(p.sensitivity) / p.diffusivity_u
        cells = p.diffusivity_u * largest * (1 + steepest)
        follow = jnp.abs(p.sensitivity) * jnp.max(jnp.abs(y[0])) * largest
        attractant = p.diffusivity_c * largest + jnp.abs(p.decay)
        # of the two rows and columns of bounds on the blocks
        middle, apart = (cells + attractant) / 2, (cells - attractant) / 2
        return middle + jnp.sqrt(jnp.square(apart) + follow * jnp.abs(p.production))
