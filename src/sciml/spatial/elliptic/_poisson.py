"""Poisson's and Helmholtz' equations by fast transforms."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Inexact

from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from .._boundaries import Boundaries
from .._conditions import Neumann, Periodic
from .._laplacian import Laplacian
from ._compatible import without_mean
from ._separable import eigenvalues, separate
from ._transform_solver import divide


def _solve(
    laplacian: Laplacian, constant: Array | None, f: Array, t: RealScalarLike | None, args: Args
) -> Inexact[Array, "..."]:
    boundary = laplacian.boundary
    if not hasattr(f, "dtype") or not jnp.issubdtype(f.dtype, jnp.inexact):
        raise TypeError(f"`f` must be an array of floating-point numbers over the grid, but is {f!r}.")
    if f.shape[f.ndim - boundary.grid.ndim :] != boundary.shape:
        raise ValueError(
            f"`f` must end with the axes {boundary.shape} of {boundary.grid} at {boundary.location}, but has shape "
            f"{f.shape}."
        )
    axes = separate(boundary, laplacian.order)
    right = f - jnp.broadcast_to(laplacian(jnp.zeros(boundary.shape, f.dtype), t=t, args=args), f.shape)
    sides = [side for pair in boundary.sides for side in pair]
    if constant is None and all(isinstance(side, Periodic | Neumann) for side in sides):
        right = without_mean(boundary, right, [f, *jax.tree.leaves(boundary)])
    kind = jnp.finfo(f.dtype).dtype
    values = eigenvalues(axes, [jnp.ones((), kind)] * len(axes), not jnp.iscomplexobj(f))
    if constant is not None:
        values = values + jnp.asarray(constant, kind)
    return divide(axes, right, values)


def _laplacian(boundary: Boundaries, order: int) -> Laplacian:
    if not isinstance(boundary, Boundaries):
        raise TypeError(f"`boundary` must be Boundaries(grid, conditions), but is {type(boundary).__name__}.")
    separate(boundary, order)
    return Laplacian(boundary.grid, boundary, order)


class Poisson(eqx.Module):
    r"""Solves Poisson's equation $\nabla^2 u = f$ by cosine, sine and Fourier transforms.

    The sides may be any mix of `Periodic`, `Dirichlet` and `Neumann`, with unknowns at centres or nodes. The
    transforms diagonalise the very differences of `Laplacian`, so that $\nabla^2 u$ gives $f$ back to rounding, values
    at the walls included.

    Where no side gives a value, $u$ is determined but for a constant: its mean is zero. The data must balance then,
    $\int f = \oint \partial u / \partial n$. Known data is checked; traced data, under `jax.jit`, is taken without what
    is out of balance.

    Attributes:
        laplacian: The Laplacian that is inverted.

    Args:
        boundary: The boundary conditions.
        order: The order of the differences, 2, or 4, 6 or 8 where all axes are periodic.

    Raises:
        ValueError: If the boundary does not separate; when called, if the field has the wrong shape or known data is
            incompatible.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, Grid, Laplacian, Neumann, Poisson

        grid = Grid((32, 24))
        boundary = Boundaries(grid, {"x": Dirichlet(1.0), "y-": Neumann(0.0), "y+": Dirichlet(0.0)})
        u = Poisson(boundary)(jnp.ones(grid.shape))
        assert jnp.allclose(Laplacian(grid, boundary)(u), 1.0, atol=2e-2)
        ```
    """

    laplacian: Laplacian

    def __init__(self, boundary: Boundaries, order: int = 2):
        self.laplacian = _laplacian(boundary, order)

    def __call__(
        self, f: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None
    ) -> Inexact[Array, "..."]:
        """Returns the solution.

        Args:
            f: The right-hand side, real or complex, with the grid's axes last.
            t: The time, for values at the walls that are functions.
            args: Their second argument.
        """
        return _solve(self.laplacian, None, f, t, args)


class Helmholtz(eqx.Module):
    r"""Solves Helmholtz' equation $\nabla^2 u + \lambda u = f$ by cosine, sine and Fourier transforms.

    With $\lambda < 0$ it is the screened Poisson equation, that of an implicit step of diffusion. With $\lambda > 0$ it
    is that of waves; where $-\lambda$ is an eigenvalue of the Laplacian there is no solution, and what is returned is
    large. The sides are those of `Poisson`.

    Attributes:
        laplacian: The Laplacian.
        constant: $\lambda$, a number.

    Args:
        boundary: The boundary conditions.
        constant: $\lambda$.
        order: The order of the differences, 2, or 4, 6 or 8 where all axes are periodic.

    Raises:
        ValueError: If the boundary does not separate; when called, if the field has the wrong shape.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Grid, Helmholtz, Periodic

        boundary = Boundaries(Grid(64, 0.0, 2 * jnp.pi), Periodic())
        (x,) = boundary.coordinates
        u = Helmholtz(boundary, constant=-3.0)(jnp.sin(x))
        assert jnp.allclose(u, -jnp.sin(x) / 4, atol=1e-3)
        ```
    """

    laplacian: Laplacian
    constant: Parameter

    def __init__(self, boundary: Boundaries, constant: ArrayLike, order: int = 2):
        self.laplacian = _laplacian(boundary, order)
        self.constant = parameter(constant)
        if self.constant.ndim:
            raise ValueError(
                f"`Helmholtz(constant=...)` must be a number, but has shape {self.constant.shape}: for a field use "
                "`EllipticOperator` and `Multigrid`."
            )

    def __call__(
        self, f: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None
    ) -> Inexact[Array, "..."]:
        """Returns the solution.

        Args:
            f: The right-hand side, real or complex, with the grid's axes last.
            t: The time, for values at the walls that are functions.
            args: Their second argument.
        """
        return _solve(self.laplacian, self.constant, f, t, args)
