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
    undetermined = 18

    @property
    def message(self) -> str:
        """The likeliest cause and the remedy, in at most three sentences."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.successful: "The computation was successful.",
    Status.max_steps_reached: (
        "The limit on the number of steps was reached before the end time; most often the problem is stiff: try "
        "`solver=sciml.solvers.Rodas5P()`, or `sciml.solvers.TauLeaping()` for reactions of many molecules. Otherwise "
        "raise `max_steps` or loosen `rtol` and `atol`. The guide on failures lists further causes, such as a rate "
        "that switches off at zero."
    ),
    Status.nonfinite: (
        "The state or the vector field became NaN or infinite at `Solution.t_reached`; most often fixed steps are too "
        "long (try a shorter `dt`), amounts fell below zero (set `positive=True` or a smaller `atol`), or the solution "
        "blows up there. At the start time, look for NaN in `y0` and in the parameters, and for a division by zero. "
        "`sciml.inspect.first_nan` returns the line of the model, such as a root of zero: write "
        "`jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
    ),
    Status.step_too_small: (
        "The step size fell below the resolution of time in its dtype, so the solution may blow up or jump at "
        "`Solution.t_reached`. Loosen the tolerances, use float64 in place of float32, or give the times of jumps by "
        "`events=`. If amounts fell below zero within `atol`, set `positive=True` or a smaller `atol`."
    ),
    Status.diverged: (
        "The iteration did not converge; there may be no solution near the start. Start elsewhere, loosen the "
        "tolerances or allow more steps; give a `linear_solver` a `preconditioner` or a larger `max_steps`, and "
        "conjugate gradients a symmetric and definite operator. A root of zero has no slope: write "
        "`jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
    ),
    Status.inconsistent_start: (
        "No initial values were found that satisfy the algebraic equations. Give a better guess of the algebraic "
        "variables in `y0`, or check that these equations determine them (that the system has index one)."
    ),
    Status.singular: (
        "The linear system of an implicit step was singular for every step size. With a mass matrix, the algebraic "
        "equations must determine the algebraic variables at all times; at `Solution.t_reached` they no longer do."
    ),
    Status.invalid_argument: (
        "A traced argument is out of range: most often a time of `saveat` outside [t0, t1] or out of order, a `dt` of "
        "the wrong sign or too long for the method, or times of a `Schedule` out of order. Others are `t0` and "
        "`t1` equal after rounding, too small an `rtol`, a negative `atol`, a number that is not finite, a `y0` that "
        "`positive`, `domain` or `conserved` does not admit, and an infusion without a positive duration or begun "
        "before `t0` (`infusions(..., start=t0)`). Times out of order give NaN."
    ),
    Status.stagnated: (
        "The residual no longer falls, although it is larger than the tolerance: rounding does not allow a smaller "
        "one, or the linear system has no solution. Loosen `rtol` to the value that was reached, compute in float64, "
        "or give a right-hand side in the range of the operator."
    ),
    Status.outside_domain: (
        "Every step led to a state that `positive` or `domain` does not admit, so the model itself leaves them at "
        "`Solution.t_reached`. An amount of zero must not be consumed further: multiply the loss by the amount. A root "
        "of zero has no slope: write `jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
    ),
    Status.event: (
        "An event ended the solve at `Solution.t_reached`. `Solution.events` has the index of the event that fired."
    ),
    Status.crowded_events: (
        "Events followed one another faster than the precision of time can resolve, like the bounces of a ball that "
        "comes to rest, or SBML events that trigger one another without end. End the solve by an event before "
        "`Solution.t_reached`, such as a speed that falls below a small number, and go on with a model of the state at "
        "rest."
    ),
    Status.pending_events: (
        "More executions of a delayed event were pending at `Solution.t_reached` than are kept. Raise the number: "
        "`model.events(pending=32)`."
    ),
    Status.negative_propensity: (
        "A propensity became negative or NaN. A reaction happens at a rate of zero or more: let its propensity vanish "
        "where reactants are missing, as `x * (x - 1) / 2` does for two of a kind."
    ),
    Status.history_too_short: (
        "A delay reached farther back than the steps that are kept, or a step was longer than a delay. Give "
        "`sciml.Delayed` a larger `kept`, loosen the tolerances, or use a `dt` no longer than the shortest delay."
    ),
    Status.stiff: (
        "The problem is stiff: the limit on the number of steps was reached while stability, not the tolerances, "
        "limited the steps. Name an implicit method: `solver=sciml.solvers.Rodas5P()`, `BDF()` for hundreds of "
        "unknowns that all depend on one another, or `Switching()` for a problem that is stiff at times. Under "
        "`jax.jit` and `jax.vmap` none is chosen automatically."
    ),
    Status.beyond_horizon: (
        "Gradients through the solution say nothing from some time before its end on, because small changes have grown "
        "to the size of the solution; the minimum that was found is one of many. Fit a shorter record, or cut it into "
        "windows: `sciml.training.multiple_shooting`."
    ),
    Status.undetermined: (
        "The state at rest is not determined: the Jacobian is singular there, also with the conserved quantities that "
        "are held, or rate constants differ too widely for this precision. Use float64, or give conserved quantities "
        "as `conserved=`, also nonlinear ones. Otherwise the end depends on the path: use `sciml.solve` with "
        "`adjoint=sciml.adjoints.Checkpointed()`."
    ),
    Status.mesh_too_coarse: (
        "The equation does not hold between the nodes to `rtol`. Raise `max_nodes`, or loosen `rtol`. In a gradient, "
        "which adds no nodes, give the nodes of a solution that was found outside of it."
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
