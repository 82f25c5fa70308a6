"""Rosenbrock-Wanner methods: implicit steps for stiff equations without Newton iterations."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._jax._vma import match
from ..._types import BoolScalarLike, RealScalarLike, Y
from ._consistent_initial_values import consistent_state
from ._mass_matrix import Mass
from ._ravel import flattened, unflattened
from ._small_lu import SMALL, Factors, factorise, is_singular, solve
from ._stepper import AbstractStepper, BoundField, Step


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

    $W$ is scaled so that its entries stay of the size of $M$ where steps are small, as float32 needs.
    $J$ and $T$ come from one forward-mode linearisation, which also gives the first stage's $f$. They
    are no evaluations in the sense of `evaluations`; a step costs one linearisation, applied to
    $n + 1$ directions, beside these.

    Attributes:
        tableau: The coefficients.
        mass: $M$, or None for the identity.
    """

    dense: ClassVar[bool] = True
    elementwise_dense: ClassVar[bool] = True
    tableau: Tableau = eqx.field(static=True)
    mass: Mass | None = eqx.field(static=True)
    has_error: bool = eqx.field(static=True, default=True)

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.tableau.order

    @property
    def error_order(self) -> int:
        """The power of the step size that the error estimate is proportional to."""
        return self.tableau.error_order

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step, beside its linearisation."""
        return len(self.tableau.nodes)

    def use_full_budget(self, state_bytes: int) -> bool:
        """Whether a step takes far longer than to set up its record: from some eight unknowns on."""
        return state_bytes >= 64

    @property
    def field_is_rate(self) -> bool:
        """Whether there is no mass matrix."""
        return self.mass is None

    def prepare(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[Y, BoolScalarLike | None]:
        """Solves the algebraic equations of a singular mass matrix; see `consistent_state`."""
        if self.mass is None or self.mass.null_spaces[0].shape[1] == 0:
            return y, None
        return consistent_state(field, t, y, self.mass)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns zeros."""
        return tuple(jax.tree.map(jnp.zeros_like, y) for _ in self.tableau.dense)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        x = flattened(y)

        def slope_at(t, x):
            return flattened(field(t, unflattened(x, y)))

        tableau = self.tableau
        h = jnp.asarray(h)
        length = h.astype(x.dtype)
        scale = tableau.gamma * length
        slope, tangent = jax.linearize(slope_at, jnp.asarray(t, h.dtype), x)
        # tangents have to vary over the mesh axes that their primals vary over
        drift = tangent(match(jnp.ones((), h.dtype), (t, x)), match(jnp.zeros_like(x), x))
        rows = self._system(scale, lambda v: tangent(match(jnp.zeros((), h.dtype), (t, x)), v), x)
        # the derivative of `solve` uses the factors again and does not go through the factorisation
        factors = factorise(jax.lax.stop_gradient(rows), pivot=self.mass is not None)
        rows, factors, slope, drift = _computed_once(rows, factors, slope, drift)

        stages: list[Array] = []
        point, previous = x, ()
        for node, d, row, history in zip(tableau.nodes, tableau.d, tableau.a, tableau.c):
            if stages:
                point = _advanced(x, point, previous, row, stages)
                slope = slope_at(t + node * h, point)
            right = scale * (slope + (d * length) * drift if d else slope)
            if any(history):
                right = right + self._times_mass(_combined(tuple(tableau.gamma * c for c in history), stages))
            stages.append(solve(rows, factors, right))
            previous = row
        y1 = _advanced(x, point, previous, tableau.weights, stages)
        error = _combined(tableau.error_weights, stages)
        dense = tuple(unflattened(_combined(row, stages), y) for row in tableau.dense)
        return Step(unflattened(y1, y), unflattened(error, y), dense, None, ~is_singular(rows, factors))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the polynomial that belongs to the method."""
        del h
        return interpolated(theta, y0, y1, dense)

    def _system(self, scale: Array, along: Callable[[Array], Array], x: Float[Array, " n"]) -> Any:
        """Returns W: rows of scalars where small, else an array. `along` is the derivative along a direction."""
        n = x.shape[0]
        mass = np.eye(n) if self.mass is None else self.mass.matrix
        if n > SMALL:
            columns = jax.vmap(along, out_axes=1)(match(jnp.eye(n, dtype=x.dtype), x))
            return jnp.asarray(mass, x.dtype) - scale * columns
        # unit vectors one by one: over lanes their zeros are known, and so are those of the Jacobian
        columns = [along(match(jnp.asarray(unit, x.dtype), x)) for unit in np.eye(n)]
        return [[float(mass[i, j]) - scale * columns[j][i] for j in range(n)] for i in range(n)]

    def _times_mass(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        if self.mass is None:
            return v
        if self.mass.size > SMALL:
            return jnp.matmul(jnp.asarray(self.mass.matrix, v.dtype), v, precision="highest")
        nothing = jnp.zeros_like(v[0])
        rows = [[(float(m), v[j]) for j, m in enumerate(row) if m] for row in self.mass.matrix]
        return jnp.stack([sum((m * x for m, x in row), nothing) for row in rows])


def interpolated(theta: RealScalarLike, y0: Y, y1: Y, dense: tuple[Y, ...]) -> Y:
    """Returns the state between the ends of a step; linear in `y0`, `y1` and `dense`."""

    def between(y0, y1, *rows):
        s = jnp.asarray(theta, y0.dtype)
        bend = jnp.zeros_like(y0)
        for row in reversed(rows):
            bend = row + s * bend
        return (1 - s) * y0 + s * (y1 + (1 - s) * bend)

    return jax.tree.map(between, y0, y1, *dense)


def _computed_once(rows: Any, factors: Factors, *vectors: Array) -> tuple:
    """Returns its arguments from behind a barrier, so that what uses them does not compute them again."""
    if not isinstance(rows, list):
        return jax.lax.optimization_barrier((rows, factors, *vectors))
    n = len(rows)
    # one array for each row: where a barrier is a branch, it copies each of its results
    rows, lu = [[jnp.stack(row) for row in matrix] for matrix in (rows, factors.lu)]
    rows, lu, pivots, vectors = jax.lax.optimization_barrier((rows, lu, factors.pivots, vectors))
    rows, lu = [[[row[j] for j in range(n)] for row in matrix] for matrix in (rows, lu)]
    return rows, Factors(lu, pivots), *vectors


def _combined(weights: tuple[float, ...], stages: list[Array]) -> Array:
    terms = [k if w == 1 else w * k for w, k in zip(weights, stages) if w]
    return sum(terms[1:], terms[0])


def _advanced(x: Array, point: Array, previous: tuple, row: tuple, stages: list[Array]) -> Array:
    """Returns x plus the stages weighted by `row`: from the last point where only the last stage is new."""
    if previous and row[:-1] == previous and row[-1] == 1:
        return point + stages[-1]
    return x + _combined(row, stages)
