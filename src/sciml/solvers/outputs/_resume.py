"""`Resume`: the start of a solve that continues an earlier one, as if there had been no end."""

import dataclasses
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._checks import no_instance
from ..._status import Status
from .._plan import Plan, Times
from ..adjoints._abstract import REPEATING, AbstractAdjoint, check_supports
from ..integrate._integrator import Restart
from ..methods.stochastic._abstract import AbstractStochasticStepper
from ..noise._brownian import BrownianPath


class Resume(eqx.Module):
    """The start of `sciml.solve(..., resume=...)`: the later steps are the same as in one solve to the later end.

    `Solution.resume` is one where `saveat` was a `diffrax.SaveAt(solver_state=True)`; under `jax.vmap` it has members,
    as arrays have. It contains the state before the step that the end has cut short, with the size of the next step,
    the memory of controller and method, the data of events, and the elapsed time since `t0`. The state has the
    derivatives that it has within one solve, and all else has none, as there.

    Attributes:
        kept: All of that.
        t0: When the first solve began.
        solver: The name of its method.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml

        model, y0 = sciml.models.LotkaVolterra(), jnp.array([34.0, 5.9])
        first = sciml.solve(model, y0, t0=0.0, t1=8.0, saveat=diffrax.SaveAt(ts=[4.0, 8.0], solver_state=True))
        second = sciml.solve(model, y0, t0=0.0, t1=20.0, resume=first.resume)
        whole = sciml.solve(model, y0, t0=0.0, t1=20.0)
        assert jnp.all(second.ys == whole.ys)
        ```
    """

    kept: Restart
    t0: Array
    solver: str = eqx.field(static=True)


class Continuation(NamedTuple):
    """The arguments of a call about resuming.

    Attributes:
        hands_out: Whether the solution is to have a `Resume`.
        resume: The state to resume from, or None.
    """

    hands_out: bool
    resume: Resume | None

    def __bool__(self) -> bool:
        return self.hands_out or self.resume is not None


def read_continuation(saveat: Any, resume: Any) -> tuple[Any, Continuation]:
    """Returns what to save in addition to the resumable state, and whether that state is requested or given.

    Raises:
        TypeError: If the given object is not a `Resume`.
        ValueError: If states are to be saved in a way that takes two solves.
    """
    if resume is not None and not isinstance(resume, Resume):
        raise TypeError(
            "`resume` must be the `Solution.resume` of an earlier solve with "
            f"`saveat=diffrax.SaveAt(solver_state=True)`, but {no_instance(resume)}."
        )
    hands_out = isinstance(saveat, diffrax.SaveAt) and bool(
        saveat.solver_state or saveat.controller_state or saveat.made_jump
    )
    if hands_out:
        nothing = not jax.tree.leaves(saveat.subs, is_leaf=lambda x: isinstance(x, diffrax.SubSaveAt))
        saveat = diffrax.SaveAt(subs=diffrax.SubSaveAt(t1=True) if nothing else saveat.subs, dense=saveat.dense)
    return saveat, Continuation(hands_out, resume)


def check_alone() -> None:
    """Refuses to save more than states at given times in addition to the resumable state.

    Raises:
        ValueError: Always.
    """
    raise ValueError(
        "With `solver_state=True` or `resume`, a `diffrax.SaveAt` supports only times (`t0`, `t1`, `ts`). Use a "
        "second solve for `steps`, `fn`, `subs` and `dense`."
    )


def check_resumes(adjoint: AbstractAdjoint) -> None:
    """Checks that an adjoint differentiates the actual steps, which a later solve continues.

    Raises:
        ValueError: If it does not.
    """
    check_supports(adjoint, "repeats_steps", "`resume` or `diffrax.SaveAt(solver_state=True)`", REPEATING)


def plan_continuation(
    plan: Plan, continuation: Continuation, key: Any, fixed_steps: bool, adjoint: AbstractAdjoint
) -> Plan:
    """Returns the plan of a solve that continues another one, or is continued: its loop finds the end.

    Raises:
        ValueError: If method, adjoint or noise cannot.
    """
    if not continuation:
        return plan
    stepper = plan.stepper
    if stepper is None:
        raise ValueError(
            "`resume` and `diffrax.SaveAt(solver_state=True)` require sciml's own loops, but diffrax runs this solve "
            "because of its `solver`, `stepsize_controller` or `saveat`."
        )
    check_resumes(adjoint)
    if isinstance(stepper, AbstractStochasticStepper) and not fixed_steps and not isinstance(key, BrownianPath):
        raise ValueError(
            "With adaptive steps, the noise of a random key only covers the interval of one solve. To resume, pass a "
            "`sciml.BrownianPath` over the whole interval as `key`."
        )
    return dataclasses.replace(plan, steps=None, count=None, tail=False, equal=plan.equal and not plan.tail)


def resumed(resume: Resume, like: Restart, times: Times, solver: str) -> Restart:
    """Returns the start of a resumed solve.

    Args:
        resume: From an earlier solve.
        like: The start of the solve, for its structure.
        times: Its times.
        solver: The name of its method.

    Raises:
        ValueError: If that was another solve.
    """
    kinds = [
        (jax.tree.structure(tree), [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]) for tree in (resume.kept, like)
    ]
    if kinds[0] != kinds[1] or resume.solver != solver:
        raise ValueError(
            f"`resume` comes from a different solve (by {resume.solver}). Method, controller, state, events and "
            f"`saveat` must match this solve (by {solver})."
        )
    checkpoint = resume.kept.checkpoint
    assert checkpoint is not None  # see `Resume`
    spent = (checkpoint.status == int(Status.max_steps_reached)) | (checkpoint.status == int(Status.stiff))
    status = jnp.where(spent, 0, checkpoint.status)
    # time, step size and memory are constant to derivatives, as within one solve
    kept = jax.lax.stop_gradient(resume.kept)
    checkpoint = kept.checkpoint._replace(y=checkpoint.y, status=status.astype(checkpoint.status.dtype))
    return kept._replace(checkpoint=checkpoint)


def behind(resume: Resume, times: Times, span: Array) -> Array:
    """Returns whether a solve cannot be resumed: it has another start, or ends before the state to resume from."""
    return (resume.t0 != times.t0) | (span < resume.kept.checkpoint.elapsed)


def handed_out(kept: PyTree, t0: Array, solver: str) -> Resume | None:
    """Returns the resumable state; None if it was not requested."""
    if kept is None:
        return None
    elapsed = kept.checkpoint.elapsed
    return Resume(kept, t0 + (elapsed - elapsed), solver)  # of each member, on its device
