"""The methods of Gauss, the implicit midpoint rule among them: symplectic for every Hamiltonian."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import PyTree

from ...._checks import check_order
from ...._types import RealScalarLike, Y
from ...linear._choose import LinearChoice
from ...linear._preconditioners import AbstractPreconditioner
from .._capabilities import Traits
from .._cubic import cubic
from .._ravel import unflattened
from .._stepper import Step
from ._collocation import AbstractCollocation, Collocation, Made, collocation
from ._linear_options import choice_of, preconditioner_field, solver_field

_THREE, _FIFTEEN = math.sqrt(3), math.sqrt(15)


_GAUSS = {
    2: collocation((0.5,), ((0.5,),), (1.0,)),
    4: collocation(
        (1 / 2 - _THREE / 6, 1 / 2 + _THREE / 6),
        ((1 / 4, 1 / 4 - _THREE / 6), (1 / 4 + _THREE / 6, 1 / 4)),
        (1 / 2, 1 / 2),
    ),
    6: collocation(
        (1 / 2 - _FIFTEEN / 10, 1 / 2, 1 / 2 + _FIFTEEN / 10),
        (
            (5 / 36, 2 / 9 - _FIFTEEN / 15, 5 / 36 - _FIFTEEN / 30),
            (5 / 36 + _FIFTEEN / 24, 2 / 9, 5 / 36 - _FIFTEEN / 24),
            (5 / 36 + _FIFTEEN / 30, 2 / 9 + _FIFTEEN / 15, 5 / 36),
        ),
        (5 / 18, 4 / 9, 5 / 18),
    ),
}


class GaussLegendre(AbstractCollocation):
    r"""The implicit methods of Gauss and Legendre, of one to three stages. Order two is the implicit midpoint rule.

    | `order` | method | between steps |
    | --- | --- | --- |
    | 2 | $y_1 = y + h f\big(t + \tfrac h2, \tfrac{y + y_1}{2}\big)$, the implicit midpoint rule | a line |
    | 4 | two stages | a cubic polynomial, of order four |
    | 6 | three stages | steps end at saved times: choose these at multiples of `dt` |

    Symplectic for every Hamiltonian $H(q, p)$, separable or not, symmetric, and stable for all eigenvalues with a
    negative real part. They conserve quadratic invariants, such as an angular momentum or the norm of a wave function,
    and the energy oscillates without drift. For fixed steps, since these make them symplectic; steps that follow an
    error take `Rodas5P`. Each step solves its equation by Newton's iteration, to rounding; if it does not converge, the
    status is `nonfinite`, and a shorter `dt` helps. They damp nothing, so stiff components keep oscillating.

    Attributes:
        order: 2, 4 or 6.
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, with tolerances
            relative to their right-hand sides; None to choose by the structure of the Jacobian.
        preconditioner: A preconditioner for the iteration, such as `BlockJacobi()` or `ILU0()`.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        J. C. Butcher, Math. Comp. 18 (1964); E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration (2006),
        section II.1 and chapter VI.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def product(t, y, args):  # of H = (q**2 + 1) (p**2 + 1) / 2
            q, p = y
            return jnp.stack([(q**2 + 1) * p, -q * (p**2 + 1)])

        for order, most in ((2, 0.01), (4, 3e-4), (6, 3e-4)):
            solver = sciml.solvers.GaussLegendre(order)
            sol = sciml.solve(product, jnp.array([1.0, 0.0]), t0=0.0, t1=200.0, dt=0.1, solver=solver)
            q, p = sol.ys[-1]
            assert abs((q**2 + 1) * (p**2 + 1) / 2 - 1) < most
        ```
    """

    order: int = eqx.field(static=True, default=4)
    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False

    def __check_init__(self):
        check_order(self.order, _GAUSS, "GaussLegendre")

    @property
    def name(self) -> str:
        """With the order."""
        return f"GaussLegendre(order={self.order})"

    @property
    def traits(self) -> Traits:
        """It interpolates by polynomials up to the cubic one, which are as good as orders up to four."""
        dense = self.order <= 4
        return super().traits._replace(symmetric=True, dense=dense, elementwise_dense=dense)

    @property
    def method(self) -> Collocation:
        """The coefficients."""
        return _GAUSS[self.order]

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, "GaussLegendre", relative=True)

    def finished(self, made: Made) -> Step:
        """Returns the step; of order four with the slopes at both ends."""
        if self.order != 4:
            return super().finished(made)
        y1 = unflattened(made.y1, made.y)
        return Step(
            y1, dense=(unflattened(made.slope, made.y), made.field(made.t + made.h, y1)), solvable=made.solvable
        )

    def empty_dense(self, y: Y) -> PyTree:
        """Returns slopes of zero, where it interpolates by them."""
        return (jax.tree.map(jnp.zeros_like, y),) * 2 if self.order == 4 else super().empty_dense(y)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h`: on the line between the ends, or by their slopes as well."""
        if self.order == 4:
            return cubic(theta, h, y0, y1, *dense)
        return jax.tree.map(lambda a, b: a + jnp.asarray(theta, b.dtype) * (b - a), y0, y1)
