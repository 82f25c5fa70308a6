"""Explicit methods for equations with noise: Euler-Maruyama, weak order 2, and stochastic Runge-Kutta methods."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._interfaces._model import AbstractSemilinear, AbstractSplit
from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField, NoisyField
from ...noise._increment import NoiseShape
from .._capabilities import Traits
from ._abstract import AbstractStochasticStepper, combined, plus, scaled
from ._stiff import SemiImplicitEuler, StochasticETD1

# The Euler-Maruyama method, for growing drifts a tamed one, and the method of Euler and Heun.
#
# Source:
#     P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), chapter 10.
#     M. Hutzenthaler, A. Jentzen, P. E. Kloeden, Strong convergence of an explicit numerical method for SDEs with
#     nonglobally Lipschitz continuous coefficients, Annals of Applied Probability 22 (2012) 1611.


class EulerMaruyama(AbstractStochasticStepper):
    r"""$y_1 = y + h f(t, y) + g(t, y) \Delta W$, for the Ito sense: strong order 1/2, 1 with additive noise."""

    evaluations: ClassVar[int] = 1
    any_driver: ClassVar[bool] = True

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        return plus(y, scaled(h, field(t, y)), noise), None


class TamedEuler(AbstractStochasticStepper):
    r"""The Euler-Maruyama method with a drift that cannot run away, of strong order 1/2.

    $$y_1 = y + \frac{h f}{1 + h |f|} + g \, \Delta W$$

    If a drift grows faster than the state, such as $-y^3$, the moments of the Euler-Maruyama method are infinite
    however short its steps are, but the moments of this method are finite.

    Example:
        ```python
        import jax
        import sciml

        model = sciml.Stochastic(lambda t, y, args: y - y**3, lambda t, y, args: y, noise="scalar")
        sol = sciml.solve(
            model, 30.0, t0=0.0, t1=1.0, dt=0.01, key=jax.random.key(0), solver=sciml.solvers.TamedEuler()
        )
        assert abs(sol.ys[-1]) < 10
        ```
    """

    evaluations: ClassVar[int] = 1
    any_driver: ClassVar[bool] = True

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        change = scaled(h, field(t, y))
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        squares = [jnp.sum(jnp.real(x * jnp.conj(x))) for x in jax.tree.leaves(change)]
        square = sum(squares[1:], squares[0])
        # the root has no derivative at zero
        size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, jnp.ones_like(square))), 0 * square)
        return plus(y, scaled(1 / (1 + size), change), noise), None


class EulerHeun(AbstractStochasticStepper):
    r"""$y_1 = y + h f + \tfrac12 (g(y) + g(y + g \Delta W)) \Delta W$, for the Stratonovich sense."""

    interpretation: ClassVar[str] = "stratonovich"
    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        w = field.increment(t, h).w
        noise = field.times(field.diffusion(t, y), w)
        there = field.times(field.diffusion(t, plus(y, noise)), w)
        return plus(y, scaled(h, field(t, y)), scaled(0.5, plus(noise, there))), None


# A method of weak order 2 and strong order 1 for any noise in the Ito interpretation.
#
# Source:
#     P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 15.1,
#     equation (1.3). Its iterated integrals of pairs of Brownian motions, which the source replaces by coins for weak
#     order 2, are here those of the path, $I_{rj} = \tfrac12 (W_r W_j - h \delta_{rj}) + A_{rj}$, by which the strong
#     order is 1. Time counts as an element of the state, and all stages of the diffusion are from $y + h f$: in the
#     source those of other Brownian motions are from $y$, a difference of order $h^2$ whose mean is zero.


class PlatenWeak2(AbstractStochasticStepper):
    r"""Platen's explicit method of weak order 2 and strong order 1, for any noise, with an estimate of its error.

    The interpretation is Ito. With $y_f = y + h f$, $\bar y = y_f + g \Delta W$, $R^r_\pm = y_f \pm \sqrt h \, g_r$ and
    the integrals $I_{rj} = \int W_r \, dW_j$ over the step,

    $$y_1 = y + \tfrac12 h (f(\bar y) + f) + \tfrac12 \sum_j \Big(g_j + g_j(y_f)
    + \tfrac12 \sum_r \delta^r_2 g_j\Big) \Delta W_j + \sum_{rj} \frac{g_j(R^r_+) - g_j(R^r_-)}{2 \sqrt h} I_{rj},
    \qquad \delta^r_2 g_j = g_j(R^r_+) + g_j(R^r_-) - 2 g_j(y_f).$$

    If noise does not commute, the integrals contain the Levy areas of the path, which add up when a step is halved. So
    steps that follow an error estimate solve on one path. The error of a step is estimated by the last sum, which takes
    the strong order from 1/2 to 1, and the drift. A step evaluates the diffusion twice for each Brownian motion, and
    twice more. For additive, scalar and diagonal noise with $g_i(y_i)$ two evaluations are enough for all of them.

    Source:
        P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), (15.1.3).

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        # (W1, W2, integral of W1 dW2): the noise does not commute
        model = sciml.Stochastic(
            lambda t, y, args: 0.0 * y,
            lambda t, y, args: jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, y[0]]]).astype(y.dtype),
            noise="general",
        )
        path = sciml.BrownianPath(jax.random.key(0), 0.0, 1.0, depth=10)
        solve = lambda dt: sciml.solve(
            model, jnp.zeros(3), t0=0.0, t1=1.0, dt=dt, key=path, solver=sciml.solvers.PlatenWeak2()
        )
        assert jnp.allclose(solve(1 / 4).ys, solve(1 / 32).ys, atol=1e-5)
        ```
    """

    evaluations: ClassVar[int] = 2
    with_levy: ClassVar[bool] = True
    traits = AbstractStochasticStepper.traits._replace(error_order=1.0)

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return True

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, Y]:
        """Returns the state after a step and the estimate of its error."""
        increment, h = field.increment(t, h), jnp.asarray(h)
        w, levy = increment.w, increment.levy
        f, g = field(t, y), field.diffusion(t, y)
        root = jnp.sqrt(jnp.where(h > 0, h, jnp.ones_like(h)))
        noise, there = field.times(g, w), plus(y, scaled(h, f))
        change = scaled(0.5 * h, plus(field(t + h, plus(there, noise)), scaled(-1.0, f)))
        drift = plus(scaled(h, f), change)
        if field.noise.additive:
            return plus(y, drift, field.times(_mean(g, field.diffusion(t + h, y)), w)), change

        def along(direction: Y) -> tuple[PyTree, PyTree]:
            """Returns half of the sum and the slope of the diffusion at two states in a direction."""
            up, down = (field.diffusion(t + h, plus(there, scaled(sign * root, direction))) for sign in (1, -1))
            return _mean(up, down), jax.tree.map(lambda a, b: (a - b) / (2 * jnp.asarray(root, a.dtype)), up, down)

        if levy is None:
            mean, slope = along(g)
            both = jax.tree.map(lambda w: 0.5 * (w**2 - jnp.asarray(h, w.dtype)), w)
            second = field.times(slope, both)
            return plus(y, drift, field.times(_mean(mean, g), w), second), plus(change, second)
        centre = field.diffusion(t + h, there)
        means, second = [scaled(0.5, plus(g, centre))], []
        for r, integrals in enumerate(field.noise.integrals(increment, h)):
            mean, slope = along(field.noise.column(g, r))
            means.append(scaled(0.5, plus(mean, scaled(-1.0, centre))))
            second.append(field.times(slope, integrals))
        return plus(y, drift, field.times(plus(*means), w), *second), plus(change, *second)


def _mean(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: 0.5 * (a + b), a, b)


# A stochastic Runge-Kutta method of strong order 3/2 for diagonal and scalar noise in the Ito sense.
#
# With $I_1 = \Delta W$, $I_{11} = \tfrac12 (I_1^2 - h)$, $I_{111} = \tfrac16 (I_1^3 - 3 h I_1)$ and
# $I_{10} = \int (W_s - W_t) \, ds = h (\tfrac12 I_1 + H)$,
#
# $$y_1 = y + h \sum_i \alpha_i f(t + c^0_i h, H^0_i) + \sum_i \Big(\beta^1_i I_1 + \beta^2_i \frac{I_{11}}{\sqrt h}
# + \beta^3_i \frac{I_{10}}{h} + \beta^4_i \frac{I_{111}}{h}\Big) g(t + c^1_i h, H^1_i)$$
#
# Source:
#     A. Roessler, Runge-Kutta methods for the strong approximation of solutions of stochastic differential equations,
#     SIAM Journal on Numerical Analysis 48 (2010) 922, table 6.2.


_ALPHA = (1 / 3, 2 / 3)
_BETA = (-1.0, 4 / 3, 2 / 3, 0.0), (-1.0, 4 / 3, -1 / 3, 0.0), (2.0, -4 / 3, -2 / 3, 0.0), (-2.0, 5 / 3, -2 / 3, 1.0)
_DRIFT_ERROR = 1 / 6


class SRIW1(AbstractStochasticStepper):
    r"""The method SRIW1 of Roessler: strong order 3/2, with an estimate of its error.

    For noise that is scalar, or diagonal with elements that each depend only on their own element of the state. The
    error is estimated by what takes the strong order from 1 to 3/2.

    Its weak order is 2 if the third derivative of the diffusion is zero, as in growth, and otherwise 3/2: the mean of
    the square after a step is off by $-\tfrac{1}{12} g^4 g''' h^{5/2}$. If only means matter, `PlatenWeak2` has weak
    order 2.

    Source:
        A. Roessler, SIAM Journal on Numerical Analysis 48 (2010) 922. The estimate: C. Rackauckas, Q. Nie, Adaptive
        methods for stochastic differential equations via natural embeddings and rejection sampling with memory,
        Discrete and Continuous Dynamical Systems B 22 (2017) 2731.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        path = sciml.BrownianPath(jax.random.key(1), 0.0, 1.0)
        growth = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: 0.5 * y)
        solver = sciml.solvers.SRIW1()
        sol = sciml.solve(growth, 1.0, t0=0.0, t1=1.0, dt=2.0**-6, key=path, solver=solver)
        assert abs(sol.ys[-1] / jnp.exp(0.1 - 0.5**2 / 2 + 0.5 * path.increment(0.0, 1.0)) - 1) < 1e-3
        ```
    """

    with_area: ClassVar[bool] = True
    evaluations: ClassVar[int] = 2

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return True

    def check(self, field: NoisyField) -> None:
        """Checks that the noise is diagonal or scalar."""
        if field.noise.kind == "general" or not field.is_elementwise():
            raise ValueError(
                "`solver=SRIW1()` supports scalar noise, and diagonal noise whose elements each depend only on their "
                "own element of the state. Use `diffrax.SRA1()` for additive noise, or `diffrax.SPaRK()`."
            )

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, Y]:
        """Returns the state after a step and the estimate of its error."""
        w, area, _ = field.increment(t, h)
        h = jnp.asarray(h)
        root = jnp.sqrt(jnp.where(h > 0, h, jnp.ones_like(h)))
        integral = jax.tree.map(lambda w, area: w / 2 + area, w, area)  # I_10 / h
        f0, g0 = field(t, y), field.diffusion(t, y)
        f1 = field(t + 0.75 * h, plus(y, scaled(0.75 * h, f0), scaled(1.5, field.times(g0, integral))))
        g1 = field.diffusion(t + 0.25 * h, plus(y, scaled(0.25 * h, f0), scaled(0.5 * root, g0)))
        g2 = field.diffusion(t + h, plus(y, scaled(h, f0), scaled(-root, g0)))
        third = combined((-5.0, 3.0, 0.5), [g0, g1, g2])
        g3 = field.diffusion(t + 0.25 * h, plus(y, scaled(0.25 * h, f0), *(scaled(root, x) for x in third)))
        noise, error = [], []
        for stage, g in enumerate((g0, g1, g2, g3)):
            higher = jax.tree.map(partial(_higher, h, stage), w, integral)
            error.append(field.times(g, higher))
            noise.append(plus(field.times(g, jax.tree.map(partial(_lower, h, root, stage), w)), error[-1]))
        drift = combined(_ALPHA, [scaled(h, f0), scaled(h, f1)])
        return plus(y, *drift, *noise), plus(*error, scaled(_DRIFT_ERROR * h, plus(f1, scaled(-1.0, f0))))


def _lower(h: Array, root: Array, stage: int, w: Array) -> Array:
    """Returns the factor of a stage of the diffusion for strong order 1."""
    h, root = jnp.asarray(h, w.dtype), jnp.asarray(root, w.dtype)
    return _BETA[0][stage] * w + _BETA[1][stage] * (w**2 - h) / (2 * root)


def _higher(h: Array, stage: int, w: Array, integral: Array) -> Array:
    """Returns the addition to it for strong order 3/2, and estimates the error."""
    h = jnp.asarray(h, w.dtype)
    cubic = (w**3 - 3 * h * w) / (6 * jnp.where(h > 0, h, jnp.ones_like(h)))
    return _BETA[2][stage] * integral + _BETA[3][stage] * cubic


# Stochastic Runge-Kutta methods in the Stratonovich sense, by the tableaus of diffrax's solvers.
#
# $$z_j = y + h \sum_i a_{ji} f_i + \sum_i (a^W_{ji} W + a^H_{ji} H) g_i, \qquad
# y_1 = y + h \sum_j b_j f_j + \sum_j (b^W_j W + b^H_j H) g_j$$
#
# with $f_j = f(t + c_j h, z_j)$, $g_j = g(t + c_j h, z_j)$, the increment $W$ and the space-time Levy area $H$. If the
# noise is additive, $g$ is evaluated at the start of the step and all its coefficients are numbers; if it depends on
# time, $(g(t + h) - g(t)) (\tfrac12 W - H)$ is added.
#
# Source: J. Foster, G. dos Reis, C. Strange, High order splitting methods for SDEs satisfying a commutativity
# condition, SIAM Journal on Numerical Analysis 62 (2024) 500.


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
    """Returns a solver for a drift with a declared stiff part; None for any other."""
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
        # not `PlatenWeak2`: it stores a path, whose points limit steps, and for equal errors takes longer on Heston's
        # model and on Lorenz' system with matrix noise; it is faster if little else than rotations drives the state
        return diffrax.SPaRK()
    # neither differentiates the diffusion, whose root may have no derivative
    return diffrax.Euler() if interpretation == "ito" else diffrax.EulerHeun()
