"""`locate`: a special point of steady states from a guess."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._checks import check_time, concrete, time_dtype
from .._jax._members_apart import members_apart
from .._jax._vma import promote
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._status import raise_for_status
from .._types import Args, RealScalarLike, Y
from ._problem import Arguments, checked, closed
from ._special import Kind, SpecialPoint, as_point, found_near


@knows_other_names
def locate(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    kind: str,
    where: Any = None,
    args: Args = None,
    conserved: Any = None,
    t: RealScalarLike = 0.0,
    throw: bool = True,
) -> SpecialPoint:
    r"""Locates a fold, a Hopf point or a branch point near a guess of the state and of the parameter.

    Newton's method solves for the state, the parameter and the critical eigenvector at once, to about the precision of
    the state. Derivatives by all other parameters follow from the implicit function theorem, in forward and reverse
    mode. The derivative of a branch point holds for changes that preserve it, such as symmetric ones; others turn it
    into two separate branches.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        y0: A guess of the state. The guess of the parameter is its value in the model.
        kind: `"fold"` (saddle-node bifurcation), `"hopf"` or `"branch_point"` (transcritical or pitchfork bifurcation).
        where: Selects the parameter, as in `continuation`.
        args: The third argument of the model.
        conserved: As for `continuation`.
        t: The time at which the model is evaluated.
        throw: Whether to raise an error if there is no such point nearby; under a transformation check `status`.

    Returns:
        A `SpecialPoint` without a first axis, NaN if it was not found.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If `kind` is not one of these, a number of the guess is known and not finite, or `where` does not
            select one number.
        SolveError: If it was not found and `throw` is set.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import bifurcation

        def brusselator(t, y, args):
            x, z = y
            return jnp.stack([args["a"] - (args["b"] + 1) * x + x**2 * z, args["b"] * x - x**2 * z])

        def onset(a):
            args = {"a": a, "b": jnp.array(1.8)}
            point = bifurcation.locate(
                brusselator, jnp.array([1.1, 1.7]), kind="hopf", where=lambda args: args["b"], args=args, throw=False
            )
            return point.parameter

        assert abs(onset(1.0) - 2.0) < 1e-5  # 1 + a^2
        assert abs(jax.grad(onset)(1.0) - 2.0) < 1e-4
        ```
    """
    kinds = [Kind.fold.name, Kind.hopf.name, Kind.branch_point.name]
    if kind not in kinds:
        raise ValueError(f"`kind` must be one of {', '.join(map(repr, kinds))}, but is {kind!r}.")
    given = checked(model, y0, args, conserved, where=where)
    point = _located(*given, conserved, check_time(t, "t", time_dtype(given.y0)), int(Kind[kind]))
    if throw and concrete(point.status):
        raise_for_status(point.status, where="locate")
    return point


@filter_jit
def _located(model: Any, y0: Y, args: Args, leaves: tuple[int, ...], conserved: Any, t: Any, kind: int) -> SpecialPoint:
    def run(model: Any, y0: Y, args: Args, conserved: Any, t: Any) -> SpecialPoint:
        model, y0, args, t = promote((model, y0, args, t))
        problem = closed(Arguments(model, y0, args, leaves), t, conserved)
        wanted = jnp.full_like(problem.start[0], kind, jnp.int32)
        # of the two directions at a branch point the one along which the state changes more
        flat = jnp.zeros_like(problem.start).at[-1].set(1)
        return as_point(problem, found_near(problem, problem.start, jax.lax.stop_gradient(wanted), flat))

    return members_apart(run)(model, y0, args, conserved, t)
