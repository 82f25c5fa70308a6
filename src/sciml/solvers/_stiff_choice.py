"""Whether a solve without `solver` uses a method for stiff equations, based on run-time numbers.

If they are known, which they are outside of `jax.jit` and `jax.vmap` and also in a gradient, two signs count:
`diffrax.Tsit5` reached the limit of steps; or, for a large state with expensive steps, an eigenvalue at the start
requires more steps than the limit. An equation that is not stiff costs no more than without this check. In a program
that is traced there are no numbers, and the model's own word counts; see `promised_method`. A second loop there, for
members that turn out to be stiff, would make every program compile for more than twice as long, a gradient for three
times: `Status.stiff` recommends a method.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_state, concrete, time_dtype
from .._choices import choices
from .._interfaces._conservation_law import AbstractConservationLaw
from .._interfaces._dae import AbstractDAE
from .._interfaces._delayed import AbstractDelayed
from .._interfaces._model import AbstractPartitioned, AbstractSecondOrder, AbstractSemilinear, AbstractSplit
from .._status import Status
from .._types import Args, Y
from ..kernels._use import USED
from ._calls import compiled, split
from ._plan import DEFAULT_MAX_STEPS, is_stabilised, stabilised
from ._request import Request
from ._solution import Solution
from ._stable_step import longest_known
from ._stiff_method import Chosen, log_choice, promises_stiffness, stiff_method
from ._with_noise import is_noisy
from .adjoints._checkpointed import Checkpointed
from .adjoints._direct import Direct
from .adjoints._forward import Forward
from .control._stability import estimated_radius
from .methods.split._imex import ARK

_STABLE = 3.3
"""How far from zero the stability of `diffrax.Tsit5` ends, on the negative axis."""

_NUMBERS = int | float | np.generic | np.ndarray | jax.Array

_TYPED = (
    AbstractConservationLaw,
    AbstractDAE,
    AbstractDelayed,
    AbstractPartitioned,
    AbstractSecondOrder,
    AbstractSemilinear,
    AbstractSplit,
    diffrax.AbstractTerm,
)
"""Models with their own methods, and waves, which no implicit method makes cheaper."""


def method_before(model: Any, y0: Y, request: Request) -> Any:
    """Returns a stiff method if the eigenvalues of a large state predict that `Tsit5` would fail, otherwise None.

    Args:
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
    """
    if is_stabilised(model, request):
        return _implicit_if_stiff(model, y0, request)
    if _size(y0) < choices().stiff.probed_from or not _may_change(model, request) or promises_stiffness(model):
        return None
    t0, t1, most = request.t0, request.t1, request.max_steps
    known = _known(model, y0, request)
    if known is None:
        return None
    try:
        radius = _radius_of(*known, t0)
    except Exception:  # the solve says what is wrong, if anything: it may need no derivative
        return None
    steps = radius * abs(float(t1) - float(t0)) / _STABLE
    if not steps > (most if isinstance(most, int) else DEFAULT_MAX_STEPS):  # NaN is for the solve to report
        return None
    chosen = stiff_method(model, t0, y0, request.args)
    return _logged(model, "would take `Tsit5` too many steps", chosen) if chosen.feasible else None


def _implicit_if_stiff(model: Any, y0: Y, request: Request) -> Any:
    """Returns an implicit-explicit method if a stabilised one would take too many steps of all its stages."""
    known, stepper = _known(model, y0, request), stabilised(check_state(y0)).stepper(y0)
    stability = stepper.limits.stability()
    continues = request.resume is not None or getattr(request.saveat, "solver_state", False)  # by the same method
    if known is None or stability is None or continues:
        return None
    try:
        longest = float(longest_known(*known, request.t0, request.t1, stepper, stability))
    except Exception:  # the solve says what is wrong
        return None
    steps = abs(float(request.t1) - float(request.t0)) / longest if longest > 0 else 0
    return ARK(order=3) if steps > choices().stiff.stabilised_steps_at_most else None


def method_instead(sol: Solution, model: Any, y0: Y, request: Request) -> Any:
    """Returns a stiff method where `Tsit5`, taken by default, came to the default limit of steps, else None.

    Args:
        sol: The solution; its status is known.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
    """
    if sol.solver != "Tsit5" or request.max_steps is not None or sol.status.ndim:
        return None
    if int(sol.status) not in (Status.max_steps_reached, Status.stiff) or not _may_change(model, request):
        return None
    chosen = stiff_method(model, request.t0, y0, request.args)
    return _logged(model, "took `Tsit5` too many steps", chosen) if chosen.feasible else None


def _logged(model: Any, found: str, chosen: Chosen) -> Any:
    log_choice(model, found, chosen)
    return chosen.solver


def _may_change(model: Any, request: Request) -> bool:
    """Whether no given argument rules out another method than the explicit one."""
    # with one of these another method would not do the same
    fixed = request.stepsize_controller, request.dt, request.cfl, request.resume, request.key
    if any(x is not None for x in fixed) or USED.get().impl == "pallas":
        return False
    if getattr(request.saveat, "solver_state", False):  # a later solve goes on from it, by the same method
        return False
    if isinstance(model, _TYPED) or is_noisy(model):
        return False
    return request.adjoint is None or isinstance(request.adjoint, Checkpointed | Direct | Forward)


def _known(model: Any, y0: Y, request: Request) -> tuple | None:
    """Returns model, initial state and args without derivatives; None where these or the times are not known."""
    times = all(isinstance(x, _NUMBERS) and concrete(x) for x in (request.t0, request.t1))
    return _constant((model, y0, request.args)) if times else None


def _constant(tree: PyTree) -> PyTree | None:
    """Returns arguments without derivatives, None where a value is not known even so."""
    tree = jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)
    return tree if all(map(concrete, jax.tree.leaves(tree))) else None


def _size(y0: Y) -> int:
    return sum(getattr(x, "size", 1) for x in jax.tree.leaves(y0))


def _largest_rate(model: Callable, y0: Y, args: Args, t0: Array) -> Array:
    return estimated_radius(lambda y: model(t0, y, args), y0)


_largest_rate_of = compiled(_largest_rate)


def _radius_of(model: Callable, y0: Y, args: Args, t0: Any) -> float:
    """Returns a bound of the largest eigenvalue of the Jacobian at the start."""
    y0 = check_state(y0)
    return float(_largest_rate_of.call(*split((model, y0, args, np.asarray(t0, time_dtype(y0))))))
