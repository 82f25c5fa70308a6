"""Phases that separate: the equations of Allen and Cahn, and of Cahn and Hilliard."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import StencilRates
from ...spatial import Grid, Laplacian, Spectral
from ...spatial._abstract_grid import AbstractGrid
from .._cells import check_axes, rates
from ._diffusion import AbstractDiffusing


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
        """Returns the lower end of the Jacobian's eigenvalues, from which `sciml.solve` derives stable steps."""
        del t, args
        p = with_dtype(self, y.dtype)
        return -jnp.square(p.width) * p.laplacian.spectral_radius - jnp.max(jnp.maximum(3 * y * y - 1, 0))


class CahnHilliard(AbstractSemilinear):
    r"""Two phases, $u = \pm 1$, that separate and coarsen while their amounts are kept.

    $$\partial_t u = M \nabla^2 \mu, \qquad \mu = u^3 - u - \epsilon^2 \nabla^2 u$$

    The state is the field $u$, between sides that are periodic or walls which nothing passes, where $u$ and $\mu$ have
    no slope. Small waves on a mixture $u = m$ grow as $e^{\sigma t}$ with
    $\sigma = M k^2 (1 - 3 m^2 - \epsilon^2 k^2)$; a wall at rest is $\tanh(x / (\sqrt 2 \epsilon))$ and has the energy
    $\tfrac{2 \sqrt 2}{3} \epsilon$ of each unit of its area; drops grow as $t^{1/3}$. The mass $\int u$ does not change
    and the energy $\int \tfrac12 \epsilon^2 |\nabla u|^2 + \tfrac14 (1 - u^2)^2$ never grows: this also holds for the
    expansion in modes, whose products are therefore not dealiased.

    The linear part for exponential and implicit-explicit methods is $-M (\epsilon^2 \nabla^4 - a \nabla^2) u$ with the
    stabilisation $a$; the rest is then $M \nabla^2 (u^3 - (1 + a) u)$. With $a = 2$ it has no derivative inside the two
    phases, and long steps of exponential methods neither blow up nor, in all that was tried, raise the energy; a step
    that is right is shorter.

    Another double well is this one in other units: where $c = \bar c + \delta u$ obeys
    $\partial_t c = M_c \nabla^2 (f'(c) - \kappa \nabla^2 c)$ with
    $f = w\, (c - \bar c - \delta)^2 (c - \bar c + \delta)^2$, take $\epsilon^2 = \kappa / (4 w \delta^2)$ and
    $M = 4 w \delta^2 M_c$.

    Good values: `width=0.01`, a box of length 1 with $256^2$ cells, small noise around 0 or -0.4, steps of 1e-4 to a
    time of 0.05.

    Attributes:
        spectral: The modes, by the conditions at the sides.
        width: $\epsilon$, a length: the width of a wall.
        mobility: $M$, a length squared over time.
        stabilisation: $a$. The vector field does not depend on it.

    Args:
        grid: The grid; a wall needs a few cells.
        boundary: The conditions at the sides, `Periodic()` or `Neumann(0.0)` along each axis.
        width: $\epsilon$.
        mobility: $M$.
        stabilisation: $a$, at least zero.

    Raises:
        ValueError: If a side is neither periodic nor `Neumann`, or the stabilisation is negative; when called, if the
            field has the wrong shape.
        TypeError: When called, if the field is complex.

    Source:
        J. W. Cahn and J. E. Hilliard, J. Chem. Phys. 28:258, 1958; for the stabilisation Z. Fu and J. Yang, J. Comput.
        Phys. 454:110943, 2022.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import CahnHilliard
        from sciml.spatial import Grid, Periodic

        grid = Grid((32, 32))
        model = CahnHilliard(grid, Periodic(), width=0.05)
        noise = 0.1 * jax.random.normal(jax.random.key(0), grid.shape)
        sol = sciml.solve(model, noise, t0=0.0, t1=0.02, dt=1e-4, saveat=[0.0, 0.01, 0.02])
        assert jnp.all(jnp.diff(jax.vmap(model.energy)(sol.ys)) < 0)
        assert abs(model.mass(sol.ys[-1]) - model.mass(noise)) < 1e-6
        ```
    """

    spectral: Spectral
    width: Parameter
    mobility: Parameter
    stabilisation: float = eqx.field(static=True)

    def __init__(self, grid: Grid, boundary: Any, width: Any = 0.01, mobility: Any = 1.0, stabilisation: float = 2.0):
        self.spectral = Spectral(grid, boundary)
        if "sine" in self.spectral.bases:
            axis = grid.names[self.spectral.bases.index("sine")]
            raise ValueError(
                f"`CahnHilliard(boundary=...)` must be Periodic or Neumann, but along {axis} it is Dirichlet, which "
                "does not conserve mass."
            )
        if not stabilisation >= 0:
            raise ValueError(f"`CahnHilliard(stabilisation=...)` must be at least zero, but is {stabilisation}.")
        self.width, self.mobility = parameter(width), parameter(mobility)
        self.stabilisation = float(stabilisation)

    def transform(self, y: Float[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the amplitudes of the modes."""
        check_real(y, self)
        return self.spectral.transform(y)

    def inverse(self, modes: Inexact[Array, "..."]) -> Float[Array, "..."]:
        """Returns the state of given amplitudes."""
        return self.spectral.inverse(modes)

    def linear(self, args: Args) -> Float[Array, "..."]:
        r"""Returns $-M |k|^2 (\epsilon^2 |k|^2 + a)$."""
        del args
        laplacian = self.spectral.laplacian
        p = with_dtype(self, laplacian.dtype)
        return p.mobility * laplacian * (self.stabilisation - jnp.square(p.width) * laplacian)

    def rest(self, t: RealScalarLike, modes: Inexact[Array, "..."], args: Args) -> Inexact[Array, "..."]:
        r"""Returns the amplitudes of $M \nabla^2 (u^3 - (1 + a) u)$."""
        del t, args
        u = self.inverse(modes)
        p = with_dtype(self, u.dtype)
        # all of it through the field: amplitudes that no real field has, which rounding makes and the inverse drops,
        # are then damped by the linear part; a part of the rest taken from the modes would let them grow
        reaction = self.transform(u**3 - (1 + self.stabilisation) * u)
        return p.spectral.times(p.mobility * p.spectral.laplacian.astype(u.dtype), reaction)

    def potential(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Returns the chemical potential $\mu$."""
        p = with_dtype(self, y.dtype)
        return y**3 - y - jnp.square(p.width) * p._laplacian(y)

    def mass(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        r"""Returns $\int u$, which does not change."""
        return self.spectral.grid.integrate(y, self.spectral.location)

    def energy(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        r"""Returns $\int \tfrac12 \epsilon^2 |\nabla u|^2 + \tfrac14 (1 - u^2)^2$, which never grows."""
        p = with_dtype(self, y.dtype)
        density = jnp.square(1 - y * y) / 4 - jnp.square(p.width) / 2 * y * p._laplacian(y)
        return p.spectral.grid.integrate(density, p.spectral.location)

    def _laplacian(self, y: Array) -> Array:
        return self.inverse(self.spectral.times(self.spectral.laplacian, self.transform(y)))
