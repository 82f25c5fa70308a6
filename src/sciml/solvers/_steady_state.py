"""`steady_state`: where a vector field vanishes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx

from .._checks import check_max_steps, check_state, check_time, concrete, time_dtype
from .._jax._vma import promote
from .._option_names import knows_other_names
from .._status import Status, raise_for_status
from .._types import Args, IntScalarLike, RealScalarLike, Y
from ._read_diffrax import default_tolerances
from ._solution import Solution, Stats
from .control._pid import Tolerances
from .integrate._integrator import known
from .methods._implicit_root import implicit_root
from .terms._explain import check_callable
from .terms._field import arrays_of, close_field
from .terms._suits import blaming_state, check_suits


@knows_other_names
def steady_state(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    args: Args = None,
    t: RealScalarLike = 0.0,
    rtol: float | None = None,
    atol: float | None = None,
    solver: optx.AbstractRootFinder | optx.AbstractLeastSquaresSolver | optx.AbstractMinimiser | None = None,
    max_steps: IntScalarLike = 256,
    throw: bool = True,
) -> Solution:
    r"""Finds a state at rest, $f(t, y, \mathrm{args}) = 0$, near `y0`.

    The derivatives are those of the implicit function: one linear solve, whatever the number of iterations, in
    forward and reverse mode; see `Implicit`. $\partial f / \partial y$ must be regular at the root.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        y0: Where to start, a PyTree of real arrays. Which of several roots is found, and whether it is a stable one,
            depends on it: where that matters, let `solve` run until nothing moves, with `adjoint=Implicit()`.
        args: What the model takes beside time and state.
        t: The time at which the model is evaluated.
        rtol: Relative tolerance; by default 1e-6 in float64, 1e-4 in float32.
        atol: Absolute tolerance; by default 1e-9 in float64, 1e-6 in float32.
        solver: An optimistix solver; by default `optimistix.LevenbergMarquardt(rtol, atol)`.
        max_steps: The limit on iterations.
        throw: Whether to raise an error if none is found; under a transformation look at `status`.

    Returns:
        A `Solution` with `ts` of shape `(1,)`, holding `t`, and `ys` like that of `solve`; NaN where no root was found.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If `t` or `max_steps` is out of range.
        SolveError: If no root is found and `throw` is set.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def level(rate):
            return sciml.steady_state(lambda t, y, args: 1.0 - rate * y**2, jnp.ones(()), throw=False).ys[-1]

        assert abs(float(level(jnp.array(4.0))) - 0.5) < 1e-4  # 1 / sqrt(rate)
        assert abs(float(jax.grad(level)(jnp.array(4.0))) + 0.0625) < 1e-4
        ```
    """
    y0 = check_state(y0)
    if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(y0)):
        raise TypeError("`y0` must be real, but has a complex leaf. Solve for its real and imaginary parts.")
    check_callable(model)
    check_suits(model, y0, "`jax.vmap` of this")
    kinds = (optx.AbstractRootFinder, optx.AbstractLeastSquaresSolver, optx.AbstractMinimiser)
    if solver is not None and not isinstance(solver, kinds):
        raise TypeError(f"`solver` must be an optimistix solver such as `optimistix.Newton(...)`, but is {solver!r}.")
    dtype = time_dtype(y0)
    defaults = default_tolerances(dtype)
    rtol, atol = (d if x is None else x for x, d in zip((rtol, atol), defaults))
    solver = optx.LevenbergMarquardt(rtol, atol) if solver is None else solver
    t, max_steps = check_time(t, "t", dtype), check_max_steps(max_steps)
    with blaming_state(model, y0):
        sol = _find(model, y0, arrays_of(args), t, rtol, atol, solver, max_steps)
    if throw and concrete(sol.status):
        raise_for_status(sol.status, where="steady_state")
    return sol


@eqx.filter_jit
def _find(model: Callable, y0: Y, args: Args, t: Any, rtol: Any, atol: Any, solver: Any, max_steps: Any) -> Solution:
    field, operands = close_field(model, t, y0, args)
    t, y0, operands = promote((t, y0, operands))
    constant_t, start, constants = jax.lax.stop_gradient((t, y0, operands))

    def narrow(y):
        return jax.tree.map(lambda x, like: x.astype(like.dtype), y, y0)

    def slope(y, rest):
        return jax.tree.map(lambda x, wide: x.astype(wide.dtype), field(rest[0], narrow(y), rest[1]), y)

    # optimistix mixes dtypes where the state's is narrower than JAX's default
    start = jax.tree.map(lambda x: x.astype(max(x.dtype, jnp.zeros(()).dtype, key=lambda d: d.itemsize)), start)
    found = optx.root_find(slope, solver, start, (constant_t, constants), max_steps=max_steps, throw=False)
    good = found.result == optx.RESULTS.successful
    y = known(narrow(found.value), good)
    # an iteration that has stopped is a Newton step away from the root at most, up to its tolerances
    y = implicit_root(
        lambda y: field(t, y, operands), y, Tolerances(*(jnp.asarray(1e3 * x, t.dtype) for x in (rtol, atol)))
    )
    status = jnp.where(good, int(Status.successful), int(Status.diverged)).astype(jnp.int32)
    taken = jnp.asarray(found.stats["num_steps"], jnp.int32)
    none = jnp.zeros_like(taken)
    reached = jnp.where(good, t, jnp.full_like(t, jnp.nan))
    return Solution(t[None], jax.tree.map(lambda x: x[None], y), status, reached, Stats(taken, none, none - 1, taken))
