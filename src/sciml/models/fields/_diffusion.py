"""Diffusion and flow through porous media, and the base of all models with diffusion."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Inexact

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear, AbstractSplit
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import NotForKernelsError, StencilRates
from ...spatial import Boundaries, EllipticOperator, ImplicitDiffusion, Laplacian, VariableLaplacian, solve_elliptic
from ...spatial._abstract_grid import AbstractGrid
from ...spatial._boundaries import as_boundary
from ...spatial._implicit import diffuse, of_component
from ...spatial.geometry._flux_form import in_fluid, over
from .._cells import check_axes, rates


class AbstractDiffusing(AbstractSplit):
    r"""A model $\partial_t u = \nabla \cdot (D \nabla u) + \dots$ of fields, with diffusion as its stiff part.

    Its systems are solved by `sciml.spatial.ImplicitDiffusion`. Values at the walls belong to the rest. If it
    separates, exponential methods run in its modes.

    Attributes:
        laplacian: The operator, with the boundary conditions.
    """

    laplacian: eqx.AbstractVar[Laplacian]

    @abc.abstractmethod
    def diffusions(self) -> tuple[Array, ...] | Array:
        """Returns $D$: a number, a field or a tensor for all; or a tuple of numbers, one for each component."""

    @property
    def iterates(self) -> bool:
        """Whether its systems are solved by multigrid: neither by transforms nor by elimination."""
        boundary, d = self.laplacian.boundary, self.diffusions()
        if (
            not isinstance(boundary, Boundaries) or boundary.grid.ndim == 1
        ):  # a field on many devices is no `Boundaries`
            return False
        return not ImplicitDiffusion(self.laplacian, d[0] if isinstance(d, tuple) else d).separable

    def stiff(self, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the diffusion with zero at the walls."""
        del args
        d = self.diffusions()
        if not isinstance(d, tuple):
            return ImplicitDiffusion(self.laplacian, d)(y)
        factors = jnp.stack([x.astype(y.dtype) for x in d]).reshape(-1, *(1,) * self.laplacian.grid.ndim)
        return factors * ImplicitDiffusion(self.laplacian, 1.0)(y)

    def rest(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns everything else."""
        return self(t, y, args) - self.stiff(y, args)

    def solve_shifted(self, shift: RealScalarLike, right: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        r"""Returns the solution of $(1 - \tau \nabla \cdot D \nabla) y = r$."""
        del args
        d = self.diffusions()
        if not isinstance(d, tuple):
            return ImplicitDiffusion(self.laplacian, d).solve(shift, right)
        own = [ImplicitDiffusion(of_component(self.laplacian, i), x) for i, x in enumerate(d)]
        return jnp.stack([one.solve(shift, r) for one, r in zip(own, right)])

    def modal(self, y: Float[Array, "..."]) -> AbstractSemilinear | None:
        """Returns the model in the modes of diffusion; None where these have no transform."""
        d = self.diffusions()
        first = ImplicitDiffusion(self.laplacian, d[0] if isinstance(d, tuple) else d)
        return InModes(self, y.ndim - self.laplacian.grid.ndim) if first.separable else None


class InModes(AbstractSemilinear):
    """A model with diffusion in the modes of that.

    Attributes:
        model: The model.
        lead: The number of the state's axes before the axes of the grid.
    """

    model: AbstractDiffusing
    lead: int = eqx.field(static=True)

    @property
    def _one(self) -> ImplicitDiffusion:
        return ImplicitDiffusion(self.model.laplacian, 1.0)

    def transform(self, y: Float[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the coefficients of the state's fields."""
        return self._one.transform(y)

    def inverse(self, modes: Inexact[Array, "..."]) -> Float[Array, "..."]:
        """Returns the state of given coefficients."""
        return self._one.inverse(modes)

    def linear(self, args: Args) -> Float[Array, "..."]:
        """Returns the eigenvalues of diffusion."""
        del args
        d, values = self.model.diffusions(), self._one.eigenvalues()
        values = values.reshape((1,) * self.lead + values.shape)
        if not isinstance(d, tuple):
            return d.astype(values.dtype) * values
        return jnp.stack([x.astype(values.dtype) for x in d]).reshape(-1, *(1,) * (values.ndim - 1)) * values

    def rest(self, t: RealScalarLike, modes: Inexact[Array, "..."], args: Args) -> Inexact[Array, "..."]:
        """Returns the coefficients of the rest."""
        return self.transform(self.model.rest(t, self.inverse(modes), args))


class Diffusion(AbstractDiffusing):
    r"""Diffusion of heat or of a solute.

    $$\partial_t u = \nabla \cdot (D \nabla u)$$

    The state is the field $u$, an array whose last axes are the axes of the grid. Modes $e^{i k x}$ decay as
    $e^{-D k^2 t}$.

    Good values: `diffusivity=1`, a box of length 1, time from 0 to 0.1.

    Attributes:
        laplacian: The operator, with the boundary conditions.
        diffusivity: $D$, a length squared over time: a number, an array over the grid, or a tensor of shape
            `(ndim, ndim)` or `(ndim, ndim, *grid)`, for which `order` is 2.

    Args:
        grid: The grid.
        boundary: The conditions at the sides; see `sciml.spatial.Boundaries`.
        diffusivity: $D$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Source:
        J. Crank, The Mathematics of Diffusion, Oxford, 1975.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Diffusion
        from sciml.spatial import Dirichlet, Grid

        grid = Grid(32)
        (x,) = grid.centers
        model = Diffusion(grid, Dirichlet(0.0))
        sol = sciml.solve(model, jnp.sin(jnp.pi * x), t0=0.0, t1=0.1, dt=0.005)
        assert jnp.allclose(sol.ys[-1], jnp.exp(-0.1 * jnp.pi**2) * jnp.sin(jnp.pi * x), atol=1e-3)
        ```
    """

    laplacian: Laplacian
    diffusivity: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, diffusivity: Any = 1.0, order: int = 2):
        self.laplacian = Laplacian(grid, boundary, order)
        self.diffusivity = parameter(diffusivity)
        diffuse(self.laplacian, self.diffusivity)  # refuses a wrong shape

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        return diffuse(p.laplacian, p.diffusivity)(y, t=t, args=args)

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels, if the diffusivity is not a tensor."""
        check_axes(y, self.laplacian)
        d, n = with_dtype(self.diffusivity, y.dtype), self.laplacian.grid.ndim
        if d.ndim == 0:
            return rates(lambda nb, d: d * self.laplacian.cell(nb, "u"), self.laplacian, ("u",), params=d)
        if d.shape == (n, n) or d.ndim == n + 2:
            raise NotForKernelsError("the diffusivity is a tensor")
        operator = VariableLaplacian(self.laplacian.grid, self.laplacian.boundary, d, self.laplacian.order)
        if operator.order != 2:
            raise NotForKernelsError(f"the diffusivity varies and the order is {operator.order}, not 2")
        return rates(lambda nb, _: operator.cell(nb, "u"), self.laplacian, ("u",), coefficients=operator.faces(y.shape))

    def diffusions(self) -> Array:
        """Returns the coefficient."""
        return self.diffusivity

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues; explicit Euler is stable up to 2 over it."""
        del t, args
        p = with_dtype(self, y.dtype)
        operator = diffuse(p.laplacian, p.diffusivity)
        largest = getattr(operator, "spectral_radius", None)
        if largest is None:
            largest = jnp.abs(p.diffusivity) * p.laplacian.spectral_radius
        return largest.astype(y.dtype)


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
        """Returns the divergence of the flow between the cells, with zero at the walls."""
        del args
        operator = self._operator(y.dtype)
        mv = lambda p: operator.per_volume(operator.mv(p))  # noqa: E731
        for _ in range(y.ndim - self.boundary.grid.ndim):
            mv = jax.vmap(mv)
        return -mv(y) / jnp.broadcast_to(jnp.asarray(self.storage, y.dtype), y.shape)

    def rest(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the change by the source and the walls."""
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
