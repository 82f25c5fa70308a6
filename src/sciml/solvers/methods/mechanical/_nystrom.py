"""Runge-Kutta-Nystroem methods: explicit steps for equations of second order, with an estimate of their error."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._checks import check_order
from ...._types import Args, RealScalarLike, Y
from ...terms._split_field import Functions, close_split_field
from .._capabilities import Coordinates, Traits
from .._stepper import Step
from .._structured_solver import AbstractStructuredSolver, AbstractStructuredStepper
from ._second_order import functions_of_second_order, halves, joined

Rows = tuple[tuple[float, ...], ...]


class NystromTableau(NamedTuple):
    r"""The coefficients of a method; see `RungeKuttaNystrom`. Its last stage is at the end of the step.

    Attributes:
        nodes: The nodes $c_i$.
        rows: The rows $a_i$, one for each stage, the first empty; the last are the weights $b_i$ of the position.
        weights: The weights $b'_i$ of the velocity.
        errors: The weights of the error estimates of position and velocity.
        between: The coefficients of $b_i(\theta)$, or None where steps end at saved times.
        between_velocities: The coefficients of $b'_i(\theta)$.
        order: The order of the method.
        error_order: The power of the step size that the error estimate is proportional to.
    """

    nodes: tuple[float, ...]
    rows: Rows
    weights: tuple[float, ...]
    errors: tuple[tuple[float, ...], tuple[float, ...]]
    between: Rows | None
    between_velocities: Rows | None
    order: int
    error_order: int


class RungeKuttaNystrom(AbstractStructuredStepper):
    r"""An explicit method for $\ddot q = a(t, q)$.

    $$k_i = a\Big(t + c_i h,\; q + c_i h v + h^2 \sum_{j<i} a_{ij} k_j\Big), \qquad
      q_1 = q + h v + h^2 \sum_i b_i k_i, \qquad v_1 = v + h \sum_i b'_i k_i,$$

    and at the time $t + \theta h$ the same with $\theta h$ instead of $h$, $b_i(\theta)$ and $b'_i(\theta)$. The last
    stage is the first of the next step.

    Attributes:
        tableau: The coefficients.
        name: The solver's name, for messages.
    """

    tableau: NystromTableau = eqx.field(static=True)
    name: str = eqx.field(static=True)
    has_error: bool = eqx.field(static=True, default=True)

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.tableau.order

    @property
    def traits(self) -> Traits:
        """By the tableau: whether it interpolates, and the order of its error."""
        dense = self.tableau.between is not None
        return Traits(fsal=True, dense=dense, batched_vjp=True, error_order=self.tableau.error_order)

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the state, with the acceleration."""
        return super().coordinates._replace(close=self.close)

    @property
    def evaluations(self) -> int:
        """Evaluations of the acceleration per step."""
        return len(self.tableau.nodes) - 1

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns acceleration and vector field."""
        return functions_of_second_order(self.name, model, t, y, args)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns acceleration and vector field with their operands."""
        del h
        return close_split_field(model, args, self.functions(model, t, y, args))

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the acceleration at the start."""
        return field["acceleration"](t, halves(y)[0])

    def empty_dense(self, y: Y) -> PyTree:
        """Returns accelerations of zero, where it interpolates."""
        return () if not self.traits.dense else (jax.tree.map(jnp.zeros_like, halves(y)[1]),) * len(self.tableau.nodes)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances position and velocity from `t` to `t + h`."""
        tableau, (q, v), h = self.tableau, halves(y), jnp.asarray(h)
        stages, end = [memory], q
        for node, row in zip(tableau.nodes[1:], tableau.rows[1:]):
            end = _along(q, v, node * h, h, row, stages)
            stages.append(field["acceleration"](t + node * h, end))
        v1 = _sum(v, h, tableau.weights, stages)
        errors = (_sum(None, by, weights, stages) for by, weights in zip((h * h, h), tableau.errors))
        return Step(joined(y, end, v1), joined(y, *errors), tuple(stages) if self.traits.dense else (), stages[-1])

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns position and velocity at `t + theta * h`."""
        tableau, (q, v), h = self.tableau, halves(y0), jnp.asarray(h)
        if tableau.between is None or tableau.between_velocities is None:
            return y1
        theta = jnp.asarray(theta)
        positions, velocities = (
            [_polynomial(row, theta) for row in rows] for rows in (tableau.between, tableau.between_velocities)
        )
        length = theta.astype(h.dtype) * h
        return joined(y0, _along(q, v, length, length, positions, dense), _sum(v, length, velocities, dense))


def _polynomial(coefficients: Sequence[float], theta: Array) -> Any:
    if not any(coefficients):
        return 0.0
    total = jnp.full_like(theta, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * theta + c
    return total


def _along(q: Y, v: Y, drift: Array, h: Array, weights: Sequence[Any], stages: Sequence[Y]) -> Y:
    drifted = jax.tree.map(lambda q, v: q + jnp.asarray(drift, q.dtype) * v, q, v)
    return _sum(drifted, h * h, weights, stages)


def _sum(y: Y | None, by: Array, weights: Sequence[Any], stages: Sequence[Y]) -> Y:
    terms = [(w, k) for w, k in zip(weights, stages) if not (isinstance(w, float) and w == 0.0)]

    def combine(*leaves: Array) -> Array:
        total = sum(jnp.asarray(w, k.dtype) * k for (w, _), k in zip(terms, leaves))
        return jnp.asarray(by, leaves[0].dtype) * total

    moved = jax.tree.map(combine, *(k for _, k in terms))
    return moved if y is None else jax.tree.map(jnp.add, y, moved)


def _quintic(b: tuple[float, ...], velocities: tuple[float, ...]) -> tuple[Rows, Rows]:
    """Returns the polynomials of degree five through position, velocity and acceleration at both ends."""
    unit = np.eye(len(b))
    a = np.array(b) - unit[0] / 2
    rise, bend = np.array(velocities) - unit[0], unit[-1] - unit[0]
    rows = [unit[0] / 2, 10 * a - 4 * rise + bend / 2, 7 * rise - 15 * a - bend, 6 * a - 3 * rise + bend / 2]
    slopes = [(k + 2) * row for k, row in enumerate(rows)]
    return tuple(map(tuple, np.transpose(rows).tolist())), tuple(map(tuple, np.transpose(slopes).tolist()))


def _difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


_B4 = (1 / 14, 8 / 27, 25 / 189, 0.0)
_V4 = (1 / 14, 32 / 81, 250 / 567, 5 / 54)
_NYSTROM4 = NystromTableau(
    nodes=(0.0, 1 / 4, 7 / 10, 1.0),
    rows=((), (1 / 32,), (7 / 1000, 119 / 500), _B4[:3]),
    weights=_V4,
    errors=(
        _difference(_B4, (-7 / 150, 67 / 150, 3 / 20, -1 / 20)),
        _difference(_V4, (13 / 21, -20 / 27, 275 / 189, -1 / 3)),
    ),
    between=_quintic(_B4, _V4)[0],
    between_velocities=_quintic(_B4, _V4)[1],
    order=4,
    error_order=4,
)

_R = math.sqrt(8581)
_B6 = (329 / 4212, 0.0, (84119543 + 366727 * _R) / 409622616, (84119543 - 366727 * _R) / 409622616, 200 / 17901, 0.0)
_V6 = (
    329 / 4212,
    0.0,
    (389225579 + 96856 * _R) / 1024056540,
    (389225579 - 96856 * _R) / 1024056540,
    2000 / 17901,
    1 / 20,
)


def _pair_between(scale: int, divisor: int) -> list[tuple[float, ...]]:
    """The rows of the third and the fourth stage, which differ in the sign of a root."""
    parts = ((0, 0), (18 * 81356461, 18 * 25954829), (22190560391, -1109665151))
    parts += ((-6 * 4929647204, 6 * 156109769), (1800 * 5860823, -1800 * 152228))
    factors = (1, 1, 1, 1, 1) if scale == 2 else (1, 3 / 2, 2, 5 / 2, 3)
    return [
        tuple(f * (a + sign * b * _R) / divisor for f, (a, b) in zip(factors, parts, strict=True)) for sign in (1, -1)
    ]


_NYSTROM6 = NystromTableau(
    nodes=(0.0, (209 - _R) / 900, (209 - _R) / 450, (209 + _R) / 450, 9 / 10, 1.0),
    rows=(
        (),
        ((26131 - 209 * _R) / 810000,),
        ((26131 - 209 * _R) / 607500, (26131 - 209 * _R) / 303750),
        (
            (980403512254 + 7781688431 * _R) / 11694469921875,
            -(1262884486208 + 15385481287 * _R) / 11694469921875,
            (7166233891441 + 78694563299 * _R) / 46777879687500,
        ),
        (
            -9 * (329260 + 3181 * _R) / 27040000,
            27 * (35129 + 3331 * _R) / 13520000,
            -27 * (554358343 + 31040327 * _R) / 464060480000,
            153 * (8555257 - 67973 * _R) / 2745920000,
        ),
        _B6[:5],
    ),
    weights=_V6,
    errors=(
        _difference(
            _B6, ((2701 + 23 * _R) / 4563, -(9829 + 131 * _R) / 9126, 5 * (1798 + 17 * _R) / 9126, 0.0, 0.0, 0.0)
        ),
        _difference(
            _V6,
            (
                115 / 2106,
                0.0,
                (84119543 + 366727 * _R) / 256014135,
                (84119543 - 366727 * _R) / 256014135,
                6950 / 17901,
                -1 / 10,
            ),
        ),
    ),
    between=(
        tuple(x / 4212 for x in (2106, -5244, 6386, -3819, 900)),
        (0.0,) * 5,
        *_pair_between(2, 22529243880),
        tuple(200 * x / 17901 for x in (0, 195, -620, 651, -225)),
        (0.0, -117 / 110, 757 / 220, -823 / 220, 15 / 11),
    ),
    between_velocities=(
        (1.0, *(x / 4212 for x in (-15732, 25544, -19095, 5400))),
        (0.0,) * 5,
        *_pair_between(3, 11264621940),
        tuple(1000 * x / 17901 for x in (0, 117, -496, 651, -270)),
        (0.0, *(x / 220 for x in (-702, 3028, -4115, 1800))),
    ),
    order=6,
    error_order=5,
)

_B8 = (223 / 7938, 0.0, 1175 / 8064, 925 / 6048, 41 / 448, 925 / 14112, 1175 / 72576, 0.0, 0.0)
_V8 = (223 / 7938, 0.0, 5875 / 36288, 4625 / 21168, 41 / 224, 4625 / 21168, 5875 / 36288, 223 / 7938, 0.0)
_NYSTROM8 = NystromTableau(
    nodes=(0.0, 1 / 20, 1 / 10, 3 / 10, 1 / 2, 7 / 10, 9 / 10, 1.0, 1.0),
    rows=(
        (),
        (1 / 800,),
        (1 / 600, 1 / 300),
        (9 / 200, -9 / 100, 9 / 100),
        (-66701 / 197352, 28325 / 32892, -2665 / 5482, 2170 / 24669),
        (227015747 / 304251000, -54897451 / 30425100, 12942349 / 10141700, -9499 / 304251, 539 / 9250),
        (
            -1131891597 / 901789000,
            41964921 / 12882700,
            -6663147 / 3220675,
            270954 / 644135,
            -108 / 5875,
            114 / 1645,
        ),
        (
            13836959 / 3667458,
            -17731450 / 1833729,
            1063919505 / 156478208,
            -33213845 / 39119552,
            13335 / 28544,
            -705 / 14272,
            1645 / 57088,
        ),
        _B8[:8],
    ),
    weights=_V8,
    errors=(
        _difference(
            _B8,
            (
                7987313 / 109941300,
                0.0,
                1610737 / 44674560,
                10023263 / 33505920,
                -497221 / 12409600,
                10023263 / 78180480,
                1610737 / 402071040,
                0.0,
                0.0,
            ),
        ),
        _difference(
            _V8,
            (
                7987313 / 109941300,
                0.0,
                1610737 / 40207104,
                10023263 / 23454144,
                -497221 / 6204800,
                10023263 / 23454144,
                1610737 / 40207104,
                -4251941 / 54970650,
                3 / 20,
            ),
        ),
    ),
    between=None,
    between_velocities=None,
    order=8,
    error_order=7,
)


_NYSTROM = {4: _NYSTROM4, 6: _NYSTROM6, 8: _NYSTROM8}


class Nystrom(AbstractStructuredSolver):
    r"""Runge-Kutta-Nystroem methods of Dormand, El-Mikkawy and Prince for $\ddot q = a(t, q)$, with error control.

    | `order` | known as | evaluations of the acceleration a step | between steps |
    | --- | --- | --- | --- |
    | 4 | RKN4(3)4FM | 3 | the polynomial through both ends |
    | 6 | RKN6(4)6FD | 5, where a Runge-Kutta method of this order takes eight | an interpolation of its order |
    | 8 | RKN8(6)9FM | 8, for tight tolerances in float64 | steps end at saved times |

    For models of second order without friction, `sciml.AbstractSecondOrder`; a state is a pair $(q, v)$. Fixed steps
    are also supported. It is not symplectic: over very many periods energies drift, whereas energies with `Yoshida` do
    not.

    Args:
        order: 4, 6 or 8.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        J. R. Dormand, M. E. A. El-Mikkawy, P. J. Prince, Families of Runge-Kutta-Nystroem formulae, and High-order
        embedded Runge-Kutta-Nystroem formulae, IMA J. Numer. Anal. 7 (1987); J. R. Dormand, P. J. Prince,
        Runge-Kutta-Nystroem triples, Comput. Math. Appl. 13 (1987).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Spring(sciml.AbstractSecondOrder):
            def acceleration(self, t, q, args):
                return -q

        start, solver = (jnp.ones(1), jnp.zeros(1)), sciml.solvers.Nystrom(order=6)
        sol = sciml.solve(Spring(), start, t0=0.0, t1=6.2831853, rtol=1e-5, atol=1e-5, solver=solver)
        assert abs(float(sol.ys[1][-1, 0])) < 1e-3
        ```
    """

    _order: int = eqx.field(static=True)

    def __init__(self, order: int = 6):
        self._order = check_order(order, _NYSTROM, "Nystrom")

    @property
    def name(self) -> str:
        """With the order."""
        return f"Nystrom(order={self._order})"

    def stepper(self, y0: Y) -> RungeKuttaNystrom:
        """Returns the one-step method."""
        del y0
        return RungeKuttaNystrom(_NYSTROM[self._order], "Nystrom")
