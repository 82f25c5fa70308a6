"""Rosenbrock-Wanner methods: implicit steps for stiff equations without Newton iterations."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...._choices import choices
from ...._jax._loops import scan
from ...._jax._vma import match
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...linear._choose import LinearChoice
from ...linear._structure import AbstractStructure, DerivativeAlong
from ...linear._structured_field import StructuredField
from .._capabilities import Coordinates, Hooks, Traits
from .._ravel import flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step
from ._consistent_initial_values import consistent_start, rate_with_mass
from ._linear_options import structure_of_systems
from ._mass_matrix import Mass, times_known


class Tableau(NamedTuple):
    r"""The coefficients of a method; see `Rosenbrock`.

    Attributes:
        gamma: $\gamma$.
        a: The rows $a_i$, row $i$ with $i$ entries, the first empty.
        c: The rows $c_i$, likewise.
        nodes: The times $\alpha_i$ of the stages.
        d: The weights $d_i$ of the time derivative.
        weights: The weights $b_i$ of the step.
        error_weights: The weights $e_i$ of the error estimate.
        dense: The rows $H_m$ of the dense output.
        order: The order of the method.
        error_order: The power of the step size that the error estimate is proportional to.
    """

    gamma: float
    a: tuple[tuple[float, ...], ...]
    c: tuple[tuple[float, ...], ...]
    nodes: tuple[float, ...]
    d: tuple[float, ...]
    weights: tuple[float, ...]
    error_weights: tuple[float, ...]
    dense: tuple[tuple[float, ...], ...]
    order: int
    error_order: int


class Rosenbrock(AbstractStepper):
    r"""A Rosenbrock method for $M \dot y = f(t, y)$.

    With $J = \partial f / \partial y$ and $T = \partial f / \partial t$ at the start of the step and
    $W = M - h \gamma J$,

    $$W k_i = h \gamma \Big( f\big(t + \alpha_i h,\; y + \sum_{j<i} a_{ij} k_j\big) + h d_i T \Big)
        + \gamma M \sum_{j<i} c_{ij} k_j,$$

    $$y_1 = y + \sum_i b_i k_i, \qquad e = \sum_i e_i k_i, \qquad
      K_m = \sum_i H_{mi} k_i,$$

    $$u(\theta) = (1 - \theta) y + \theta \big( y_1 + (1 - \theta) (K_1 + \theta (K_2 + \dots)) \big).$$

    $W$ is scaled so that its entries stay of the size of $M$ where steps are small, as float32 needs. $J$ and $T$ come
    from one forward-mode linearisation, which also gives the first stage's $f$. They do not count as `evaluations`; in
    addition to these, a step costs one linearisation, applied to $n + 1$ directions.

    Attributes:
        tableau: The coefficients.
        mass: $M$, or None for the identity.
        linear: How linear systems are to be solved.
    """

    tableau: Tableau = eqx.field(static=True)
    mass: Mass | None = eqx.field(static=True)
    has_error: bool = eqx.field(static=True, default=True)
    linear: LinearChoice = eqx.field(static=True, default=LinearChoice())

    @property
    def traits(self) -> Traits:
        """With iterations, which compile for long, it does not run element by element."""
        return Traits(
            dense=True,
            elementwise_dense=True,
            elementwise=self.linear.solver is None,
            takes_packed=self.linear.solver is None and self.linear.preconditioner is None and self.mass is None,
            field_is_rate=self.mass is None,
            error_order=self.tableau.error_order,
            costly="large",
        )

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the state, consistent with a singular mass matrix."""
        return super().coordinates._replace(close=self.close, prepare=self.prepare, rate=self.rate)

    @property
    def hooks(self) -> Hooks:
        """Tolerances determine the accuracy of iterations."""
        return Hooks(with_tolerances=self.with_tolerances)

    def with_tolerances(self, tolerances: tuple[float, float] | None) -> "Rosenbrock":
        """Returns the method for steps of known tolerances, which determine the accuracy of iterations."""
        if self.linear.solver is None and not self.linear.large:
            return self  # its program is the same for all of them
        return dataclasses.replace(self, linear=dataclasses.replace(self.linear, step=tolerances))

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.tableau.order

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step, without its linearisation."""
        return len(self.tableau.nodes)

    def rate(self, field: BoundField, t: RealScalarLike, y: Y) -> Y:
        """Returns the rate of a state: the vector field, divided by the mass matrix; see `rate_with_mass`."""
        return rate_with_mass(field, t, y, self.mass)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as a field with the structure of its Jacobian, with its operands."""
        field, operands = super().coordinates.close(model, t, y, args, h)
        small = sum(x.size for x in jax.tree.leaves(y)) <= choices().linear.small_at_most and not self.linear.by_library
        if self.linear.solver is None and small:
            return field, operands
        # NumPy arrays in the model are known here, with their zeros; in the loops they are operands
        return StructuredField(field, self._structure(lambda t, y: model(t, y, args), t, y)), operands

    def _structure(self, field: BoundField, t: RealScalarLike, y: Y) -> AbstractStructure:
        return structure_of_systems(field, t, y, self.mass, self.linear)

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Solves the algebraic equations of a singular mass matrix; see `consistent_state`."""
        return consistent_start(field, t, y, self.mass)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns zeros."""
        return tuple(jax.tree.map(jnp.zeros_like, y) for _ in self.tableau.dense)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        x = flattened(y)

        def slope_at(t, x):
            return flattened(field(t, unflattened(x, y)))

        structure = self._structure(field, t, y)
        tableau = self.tableau
        h = jnp.asarray(h)
        length = h.astype(x.dtype)
        scale = tableau.gamma * length
        slope, tangent = jax.linearize(slope_at, jnp.asarray(t, h.dtype), x)
        # tangents have to vary over the mesh axes that their primals vary over
        drift = tangent(match(jnp.ones((), h.dtype), (t, x)), match(jnp.zeros_like(x), x))
        now = match(jnp.zeros((), h.dtype), (t, x))
        along = DerivativeAlong(lambda v: tangent(now, v), lambda x: slope_at(jnp.asarray(t, h.dtype), x))
        matrix = structure.assemble(along, x, scale)
        # the derivative of `solve` uses the factors again and does not go through the factorisation
        factors = structure.factorise(jax.lax.stop_gradient(matrix))
        matrix, factors, slope, drift = structure.computed_once(matrix, factors, slope, drift)

        # a program of its own, which JAX traces and differentiates once for all stages
        solve = jax.jit(structure.solve) if structure.entry_by_entry else structure.solve

        def solved(right):
            return solve(matrix, factors, right)

        start = slope_at, solved, jnp.asarray(t, h.dtype), h, x, slope, drift
        if structure.entry_by_entry and x.size <= choices().linear.stages_written_out_at_most:
            stages, y1 = self._stages_written_out(*start)
        else:  # an iteration stands in the program once: the slope at the start is then evaluated again
            stages, y1 = self._stages_in_a_loop(*start, before=0 if structure.iterates else 1)
        error = _combined(tableau.error_weights, stages)
        dense = tuple(unflattened(_combined(row, stages), y) for row in tableau.dense)
        step = Step(unflattened(y1, y), unflattened(error, y), dense, None, ~structure.is_singular(matrix, factors))
        if not structure.iterates:
            return step
        return step._replace(converged=jnp.all(jnp.isfinite(y1)) | ~jnp.all(jnp.isfinite(slope)))

    def _stages_written_out(
        self, slope_at: Callable, solved: Callable, t: Array, h: Array, x: Array, slope: Array, drift: Array
    ) -> tuple[Sequence[Array], Array]:
        """Returns the stages and the state after them, each stage with the coefficients that are not zero."""
        tableau, length = self.tableau, h.astype(x.dtype)
        scale = tableau.gamma * length
        stages: list[Array] = []
        point, previous = x, ()
        for node, d, row, history in zip(tableau.nodes, tableau.d, tableau.a, tableau.c):
            if stages:
                point = _advanced(x, point, previous, row, stages)
                slope = slope_at(t + node * h, point)
            right = scale * (slope + (d * length) * drift if d else slope)
            if any(history):
                right = right + self._times_mass(_combined(tuple(tableau.gamma * c for c in history), stages))
            stages.append(solved(right))
            previous = row
        return stages, _advanced(x, point, previous, tableau.weights, stages)

    def _stages_in_a_loop(
        self,
        slope_at: Callable,
        solved: Callable,
        t: Array,
        h: Array,
        x: Array,
        slope: Array,
        drift: Array,
        before: int,
    ) -> tuple[Sequence[Array], Array]:
        """Returns the same by a loop, whose body is compiled once: large systems take long to compile.

        The first stage comes before the loop where `before` is one, and is part of it where it is zero.
        """
        tableau, length = self.tableau, h.astype(x.dtype)
        scale, count = tableau.gamma * length, len(tableau.nodes)
        stages = jnp.zeros((count, *x.shape), x.dtype)
        if before:
            first = solved(scale * (slope + (tableau.d[0] * length) * drift))
            stages = jnp.concatenate([first[None], jnp.zeros((count - 1, *x.shape), x.dtype)])

        def stage(stages, inputs):
            place, node, d, row, history = inputs
            # behind a barrier: else each use of a part of a state, of which a vector field makes many, sums it up again
            point, past = jax.lax.optimization_barrier((x + _weighted(row, stages), _weighted(history, stages)))
            slope = slope_at(t + node * h, point)
            right = scale * (slope + (d * length) * drift) + self._times_mass(past)
            # the place is no less than zero: told so, the way back keeps no copy of it
            return jax.lax.dynamic_update_index_in_dim(
                stages, solved(right), place, 0, allow_negative_indices=False
            ), None

        def filled(rows, factor=1.0):
            full = [[factor * w for w in row] + [0.0] * (count - len(row)) for row in rows[before:]]
            return jnp.asarray(full, x.dtype)[:, :, None]

        nodes, d = jnp.asarray(tableau.nodes[before:], h.dtype), jnp.asarray(tableau.d[before:], x.dtype)
        inputs = jnp.arange(before, count), nodes, d, filled(tableau.a), filled(tableau.c, tableau.gamma)
        stages, _ = scan(stage, stages, inputs, like=(t, h, x, slope))
        return list(stages), x + _combined(tableau.weights, list(stages))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the polynomial that belongs to the method."""
        del h
        return interpolated(theta, y0, y1, dense)

    def _times_mass(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        return times_known(None if self.mass is None else self.mass.matrix, v)


def interpolated(theta: RealScalarLike, y0: Y, y1: Y, dense: tuple[Y, ...]) -> Y:
    """Returns the state between the ends of a step; linear in `y0`, `y1` and `dense`."""

    def between(y0, y1, *rows):
        s = jnp.asarray(theta, y0.dtype)
        bend = jnp.zeros_like(y0)
        for row in reversed(rows):
            bend = row + s * bend
        return (1 - s) * y0 + s * (y1 + (1 - s) * bend)

    return jax.tree.map(between, y0, y1, *dense)


@jax.custom_jvp
def _weighted(weights: Array, stages: Array) -> Array:
    """The sum of stages by weights, a column; no matrix product, whose precision depends on the device.

    Written out, it is part of the loops around it, whereas a reduction is a separate call; the sum of tangents is
    written as a reduction, whose transpose fills one array instead of adding one array for each stage.
    """
    return sum((weights[j] * stages[j] for j in range(1, len(stages))), weights[0] * stages[0])


def _weighted_tangents(change: Array, value: Array, weights: Array, stages: Array) -> Array:
    del value, stages
    return jnp.sum(weights * change, axis=0)


_weighted.defjvps(None, _weighted_tangents)


def _combined(weights: tuple[float, ...], stages: Sequence[Array]) -> Array:
    terms = [k if w == 1 else w * k for w, k in zip(weights, stages) if w]
    return sum(terms[1:], terms[0])


def _advanced(x: Array, point: Array, previous: tuple, row: tuple, stages: Sequence[Array]) -> Array:
    """Returns x plus the stages weighted by `row`: from the last point where only the last stage is new."""
    if previous and row[:-1] == previous and row[-1] == 1:
        return point + stages[-1]
    return x + _combined(row, stages)
