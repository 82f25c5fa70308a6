"""`Gauss`: the cotangent of the state is integrated backwards, those of the parameters by quadrature."""

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


class Gauss(AbstractAdjoint):
    r"""A continuous adjoint for stiff systems with many parameters.

    Only the cotangent of the state is integrated backwards, and the parameters' gradient is an
    integral over the same interval,

    $$\frac{d\lambda}{dt} = -f_y^T \lambda, \qquad
      \frac{dL}{dp} = \int_{t_0}^{t_1} \lambda^T f_p \, dt,$$

    taken by Gauss-Legendre quadrature over each step backwards, with $y$ and $\lambda$ from the dense
    output of the two solves. An implicit method factorises matrices of the size of the state
    alone: of $n$ components and $p$ parameters, a step costs $O(n^3 + p)$, where `Backsolve` and `Interpolating`
    take $O((n + p)^3)$. This is also what other libraries call a quadrature adjoint; there the backward pass is
    stored and integrated afterwards, here its nodes are summed as they come.

    Every saved time that the loss depends on makes $\lambda$ jump, and in a stiff system each jump is followed
    by a transient of small steps: with many saved times `Checkpointed` costs less.

    The error of $\lambda$ is controlled and that of the integral is not: it has the order of the
    method. The record of the solve is that of `Interpolating`. The gradient is that of the differential
    equation, right to the tolerances; `Checkpointed` differentiates what was computed. Mass
    matrices are refused, and so is forward mode.

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

    Source:
        The name and the method are those of SciMLSensitivity.jl's `GaussAdjoint`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=sciml.adjoints.Gauss()).ys[-1]

        assert abs(float(jax.grad(end)(jnp.array(2.0))) + 0.1353353) < 1e-3
        ```
    """

    jumps_at_events: ClassVar[bool] = True

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    memory: int = eqx.field(static=True, default=2**28)

    def __check_init__(self):
        check_tolerance(self.rtol, "Gauss(rtol=...)")
        check_tolerance(self.atol, "Gauss(atol=...)")
        check_count(self.memory, "memory", "Gauss")

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        variant = Variant(state=False, parameters=False)
        options = (self.rtol, self.atol, self.memory, "sciml.adjoints.Gauss")
        return _rule.run(loop, y0, operands, differentiate_times, variant, *options)
