"""Implicit-explicit methods as solvers."""

import math
from typing import Any, ClassVar

import diffrax
import equinox as eqx

from ...._checks import check_order
from ...._types import Y
from .._structured_solver import AbstractStructuredSolver
from ._additive_rk import Additive, ImplicitExplicit

_GAMMA = 1 - 1 / math.sqrt(2)
_DELTA = 1 - 1 / (2 * _GAMMA)

_CRANK_NICOLSON = Additive(
    nodes=(0.0, 1.0, 1.0), explicit=((), (1.0,), (0.5, 0.5)), implicit=((), (0.5,), (0.5, 0.0)),
    diagonal=(0.0, 0.5, 0.5), weights=None, error=None, order=2, error_order=2,
)  # fmt: skip
_ARS222 = Additive(
    nodes=(0.0, _GAMMA, 1.0), explicit=((), (_GAMMA,), (_DELTA, 1 - _DELTA)), implicit=((), (0.0,), (0.0, 1 - _GAMMA)),
    diagonal=(0.0, _GAMMA, _GAMMA), weights=None, error=None, order=2, error_order=2,
)  # fmt: skip
_ARS443 = Additive(
    nodes=(0.0, 1 / 2, 2 / 3, 1 / 2, 1.0),
    explicit=((), (1 / 2,), (11 / 18, 1 / 18), (5 / 6, -5 / 6, 1 / 2), (1 / 4, 7 / 4, 3 / 4, -7 / 4)),
    implicit=((), (0.0,), (0.0, 1 / 6), (0.0, -1 / 2, 1 / 2), (0.0, 3 / 2, -3 / 2, 1 / 2)),
    diagonal=(0.0, 1 / 2, 1 / 2, 1 / 2, 1 / 2), weights=None, error=None, order=3, error_order=3,
)  # fmt: skip


def _from_diffrax(solver: Any, order: int) -> Additive:
    """Returns the coefficients of a pair that diffrax has, whose explicit and implicit weights are the same."""
    explicit, implicit = solver.tableau.tableaus

    def floats(row):
        return tuple(float(x) for x in row)

    return Additive(
        nodes=(0.0, *floats(implicit.c)),
        explicit=((), *map(floats, explicit.a_lower)),
        implicit=((), *map(floats, implicit.a_lower)),
        diagonal=floats(implicit.a_diagonal),
        weights=floats(implicit.b_sol),
        error=floats(implicit.b_error),
        order=order,
        error_order=order,
    )


_ARK324 = _from_diffrax(diffrax.KenCarp3, 3)
_ARK436 = _from_diffrax(diffrax.KenCarp4, 4)


_ARS = {2: _ARS222, 3: _ARS443}
_ARK = {3: _ARK324, 4: _ARK436}


class AbstractAdditiveSolver(AbstractStructuredSolver):
    """An implicit-explicit Runge-Kutta method.

    Attributes:
        tableau: The coefficients.
    """

    tableau: eqx.AbstractVar[Additive]

    def stepper(self, y0: Y) -> ImplicitExplicit:
        """Returns the one-step method."""
        del y0
        return ImplicitExplicit(self.tableau, type(self).__name__)


class CrankNicolson(AbstractAdditiveSolver):
    r"""Crank and Nicolson's method for the stiff linear part, Heun's for the rest: order two, fixed steps.

    $$y_* = y + h N(t, y) + \tfrac{h}{2} A (y + y_*), \qquad
      y_1 = y + \tfrac{h}{2} \big(N(t, y) + N(t + h, y_*)\big) + \tfrac{h}{2} A (y + y_1)$$

    Two solves per step, or one if the model's `rest` is zero and the compiler can tell. Waves keep their amplitude,
    since the method is symmetric in $A$; for the same reason very stiff modes do not decay but change their sign at
    every step, and `ARS` is the better choice if they are excited. For models with a stiff linear part; see `ARK`.

    Source:
        J. Crank, P. Nicolson, Proc. Camb. Phil. Soc. 43 (1947).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Heat(sciml.AbstractSplit):
            def stiff(self, y, args):
                wide = jnp.concatenate([-y[:1], y, -y[-1:]])
                return 32**2 * (wide[2:] - 2 * y + wide[:-2])

            def rest(self, t, y, args):
                return jnp.zeros_like(y)

        start = jnp.sin(jnp.pi * (jnp.arange(32.0) + 0.5) / 32)
        sol = sciml.solve(Heat(), start, t0=0.0, t1=0.1, dt=0.01, solver=sciml.solvers.CrankNicolson())
        assert abs(sol.ys[-1] - jnp.exp(-jnp.pi**2 * 0.1) * start).max() < 2e-3
        ```
    """

    tableau: ClassVar[Additive] = _CRANK_NICOLSON


class ARS(AbstractAdditiveSolver):
    """L-stable implicit-explicit methods of Ascher, Ruuth and Spiteri, for fixed steps: ARS(2,2,2) and ARS(4,4,3).

    `order=2` takes two solves a step, `order=3` four. For models with a stiff linear part; see `ARK`.

    Args:
        order: 2 or 3.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        U. M. Ascher, S. J. Ruuth, R. J. Spiteri, Implicit-explicit Runge-Kutta methods for time-dependent partial
        differential equations, Appl. Numer. Math. 25 (1997), doi:10.1016/S0168-9274(97)00056-1.

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("kdv_soliton", points=64)
        for order, most in ((2, 0.01), (3, 0.002)):
            solver = sciml.solvers.ARS(order)
            sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.1, dt=0.002, solver=solver)
            assert abs(sol.ys[-1] - problem.solution(0.1)).max() < most
        ```
    """

    _order: int = eqx.field(static=True)

    def __init__(self, order: int = 2):
        self._order = check_order(order, _ARS, "ARS")

    @property
    def name(self) -> str:
        """With the order."""
        return f"ARS(order={self._order})"

    @property
    def tableau(self) -> Additive:
        """The coefficients."""
        return _ARS[self._order]


class ARK(AbstractAdditiveSolver):
    r"""Kennedy and Carpenter's implicit-explicit methods for $\dot y = A y + N(t, y)$: ARK3(2)4L[2]SA, ARK4(3)6L[2]SA.

    $A$ is linear and stiff, $N$ the rest: the model is an `sciml.AbstractSplit`, which solves $(1 - \tau A) y = r$ in
    the fastest way for its structure, or an `sciml.AbstractSemilinear`, whose linear part is diagonal in its
    modes. L-stable in $A$; with error control or fixed steps. A step takes four evaluations of $N$ and three solves at
    order three, six and five at order four. It ends at every saved time, so nothing is interpolated.
    `diffrax.KenCarp3` and `KenCarp4` are the same pairs with Newton iterations, for stiff parts that are not linear.

    Args:
        order: 3 or 4.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        C. A. Kennedy, M. H. Carpenter, Additive Runge-Kutta schemes for convection-diffusion-reaction equations, Appl.
        Numer. Math. 44 (2003), doi:10.1016/S0168-9274(02)00138-1.

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("kdv_soliton", points=64)
        for order, most in ((3, 0.002), (4, 0.001)):
            solver = sciml.solvers.ARK(order)
            sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.1, dt=0.002, solver=solver)
            assert abs(sol.ys[-1] - problem.solution(0.1)).max() < most
        ```
    """

    _order: int = eqx.field(static=True)

    def __init__(self, order: int = 3):
        self._order = check_order(order, _ARK, "ARK")

    @property
    def name(self) -> str:
        """With the order."""
        return f"ARK(order={self._order})"

    @property
    def tableau(self) -> Additive:
        """The coefficients."""
        return _ARK[self._order]
