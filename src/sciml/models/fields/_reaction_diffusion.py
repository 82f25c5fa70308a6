"""Any reaction at every place, with diffusion between them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Laplacian
from ...spatial._abstract_grid import AbstractGrid
from ._diffusing import AbstractDiffusing


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
            raise ValueError(f"`diffusivities` must be one number a substance, but has {self.diffusivities.shape}.")

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
        """Returns the lower end of the eigenvalues' real parts, by which `sciml.solve` knows stable steps.

        That of the reaction is the lowest eigenvalue of the symmetric part of its Jacobian, at any place.
        """
        p = with_dtype(self, y.dtype)
        jacobians = _jacobians(p.reaction, t, y, args)
        decay = -jnp.min(jnp.linalg.eigvalsh((jacobians + jnp.swapaxes(jacobians, 1, 2)) / 2))
        return -jnp.max(jnp.abs(p.diffusivities)) * p.laplacian.spectral_radius - jnp.maximum(decay, 0)


def _jacobians(reaction: Callable, t: RealScalarLike, y: Array, args: Args) -> Array:
    """The derivatives of the reaction at all places."""
    at = jnp.moveaxis(y.reshape(y.shape[0], -1), 0, -1)
    return jax.vmap(jax.jacfwd(lambda z: reaction(t, z, args)))(at)
