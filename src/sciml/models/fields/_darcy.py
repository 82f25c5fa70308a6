"""Darcy's law: the pressure of a fluid in a porous medium."""

from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSplit
from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries, EllipticOperator, solve_elliptic
from ...spatial._abstract_grid import AbstractGrid
from ...spatial._boundaries import as_boundary
from ...spatial.geometry._flux_form import in_fluid, over


class Darcy(AbstractSplit):
    r"""The pressure of a slightly compressible fluid in a porous medium.

    $$S\, \partial_t p = \nabla \cdot (k \nabla p) + q$$

    The state is the pressure $p$ in the cells of a grid. The mobility $k$, permeability over viscosity, may jump from
    cell to cell by orders of magnitude; the flux between two cells is that through both in series. `steady` solves for
    the pressure that does not change, $-\nabla \cdot (k \nabla p) = q$, and its gradient by the field $k$ costs one
    more solve. That problem with $k$ of a random field is a standard test of inversion and of learned operators.
    The grid may be an `sciml.spatial.OrthogonalGrid`, and `Boundaries` may have a body in it.

    Good values: the defaults on the unit square with `Dirichlet(0.0)` at all sides.

    Attributes:
        boundary: The conditions at the sides: pressures, inflows.
        k: The mobility: a number, or a field.
        q: The source per volume: a number, or a field.
        storage: $S$: a number, or a field.

    Args:
        grid: The grid.
        boundary: The conditions at the sides; see `sciml.spatial.Boundaries`.
        k: The mobility.
        q: The source.
        storage: The storage.

    Source:
        J. Bear, Dynamics of Fluids in Porous Media, Elsevier, 1972.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import Darcy
        from sciml.spatial import Dirichlet, Grid

        k = jnp.ones((8, 8)).at[3:5, 3:5].set(100.0)
        model = Darcy(Grid((8, 8)), Dirichlet(0.0), k)
        p = model.steady()
        assert jnp.max(jnp.abs(model(0.0, p, None))) < 1e-2
        gradient = jax.grad(lambda model: model.steady().mean())(model).k
        assert jnp.all(gradient <= 1e-6)  # every cell that conducts better lowers the pressure
        ```
    """

    boundary: Boundaries
    k: Parameter
    q: Parameter
    storage: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, k: Any = 1.0, q: Any = 1.0, storage: Any = 1.0):
        self.boundary = as_boundary(grid, boundary)
        self.k, self.q, self.storage = parameter(k), parameter(q), parameter(storage)
        self._operator(None)  # refuses a wrong shape

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the rate of change of the pressure; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        return self.stiff(y, args) + self.rest(t, y, args)

    def stiff(self, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns what the flow between the cells changes, with zero at the walls."""
        del args
        operator = self._operator(y.dtype)
        mv = lambda p: operator.per_volume(operator.mv(p))  # noqa: E731
        for _ in range(y.ndim - self.boundary.grid.ndim):
            mv = jax.vmap(mv)
        return -mv(y) / jnp.broadcast_to(jnp.asarray(self.storage, y.dtype), y.shape)

    def rest(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns what source and walls change."""
        operator = self._operator(y.dtype)
        source = operator.per_volume(operator.source(t=t, args=args))
        q, storage = (jnp.broadcast_to(jnp.asarray(x, y.dtype), y.shape) for x in (self.q, self.storage))
        return in_fluid(self.boundary, q + jnp.broadcast_to(source, y.shape)) / storage

    def solve_shifted(self, shift: RealScalarLike, right: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        r"""Returns the solution of $(1 + \tau S^{-1} A) p = r$, by one elliptic solve."""
        del args
        shift, storage = jnp.asarray(shift, right.dtype), jnp.asarray(self.storage, right.dtype)
        homogeneous = self.boundary.homogeneous()
        k = jnp.asarray(self.k, right.dtype)
        operator = EllipticOperator(homogeneous, shift * k, storage, dtype=right.dtype)
        found = solve_elliptic(operator, jnp.broadcast_to(storage, right.shape) * right)
        body = self.boundary.body
        return found if body is None else jnp.where(over(body.fluid, right), found, right)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues, by Gershgorin's circles."""
        del t, args
        operator = self._operator(y.dtype)
        diagonal = operator.per_volume(lx.diagonal(operator).reshape(self.boundary.shape))
        return 2 * jnp.max(diagonal) / jnp.min(jnp.asarray(self.storage, diagonal.dtype))

    def steady(
        self,
        solver: lx.AbstractLinearSolver | None = None,
        *,
        t: RealScalarLike | None = None,
        args: Args = None,
        throw: bool = True,
    ) -> Float[Array, "..."]:
        """Returns the pressure at which nothing changes.

        Args:
            solver: As `sciml.spatial.solve_elliptic` takes it.
            t: The time, for values at the walls that are functions.
            args: Their second argument.
            throw: Whether to raise an error if no solution is found, outside of transformations.

        Raises:
            SolveError: If no solution is found and `throw` is set.
        """
        operator = self._operator(None)
        q = jnp.broadcast_to(jnp.asarray(self.q, operator.dtype), self.boundary.shape)
        return solve_elliptic(operator, q, solver, t=t, args=args, throw=throw)

    def _operator(self, dtype: Any) -> EllipticOperator:
        return EllipticOperator(self.boundary, self.k, dtype=dtype)
