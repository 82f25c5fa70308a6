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
    negative_delay = 19
    infeasible = 20

    @property
    def message(self) -> str:
        """The likeliest cause and the remedy, in at most three sentences."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.successful: "The computation was successful.",
    Status.max_steps_reached: (
        "The solve reached `max_steps` before the end time, most often because the problem is stiff: try "
        "`solver=sciml.solvers.Rodas5P()`, or `sciml.solvers.TauLeaping()` for reactions of many molecules. Otherwise "
        "raise `max_steps` or loosen `rtol` and `atol`. The guide on failures lists other causes, such as a rate "
        "that switches off at zero."
    ),
    Status.nonfinite: (
        "The state or the vector field became NaN or infinite at `Solution.t_reached`. Most often fixed steps are too "
        "long (try a shorter `dt`), amounts became negative (set `positive=True` or a smaller `atol`), or the solution "
        "blows up; if it fails at the start, look for NaN in `y0` or parameters, a negative pressure or density, and "
        "divisions by zero. `sciml.inspect.first_nan` reports the line, such as a square root of zero; write it as "
        "`jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
    ),
    Status.step_too_small: (
        "The step size fell below the time resolution of the dtype, so the solution may blow up or jump at "
        "`Solution.t_reached`. Loosen the tolerances, use float64 instead of float32, or pass the times of jumps as "
        "`events=`. If amounts became negative within `atol`, set `positive=True` or a smaller `atol`."
    ),
    Status.diverged: (
        "The iteration did not converge; there may be no solution near the initial guess. Use another guess, loosen "
        "the tolerances, compute in float64 or allow more steps; with a `linear_solver`, add a `preconditioner` or "
        "raise its `max_steps` (conjugate gradients require a symmetric definite operator). The square root has no "
        "derivative at zero: write `jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
    ),
    Status.inconsistent_start: (
        "No initial values were found that satisfy the algebraic equations. Pass a better guess of the algebraic "
        "variables in `y0`, or check that the algebraic equations determine them (index one, or the `index` of a "
        "`sciml.DAE`)."
    ),
    Status.singular: (
        "The linear system of an implicit step was singular for every step size. With a mass matrix, the algebraic "
        "equations must determine the algebraic variables at all times; at `Solution.t_reached` they no longer do."
    ),
    Status.invalid_argument: (
        "A traced argument is out of range: most often a time of `saveat` outside [t0, t1] or out of order, a `dt` of "
        "the wrong sign or too long for the method, or times of a `Schedule` out of order. Other causes: `t0` and "
        "`t1` equal after rounding, an `rtol` that is too small, a negative `atol`, a number that is not finite, a "
        "`y0` that violates `positive`, `domain` or `conserved`, and an infusion without a positive duration or begun "
        "before `t0` (`infusions(..., start=t0)`). Times out of order give NaN."
    ),
    Status.stagnated: (
        "The residual stopped decreasing above the tolerance, because of rounding or because the linear system has no "
        "solution. Loosen `rtol` to the value that was reached, compute in float64, or pass a right-hand side in the "
        "range of the operator."
    ),
    Status.outside_domain: (
        "Every step led to a state that violates `positive` or `domain`, so the model itself leaves the admissible "
        "states at `Solution.t_reached`. If an amount is consumed at zero, multiply its loss rate by the amount. The "
        "square root has no derivative at zero: write `jnp.where(y > 0, jnp.sqrt(jnp.where(y > 0, y, 1.0)), 0.0)`."
    ),
    Status.event: (
        "An event ended the solve at `Solution.t_reached`. `Solution.events` has the index of the event that fired."
    ),
    Status.crowded_events: (
        "Events followed one another faster than the time resolution of the dtype, like the bounces of a ball that "
        "comes to rest, or SBML events that trigger one another endlessly. End the solve with an event before "
        "`Solution.t_reached`, such as a speed that falls below a small number, and continue with a model of the state "
        "at rest."
    ),
    Status.pending_events: (
        "More executions of a delayed event were pending at `Solution.t_reached` than the buffer holds. Enlarge it "
        "with `model.events(pending=32)`."
    ),
    Status.negative_propensity: (
        "A propensity became negative or NaN, but reaction rates must be at least zero. Write propensities that vanish "
        "without reactants, such as `x * (x - 1) / 2` for two molecules of the same species."
    ),
    Status.history_too_short: (
        "A delay reached farther back than the stored steps, or a step was longer than a delay. Pass a larger `kept` "
        "to `sciml.Delayed`, loosen the tolerances, or use a `dt` no longer than the shortest delay."
    ),
    Status.negative_delay: (
        "A delay was negative at `Solution.t_reached`: the rate would depend on the future. Check the function or the "
        "parameters that `delays` of `sciml.Delayed` depends on."
    ),
    Status.stiff: (
        "The problem is stiff: the solve reached `max_steps` while stability, not accuracy, limited the step size. "
        "Use an implicit method: `solver=sciml.solvers.Rodas5P()`, `BDF()` for hundreds of unknowns that all depend on "
        "one another, or `Switching()` for a problem that is stiff only at times. Under `jax.jit` and `jax.vmap`, no "
        "implicit method is chosen automatically."
    ),
    Status.beyond_horizon: (
        "Gradients become meaningless before the end of the solution, because small changes grow to the size of the "
        "solution itself; the fit found only one of many local minima. Fit a shorter record, or split it into windows "
        "with `sciml.training.multiple_shooting`."
    ),
    Status.undetermined: (
        "The steady state is not unique: its Jacobian is singular even with the conserved quantities fixed, or the "
        "rate constants differ too much for this precision. Use float64, or pass the conserved quantities (linear or "
        "not) as `conserved=`. If the end depends on the path, use `sciml.solve` with "
        "`adjoint=sciml.adjoints.Checkpointed()`."
    ),
    Status.infeasible: (
        "No values were found that satisfy all constraints. Loosen the bounds, the path constraints or the end "
        "conditions, allow more time, or pass a better `guess=`."
    ),
    Status.mesh_too_coarse: (
        "The residual between the nodes exceeds `rtol`. Raise `max_nodes`, or loosen `rtol`. A gradient does not add "
        "nodes: pass it the nodes of a solution computed outside of the gradient."
    ),
}


_OF_OPTIMISATIONS = {
    Status.max_steps_reached: (
        "The optimisation used up `max_steps` iterations before the residual `error` of the optimality conditions fell "
        "below `rtol`. Pass a trajectory as `guess=`, scale states and controls to the order of one, or raise "
        "`max_steps`. If controls oscillate, lower `control_degree`."
    ),
    Status.diverged: (
        "The iteration did not converge. Look for NaN in `y0`, `args` and the functions of the problem at the guess, "
        "and pass another `u0` or a trajectory as `guess=`."
    ),
    Status.infeasible: (
        "No values near the guess satisfy all constraints. Check `y0` against `y_bounds`, loosen the bounds or the end "
        "conditions, or pass another `u0` or a trajectory as `guess=`. If the final time ran into `t1_bounds`, raise "
        "its lower bound."
    ),
}
_OF_BRANCHES = {
    Status.diverged: (
        "The iteration did not converge: there may be no solution near the guess, or the model is NaN there. Pass "
        "another `y0`, `period` or parameter, or use float64."
    ),
    Status.mesh_too_coarse: (
        "The error between the nodes exceeds `rtol`. Raise `intervals`, pass more nodes as `ts`, or loosen `rtol`."
    ),
}
_OF_CALLS = {
    **dict.fromkeys(("optimise", "receding_horizon"), _OF_OPTIMISATIONS),
    **dict.fromkeys(("limit_cycle", "continuation", "locate", "locus", "steady_states"), _OF_BRANCHES),
}
"""Messages that a function replaces by its own."""


def _message(code: Status, where: str) -> str:
    return _OF_CALLS.get(where, {}).get(code, code.message)


def has_failed(status: Int[ArrayLike, "..."]) -> Any:
    """Returns the codes that are failures: a solve that an event has ended is a success."""
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
    """Raises one error for all failed members; returns silently if there are none.

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
        # under `jax.grad` outside of `jax.jit` the status is a number, and only the time is traced
        known = reached is not None and concrete(reached) and np.isfinite(reached)
        at = f" at t = {float(np.asarray(reached)):.6g}" if known else ""
        raise SolveError(f"`{where}` failed{at} with status `{code.name}`. {_message(code, where)}", codes)
    flat = codes.reshape(-1)
    failed = np.flatnonzero(flat)
    lines = [f"`{where}`: {failed.size} of {flat.size} members failed."]
    for value in np.unique(flat[failed]):
        members = np.flatnonzero(flat == value)
        shown = ", ".join(map(str, members[:10])) + (", ..." if members.size > 10 else "")
        code = Status(int(value))
        lines.append(f"  {members.size} with status `{code.name}` (members {shown}). {_message(code, where)}")
    raise SolveError("\n".join(lines), codes)
