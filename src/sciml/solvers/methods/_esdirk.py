"""Singly diagonally implicit Runge-Kutta methods with an explicit first stage."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._jax._loops import scan
from ..._jax._vma import match
from ..._types import Args, BoolScalarLike, RealScalarLike, Y
from ..linear._choose import LARGE_FROM, LinearChoice
from ..linear._preconditioners import AbstractPreconditioner
from ..linear._structure import AbstractStructure, DerivativeAlong
from ..linear._structured_field import StructuredField
from ..linear._written_out import SMALL
from ._consistent_initial_values import consistent_start
from ._esdirk_tableau import SinglyImplicit, as_tableau, tableau_of, takes_own_iteration
from ._known_root import known_root
from ._linear_options import check_systems, choice_of, preconditioner_field, solver_field, structure_of_systems
from ._mass_matrix import Mass, as_mass, times_known
from ._newton import Ending, Frozen, by_rounding, by_tolerated, newton
from ._ravel import elements_of, flattened, unflattened
from ._rosenbrock import interpolated
from ._stepper import AbstractStepper, BoundField, Step

_SHARE = 0.01
"""Corrections of a stage's iteration have to be below this share of the tolerances."""

_SHARE_OF_DERIVATIVES = 1e-3
"""Derivatives of stages are exact to this share of the relative tolerance."""

_MOST, _MOST_TO_ROUNDING = 10, 50
"""So many iterations are made for a stage at most."""


class ESDIRK(AbstractStepper):
    r"""Singly diagonally implicit Runge-Kutta methods with an explicit first stage, for stiff $M \dot y = f(t, y)$.

    $$M z_i = h f\Big(t + c_i h,\; y + \sum_{j<i} a_{ij} z_j + \gamma z_i\Big), \qquad M z_1 = h f(t, y), \qquad
      y_1 = y + \sum_i b_i z_i,$$

    of diffrax's `Kvaerno3`, `Kvaerno4`, `Kvaerno5`, `KenCarp3`, `KenCarp4`, `KenCarp5`, or of a tableau of one's own in
    a `diffrax.AbstractESDIRK`. All of these are L-stable and stiffly accurate, with an error estimate that is bounded
    where equations are very stiff. `sciml.solve(solver=diffrax.Kvaerno5())` is the same; this class adds a mass matrix
    and iterations for linear systems. Of a pair for two parts of an equation, as KenCarp's are, it takes the implicit
    one for all of it; `ARK324` and `ARK436` are the pairs, for stiff parts that are linear.

    The increments of the stages, $u_i = z_i$ and what comes before it, are solved for one after another by Newton's
    iteration with one Jacobian, that at the start of the step, and one factorisation of $M - h \gamma J$. It ends where
    its error is below a hundredth of the tolerances, or at rounding where steps are fixed or tolerances are traced; a
    step for which it does not converge is tried again with a shorter length. Derivatives are those of the implicit
    function, however many iterations there were. Between the ends of a step the solution is a polynomial of the stages
    of order four, of order three for `Kvaerno3`, `Kvaerno4` and `KenCarp3`, which no transient of a stiff system
    disturbs.

    Attributes:
        method: A diffrax solver, for its tableau.
        mass: The constant matrix $M$, of shape `(n, n)` for a state of `n` elements (a PyTree in the order of its
            leaves), or None for the identity. It may be singular where the algebraic equations determine the algebraic
            variables (index one); these are then made consistent at the start.
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, relative to
            whose right-hand sides they are solved; None for what the structure of the Jacobian asks for.
        preconditioner: What helps the iteration, such as `BlockJacobi()` or `ILU0()`.
        tolerances: The relative and the absolute one of the steps, where they are known; the loops set them.

    Raises:
        TypeError: If `method` is no such solver, `mass` is traced or not real, or `linear_solver` no such iteration.
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
    dense: ClassVar[bool] = True
    elementwise_dense: ClassVar[bool] = True

    @property
    def elementwise(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether small states of many members run element by element; not with iterations, which compile for long."""
        return self.linear_solver is None

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.method.order

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, "ESDIRK", relative=True)

    @property
    def field_is_rate(self) -> bool:
        """Whether there is no mass matrix."""
        return self.mass is None

    def use_full_budget(self, state_bytes: int) -> bool:
        """Whether a step takes far longer than to set up its record."""
        return state_bytes >= 64

    def with_tolerances(self, tolerances: tuple[float, float] | None) -> "ESDIRK":
        """Returns the method for steps of known tolerances, which say where its iterations end."""
        return dataclasses.replace(self, tolerances=tolerances)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as a field that knows the structure of its Jacobian, with its operands.

        Raises:
            ValueError: If the mass matrix does not fit the state.
            TypeError: If the state is large and of half precision.
        """
        size = check_systems("ESDIRK", y, self.mass)
        field, operands = super().close(model, t, y, args, h)
        if self.linear.solver is None and size <= SMALL:
            return field, operands
        return StructuredField(field, self._structure(lambda t, y: model(t, y, args), t, y)), operands

    def _structure(self, field: BoundField, t: RealScalarLike, y: Y) -> AbstractStructure:
        large = flattened(y).size >= LARGE_FROM
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
        # what is not finite is no fault of the iteration
        converged = good | ~jnp.all(jnp.isfinite(rises))
        return Step(unflattened(y1, y), error, tuple(dense), solvable=solvable, converged=converged)

    def _ending(self, x: Float[Array, " n"]) -> Ending:
        """Where the iterations of a step from `x` end."""
        if self.tolerances is None:
            return by_rounding(x, _MOST_TO_ROUNDING)
        rtol, atol = self.tolerances
        return by_tolerated(x, lambda _: _SHARE * (atol + rtol * jnp.abs(x)), _MOST)

    @property
    def _outputs(self) -> tuple[tuple[float, ...], ...]:
        return self.method.error, *self.method.dense

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the polynomial that belongs to the method."""
        del h
        return interpolated(theta, y0, y1, dense)


def from_diffrax(solver: diffrax.AbstractSolver) -> ESDIRK | None:
    """Returns the method of a diffrax solver, or None where it is no such method or has an iteration of its own."""
    tableau = tableau_of(solver)
    return None if tableau is None or takes_own_iteration(solver) else ESDIRK(tableau)


def _weighted(weights: Array, stages: Float[Array, "s n"]) -> Float[Array, " n"]:
    """The sum of stages by weights; no matrix product, whose precision depends on the device."""
    return jnp.sum(weights[:, None] * stages, axis=0)
