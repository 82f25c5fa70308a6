"""What an adjoint is: an object that says how a loop runs, and so how the solution is differentiated."""

import abc

import equinox as eqx
from jaxtyping import PyTree

from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result
from ..methods._stepper import AbstractStepper


class AbstractAdjoint(eqx.Module):
    """How derivatives of a solution are computed.

    Example:
        ```python
        import sciml

        assert isinstance(sciml.Checkpointed(), sciml.solvers.AbstractAdjoint)
        ```
    """

    def method(self, stepper: AbstractStepper) -> AbstractStepper:
        """Returns the one-step method that `run` steps with, which says what a step costs.

        Raises:
            TypeError: If the adjoint cannot differentiate steps of this method.
        """
        return stepper

    @abc.abstractmethod
    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, times: bool) -> Result:
        """Runs a loop so that it can be differentiated.

        Args:
            loop: The loop, for any number of lanes.
            y0: The initial state.
            operands: What the loop depends on.
            times: Whether t0, t1 and saved times are differentiated.
        """
