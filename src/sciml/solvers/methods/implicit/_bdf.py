r"""Backward differentiation formulas of variable order, for stiff equations.

The last states of a solution as backward differences, from which methods of several steps are made.

Of states at equal distances $h$ in time, with $\nabla y_n = y_n - y_{n-1}$, the polynomial of degree $k$ through the
last $k + 1$ is

$$p(t_n + s h) = y_n + \sum_{j=1}^{k} \binom{s + j - 1}{j} \nabla^j y_n .$$

Its differences at another distance $r h$ are sums of the same ones, $\sum_{i \ge j} T_{ji}(r) \nabla^i y_n$, with

$$T_{ji}(r) = (-1)^{i+j} j! \sum_{m=j}^{i} a_{im} S(m, j)\, r^m, \qquad \binom{x}{i} = \sum_m a_{im} x^m,$$

where $S$ are Stirling's numbers of the second kind.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Real

from ...._choices import choices
from ...._jax._branches import cond
from ...._jax._loops import while_loop
from ...._jax._vma import match
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._criterion import Criterion
from ...control._pid import FirstStep, initial_step
from ...linear._choose import LinearChoice
from ...linear._preconditioners import AbstractPreconditioner
from ...linear._structure import AbstractStructure, DerivativeAlong
from ...linear._structured_field import StructuredField
from .._capabilities import Coordinates, Hooks, Traits
from .._ravel import elements_of, flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step
from ..around._history import HistoryMemory, joined, past_of, reused_of
from ..around._wrapped import AbstractWrappedStepper
from ._consistent_initial_values import consistent_start, rate_with_mass
from ._known_root import known_root
from ._linear_options import check_systems, choice_of, preconditioner_field, solver_field, structure_of_systems
from ._mass_matrix import Mass, as_mass, times_known
from ._newton import Ending, Found, Frozen, by_criterion, by_rounding, newton
from ._rodas5p import Rodas5P
from ._rosenbrock import Rosenbrock

# Newton's iteration with the factors of an earlier step, as long as it converges with them.
#
# The matrix $M - s J$ changes with the scale $s$, a step times a coefficient, and with the Jacobian. Factors of another
# scale $s'$ are near enough if $s / s'$ is near one; their solution of a right-hand side is then too large or too small
# by about $(1 + s / s') / 2$, by which it is divided. If the iteration does not converge with old factors, it starts
# again with new ones. For many members side by side each branch is computed for all, so new factors cost the same in
# every step.
#
# Source: P. N. Brown, G. D. Byrne, A. C. Hindmarsh, VODE: A Variable-Coefficient ODE Solver, SIAM J. Sci. Stat. Comput.
# 10:5 (1989).


_NEAR = 0.3
"""The allowed difference between the scale of a matrix and the scale of reused factors."""


class KeptFactors(NamedTuple):
    """The factors of a matrix.

    Attributes:
        parts: The result of its structure.
        scale: The scale of the matrix; zero where there are no factors yet.
        regular: Whether it is regular.
    """

    parts: PyTree
    scale: Real[Array, ""]
    regular: Bool[Array, ""]


class Nearby(NamedTuple):
    """Factors of a matrix that is near another.

    Attributes:
        parts: The result of the structure for the matrix.
        damping: The factor of solutions.
    """

    parts: PyTree
    damping: Real[Array, ""]


class Systems(NamedTuple):
    """The linear systems of an iteration.

    Attributes:
        structure: Their structure.
        slope: The vector field at the end of the step.
        guess: A state there.
        scale: The factor of the Jacobian.
        tolerated: The tolerated error of each unknown, or None if unknown.
    """

    structure: AbstractStructure
    slope: Frozen
    guess: Float[Array, " n"]
    scale: Real[Array, ""]
    tolerated: Float[Array, " n"] | None = None

    def divide(self, factors: Nearby, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns about the solution of a system."""
        return factors.damping * self.structure.substitute(factors.parts, b)

    def divide_transposed(self, factors: Nearby, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns about the solution of the transposed system."""
        return factors.damping * self.structure.substitute_transposed(factors.parts, b)

    def factorised(self) -> KeptFactors:
        """Returns the factors of the matrix itself."""
        _, along = jax.linearize(self.slope, self.guess)
        along = DerivativeAlong(along, self.slope)
        matrix = jax.lax.stop_gradient(self.structure.assemble(along, self.guess, self.scale))
        if self.tolerated is not None:
            matrix = self.structure.weighted(matrix, self.tolerated)
        parts = self.structure.factorise(matrix)
        matrix, parts = jax.lax.stop_gradient(self.structure.computed_once(matrix, parts))
        return KeptFactors(parts, self.scale, ~self.structure.is_singular(matrix, parts))

    @property
    def nothing(self) -> KeptFactors | None:
        """The factors that there are before the first step; None where it is not worth while to keep any."""
        if self.structure.entry_by_entry or self.structure.iterates:
            return None
        shapes = jax.eval_shape(self.factorised)
        return match(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), (self.guess, self.scale))

    def solved(self, residual: Frozen, ending: Ending, kept: KeptFactors | None) -> tuple[Found, KeptFactors]:
        """Returns the root of a function near zero, and the factors that it was found with.

        Args:
            residual: The function.
            ending: The stopping rule of the iteration.
            kept: Factors of an earlier step, or None.
        """
        zero = jnp.zeros_like(self.guess)
        if kept is None:
            factors = self.factorised()
            return newton(residual, zero, self.divide, self.near(factors), ending), factors

        def try_with(carry: tuple) -> tuple:
            new, factors, _, _ = carry
            like = (self.guess, self.scale, self.slope.consts, kept)
            factors = cond(new, self.factorised, lambda: factors, like=like)
            found = newton(residual, zero, self.divide, self.near(factors), ending)
            return ~new, factors, found, ~found.converged & ~new

        new = ~(jnp.abs(self.scale - kept.scale) <= _NEAR * jnp.abs(kept.scale)) | (kept.scale == 0)
        nothing = Found(zero, jnp.zeros((), bool), jnp.zeros((), jnp.int32), jnp.ones((), zero.dtype))
        start = (new, kept, nothing, jnp.ones((), bool))
        like = (residual.consts, self.slope.consts, ending.like, self.guess, self.scale)
        _, factors, found, _ = while_loop(lambda c: c[3], try_with, match(start, like), like=like)
        return found, factors

    def near(self, factors: KeptFactors) -> Nearby:
        """Returns factors for the matrix itself."""
        none = factors.scale == 0
        ratio = self.scale / jnp.where(none, jnp.ones_like(self.scale), factors.scale)
        return Nearby(factors.parts, 2 / (1 + ratio))


HIGHEST_ORDER = 5
"""The highest order of a method that is made from them."""


class Differences(NamedTuple):
    """The history of a solution before its last state.

    All of it are real numbers, which loops carry and record; lengths and orders are constant to derivatives.

    Attributes:
        rows: The differences from the first to one of order `HIGHEST_ORDER + 2`, each a vector, or all in one array;
            see `together`.
        order: The order up to which they belong to actual states.
        length: The distance in time, with its sign.
        equal: How many steps of that length have been taken with this order.
    """

    rows: tuple[Float[Array, " n"], ...] | Float[Array, "rows n"]
    order: Real[Array, ""]
    length: Real[Array, ""]
    equal: Real[Array, ""]

    def apart(self) -> "Differences":
        """Returns them with one array for each row."""
        rows = self.rows
        return self if isinstance(rows, tuple) else self._replace(rows=tuple(rows[j] for j in range(rows.shape[0])))

    def together(self) -> "Differences":
        """Returns them as a loop carries them: with one array of all rows, where each would be one of many scalars."""
        rows, table = self.rows, choices().linear
        if isinstance(rows, tuple) and table.history_together_from <= rows[0].size <= table.sparse_at_most:
            return self._replace(rows=jnp.stack(rows))
        return self

    def at_distance(self, h: Real[Array, ""]) -> "Differences":
        """Returns the same polynomial by its differences at another distance."""
        order, length, equal = jax.lax.stop_gradient((self.order, self.length, self.equal))
        same = h == length
        ratio = jnp.where(same, jnp.ones_like(h), h / length).astype(order.dtype)
        powers = [ratio]
        while len(powers) < HIGHEST_ORDER:
            powers.append(powers[-1] * ratio)
        # numbers before vectors: XLA computes them together then, and once
        zero = jnp.zeros_like(ratio)
        weights = {
            (j, i): jnp.where(order >= i, _polynomial(change, powers, j), zero) for (j, i), change in _CHANGES.items()
        }
        rows = []
        for j, old in enumerate(self.rows, 1):
            terms = [weights[j, i] * self.rows[i - 1] for i in range(j, HIGHEST_ORDER + 1)]
            rows.append(jnp.where(same, old, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(old)))
        return Differences(tuple(rows), order, h, jnp.where(same, equal, jnp.zeros_like(equal)))

    def weighted(self, weights: Sequence[float]) -> Float[Array, " n"]:
        """Returns the weighted sum of the differences up to the order, with one weight for each, in their order."""
        terms = [
            jnp.where(self.order >= j, jnp.full_like(self.order, w), jnp.zeros_like(self.order)) * row
            for j, (w, row) in enumerate(zip(weights, self.rows), 1)
        ]
        return sum(terms[1:], terms[0])

    def followed_by(self, gap: Float[Array, " n"]) -> "Differences":
        """Returns the differences after one more step, valid to one more order.

        Args:
            gap: By how much the new state differs from where the polynomial would have it.
        """
        rows: list[Array] = []
        for j in range(len(self.rows), 0, -1):
            old = self.rows[j - 1]
            row = old if not rows else jnp.where(self.order >= j, old + rows[-1], old)
            row = jnp.where(self.order == j - 1, gap, row)
            if j > 1:
                row = jnp.where(self.order == j - 2, gap - self.rows[j - 2], row)
            rows.append(row)
        return self._replace(rows=tuple(reversed(rows)))


def at_order(table: Sequence[float], order: Real[Array, ""]) -> Real[Array, ""]:
    """Returns the number for an order; the first number is for order zero."""
    found = jnp.zeros_like(order)
    for k, number in enumerate(table):
        found = jnp.where(order == k, jnp.full_like(order, number), found)
    return found


def newton_basis(s: Array) -> list[Array]:
    r"""Returns $\binom{s + j - 1}{j}$ from $j = 1$ on, the weights of the differences in the polynomial."""
    basis = [s]
    for j in range(2, HIGHEST_ORDER + 1):
        basis.append(basis[-1] * ((s + (j - 1)) / j))
    return basis


def _polynomial(coefficients: Sequence[float], powers: Sequence[Array], first: int) -> Array:
    terms = [c * powers[first - 1 + m] for m, c in enumerate(coefficients)]
    return sum(terms[1:], terms[0])


def _change(j: int, i: int) -> tuple[float, ...]:
    """Returns the coefficients of $T_{ji}$, from power j to power i."""
    binomial = (np.poly(np.arange(i)) / math.factorial(i))[::-1]
    return tuple(
        float((-1) ** (i + j) * binomial[m] * sum((-1) ** (j - n) * math.comb(j, n) * n**m for n in range(j + 1)))
        for m in range(j, i + 1)
    )


_CHANGES = {(j, i): _change(j, i) for i in range(1, HIGHEST_ORDER + 1) for j in range(1, i + 1)}


# Fixed steps of a multistep method begin with steps of a one-step method.
class Started(AbstractWrappedStepper):
    """A backward differentiation method whose first steps use `Rodas5P`, one for each of its orders.

    Attributes:
        base: The method.
    """

    base: Any

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> Differences | HistoryMemory:
        """Returns no differences."""
        memory = self.base.init(field, t, y)
        none: Differences = past_of(memory).apart()
        none = none._replace(rows=tuple(map(jnp.zeros_like, none.rows)), order=jnp.zeros_like(none.order))
        return joined(none.together(), reused_of(memory))

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        like = (jnp.asarray(t), jnp.asarray(h), y, memory)
        return cond(
            past_of(memory).order < self.base.order,
            lambda: self._first(field, t, h, y, memory),
            lambda: self._later(field, t, h, y, memory),
            like=like,
        )

    def _first(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Returns a step of the one-step method, with the differences to one more order."""
        method = Rosenbrock(Rodas5P().tableau, self.base.mass_of(y), linear=self.base.linear)
        step = method.step(field, t, h, y, None)
        past = past_of(memory).apart().at_distance(jnp.asarray(h))
        x, x1 = flattened(y), flattened(step.y1)
        after = past.followed_by(x1 - x - past.weighted((1.0,) * HIGHEST_ORDER))
        return Step(
            step.y1,
            step.error,
            _as_differences(step.dense),
            joined(after._replace(order=past.order + 1).together(), reused_of(memory)),
            jnp.asarray(step.solvable),
            converged=jnp.ones((), bool) if step.converged is None else jnp.asarray(step.converged),
        )

    def _later(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        step: Step = self.base.step(field, t, h, y, memory)
        return step


def _as_differences(rows: tuple[Y, ...]) -> tuple[Y, ...]:
    r"""Returns the dense output of `Rodas5P` as weights of differences, for degree two and more.

    $\theta (1 - \theta) (K_1 + \theta K_2 + \theta^2 K_3) = c_2 \binom{\theta}{2} + c_3 \binom{\theta + 1}{3} + c_4
    \binom{\theta + 2}{4}$.
    """

    def of_leaf(a: Array, b: Array, c: Array) -> tuple[Array, ...]:
        return 2 * (b - a - c), 18 * c - 6 * b, -24 * c, jnp.zeros_like(a)

    made = jax.tree.map(of_leaf, *rows)
    return jax.tree.transpose(jax.tree.structure(rows[0]), jax.tree.structure((0,) * (HIGHEST_ORDER - 1)), made)


_KAPPA = (0.0, -0.1850, -1 / 9, -0.0823, -0.0415, 0.0)
_GAMMA = tuple(np.cumsum([0.0, *(1 / np.arange(1, HIGHEST_ORDER + 1))]).tolist())
_ALPHA = tuple((1 - k) * g for k, g in zip(_KAPPA, _GAMMA))
_ERROR = (1.0, *(k * g + 1 / (n + 1) for n, (k, g) in enumerate(zip(_KAPPA, _GAMMA)) if n))

_HALF = 0.5
"""By which a step is shorter that is tried again since Newton's iteration did not converge."""

_MOST_NEWTON, _MOST_TO_ROUNDING = 4, 20
"""How many iterations of Newton's a step is tried with, by the tolerances and to rounding."""

_CLOSE = 0.7
"""The power of the rounding for the case that each Newton iteration also iterates its linear system."""

_CAREFUL_NEWTON = 4
"""The number of Newton iterations after which the next step is chosen more carefully."""


def _as_order(order: Any) -> int:
    if not isinstance(order, int) or isinstance(order, bool):
        raise TypeError(f"`max_order` must be an integer from 1 to {HIGHEST_ORDER}, but is {order!r}.")
    if not 1 <= order <= HIGHEST_ORDER:
        raise ValueError(f"`max_order` must be an integer from 1 to {HIGHEST_ORDER}, but is {order}.")
    return order


class BDF(AbstractStepper):
    r"""Backward differentiation formulas of orders 1 to 5 with variable steps, for stiff $M \dot y = f(t, y)$.

    With the backward differences $\nabla^j y_n$ of the last states and $y^* = \sum_{j=0}^{k} \nabla^j y_n$, the
    extrapolation of their polynomial, the step of order $k$ solves

    $$M \Big( (1 - \kappa_k) \gamma_k\, (y_{n+1} - y^*) + \sum_{j=1}^{k} \gamma_j \nabla^j y_n \Big)
        = h f(t_{n+1}, y_{n+1}), \qquad \gamma_j = \sum_{i=1}^{j} \frac1i ,$$

    by Newton's iteration, one linear system of the size of the state. The $\kappa_k$ of Klopfenstein and Shampine make
    the error, $(\kappa_k \gamma_k + \frac{1}{k+1}) (y_{n+1} - y^*)$, smaller than for Gear's formulas. When the step
    changes, the differences are recomputed for the same polynomial at the new distance. The factors of systems that are
    not written out entry by entry are kept until the iteration no longer converges with them. After $k + 1$ steps of
    one length the next order is the one of $k - 1$, $k$, $k + 1$ that allows the longest step, by the estimates of the
    errors of all three.

    A step costs one system, compared with eight for `Rodas5P` and three times as much for `Radau5`: the method for
    expensive vector fields and large systems at loose to moderate tolerances. Orders 1 and 2 are L-stable; higher
    orders are unstable near the imaginary axis, so for undamped oscillations use `Rodas5P` or `Radau5`. Dense output is
    the polynomial of the same order. Under `jax.vmap` each member has its own order and step. After an event that
    changes the state it restarts with order 1.

    Gradients go through the accepted steps, each by the derivative of the implicit function; lengths and orders are
    constant to them. With fixed steps (`dt=`) the order is `max_order`, and the first `max_order` steps use `Rodas5P`.

    Attributes:
        max_order: The highest order, from 1 to 5; 2 for oscillations with little damping.
        mass: The constant matrix $M$, of shape `(n, n)`, as of `Rodas5P`, or None for the identity. If it is singular,
            the system must have index one, and `y0` is a guess of the variables that its algebraic equations determine.
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, with tolerances
            relative to their right-hand sides; None to choose by the structure of the Jacobian.
        preconditioner: A preconditioner for the iteration, such as `BlockJacobi()` or `ILU0()`.
        criterion: The norm of the error of a step while it is taken; the loops set it.

    Raises:
        ValueError: If `max_order` is not from 1 to 5, or `mass` does not fit the state.
        TypeError: If `max_order` is not an integer, `mass` is traced or not real, or `linear_solver` is not such an
            iteration.

    Source:
        L. F. Shampine, M. W. Reichelt, The MATLAB ODE Suite, SIAM J. Sci. Comput. 18:1 (1997), section 2; G. D. Byrne,
        A. C. Hindmarsh, A Polyalgorithm for the Numerical Solution of Ordinary Differential Equations, ACM Trans. Math.
        Softw. 1:1 (1975).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.Robertson()
        y0 = jnp.array([1.0, 0.0, 0.0])
        sol = sciml.solve(model, y0, t0=0.0, t1=1e5, rtol=1e-4, atol=1e-8, solver=sciml.solvers.BDF())
        assert sol.stats.accepted < 400
        assert abs(model.total(sol.ys[-1]) - 1) < 1e-3
        ```
    """

    max_order: int = eqx.field(default=HIGHEST_ORDER, converter=_as_order, static=True)
    mass: Mass | None = eqx.field(default=None, converter=as_mass, static=True, kw_only=True)
    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    criterion: Criterion | None = eqx.field(default=None, kw_only=True)

    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = True

    @property
    def traits(self) -> Traits:
        """`init` evaluates the vector field where that is the rate, which it is not with a mass matrix."""
        plain = self.mass is None
        return Traits(fsal=plain, dense=True, elementwise_dense=True, history=True, field_is_rate=plain, costly="large")

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the state, consistent with a singular mass matrix."""
        return Coordinates(self.close, self.starting_step, prepare=self.prepare, rate=self.rate)

    @property
    def hooks(self) -> Hooks:
        """It chooses its order by the criterion, and begins otherwise where steps are fixed."""
        return Hooks(at_rest=self.at_rest, for_fixed_steps=self.for_fixed_steps, judged=self.judged)

    @property
    def order(self) -> int:
        """The highest order."""
        return self.max_order

    def rate(self, field: BoundField, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state: the vector field, divided by the mass matrix; see `rate_with_mass`."""
        return rate_with_mass(field, t, y, self.mass_of(y))

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, "BDF", relative=True)

    def for_fixed_steps(self) -> AbstractStepper:
        """Returns the method with its own start, which does not need short steps of a low order."""
        return Started(self)

    def judged(self, criterion: Criterion) -> "BDF":
        """Returns the method for one step under error control."""
        return dataclasses.replace(self, criterion=criterion)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as a field with the structure of its Jacobian, with its operands.

        Raises:
            ValueError: If the mass matrix does not fit the state.
            TypeError: If the state is large and of half precision.
        """
        size = check_systems("BDF", y, self.mass)
        field, operands = super().coordinates.close(model, t, y, args, h)
        if self.linear.solver is None and size <= choices().linear.small_at_most:
            return field, operands
        return StructuredField(field, self.structure(lambda t, y: model(t, y, args), t, y)), operands

    def structure(self, field: BoundField, t: RealScalarLike, y: Y) -> AbstractStructure:
        """Returns the structure of the systems."""
        large = flattened(y).size >= choices().linear.iteration_from
        choice = dataclasses.replace(self.linear, large=large, by_tolerances=True)
        return structure_of_systems(field, t, y, self.mass_of(y), choice)

    def mass_of(self, y: Y) -> Mass | None:
        """Returns the mass matrix of a state as one vector."""
        return None if self.mass is None else self.mass.of_parts(*elements_of(y))

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Solves the algebraic equations of a singular mass matrix; see `consistent_state`."""
        return consistent_start(field, t, y, self.mass_of(y))

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> Differences | HistoryMemory:
        """Returns the first difference at the distance of a unit of time, which the slope is; no other is known."""
        x, t = flattened(y), jnp.asarray(t)
        zero, one = jnp.zeros_like(x), jnp.ones((), x.dtype)
        slope = flattened(field(t, y)) if self.mass is None else zero
        past = Differences((slope, *[zero] * (HIGHEST_ORDER + 1)), one, jnp.ones_like(t), jnp.zeros_like(one))
        factors = self._systems(field, t, y, jax.lax.stop_gradient(x), one).nothing
        return joined(past.together(), factors)

    def at_rest(self, memory: Differences | HistoryMemory, y1: Y, clipped: Y) -> Differences | HistoryMemory:
        """Returns the differences with none of the elements that were set to zero, as if they had rested there."""
        past, rests = past_of(memory).apart(), flattened(y1) != flattened(clipped)
        rows = tuple(jnp.where(rests, jnp.zeros_like(row), row) for row in past.rows)
        return joined(past._replace(rows=rows).together(), reused_of(memory))

    def starting_step(self, field: BoundField, start: FirstStep) -> Array:
        """Returns the size of a first step, which is one of order one; positive."""
        # the error of such a step is of the second order in its size
        return initial_step(field, start, 2)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns differences of zero."""
        return tuple(jax.tree.map(jnp.zeros_like, y) for _ in range(2, HIGHEST_ORDER + 1))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the polynomial through the states that the step was made from."""
        del h

        def of_leaf(y0: Array, y1: Array, *rows: Array) -> Array:
            s = jnp.asarray(theta, y1.dtype) - 1
            first, *others = newton_basis(s)
            return y1 + first * (y1 - y0) + sum(w * row for w, row in zip(others, rows, strict=True))

        return jax.tree.map(of_leaf, y0, y1, *dense)

    def _systems(self, field: BoundField, t: Array, y: Y, guess: Array, scale: Array) -> Systems:
        slope = Frozen.of(lambda x: flattened(field(t, unflattened(x, y))), guess)
        tolerated = None if self.criterion is None else flattened(self.criterion.tolerated(unflattened(guess, y)))
        return Systems(self.structure(field, t, y), slope, guess, scale, tolerated)

    def step(
        self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: Differences | HistoryMemory
    ) -> Step:
        """Advances `y` from `t` to `t + h`."""
        past, reused = past_of(memory).apart(), reused_of(memory)
        t, h = jnp.asarray(t), jnp.asarray(h)
        end, x, mass = t + h, flattened(y), self.mass_of(y)
        past = past.at_distance(h)
        alpha = at_order(_ALPHA, past.order)
        predicted = x + past.weighted((1.0,) * HIGHEST_ORDER)
        before = past.weighted(_GAMMA[1:]) / alpha
        scale = h.astype(x.dtype) / alpha

        def slope_at(x: Array) -> Array:
            return flattened(field(end, unflattened(x, y)))

        def residual(gap: Float[Array, " n"]) -> Float[Array, " n"]:
            left = before + gap
            return times_known(None if mass is None else mass.matrix, left) - scale * slope_at(predicted + gap)

        systems = self._systems(field, end, y, jax.lax.stop_gradient(predicted), jax.lax.stop_gradient(scale))
        guess = unflattened(systems.guess, y)
        rounding = float(jnp.finfo(x.dtype).eps) ** _CLOSE if systems.structure.iterates else None
        ending = by_rounding(x, _MOST_TO_ROUNDING, rounding)
        if self.criterion is not None:
            ending = by_criterion(self.criterion, y, guess, _MOST_NEWTON)
        found, factors = systems.solved(Frozen.of(residual, x), ending, reused)
        near = systems.near(factors)
        divide = systems.divide, systems.divide_transposed
        gap = known_root(residual, found.root, *divide, lambda _: near, exact=False, rounding=rounding)
        y1 = unflattened(predicted + gap, y)
        error = unflattened(at_order(_ERROR, past.order) * jax.lax.stop_gradient(gap), y)
        after = past.followed_by(gap)
        inner = [self._row(after, j, past.order) for j in range(2, HIGHEST_ORDER + 1)]
        dense = tuple(unflattened(row, y) for row in inner)
        after = after._replace(equal=past.equal + 1)
        factor = None
        if self.criterion is not None:
            after, factor = self._chosen(self.criterion, y, y1, error, after)
            care = (2 * _CAREFUL_NEWTON + 1) / (2 * _CAREFUL_NEWTON + found.iterations.astype(factor.dtype))
            factor = jnp.where(factor == 1, factor, factor * care)
            factor = jnp.where(found.converged & jnp.isfinite(factor), factor, jnp.full_like(factor, _HALF))
        return Step(
            y1,
            error,
            dense,
            joined(after.together(), None if reused is None else factors),
            factors.regular,
            converged=found.converged,
            factor=None if factor is None else factor.astype(h.dtype),
        )

    @staticmethod
    def _row(after: Differences, j: int, order: Array) -> Array:
        row = after.rows[j - 1]
        return jnp.where(order >= j, row, jnp.zeros_like(row))

    def _chosen(
        self, criterion: Criterion, y: Y, y1: Y, error: Y, after: Differences
    ) -> tuple[Differences, Float[Array, ""]]:
        """Returns the differences with the order of the next step, and by what its length is to be multiplied.

        Args:
            criterion: The tolerances.
            y: The state at the start of the step.
            y1: That at its end.
            error: The estimate of its error.
            after: The differences at its end.
        """
        order = after.order

        def at(other: int, offset: int) -> Array:
            """Returns the step factor for an order raised by a number; its error uses the next order's differences."""
            row = jnp.zeros_like(after.rows[0])
            for j in range(1, len(after.rows) + 1):
                row = jnp.where(order + offset == j, after.rows[j - 1], row)
            values = unflattened(at_order(_ERROR, order + other) * row, y)
            size = criterion.size(values, y, y1).astype(order.dtype)
            return criterion.factor(size, order + offset)

        size = criterion.size(error, y, y1).astype(order.dtype)
        same = criterion.factor(size, order + 1)
        zero = jnp.zeros_like(same)
        lower = jnp.where(order > 1, at(-1, 0), zero)
        higher = jnp.where(order < self.max_order, at(1, 2), zero)
        free = after.equal >= order + 1
        up = free & (higher > same) & (higher > lower)
        down = free & ~up & (lower > same)
        best = jnp.maximum(same, jnp.maximum(lower, higher))
        factor = jnp.where(size <= 1, jnp.where(free, best, jnp.ones_like(same)), same)
        new = jnp.where(up, order + 1, jnp.where(down, order - 1, order))
        return after._replace(order=new, equal=jnp.where(free, zero, after.equal)), factor
