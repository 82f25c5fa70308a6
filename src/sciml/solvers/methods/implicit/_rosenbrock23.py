"""Rosenbrock23."""

import math

import equinox as eqx
import lineax as lx

from ...linear._preconditioners import AbstractPreconditioner
from ._linear_options import preconditioner_field, solver_field
from ._mass_matrix import Mass, as_mass
from ._rosenbrock import Tableau
from ._rosenbrock_solver import AbstractRosenbrockSolver

# Published as k1 = W \ (F0 + h d T), k2 = W \ (F1 - M k1) + k1, y1 = y + h k2,
# k3 = W \ (F2 - e (M k2 - F1) - 2 (M k1 - F0) + h d T), error h/6 (k1 - 2 k2 + k3), as for the system with time as
# one more unknown. With another weight of the last T the estimate would be of first order where f depends on time.
# Here h d (k1, k2 - k1, k3 - e (k2 - k1) - 2 k1) are the stages, so that no slope meets another's.
_D = 1 / (2 + math.sqrt(2))
_E = 6 + math.sqrt(2)
_TABLEAU = Tableau(
    gamma=_D,
    a=((), (1 / (2 * _D),), (1 / _D, 1 / _D)),
    c=((), (-1 / _D,), (-2 / _D, -_E / _D)),
    nodes=(0.0, 0.5, 1.0),
    d=(_D, 0.0, -_D),
    weights=(1 / _D, 1 / _D, 0.0),
    error_weights=(1 / (6 * _D), (_E - 2) / (6 * _D), 1 / (6 * _D)),
    dense=((0.0, -1 / (_D * (1 - 2 * _D)), 0.0),),
    order=2,
    error_order=3,
)


class Rosenbrock23(AbstractRosenbrockSolver):
    r"""Rosenbrock23, a method of order 2(3) for stiff equations $M \dot y = f(t, y)$, known as ode23s.

    Three stages, L-stable, with dense output of order 2. For loose tolerances, 1e-3 or so; below
    `Rodas5P` takes far fewer steps. Singular mass matrices are handled as there.

    Attributes:
        mass: The constant matrix $M$, of shape `(n, n)` for a state of `n` elements (a PyTree in the order
            of its leaves), or None for the identity. For complex elements it multiplies real and imaginary parts
            equally.
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for linear systems in which the Jacobian is only multiplied
            with vectors; None to choose by its structure. Systems are solved to its tolerances or to a small part of
            the tolerated error of a step, whichever is smaller, and derivatives to nearly all digits. A step whose
            systems are not solved within `max_steps` products (by default 300) is tried again with a shorter length.
        preconditioner: A preconditioner for the iteration, such as `BlockJacobi()` or `ILU0()`.

    Raises:
        ValueError: If `mass` is not a finite square matrix, or does not fit the state, or the preconditioner does not.
        TypeError: If `mass` is traced or not real, or `linear_solver` no such iteration.

    Source:
        L. F. Shampine, M. W. Reichelt, The MATLAB ODE suite, SIAM J. Sci. Comput. 18:1 (1997),
        doi:10.1137/S1064827594276424.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.VanDerPol(mu=100.0)
        y0 = jnp.array([2.0, 0.0])
        sol = sciml.solve(model, y0, t0=0.0, t1=50.0, rtol=1e-3, atol=1e-5, solver=sciml.solvers.Rosenbrock23())
        assert sol.stats.accepted < 100
        ```
    """

    mass: Mass | None = eqx.field(default=None, converter=as_mass, static=True)
    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()

    @property
    def tableau(self) -> Tableau:
        """The coefficients."""
        return _TABLEAU
