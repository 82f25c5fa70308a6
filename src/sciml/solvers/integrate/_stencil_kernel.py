"""Fixed steps on a model that is a stencil, by a kernel that takes several for each pass over memory.

A model is a stencil if it has a method `stencil(y)`; see `sciml.kernels.stencil.StencilRates`. `_stencil_stages`
combines that and a method to the update of a step, and `kernels.select` says whether a kernel runs it here. The loops
then take whole runs of steps by the kernel, and all else as before: the last shorter step, the steps that a gradient
runs again and transposes, and those that a derivative in forward mode goes through.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from ..._jax._platform import default_platform
from ..._types import Args, Y
from ...kernels._backends import KERNEL_OF, XLA, KernelRequest, log_once
from ...kernels.stencil import NotForKernelsError, StencilRates, StencilUpdate
from ...kernels.stencil._rates import rates_of
from ...kernels.stencil._run import evolve_by
from ...kernels.stencil._select import choose
from ..methods._stepper import AbstractStepper
from ..methods.mechanical._verlet import Verlet
from ..terms._field import parameters_of
from ._stencil_stages import OTHER_METHOD, update_of


class StencilSteps(NamedTuple):
    """How a kernel takes steps of full length; it contains no arrays.

    Attributes:
        stepper: The method.
        parameters: How many of the vector field's operands are the model's parameters.
        rebuild: Returns model and args from these.
        impl: The backend given to `evolve`.
    """

    stepper: AbstractStepper
    parameters: int
    rebuild: Callable[[list[Array]], tuple[Any, Args]]
    impl: KernelRequest

    def advance(self, field: Any, operands: list[Array], t: Array, h: Array, y: Y, steps: int) -> Y:
        """Returns the state after a number of steps of the signed length `h`.

        Args:
            field: The bound vector field.
            operands: The vector field's operands.
            t: The time.
            h: The length of a step.
            y: The state.
            steps: The number of steps.
        """
        model, _ = self.rebuild(operands[: self.parameters])
        rates, update, rest = step_of(self.stepper, model, y, h)
        # the update is a whole kick and a drift, see `_stencil_stages`: half a kick too much before, too little after
        y = self._half_a_kick(field, t, -h, y)
        fields = evolve_by(self.impl, update, rates.fields_of(y), steps, **rest)
        return self._half_a_kick(field, t, h, rates.state_of(fields, y))

    def _half_a_kick(self, field: Any, t: Array, h: Array, y: Y) -> Y:
        if not isinstance(self.stepper, Verlet):
            return y
        q, v = y
        part = self.stepper.fractions[-1] / 2 * h
        return q, jax.tree.map(lambda v, a: v + part.astype(v.dtype) * a, v, field["acceleration"](t, q))


def backend_of(model: Any, request: KernelRequest) -> KernelRequest | None:
    """Returns the request of a model; None if no kernel is requested or it is not a stencil."""
    if not callable(getattr(model, "stencil", None)) or request == XLA:
        return None
    return None if request.impl == "auto" and default_platform() not in KERNEL_OF else request


def step_of(stepper: AbstractStepper, model: Any, y: Y, h: Array) -> tuple[StencilRates, StencilUpdate, dict[str, Any]]:
    """Returns the rates of a model, and one step of the signed length `h` as an update with its arguments.

    Raises:
        NotForKernelsError: If the model or the method has no such form.
    """
    rates = rates_of(model, y)
    return rates, update_of(stepper, rates), {"params": (h, rates.params), "coefficients": rates.coefficients}


def make_stencil_steps(
    stepper: AbstractStepper, model: Any, y0: Y, args: Args, h: Array, impl: KernelRequest
) -> StencilSteps | None:
    """Returns how a kernel runs the steps of a model, or None where XLA does.

    Raises:
        ValueError: If a kernel was requested that cannot run them.
    """
    try:
        rates, update, rest = step_of(stepper, model, y0, h)
    except NotForKernelsError as error:
        level = logging.INFO if str(error) == OTHER_METHOD else logging.WARNING  # that the user has chosen
        return decline(model, impl, str(error), level)
    if choose(impl, update, rates.fields_of(y0), **rest).kernel is None:
        return None  # and the reason is in the log
    parameters, rebuild = parameters_of(model, args)
    return StencilSteps(stepper, len(parameters), rebuild, impl)


def decline(model: Any, impl: KernelRequest | None, reason: str, level: int = logging.INFO) -> None:
    """Says why a model that is a stencil runs without a kernel, in one line of the log.

    Raises:
        ValueError: If a kernel was requested.
    """
    if impl is None:
        return
    name = type(model).__name__
    if impl.impl != "auto":
        raise ValueError(
            f"`{impl}` requests a kernel, but no kernel supports this run of `{name}`: {reason}. "
            "Kernels require a constant number of fixed steps of an explicit Runge-Kutta method, such as "
            "`solver=diffrax.Heun()`, or of `VelocityVerlet`, with `adjoint=Checkpointed()` or `Direct()`. Otherwise "
            "use XLA: `with sciml.kernels.use('xla'):`."
        )
    log_once("a stencil", f"{name}: {reason}", level)
