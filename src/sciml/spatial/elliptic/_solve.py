r"""Elliptic problems with their values at the walls, and the derivative of their solutions.

For $A(k) u = b$ a change of the coefficients and the right-hand side changes the solution by
$\dot u = A^{-1} (\dot b - \dot A u)$, and the cotangent $\bar u$ of the solution gives $\bar b = A^{-1} \bar u$: one
more solve with the same symmetric operator. `jax.lax.custom_linear_solve` is that rule.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Inexact

from ..._checks import concrete
from ..._jax._vma import promote
from ..._status import SolveError, Status
from ..._types import Args, RealScalarLike
from .._grid import Grid
from ..geometry._flux_form import alike, in_fluid
from ._coarsening import Galerkin
from ._compatible import mean, without_mean
from ._couplings import AbstractCouplings
from ._multigrid import Multigrid, MultigridState, build
from ._operator import EllipticOperator
from ._poisson import FastTransform, separate
from ._smoothers import Lines, factorise, solve_lines


def default_solver(operator: EllipticOperator) -> lx.AbstractLinearSolver:
    """Returns the solver that `solve_elliptic` takes: `FastTransform` where it applies, or else `Multigrid`.

    On an `OrthogonalGrid` of several axes `Multigrid` smooths along `Lines`.

    Args:
        operator: The operator.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, FastTransform, Grid
        from sciml.spatial.elliptic._solve import default_solver

        operator = EllipticOperator(Boundaries(Grid(16), Dirichlet(0.0)))
        assert isinstance(default_solver(operator), FastTransform)
        ```
    """
    if not isinstance(operator.boundary.grid, Grid) and operator.boundary.grid.ndim > 1:
        # cells are long and thin somewhere, in whatever direction
        return Multigrid(smoother=Lines(), pre=1, post=1)
    numbers = all(jnp.ndim(x) == 0 for x in jax.tree.leaves((operator.k, operator.c)))
    try:
        separate(operator.boundary, 2)
    except ValueError:
        return Multigrid()
    return FastTransform() if numbers else Multigrid()


def solve_elliptic(
    operator: EllipticOperator,
    f: Inexact[Array, "..."],
    solver: lx.AbstractLinearSolver | None = None,
    *,
    t: RealScalarLike | None = None,
    args: Args = None,
    throw: bool = True,
) -> Inexact[Array, "..."]:
    r"""Returns the solution of $c\, u - \nabla \cdot (k \nabla u) = f$ with the values at the walls.

    The solution can be differentiated with respect to `f`, the coefficients and the values at the walls, in forward and
    reverse mode. Each derivative costs one more solve. If no solution is found, it is NaN; under a transformation no
    error is raised.

    If no side sets a value and `c` is zero, the mean of the solution is zero, and the data must balance; see `Poisson`.

    Args:
        operator: The operator, with its coefficients and boundary.
        f: The right-hand side, with the grid's axes last.
        solver: A `lineax` solver that accepts the operator: `Multigrid`, `FastTransform`, or one of lineax. None for
            the choice of `default_solver`.
        t: The time, for values at the walls that are functions.
        args: Their second argument.
        throw: Whether to raise an error if no solution is found; under a transformation look for NaN.

    Raises:
        ValueError: If `f` has the wrong shape, or known data is incompatible.
        SolveError: If no solution is found and `throw` is set.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, Grid, Neumann, solve_elliptic

        boundary = Boundaries(Grid((8, 6)), {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0), "y": Neumann(0.0)})

        def flow(k):  # through the left wall
            u = solve_elliptic(EllipticOperator(boundary, k), jnp.zeros((8, 6)))
            return jnp.mean(k[0] * (1.0 - u[0])) * 2 * 8

        k = jnp.ones((8, 6))
        assert abs(flow(k) - 1.0) < 1e-3
        assert jnp.allclose(jax.grad(flow)(k).sum(), 1.0, atol=1e-2)  # proportional to k
        ```
    """
    solver = default_solver(operator) if solver is None else solver
    shape = operator.boundary.shape
    if f.shape[f.ndim - len(shape) :] != shape:
        raise ValueError(f"`f` must end with the axes {shape} of {operator.boundary.grid}, but has shape {f.shape}.")
    if jnp.finfo(f.dtype).dtype != operator.dtype:
        raise TypeError(f"`f` must have the dtype of the operator, {operator.dtype}, but has {f.dtype}.")
    source = operator.source(t=t, args=args).astype(f.dtype)
    if alike(operator.boundary):
        right = f + jnp.broadcast_to(source, f.shape)
    else:
        right = in_fluid(operator.boundary, f + jnp.broadcast_to(operator.per_volume(source), f.shape))
    if operator.singular:
        right = without_mean(operator.boundary, right, [f, *jax.tree.leaves(operator.boundary)])
    right = right if alike(operator.boundary) else operator.integrated(right)
    fn = functools.partial(_solve, operator, solver)
    for _ in range(f.ndim - len(shape)):
        fn = jax.vmap(fn)
    u, status = fn(right)
    if throw and concrete(u):  # under a transformation nothing is known yet
        _raise_if_nan(operator, u, right, solver, status)
    if operator.singular and not alike(operator.boundary):
        u = in_fluid(operator.boundary, u - mean(operator.boundary, u))
    return u


def _raise_if_nan(
    operator: EllipticOperator, u: Array, right: Array, solver: lx.AbstractLinearSolver, status: Array
) -> None:
    """Says how many right-hand sides have no solution, and why."""
    axes = tuple(range(-len(operator.boundary.shape), 0))
    failed = np.asarray(jnp.any(jnp.isnan(u), axes))
    if not failed.any():
        return
    given = np.asarray(jnp.all(jnp.isfinite(right), axes))
    codes = np.where(failed, np.where(given, np.asarray(status), Status.nonfinite), Status.successful)
    of = f" for {np.sum(failed)} of {failed.size} right-hand sides" if failed.ndim else ""
    if not np.any(failed & given):
        why = "The right-hand side, or a value at a wall, is NaN or infinite."
    elif bad := [name for name, x in (("k", operator.k), ("c", operator.c)) if not _nowhere_negative(x)]:
        why = f"The coefficient `{bad[0]}` must be positive or zero everywhere, but is negative or NaN in places."
    elif np.any(codes == Status.stagnated):
        why = (
            f"{type(solver).__name__} did not meet its tolerance, and rounding prevents a smaller residual. Loosen "
            "`rtol` or leave it out (the default is what rounding allows), or compute in float64."
        )
    else:
        limit = getattr(solver, "max_steps", None)
        within = "" if limit is None else f" within max_steps={limit}"
        why = (
            f"{type(solver).__name__} did not converge{within}. Allow more steps or loosen the tolerance, as in "
            "`solver=Multigrid(max_steps=1000)` or `solver=Multigrid(rtol=1e-4)`."
        )
    raise SolveError(f"`solve_elliptic` found no solution{of}. {why}", codes)


def _nowhere_negative(coefficient: Array | tuple[Array, ...] | None) -> bool:
    return all(np.all(np.asarray(x) >= 0) for x in jax.tree.leaves(coefficient) if concrete(x))


@eqx.filter_jit
def _solve(operator: EllipticOperator, solver: lx.AbstractLinearSolver, right: Array) -> tuple[Array, Array]:
    """Returns the solution, NaN where it is not found, and a code of `Status`."""
    if isinstance(solver, FastTransform):  # made of what JAX can differentiate
        return solver.compute(solver.init(operator, {}), right, {})[0], jnp.int32(Status.successful)
    if jnp.iscomplexobj(right):
        (real, first), (imaginary, second) = _solve(operator, solver, right.real), _solve(operator, solver, right.imag)
        return jax.lax.complex(real, imaginary), jnp.maximum(first, second)
    return _by_rule(operator.faces(), solver, solver.init(jax.lax.stop_gradient(operator), {}), right)


@eqx.filter_jit
def solve_couplings(matrix: AbstractCouplings, right: Array) -> Array:
    """Returns the solution of a system with a symmetric positive matrix; NaN where it is not found.

    In one dimension by elimination, otherwise by multigrid with line smoothing, for couplings of any size.
    """
    if matrix.ndim == 1:
        return solve_lines(factorise(matrix, 0), 0, right)
    solver = Multigrid(smoother=Lines(), pre=1, post=1)
    levels = build(jax.lax.stop_gradient(matrix), (1.0,) * matrix.ndim, Galerkin(), solver.smoother, False)
    return _by_rule(matrix, solver, MultigridState(jax.lax.stop_gradient(levels), False), right)[0]


def _by_rule(matrix: AbstractCouplings, solver: Any, state: Any, right: Array) -> tuple[Array, Array]:
    """The solution and its status, with the derivative of the equation."""
    # within `shard_map` all that the rule closes over must vary as its argument does
    matrix, right, state = promote((matrix, right, state))

    def run(_, b: Array) -> tuple[Array, Array]:
        u, result, _ = solver.compute(state, b, {})
        status = jnp.where(result == lx.RESULTS.stagnation, jnp.int32(Status.stagnated), jnp.int32(Status.diverged))
        good = result == lx.RESULTS.successful
        return jnp.where(good, u, jnp.nan), jnp.where(good, jnp.int32(Status.successful), status)

    return jax.lax.custom_linear_solve(matrix, right, run, symmetric=True, has_aux=True)
