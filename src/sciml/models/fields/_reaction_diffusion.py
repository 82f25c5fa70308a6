"""Reaction and diffusion: fronts, spots, cells that attract each other, and any other reaction."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import StencilRates
from ...spatial import Laplacian
from ...spatial._abstract_grid import AbstractGrid
from .._cells import check_axes, rates
from ._diffusion import AbstractDiffusing
from ._fokker_planck import check_insulating, drifted


class ReactionDiffusion(AbstractDiffusing):
    r"""A reaction among substances at every place, and diffusion of each.

    $$\partial_t u_i = D_i \nabla^2 u_i + f_i(t, u)$$

    The reaction $f$ is any model of one place, such as `Brusselator` or `FitzHughNagumo`. The state has
    shape `(substances, *grid)`. With `Brusselator(a, b)` a uniform state becomes stripes or spots (Turing)
    for $b > (1 + a \sqrt{D_u / D_v})^2$, before it oscillates; `FitzHughNagumo` with $D_2 = 0$ carries pulses.

    Good values: `Brusselator(3.0, 9.0)`, `diffusivities=(5.0, 12.0)`, a periodic box of $[0, 100]^2$, time to 100.

    Attributes:
        reaction: $f$, a callable `(t, y, args)` of a state of shape `(substances,)`.
        laplacian: The operator, with the boundary conditions of all substances.
        diffusivities: $D$, of shape `(substances,)`.

    Args:
        reaction: $f$.
        grid: The grid.
        boundary: The conditions at the sides; values by substance have its axis in front.
        diffusivities: $D$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Raises:
        ValueError: If the state does not have one field for every diffusivity.

    Source:
        A. M. Turing, Phil. Trans. R. Soc. B 237:37, 1952; B. Pena and C. Perez-Garcia, Phys. Rev. E 64:056213, 2001.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Brusselator, ReactionDiffusion
        from sciml.spatial import Grid, Periodic

        grid = Grid((8, 8), 0.0, 10.0)
        model = ReactionDiffusion(Brusselator(3.0, 9.0), grid, Periodic(), (5.0, 12.0))
        uniform = jnp.stack([jnp.full(grid.shape, 3.0), jnp.full(grid.shape, 3.0)])
        assert jnp.max(jnp.abs(model(0.0, uniform, None))) < 1e-4
        ```
    """

    reaction: Callable
    laplacian: Laplacian
    diffusivities: Parameter

    def __init__(self, reaction: Callable, grid: AbstractGrid, boundary: Any, diffusivities: Any, order: int = 2):
        self.reaction = reaction
        self.laplacian = Laplacian(grid, boundary, order)
        self.diffusivities = parameter(diffusivities)
        if self.diffusivities.ndim != 1:
            raise ValueError(
                f"`diffusivities` must have one number for each substance, but has shape {self.diffusivities.shape}."
            )

    def _pointwise(self, t: RealScalarLike, fields: Array, args: Args) -> Array:
        react = self.reaction
        for _ in range(self.laplacian.grid.ndim):
            inner = react
            react = lambda t, y, args, inner=inner: jax.vmap(lambda z: inner(t, z, args), -1, -1)(y)  # noqa: E731
        return react(t, fields, args)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to the reaction and boundary values that are functions."""
        check_real(y, self)
        n, substances = self.laplacian.grid.ndim, self.diffusivities.shape[0]
        if y.ndim != n + 1 or y.shape[0] != substances:
            raise ValueError(f"the state must have shape ({substances}, *grid), but has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        padded = p.laplacian.pad(y, t=t, args=args)
        diffusivities = p.diffusivities.reshape((substances,) + (1,) * n)
        return diffusivities * p.laplacian.on(padded) + p._pointwise(t, p.laplacian.inside(padded), args)

    def diffusions(self) -> tuple[Array, ...]:
        """Returns the coefficient of every substance."""
        return tuple(self.diffusivities)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues at a state, from the norms of the reaction's."""
        p = with_dtype(self, y.dtype)
        reaction = jnp.max(jnp.sqrt(jnp.sum(jnp.square(_jacobians(p.reaction, t, y, args)), axis=(1, 2))))
        return jnp.max(jnp.abs(p.diffusivities)) * p.laplacian.spectral_radius + reaction

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the lower end of the eigenvalues' real parts, from which `sciml.solve` derives stable steps.

        The eigenvalue of the reaction is the lowest eigenvalue of the symmetric part of its Jacobian, at any place.
        """
        p = with_dtype(self, y.dtype)
        jacobians = _jacobians(p.reaction, t, y, args)
        decay = -jnp.min(jnp.linalg.eigvalsh((jacobians + jnp.swapaxes(jacobians, 1, 2)) / 2))
        return -jnp.max(jnp.abs(p.diffusivities)) * p.laplacian.spectral_radius - jnp.maximum(decay, 0)


def _jacobians(reaction: Callable, t: RealScalarLike, y: Array, args: Args) -> Array:
    """The derivatives of the reaction at all places."""
    at = jnp.moveaxis(y.reshape(y.shape[0], -1), 0, -1)
    return jax.vmap(jax.jacfwd(lambda z: reaction(t, z, args)))(at)


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
        """Returns the lower end of the Jacobian's eigenvalues, from which `sciml.solve` derives stable steps."""
        del t, args
        p = with_dtype(self, y.dtype)
        decay = jnp.max(jnp.maximum(p.rate * (2 * y - 1), 0))
        return -jnp.abs(p.diffusivity) * p.laplacian.spectral_radius - decay


class GrayScott(AbstractDiffusing):
    r"""Two substances that feed, react and decay while they diffuse; spots, worms and waves.

    $$\partial_t u = D_u \nabla^2 u - u v^2 + F (1 - u), \qquad
      \partial_t v = D_v \nabla^2 v + u v^2 - (F + k) v$$

    The state is the pair of concentrations $(u, v)$, shape `(2, *grid)`. If $F > 4 (F + k)^2$, there are two uniform
    steady states in addition to $(1, 0)$, $u = \tfrac12 (1 \mp \sqrt{1 - 4 (F + k)^2 / F})$, $v = F (1 - u) / (F + k)$.

    Good values: the defaults (spots), a periodic box of $[0, 2.5]^2$ with $256^2$ cells, time from 0 to 10000, steps of
    1; from $(1, 0)$ with spots of $(0.5, 0.25)$ (`sciml.spatial.random_spots`).

    Attributes:
        laplacian: The operator, with the boundary conditions of both.
        feed: $F$.
        kill: $k$.
        diffusivity_u: $D_u$.
        diffusivity_v: $D_v$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        feed: $F$.
        kill: $k$.
        diffusivity_u: $D_u$.
        diffusivity_v: $D_v$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Raises:
        ValueError: If the state has the wrong shape.

    Source:
        J. E. Pearson, Science 261:189, 1993.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import GrayScott
        from sciml.spatial import Grid, Periodic

        grid = Grid((32, 32), 0.0, 0.3)
        model = GrayScott(grid, Periodic(), feed=0.04, kill=0.06)
        rest = jnp.stack([jnp.ones(grid.shape), jnp.zeros(grid.shape)])
        assert jnp.max(jnp.abs(model(0.0, rest, None))) < 1e-6
        ```
    """

    laplacian: Laplacian
    feed: Parameter
    kill: Parameter
    diffusivity_u: Parameter
    diffusivity_v: Parameter

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        feed: Any = 0.03,
        kill: Any = 0.062,
        diffusivity_u: Any = 2e-5,
        diffusivity_v: Any = 1e-5,
        order: int = 2,
    ):
        self.laplacian = Laplacian(grid, boundary, order)
        self.feed, self.kill = parameter(feed), parameter(kill)
        self.diffusivity_u, self.diffusivity_v = parameter(diffusivity_u), parameter(diffusivity_v)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        if y.ndim != self.laplacian.grid.ndim + 1 or y.shape[0] != 2:
            raise ValueError(f"the state must be the pair (u, v) of shape (2, *grid), but has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        padded = p.laplacian.pad(y, t=t, args=args)
        (u, v), (diffusion_u, diffusion_v) = p.laplacian.inside(padded), p.laplacian.on(padded)
        reaction = u * v * v
        return jnp.stack(
            [
                p.diffusivity_u * diffusion_u - reaction + p.feed * (1 - u),
                p.diffusivity_v * diffusion_v + reaction - (p.feed + p.kill) * v,
            ]
        )

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels."""
        check_axes(y, self.laplacian, 1)

        def rate(nb, params):
            feed, kill, diffusivity_u, diffusivity_v = params
            u, v = nb("u"), nb("v")
            reaction = u * v * v
            return (
                diffusivity_u * self.laplacian.cell(nb, "u") - reaction + feed * (1 - u),
                diffusivity_v * self.laplacian.cell(nb, "v") + reaction - (feed + kill) * v,
            )

        params = with_dtype((self.feed, self.kill, self.diffusivity_u, self.diffusivity_v), y.dtype)
        return rates(rate, self.laplacian, ("u", "v"), params=params)

    def diffusions(self) -> tuple[Array, ...]:
        """Returns both coefficients."""
        return self.diffusivity_u, self.diffusivity_v

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues at a state: of diffusion and of the reaction."""
        del t, args
        p = with_dtype(self, y.dtype)
        diffusion = jnp.maximum(jnp.abs(p.diffusivity_u), jnp.abs(p.diffusivity_v)) * p.laplacian.spectral_radius
        u, v = y[0], y[1]
        reaction = jnp.max(jnp.abs(v * v) + 2 * jnp.abs(u * v)) + jnp.abs(p.feed) + jnp.abs(p.kill)
        return diffusion + reaction

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the lower ends of the eigenvalues of both substances, for the stable steps of `sciml.solve`."""
        del t, args
        p = with_dtype(self, y.dtype)
        u, v = y[0], y[1]
        decay_u = jnp.max(v * v) + p.feed
        decay_v = jnp.max(jnp.maximum(p.feed + p.kill - 2 * u * v, 0))
        radius = p.laplacian.spectral_radius
        return -jnp.stack([p.diffusivity_u * radius + decay_u, p.diffusivity_v * radius + decay_v])


class KellerSegel(AbstractDiffusing):
    r"""Cells that diffuse, climb the gradient of an attractant, and emit it: chemotaxis.

    $$\partial_t u = \nabla \cdot (D_u \nabla u - \chi\, u \nabla c), \qquad
      \partial_t c = D_c \nabla^2 c + \alpha u - \beta c$$

    The state is the density of cells and the concentration of the attractant, $(u, c)$, of shape `(2, *grid)`. A
    uniform state gathers into heaps where $\chi \alpha u > D_u \beta$, see
    `sciml.verify.reference("keller_segel_growth", ...)`. In two dimensions a heap of more than
    $8 \pi D_u D_c / (\chi \alpha)$ cells collapses to a point in a finite time, after which the grid solution is
    meaningless.

    The fluxes of cells are Scharfetter-Gummel fluxes: without flux through the sides the number of cells is conserved
    to rounding, explicit steps of at most `2 / spectral_radius` keep both fields positive, and
    $u \propto e^{\chi c / D_u}$ is at rest on every grid. Diffusion is the implicit part for implicit-explicit methods.

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
