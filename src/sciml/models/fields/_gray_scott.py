"""The Gray-Scott model of reaction and diffusion."""

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


class GrayScott(AbstractDiffusing):
    r"""Two substances that feed, react and decay while they diffuse; spots, worms and waves.

    $$\partial_t u = D_u \nabla^2 u - u v^2 + F (1 - u), \qquad
      \partial_t v = D_v \nabla^2 v + u v^2 - (F + k) v$$

    The state is the pair of concentrations $(u, v)$, shape `(2, *grid)`. Beside $(1, 0)$ there are two uniform steady
    states where $F > 4 (F + k)^2$, $u = \tfrac12 (1 \mp \sqrt{1 - 4 (F + k)^2 / F})$, $v = F (1 - u) / (F + k)$.

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
        """Returns the lower ends of the eigenvalues of both substances, by which `sciml.solve` knows stable steps."""
        del t, args
        p = with_dtype(self, y.dtype)
        u, v = y[0], y[1]
        decay_u = jnp.max(v * v) + p.feed
        decay_v = jnp.max(jnp.maximum(p.feed + p.kill - 2 * u * v, 0))
        radius = p.laplacian.spectral_radius
        return -jnp.stack([p.diffusivity_u * radius + decay_u, p.diffusivity_v * radius + decay_v])
