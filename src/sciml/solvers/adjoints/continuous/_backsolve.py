"""`Backsolve`: the solution is integrated backwards too."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import PyTree

from ...integrate._abstract import AbstractLoop
from ...integrate._integrator import Operands
from ...integrate._result import Result
from .._abstract import AbstractAdjoint
from . import _rule
from ._backward import Variant
from ._tolerance import check_tolerance


class Backsolve(AbstractAdjoint):
    r"""A continuous adjoint that integrates the state, its cotangent and the parameters' cotangents backwards.

    $$\frac{d}{dt} \big(y, \lambda, \mu\big) = \big(f, -f_y^T \lambda, -f_p^T \lambda\big)$$

    from the end to the start. Nothing is recorded: memory does not grow with the number of steps. The
    price is that the state is integrated against the direction in which it is stable. A stiff or
    strongly damped system forgets its past, and backwards that is blow-up: the gradient is then NaN, as it is
    wherever the state on its backward pass has lost half of the digits that the tolerances ask for. At
    saved times it is set to the saved state. `Gauss` has none of these difficulties.

    The gradient is that of the differential equation, right to the tolerances, and not that of the
    numbers that `solve` returned. All that is integrated counts in the control of the error: with many
    parameters these determine the steps. An implicit method factorises matrices of the size of the state
    twice plus the parameters. Mass matrices are refused, and so is forward mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default that of the solve.
        atol: The absolute tolerance of the backward pass, where cotangents are divided by the largest one
            of the saved states; by default that of the solve.

    Raises:
        ValueError: If a tolerance is not positive.

    Source:
        R. T. Q. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud, Neural Ordinary Differential
        Equations (2018), arXiv:1806.07366.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=sciml.adjoints.Backsolve()).ys[-1]

        assert abs(float(jax.grad(end)(jnp.array(2.0))) + 0.1353353) < 1e-3
        ```
    """

    jumps_at_events: ClassVar[bool] = True

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_tolerance(self.rtol, "Backsolve(rtol=...)")
        check_tolerance(self.atol, "Backsolve(atol=...)")

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        variant = Variant(state=True, parameters=True)
        return _rule.run(
            loop, y0, operands, differentiate_times, variant, self.rtol, self.atol, 1, "sciml.adjoints.Backsolve"
        )
