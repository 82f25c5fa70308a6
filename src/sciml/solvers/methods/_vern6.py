"""Verner's most efficient pair of order 6(5)."""

from typing import ClassVar

import diffrax

from ._explicit import AbstractExplicitSolver, tableau

_TABLEAU = tableau(
    rows=(
        (0.06,),
        (0.019239962962962962, 0.07669337037037037),
        (0.035975, 0.0, 0.107925),
        (1.3186834152331484, 0.0, -5.042058063628562, 4.220674648395414),
        (-41.872591664327516, 0.0, 159.4325621631375, -122.11921356501003, 5.531743066200054),
        (-54.430156935316504, 0.0, 207.06725136501848, -158.61081378459, 6.991816585950242, -0.018597231062203234),
        (
            -54.66374178728198,
            0.0,
            207.95280625538936,
            -159.2889574744995,
            7.018743740796944,
            -0.018338785905045722,
            -0.0005119484997882099,
        ),
        (
            0.03438957868357036,
            0.0,
            0.0,
            0.2582624555633503,
            0.4209371189673537,
            4.40539646966931,
            -176.48311902429865,
            172.36413340141507,
        ),
    ),
    weights=(
        0.03438957868357036,
        0.0,
        0.0,
        0.2582624555633503,
        0.4209371189673537,
        4.40539646966931,
        -176.48311902429865,
        172.36413340141507,
        0.0,
    ),
    error_weights=(
        0.008623404282200852,
        0.0,
        0.0,
        -0.019434029953152708,
        0.028450072588037983,
        -2.109711061065291,
        103.45854289996399,
        -101.39980461914911,
        0.03333333333333333,
    ),
)


class Vern6(AbstractExplicitSolver):
    """Verner's most efficient method of order 6(5): nine stages, the last of which is the next first.

    Steps end at saved times, since it has no interpolation of its order.

    Source:
        J. H. Verner, Numerically optimal Runge-Kutta pairs with interpolants, Numer. Algorithms 53 (2010).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        sol = sciml.solve(model, jnp.array([34.0, 5.9]), t0=0.0, t1=20.0, solver=sciml.solvers.Vern6())
        assert sol.stats.accepted < 100
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = _TABLEAU

    def order(self, terms: object) -> int:
        """Returns the order of the method."""
        del terms
        return 6
