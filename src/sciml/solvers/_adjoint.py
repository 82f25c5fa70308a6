"""How a solution is differentiated: adjoint objects say how the loop runs."""

import abc

import equinox as eqx
from jaxtyping import PyTree

from .._vma import promote
from ..kernels.lanes import Member
from . import _ad
from ._loop import Loop, Result, Saves
from ._march import Operands
from ._refill import Refill
from ._scan import Steps


class AbstractAdjoint(eqx.Module):
    """How derivatives of a solution are computed.

    Example:
        ```python
        import sciml

        assert isinstance(sciml.Checkpointed(), sciml.solvers.AbstractAdjoint)
        ```
    """

    @abc.abstractmethod
    def run(self, loop: Loop | Steps | Refill, y0: PyTree, operands: Operands, times: bool) -> Result:
        """Runs a loop so that it can be differentiated.

        Args:
            loop: The loop, for any number of lanes.
            y0: The initial state.
            operands: What the loop depends on.
            times: Whether t0, t1 and saved times are differentiated.
        """


class Checkpointed(AbstractAdjoint):
    """Reverse mode by running the accepted steps again from last to first; the default.

    The gradient is exact for what was computed, the step sizes held. Steps are recorded in a fixed
    number of slots; a loop with more steps than slots keeps evenly spread ones and computes those
    between again, at the cost of one more solve. Under `jax.vmap` forward and backward loop run over
    lanes. Forward mode (`jax.jvp`, `jax.jacfwd`, `jax.hessian`) needs `Direct`.

    Attributes:
        memory: About how many bytes the record may take, for all members of a `vmap` together. With
            error control no more than 16 MiB are used, since the record is set up before the
            number of steps is known.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            sol = sciml.solve(lambda t, y, args: -rate * y, jnp.ones(()), t0=0.0, t1=1.0, dt=0.01)
            return sol.ys[-1]

        gradient = jax.grad(end)(jnp.array(2.0))
        assert abs(float(gradient) + 0.1353353) < 1e-4
        ```
    """

    memory: int = eqx.field(static=True, default=2**28)

    def __check_init__(self):
        if not isinstance(self.memory, int) or self.memory <= 0:
            raise ValueError(f"`Checkpointed(memory=...)` must be a positive number of bytes, but is {self.memory}.")

    def run(self, loop: Loop | Steps | Refill, y0: PyTree, operands: Operands, times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        return _ad.run(loop, y0, operands, times, self.memory)


class Direct(AbstractAdjoint):
    """Plain loops that JAX differentiates itself.

    Forward mode and its compositions (`jax.jvp`, `jax.jacfwd`, `jax.hessian`) work for any solve.
    Reverse mode works with fixed steps to the end state, where the memory grows with their number;
    with error control or saved times JAX refuses it. Under `jax.vmap` the loop is JAX's own
    batched loop, slower than the lanes that `Checkpointed` runs over.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, dt=0.01, adjoint=sciml.Direct()).ys[-1]

        second = jax.hessian(end)(jnp.array(2.0))
        assert abs(float(second) - 0.1353353) < 1e-4
        ```
    """

    def run(self, loop: Loop | Steps | Refill, y0: PyTree, operands: Operands, times: bool) -> Result:
        """Runs a loop as it is."""
        del times
        y0, operands = promote((y0, operands))
        saves = None if operands.saves is None else Saves(operands.saves, False)
        loop = loop.over(Member(), 1, 0)  # it records nothing
        return loop.forward(y0, operands._replace(saves=None), saves)
