"""The decisions of `simulate` before the first segment: times, method, sizes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import check_saved_times, check_time, concrete, known_times
from .._choices import choices
from ..kernels._backends import KernelRequest
from ..solvers._plan import Plan, Times, make_plan, no_error
from ..solvers._request import Interval, Request
from ..solvers.control._pid import Tolerances
from ._delays import copies_of_state
from .segments._abstract import AbstractSegment, Carry
from .segments._in_axes import Inputs
from .segments._solve_segment import SolveSegment, from_any
from .segments._stencil_blocks import size_of
from .segments._stops import Stops

_NO_LIMIT = 2**31 - 1  # counters are 32-bit integers


def check_concrete(arrays: PyTree, *, where: str = "simulate", **times: Any) -> None:
    """Checks that nothing is traced.

    Raises:
        TypeError: If something is.
    """
    if not all(map(concrete, jax.tree.leaves((arrays, times)))):
        raise TypeError(
            f"`{where}` must be called from Python, not inside `jax.jit`, `jax.grad`, `jax.vmap` or another "
            "transformation." + (" Use `solve` there." if where == "simulate" else "")
        )


def plan_of(y0: PyTree, request: Request, interval: Interval) -> tuple[Plan, Times, Tolerances | None]:
    """Returns how to run an integration with the arguments of `solve`, in sciml's own loop whatever the solver.

    Raises:
        ValueError: If an argument is out of range, or a solver or controller cannot run in segments.
        TypeError: If an argument has the wrong type.
    """
    request = request._replace(max_steps=_NO_LIMIT if request.max_steps is None else request.max_steps)
    plan, times, tolerances = make_plan(y0, request, interval)
    if plan.stepper is not None:
        return plan, times, tolerances
    controller = request.stepsize_controller
    if controller is not None and type(controller) not in (diffrax.PIDController, diffrax.ConstantStepSize):
        raise ValueError(
            f"`stepsize_controller={type(controller).__name__}(...)` cannot run in segments. Use `rtol` and `atol`, a "
            "`diffrax.PIDController`, or `dt`."
        )
    # any explicit method will do to read the rest
    plan, times, tolerances = make_plan(y0, request._replace(solver=diffrax.Tsit5()), interval)
    stepper = from_any(request.solver, tolerances)
    if plan.control is not None and not stepper.has_error:
        raise ValueError(no_error(request, stepper))
    return dataclasses.replace(plan, stepper=stepper), times, tolerances


def check_admissible(plan: Plan, y0: PyTree, one: PyTree, members: int | None) -> None:
    """Checks that a run starts where it may be.

    Raises:
        ValueError: If an element that must not be negative is, or a single state is not within `domain`.
    """
    admissible = plan.admissible
    if admissible is None:
        return
    if bool(admissible.below(jax.tree.map(jnp.asarray, y0))):
        raise ValueError(
            "`y0` has negative elements, which `positive` does not allow. Start at zero or above, or exclude them: "
            "`positive` accepts a PyTree of booleans like `y0`."
        )
    if members is None and not bool(admissible.holds(one)):
        raise ValueError("`domain(y0)` is False, but the initial state must satisfy `domain` like all later states.")


def saved_times(
    times: Times, t0: Any, t1: Any, save_every: Any, saveat: Any
) -> tuple[Times, np.ndarray | None, np.ndarray]:
    """Returns the times with the saved ones, these as elapsed times or None where there are none, and as float64.

    Raises:
        ValueError: If they are out of range, or there are too many.
        TypeError: If they are not times.
    """
    if save_every is not None and saveat is not None:
        raise ValueError("Pass the times of the frames either as `save_every` or as `saveat`, not both.")
    if isinstance(saveat, diffrax.SaveAt):
        raise TypeError("`saveat` must be an array of times. Use `output` to select the parts of the state to save.")
    dtype = times.t0.dtype
    start, end = float(t0), float(t1)
    sign = 1.0 if end > start else -1.0
    span = np.asarray(abs(times.span))
    if save_every is not None:
        check_time(save_every, "save_every", dtype)
        every = float(save_every)
        if not every > 0:
            raise ValueError(f"`save_every` must be positive, even backwards in time, but is {save_every}.")
        count = math.floor(abs(end - start) / every * (1 + 1e-12)) + 1
        if count > 2**31 - 2**16:
            raise ValueError(f"`save_every`={every} would save {count} frames, more than a run supports.")
        passed = np.minimum(np.arange(count) * every, abs(end - start))
        ts = start + sign * passed
        elapsed = np.minimum(passed.astype(dtype), span)
        saves = jnp.asarray(ts, dtype)
    elif saveat is not None:
        saves = check_saved_times(saveat, t0, t1, dtype)
        ts = known_times(saveat)
        elapsed = np.clip((sign * (ts - start)).astype(dtype), 0, span)
    else:
        return times, None, np.zeros(0)
    return times._replace(saves=saves, elapsed=jnp.asarray(sign * elapsed, dtype)), elapsed, ts


def segment_of(
    y0: PyTree,
    times: Times,
    elapsed: np.ndarray | None,
    tolerances: Tolerances | None,
    plan: Plan,
    output: Callable | None,
    stops: Stops,
    members: int | None,
    steps: int | None,
    impl: KernelRequest | None = None,
) -> SolveSegment:
    """Returns the segment; its size depends on the size of the states, so that a resumed run has the same one."""
    saves = 0 if elapsed is None else len(elapsed)
    own = sum(x.nbytes for x in jax.tree.leaves(y0)) * copies_of_state(plan)
    slots, most = sizes_of(own * (members or 1), saves)
    steps = most if steps is None else steps
    span = abs(times.span)
    block = 0 if impl is None else size_of(elapsed, float(span), abs(float(times.dt)), steps)
    targets = jnp.concatenate([jnp.asarray([] if elapsed is None else elapsed, span.dtype), jnp.full(slots, span)])
    return SolveSegment(
        times=times,
        elapsed=targets,
        tolerances=tolerances,
        plan=plan,
        output=output,
        stops=stops,
        saves=saves,
        slots=slots,
        segment_steps=steps,
        block=block,
        impl=impl if block > 1 else None,
    )


def sizes_of(state_bytes: int, saves: int) -> tuple[int, int]:
    """Returns how many saved times and how many steps a segment has at most, by the size of the state."""
    size, table = max(1, state_bytes), choices().runs
    times = max(1, min(table.frames_at_most, table.frames // size, saves + 1)) if saves else 1
    return times, max(table.steps_at_least, min(table.steps_at_most, 4 * table.frames // size))


def frame_of(segment: AbstractSegment, inputs: Inputs, carry: Carry) -> PyTree | None:
    """Returns shapes and dtypes of a frame, without times and with members first; None where none is saved."""
    _, frames, _ = eqx.filter_eval_shape(segment.advance, inputs, carry)
    lead = 1 if inputs.members is None else 2
    members = () if inputs.members is None else (inputs.members,)
    if not segment.saves:
        return None
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(members + x.shape[lead:], x.dtype), frames.values)


def frames_per_block(frame: PyTree | None) -> int:
    """Returns the number of frames in a block."""
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(frame))
    return max(1, min(choices().runs.frames_at_most, choices().runs.frames // max(1, size)))
