"""The interface of adjoints: an object that defines how a loop runs and how the solution is differentiated."""

import abc
from typing import ClassVar

import diffrax
import equinox as eqx
from jaxtyping import PyTree

from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result
from ..methods._stepper import AbstractStepper

REPEATING = "`sciml.adjoints.Checkpointed()`, `Direct()` or `Forward()`"
"""The adjoints that differentiate the actual steps, in messages."""


class AbstractAdjoint(eqx.Module):
    """How derivatives of a solution are computed.

    An adjoint is given a loop that integrates one member, and runs it. JAX differentiates its result, so it puts a rule
    around the loop, or runs another loop instead. A custom adjoint most easily delegates to an existing one, with its
    own work before or after it. `sciml.verify.check_adjoint` compares derivatives.

    All attributes are class variables, and False by default.

    Attributes:
        runs_in_kernel: Whether its solution, without derivatives, may run in an ensemble kernel.
        runs_on_split_state: Whether it runs where devices hold parts of one state.
        keeps_steps: Whether the steps are the steps of the method, as a stencil kernel computes them.
        changes_method: Whether `method` returns another than it is given.
        repeats_steps: Whether it differentiates the actual steps, and therefore supports events and noise.
        jumps_at_events: Whether it supports events by jumps of its cotangent at each.
        sees_closures: Whether JAX differentiates the steps themselves, and so what `project` or `domain` close over.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        class Scaled(sciml.adjoints.AbstractAdjoint):
            factor: float

            def run(self, loop, y0, operands, differentiate_times):
                result = sciml.adjoints.Checkpointed().run(loop, y0, operands, differentiate_times)
                scale = lambda y: self.factor * y + jax.lax.stop_gradient((1 - self.factor) * y)
                return result._replace(ys=jax.tree.map(scale, result.ys))

        def end(y0):
            return sciml.solve(lambda t, y, args: -y, y0, t0=0.0, t1=1.0, adjoint=Scaled(0.5)).ys[-1]

        assert abs(jax.grad(end)(1.0) - 0.5 * jnp.exp(-1.0)) < 1e-3
        ```
    """

    runs_in_kernel: ClassVar[bool] = False
    runs_on_split_state: ClassVar[bool] = False
    keeps_steps: ClassVar[bool] = False
    changes_method: ClassVar[bool] = False
    repeats_steps: ClassVar[bool] = False
    jumps_at_events: ClassVar[bool] = False
    sees_closures: ClassVar[bool] = False

    def method(self, stepper: AbstractStepper) -> AbstractStepper:
        """Returns the one-step method that `run` uses, which determines the cost of a step.

        Raises:
            TypeError: If the adjoint cannot differentiate steps of this method.
        """
        return stepper

    def for_diffrax(self) -> diffrax.AbstractAdjoint:
        """Returns diffrax's adjoint of the same kind, for solves that diffrax runs.

        Raises:
            TypeError: If it has none.
            ValueError: If it does not support the request.
        """
        raise TypeError(
            f"`adjoint={type(self).__name__}()` requires one of sciml's own loops, but diffrax runs this solve "
            "because of its `solver`, `stepsize_controller` or `saveat`. Use `sciml.adjoints.Checkpointed()` or "
            "`sciml.adjoints.Direct()`."
        )

    @abc.abstractmethod
    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop so that it can be differentiated.

        Args:
            loop: The loop, for any number of lanes.
            y0: The initial state.
            operands: The inputs of the loop.
            differentiate_times: Whether t0, t1 and saved times are differentiated.
        """


def check_supports(adjoint: AbstractAdjoint, attribute: str, use: str, instead: str) -> None:
    """Checks that an adjoint declares what a solve uses.

    Args:
        adjoint: The adjoint.
        attribute: The class variable that declares it.
        use: What the solve uses, in words.
        instead: The adjoints that support it, in words.

    Raises:
        ValueError: If it does not.
    """
    if not getattr(adjoint, attribute):
        name = type(adjoint).__name__
        own = f" If `{name}` does support this, set `{attribute} = True` in the class."
        built_in = type(adjoint).__module__.partition(".")[0] == __name__.partition(".")[0]
        raise ValueError(f"`adjoint={name}()` does not support {use}. Use {instead}.{'' if built_in else own}")
