"""Singly diagonally implicit Runge-Kutta methods with an explicit first stage."""

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...._choices import choices
from ...._jax._loops import scan
from ...._jax._vma import match
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...linear._choose import LinearChoice
from ...linear._preconditioners import AbstractPreconditioner
from ...linear._structure import AbstractStructure, DerivativeAlong
from ...linear._structured_field import StructuredField
from .._capabilities import Coordinates, Hooks, Traits
from .._ravel import elements_of, flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step
from ._consistent_initial_values import consistent_start, rate_with_mass
from ._known_root import known_root
from ._linear_options import check_systems, choice_of, preconditioner_field, solver_field, structure_of_systems
from ._mass_matrix import Mass, as_mass, times_known
from ._newton import Ending, Frozen, by_rounding, by_tolerated, newton
from ._rosenbrock import interpolated

# Coefficients of singly diagonally implicit Runge-Kutta methods with an explicit first stage, from diffrax's.
_EXACT = 1e-9
"""Conditions hold to this: some coefficients are published with twelve digits."""

_MOST_WEIGHT = 6.0
"""A first guess of a stage takes so much of earlier ones at most, in the sum of the weights' sizes."""


class SinglyImplicit(NamedTuple):
    r"""The coefficients of a method; see `ESDIRK`.

    Stiffly accurate, with $c_2 = 2 \gamma$ and $A c = c^2 / 2$, so that $z_1$, which is very large where a stiff system
    is slightly off its slow solution, cancels from all that a step returns: error and dense output are sums of the
    increments $u_i$ of stages.

    Attributes:
        gamma: $\gamma$.
        rows: The rows $a_i$ without their diagonals, row $i$ with $i$ entries, the first empty.
        nodes: The nodes $c_i$.
        guesses: The weights of earlier stages' increments that a stage's iteration starts from, the first two empty.
        error: The weights of the error estimate, one for each $u_i$.
        dense: The rows $H_m$ of the dense output, likewise.
        order: The order of the method.
        dense_order: The order of the dense output.
    """

    gamma: float
    rows: tuple[tuple[float, ...], ...]
    nodes: tuple[float, ...]
    guesses: tuple[tuple[float, ...], ...]
    error: tuple[float, ...]
    dense: tuple[tuple[float, ...], ...]
    order: int
    dense_order: int


def as_tableau(method: Any) -> SinglyImplicit:
    """Returns the coefficients of a diffrax solver.

    Raises:
        TypeError: If it is not a method of this kind.
    """
    if isinstance(method, SinglyImplicit):
        return method
    found = tableau_of(method) if isinstance(method, diffrax.AbstractSolver) else None
    if found is None:
        raise TypeError(
            "`method` must be a diffrax solver that is singly diagonally implicit and stiffly accurate with an "
            f"explicit first stage, such as `diffrax.Kvaerno5()` or `diffrax.KenCarp4()`, but is {method!r}."
        )
    return found


def tableau_of(solver: diffrax.AbstractSolver) -> SinglyImplicit | None:
    """Returns the (implicit) coefficients of a diffrax solver; None if it is not a method of this kind."""
    tableau = getattr(solver, "tableau", None)
    if isinstance(solver, diffrax.KenCarp3 | diffrax.KenCarp4 | diffrax.KenCarp5):
        tableau = solver.tableau.tableaus[1]
    elif not isinstance(solver, diffrax.AbstractDIRK):
        return None
    if not isinstance(tableau, diffrax.ButcherTableau) or tableau.a_diagonal is None:
        return None
    stages = len(tableau.b_sol)
    matrix = np.diag(np.asarray(tableau.a_diagonal, np.float64))
    for i, row in enumerate(tableau.a_lower):
        matrix[i + 1, : i + 1] = row
    if stages < 3 or not np.array_equal(matrix[-1], tableau.b_sol):
        return None
    key = tuple(map(tuple, matrix.tolist())), tuple(np.asarray(tableau.b_error, np.float64).tolist())
    order: Any = solver.order(None)
    return _singly_implicit(*key, int(order))


def takes_own_iteration(solver: diffrax.AbstractSolver) -> bool:
    """Whether a diffrax solver was given another iteration for its stages than it has by default."""
    given = ("root_finder", "root_find_max_steps", "scan_kind")
    usual = {x.name: x.default for x in dataclasses.fields(type(solver)) if x.name in given}  # pyright: ignore
    return any(eqx.tree_equal(getattr(solver, name), value) is not True for name, value in usual.items())


@functools.cache
def _singly_implicit(
    rows: tuple[tuple[float, ...], ...], error: tuple[float, ...], order: int
) -> SinglyImplicit | None:
    """Returns the coefficients and derived constants; None if the method is not of this kind."""
    matrix, weights, estimate = np.array(rows), np.array(rows[-1]), np.array(error)
    nodes, gamma = matrix.sum(1), matrix[1, 1]
    implicit = matrix[1:, 1:]
    alike = gamma > 0 and matrix[0, 0] == 0 and np.all(np.diagonal(implicit) == gamma)
    if not alike or np.abs(matrix @ nodes - nodes**2 / 2).max() > _EXACT:
        return None
    # of weights w for the z_i, w . free is what is left of a very large z_1 where a system is very stiff
    free = np.concatenate([[1.0], -np.linalg.solve(implicit, matrix[1:, 0])])
    if max(abs(weights @ free), abs(estimate @ free)) > _EXACT:
        return None
    dense_order, powers = _continuous(matrix, nodes, free)
    bends = -np.cumsum(powers[:, :0:-1], axis=1)[:, ::-1]  # with theta (1 - theta) theta^m
    of_increments = np.linalg.solve(implicit.T, np.stack([estimate, *bends.T], axis=1)[1:]).T
    return SinglyImplicit(
        gamma=float(gamma),
        rows=tuple(tuple(row[:i].tolist()) for i, row in enumerate(matrix)),
        nodes=tuple(nodes.tolist()),
        guesses=((), (), *(_guess(nodes[:i], nodes[i]) for i in range(2, len(nodes)))),
        error=tuple(of_increments[0].tolist()),
        dense=tuple(tuple(row.tolist()) for row in of_increments[1:]),
        order=order,
        dense_order=dense_order,
    )


def _continuous(matrix: np.ndarray, nodes: np.ndarray, free: np.ndarray) -> tuple[int, np.ndarray]:
    r"""Returns the order of the dense output, and its weights of $\theta, \theta^2, \dots$ for each stage.

    They are the smallest that satisfy the conditions of the highest order that there is, for all $\theta$, end at the
    step with the slope there, and contain nothing of a very large $z_1$.
    """
    last, order, found = np.eye(len(nodes))[-1], 0, np.zeros(0)
    for order in range(4, 0, -1):
        conditions = [*(nodes**k for k in range(order)), free]
        if order == 4:
            conditions.append(matrix @ nodes**2 / 2 - nodes**3 / 6)
        wanted = np.zeros((len(conditions), order))
        wanted[:order] = np.diag(1 / np.arange(1.0, order + 1))
        unit, ones, slopes = np.eye(order), np.ones((1, order)), np.arange(1.0, order + 1)[None]
        rows = [np.kron(np.stack(conditions), unit)] + [np.kron(np.eye(len(nodes)), x) for x in (ones, slopes)]
        system, right = np.concatenate(rows), np.concatenate([wanted.reshape(-1), matrix[-1], last])
        if order < 3:  # then the slope at the end is one condition too many
            system, right = system[: -len(nodes)], right[: -len(nodes)]
        found = np.linalg.lstsq(system, right, rcond=1e-12)[0]
        if np.abs(system @ found - right).max() < _EXACT:
            break
    return order, found.reshape(len(nodes), order)


def _guess(before: np.ndarray, node: float) -> tuple[float, ...]:
    """Returns the weights of values at earlier nodes that extrapolate a polynomial of up to third degree to a node.

    Values extrapolate and not slopes: these are very large where a stiff system is slightly off its slow solution.
    """
    same = np.flatnonzero(np.abs(before - node) < _EXACT)
    if same.size:
        return tuple(np.eye(len(before))[same[-1]].tolist())
    weights = np.zeros(len(before))
    for degree in range(min(len(before) - 1, 3), 0, -1):
        powers = np.arange(degree + 1.0)
        weights = np.linalg.lstsq(before[None] ** powers[:, None], node**powers, rcond=None)[0]
        if np.abs(weights).sum() <= _MOST_WEIGHT:
            break
    return tuple(weights.tolist())


_SHARE_OF_TOLERANCES = 0.01
"""Corrections of a stage's iteration have to be below this share of the tolerances."""

_SHARE_OF_DERIVATIVES = 1e-3
"""Derivatives of stages are exact to this share of the relative tolerance."""

_MOST_NEWTON, _MOST_TO_ROUNDING = 10, 50
"""The maximum number of iterations for a stage."""


class ESDIRK(AbstractStepper):
    r"""Singly diagonally implicit Runge-Kutta methods with an explicit first stage, for stiff $M \dot y = f(t, y)$.

    $$M z_i = h f\Big(t + c_i h,\; y + \sum_{j<i} a_{ij} z_j + \gamma z_i\Big), \qquad M z_1 = h f(t, y), \qquad
      y_1 = y + \sum_i b_i z_i,$$

    of diffrax's `Kvaerno3`, `Kvaerno4`, `Kvaerno5`, `KenCarp3`, `KenCarp4`, `KenCarp5`, or of a custom tableau in a
    `diffrax.AbstractESDIRK`. All of these are L-stable and stiffly accurate, with an error estimate that is bounded for
    very stiff equations. `sciml.solve(solver=diffrax.Kvaerno5())` is the same; this class adds a mass matrix
    and iterations for linear systems. From a pair of methods for two parts of an equation, such as KenCarp's, it uses
    the implicit one for the whole equation; `ARK` and `ARK(order=4)` are the pairs, for stiff parts that are linear.

    The increments of the stages, $u_i = z_i$ and what comes before it, are solved for one after another by Newton's
    iteration with one Jacobian, that at the start of the step, and one factorisation of $M - h \gamma J$. It ends when
    its error is below a hundredth of the tolerances, or at rounding if steps are fixed or tolerances are traced; a
    step for which it does not converge is tried again with a shorter length. Derivatives follow from the implicit
    function theorem, for any number of iterations. Between the ends of a step the solution is a polynomial of the
    stages of order four, of order three for `Kvaerno3`, `Kvaerno4` and `KenCarp3`, which no transient of a stiff system
    disturbs.

    Attributes:
        method: A diffrax solver, for its tableau.
        mass: The constant matrix $M$, of shape `(n, n)` for a state of `n` elements (a PyTree in the order of its
            leaves), or None for the identity. It may be singular if the algebraic equations determine the algebraic
            variables (index one); these are then made consistent at the start.
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, with tolerances
            relative to their right-hand sides; None to choose by the structure of the Jacobian.
        preconditioner: A preconditioner for the iteration, such as `BlockJacobi()` or `ILU0()`.
        tolerances: The relative and the absolute one of the steps, where they are known; the loops set them.

    Raises:
        TypeError: If `method` is not such a solver, `mass` is traced or not real, or `linear_solver` is not such an
            iteration.
        ValueError: If `mass` is not a finite square matrix, or does not fit the state, or the preconditioner does not.

    Source:
        A. Kvaerno, Singly diagonally implicit Runge-Kutta methods with an explicit first stage, BIT 44 (2004),
        doi:10.1023/B:BITN.0000046811.70614.38; C. A. Kennedy, M. H. Carpenter, Additive Runge-Kutta schemes for
        convection-diffusion-reaction equations, Appl. Numer. Math. 44 (2003), doi:10.1016/S0168-9274(02)00138-1. The
        iteration's end: E. Hairer, G. Wanner, Solving Ordinary Differential Equations II (1996), section IV.8.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import numpy as np
        import sciml

        def pair(t, y, args):  # y0' = -y0, 0 = y1 - y0^2
            return jnp.stack([-y[0], y[1] - y[0] ** 2])

        solver = sciml.solvers.ESDIRK(diffrax.Kvaerno5(), mass=np.diag([1.0, 0.0]))
        sol = sciml.solve(pair, jnp.ones(2), t0=0.0, t1=1.0, rtol=1e-4, atol=1e-6, solver=solver)
        assert abs(sol.ys[-1, 1] - jnp.exp(-2.0)) < 1e-3
        ```
    """

    method: SinglyImplicit = eqx.field(default=diffrax.Kvaerno5(), converter=as_tableau, static=True)
    mass: Mass | None = eqx.field(default=None, converter=as_mass, static=True, kw_only=True)
    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    tolerances: tuple[float, float] | None = eqx.field(default=None, static=True, kw_only=True, repr=False)
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = True

    @property
    def traits(self) -> Traits:
        """With iterations, which compile for long, it does not run element by element."""
        return Traits(
            dense=True,
            elementwise_dense=True,
            elementwise=self.linear_solver is None,
            takes_packed=self.linear_solver is None and self.preconditioner is None and self.mass is None,
            field_is_rate=self.mass is None,
            costly="large",
        )

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the state, consistent with a singular mass matrix."""
        return super().coordinates._replace(close=self.close, prepare=self.prepare, rate=self.rate)

    @property
    def hooks(self) -> Hooks:
        """Tolerances determine when its iterations end."""
        return Hooks(with_tolerances=self.with_tolerances)

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.method.order

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, "ESDIRK", relative=True)

    def rate(self, field: BoundField, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state: the vector field, divided by the mass matrix; see `rate_with_mass`."""
        return rate_with_mass(field, t, y, self._mass_of(y))

    def with_tolerances(self, tolerances: tuple[float, float] | None) -> "ESDIRK":
        """Returns the method for steps of known tolerances, which determine when its iterations end."""
        return dataclasses.replace(self, tolerances=tolerances)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as a field with the structure of its Jacobian, with its operands.

        Raises:
            ValueError: If the mass matrix does not fit the state.
            TypeError: If the state is large and of half precision.
        """
        size = check_systems("ESDIRK", y, self.mass)
        field, operands = super().coordinates.close(model, t, y, args, h)
        if self.linear.solver is None and size <= choices().linear.small_at_most:
            return field, operands
        return StructuredField(field, self._structure(lambda t, y: model(t, y, args), t, y)), operands

    def _structure(self, field: BoundField, t: RealScalarLike, y: Y) -> AbstractStructure:
        large = flattened(y).size >= choices().linear.iteration_of_all_from
        return structure_of_systems(field, t, y, self._mass_of(y), dataclasses.replace(self.linear, large=large))

    def _mass_of(self, y: Y) -> Mass | None:
        return None if self.mass is None else self.mass.of_parts(*elements_of(y))

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Solves the algebraic equations of a singular mass matrix; see `consistent_state`."""
        return consistent_start(field, t, y, self._mass_of(y))

    def empty_dense(self, y: Y) -> PyTree:
        """Returns zeros."""
        return tuple(jax.tree.map(jnp.zeros_like, y) for _ in self.method.dense)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        tableau, mass = self.method, self._mass_of(y)
        matrix = None if mass is None else mass.matrix
        # where M is singular any z_1 with M z_1 = h f will do: the rest cancels like what is very stiff
        inverse = None if matrix is None else np.linalg.pinv(matrix)
        x, h = flattened(y), jnp.asarray(h)
        length, start = h.astype(x.dtype), jnp.asarray(t, h.dtype)
        scale = tableau.gamma * length

        def slope_at(t: Array, x: Array) -> Array:
            return flattened(field(t, unflattened(x, y)))

        slope, tangent = jax.linearize(lambda x: slope_at(start, x), x)
        structure = self._structure(field, t, y)
        along = DerivativeAlong(tangent, lambda x: slope_at(start, x))
        system = jax.lax.stop_gradient(structure.assemble(along, x, scale))
        factors = structure.factorise(system)
        stages = len(tableau.nodes)
        ending = self._ending(jax.lax.stop_gradient(x))

        root = partial(
            known_root,
            divide=structure.substitute,
            divide_transposed=structure.substitute_transposed,
            exact=structure.entry_by_entry,
            rounding=None if self.tolerances is None else _SHARE_OF_DERIVATIVES * self.tolerances[0],
        )

        def stage(carry: tuple, inputs: tuple) -> tuple[tuple, Array]:
            slopes, values, rate, good = carry
            place, node, row, weights = inputs
            before, guess = _weighted(row, slopes), _weighted(weights, values)

            def residual(rise: Array) -> Array:
                return times_known(matrix, rise - before) - scale * slope_at(start + node * h, x + rise)

            def factors_at(rise: Array) -> PyTree:
                if not structure.entry_by_entry:
                    return factors
                along = jax.linearize(lambda x: slope_at(start + node * h, x), x + rise)[1]
                return structure.factorise(structure.assemble(along, x, scale))

            found = newton(Frozen.of(residual, guess), guess, structure.substitute, factors, ending, rate)
            rise = root(residual, found.root, factors_at=factors_at)
            slopes = jax.lax.dynamic_update_index_in_dim(slopes, (rise - before) / tableau.gamma, place, 0)
            values = jax.lax.dynamic_update_index_in_dim(values, jax.lax.stop_gradient(rise), place, 0)
            return (slopes, values, found.rate, good & found.converged), rise

        def filled(rows: tuple) -> Array:
            return jnp.asarray([[*row, *[0.0] * (stages - len(row))] for row in rows[1:]], x.dtype)

        rest = jnp.zeros((stages - 1, *x.shape), x.dtype)
        first = jnp.concatenate([times_known(inverse, length * slope)[None], rest])
        # the second stage of a linear equation, from which the iteration for it starts, in the place of the first
        second = 2 * tableau.gamma * structure.substitute(factors, jax.lax.stop_gradient(length * slope))
        values = jnp.concatenate([second[None], rest])
        guesses = ((), (1.0,), *((0.0, *row[1:]) for row in tableau.guesses[2:]))
        inputs = (
            jnp.arange(1, stages),
            jnp.asarray(tableau.nodes[1:], h.dtype),
            filled(tableau.rows),
            filled(guesses),
        )
        like = (start, h, x, slope, factors)
        carry = (first, values, jnp.ones((), x.dtype), jnp.ones((), bool))
        (*_, good), rises = scan(stage, match(carry, like), match(inputs, like), like=like)

        y1 = jnp.where(good, x + rises[-1], jnp.full_like(x, jnp.nan))
        error, *dense = (unflattened(_weighted(jnp.asarray(w, x.dtype), rises), y) for w in self._outputs)
        solvable = ~structure.is_singular(system, factors)
        # a value that is not finite is not a failure of the iteration
        converged = good | ~jnp.all(jnp.isfinite(rises))
        return Step(unflattened(y1, y), error, tuple(dense), solvable=solvable, converged=converged)

    def _ending(self, x: Float[Array, " n"]) -> Ending:
        """The stopping rule of the iterations of a step from `x`."""
        if self.tolerances is None:
            return by_rounding(x, _MOST_TO_ROUNDING)
        rtol, atol = self.tolerances
        return by_tolerated(x, lambda _: _SHARE_OF_TOLERANCES * (atol + rtol * jnp.abs(x)), _MOST_NEWTON)

    @property
    def _outputs(self) -> tuple[tuple[float, ...], ...]:
        return self.method.error, *self.method.dense

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the polynomial that belongs to the method."""
        del h
        return interpolated(theta, y0, y1, dense)


def from_diffrax(solver: diffrax.AbstractSolver) -> ESDIRK | None:
    """Returns the method of a diffrax solver, or None if it is not such a method or has its own iteration."""
    tableau = tableau_of(solver)
    return None if tableau is None or takes_own_iteration(solver) else ESDIRK(method=tableau)


def _weighted(weights: Array, stages: Float[Array, "s n"]) -> Float[Array, " n"]:
    """The sum of stages by weights; no matrix product, whose precision depends on the device."""
    return jnp.sum(weights[:, None] * stages, axis=0)
