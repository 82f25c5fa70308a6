r"""Stochastic Runge-Kutta methods in the Stratonovich sense, by the tableaus of diffrax's solvers.

$$z_j = y + h \sum_i a_{ji} f_i + \sum_i (a^W_{ji} W + a^H_{ji} H) g_i, \qquad
y_1 = y + h \sum_j b_j f_j + \sum_j (b^W_j W + b^H_j H) g_j$$

with $f_j = f(t + c_j h, z_j)$, $g_j = g(t + c_j h, z_j)$, the increment $W$ and the space-time Levy area $H$. If the
noise is additive, $g$ is evaluated at the start of the step and all its coefficients are numbers; if it depends on
time, $(g(t + h) - g(t)) (\tfrac12 W - H)$ is added.

Source:
    J. Foster, G. dos Reis, C. Strange, High order splitting methods for SDEs satisfying a commutativity condition, SIAM
    Journal on Numerical Analysis 62 (2024) 500.
"""

from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import numpy as np

from ...._interfaces._model import AbstractSemilinear, AbstractSplit
from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField, NoisyField
from ...noise._increment import NoiseShape
from .._capabilities import Traits
from ._abstract import AbstractStochasticStepper, combined, plus, scaled
from ._euler_maruyama import EulerHeun, EulerMaruyama
from ._exponential import StochasticETD1
from ._semi_implicit import SemiImplicitEuler
from ._sri import SRIW1


class Coefficients(NamedTuple):
    """The coefficients of one of the two kinds of increments.

    Attributes:
        rows: The coefficients of the stages; with additive noise one for each stage.
        weights: The weights of the step; with additive noise one.
        error: The weights of the error estimate, or None.
    """

    rows: tuple
    weights: tuple[float, ...]
    error: tuple[float, ...] | None


class StochasticRungeKutta(AbstractStochasticStepper):
    """A stochastic Runge-Kutta method.

    Attributes:
        rows: The rows of the drift, one for each stage, the first empty.
        nodes: The nodes.
        weights: The weights of the drift.
        error_weights: The weights of the error estimate, or None.
        by_w: The coefficients of the increments.
        by_area: The weights of the space-time Levy areas, or None.
        additive: Whether it is for additive noise.
        name: The name of the method.
    """

    rows: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    nodes: tuple[float, ...] = eqx.field(static=True)
    weights: tuple[float, ...] = eqx.field(static=True)
    error_weights: tuple[float, ...] | None = eqx.field(static=True)
    by_w: Coefficients = eqx.field(static=True)
    by_area: Coefficients | None = eqx.field(static=True)
    additive: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)

    interpretation: ClassVar[str] = "stratonovich"

    @property
    def with_area(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it takes space-time Levy areas."""
        return self.by_area is not None

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.error_weights is not None

    @property
    def traits(self) -> Traits:
        """With additive noise its error is of a higher order."""
        return AbstractStochasticStepper.traits._replace(error_order=1.5 if self.additive else 1.0)

    @property
    def evaluations(self) -> int:
        """Evaluations of the drift per step."""
        return sum(self._reads(j, self.rows, (self.weights, self.error_weights)) for j in range(len(self.weights)))

    def check(self, field: NoisyField) -> None:
        """Checks that the noise is additive where the method needs that."""
        if self.additive and not field.noise.additive:
            raise ValueError(
                f"`solver={self.name}()` only supports additive noise, but this diffusion depends on the state. Use "
                "`diffrax.SPaRK()`, `diffrax.ItoMilstein()` or `sciml.solvers.SRIW1()`."
            )

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, Y | None]:
        """Returns the state after a step and the estimate of its error."""
        return self._with_additive(field, t, h, y) if self.additive else self._general(field, t, h, y)

    def _with_additive(self, field, t, h, y):
        increment, g = field.increment(t, h), field.diffusion(t, y)
        parts = [(self.by_w, field.times(g, increment.w))]
        if self.by_area is not None:
            parts.append((self.by_area, field.times(g, increment.area)))
        rates = []
        for j, (node, row) in enumerate(zip(self.nodes, self.rows)):
            noise = [scaled(part.rows[j], x) for part, x in parts if part.rows[j] != 0]
            z = plus(y, *combined(row, rates), *noise)
            rates.append(scaled(h, field(t + node * h, z)))
        moved = [scaled(part.weights[0], x) for part, x in parts if part.weights[0] != 0]
        change = plus(field.diffusion(t + h, y), scaled(-1.0, g))
        moved.append(scaled(0.5, field.times(change, increment.w)))
        if self.by_area is not None:
            moved.append(scaled(-1.0, field.times(change, increment.area)))
        y1 = plus(y, *combined(self.weights, rates), *moved)
        return y1, None if self.error_weights is None else combined(self.error_weights, rates)[0]

    def _general(self, field, t, h, y):
        increment = field.increment(t, h)
        parts = [(self.by_w, increment.w, [])]
        if self.by_area is not None:
            parts.append((self.by_area, increment.area, []))
        rates = []
        for j, (node, row) in enumerate(zip(self.nodes, self.rows)):
            z = plus(y, *combined(row, rates), *(x for part, _, kept in parts for x in combined(part.rows[j], kept)))
            drift = self._reads(j, self.rows, (self.weights, self.error_weights))
            rates.append(scaled(h, field(t + node * h, z)) if drift else y)
            if any(self._reads(j, part.rows, (part.weights, part.error)) for part, _, _ in parts):
                g = field.diffusion(t + node * h, z)
                for _, dw, kept in parts:
                    kept.append(field.times(g, dw))
            else:
                for _, _, kept in parts:
                    kept.append(y)
        moved = (x for part, _, kept in parts for x in combined(part.weights, kept))
        y1 = plus(y, *combined(self.weights, rates), *moved)
        if self.error_weights is None:
            return y1, None
        of_noise = (x for part, _, kept in parts if part.error is not None for x in combined(part.error, kept))
        return y1, plus(*combined(self.error_weights, rates), *of_noise)

    def _reads(self, stage: int, rows: tuple, weights: tuple) -> bool:
        """Returns whether any later stage or the result reads a stage."""
        later = any(row[stage] != 0 for row in rows[stage + 1 :])
        return later or any(w is not None and w[stage] != 0 for w in weights)


def from_tableau(tableau: Any, name: str) -> StochasticRungeKutta | None:
    """Returns the method of a diffrax tableau; None where it takes areas that there are not."""
    if tableau.coeffs_kk is not None:
        return None
    additive = tableau.is_additive_noise()

    def coefficients(of: Any) -> Coefficients | None:
        if of is None:
            return None
        if additive:
            return Coefficients(_numbers(of.a), (float(of.b_sol),), None)
        error = None if of.b_error is None else _numbers(of.b_error)
        return Coefficients(((), *map(_numbers, of.a)), _numbers(of.b_sol), error)

    by_w = coefficients(tableau.coeffs_w)
    assert by_w is not None  # every tableau has them
    return StochasticRungeKutta(
        rows=((), *map(_numbers, tableau.a)),
        nodes=(0.0, *_numbers(tableau.c)),
        weights=_numbers(tableau.b_sol),
        error_weights=None if tableau.b_error is None else _numbers(tableau.b_error),
        by_w=by_w,
        by_area=coefficients(tableau.coeffs_hh),
        additive=additive,
        name=name,
    )


def from_explicit(tableau: diffrax.ButcherTableau, name: str) -> StochasticRungeKutta:
    """Returns an explicit Runge-Kutta method whose every stage evaluates drift and noise together."""
    rows, weights = ((), *map(_numbers, tableau.a_lower)), _numbers(tableau.b_sol)
    error = _numbers(tableau.b_error) if np.any(tableau.b_error) else None
    nodes = (0.0, *_numbers(tableau.c))
    return StochasticRungeKutta(rows, nodes, weights, error, Coefficients(rows, weights, error), None, False, name)


def _numbers(x: Any) -> tuple[float, ...]:
    return tuple(map(float, x))


# The Milstein method, in the Stratonovich sense: in the other one its drift differs, and its steps are the same.
#
# With $\tilde f = f - \tfrac12 \sum_j (\partial_y g_j) g_j$ for a model in the Ito sense,
#
# $$y_1 = y + h \tilde f + g \, \Delta W + \tfrac12 \sum_{jk} (\partial_y g_k) g_j \, \Delta W_j \Delta W_k$$
#
# Its strong order is 1 where the noise commutes, as diagonal, scalar and additive noise do, and else 1/2.
#
# Source:
#     P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 10.3.
class Milstein(AbstractStochasticStepper):
    """The Milstein method."""

    interpretation: ClassVar[str] = "stratonovich"
    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        w = field.increment(t, h).w
        noise = field.times(field.diffusion(t, y), w)
        _, change = jax.jvp(lambda y: field.times(field.diffusion(t, y), w), (y,), (noise,))
        return plus(y, scaled(h, field(t, y)), noise, scaled(0.5, change)), None


def stochastic_stepper(solver: Any) -> AbstractStochasticStepper | None:
    """Returns the method of a solver; None where only diffrax has it."""
    if isinstance(solver, AbstractStochasticStepper):
        return solver
    if type(solver) is diffrax.Euler:
        return EulerMaruyama()
    if type(solver) is diffrax.EulerHeun:
        return EulerHeun()
    if type(solver) in (diffrax.ItoMilstein, diffrax.StratonovichMilstein):
        return Milstein()
    name = type(solver).__name__
    if isinstance(solver, diffrax.AbstractSRK):
        return from_tableau(solver.tableau, name)
    if isinstance(solver, diffrax.AbstractERK) and isinstance(solver, diffrax.AbstractStratonovichSolver):
        return from_explicit(solver.tableau, name)
    return None


def stiff_solver(drift: Any, y0: Y) -> Any:
    """Returns a solver for a drift that says what of it is stiff; None for any other."""
    if isinstance(drift, AbstractSemilinear) or (isinstance(drift, AbstractSplit) and drift.modal(y0) is not None):
        return StochasticETD1()
    return SemiImplicitEuler() if isinstance(drift, AbstractSplit) else None


def default_solver(noise: NoiseShape, elementwise: bool, interpretation: str, fixed_steps: bool) -> Any:
    """Returns a solver for an equation with noise, by its kind, its sense and by whether its steps are fixed."""
    if noise.additive:
        return diffrax.SRA1()
    if elementwise:
        return SRIW1()
    if not fixed_steps:
        return diffrax.SPaRK()
    # neither differentiates the diffusion, whose root may have no derivative
    return diffrax.Euler() if interpretation == "ito" else diffrax.EulerHeun()
