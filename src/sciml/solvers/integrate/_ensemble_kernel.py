"""An integration over lanes in one kernel: `kernels.ensemble` runs it, the same functions of one member that XLA runs.

So the steps are the same, and nothing of a method, of its controller or of an interpolation is written twice. The
kernel computes solutions, and the columns that `Forward` carries along with them. Any other derivative is computed as
without it, from the loop that XLA runs over lanes.
"""

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._jax._vma import promote
from ...kernels._backends import XLA, KernelRequest, log_once
from ...kernels._lanes import Lanes, is_value
from ...kernels._lanes._values import stack
from ...kernels.ensemble._columns import with_columns
from ...kernels.ensemble._member import Counted, Members, UntilDone
from ...kernels.ensemble._run import build, run
from ...kernels.ensemble._select import HOLDS, choose, wanted
from ._integrator import Integrator, Operands, State, known


def backend_of(request: KernelRequest, stepper: Any, adjoint: Any, batching: str) -> KernelRequest:
    """Returns the request of a solve: `XLA` if a kernel is neither requested nor to be used.

    Args:
        request: The arguments of `solve`.
        stepper: The method, or None where diffrax runs the solve.
        adjoint: How derivatives are computed.
        batching: How members share a loop.

    Raises:
        ValueError: If a kernel was requested that cannot run such a solve.
    """
    if not wanted(request):
        return XLA
    refused = None
    if stepper is None:
        refused = "diffrax runs this solve because of its `solver`, `stepsize_controller` or `saveat`"
    elif not stepper.traits.elementwise:
        refused = f"{type(stepper).__name__} transforms whole fields"
    elif batching != "lockstep":
        refused = f"`batching={batching!r}` runs by XLA"
    elif not adjoint.runs_in_kernel:
        refused = f"`adjoint={type(adjoint).__name__}()` runs by XLA"
    if refused is None:
        return request
    if request.impl == "auto":
        return XLA
    raise ValueError(f"`{request}` cannot run this ensemble: {refused}. {HOLDS}")


def run_by_kernel(
    impl: KernelRequest,
    lanes: Any,
    member: Callable[[], UntilDone | Counted],
    by_xla: Callable[[PyTree, Operands, Any], Any],
    y0: PyTree,
    operands: Operands,
    saves: Any,
) -> Any:
    """Runs every member to the end, by a kernel or by XLA.

    Args:
        impl: The requested backend, see `kernels.select`.
        lanes: The engine; a single member has no kernel.
        member: Returns the loop of one member, whose result has the result's own form, less `executed`.
        by_xla: The same loop over lanes.
        y0: The initial state, lane values.
        operands: Lane values.
        saves: The saved times, or None.
    """
    if impl == XLA:
        return by_xla(y0, operands, saves)
    if lanes.count is None:  # whose type must be that of many members' results, all of which a kernel makes
        return promote(by_xla(y0, operands, saves))
    members, loop = _members(lanes, y0, operands, saves), member()
    inputs, flags, times = members.inputs, members.batched, members.targets
    chosen = choose(lambda kernel: build(loop, members, kernel), impl)
    if chosen.body is None:
        return promote(by_xla(y0, operands, saves))

    # a kernel has no derivative: JAX differentiates the same loop by XLA
    @jax.custom_jvp
    def solved(inputs, times):
        given = members._replace(inputs=inputs, targets=times)
        result, saved, iterations = run(chosen.body, given, chosen.interpreted)
        return _finished(loop, result, saved, iterations)

    def reference(inputs, times):
        values = Lanes(lanes.count).enter(inputs, flags)
        return by_xla(*values, None if saves is None else saves._replace(times=times))

    solved.defjvp(lambda primals, tangents: jax.jvp(reference, primals, tangents))
    return solved(inputs, times)


def columns_by_kernel(
    impl: KernelRequest,
    lanes: Any,
    loop: UntilDone | Counted,
    perturbed: tuple[bool, ...],
    y0: PyTree,
    operands: Operands,
    saves: Any,
) -> Callable[[PyTree, Operands, Any], tuple[Any, PyTree]] | None:
    """Returns how one kernel runs every member with its derivatives, or None where it does not.

    Args:
        impl: The requested backend, see `kernels.select`.
        lanes: The engine.
        loop: The loop of one member.
        perturbed: The leaves of `(y0, operands)` that are differentiated, by each of their numbers.
        y0: The initial state, lane values.
        operands: Lane values.
        saves: The saved times, or None.

    Returns:
        A function of initial state, operands and saves, lane values like these, that returns the result and the
        derivatives of its `ys`, columns first.
    """
    if impl == XLA or lanes.count is None:
        return None
    members = _members(lanes, y0, operands, saves)
    one, _ = members.of_one()

    moving = _of_steps if isinstance(loop, Counted) else moving_part
    both = with_columns(loop, one, perturbed, moving, lambda result: result.ys)
    try:
        chosen = choose(lambda kernel: build(both, members, kernel), impl)
    except ValueError as error:  # the solution has its kernel all the same
        log_once("a derivative of an ensemble", str(error), logging.INFO)
        return None
    if chosen.body is None:
        return None

    def solved(y0: PyTree, operands: Operands, saves: Any) -> tuple[Any, PyTree]:
        given = _members(lanes, y0, operands, saves)
        (result, columns), saved, iterations = run(chosen.body, given, chosen.interpreted)
        if saves is not None:
            saved, columns = saved[0], jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), saved[1])
        return _finished(loop, result, saved, iterations), columns

    return solved


def moving_part(state: State) -> PyTree:
    """The parts of an integration that depend on the differentiated values; step sizes are constant."""
    dense = None if state.dense is None else (state.dense.y0, state.dense.stages)
    return state.checkpoint.y, state.memory, dense


def _of_steps(carry: Any) -> PyTree:
    return carry.y, carry.memory


def _members(lanes: Any, y0: PyTree, operands: Operands, saves: Any) -> Members:
    """The inputs of members, as arrays with members last."""
    whole = jax.tree.map(lambda v: stack(v, lanes.count), (y0, operands), is_leaf=is_value)
    flags = tuple(w.batched for w in jax.tree.leaves(whole, is_leaf=_is_whole))
    inputs = promote(jax.tree.map(lambda w: w.array, whole, is_leaf=_is_whole))
    times, batched = (None, False) if saves is None else (promote((saves.times, inputs))[0], saves.batched)
    return Members(inputs, flags, lanes.count, times, batched)


def _finished(loop: UntilDone | Counted, result: Any, saved: PyTree, iterations: Any) -> Any:
    if isinstance(loop, Counted):  # whose iterations do not count a shorter last step
        iterations = result.accepted
    return result._replace(ys=result.ys if saved is None else saved, executed=iterations)


def _is_whole(x: Any) -> bool:
    return hasattr(x, "batched")


def until_done(integrator: Integrator, result: Callable[..., Any], saving: bool) -> UntilDone:
    """Returns the loop of an integration whose number of steps is not known.

    Args:
        integrator: The integration.
        result: The source of results: states, status, time elapsed, counts of accepted and rejected steps, None.
        saving: Whether states are saved at given times.
    """

    def end(state, inputs):
        checkpoint = state.checkpoint
        y = None if saving else known(checkpoint.y, (checkpoint.status == 0) & (checkpoint.elapsed >= inputs[1].span))
        status = checkpoint.status.astype(jnp.int32)
        return result(y, status, checkpoint.elapsed, state.accepted, state.rejected, None)

    def saved(state, inputs, target):
        return known(
            integrator.saved(state.checkpoint.y, state.dense, inputs[1], target), target <= state.checkpoint.elapsed
        )

    return UntilDone(
        start=lambda inputs: integrator.start(*inputs),
        end=lambda inputs: inputs[1].span,
        pending=integrator.pending,
        advance=lambda state, inputs, target: integrator.attempt(state, inputs[1], target)[0],
        saved=saved,
        result=end,
    )
