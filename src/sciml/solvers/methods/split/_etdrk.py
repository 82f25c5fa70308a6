"""Exponential Runge-Kutta methods as solvers, of order one to four."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array

from ...._checks import check_order
from ...._types import Y
from .._structured_solver import AbstractStructuredSolver
from ._exponential_rk import Exponential, Scheme
from ._phi_functions import phi


def _of_order_one(z: Array) -> dict[str, Array]:
    e, p1 = phi(z, 1)
    return {"exp": e, "p1": p1}


def _of_order_two(z: Array) -> dict[str, Array]:
    e, p1, p2 = phi(z, 2)
    return {"exp": e, "p1": p1, "start": p1 - p2, "end": p2}


def _of_order_three(z: Array) -> dict[str, Array]:
    e, p1, p2, p3 = phi(z, 3)
    e_half, half = phi(z / 2, 1)
    return {
        "exp": e,
        "exp half": e_half,
        "half": half / 2,
        "p1": p1,
        "start": p1 - 3 * p2 + 4 * p3,
        "middle": 4 * p2 - 8 * p3,
        "end": 4 * p3 - p2,
    }


def _cox_matthews(z: Array) -> dict[str, Array]:
    e, p1, p2, p3 = phi(z, 3)
    e_half, half = phi(z / 2, 1)
    return {
        "exp": e,
        "exp half": e_half,
        "half": half / 2,
        "moved": half / 2 * (e_half - 1),
        "start": p1 - 3 * p2 + 4 * p3,
        "middle": 2 * p2 - 4 * p3,
        "end": 4 * p3 - p2,
    }


def _krogstad(z: Array) -> dict[str, Array]:
    e, p1, p2, p3 = phi(z, 3)
    e_half, half, second = phi(z / 2, 2)
    return {
        "exp": e,
        "exp half": e_half,
        "half": half / 2,
        "half less": half / 2 - second,
        "second": second,
        "less": p1 - 2 * p2,
        "p2": p2,
        "start": p1 - 3 * p2 + 4 * p3,
        "middle": 2 * p2 - 4 * p3,
        "end": 4 * p3 - p2,
    }


_FOURTH = ((0, 1.0, "start"), (1, 1.0, "middle"), (2, 1.0, "middle"), (3, 1.0, "end"))
# with the rest at the end of the step, of which the last stage is a guess, the weights are of order three
_FOURTH_ERROR = ((4, 1.0, "end"), (3, -1.0, "end"))

ETD1 = Scheme(_of_order_one, (), (), (), ((0, 1.0, "p1"),), None, 1, 1)
_ETDRK2 = Scheme(
    _of_order_two, (1.0,), ("exp",), (((0, 1.0, "p1"),),), ((0, 1.0, "start"), (1, 1.0, "end")),
    ((0, -1.0, "end"), (1, 1.0, "end")), 2, 2,
)  # fmt: skip
_ETDRK3 = Scheme(
    _of_order_three, (0.5, 1.0), ("exp half", "exp"), (((0, 1.0, "half"),), ((0, -1.0, "p1"), (1, 2.0, "p1"))),
    ((0, 1.0, "start"), (1, 1.0, "middle"), (2, 1.0, "end")), ((0, 1.0, "end"), (1, -2.0, "end"), (2, 1.0, "end")),
    3, 3,
)  # fmt: skip
_ETDRK4 = Scheme(
    _cox_matthews, (0.5, 0.5, 1.0), ("exp half", "exp half", "exp"),
    (((0, 1.0, "half"),), ((1, 1.0, "half"),), ((0, 1.0, "moved"), (2, 2.0, "half"))), _FOURTH, _FOURTH_ERROR, 4, 4,
)  # fmt: skip
_KROGSTAD4 = Scheme(
    _krogstad, (0.5, 0.5, 1.0), ("exp half", "exp half", "exp"),
    (((0, 1.0, "half"),), ((0, 1.0, "half less"), (1, 1.0, "second")), ((0, 1.0, "less"), (2, 2.0, "p2"))),
    _FOURTH, _FOURTH_ERROR, 4, 4,
)  # fmt: skip


_ETDRK = {1: ETD1, 2: _ETDRK2, 3: _ETDRK3, 4: _ETDRK4}


class AbstractExponentialSolver(AbstractStructuredSolver):
    """An exponential Runge-Kutta method.

    Attributes:
        scheme: The coefficients.
    """

    scheme: eqx.AbstractVar[Scheme]

    def stepper(self, y0: Y) -> Exponential:
        """Returns the one-step method."""
        del y0
        return Exponential(self.scheme, type(self).__name__)


class ETDRK(AbstractExponentialSolver):
    r"""Exponential time differencing with a Runge-Kutta method of order one to four, for $\dot u = L u + N(t, u)$.

    The methods of Cox and Matthews, known as ETD1 (the exponential Euler method
    $u_1 = e^{hL} u + h \varphi_1(hL) N(u)$), ETDRK2, ETDRK3 and ETDRK4.

    $L$ is diagonal in some modes, real or complex: the model is an `sciml.AbstractSemilinear`. The linear part is exact
    for any step, so the step only follows the rest. `order` is the number of evaluations of it a step, with fixed steps
    and, from order two on, with error control. In a stiff problem the order decreases towards three if the rest couples
    into the stiff modes; `Krogstad4` keeps a little more of it.

    The loop runs in the modes. The coefficients, functions $\varphi_k(hL)$, are computed once if all steps are known to
    be equal: `dt` and no tolerances, and times to save that are numbers (NumPy's under
    `jax.jit`) and multiples of it. Otherwise every step computes its own. A step ends at every saved time, so nothing
    is interpolated.

    The error is estimated by comparison with a method of one order less; at order four with the rest at the end of the
    step, which the next step needs anyway. This estimate does not see terms that depend only on time: with a strong
    forcing pass `diffrax.PIDController(dtmax=...)`.

    Under `jax.vmap` fields of all members are transformed together.

    Args:
        order: 1, 2, 3 or 4.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        S. M. Cox, P. C. Matthews, Exponential time differencing for stiff systems, J. Comput. Phys. 176 (2002),
        doi:10.1006/jcph.2002.6995; A.-K. Kassam, L. N. Trefethen, SIAM J. Sci. Comput. 26 (2005),
        doi:10.1137/S1064827502410633.

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("kdv_soliton", points=64)
        for order, most in ((1, 0.3), (2, 0.01), (3, 1e-3), (4, 1e-3)):
            solver = sciml.solvers.ETDRK(order)
            sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.1, dt=0.005, solver=solver)
            assert abs(sol.ys[-1] - problem.solution(0.1)).max() < most
        ```
    """

    _order: int = eqx.field(static=True)

    def __init__(self, order: int = 4):
        self._order = check_order(order, _ETDRK, "ETDRK")

    @property
    def name(self) -> str:
        """With the order."""
        return f"ETDRK(order={self._order})"

    @property
    def scheme(self) -> Scheme:
        """The coefficients."""
        return _ETDRK[self._order]


class Krogstad4(AbstractExponentialSolver):
    """Krogstad's exponential Runge-Kutta method of order four, with smaller errors than `ETDRK` at the same cost.

    For models with a diagonal linear part; everything in the documentation of `ETDRK` applies.

    Source:
        S. Krogstad, Generalized integrating factor methods for stiff PDEs, J. Comput. Phys. 203 (2005),
        doi:10.1016/j.jcp.2004.08.006.

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("kdv_soliton", points=64)
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.1, rtol=1e-4, solver=sciml.solvers.Krogstad4())
        assert abs(sol.ys[-1] - problem.solution(0.1)).max() < 1e-2
        ```
    """

    scheme: ClassVar[Scheme] = _KROGSTAD4
