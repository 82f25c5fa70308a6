"""Fixed steps that are stable: the step that `solve` takes where none is given, and the refusal of longer ones."""

import math
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_step, check_time, concrete, no_instance, time_dtype
from .._types import Args, Y
from ._plan import fixed_steps
from .control._collective import make_collective
from .control._stability import Stability, says_spectrum
from .methods._runge_kutta import from_diffrax
from .methods._solver import AbstractSteppingSolver
from .methods._stepper import AbstractStepper
from .methods._structured_solver import AbstractStructuredStepper

_SAFETY = 0.9


def stability(solver: diffrax.AbstractSolver) -> Stability | None:
    """Returns for which steps a method is stable; None for implicit and exponential methods, and where it is not known.

    Args:
        solver: A solver that `sciml.solve` takes.

    Raises:
        TypeError: If it is none.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml
        from sciml.spatial import Grid, Laplacian, Periodic

        laplacian = Laplacian(Grid(10), Periodic())
        limit = sciml.solvers.stability(diffrax.Euler()).longest_step(-jnp.array(laplacian.spectral_radius))
        assert abs(limit - 0.1**2 / 2) < 1e-5
        assert sciml.solvers.stability(sciml.solvers.VelocityVerlet()).imaginary == 2.0
        ```
    """
    if not isinstance(solver, diffrax.AbstractSolver):
        raise TypeError(f"`solver` must be a diffrax solver such as `diffrax.Tsit5()`, but {no_instance(solver)}.")
    stepper = _stepper(solver, None)
    return None if stepper is None else stepper.stability


def _stepper(solver: diffrax.AbstractSolver, y0: Y) -> AbstractStepper | None:
    return solver.stepper(y0) if isinstance(solver, AbstractSteppingSolver) else from_diffrax(solver)


def settle_step(
    model: Callable,
    y0: Y,
    args: Args,
    *,
    t0: Any,
    t1: Any,
    dt: Any,
    rtol: PyTree,
    atol: PyTree,
    solver: Any,
    controller: Any,
    norm: Any = None,
    limits: Callable[..., tuple[Array, Array]] | None = None,
) -> tuple[Any, Any]:
    """Returns the size of fixed steps, and the longest stable one where it is not known yet; None for none.

    Where the steps are fixed and `dt` is None it is 0.9 times the longest that is stable, or a little less, so that
    all are equal. `dt` remains None where the model does not say its eigenvalues or the method has no limit.

    Args:
        model: The model.
        y0: The initial state.
        args: What the model takes beside time and state.
        t0: The start time.
        t1: The end time.
        dt: The step that was given, or None.
        rtol: As for `solve`, and so are the following.
        atol: Absolute tolerance.
        solver: The method.
        controller: The controller.
        norm: The norm.
        limits: For members that share their steps, where all is known, a function `(start, end, stepper, stability)`
            that returns the shortest `longest_step` among them and whose it is.

    Raises:
        ValueError: If `dt` is longer than the longest stable step, and all is known.
    """
    if not isinstance(solver, diffrax.AbstractSolver):
        return dt, None
    stepper = _stepper(solver, y0)
    stability = None if stepper is None else stepper.stability
    if stepper is None or stability is None or not (stepper.says_spectrum or says_spectrum(model)):
        return dt, None
    alone = controller is None and dt is None and rtol is None and atol is None and not stepper.has_error
    if not (fixed_steps(controller, dt, rtol, atol) or alone):
        return dt, None
    dtype = time_dtype(y0)
    start, end = (check_time(t, name, dtype) for t, name in ((t0, "t0"), (t1, "t1")))
    # in a trace a number that is known would become one that is not
    start, end = (np.asarray(t, dtype) if concrete(t) else x for t, x in ((t0, start), (t1, end)))
    step = None if dt is None else check_step(dt, None, dtype)

    whose = ""
    if limits is None:
        limit = _limit(model, y0, args, start, end, stepper, stability)
    else:
        limit, member = limits(start, end, stepper, stability)
        whose = f" for member {int(member)}"
    if not all(map(concrete, (start, end, limit))):
        limit = jax.lax.stop_gradient(limit)
        if norm is not None:
            limit = -make_collective(norm, y0).replicated(-limit)
        if step is not None:
            return dt, limit
        span = end - start
        return jnp.sign(span) * jnp.minimum(_SAFETY * limit, jnp.abs(span)), None
    limit = float(limit)
    if dt is None:
        span = float(end) - float(start)
        steps = math.ceil(abs(span) / (_SAFETY * limit)) if limit > 0 else 1
        return span / max(steps, 1), None
    if not concrete(dt):
        return dt, jnp.asarray(limit, dtype)
    if abs(float(dt)) > limit:
        name = getattr(model, "__name__", type(model).__name__)
        raise ValueError(
            f"`dt`={float(dt):.6g} is longer than `solver={type(solver).__name__}()` is stable for: with the "
            f"eigenvalues of {name} at the start at most {limit:.4g}{whose}. Take a shorter step, or for what "
            "diffuses an implicit or stabilised method, see `sciml.solvers`."
        )
    return dt, None


def _limit(*given: Any) -> Array:
    """The longest stable step, known where what it depends on is."""
    if concrete(jnp.add(0, 0)) and all(map(concrete, jax.tree.leaves(given))):
        return _compiled(*given)
    closed = jax.make_jaxpr(lambda: longest_step(*given))()  # in a trace: what it depends on are its constants
    evaluate = jex.core.jaxpr_as_fun(closed)
    if not all(map(concrete, closed.consts)):
        return evaluate()[0]
    with jax.ensure_compile_time_eval():
        return evaluate()[0]


def longest_step(
    model: Callable, y0: Y, args: Args, start: Any, end: Any, stepper: AbstractStepper, stability: Stability
) -> Array:
    """Returns the longest step of a method that is stable for a model at the start."""
    start = jnp.asarray(start)
    if isinstance(stepper, AbstractStructuredStepper):
        stepper.functions(model, start, y0, args)  # what the method refuses it says itself
    jax.eval_shape(lambda t, y: model(t, y, args), start, y0)  # and so does the model
    found = stepper.spectrum(model, start, y0, args)
    return stability.longest_step(jnp.where(jnp.asarray(end) < start, -found, found)).astype(start.dtype)


_compiled = eqx.filter_jit(longest_step)
