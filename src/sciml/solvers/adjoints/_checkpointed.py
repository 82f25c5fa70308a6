"""`Checkpointed`: reverse mode by running the accepted steps again."""

import equinox as eqx
from jaxtyping import PyTree

from .._loop import Loop, Result
from .._march import Operands
from .._refill import Refill
from .._scan import Steps
from . import _replay
from ._abstract import AbstractAdjoint


class Checkpointed(AbstractAdjoint):
    """Reverse mode by running the accepted steps again from last to first; the default.

    The gradient is exact for what was computed, the step sizes held. Steps are recorded in a fixed
    number of slots; a loop with more steps than slots keeps evenly spread ones and computes those
    between again, at the cost of one more solve. Under `jax.vmap` forward and backward loop run over
    lanes. Forward mode alone (`jax.jvp`, `jax.jacfwd`) needs `Direct` or `Forward`; forward mode of a
    gradient, as in `jax.hessian`, goes through.

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
        return _replay.run(loop, y0, operands, times, self.memory)
