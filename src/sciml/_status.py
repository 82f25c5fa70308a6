"""Status codes and every run-time message, in one table.

Traced code cannot raise. It returns a code per member instead, and the host raises after the call.
"""

import enum
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Int, Real

from ._checks import concrete


class Status(enum.IntEnum):
    """How a computation ended, one code per member of a batch.

    Example:
        ```python
        import sciml

        assert sciml.Status(1) is sciml.Status.max_steps_reached
        assert "max_steps" in sciml.Status.max_steps_reached.message
        ```
    """

    successful = 0
    max_steps_reached = 1
    nonfinite = 2
    step_too_small = 3
    diverged = 4
    inconsistent_start = 5
    singular = 6
    invalid_argument = 7
    stagnated = 8
    outside_domain = 9
    event = 10
    crowded_events = 11
    negative_propensity = 12
    history_too_short = 13
    mesh_too_coarse = 14
    stiff = 15
    beyond_horizon = 16
    pending_events = 17

    @property
    def message(self) -> str:
        """The cause in one sentence, and the remedy."""
        return _MESSAGES[self]


_ROOT = (
    " A root such as `sqrt(y)` has no slope at zero and no value below; where a state comes to rest there, write it "
    "`jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
)

_MESSAGES = {
    Status.successful: "The computation was successful.",
    Status.max_steps_reached: (
        "The limit on the number of steps was reached before the end time. Raise `max_steps` or loosen the "
        "tolerances; if the steps are far smaller than the solution needs, the problem is stiff: try "
        "`solver=sciml.solvers.Rodas5P()`, or `Switching()` where it is so at times. Reactions of many molecules take "
        "fewer steps with `sciml.solvers.TauLeaping()`. A rate that `where(y > 0, -1.0, 0.0)` switches off leads to "
        "ever shorter steps at zero: multiply it by one more component of the state, which is 1, until an event, "
        "`sciml.Event(lambda t, y, args: y[0], lambda t, y, args: jnp.zeros_like(y), direction=-1)`, sets both to zero."
    ),
    Status.nonfinite: (
        "The state or the vector field became NaN or infinite. The solution may blow up before the end time, "
        "a parameter may lie outside its range, the model may divide by zero, or constant steps may be too long for "
        "the method or lead out of `domain`: try a shorter `dt`. Amounts that fell below zero within `atol` may run "
        "away from there: `positive=True` holds them, or take a smaller `atol`. `Solution.t_reached` says where; at "
        "the start time, the initial state or a parameter is NaN or infinite already, or the first step led there."
        + _ROOT
    ),
    Status.step_too_small: (
        "The step size fell below what the time's precision can resolve. The solution may blow up there, the "
        "problem may be discontinuous or very stiff, or the tolerances too tight for the dtype: in float32, "
        "try float64. Amounts that fell below zero within `atol` may run away: set `positive=True` or a smaller `atol`."
    ),
    Status.diverged: (
        "The iteration did not converge. There may be no solution near the start: start elsewhere, loosen the "
        "tolerances or allow more steps. Conjugate gradients also need an operator that is symmetric and definite. "
        "Where a method has a `linear_solver`, its systems were not solved for any length of a step: give it a "
        "`preconditioner` or a larger `max_steps`." + _ROOT
    ),
    Status.inconsistent_start: (
        "No initial values were found that satisfy the algebraic equations. Give a better guess of the algebraic "
        "variables in `y0`, or check that these equations determine them (that the system has index one)."
    ),
    Status.singular: (
        "The linear system of an implicit step was singular for every step size. With a mass matrix, the algebraic "
        "equations must determine the algebraic variables all along; `Solution.t_reached` says where they cease to."
    ),
    Status.invalid_argument: (
        "An argument that was traced, so that it could not be refused beforehand, is out of range: every time of "
        "`saveat` must lie within [t0, t1], also where each member has an end time of its own, and none after a later "
        "one, t0 and t1 must be farther apart than their dtype rounds them, `dt` must have the sign of t1 - t0 and be "
        "no longer than the method is stable for (`sciml.solvers.stability`), `rtol` must be at least twice the "
        "dtype's precision, `atol` not negative, all of them finite, and `y0` what `positive` and `domain` admit. What "
        "was asked for outside or out of order is NaN."
    ),
    Status.stagnated: (
        "The residual no longer falls, although it is larger than the tolerance: rounding does not allow a smaller "
        "one, or the linear system has no solution. Loosen `rtol` to what was reached, compute in float64, or give a "
        "right-hand side in the range of the operator."
    ),
    Status.outside_domain: (
        "Every step, however short, led to a state that `positive` or `domain` do not admit. The model itself leaves "
        "them there: what is zero must not be consumed further (multiply the loss by the amount), and a solution that "
        "starts within the domain must stay there. `Solution.t_reached` says where." + _ROOT
    ),
    Status.event: "An event ended the solve. `Solution.t_reached` says when, `Solution.events` which it was.",
    Status.crowded_events: (
        "Events followed one another faster than the precision of time can tell apart, as the bounces of a ball that "
        "comes to rest, or as events of a model in SBML that make one another happen without end. End the solve by an event before that, as where the speed falls below a small one, and go on "
        "with a model of what comes then; `Solution.t_reached` says where."
    ),
    Status.pending_events: (
        "More executions of a delayed event were pending at one time than are kept. Raise the number: "
        "`model.events(pending=32)`; `Solution.t_reached` says where."
    ),
    Status.negative_propensity: (
        "A propensity became negative or NaN. A reaction happens at a rate of zero or more: let its propensity vanish "
        "where it lacks what it consumes, as `x * (x - 1) / 2` does for two of a kind."
    ),
    Status.history_too_short: (
        "A delay reached farther back than the steps that are kept, or a step was longer than a delay. Give "
        "`sciml.Delayed` a larger `kept`, loosen the tolerances, or take a `dt` no longer than the shortest delay."
    ),
    Status.stiff: (
        "The limit on the number of steps was reached before the end time, and the steps were as long as the method is "
        "stable for, not as the tolerances allow: the problem is stiff. Name a method for that: "
        "`solver=sciml.solvers.Rodas5P()`, `BDF()` for hundreds of unknowns that all depend on one another, or "
        "`Switching()` where it is so at times. Without `solver` one is found by itself, but not under `jax.jit` and "
        "`jax.vmap`, where no number is known while the program is made."
    ),
    Status.beyond_horizon: (
        "Gradients through the solution say nothing from some time before its end on: small changes have grown by then "
        "as large as the solution itself, so that the minimum that was found is one of many, by chance. Fit a shorter "
        "record, or cut it into windows: `sciml.training.multiple_shooting`."
    ),
    Status.mesh_too_coarse: (
        "The equation does not hold between the nodes to `rtol`. Allow more nodes by `max_nodes`, or loosen `rtol`; in "
        "a gradient, where none are added, give the nodes of a solution that was found outside of it."
    ),
}


def has_failed(status: Int[ArrayLike, "..."]) -> Any:
    """Returns which codes say that something went wrong: a solve that an event has ended is a good one."""
    return (status != int(Status.successful)) & (status != int(Status.event))


class SolveError(RuntimeError):
    """Raised on the host after a computation in which at least one member failed.

    Attributes:
        status: The codes, an integer array with one entry per member.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        try:
            sciml.solve(lambda t, y, args: y**2, jnp.array([1.0]), t0=0.0, t1=2.0)
        except sciml.SolveError as error:
            assert int(error.status) != sciml.Status.successful
        ```
    """

    status: np.ndarray

    def __init__(self, message: str, status: np.ndarray):
        RuntimeError.__init__(self, message)
        self.status = status


def raise_for_status(
    status: Int[ArrayLike, "..."], *, where: str = "solve", reached: Real[ArrayLike, "..."] | None = None
) -> None:
    """Raises one error for all failed members; returns quietly where there are none.

    Args:
        status: Codes of `Status`, of any shape; must be concrete, not traced.
        where: The name of the public function that ran, for the message.
        reached: The time up to which each member's solution is good, for the message.

    Raises:
        SolveError: If any code is not `Status.successful`. The message counts the failures by cause
            and names the first members.

    Example:
        ```python
        import numpy as np
        from sciml import SolveError
        from sciml._status import raise_for_status

        raise_for_status(np.zeros(3, dtype=np.int32))
        try:
            raise_for_status(np.array([0, 2, 0]))
        except SolveError as error:
            assert "1 of 3 members failed" in str(error)
        ```
    """
    codes = np.asarray(status)
    codes = np.where(has_failed(codes), codes, 0)
    if not codes.any():
        return
    if codes.ndim == 0:
        code = Status(int(codes))
        # under `jax.grad` outside of `jax.jit` the status is a number, and the time alone is traced
        known = reached is not None and concrete(reached) and np.isfinite(reached)
        at = f" at t = {float(np.asarray(reached)):.6g}" if known else ""
        raise SolveError(f"`{where}` failed{at} with status `{code.name}`. {code.message}", codes)
    flat = codes.reshape(-1)
    failed = np.flatnonzero(flat)
    lines = [f"`{where}`: {failed.size} of {flat.size} members failed."]
    for value in np.unique(flat[failed]):
        members = np.flatnonzero(flat == value)
        shown = ", ".join(map(str, members[:10])) + (", ..." if members.size > 10 else "")
        code = Status(int(value))
        lines.append(f"  {members.size} with status `{code.name}` (members {shown}). {code.message}")
    raise SolveError("\n".join(lines), codes)
