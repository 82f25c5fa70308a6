"""Explicit Runge-Kutta methods that diffrax has not got, as diffrax solvers."""

from collections.abc import Sequence
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import numpy as np

from ._runge_kutta import StepsAlone


class AbstractExplicitSolver(diffrax.AbstractERK):
    """An explicit Runge-Kutta method without dense output: steps end at saved times.

    In `diffrax.diffeqsolve` the solution between steps is interpolated linearly.

    Attributes:
        power: The order of the method.
    """

    power: eqx.AbstractClassVar[int]
    interpolation_cls: ClassVar[Any] = StepsAlone

    def order(self, terms: Any) -> int:
        """Returns the order of the method."""
        del terms
        return self.power

    def strong_order(self, terms: Any) -> None:
        """Returns None: it is for equations without noise."""
        del terms


def tableau(
    *, rows: Sequence[Sequence[float]], weights: Sequence[float], error_weights: Sequence[float] | None = None
) -> diffrax.ButcherTableau:
    """Returns a tableau.

    Args:
        rows: The rows of the matrix from the second stage on; they add up to the nodes.
        weights: The weights of the step.
        error_weights: The weights of the error estimate, or None.
    """
    weighted = np.asarray(weights)
    return diffrax.ButcherTableau(
        a_lower=tuple(map(np.asarray, rows)),
        b_sol=weighted,
        b_error=np.zeros_like(weighted) if error_weights is None else np.asarray(error_weights),
        c=np.array([sum(row) for row in rows]),
    )
