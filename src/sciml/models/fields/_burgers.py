"""Burgers' equation."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Laplacian, Upwind
from ._advection import carried_and_diffused
from ._diffusing import AbstractDiffusing


class Burgers(AbstractDiffusing):
    r"""A velocity that carries itself, with viscosity: the simplest equation whose solutions steepen into shocks.

    $$\partial_t u = -u \cdot \nabla u + \nu \nabla^2 u$$

    The state is the velocity: of the grid's shape in one dimension, of shape `(ndim, *grid)` in more. The advective
    form is right where viscosity resolves the shock, that is, where $\nu$ is not small against the jump times the
    spacing.

    Good values: the defaults on $[-1, 1]$ with `Dirichlet(0)`, $u_0 = -\sin \pi x$, time from 0 to 1.

    Attributes:
        upwind: The operator of the flow, with the boundary conditions.
        laplacian: That of viscosity, with the same conditions.
        viscosity: $\nu$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        viscosity: $\nu$.
        order: The order of accuracy of the flow in space, 1, 3, 5 or 7; that of viscosity is one higher.

    Source:
        J. M. Burgers, Adv. Appl. Mech. 1:171, 1948; C. Basdevant et al., Computers & Fluids 14:23, 1986.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import verify
        from sciml.models import Burgers
        from sciml.spatial import Dirichlet, Grid

        grid = Grid(128, -1.0, 1.0)
        (x,) = grid.centers
        model = Burgers(grid, Dirichlet(0.0), viscosity=0.05)
        sol = sciml.solve(model, -jnp.sin(jnp.pi * x), t0=0.0, t1=0.5, dt=0.005)
        assert jnp.max(jnp.abs(sol.ys[-1] - verify.reference("burgers_cole_hopf", x, 0.5, 0.05))) < 1e-3
        ```
    """

    upwind: Upwind
    laplacian: Laplacian
    viscosity: Parameter

    def __init__(self, grid: Grid, boundary: Any, viscosity: Any = 0.01, order: int = 3):
        self.upwind = Upwind(grid, boundary, order)
        self.laplacian = Laplacian(grid, self.upwind.boundary, order + 1)
        self.viscosity = parameter(viscosity)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        n = self.upwind.grid.ndim
        if y.shape[: y.ndim - n] != ((n,) if n > 1 else ()):
            raise ValueError(f"the state must have shape {f'({n}, *grid)' if n > 1 else '(*grid,)'}, not {y.shape}.")
        p = with_dtype(self, y.dtype)
        velocity = y[None] if n == 1 else y
        return p.viscosity * p.laplacian(y, t=t, args=args) - p.upwind(y, velocity, t=t, args=args)

    def diffusions(self) -> Array:
        """Returns the viscosity."""
        return self.viscosity

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues of the flow and viscosity at a state."""
        del t, args
        velocity = y[None] if self.upwind.grid.ndim == 1 else y
        viscosity = jnp.abs(self.viscosity).astype(y.dtype)
        return self.upwind.spectral_radius(velocity) + viscosity * self.laplacian.spectral_radius

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns eigenvalues of flow and viscosity at a state, by which `sciml.solve` knows stable steps."""
        del t, args
        velocity = y[None] if self.upwind.grid.ndim == 1 else y
        return carried_and_diffused(self.upwind, self.laplacian, velocity, self.viscosity.astype(y.dtype))
