"""The arguments of `solve`, unchanged, and their interval of time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
from jaxtyping import Array, PyTree

from .._checks import check_step, check_time, concrete, time_dtype
from .._types import Args, BoolScalarLike, IntScalarLike, RealScalarLike, Y


class Request(NamedTuple):
    """All arguments of a call except the model and the state, with the names and in the order of `solve`.

    It is built once, by keyword, where a call comes in (`solve`, `simulate`); from there on it is passed along whole.
    Decisions made on the way replace the given arguments: the method, the size of fixed steps, the Courant number.

    Attributes:
        t0: The start time.
        t1: The end time.
        args: The third argument of the model.
        key: The random key, or the path, of a model with noise.
        dt: The size of fixed steps.
        dt0: The size of the first step under error control.
        cfl: The Courant number of steps that follow the fastest wave.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        solver: The method.
        stepsize_controller: A diffrax controller.
        norm: How large a scaled error is.
        positive: The elements of the state that must not be negative.
        domain: The admissible states.
        project: The conserved quantities.
        saveat: The saved times.
        resume: The state to resume from.
        events: The events.
        max_events: How many of the events are kept.
        adjoint: How derivatives are computed; None for the default.
        max_steps: The limit on attempted steps.
        batching: How the members of a `jax.vmap` share the loop.
        default_tolerances: The default `rtol` and `atol`; by default they follow from the dtype.
        stepper: The method that is taken for the solver, where that has been decided.
    """

    t0: RealScalarLike
    t1: RealScalarLike
    args: Args = None
    key: Any = None
    dt: RealScalarLike | None = None
    dt0: RealScalarLike | None = None
    cfl: RealScalarLike | None = None
    rtol: PyTree | None = None
    atol: PyTree | None = None
    solver: Any = None
    stepsize_controller: Any = None
    norm: Callable[[Y], Array] | None = None
    positive: PyTree | None = None
    domain: Callable[[Y], BoolScalarLike] | None = None
    project: Callable[[Y], PyTree] | None = None
    saveat: Any = None
    resume: Any = None
    events: Any = None
    max_events: IntScalarLike | None = None
    adjoint: Any = None
    max_steps: IntScalarLike | None = None
    batching: str = "lockstep"
    default_tolerances: tuple[float, float] | None = None
    stepper: Any = None

    @property
    def fixed_steps(self) -> bool:
        """Whether it selects fixed steps, by their size or by a controller."""
        if self.stepsize_controller is not None:
            return isinstance(self.stepsize_controller, diffrax.ConstantStepSize)
        return self.dt is not None

    @property
    def names_error_control(self) -> list[str]:
        """The names of the arguments that select adaptive steps."""
        found = {"rtol": self.rtol, "atol": self.atol, "dt0": self.dt0}
        if not isinstance(self.stepsize_controller, diffrax.ConstantStepSize):
            found["stepsize_controller"] = self.stepsize_controller
        return [name for name, x in found.items() if x is not None]

    def check_steps(self) -> None:
        """Checks that steps are either fixed or chosen by the error.

        Raises:
            ValueError: If they select both.
        """
        if self.dt is not None and self.dt0 is not None:
            raise ValueError(
                "Pass either `dt`, the size of fixed steps, or `dt0`, the size of the first step under error control, "
                "but not both."
            )
        others = self.names_error_control
        if self.dt is not None and others:
            raise ValueError(
                f"`dt` is the size of fixed steps, but `{others[0]}` selects adaptive steps. Pass the size of the "
                f"first step as `dt0`, or leave out `{others[0]}`."
            )
        if self.cfl is not None and self.fixed_steps:
            raise ValueError(
                "`cfl` selects steps that follow the fastest wave, but `dt` or `diffrax.ConstantStepSize()` selects "
                "fixed steps. Pass only one of them."
            )
        if self.dt0 is not None and isinstance(self.stepsize_controller, diffrax.ConstantStepSize):
            raise ValueError(
                "`dt0` is the size of the first step under error control; pass the size of fixed steps as `dt`."
            )


class Interval(NamedTuple):
    """The interval of time of a solve.

    Attributes:
        t0: The start, an array of the dtype of time.
        t1: The end.
        step: The fixed or the first step, with the sign of `t1 - t0`, or None.
        forwards: Whether `t1 > t0`; None where that is known only at run time, or both are the same.
    """

    t0: Array
    t1: Array
    step: Array | None
    forwards: bool | None

    @classmethod
    def of(cls, request: Request, y0: Y) -> "Interval":
        """Checks the times and the step of a request.

        Raises:
            ValueError: If one is out of range.
            TypeError: If one is not a real number.
        """
        dtype = time_dtype(y0)
        start, end = check_time(request.t0, "t0", dtype), check_time(request.t1, "t1", dtype)
        forwards = None
        if concrete(request.t0) and concrete(request.t1):
            first, last = float(request.t0), float(request.t1)
            forwards = None if first == last else last > first
        name, step = ("dt", request.dt) if request.dt0 is None else ("dt0", request.dt0)
        return cls(start, end, None if step is None else check_step(step, forwards, dtype, name), forwards)
