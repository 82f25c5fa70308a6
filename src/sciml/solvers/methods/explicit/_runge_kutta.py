"""Explicit Runge-Kutta methods, from any diffrax solver that has a tableau."""

from collections.abc import Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...._choices import choices
from ...._jax._barrier import opaque
from ...._jax._loops import scan
from ...._jax._marks import chosen
from ...._types import RealScalarLike, Y
from ...control._stability import Stability, of_polynomial
from ...terms._field import BoundFunction
from ...terms._split_field import BoundSplitField
from .._capabilities import Limits, Traits
from .._stepper import AbstractStepper, BoundField, Step


class StepsAlone(diffrax.AbstractLocalInterpolation):
    """The dense output of a method without interpolation: a line, for `diffrax.diffeqsolve`.

    Attributes:
        t0: The start of the step.
        t1: Its end.
        y0: The state at its start.
        y1: The state at its end.
        k: The stages.
    """

    t0: RealScalarLike
    t1: RealScalarLike
    y0: Y
    y1: Y
    k: PyTree

    def evaluate(self, t0: RealScalarLike, t1: RealScalarLike | None = None, left: bool = True) -> PyTree:
        """Returns the state at `t0`, or its increment from `t0` to `t1`."""
        line = diffrax.LocalLinearInterpolation(t0=self.t0, t1=self.t1, y0=self.y0, y1=self.y1)
        return line.evaluate(t0, t1, left)


class RungeKutta(AbstractStepper):
    r"""An explicit Runge-Kutta method.

    $$k_i = f\Big(t + c_i h,\; y + h \sum_{j<i} a_{ij} k_j\Big), \qquad y_1 = y + h \sum_i b_i k_i$$

    Attributes:
        rows: The rows $a_i$ of the tableau, one for each stage, the first empty.
        nodes: The nodes $c_i$.
        weights: The weights $b_i$ of the step.
        error_weights: The weights of the error estimate, or None.
        last_is_first: Whether the last stage is the first of the next step.
        interpolation: A diffrax local interpolation; None where steps end at saved times.
        order: The order of the method.
    """

    rows: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    nodes: tuple[float, ...] = eqx.field(static=True)
    weights: tuple[float, ...] = eqx.field(static=True)
    error_weights: tuple[float, ...] | None = eqx.field(static=True)
    last_is_first: bool = eqx.field(static=True)
    interpolation: Any = eqx.field(static=True)
    order: int = eqx.field(static=True)

    @property
    def traits(self) -> Traits:
        """By the tableau: whether the last stage is the first of the next step, and whether it interpolates."""
        dense = self.interpolation is not None
        return Traits(
            fsal=self.last_is_first, dense=dense, elementwise_dense=dense, takes_packed=True, batched_vjp=True
        )

    @property
    def limits(self) -> Limits:
        """By its stability."""
        return Limits(stability=self.stability)

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.error_weights is not None

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return len(self.weights) - self.last_is_first

    def stability(self) -> Stability:
        """The products of step and eigenvalue for which it is stable, from $R(z) = 1 + z b^T (1 - z A)^{-1} 1$."""
        stages = len(self.weights)
        matrix = np.array([(*row, *(0.0,) * (stages - len(row))) for row in self.rows])
        coefficients, vector = [1.0], np.ones(stages)
        for _ in range(stages):
            coefficients.append(float(np.dot(self.weights, vector)))
            vector = matrix @ vector
        return of_polynomial(tuple(coefficients))

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the first stage where a step reuses the last stage of the step before."""
        return field(t, y) if self.last_is_first else None

    def empty_dense(self, y: Y) -> PyTree:
        """Returns stages of zero."""
        return tuple(jax.tree.map(jnp.zeros_like, y) for _ in self.weights)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        in_loop = self.evaluations > 2 and _takes_loops(y)
        if in_loop and isinstance(field, BoundFunction | BoundSplitField) and field.long:
            with chosen("fields.stages_in_loop_from"):
                stages, y1 = self._stages_in_loop(field, t, h, y, memory)
        else:
            stages, y1 = [memory if self.last_is_first else field(t, y)], y
            for node, row in zip(self.nodes[1:], self.rows[1:]):
                y1 = _weighted_sum(y, h, row, stages)
                stages.append(field(t + node * h, y1))
        if not self.last_is_first:  # otherwise the last stage was evaluated at the end of the step
            y1 = _weighted_sum(y, h, self.weights, stages)
        error = None
        if self.error_weights is not None:
            error = _weighted_sum(None, h, self.error_weights, stages)
        return Step(y1, error, tuple(stages), stages[-1] if self.last_is_first else None)

    def _stages_in_loop(
        self, field: BoundFunction | BoundSplitField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree
    ) -> tuple[list[Y], Y]:
        """Returns all stages, and the state at the last, by a loop whose body is compiled once.

        A sum goes over all stages, of which those to come are zero and have zero weights. Reverse mode stores only the
        state of a stage and evaluates it again, stage by stage.
        """
        count, first = len(self.weights), int(self.last_is_first)
        matrix = np.array([(*row, *(0.0,) * (count - len(row))) for row in self.rows])

        def stacked(x: jax.Array, k: Any) -> jax.Array:
            rows = jnp.stack([jnp.zeros_like(x)] * count)
            return rows if k is None else rows.at[0].set(k)

        # XLA makes one function of a loop that it takes for a small one, unless the loop calls a library. For large
        # fields that function is slow, and for derivatives it takes long to compile.
        large = any(x.size >= choices().fields.barrier_from for x in jax.tree.leaves(y))

        evaluated = jax.checkpoint(lambda t, y: field(t, y), prevent_cse=False)

        def stage(carry: Any, x: Any) -> tuple[Any, None]:
            rows, _ = carry
            number, node, *weights = x
            done = jax.lax.stop_gradient(jax.tree.leaves(rows)[0])
            if large:
                number = number + (opaque(done) < 0).astype(number.dtype)
            at = jax.tree.map(
                lambda y, k: y + jnp.asarray(h, y.dtype) * _dot([w.astype(y.dtype) for w in weights], k), y, rows
            )
            leaves, structure = jax.tree.flatten(at)
            at = jax.tree.unflatten(structure, [_called_in_derivatives(leaves[0], done), *leaves[1:]])
            found = evaluated(t + node.astype(jnp.result_type(t)) * h, at)
            put = lambda k, new: jax.lax.dynamic_update_index_in_dim(k, new, number, 0)  # noqa: E731
            return (jax.tree.map(put, rows, found), at if self.last_is_first else None), None

        rows = jax.tree.map(stacked, y, memory) if self.last_is_first else jax.tree.map(lambda x: stacked(x, None), y)
        xs = [jnp.arange(first, count), jnp.asarray(self.nodes[first:]), *map(jnp.asarray, matrix[first:].T)]
        (rows, at), _ = scan(stage, (rows, y if self.last_is_first else None), xs, like=(field.operands, t, h, y))
        return [jax.tree.map(lambda k, i=i: k[i], rows) for i in range(count)], at

    def increment(self, h: RealScalarLike, dense: Any) -> Y:
        """Returns the increment of the state for a step of length `h` with these stages, free of its rounding."""
        return _weighted_sum(None, h, self.weights, dense)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the interpolation that belongs to the method."""
        if self.interpolation is None:
            return y1

        def of_leaf(y0, y1, *stages):
            at = jnp.asarray(theta, jnp.finfo(y0.dtype).dtype)  # leaves may have less precision than time
            info = {"y0": y0, "y1": y1}
            if self.interpolation is not diffrax.LocalLinearInterpolation:
                info["k"] = jnp.stack([k * jnp.asarray(h, k.dtype) for k in stages])
            return self.interpolation(t0=jnp.zeros_like(at), t1=jnp.ones_like(at), **info).evaluate(at)

        return jax.tree.map(of_leaf, y0, y1, *dense)


@jax.custom_jvp
def _called_in_derivatives(x: jax.Array, done: jax.Array) -> jax.Array:
    """Returns an array as it is; a derivative calls a library, with another array."""
    del done
    return x


@_called_in_derivatives.defjvp
def _(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    x, done = primals
    return jnp.where(opaque(jax.lax.stop_gradient(done)) < 0, jnp.full_like(x, jnp.nan), x), tangents[0]


def _takes_loops(y: Y) -> bool:
    """Whether a state is of numbers that LAPACK and a table of weights take."""
    return all(x.dtype in (jnp.float32, jnp.float64) for x in jax.tree.leaves(y))


def _dot(weights: Sequence[jax.Array], rows: jax.Array) -> jax.Array:
    total = weights[0] * rows[0]
    for number in range(1, len(weights)):
        total = total + weights[number] * rows[number]
    return total


def _weighted_sum(y: Y | None, h: RealScalarLike, weights: tuple[float, ...], stages: Sequence[Y]) -> Y:
    terms = [(w, k) for w, k in zip(weights, stages) if w != 0.0]
    if not terms:
        return y

    def combine(*leaves):
        total = terms[0][0] * leaves[0]
        for (w, _), k in zip(terms[1:], leaves[1:]):
            total = total + w * k
        return jnp.asarray(h, total.dtype) * total

    increment = jax.tree.map(combine, *(k for _, k in terms))
    return increment if y is None else jax.tree.map(jnp.add, y, increment)


def from_diffrax(solver: diffrax.AbstractSolver) -> RungeKutta | None:
    """Returns the method of a diffrax solver, or None where it is not an explicit Runge-Kutta method."""
    if type(solver) is diffrax.Euler:
        return RungeKutta(((),), (0.0,), (1.0,), None, False, diffrax.LocalLinearInterpolation, 1)
    if not isinstance(solver, diffrax.AbstractERK) or not isinstance(solver.tableau, diffrax.ButcherTableau):
        return None
    tableau = solver.tableau
    error_weights = tuple(map(float, tableau.b_error))
    return RungeKutta(
        rows=((),) + tuple(tuple(map(float, row)) for row in tableau.a_lower),
        nodes=(0.0,) + tuple(map(float, tableau.c)),
        weights=tuple(map(float, tableau.b_sol)),
        error_weights=error_weights if np.any(error_weights) else None,
        last_is_first=tableau.fsal,
        interpolation=None if solver.interpolation_cls is StepsAlone else solver.interpolation_cls,
        order=solver.order(None),
    )
