"""`steady_state`: where a vector field vanishes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ..._checks import check_max_steps, check_start, check_time, concrete, time_dtype
from ..._interfaces._model import AbstractModel
from ..._jax._loops import while_loop
from ..._jax._members_apart import members_apart
from ..._jax._vma import promote
from ..._option_names import knows_other_names
from ..._same_code import filter_jit
from ..._status import Status, raise_for_status
from ..._types import Args, IntScalarLike, RealScalarLike, Y
from .._read_diffrax import default_tolerances
from .._solution import Solution, Stats
from ..control._pid import Tolerances, scaled_error
from ..linear._entries import DenseMatrix
from ..methods._ravel import flattened, unflattened
from ..terms._explain import check_callable
from ..terms._field import arrays_of, close_field
from ..terms._suits import blaming_state, check_suits
from ._conserved import LinearQuantities, check_conserved, conserved_quantities, rate_of, with_jacobian
from ._implicit_root import steady_root

# Pseudo-transient continuation: a model is followed to rest by rough implicit steps that grow.
#
# A step of length $h$ solves $(1/h - f'(y)) \, \delta = f(y)$: it follows the solution where it is short, and is
# Newton's step where it is long. So a state at rest is found that the model itself comes to, where a root finder ends
# at any root, as one with negative amounts. Sums that the rates conserve are conserved by the steps.
#
# Source: C. T. Kelley and D. E. Keyes, SIAM Journal on Numerical Analysis 35 (1998) 508.


_FIRST = 0.1
"""The first step in units of the time in which the model moves."""

_ROUGH = 0.5
"""How much of a component the curvature of the rates may add in a step: enough to stay with the solution."""

_TURNED = 0.75
"""The change of the rates in a step, as part of what they would be: at most 1/2 where solutions come together, and
more where the step is too long for those that part."""

_LONGER, _SHORTER = 3.0, 0.25
"""By how much a step differs from the last one at most. From a step that `_TURNED` admits, three times its length is
not beyond the range of lengths that it refuses."""

_LEFT = 0.5
"""The relative difference between a step and Newton's step at rest, of each component: the step is so long that only
this share of a motion remains after it, however slow."""

_ROUNDINGS = 16
"""Rates that are smaller than the terms of their Jacobian by the precision times this vanish to rounding."""

_DAMPED, _UNDAMPED = 10.0, 0.1
"""By how much the damping of Levenberg's and Marquardt's steps grows where the rates do, and falls where they fall."""

_STUCK = 1e12
"""A damping with which steps are too short to lead anywhere."""


class Settled(NamedTuple):
    """The state at which a model came to rest.

    Attributes:
        x: The state.
        good: Whether it is at rest.
        steps: The number of steps.
    """

    x: Float[Array, " n"]
    good: Bool[Array, ""]
    steps: Int[Array, ""]


class _Carry(NamedTuple):
    """The carry of the loop.

    Attributes:
        x: The state.
        rates: The vector field there.
        jacobian: Its Jacobian there.
        h: The length of the next step, while the model is followed.
        damping: The damping of the next step, while a root is sought.
        starts: Whether the next step only evaluates the vector field, as the first of each part does.
        follows: Whether the model is followed.
        good: Whether it is at rest.
        steps: The number of steps.
    """

    x: Array
    rates: Array
    jacobian: Array
    h: Array
    damping: Array
    starts: Array
    follows: Array
    good: Array
    steps: Array


def settle(
    f: Callable[[Array], Array],
    start: Float[Array, " n"],
    tolerances: Tolerances,
    max_steps: IntScalarLike,
    seeks: bool,
) -> Settled:
    """Follows a vector field to rest; if it does not reach a steady state, looks for a root near the start.

    The second part is the method of Levenberg and Marquardt. It has the loop of the first, since both take a linear
    system, and the rates and their Jacobian after a step. These stand once in the program.

    Newton's step is also short near an unstable root, which the model leaves. So the model is at rest where also a step
    that is long compared with its times is about Newton's, or where the rates vanish to rounding.

    Args:
        f: The vector field, whose Jacobian is regular where it is at rest.
        start: The start.
        tolerances: How long Newton's step may be at the end.
        max_steps: The limit on steps of each part.
        seeks: Whether there is a second part.
    """
    unit, info, dense = jnp.eye(start.size, dtype=start.dtype), jnp.finfo(start.dtype), DenseMatrix(np.eye(start.size))

    def step(carry: _Carry) -> _Carry:
        x, rates, jacobian, h, damping, starts = carry[:6]
        matrix, right = unit / h - jacobian, rates
        if seeks:
            normal = jnp.matmul(jacobian.T, jacobian, precision="highest")
            matrix = jnp.where(carry.follows, matrix, normal + damping * unit * jnp.diagonal(normal)[None])
            right = jnp.where(carry.follows, right, -jnp.matmul(jacobian.T, rates, precision="highest"))
        factors = jax.vmap(dense.factorise)(jnp.stack([-jacobian, matrix]))
        newton, move = jax.vmap(dense.substitute)(factors, jnp.stack([rates, right]))
        newton = jnp.where(jnp.all(rates == 0), 0, newton)
        move = jnp.where(starts, 0, move)
        after, beyond = with_jacobian(f, x + move)
        finite = jnp.all(jnp.isfinite(after)) & jnp.all(jnp.isfinite(move)) & jnp.all(jnp.isfinite(beyond))

        bent = after - rates - jnp.matmul(jacobian, move, precision="highest")
        of_move = jax.tree.map(lambda x: x[1], factors)
        errors = jax.vmap(lambda b: dense.substitute(of_move, b))(jnp.stack([bent, after - rates]))
        size = _ROUGH * jnp.maximum(jnp.abs(x), jnp.abs(x + move)) + tolerances.atol
        bent = jnp.max(jnp.abs(errors[0]) / size, initial=0.0)
        turned = jnp.linalg.norm(errors[1] / size) > 2 * _TURNED * jnp.linalg.norm(move / size)
        near = finite & (bent <= 1) & ~turned
        longer = jnp.clip(0.8 / jnp.sqrt(jnp.maximum(bent, 1e-6)), _SHORTER, _LONGER)
        h = jnp.where(starts, _FIRST / rate_of(beyond[None]), h * jnp.where(near, longer, _SHORTER))

        terms = jnp.matmul(jnp.abs(jacobian), jnp.abs(x), precision="highest")
        vanish = jnp.all(jnp.abs(rates) <= _ROUNDINGS * info.eps * terms)
        slow = near & jnp.all(jnp.abs(move - newton) <= _LEFT * jnp.abs(newton))
        good = ~starts & (scaled_error(newton, x, x, tolerances) <= 1) & (vanish | slow | ~carry.follows)

        smaller = finite & (jnp.linalg.norm(after) < jnp.linalg.norm(rates))
        damping = jnp.where(carry.follows | starts, damping, damping * jnp.where(smaller, _UNDAMPED, _DAMPED))
        taken = starts | jnp.where(carry.follows, near, smaller)
        rates, jacobian = jnp.where(taken, after, rates), jnp.where(taken, beyond, jacobian)
        steps = carry.steps + 1 - starts.astype(jnp.int32)
        left = carry.follows & ~good & ((steps >= max_steps) | ~(h > info.tiny) | ~(h < info.max / _LONGER))
        x = jnp.where(good, x + newton, jnp.where(left, start, jnp.where(taken, x + move, x)))
        steps = jnp.where(left, max_steps, steps)
        return _Carry(
            x, rates, jacobian, h.astype(x.dtype), damping.astype(x.dtype), left, carry.follows & ~left, good, steps
        )

    def going(carry: _Carry) -> Array:
        return ~carry.good & (carry.steps < (2 if seeks else 1) * max_steps) & (carry.damping < _STUCK)

    no, one = jnp.zeros((), bool), jnp.ones((), start.dtype)
    none = jnp.zeros_like(start)
    first = _Carry(start, none, jnp.zeros_like(unit), one, one, ~no, ~no, no, jnp.zeros((), jnp.int32))
    found = while_loop(going, step, first, like=start)
    return Settled(found.x, found.good, found.steps)


@knows_other_names
def steady_state(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    args: Args = None,
    conserved: Callable[[Y], Array] | None = None,
    t: RealScalarLike = 0.0,
    rtol: float | None = None,
    atol: float | None = None,
    solver: optx.AbstractRootFinder | optx.AbstractLeastSquaresSolver | optx.AbstractMinimiser | None = None,
    max_steps: IntScalarLike = 256,
    throw: bool = True,
) -> Solution:
    r"""Finds the steady state (equilibrium), $f(t, y, \mathrm{args}) = 0$, that the model reaches from `y0`.

    By default the model is integrated with implicit steps that grow until they are Newton steps. Conserved quantities,
    such as the total of an enzyme, keep their values at `y0`, although $f$ by itself does not determine them.

    The derivatives follow from the implicit function theorem: one linear solve, for any number of iterations, in
    forward and reverse mode; see `Implicit`. With respect to `y0` they are the derivatives of the conserved quantities.
    If a rate constant of exactly zero conserves a further detected quantity, the steady state jumps as the constant
    becomes positive; its derivative with respect to this constant does not exist, and the returned one is meaningless.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        y0: The start, a PyTree of real arrays. It sets the conserved quantities.
        args: The third argument of the model.
        conserved: A function `conserved(y)` that returns an array of conserved quantities, which may be nonlinear. By
            default a `ReactionNetwork` uses its `conservation_laws()`. For other models, linear conserved quantities
            are detected: they are the left null space that the Jacobians at several states share. A function that
            returns an empty array fixes nothing.
        t: The time at which the model is evaluated.
        rtol: Relative tolerance; by default 1e-6 in float64, 1e-4 in float32.
        atol: Absolute tolerance; by default 1e-9 in float64, 1e-6 in float32.
        solver: An optimistix solver, which finds a root near `y0`, stable or not. By default the model is followed; if
            it does not reach a steady state, the Levenberg-Marquardt method searches for a root near `y0`, which may be
            unstable. This search is skipped with `conserved`, because several roots may have the same conserved
            quantities.
        max_steps: The maximum number of iterations of each of them.
        throw: Whether to raise an error if no root is found; under a transformation check `status`.

    Returns:
        A `Solution` with `ts` of shape `(1,)`, which holds `t`, and `ys` as from `solve`; NaN if no root was found. Its
        status is `undetermined` if the Jacobian is singular even with the conserved quantities fixed, or if a detected
        quantity is not conserved: rate constants that differ widely may cause this in float32.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If `t` or `max_steps` is out of range, or a number in `y0` is known and not finite.
        SolveError: If no root is found and `throw` is set.

    Source:
        C. T. Kelley and D. E. Keyes, Convergence analysis of pseudo-transient continuation, SIAM Journal on Numerical
        Analysis 35 (1998) 508.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def level(rate):
            return sciml.steady_state(lambda t, y, args: 1.0 - rate * y**2, jnp.ones(()), throw=False).ys[-1]

        assert abs(float(level(jnp.array(4.0))) - 0.5) < 1e-4  # 1 / sqrt(rate)
        assert abs(float(jax.grad(level)(jnp.array(4.0))) + 0.0625) < 1e-4

        exchange = lambda t, y, args: jnp.stack([y[1] - 2 * y[0], 2 * y[0] - y[1]])
        ys = sciml.steady_state(exchange, jnp.array([1.0, 0.0])).ys
        assert jnp.allclose(ys, jnp.array([1 / 3, 2 / 3]))  # the sum is conserved
        ```
    """
    y0 = check_start(y0)
    dtype = time_dtype(y0)
    check_callable(model)
    check_suits(model, y0, "`jax.vmap` of this")
    check_conserved(conserved, y0)
    if conserved is None and isinstance(model, AbstractModel) and hasattr(model, "conservation_laws"):
        laws: Any = model
        conserved = _Sums(jnp.asarray(laws.conservation_laws(), dtype))
    kinds = (optx.AbstractRootFinder, optx.AbstractLeastSquaresSolver, optx.AbstractMinimiser)
    if solver is not None and not isinstance(solver, kinds):
        raise TypeError(f"`solver` must be an optimistix solver such as `optimistix.Newton(...)`, but is {solver!r}.")
    defaults = default_tolerances(dtype)
    rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), defaults))
    t, max_steps = check_time(t, "t", dtype), check_max_steps(max_steps)
    with blaming_state(model, y0):
        sol = _find(model, y0, arrays_of(args), t, conserved, rtol, atol, solver, max_steps)
    if throw and concrete(sol.status):
        raise_for_status(sol.status, where="steady_state")
    return sol


def _tolerances(rtol: Any, atol: Any, dtype: Any) -> Tolerances:
    return Tolerances(jnp.asarray(rtol, dtype), jnp.asarray(atol, dtype))


class _Sums(eqx.Module):
    """Sums of a state that is one array."""

    laws: Array

    def __call__(self, y: Array) -> Array:
        return jnp.matmul(self.laws, y, precision="highest")


@filter_jit
def _find(model: Callable, y0: Y, args: Args, t: Any, conserved: Any, *options: Any) -> Solution:
    return members_apart(lambda *given: _found(*given, *options))(model, y0, args, t, conserved)


def _found(
    model: Callable, y0: Y, args: Args, t: Any, conserved: Any, rtol: Any, atol: Any, solver: Any, max_steps: Any
) -> Solution:
    field, operands = close_field(model, t, y0, args)
    t, y0, operands = promote((t, y0, operands))
    quantities = conserved_quantities(lambda y: field(t, y, operands), y0, conserved)
    numbers, rest = eqx.partition(quantities, eqx.is_array)
    start, constants = jax.lax.stop_gradient((flattened(y0), (t, operands, numbers)))
    constants = (*constants, start)

    def slope(x, constants):
        t, operands, numbers, start = constants
        narrow = x.astype(start.dtype)
        slopes = flattened(field(t, unflattened(narrow, y0), operands))
        return (slopes - eqx.combine(numbers, rest).term(narrow, start)).astype(x.dtype)

    if solver is None:
        close = _tolerances(rtol, atol, t.dtype)
        followed = settle(
            lambda x: slope(x, constants), start, close, max_steps, isinstance(quantities, LinearQuantities)
        )
        x, ended, taken = followed.x, followed.good, followed.steps
    else:
        # optimistix mixes dtypes where the state's is narrower than JAX's default
        wide = start.astype(max(start.dtype, jnp.zeros(()).dtype, key=lambda dtype: dtype.itemsize))
        found = optx.root_find(slope, solver, wide, constants, max_steps=max_steps, throw=False)
        x, ended = found.value.astype(start.dtype), found.result == optx.RESULTS.successful
        taken = jnp.asarray(found.stats["num_steps"], jnp.int32)
    y = unflattened(x, y0)
    # an iteration that has stopped is a Newton step away from the root at most, up to its tolerances
    tolerances = _tolerances(1e3 * rtol, 1e3 * atol, t.dtype)
    root = steady_root(lambda y: field(t, y, operands), y, y0, quantities, tolerances)
    status = jnp.where(root.conserved, int(Status.successful), int(Status.invalid_argument))
    status = jnp.where(root.determined, status, int(Status.undetermined))
    # Newton's step, by which an iteration ends, may not be short where the matrix is singular
    there = jnp.where(ended, root.close | ~root.determined, root.close & ~root.determined)
    status = jnp.where(there, status, int(Status.diverged)).astype(jnp.int32)
    good = status == int(Status.successful)
    # a factor, which also makes derivatives NaN
    ys = jax.tree.map(lambda x: (x * jnp.where(good, 1, jnp.nan).astype(x.dtype))[None], root.y)
    none = jnp.zeros_like(taken)
    reached = jnp.where(good, t, jnp.full_like(t, jnp.nan))
    return Solution(t[None], ys, status, reached, Stats(taken, none, none - 1, taken))
