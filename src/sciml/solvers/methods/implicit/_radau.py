"""The method of Radau of order five."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...._types import RealScalarLike, Y
from ...linear._choose import LinearChoice
from ...linear._preconditioners import AbstractPreconditioner
from .._ravel import unflattened
from .._stepper import Step
from ._collocation import AbstractCollocation, Collocation, Made, collocation
from ._known_root import MOST_NEWTON
from ._linear_options import choice_of, preconditioner_field, solver_field
from ._newton import Ending, by_tolerated

_SIX = math.sqrt(6)
_NODES = ((4 - _SIX) / 10, (4 + _SIX) / 10, 1.0)
_WEIGHTS = ((16 - _SIX) / 36, (16 + _SIX) / 36, 1 / 9)
ERRORS = (-(13 + 7 * _SIX) / 3, (7 * _SIX - 13) / 3, -1 / 3)
_SHARE_OF_ERROR = 0.01
"""The iteration for the stages ends where its corrections are below this share of the error estimate."""


class Radau5(AbstractCollocation):
    r"""The method of Radau (IIA) of three stages, of order five, for stiff equations.

    L-stable and stiffly accurate, with an error estimate of order three and dense output by the polynomial of the
    stages. They are solved by Newton's iteration, which ends when its corrections are far below the error estimate; a
    step for which it does not converge is tried again with a shorter length. A step costs more than one of
    `Rodas5P`. A mass matrix it has not got.

    Attributes:
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for the linear systems of Newton's iteration, with tolerances
            relative to their right-hand sides; None to choose by the structure of the Jacobian.
        preconditioner: A preconditioner for the iteration, such as `BlockJacobi()` or `ILU0()`.

    Source:
        E. Hairer, G. Wanner, Solving Ordinary Differential Equations II (1996), section IV.8.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.VanDerPol(mu=100.0)
        y0 = jnp.array([2.0, 0.0])
        sol = sciml.solve(model, y0, t0=0.0, t1=50.0, rtol=1e-4, atol=1e-6, solver=sciml.solvers.Radau5())
        assert sol.stats.accepted < 100
        ```
    """

    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()
    order: ClassVar[int] = 5
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = True
    traits = AbstractCollocation.traits._replace(dense=True, elementwise_dense=True, error_order=4)
    method: ClassVar[Collocation] = collocation(
        _NODES,
        (
            ((88 - 7 * _SIX) / 360, (296 - 169 * _SIX) / 1800, (3 * _SIX - 2) / 225),
            ((296 + 169 * _SIX) / 1800, (88 + 7 * _SIX) / 360, -(2 + 3 * _SIX) / 225),
            _WEIGHTS,
        ),
        _WEIGHTS,
    )

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return choice_of(self.linear_solver, self.preconditioner, "Radau5", relative=True)

    def ending(
        self, x: Float[Array, " n"], slope: Float[Array, " n"], h: Array, structures: tuple, factors: tuple
    ) -> Ending:
        """Returns that at a share of the error estimate."""

        def tolerated(stages: Float[Array, "s n"]) -> Float[Array, " n"]:
            return _SHARE_OF_ERROR * jnp.abs(self._error(slope, h, stages, structures, factors))

        # which changes with the stages, so that there is no rate
        return by_tolerated(x, tolerated, MOST_NEWTON, by_rate=False, like=(slope, h, factors))

    def _error(self, slope: Array, h: Array, stages: Array, structures: tuple, factors: tuple) -> Array:
        r"""The estimate $(1 - h \gamma J)^{-1} \gamma (h f + \sum_i e_i Z_i)$, $\gamma$ the real eigenvalue."""
        gamma = float(self.method.blocks[0][0, 0])
        right = gamma * (h.astype(slope.dtype) * slope + sum(e * z for e, z in zip(ERRORS, stages)))
        return structures[0].substitute(factors[0], right)

    def finished(self, made: Made) -> Step:
        """Returns the step, with its error estimate and the stages."""
        error = self._error(*jax.lax.stop_gradient((made.slope, made.h, made.stages)), made.structures, made.factors)
        y1, error, *inner = (unflattened(x, made.y) for x in (made.y1, error, *made.stages[:2]))
        return Step(y1, error, tuple(inner), solvable=made.solvable)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns increments of zero."""
        return (jax.tree.map(jnp.zeros_like, y),) * 2

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the cubic polynomial through the start and the stages."""
        del h

        def of_leaf(y0, y1, *inner):
            s = jnp.asarray(theta, y0.dtype)
            powers = [s, s * s, s * s * s]
            weights = [sum(float(c) * p for c, p in zip(row, powers)) for row in _LAGRANGE]
            return y0 + weights[2] * (y1 - y0) + weights[0] * inner[0] + weights[1] * inner[1]

        return jax.tree.map(of_leaf, y0, y1, *dense)


_LAGRANGE = np.linalg.inv(np.vander(_NODES, 4, increasing=True)[:, 1:]).T
"""The coefficients of polynomials that are one at one node and zero at the others and at zero."""
