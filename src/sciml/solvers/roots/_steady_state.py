"""`steady_state`: where a vector field vanishes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array

from ..._checks import check_max_steps, check_state, check_time, concrete, time_dtype
from ..._interfaces._model import AbstractModel
from ..._jax._members_apart import members_apart
from ..._jax._vma import promote
from ..._option_names import knows_other_names
from ..._same_code import filter_jit
from ..._status import Status, raise_for_status
from ..._types import Args, IntScalarLike, RealScalarLike, Y
from .._read_diffrax import default_tolerances
from .._solution import Solution, Stats
from ..control._pid import Tolerances
from ..methods._ravel import flattened, unflattened
from ..terms._explain import check_callable
from ..terms._field import arrays_of, close_field
from ..terms._suits import blaming_state, check_suits
from ._conserved import LinearQuantities, check_conserved, conserved_quantities
from ._implicit_root import steady_root
from ._settle import settle


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
    r"""Finds the state at rest, $f(t, y, \mathrm{args}) = 0$, that the model comes to from `y0`.

    By default the model is followed by implicit steps that grow, until they are Newton's. Conserved quantities, such as
    the total of an enzyme, keep their values at `y0`, although $f$ by itself does not determine them.

    The derivatives follow from the implicit function theorem: one linear solve, whatever the number of iterations, in
    forward and reverse mode; see `Implicit`. With respect to `y0` they are the derivatives of the conserved quantities.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        y0: The start, a PyTree of real arrays. It sets the conserved quantities.
        args: The third argument of the model.
        conserved: A function `conserved(y)` that returns an array of conserved quantities, which may be nonlinear. By
            default a `ReactionNetwork` gives its `conservation_laws()`. For other models, linear conserved
            quantities are found: they are the left null space that the Jacobians at several states share. A function
            that returns an empty array holds nothing.
        t: The time at which the model is evaluated.
        rtol: Relative tolerance; by default 1e-6 in float64, 1e-4 in float32.
        atol: Absolute tolerance; by default 1e-9 in float64, 1e-6 in float32.
        solver: An optimistix solver, which looks for a root near `y0`, stable or not. By default the model is followed;
            if it does not come to rest, Levenberg's and Marquardt's method looks for a root near `y0`. That root may be
            unstable. It is not sought with `conserved`, whose level may have several roots.
        max_steps: The limit on iterations of each of them.
        throw: Whether to raise an error if none is found; under a transformation look at `status`.

    Returns:
        A `Solution` with `ts` of shape `(1,)`, which holds `t`, and `ys` as from `solve`; NaN if no root was found. Its
        status is `undetermined` where the Jacobian is singular although conserved quantities are held, or where a
        quantity that was found is not conserved: rate constants that differ widely may cause this in float32.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If `t` or `max_steps` is out of range.
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
    y0 = check_state(y0)
    if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(y0)):
        raise TypeError("`y0` must be real, but has a complex leaf. Solve for its real and imaginary parts.")
    dtype = time_dtype(y0)
    check_callable(model)
    check_suits(model, y0, "`jax.vmap` of this")
    check_conserved(conserved, y0)
    if conserved is None and isinstance(model, AbstractModel) and hasattr(model, "conservation_laws"):
        conserved = _Sums(jnp.asarray(model.conservation_laws(), dtype))
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
