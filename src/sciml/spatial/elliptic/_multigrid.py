"""Geometric multigrid: transfers between levels, cycles over them, and the solver and preconditioner made of these."""

import functools as ft
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array

from ..._checks import check_count, check_max_steps
from ..._choices import choices
from ..._jax._loops import scan, while_loop
from ..._types import RealScalarLike
from .._grid import Grid
from ._coarsening import AbstractCoarsening, AbstractTransfer, Galerkin, Resistors, axes_to_coarsen, prolong, restrict
from ._couplings import AbstractCouplings
from ._operator import as_elliptic
from ._smoothers import AbstractSmoother, RedBlack

Couplings = TypeVar("Couplings", bound=AbstractCouplings)


class Level(eqx.Module):
    """One level and its transfers to the next.

    Attributes:
        operator: The operator.
        smoother: The data of the smoother.
        transfers: The interpolation from the next level, for each axis along which it is coarser.
    """

    operator: AbstractCouplings
    smoother: Any
    transfers: tuple[AbstractTransfer, ...]


class Hierarchy(eqx.Module):
    """All levels, from the finest.

    Attributes:
        levels: All but the coarsest.
        coarsest: The coarsest operator.
        inverse: The inverse of its matrix; where the constants are its kernel, one that takes a right-hand side
            without a mean to a solution without one.
    """

    levels: tuple[Level, ...]
    coarsest: AbstractCouplings
    inverse: Array

    @property
    def finest(self) -> AbstractCouplings:
        """The finest operator."""
        return self.levels[0].operator if self.levels else self.coarsest


@eqx.filter_jit
def build(
    finest: AbstractCouplings,
    spacing: tuple[float, ...],
    coarsening: AbstractCoarsening,
    smoother: AbstractSmoother,
    singular: bool,
) -> Hierarchy:
    """Returns the hierarchy below an operator.

    Args:
        finest: The finest operator.
        spacing: The distance between its unknowns along each axis.
        coarsening: How the next level is made.
        smoother: The smoother of all levels.
        singular: Whether the constants are its kernel.
    """
    levels, operator, direct = [], finest, choices().elliptic.direct_at_most
    while _size(operator.shape) > direct and (axes := axes_to_coarsen(operator.shape, spacing)):
        coarse, transfers = coarsening.coarsen(operator, axes)
        levels.append(Level(operator, smoother.prepare(operator), transfers))
        spacing = tuple(2 * h if axis in axes else h for axis, h in enumerate(spacing))
        operator = coarse
    matrix = operator.matrix()
    if singular:
        # The constants get an eigenvalue of their own, which changes nothing for right-hand sides without a mean.
        matrix = matrix + jnp.max(jnp.abs(matrix)) / matrix.shape[0]
    return Hierarchy(tuple(levels), operator, jnp.linalg.inv(matrix))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


class Cycle(eqx.Module):
    """One pass through the levels: an approximation to the inverse of the finest operator.

    Attributes:
        kind: `"V"`, `"W"` or `"F"`; see `Multigrid`.
        smoother: The smoother.
        pre: The sweeps on every level on the way down.
        post: The sweeps on every level on the way up.
    """

    kind: str = eqx.field(static=True)
    smoother: AbstractSmoother
    pre: int = eqx.field(static=True)
    post: int = eqx.field(static=True)

    def _below(self, levels: Sequence[Level], hierarchy: Hierarchy, f: Array) -> Array:
        """Returns the correction from the levels below one.

        Args:
            levels: These levels but the coarsest.
            hierarchy: The whole hierarchy.
            f: The right-hand side of the first of these levels.
        """
        if self.kind == "V" or not levels:  # the coarsest system is solved exactly: once is enough
            return self._descend(levels, hierarchy, f)
        if self.kind == "F":
            u = self._descend(levels, hierarchy, f)
            return Cycle("V", self.smoother, self.pre, self.post)._again(levels, hierarchy, f, u)

        def iterate(u: Array, _: None) -> tuple[Array, None]:
            return self._again(levels, hierarchy, f, u), None

        return scan(iterate, jnp.zeros_like(f), length=2, like=hierarchy)[0]  # a loop, so the program is no longer

    def _descend(self, levels: Sequence[Level], hierarchy: Hierarchy, f: Array) -> Array:
        """Returns an approximate solution on the first of some levels, from zero."""
        if not levels:
            return (hierarchy.inverse @ f.reshape(-1)).reshape(f.shape)
        level = levels[0]
        u = self.smoother.smooth(level.operator, level.smoother, jnp.zeros_like(f), f, self.pre, False)
        residual = restrict(f - level.operator(u), level.transfers)
        u = u + prolong(self._below(levels[1:], hierarchy, residual), level.transfers)
        # in the opposite order, the transpose of the sweeps on the way down: with as many, the cycle is symmetric
        return self.smoother.smooth(level.operator, level.smoother, u, f, self.post, True)

    def _again(self, levels: Sequence[Level], hierarchy: Hierarchy, f: Array, u: Array) -> Array:
        """Returns the field after one more cycle from these levels down."""
        return u + self._descend(levels, hierarchy, f - levels[0].operator(u))

    def __call__(self, hierarchy: Hierarchy, f: Array) -> Array:
        """Returns an approximate solution on the finest level."""
        return self._descend(hierarchy.levels, hierarchy, f)


class MultigridState(eqx.Module):
    """The data that `Multigrid` computes from the operator only.

    Attributes:
        hierarchy: The levels.
        singular: Whether the constants are the kernel of the operator.
        fluid: The fluid cells, if not all: one outside of a body, zero in it.
    """

    hierarchy: Hierarchy
    singular: bool = eqx.field(static=True)
    fluid: Array | None = None


class _CycleStart(NamedTuple):
    """The point at which the iteration starts, and restarts: the residual is computed from `u`."""

    u: Array
    residual: Array
    accepted: Array
    falls: Array
    steps: Array


class _CycleStep(NamedTuple):
    u: Array
    residual: Array
    direction: Array
    product: Array
    size: Array
    steps: Array


class Multigrid(lx.AbstractLinearSolver[MultigridState]):
    r"""Geometric multigrid for `EllipticOperator`s: the work is proportional to the number of unknowns.

    Conjugate gradients run over the cycles, which makes them robust: each cycle is one step of the flexible method
    with the cycle as the preconditioner. Coefficients may jump, spacings and coefficients may differ between axes, and
    the number of unknowns need not be a power of two.

    A cycle reduces the residual by the same factor for coefficients that jump as for constant ones, because the coarse
    levels are derived from the coefficients: `python -m benchmarks multigrid` prints the factors. This applies to
    regions, layers and channels that a coarser grid still resolves. Coefficients that jump from cell to cell without
    order take many cycles, and more on finer grids: raise `max_steps`.

    If the constants are the kernel of the operator, the mean of the right-hand side is removed and the solution has
    mean zero: the least-squares solution.

    It is a `lineax` solver: `lineax.linear_solve(operator, vector, Multigrid())`, and
    `lineax.CG(...)` with `options={"preconditioner": multigrid.preconditioner(operator)}`. `solve_elliptic` also
    handles values at the walls. Gradients need one more solve with the same levels.

    Attributes:
        cycle: The order in which the levels are visited. `"V"` goes down to the coarsest level and up again. `"W"`
            visits the next level twice from each one: it costs more, and is worthwhile if `"V"` converges slowly. `"F"`
            visits the next level by an F-cycle and then by a V-cycle, at a cost between the two.
        smoother: The smoother: `RedBlack()`, `Lines()` or `ChebyshevSmoother()`.
        pre: The number of sweeps on every level on the way down.
        post: The number of sweeps on every level on the way up.
        coarsening: How the coarse levels are made. `"galerkin"`: the operator between interpolations, which follows
            coefficients that jump. `"resistors"`: couplings in parallel and in series, on five points, in less
            memory. None means `"resistors"` if the coefficients $k$ are numbers, and `"galerkin"` if they are fields.
        rtol: The norm of the residual that ends the solve, relative to the right-hand side; None for 1e-10 in float64
            and 1e-5 in float32, or, if rounding prevents this, the smallest that it allows: about $k\, u / h^2$ times
            1e-7 in float32. A tolerance that you give is met, or the solution is not found.
        atol: The norm of the residual that ends it in any case.
        max_steps: The largest number of cycles.

    Source:
        U. Trottenberg, C. Oosterlee and A. Schueller, Multigrid, Academic Press, 2001; Y. Notay, SIAM J. Sci. Comput.
        22:1444, 2000, for the flexible method.

    Example:
        ```python
        import jax.numpy as jnp
        import lineax as lx
        from sciml.spatial import Boundaries, EllipticOperator, Grid, Multigrid, Neumann

        boundary = Boundaries(Grid((24, 20)), Neumann(0.0))
        x, y = boundary.coordinates
        f = jnp.cos(jnp.pi * x) * jnp.cos(jnp.pi * y)
        solution = lx.linear_solve(EllipticOperator(boundary), f, Multigrid())
        assert jnp.allclose(solution.value, f / (2 * jnp.pi**2), atol=1e-3)
        assert solution.stats["num_steps"] < 10
        ```
    """

    cycle: str = eqx.field(static=True, default="V")
    smoother: AbstractSmoother = RedBlack()
    pre: int = eqx.field(static=True, default=2)
    post: int = eqx.field(static=True, default=2)
    coarsening: str | None = eqx.field(static=True, default=None)
    rtol: RealScalarLike | None = None
    atol: RealScalarLike = 0.0
    max_steps: int = eqx.field(static=True, default=100, converter=check_max_steps)

    def __check_init__(self):
        if self.cycle not in ("V", "W", "F"):
            raise ValueError(f'`Multigrid(cycle=...)` must be "V", "W" or "F", but got {self.cycle!r}.')
        if self.coarsening not in ("galerkin", "resistors", None):
            raise ValueError(
                f'`Multigrid(coarsening=...)` must be "galerkin", "resistors" or None, but got {self.coarsening!r}.'
            )
        if not isinstance(self.smoother, AbstractSmoother):
            raise TypeError(
                f"`Multigrid(smoother=...)` must be a smoother such as `Lines()`, but got {self.smoother!r}."
            )
        for name in ("pre", "post"):
            value = getattr(self, name)
            if value != 0 or isinstance(value, bool):
                check_count(value, name, "Multigrid")
        if self.pre + self.post == 0:
            raise ValueError("`Multigrid` requires at least one sweep, but `pre` and `post` are both 0.")

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> MultigridState:
        """Returns the levels below an operator.

        Raises:
            ValueError: If it is not an `EllipticOperator`, or a sum or multiple of one with the identity.
        """
        del options
        elliptic = as_elliptic(operator)
        grid, body = elliptic.boundary.grid, elliptic.boundary.body
        faces = elliptic.faces()
        spacing = grid.spacing if isinstance(grid, Grid) else (1.0,) * grid.ndim  # coarser along all axes alike
        resistors = faces.uniform if self.coarsening is None else self.coarsening == "resistors"
        coarsening = Resistors() if resistors else Galerkin()
        hierarchy = build(faces, spacing, coarsening, self.smoother, elliptic.singular)
        # The derivative of a solution is the derivative of the equation, whatever the levels that found it.
        fluid = None if body is None else jax.lax.stop_gradient(body.fluid.astype(elliptic.dtype))
        return MultigridState(jax.lax.stop_gradient(hierarchy), elliptic.singular, fluid)

    def compute(
        self, state: MultigridState, vector: Array, options: dict[str, Any]
    ) -> tuple[Array, lx.RESULTS, dict[str, Any]]:
        """Returns the solution, whether it was found, and the number of cycles.

        Args:
            state: The result of `init`.
            vector: The right-hand side; complex ones are solved by their parts.
            options: `y0`, where to start from.
        """
        y0 = options.get("y0", jnp.zeros_like(vector))
        if jnp.iscomplexobj(vector):  # the operator is real
            parts = jnp.stack([vector.real, vector.imag]), jnp.stack([y0.real, y0.imag])
            (real, imaginary), converged, steps = jax.vmap(lambda f, u: self._solve(state, f, u))(*parts)
            u, converged, steps = jax.lax.complex(real, imaginary), jnp.all(converged), jnp.max(steps)
        else:
            u, converged, steps = self._solve(state, vector, y0)
        failed = lx.RESULTS.where(steps < self.max_steps, lx.RESULTS.stagnation, lx.RESULTS.max_steps_reached)
        result = lx.RESULTS.where(converged, lx.RESULTS.successful, failed)
        return u, result, {"num_steps": steps, "max_steps": self.max_steps}

    def _solve(self, state: MultigridState, f: Array, u: Array) -> tuple[Array, Array, Array]:
        operator, cycle = state.hierarchy.finest, self._cycle()
        without_mean = ft.partial(_without_mean, fluid=state.fluid) if state.singular else lambda x: x
        rtol = self.rtol
        if rtol is None:
            rtol = 1e-10 if jnp.finfo(f.dtype).bits == 64 else 1e-5
        f, u = without_mean(f), without_mean(u)
        limit = jnp.maximum(jnp.asarray(rtol, f.dtype) * _norm(f), jnp.asarray(self.atol, f.dtype))

        def running(now: _CycleStep | _CycleStart) -> Array:
            return (_norm(now.residual) > limit) & (now.steps < self.max_steps)

        def again(start: _CycleStart) -> Array:
            return running(start) & (_norm(start.residual) > start.accepted) & start.falls

        def step(now: _CycleStep) -> _CycleStep:
            correction = without_mean(cycle(state.hierarchy, now.residual))
            # the direction is conjugate to the last one, whatever the preconditioner has become
            weight = jnp.vdot(correction, now.product) / now.size
            direction = correction - weight * now.direction
            product = operator(direction)
            size = jnp.vdot(direction, product)
            length = jnp.vdot(direction, now.residual) / size
            u, residual = now.u + length * direction, without_mean(now.residual - length * product)
            return _CycleStep(u, residual, direction, product, size, now.steps + 1)

        def run(start: _CycleStart) -> _CycleStart:
            none = jnp.zeros_like(f)
            first = _CycleStep(start.u, start.residual, none, none, jnp.ones((), f.dtype), start.steps)
            end = while_loop(running, step, first, like=(state, f))
            # by rounding the residual of the recurrence drifts away from the residual of the solution, the only one
            # that counts
            residual = without_mean(f - operator(end.u))
            falls = _norm(residual) <= _norm(start.residual) / 2
            # the rounding limit does not excuse an iteration that was stopped early
            accepted = jnp.where(_norm(end.residual) <= limit, self._accepted(operator, end.u, limit), limit)
            return _CycleStart(end.u, residual, accepted, falls, end.steps)

        start = _CycleStart(u, without_mean(f - operator(u)), limit, jnp.asarray(True), jnp.zeros((), jnp.int32))
        end = while_loop(again, run, start, like=(state, f))
        return without_mean(end.u), _norm(end.residual) <= end.accepted, end.steps

    def _cycle(self) -> Cycle:
        return Cycle(self.cycle, self.smoother, self.pre, self.post)

    def _accepted(self, operator: Any, u: Array, limit: Array) -> Array:
        """Returns the norm of the residual that will do: the tolerance, and by default what rounding makes of it."""
        if self.rtol is not None:
            return limit
        size = jnp.abs(u)  # the bound on rounding in a sum is by the sum of the moduli; every coupling is positive
        return jnp.maximum(limit, 4 * jnp.finfo(u.dtype).eps * _norm(2 * operator.diagonal() * size - operator(size)))

    def preconditioner(self, operator: lx.AbstractLinearOperator) -> lx.FunctionLinearOperator:
        """Returns one cycle as a symmetric positive operator, for `lineax.CG` and its like.

        Args:
            operator: The operator, positive, of which the cycle approximates the inverse.

        Raises:
            ValueError: If it is not elliptic, or the cycle is not symmetric.
        """
        if self.pre != self.post or self.cycle == "F":
            raise ValueError(
                'a preconditioner must be symmetric: `cycle` must be "V" or "W" with `pre` equal to `post`, but got '
                f"Multigrid(cycle={self.cycle!r}, pre={self.pre}, post={self.post})."
            )
        state, cycle = self.init(operator, {}), self._cycle()

        def apply(r: Array) -> Array:
            r = _without_mean(r, state.fluid) if state.singular else r
            u = cycle(state.hierarchy, r)
            return _without_mean(u, state.fluid) if state.singular else u

        return lx.FunctionLinearOperator(apply, as_elliptic(operator).in_structure(), lx.positive_semidefinite_tag)

    def transpose(self, state: MultigridState, options: dict[str, Any]) -> tuple[MultigridState, dict[str, Any]]:
        """Returns the same levels: the operator is symmetric."""
        del options
        return state, {}

    def conj(self, state: MultigridState, options: dict[str, Any]) -> tuple[MultigridState, dict[str, Any]]:
        """Returns the same levels: the operator is real."""
        del options
        return state, {}

    def assume_full_rank(self) -> bool:
        """Returns True: a kernel of constants, the same for all coefficients, adds nothing to the derivative."""
        return True


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.vdot(x, x))


def _without_mean(x: Array, fluid: Array | None) -> Array:
    if fluid is None:
        return x - jnp.mean(x)
    return x - fluid * (jnp.vdot(fluid, x) / jnp.vdot(fluid, fluid))
