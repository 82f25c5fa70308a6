"""Advection: by a given velocity, with or without diffusion, and self-advection in Burgers' equation."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Laplacian, Upwind
from ...spatial._upwind import PHASES
from ._diffusion import AbstractDiffusing


def _velocity(grid: Grid, velocity: Any) -> Array:
    found = parameter(velocity)
    if found.ndim == 0 and grid.ndim == 1:
        found = jnp.reshape(found, (1,))
    if found.shape not in ((grid.ndim,), (grid.ndim, *grid.shape)):
        raise ValueError(
            f"`velocity` must have shape ({grid.ndim},) or {(grid.ndim, *grid.shape)}, but has {found.shape}."
        )
    return found


def carried_and_diffused(upwind: Upwind, laplacian: Laplacian, velocity: Array, diffusivity: Array) -> Array:
    """Returns eigenvalues of transport with diffusion, of waves that run with the flow."""
    phases = jnp.asarray(PHASES, velocity.dtype)
    damping = diffusivity * laplacian.symbol(*(phases / h for h in laplacian.grid.spacing)).astype(velocity.dtype)
    carried = upwind.spectrum(velocity)
    return carried + jax.lax.complex(damping, jnp.zeros_like(damping))


class Advection(AbstractModel):
    r"""Transport by a given flow.

    $$\partial_t u = -v \cdot \nabla u$$

    The state is the field $u$. With a constant velocity it travels without change, $u(t, x) = u_0(x - v t)$; the scheme
    is upwind (`sciml.spatial.Upwind`).

    Good values: `velocity=1`, a periodic box of length 1, time from 0 to 1, a step of half the time that a wave takes
    to cross a cell.

    Attributes:
        upwind: The operator, with the boundary conditions.
        velocity: $v$, of shape `(ndim,)` or `(ndim, *grid)`; a number in one dimension.

    Args:
        grid: The grid.
        boundary: The conditions at the sides; `Extrapolate` where the flow leaves the box.
        velocity: $v$.
        order: The order of accuracy in space, 1, 3, 5 or 7.

    Raises:
        ValueError: If the velocity has the wrong shape.

    Source:
        R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, Cambridge, 2002.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Advection
        from sciml.spatial import Grid, Periodic

        grid = Grid(64)
        (x,) = grid.centers
        y0 = jnp.sin(2 * jnp.pi * x)
        sol = sciml.solve(Advection(grid, Periodic(), velocity=1.0), y0, t0=0.0, t1=1.0, dt=0.01)
        assert jnp.allclose(sol.ys[-1], y0, atol=2e-3)  # once around
        ```
    """

    upwind: Upwind
    velocity: Parameter

    def __init__(self, grid: Grid, boundary: Any, velocity: Any = 1.0, order: int = 3):
        self.upwind = Upwind(grid, boundary, order)
        self.velocity = _velocity(grid, velocity)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        return -p.upwind(y, p.velocity, t=t, args=args)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues, away from walls."""
        del t, args
        return self.upwind.spectral_radius(with_dtype(self.velocity, y.dtype))

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns eigenvalues of the Jacobian away from walls, from which `sciml.solve` derives stable steps."""
        del t, args
        return self.upwind.spectrum(with_dtype(self.velocity, y.dtype))


class AdvectionDiffusion(AbstractDiffusing):
    r"""Transport by a given flow, with diffusion.

    $$\partial_t u = -v \cdot \nabla u + D \nabla^2 u$$

    The state is the field $u$. A mode $e^{i k x}$ travels with $v$ and decays as $e^{-D k^2 t}$.

    Good values: the defaults, a periodic box of length 1, time from 0 to 1.

    Attributes:
        upwind: The operator of the flow, with the boundary conditions.
        laplacian: The Laplacian of diffusion, with the same conditions.
        velocity: $v$, of shape `(ndim,)` or `(ndim, *grid)`; a number in one dimension.
        diffusivity: $D$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        velocity: $v$.
        diffusivity: $D$.
        order: The order of accuracy of the advection in space, 1, 3, 5 or 7; the order of diffusion is one higher.

    Raises:
        ValueError: If the velocity has the wrong shape.

    Source:
        W. Hundsdorfer and J. Verwer, Numerical Solution of Time-Dependent Advection-Diffusion-Reaction Equations,
        Springer, 2003.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import AdvectionDiffusion
        from sciml.spatial import Grid, Periodic

        grid = Grid(64)
        model = AdvectionDiffusion(grid, Periodic(), velocity=0.5, diffusivity=0.01)
        y = jnp.sin(2 * jnp.pi * grid.centers[0])
        assert abs(jnp.sum(model(0.0, y, None))) < 1e-3  # a constant velocity conserves the integral
        ```
    """

    upwind: Upwind
    laplacian: Laplacian
    velocity: Parameter
    diffusivity: Parameter

    def __init__(self, grid: Grid, boundary: Any, velocity: Any = 1.0, diffusivity: Any = 0.01, order: int = 3):
        self.upwind = Upwind(grid, boundary, order)
        self.laplacian = Laplacian(grid, self.upwind.boundary, order + 1)
        self.velocity = _velocity(grid, velocity)
        self.diffusivity = parameter(diffusivity)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        diffusion = p.diffusivity * p.laplacian(y, t=t, args=args)
        return diffusion - p.upwind(y, p.velocity, t=t, args=args)

    @property
    def iterates(self) -> bool:
        """False: waves are not stable with many stages."""
        return False

    def diffusions(self) -> Array:
        """Returns the coefficient of diffusion."""
        return self.diffusivity

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues."""
        del t, args
        p = with_dtype(self, y.dtype)
        return p.upwind.spectral_radius(p.velocity) + jnp.abs(p.diffusivity) * self.laplacian.spectral_radius

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns eigenvalues of the Jacobian away from walls, from which `sciml.solve` derives stable steps."""
        del t, args
        p = with_dtype(self, y.dtype)
        return carried_and_diffused(p.upwind, p.laplacian, p.velocity, p.diffusivity)


class Burgers(AbstractDiffusing):
    r"""A velocity that carries itself, with viscosity: the simplest equation whose solutions steepen into shocks.

    $$\partial_t u = -u \cdot \nabla u + \nu \nabla^2 u$$

    The state is the velocity: of the grid's shape in one dimension, of shape `(ndim, *grid)` in more. The advective
    form is right where viscosity resolves the shock, that is, where $\nu$ is not small against the jump times the
    spacing.

    Good values: the defaults on $[-1, 1]$ with `Dirichlet(0)`, $u_0 = -\sin \pi x$, time from 0 to 1.

    Attributes:
        upwind: The operator of the flow, with the boundary conditions.
        laplacian: The Laplacian of viscosity, with the same conditions.
        viscosity: $\nu$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        viscosity: $\nu$.
        order: The order of accuracy of the advection in space, 1, 3, 5 or 7; the order of viscosity is one higher.

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

    @property
    def iterates(self) -> bool:
        """False: waves are not stable with many stages."""
        return False

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
        """Returns eigenvalues of flow and viscosity at a state, from which `sciml.solve` derives stable steps."""
        del t, args
        velocity = y[None] if self.upwind.grid.ndim == 1 else y
        return carried_and_diffused(self.upwind, self.laplacian, velocity, self.viscosity.astype(y.dtype))
