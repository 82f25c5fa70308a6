"""Fixed steps that are stable: the step that `solve` takes where none is given, and the refusal of longer ones."""

import math
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_step, concrete
from .._jax._interpreters import jaxpr_as_fun
from .._types import Args, Y
from ._read_diffrax import stepper_of
from ._request import Interval, Request
from .control._collective import make_collective
from .control._stability import Stability, says_spectrum
from .methods._stepper import AbstractStepper
from .methods._structured_solver import AbstractStructuredStepper
from .terms._explain import explain

_SAFETY = 0.9


def stability(solver: diffrax.AbstractSolver) -> Stability | None:
    """Returns for which steps a method is stable; None for implicit and exponential methods, and if it is not known.

    Args:
        solver: A solver that `sciml.solve` takes.

    Raises:
        TypeError: If it is not a solver.

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
    stepper = stepper_of(solver, None)
    return None if stepper is None else stepper.limits.stability()


def limited_stepper(model: Any, y0: Y, request: Request) -> AbstractStepper | None:
    """Returns the method whose fixed steps the model's eigenvalues limit; None where no limit is known."""
    stepper = stepper_of(request.solver, y0)
    stability = None if stepper is None else stepper.limits.stability()
    if stepper is None or stability is None or not (stepper.limits.says_spectrum or says_spectrum(model)):
        return None
    alone = request.dt is None and not request.names_error_control and not stepper.has_error
    return stepper if request.fixed_steps or alone else None


def settle_step(
    model: Any,
    y0: Y,
    request: Request,
    interval: Interval,
    stepper: AbstractStepper | None,
    limits: Callable[..., tuple[Array, Array]] | None = None,
) -> tuple[Request, Interval, Any]:
    """Returns a request with the size of fixed steps, and the longest stable one where that is not known yet.

    If the steps are fixed and `dt` is None, it is at most 0.9 times the longest stable step, so that all steps are
    equal. `dt` remains None if the model does not define its eigenvalues or the method has no limit.

    Args:
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`, with a solver.
        interval: The times and the step.
        stepper: From `limited_stepper`.
        limits: For members that share their steps, where all is known, a function `(start, end, stepper, stability)`
            that returns the shortest `longest_step` among them and whose it is.

    Raises:
        ValueError: If `dt` is longer than the longest stable step, and all is known.
    """
    if stepper is None:
        return request, interval, None
    stability, dt = stepper.limits.stability(), request.dt
    assert stability is not None  # the stepper is limited by it
    # as NumPy's: while JAX traces, its arrays would be tracers, of unknown value
    dtype = interval.t0.dtype
    start, end = (
        np.asarray(t, dtype) if concrete(t) else x for t, x in ((request.t0, interval.t0), (request.t1, interval.t1))
    )
    whose = ""
    if limits is None:
        limit = _limit(model, y0, request.args, start, end, stepper, stability)
    else:
        limit, member = limits(start, end, stepper, stability)
        whose = f" for member {int(member)}"
    if not all(map(concrete, (start, end, limit))):
        limit = jax.lax.stop_gradient(limit)
        if request.norm is not None:
            limit = -make_collective(request.norm, y0).replicated(-limit)
        if dt is not None:
            return request, interval, limit
        span = end - start
        longest = jnp.where(span == 0, jnp.ones_like(span), span)  # a member that ends where it starts takes no step
        return *_with_step(request, interval, jnp.sign(longest) * jnp.minimum(_SAFETY * limit, jnp.abs(longest))), None
    limit = float(limit)
    if dt is None:
        span = float(end) - float(start)
        steps = math.ceil(abs(span) / (_SAFETY * limit)) if limit > 0 else 1
        length = span / max(steps, 1) if span else 1.0  # one that ends where it starts takes no step
        return *_with_step(request, interval, length), None
    if not concrete(dt):
        return request, interval, jnp.asarray(limit, dtype)
    if abs(float(dt)) > limit:
        name = getattr(model, "__name__", type(model).__name__)
        raise ValueError(
            f"`dt`={float(dt):.6g} is too long for `solver={type(request.solver).__name__}()` to be stable: the "
            f"eigenvalues of {name} at the start allow at most {limit:.4g}{whose}. Use a shorter step, or for "
            "diffusion an implicit or stabilised method, see `sciml.solvers`."
        )
    return request, interval, None


def _with_step(request: Request, interval: Interval, dt: Any) -> tuple[Request, Interval]:
    step = check_step(dt, interval.forwards, interval.t0.dtype)
    return request._replace(dt=dt), interval._replace(step=step)


def _limit(*given: Any) -> Array:
    """The longest stable step, known if its inputs are known."""
    if concrete(jnp.add(0, 0)) and all(map(concrete, jax.tree.leaves(given))):
        return longest_known(*given)
    closed = jax.make_jaxpr(lambda: longest_step(*given))()  # in a trace: what it depends on are its constants
    evaluate = jaxpr_as_fun(closed)
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
        stepper.functions(model, start, y0, args)  # raises the method's own error where it refuses the model
    try:
        jax.eval_shape(lambda t, y: model(t, y, args), start, y0)
    except Exception as error:
        explain(error)
        raise
    found = stepper.limits.spectrum(model, start, y0, args)
    return stability.longest_step(jnp.where(jnp.asarray(end) < start, -found, found)).astype(start.dtype)


longest_known = eqx.filter_jit(longest_step)
