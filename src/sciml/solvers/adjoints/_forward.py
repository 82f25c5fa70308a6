"""`Forward`: the derivatives by a few parameters, computed alongside the solution."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import PyTree

from ..._checks import check_count
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result
from . import _forward_sensitivities
from ._abstract import AbstractAdjoint
from ._no_length import with_rates_by_times


class Forward(AbstractAdjoint):
    r"""Sensitivities alongside the solve, for few parameters: forward and reverse mode through any loop.

    With $x$ all numbers by which the solution is differentiated, the columns of $S_n = \partial y_n /
    \partial x$ are carried along with the state, step by step, with constant step sizes,

    $$S_{n+1} = \frac{\partial \Phi_{h_n}}{\partial y} S_n + \frac{\partial \Phi_{h_n}}{\partial x},$$

    and a gradient is $S^T \bar y$. It costs as much as one solve and one more tangent for each
    number in $x$, whatever the number of steps, and agrees with `Checkpointed` to rounding. What is not
    differentiated is not carried. The memory is that of the columns at the saved times. Under
    `jax.vmap` the columns run over lanes with their members, within one pass over a step where that is short; and where
    `solve(impl=...)` takes a kernel they run in it, unless times are differentiated. Forward mode computes all columns,
    too: for one tangent in many parameters take `Direct`.

    Attributes:
        limit: The most columns; with more, an error says so when the solve is traced.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, rtol=1e-5, adjoint=sciml.adjoints.Forward()).ys[-1]

        rate = jnp.array(2.0)
        assert abs(float(jax.grad(end)(rate)) + 0.1353353) < 1e-3
        assert abs(float(jax.jacfwd(end)(rate)) + 0.1353353) < 1e-3
        assert abs(float(jax.hessian(end)(rate)) - 0.1353353) < 1e-3
        ```
    """

    runs_in_kernel: ClassVar[bool] = True
    repeats_steps: ClassVar[bool] = True
    limit: int = eqx.field(static=True, default=1000)

    def __check_init__(self):
        check_count(self.limit, "limit", "Forward")

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop, and with it the columns that are asked for."""
        result = _forward_sensitivities.run(loop, y0, operands, differentiate_times, self.limit)
        return result if operands.saves is not None else with_rates_by_times(loop, operands, result)
