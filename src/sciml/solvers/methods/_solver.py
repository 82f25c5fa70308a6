"""diffrax solvers that sciml's own loops can run."""

import abc

import diffrax

from ..._types import Y
from ._stepper import AbstractStepper


class AbstractSteppingSolver(diffrax.AbstractAdaptiveSolver):
    """A diffrax solver with a stepper: `sciml.solve` integrates with that, `diffrax.diffeqsolve` with the solver."""

    @abc.abstractmethod
    def stepper(self, y0: Y) -> AbstractStepper:
        """Returns the one-step method for states like `y0`.

        Raises:
            ValueError: If the solver does not fit the state.
            TypeError: If it cannot handle the state's dtypes.
        """
