"""`Interpolating`: the solution is read from its dense output."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import PyTree

from ...._checks import check_count
from ...integrate._abstract import AbstractLoop
from ...integrate._integrator import Operands
from ...integrate._result import Result
from .._abstract import AbstractAdjoint
from . import _rule
from ._backward import Variant
from ._tolerance import check_tolerance


class Interpolating(AbstractAdjoint):
    r"""A continuous adjoint that reads the state from the solve's dense output in the backward pass.

    $$\frac{d}{dt} \big(\lambda, \mu\big) = \big(-f_y^T \lambda, -f_p^T \lambda\big)$$

    is integrated from the end to the start, where $y(t)$ stands in $f_y$ and $f_p$ as the method
    interpolates it between the steps it took forwards. So a stiff system, which `Backsolve` cannot
    follow, is stable on its backward pass. The error of every parameter's gradient is controlled, which
    costs steps, and an implicit method factorises matrices of the size of state plus parameters: with
    more than a few parameters take `Gauss`.

    The backward pass begins by integrating the solve once more and recording its steps in a table; a solve
    of more steps than the table has rows is recorded segment by segment, at the cost of about one more
    solve. The gradient is that of the differential equation, right to the tolerances. Mass matrices are
    refused, and so is forward mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default that of the solve.
        atol: The absolute tolerance of the backward pass, where cotangents are divided by the largest one
            of the saved states; by default that of the solve.
        memory: About how many bytes the table may take for all members of a `vmap`; it has at least 16 rows.
            Where states are small no more than 16 MiB are used.

    Raises:
        ValueError: If a tolerance or `memory` is not positive.
        TypeError: If `memory` is not an integer.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=sciml.adjoints.Interpolating()).ys[-1]

        assert abs(float(jax.grad(end)(jnp.array(2.0))) + 0.1353353) < 1e-3
        ```
    """

    jumps_at_events: ClassVar[bool] = True

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    memory: int = eqx.field(static=True, default=2**28)

    def __check_init__(self):
        check_tolerance(self.rtol, "Interpolating(rtol=...)")
        check_tolerance(self.atol, "Interpolating(atol=...)")
        check_count(self.memory, "memory", "Interpolating")

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        variant = Variant(state=False, parameters=True)
        options = (self.rtol, self.atol, self.memory, "sciml.adjoints.Interpolating")
        return _rule.run(loop, y0, operands, differentiate_times, variant, *options)
