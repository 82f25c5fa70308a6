"""`Backsolve`, `Interpolating` and `Gauss`: adjoints that integrate the adjoint equation backwards."""

import math
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import PyTree

from ...._checks import check_count
from ...integrate._abstract import AbstractLoop
from ...integrate._integrator import Operands
from ...integrate._result import Result
from .._abstract import AbstractAdjoint
from . import _rule
from ._backward import Variant


class AbstractContinuousAdjoint(AbstractAdjoint):
    """An adjoint that integrates the adjoint equation backwards by the method of the solve.

    Attributes:
        variant: The quantity integrated together with the cotangent of the state.
        rtol: The relative tolerance of the backward pass; None for the tolerance of the solve.
        atol: The absolute tolerance, likewise.
        memory: About how many bytes a record of all members may take.
    """

    jumps_at_events: ClassVar[bool] = True

    variant: eqx.AbstractClassVar[Variant]
    rtol: eqx.AbstractVar[float | None]
    atol: eqx.AbstractVar[float | None]
    memory: eqx.AbstractVar[int]

    def __check_init__(self):
        name = type(self).__name__
        _check_tolerance(self.rtol, f"{name}(rtol=...)")
        _check_tolerance(self.atol, f"{name}(atol=...)")
        check_count(self.memory, "memory", name)

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        options = (self.variant, self.rtol, self.atol, self.memory, f"sciml.adjoints.{type(self).__name__}")
        return _rule.run(loop, y0, operands, differentiate_times, *options)


class Backsolve(AbstractContinuousAdjoint):
    r"""A continuous adjoint that integrates the state, its cotangent and the parameters' cotangents backwards.

    $$\frac{d}{dt} \big(y, \lambda, \mu\big) = \big(f, -f_y^T \lambda, -f_p^T \lambda\big)$$

    from the end to the start. Nothing is recorded: memory does not grow with the number of steps. The
    price is that the state is integrated against the direction in which it is stable. A stiff or
    strongly damped system forgets its past, and backwards that is blow-up: the gradient is then NaN, as it is
    wherever the state on its backward pass has lost half of the digits that the tolerances ask for. At
    saved times it is set to the saved state. `Gauss` has none of these difficulties.

    The gradient is the gradient of the differential equation, accurate to the tolerances, and not of the numbers that
    `solve` returned. All that is integrated counts in the control of the error: with many parameters these determine
    the steps. An implicit method factorises matrices of the size of the state twice plus the parameters. Mass matrices
    are refused, and so is forward mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default the tolerance of the solve.
        atol: The absolute tolerance of the backward pass, relative to the largest cotangent of the saved states; by
            default the tolerance of the solve.

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

    variant: ClassVar[Variant] = Variant(state=True, parameters=True)
    memory: ClassVar[int] = 1  # nothing is recorded

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)


class Interpolating(AbstractContinuousAdjoint):
    r"""A continuous adjoint that reads the state from the solve's dense output in the backward pass.

    $$\frac{d}{dt} \big(\lambda, \mu\big) = \big(-f_y^T \lambda, -f_p^T \lambda\big)$$

    is integrated from the end to the start, where $y(t)$ stands in $f_y$ and $f_p$ as the method
    interpolates it between the steps it took forwards. So a stiff system, which `Backsolve` cannot
    follow, is stable on its backward pass. The error of every parameter's gradient is controlled, which
    costs steps, and an implicit method factorises matrices of the size of state plus parameters: with
    more than a few parameters take `Gauss`.

    The backward pass begins by integrating the solve once more and recording its steps in a table; a solve of more
    steps than the table has rows is recorded segment by segment, at the cost of about one more solve. The gradient is
    the gradient of the differential equation, accurate to the tolerances. Mass matrices are refused, and so is forward
    mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default the tolerance of the solve.
        atol: The absolute tolerance of the backward pass, relative to the largest cotangent of the saved states; by
            default the tolerance of the solve.
        memory: About how many bytes the table may take for all members of a `vmap`; it has at least 16 rows. For small
            states at most 16 MiB are used.

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

    variant: ClassVar[Variant] = Variant(state=False, parameters=True)

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    memory: int = eqx.field(static=True, default=2**28)


class Gauss(AbstractContinuousAdjoint):
    r"""A continuous adjoint for stiff systems with many parameters.

    Only the cotangent of the state is integrated backwards, and the parameters' gradient is an
    integral over the same interval,

    $$\frac{d\lambda}{dt} = -f_y^T \lambda, \qquad
      \frac{dL}{dp} = \int_{t_0}^{t_1} \lambda^T f_p \, dt,$$

    taken by Gauss-Legendre quadrature over each step backwards, with $y$ and $\lambda$ from the dense output of the two
    solves. An implicit method factorises matrices of the size of the state only: for $n$ components and $p$ parameters,
    a step costs $O(n^3 + p)$, compared with $O((n + p)^3)$ for `Backsolve` and `Interpolating`. This is also what other
    libraries call a quadrature adjoint; there the backward pass is stored and integrated afterwards, here its nodes are
    summed as they come.

    Every saved time that the loss depends on makes $\lambda$ jump, and in a stiff system each jump is followed
    by a transient of small steps: with many saved times `Checkpointed` costs less.

    The error of $\lambda$ is controlled, but not the error of the integral, which has the order of the method. The
    record of the solve is the same as for `Interpolating`. The gradient is the gradient of the differential equation,
    accurate to the tolerances; `Checkpointed` differentiates the computed solution. Mass matrices are refused, and so
    is forward mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default the tolerance of the solve.
        atol: The absolute tolerance of the backward pass, relative to the largest cotangent of the saved states; by
            default the tolerance of the solve.
        memory: About how many bytes the table may take for all members of a `vmap`; it has at least 16 rows. For small
            states at most 16 MiB are used.

    Raises:
        ValueError: If a tolerance or `memory` is not positive.
        TypeError: If `memory` is not an integer.

    Source:
        The name and the method come from SciMLSensitivity.jl's `GaussAdjoint`.

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

    variant: ClassVar[Variant] = Variant(state=False, parameters=False)

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    memory: int = eqx.field(static=True, default=2**28)


def _check_tolerance(value: Any, name: str) -> None:
    """Raises a `ValueError` unless a tolerance is None or a positive number known when traced."""
    if value is None:
        return
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not math.isfinite(value) or value <= 0:
        raise ValueError(f"`{name}` must be a positive Python number, or None to use the solve's, but is {value!r}.")
