"""The implicit midpoint rule and the methods of Gauss: symplectic for every Hamiltonian."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import PyTree

from ...._types import RealScalarLike, Y
from ...linear._choose import LinearChoice
from ...linear._preconditioners import AbstractPreconditioner
from .._cubic import cubic
from .._ravel import unflattened
from .._stepper import Step
from ._collocation import AbstractCollocation, Collocation, Made, collocation
from ._linear_options import choice_of, preconditioner_field, solver_field

_THREE, _FIFTEEN = math.sqrt(3), math.sqrt(15)


class ImplicitMidpoint(AbstractCollocation):
    r"""The implicit midpoint rule, $y_1 = y + h f\big(t + \tfrac h2, \tfrac{y + y_1}{2}\big)$, of order two.

    Symplectic for every Hamiltonian $H(q, p)$, separable or not, symmetric, and stable for all eigenvalues with a
    negative real part. It conserves what is quadratic, as an angular momentum or the norm of a wave function, and the
    energy swings by $O(h^2)$ without drift. For fixed steps, since these make it symplectic; steps that follow an error
    take `Rodas5P`. Each step solves its equation by Newton's iteration, to rounding; where that does not converge the
    status is `nonfinite`, and a shorter `dt` helps. It damps nothing, so what is stiff rings on.

    Attributes:
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, relative to
            whose right-hand sides they are solved; None for what the structure of the Jacobian asks for.
        preconditioner: What helps the iteration, such as `BlockJacobi()` or `ILU0()`.

    Source:
        E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration (2006), section II.1 and chapter VI.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def product(t, y, args):  # of H = (q**2 + 1) (p**2 + 1) / 2
            q, p = y
            return jnp.stack([(q**2 + 1) * p, -q * (p**2 + 1)])

        solver = sciml.solvers.ImplicitMidpoint()
        sol = sciml.solve(product, jnp.array([1.0, 0.0]), t0=0.0, t1=200.0, dt=0.1, solver=solver)
        q, p = sol.ys[-1]
        assert abs((q**2 + 1) * (p**2 + 1) / 2 - 1) < 0.01
        ```
    """

    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    order: ClassVar[int] = 2
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False
    traits = AbstractCollocation.traits._replace(symmetric=True, dense=True, elementwise_dense=True)
    method: ClassVar[Collocation] = collocation((0.5,), ((0.5,),), (1.0,))

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, type(self).__name__, relative=True)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state on the line between the ends of a step."""
        del h, dense
        return jax.tree.map(lambda a, b: a + jnp.asarray(theta, b.dtype) * (b - a), y0, y1)


class GaussLegendre4(AbstractCollocation):
    r"""The method of Gauss of two stages, of order four, with dense output of order four.

    Symplectic for every Hamiltonian, symmetric, stable for all eigenvalues with a negative real part: all that is said
    of `ImplicitMidpoint` holds.

    Attributes:
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, relative to
            whose right-hand sides they are solved; None for what the structure of the Jacobian asks for.
        preconditioner: What helps the iteration, such as `BlockJacobi()` or `ILU0()`.

    Source:
        J. C. Butcher, Math. Comp. 18 (1964); E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration (2006).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def spring(t, y, args):
            return jnp.stack([y[1], -y[0]])

        solver = sciml.solvers.GaussLegendre4()
        sol = sciml.solve(spring, jnp.array([1.0, 0.0]), t0=0.0, t1=6.2831853, dt=0.2, solver=solver)
        assert abs(sol.ys[-1, 1]) < 1e-4
        ```
    """

    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    order: ClassVar[int] = 4
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False
    traits = AbstractCollocation.traits._replace(symmetric=True, dense=True, elementwise_dense=True)
    method: ClassVar[Collocation] = collocation(
        (1 / 2 - _THREE / 6, 1 / 2 + _THREE / 6),
        ((1 / 4, 1 / 4 - _THREE / 6), (1 / 4 + _THREE / 6, 1 / 4)),
        (1 / 2, 1 / 2),
    )

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, type(self).__name__, relative=True)

    def finished(self, made: Made) -> Step:
        """Returns the step, with the slopes at both ends."""
        y1 = unflattened(made.y1, made.y)
        return Step(
            y1, dense=(unflattened(made.slope, made.y), made.field(made.t + made.h, y1)), solvable=made.solvable
        )

    def empty_dense(self, y: Y) -> PyTree:
        """Returns slopes of zero."""
        return (jax.tree.map(jnp.zeros_like, y),) * 2

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the cubic polynomial of both ends' states and slopes."""
        return cubic(theta, h, y0, y1, *dense)


class GaussLegendre6(AbstractCollocation):
    r"""The method of Gauss of three stages, of order six.

    Symplectic for every Hamiltonian, symmetric, stable for all eigenvalues with a negative real part: all that is said
    of `ImplicitMidpoint` holds. Steps end at saved times: choose these at multiples of `dt`, since a shorter step among
    equal ones costs the method its symplecticity.

    Attributes:
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, relative to
            whose right-hand sides they are solved; None for what the structure of the Jacobian asks for.
        preconditioner: What helps the iteration, such as `BlockJacobi()` or `ILU0()`.

    Source:
        J. C. Butcher, Math. Comp. 18 (1964); E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration (2006).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def spring(t, y, args):
            return jnp.stack([y[1], -y[0]])

        solver = sciml.solvers.GaussLegendre6()
        sol = sciml.solve(spring, jnp.array([1.0, 0.0]), t0=0.0, t1=6.2831853, dt=0.5, solver=solver)
        assert abs(sol.ys[-1, 1]) < 1e-4
        ```
    """

    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    order: ClassVar[int] = 6
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False
    traits = AbstractCollocation.traits._replace(symmetric=True)
    method: ClassVar[Collocation] = collocation(
        (1 / 2 - _FIFTEEN / 10, 1 / 2, 1 / 2 + _FIFTEEN / 10),
        (
            (5 / 36, 2 / 9 - _FIFTEEN / 15, 5 / 36 - _FIFTEEN / 30),
            (5 / 36 + _FIFTEEN / 24, 2 / 9, 5 / 36 - _FIFTEEN / 24),
            (5 / 36 + _FIFTEEN / 30, 2 / 9 + _FIFTEEN / 15, 5 / 36),
        ),
        (5 / 18, 4 / 9, 5 / 18),
    )

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, type(self).__name__, relative=True)
