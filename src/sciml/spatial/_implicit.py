"""Diffusion as the stiff part of a model: applied, solved with, and in modes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Inexact

from .._parameters import parameter
from .._types import RealScalarLike
from ._boundaries import Boundaries
from ._conditions import Extrapolate, Neumann
from ._diffusion import AnisotropicLaplacian, VariableLaplacian
from ._laplacian import Laplacian
from .elliptic._multigrid import Multigrid
from .elliptic._operator import EllipticOperator
from .elliptic._poisson import eigenvalues, from_coefficients, separate, to_coefficients
from .elliptic._smoothers import factorise, solve_lines
from .elliptic._solve import solve_elliptic
from .geometry._flux_form import alike
from .geometry._metric import here_of, times, volumes


class FromZero(lx.AbstractLinearSolver[Any]):
    """An iteration on arrays that need not do anything: nothing to solve for, or the preconditioner solves it.

    Krylov methods divide by the norm of a residual, and give NaN if it is zero. Cotangents are zero wherever a
    solution is not used, and the derivatives of a solve run the same solver; and over a short step the preconditioner
    solves a system to rounding.

    Attributes:
        solver: The iteration.
    """

    solver: lx.BiCGStab

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> Any:
        """Returns the result of the operator for the iteration."""
        return self.solver.init(operator, options)

    def compute(self, state: Any, vector: Array, options: dict[str, Any]) -> tuple[Array, lx.RESULTS, dict[str, Any]]:
        """Returns the solution, what became of the iteration, and its statistics."""
        none = jnp.all(vector == 0)
        value, result, stats = self.solver.compute(state, jnp.where(none, jnp.ones_like(vector), vector), options)
        at_once = options["preconditioner"].mv(vector) if "preconditioner" in options else vector
        left = jnp.linalg.norm(vector - state.mv(at_once))
        enough = left <= self.solver.rtol * jnp.linalg.norm(vector)
        value = jnp.where(enough, at_once, value)
        return (
            jnp.where(none, jnp.zeros_like(value), value),
            lx.RESULTS.where(enough, lx.RESULTS.successful, result),
            stats,
        )

    def transpose(self, state: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the transposed problem."""
        return self.solver.transpose(state, options)

    def conj(self, state: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the conjugate problem."""
        return self.solver.conj(state, options)

    def assume_full_rank(self) -> bool:
        """Returns the assumptions of the iteration."""
        return self.solver.assume_full_rank()


def diffuse(laplacian: Laplacian, coefficient: Array) -> Any:
    r"""Returns the operator $\nabla \cdot (D \nabla u)$ of a number, an array over the grid, or a tensor.

    A tensor has two axes more than the grid has, or is the matrix `(ndim, ndim)`, in one dimension `(1, 1)`; a matrix
    over a grid of two dimensions that has this shape counts as a tensor.
    """
    grid, boundary, order, n = laplacian.grid, laplacian.boundary, laplacian.order, laplacian.grid.ndim
    if coefficient.ndim == 0:
        return lambda u, **rest: coefficient.astype(jnp.finfo(u.dtype).dtype) * laplacian(u, **rest)
    if coefficient.shape == (n, n) or coefficient.ndim == n + 2:
        return AnisotropicLaplacian(grid, boundary, coefficient)
    return VariableLaplacian(grid, boundary, coefficient, order)


class ImplicitDiffusion(eqx.Module):
    r"""The linear part $A u = \nabla \cdot (D \nabla u)$ of a diffusion, to solve with.

    A model with diffusion needs it to be an `sciml.AbstractSplit`: `stiff` is a call, `solve_shifted` is `solve`.
    Values at the walls count as zero, and belong to the rest of the model. $(1 - \tau A) y = r$ is solved

    - by transforms, where $D$ is a number and the boundary separates: any mix of `Periodic`, `Dirichlet` and
      `Neumann` for `order=2`, periodic axes for every order;
    - in one dimension by elimination, for `order=2`;
    - by multigrid, for `order=2`;
    - else by the stabilised method of biconjugate gradients, with multigrid as its preconditioner. On a field that is
      split over devices by conjugate gradients.

    Attributes:
        laplacian: The operator, with the boundary conditions.
        coefficient: $D$: a number, an array over the grid, or a tensor as for `sciml.models.Diffusion`.

    Args:
        laplacian: The operator.
        coefficient: $D$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Dirichlet, Grid, ImplicitDiffusion, Laplacian

        grid = Grid((16, 12))
        x, y = grid.centers
        diffusion = ImplicitDiffusion(Laplacian(grid, Dirichlet(0.0)), 1.0 + x * y)
        u = diffusion.solve(0.1, jnp.ones(grid.shape))
        assert jnp.allclose(u - 0.1 * diffusion(u), 1.0, atol=1e-3)
        ```
    """

    laplacian: Laplacian
    coefficient: Float[Array, "..."]

    def __init__(self, laplacian: Laplacian, coefficient: Any):
        self.laplacian = Laplacian(laplacian.grid, laplacian.boundary.homogeneous(), laplacian.order)
        self.coefficient = parameter(coefficient)

    @property
    def separable(self) -> bool:
        """Whether transforms solve it."""
        if self.coefficient.ndim or not isinstance(self.laplacian.boundary, Boundaries):
            return False
        try:
            separate(self.laplacian.boundary, self.laplacian.order)
        except ValueError:
            return False
        return True

    def transform(self, u: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the coefficients of a field in the modes of a separable operator."""
        return to_coefficients(self._axes, u)

    def inverse(self, modes: Inexact[Array, "..."]) -> Float[Array, "..."]:
        """Returns the real field of given coefficients."""
        shape = modes.shape[: modes.ndim - self.laplacian.grid.ndim] + self.laplacian.boundary.shape
        return from_coefficients(self._axes, modes, jnp.zeros(shape, jnp.finfo(modes.dtype).dtype))

    def eigenvalues(self) -> Float[Array, "..."]:
        """Returns the eigenvalue of every mode of real fields."""
        d = jnp.asarray(self.coefficient, jnp.result_type(self.coefficient))
        return eigenvalues(self._axes, [d] * self.laplacian.grid.ndim, True)

    @property
    def _axes(self) -> list:
        return separate(self.laplacian.boundary, self.laplacian.order)

    def __call__(self, u: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the operator applied to a field, with zero at the walls."""
        return diffuse(self.laplacian, self.coefficient)(u)

    def solve(self, shift: RealScalarLike, right: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        r"""Returns the solution of $(1 - \tau A) y = r$; NaN if it is not found.

        Args:
            shift: $\tau$.
            right: $r$, a field, with the grid's axes last.
        """
        dtype = jnp.finfo(right.dtype).dtype
        shift, boundary = jnp.asarray(shift, dtype), self.laplacian.boundary
        d = self.coefficient.astype(dtype)
        if self.separable:
            scales = [shift * d] * self.laplacian.grid.ndim
            moves = eigenvalues(self._axes, scales, not jnp.iscomplexobj(right))
            # Only the increment over r, not the whole of y, passes through the transforms: they would make the mean
            # drift.
            modes = to_coefficients(self._axes, right)
            gain = (moves / (1 - moves)).astype(modes.dtype).reshape((1,) * (right.ndim - moves.ndim) + moves.shape)
            return right + from_coefficients(self._axes, gain * modes, right)
        if not isinstance(boundary, Boundaries):  # one that knows the other devices
            operator, grid = diffuse(self.laplacian, d), self.laplacian.grid
            accept = _rounding(self.laplacian, d, shift)

            def times_volumes(u: Array) -> Array:  # by which the matrix is symmetric
                return u if alike(boundary) else times(u, grid.ndim, volumes(grid), here_of(boundary))

            matrix = lambda u: times_volumes(u - shift * operator(u))  # noqa: E731
            return boundary.cg(matrix, times_volumes(right), rtol=_small(dtype), accept=accept).value
        fn = lambda laplacian, r: _solve_one(laplacian, d, shift, r)  # noqa: E731
        own = _at_sides(lambda x: 0 if _of_components(x, boundary.grid.ndim) else None, self.laplacian, keep=False)
        for number in range(right.ndim - boundary.grid.ndim):
            fn = eqx.filter_vmap(fn, in_axes=(own if number == 0 else None, 0))
        return fn(self.laplacian, right)


def of_component(laplacian: Laplacian, number: int) -> Laplacian:
    """Returns the operator of one component, with the conditions that it has for its own."""
    take = lambda x: x[number % x.shape[0]] if _of_components(x, laplacian.grid.ndim) else x  # noqa: E731
    return _at_sides(take, laplacian)


def _at_sides(fn: Any, laplacian: Laplacian, keep: bool = True) -> Any:
    """A function of the values at sides; the values of a body stay, or become None."""

    def visit(path: Any, x: Any) -> Any:
        if any(getattr(key, "name", None) == "body" for key in path):
            return x if keep else None
        return fn(x)

    return jax.tree_util.tree_map_with_path(visit, laplacian)


def _of_components(x: Any, ndim: int) -> bool:
    """Whether values of a condition differ between components: they have an axis before the axes of the side."""
    return eqx.is_array(x) and x.ndim > ndim - 1


def _solve_one(laplacian: Laplacian, d: Array, shift: Array, right: Array) -> Array:
    """The solution for one component."""
    boundary, dtype, n = laplacian.boundary, shift.dtype, right.ndim
    operator = diffuse(laplacian, d)
    if d.ndim == n + 2 or (d.ndim == 2 and d.shape == (n, n)):
        axes = tuple(d[i, i] for i in range(n))
    else:
        axes = d
    near = _elliptic(boundary, jax.tree.map(lambda k: shift * k, axes), dtype)
    exact = laplacian.order == 2 and not isinstance(axes, tuple) and near.boundary is boundary
    if exact:
        return _solve_near(near, right)
    return _iterate(operator, near, shift, right, _rounding(laplacian, d, shift))


def _elliptic(boundary: Boundaries, k: Any, dtype: Any) -> EllipticOperator:
    """The operator of order two; where a side lets things out, with one that does not."""
    sides = boundary.sides
    if any(isinstance(side, Extrapolate) for pair in sides for side in pair):
        sides = tuple(tuple(Neumann() if isinstance(s, Extrapolate) else s for s in pair) for pair in sides)
        boundary = eqx.tree_at(lambda b: b.sides, boundary, sides)
    return EllipticOperator(boundary, k, jnp.ones((), dtype), dtype=dtype, mean="arithmetic")


def _solve_near(operator: EllipticOperator, right: Array) -> Array:
    if operator.boundary.grid.ndim == 1:
        found = solve_lines(factorise(operator.faces(), 0), 0, operator.integrated(right))
    else:
        found = solve_elliptic(operator, right)
    body = operator.boundary.body
    return found if body is None else jnp.where(body.fluid, found, right)  # nothing changes within a body


def _iterate(operator: Any, near: EllipticOperator, shift: Array, right: Array, rounding: Array) -> Array:
    near = jax.lax.stop_gradient(near)  # only how fast the solution is found depends on it
    if near.boundary.grid.ndim == 1:
        precondition = lambda r: _solve_near(near, r)  # noqa: E731
    else:
        cycle = Multigrid().preconditioner(near).mv
        precondition = lambda r: cycle(near.integrated(r))  # noqa: E731
    structure = jax.eval_shape(lambda: right)
    matrix = lx.FunctionLinearOperator(lambda u: u - shift.astype(u.dtype) * operator(u), structure)
    options = {"preconditioner": lx.FunctionLinearOperator(precondition, structure, lx.positive_semidefinite_tag)}
    small = _small(right.dtype)
    solver = FromZero(lx.BiCGStab(rtol=small, atol=small * 1e-6, max_steps=200))
    found = lx.linear_solve(matrix, right, solver, options=options, throw=False)
    # The method keeps its residual by a recurrence, which drifts away from the residual of the solution by rounding;
    # and when it has found the solution to rounding it may break down, which is not a failure. So the residual itself
    # decides.
    residual, b = jax.lax.stop_gradient((right - matrix.mv(found.value), right))
    limit = jnp.maximum(10 * small, rounding) * jnp.linalg.norm(b)
    return jnp.where(jnp.linalg.norm(residual) <= limit, found.value, jnp.nan)


def _rounding(laplacian: Laplacian, d: Array, shift: Array) -> Array:
    r"""Returns the residual that rounding leaves of $(1 - \tau A) y = r$, over the norm of $r$.

    That is the precision times the norm of $1 - \tau A$, since $y$ is not larger than $r$. By Gershgorin's theorem
    $\|A\|$ is at most $4 \max |D| \sum_i h_i^{-2}$ for order two; twice that stands for higher orders and tensors.
    """
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(shift * d)))
    if alike(laplacian.boundary):
        size = 8 * sum(h**-2 for h in laplacian.grid.spacing)
    else:
        size = 2 * jax.lax.stop_gradient(jnp.asarray(laplacian.spectral_radius, shift.dtype))
    return 4 * jnp.finfo(shift.dtype).eps * (1 + size * largest)


def _small(dtype: Any) -> float:
    """The required size of a residual, relative to the right-hand side."""
    return 1e-11 if jnp.finfo(dtype).bits == 64 else 1e-6
