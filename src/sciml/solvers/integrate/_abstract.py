"""The interface of all loops for adjoints: run members to their end, record the run, and go back through it."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from ..._jax._checkpoint_levels import Budget
from ...kernels._backends import KernelRequest
from ...kernels._lanes import Lanes, Unbatched, is_value
from ._integrator import Integrator, Operands
from ._result import Cotangents, Result, Saves


class FixedSteps(NamedTuple):
    """Steps of one length whose number is known when traced.

    Attributes:
        number: The number of steps of length `dt`.
        tail: Whether a shorter step follows, which ends at the end time.
    """

    number: int
    tail: bool


class AbstractLoop(eqx.Module):
    """A loop that integrates one member or many, which an adjoint runs so that it can be differentiated.

    A loop is made for one member. `over` gives it the lanes that a batch needs; what runs over lanes takes and
    returns lane values, the form that the engine gives to arrays of all members.

    Attributes:
        integrator: How one member is advanced.
        lanes: The engine: many lanes, or one member.
        fixed: The fixed steps that the loop takes, where their number is known; None elsewhere.
        max_steps: The limit on the attempted steps of a member.
        impl: The backend for many members: XLA, or the requested kernel.
        transposable: Whether `forward` supports JAX's own reverse mode.
        by_stencil_kernel: Whether a stencil kernel takes the steps, which JAX has to see as it is.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Counting(sciml.adjoints.AbstractAdjoint):
            def run(self, loop, y0, operands, differentiate_times):
                print("fixed steps:", loop.fixed, "of order", loop.integrator.stepper.order)
                return sciml.adjoints.Direct().run(loop, y0, operands, differentiate_times)

        sciml.solve(lambda t, y, args: -y, jnp.ones(()), t0=0.0, t1=1.0, dt=0.25, adjoint=Counting())
        ```
    """

    integrator: eqx.AbstractVar[Integrator]
    lanes: eqx.AbstractVar[Lanes | Unbatched]
    fixed: eqx.AbstractVar[FixedSteps | None]
    max_steps: eqx.AbstractVar[int]
    impl: eqx.AbstractVar[KernelRequest]
    transposable: ClassVar[bool] = False
    by_stencil_kernel: ClassVar[bool] = False

    @property
    def lockstep(self) -> "AbstractLoop":
        """The same integration with a lane for each member, which is what derivatives are computed by."""
        return self

    def of_one(self) -> "AbstractLoop":
        """Returns the loop for a single member, whose program may be another."""
        return self

    @abc.abstractmethod
    def over(self, lanes: Lanes | Unbatched, state_bytes: int, budget: Budget) -> "AbstractLoop":
        """Returns the loop over other lanes, which records as much as there is memory for.

        Args:
            lanes: The engine.
            state_bytes: The size of one member's state.
            budget: How much may be recorded.
        """

    @abc.abstractmethod
    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Integrates every member to the end.

        Args:
            y0: The initial states, lane values.
            operands: The inputs of the integration, lane values, without saved times.
            saves: The saved times, or None for the end state.
        """

    @abc.abstractmethod
    def forward_recorded(self, y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Result, PyTree, PyTree]:
        """Integrates every member to the end and returns the result with what `backward` needs.

        Returns:
            The result; residuals, arrays with members last; and what is the same for all members.
        """

    @abc.abstractmethod
    def backward(
        self,
        cotangent: Cotangents,
        residuals: PyTree,
        common: PyTree,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangents of a result back to the initial state, the operands and the saved times.

        Args:
            cotangent: Arrays with members last, like the result.
            residuals: From `forward_recorded`.
            common: From `forward_recorded`.
            operands: Lane values.
            saves: The saved times.
            differentiable: `Operands` of booleans: which of the operands are differentiated.

        Returns:
            Cotangents with members last of the initial state, of the differentiable operands (the others None; where
            the engine has `shared_cotangents`, what members share may have one in all), and of the saved times, which
            are None unless they are differentiated.
        """

    def forward_with_columns(
        self, y0: PyTree, operands: Operands, saves: Saves | None, perturbed: tuple[bool, ...]
    ) -> Any:
        """Returns how every member is integrated with the derivatives by `perturbed` leaves, or None."""
        del y0, operands, saves, perturbed

    def forward_with_slopes(self, y0: PyTree, operands: Operands, saves: Saves) -> tuple[Result, PyTree]:
        """Integrates every member to the end, and also returns the time derivatives of the saved states."""
        raise NotImplementedError(f"{type(self).__name__} does not save states between steps")


def check_lane_values(lanes: Lanes | Unbatched, y0: PyTree) -> None:
    """Checks that an initial state is in the form of a loop's lanes; the `run` of an adjoint is given arrays.

    Raises:
        TypeError: If it is not.
    """
    if isinstance(lanes, Lanes) and not all(map(is_value, jax.tree.leaves(y0, is_leaf=is_value))):
        raise TypeError(
            "`loop.forward` requires lane values, in the internal layout of all members, but got arrays. In the `run` "
            "of an adjoint, return `sciml.adjoints.Direct().run(loop, y0, operands, differentiate_times)`."
        )
