"""`Direct`: plain loops."""

from typing import ClassVar

import diffrax
from jaxtyping import PyTree

from ..._jax._ad_modes import not_transposed
from ..._jax._checkpoint_levels import NOTHING
from ..._jax._checkpointed_scan import bytes_of
from ..._jax._members_apart import members_apart
from ..._jax._vma import on_explicit_axes, promote
from ...kernels._lanes import Unbatched
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result, Saves
from ._abstract import AbstractAdjoint
from ._no_length import with_rates_by_times

_MESSAGE = (
    "`adjoint=Direct()` does not support reverse mode (`jax.grad`, `jax.jacrev`) with error control, traced times or "
    "saved times at which the loop stops, because JAX cannot differentiate a loop of unknown length in reverse. Use "
    "`adjoint=sciml.adjoints.Checkpointed()`, or forward mode (`jax.jacfwd`, `jax.jvp`)."
)


class Direct(AbstractAdjoint):
    """Plain loops that JAX differentiates itself.

    Forward mode and its compositions (`jax.jvp`, `jax.jacfwd`, `jax.hessian`) work for any solve. The step sizes are
    constant, as in every adjoint: derivatives do not include the controller. Reverse mode works with fixed steps of a
    method that interpolates, if all times are known when traced; its memory grows with the number of steps. It is not
    supported with error control or a traced time, nor if saved times stop the loop: for a method whose steps end at
    them, or for more than eight in one step. Under `jax.vmap` the loop is JAX's own batched loop, slower than the lanes
    of `Checkpointed`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, dt=0.01, adjoint=sciml.adjoints.Direct()).ys[-1]

        second = jax.hessian(end)(jnp.array(2.0))
        assert abs(float(second) - 0.1353353) < 1e-4
        ```
    """

    runs_on_split_state: ClassVar[bool] = True
    repeats_steps: ClassVar[bool] = True
    keeps_steps: ClassVar[bool] = True
    sees_closures: ClassVar[bool] = True

    def for_diffrax(self) -> diffrax.AbstractAdjoint:
        """Returns diffrax's own plain loops."""
        return diffrax.DirectAdjoint()

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop as it is."""
        del differentiate_times
        loop = loop.over(Unbatched(), bytes_of(y0), NOTHING)

        def plain(y0: PyTree, operands: Operands) -> Result:
            saves = None if operands.saves is None else Saves(operands.saves, False)
            return with_rates_by_times(loop, operands, loop.forward(y0, operands._replace(saves=None), saves))

        y0, operands = promote((y0, operands))
        # JAX does not batch its loops where members are sharded by their type
        apart = on_explicit_axes((y0, operands))
        result = members_apart(plain)(y0, operands) if apart else plain(y0, operands)
        return result if loop.transposable else not_transposed(result, _MESSAGE)
