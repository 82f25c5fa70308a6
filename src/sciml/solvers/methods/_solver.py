"""diffrax solvers that sciml's own loops can run."""

import abc
from typing import Any

import diffrax

from ..._types import Y
from ._stepper import AbstractStepper


def name_of(solver: Any) -> str:
    """Returns how a solver is written: its class, with the order where a class has several methods."""
    name = getattr(solver, "name", None)
    return name if isinstance(name, str) else type(solver).__name__


class AbstractSteppingSolver(diffrax.AbstractAdaptiveSolver):
    """A diffrax solver with a stepper: `sciml.solve` integrates with that, `diffrax.diffeqsolve` with the solver."""

    @abc.abstractmethod
    def stepper(self, y0: Y) -> AbstractStepper:
        """Returns the one-step method for states like `y0`.

        Raises:
            ValueError: If the solver does not fit the state.
            TypeError: If it cannot handle the state's dtypes.
        """
