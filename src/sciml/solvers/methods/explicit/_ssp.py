r"""Runge-Kutta methods that preserve strong stability.

Each is a convex combination of Euler steps, so that whatever an Euler step of length $h \le h_0$ does not increase,
such as the total variation or a maximum, a step of length $h \le C h_0$ does not either. For advection with limiters.
"""

from typing import ClassVar

import diffrax

from ._explicit import AbstractExplicitSolver, tableau


class SSPRK33(AbstractExplicitSolver):
    r"""The method of Shu and Osher: three stages, order 3(2), $C = 1$.

    The method of two stages and order two is `diffrax.Heun`.

    Source:
        C.-W. Shu, S. Osher, J. Comput. Phys. 77 (1988).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def advection(t, y, args):
            return (jnp.roll(y, 1) - y) * 50.0  # upwind, on a circle of 50 cells

        y0 = jnp.where(jnp.arange(50) < 25, 1.0, 0.0)
        sol = sciml.solve(advection, y0, t0=0.0, t1=1.0, dt=0.02, solver=sciml.solvers.SSPRK33())
        assert sol.ys.max() <= 1 + 1e-6 and sol.ys.min() >= -1e-6
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = tableau(
        rows=((1.0,), (1 / 4, 1 / 4)), weights=(1 / 6, 1 / 6, 2 / 3), error_weights=(-1 / 3, -1 / 3, 2 / 3)
    )
    power: ClassVar[int] = 3


class SSPRK43(AbstractExplicitSolver):
    r"""Four stages, order 3(2), $C = 2$: steps twice as long as for `SSPRK33`, for one more evaluation.

    Source:
        J. F. B. M. Kraaijevanger, BIT 31 (1991); I. Fekete, S. Conde, J. N. Shadid, Embedded pairs for optimal explicit
        strong stability preserving Runge-Kutta methods, J. Comput. Appl. Math. 412 (2022).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def advection(t, y, args):
            return (jnp.roll(y, 1) - y) * 50.0

        y0 = jnp.where(jnp.arange(50) < 25, 1.0, 0.0)
        sol = sciml.solve(advection, y0, t0=0.0, t1=1.0, dt=0.04, solver=sciml.solvers.SSPRK43())
        assert sol.ys.max() <= 1 + 1e-6 and sol.ys.min() >= -1e-6
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = tableau(
        rows=((1 / 2,), (1 / 2, 1 / 2), (1 / 6, 1 / 6, 1 / 6)),
        weights=(1 / 6, 1 / 6, 1 / 6, 1 / 2),
        error_weights=(-1 / 12, -1 / 12, -1 / 12, 1 / 4),
    )
    power: ClassVar[int] = 3


class SSPRK104(AbstractExplicitSolver):
    r"""Ketcheson's method: ten stages, order 4(3), $C = 6$.

    Source:
        D. I. Ketcheson, Highly efficient strong stability preserving Runge-Kutta methods with low-storage
        implementations, SIAM J. Sci. Comput. 30:4 (2008); its error estimate by I. Fekete, S. Conde, J. N. Shadid.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def advection(t, y, args):
            return (jnp.roll(y, 1) - y) * 50.0

        y0 = jnp.where(jnp.arange(50) < 25, 1.0, 0.0)
        sol = sciml.solve(advection, y0, t0=0.0, t1=1.0, dt=0.1, solver=sciml.solvers.SSPRK104())
        assert sol.ys.max() <= 1 + 1e-6 and sol.ys.min() >= -1e-6
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = tableau(
        rows=(
            *((1 / 6,) * i for i in range(1, 5)),
            *((1 / 15,) * 5 + (1 / 6,) * i for i in range(5)),
        ),
        weights=(1 / 10,) * 10,
        error_weights=(-1 / 10, 1 / 10, 1 / 10, -1 / 5, 1 / 10, 1 / 10, -1 / 10, 1 / 10, -1 / 5, 1 / 10),
    )
    power: ClassVar[int] = 4
