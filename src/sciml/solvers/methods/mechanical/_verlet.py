"""Velocity Verlet and its compositions: explicit symplectic methods for second-order equations."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._checks import check_order
from ...._types import Args, RealScalarLike, Y
from ...control._stability import Stability, of_growth
from ...terms._split_field import Functions, close_split_field
from .._capabilities import Coordinates, Limits, Traits
from .._cubic import cubic
from .._stepper import Step
from .._structured_solver import AbstractStructuredSolver, AbstractStructuredStepper
from ._second_order import functions_of_second_order, halves, joined, kicked, moved, slope


class Verlet(AbstractStructuredStepper):
    r"""A symmetric composition of velocity Verlet steps for $\ddot q = a(t, q)$.

    With fractions $\gamma_i$ of the step that add up to one, each part of length $\tau = \gamma_i h$ is

    $$v_{1/2} = v + \tfrac{\tau}{2} a(t, q), \qquad q_1 = q + \tau v_{1/2}, \qquad
      v_1 = v_{1/2} + \tfrac{\tau}{2} a(t + \tau, q_1).$$

    With friction, $\ddot q = a(t, q) - c \dot q$, the velocity moves exactly under a constant $a$. A step
    back from its end returns to its start, to rounding.

    Attributes:
        fractions: $\gamma_i$.
        order: The order of the method.
        name: The solver's name, for messages.
    """

    fractions: tuple[float, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    has_error: bool = eqx.field(static=True, default=False)

    @property
    def traits(self) -> Traits:
        """It interpolates by cubic polynomials, which are as good as orders up to four."""
        return Traits(fsal=True, dense=self.order <= 4, symmetric=True, batched_vjp=True)

    @property
    def limits(self) -> Limits:
        """By its stability."""
        return Limits(stability=self.stability)

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the state, with the acceleration."""
        return super().coordinates._replace(close=self.close)

    @property
    def evaluations(self) -> int:
        """Evaluations of the acceleration per step."""
        return len(self.fractions)

    def stability(self) -> Stability:
        """The products of step and frequency for which it is stable."""
        return _stability(self.fractions)

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns acceleration and vector field."""
        return functions_of_second_order(self.name, model, t, y, args, friction=True)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns acceleration and vector field with their operands."""
        del h
        return close_split_field(model, args, self.functions(model, t, y, args))

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the acceleration at the start."""
        return field["acceleration"](t, halves(y)[0])

    def empty_dense(self, y: Y) -> PyTree:
        """Returns accelerations of zero."""
        return (jax.tree.map(jnp.zeros_like, halves(y)[1]),) * 2

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances position and velocity from `t` to `t + h`."""
        (q, v), acceleration, done = halves(y), memory, 0.0
        friction = field["friction"]() if "friction" in field else None
        before = slope(v, acceleration, friction)
        for fraction in self.fractions:
            part = fraction * jnp.asarray(h)
            v = kicked(v, part / 2, acceleration, friction)
            q = moved(q, part, v)
            done = done + fraction
            acceleration = field["acceleration"](t + done * h, q)
            v = kicked(v, part / 2, acceleration, friction)
        return Step(joined(y, q, v), None, (before, slope(v, acceleration, friction)), acceleration)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`, by the cubic polynomials of both ends' states and slopes."""
        (q0, v0), (q1, v1) = halves(y0), halves(y1)
        return joined(y0, cubic(theta, h, q0, q1, v0, v1), cubic(theta, h, v0, v1, *dense))


@functools.cache
def _stability(fractions: tuple[float, ...]) -> Stability:
    def growth(z: np.ndarray) -> np.ndarray:
        (a, b), (c, d) = (1.0, 0.0), (0.0, 1.0)  # what a step makes of q and v, for q'' = z**2 q
        for part in fractions:
            c, d = c + part / 2 * z**2 * a, d + part / 2 * z**2 * b
            a, b = a + part * c, b + part * d
            c, d = c + part / 2 * z**2 * a, d + part / 2 * z**2 * b
        half = (a + d) / 2  # and the determinant is one
        root = np.sqrt(half**2 - 1 + 0j)
        return np.asarray(np.maximum(np.abs(half + root), np.abs(half - root)))

    return of_growth(growth, 4.0)


class VelocityVerlet(AbstractStructuredSolver):
    r"""Velocity Verlet, also known as leapfrog or Stoermer's method: explicit, symplectic, of order two.

    For models of second order, `sciml.AbstractSecondOrder` or any with a method `acceleration(t, q, args)`. A state is
    a pair $(q, v)$, or an array of positions and then velocities. A model with friction, $\dot v = a(t, q) - c v$, has
    a method `friction(args)` that returns $c$; friction is then exact. One evaluation of the acceleration a step.

    The energy does not drift but swings by $O(h^2)$, over any number of steps. Fixed steps, since these make the method
    symplectic; stable for $h \omega < 2$ of the highest frequency. A step back undoes a step, so
    `adjoint=sciml.adjoints.Reversible()` needs no second copy of the state, and no coupling lets rounding grow in its
    backward pass.

    Source:
        L. Verlet, Phys. Rev. 159 (1967); E. Hairer, C. Lubich, G. Wanner, Acta Numerica 12 (2003).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Pendulum(sciml.AbstractSecondOrder):
            def acceleration(self, t, q, args):
                return -jnp.sin(q)

        start = (jnp.array([2.0]), jnp.array([0.0]))
        solver = sciml.solvers.VelocityVerlet()
        sol = sciml.solve(Pendulum(), start, t0=0.0, t1=1000.0, dt=0.1, solver=solver)
        q, v = sol.ys
        assert abs(float(v[0, 0] ** 2 / 2 - jnp.cos(q[0, 0]) + jnp.cos(2.0))) < 0.01
        ```
    """

    def stepper(self, y0: Y) -> Verlet:
        """Returns the one-step method."""
        del y0
        return Verlet((1.0,), 2, "VelocityVerlet")


def _symmetric(*outer: float) -> tuple[float, ...]:
    """The fractions from the outermost to the middle one, which makes them add up to one, and back."""
    return (*outer, 1 - 2 * sum(outer), *reversed(outer))


_YOSHIDA = {
    4: _symmetric(1 / (2 - 2 ** (1 / 3))),
    6: _symmetric(0.78451361047755726, 0.23557321335935813, -1.17767998417887101),
    8: _symmetric(
        0.74167036435061295,
        -0.40910082580003159,
        0.19075471029623838,
        -0.57386247111608227,
        0.29906418130365592,
        0.33462491824529818,
        0.31529309239676660,
    ),
}


class Yoshida(AbstractStructuredSolver):
    r"""Several velocity Verlet steps in a row, of lengths that make them a method of order four, six or eight.

    | `order` | evaluations a step | lengths |
    | --- | --- | --- |
    | 4 | 3 | $\gamma h, (1 - 2\gamma) h, \gamma h$ with $\gamma = 1/(2 - 2^{1/3})$, by Forest and Ruth |
    | 6 | 7 | solution A of Yoshida |
    | 8 | 15 | of Suzuki and Umeno, with a smaller error than Yoshida's: for many periods, in float64 |

    Explicit and symplectic; some of the steps go backwards in time. Models, friction and `Reversible` are as for
    `VelocityVerlet`. Orders 6 and 8 do not interpolate, so steps end at saved times: choose these at multiples of `dt`,
    since a shorter step among equal ones costs the method its symplecticity.

    Args:
        order: 4, 6 or 8.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        E. Forest, R. D. Ruth, Physica D 43 (1990); H. Yoshida, Construction of higher order symplectic integrators,
        Phys. Lett. A 150 (1990); M. Suzuki, K. Umeno, Springer Proc. Phys. 76 (1993); E. Hairer, C. Lubich, G. Wanner,
        Geometric Numerical Integration, section V.3.2.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Spring(sciml.AbstractSecondOrder):
            def acceleration(self, t, q, args):
                return -q

        start = (jnp.ones(1), jnp.zeros(1))
        solver = sciml.solvers.Yoshida(order=6)
        sol = sciml.solve(Spring(), start, t0=0.0, t1=2 * jnp.pi, dt=jnp.pi / 10, solver=solver)
        assert abs(float(sol.ys[1][-1, 0])) < 1e-3
        ```
    """

    _order: int = eqx.field(static=True)

    def __init__(self, order: int = 4):
        self._order = check_order(order, _YOSHIDA, "Yoshida")

    @property
    def name(self) -> str:
        """With the order."""
        return f"Yoshida(order={self._order})"

    def stepper(self, y0: Y) -> Verlet:
        """Returns the one-step method."""
        del y0
        return Verlet(_YOSHIDA[self._order], self._order, "Yoshida")
