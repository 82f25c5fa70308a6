"""The least-squares problem behind a fit, and its derivatives by whichever mode the model allows."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from .._same_code import filter_jit
from .._status import SolveError
from .._warn import warn
from ._selection import ParameterSelection


class LeastSquaresProblem(eqx.Module):
    r"""Residuals $r(z)$ of the free variables $z$, with loss $\tfrac12 \lVert r \rVert^2$.

    Attributes:
        model: The model as it was given; only its fitted leaves change.
        data: Whatever was given to `fit` as data.
        selection: The fitted leaves and their transforms.
        residuals: `residuals(model, data)`.
        forward: Whether the residuals support forward-mode differentiation.
        reverse: Whether reverse-mode differentiation does; False if that was not asked.
        size: The number of residuals.
    """

    model: Any
    data: Any
    selection: ParameterSelection
    residuals: Callable
    forward: bool = eqx.field(static=True, default=False)
    reverse: bool = eqx.field(static=True, default=False)
    size: int = eqx.field(static=True, default=0)

    def residual(self, z: Float[Array, " p"]) -> Float[Array, " m"]:
        """Returns all residuals as one vector in the optimiser's dtype."""
        leaves = jtu.tree_leaves(self.residuals(self.selection.replace(self.model, z), self.data))
        parts = []
        for leaf in map(jnp.asarray, leaves):
            # |r|^2 of a complex residual is the sum over its two parts.
            parts += [leaf.real, leaf.imag] if jnp.iscomplexobj(leaf) else [leaf]
        return jnp.concatenate([part.reshape(-1).astype(self.selection.dtype) for part in parts])

    def residual_and_jacobian(self, z: Float[Array, " p"]) -> tuple[Float[Array, " m"], Float[Array, "m p"]]:
        """Returns the residuals and $dr/dz$ by the cheaper of the modes that work.

        The residuals' reverse-mode derivative is a product with that matrix, so that a least-squares
        solver that differentiates once more computes nothing twice. The matrix itself is a constant.
        """
        forward = self.forward and (self.selection.size <= self.size or not self.reverse)
        return _with_matrix(self.residual, jax.jacfwd if forward else jax.jacrev, z)

    def loss(self, z: Float[Array, " p"]) -> Float[Array, ""]:
        """Returns half the sum of squares; its gradient in reverse mode always works."""
        r = self.residual(z) if self.reverse else self.residual_and_jacobian(z)[0]
        return 0.5 * jnp.sum(r**2)


def _with_matrix(fn: Callable, jacobian_of: Callable, z: Float[Array, " p"]) -> tuple[Array, Array]:
    r"""Evaluates `fn(z)` and its Jacobian $J$, with a reverse-mode rule that uses $J$.

    With $r = f(z)$ the cotangent of $z$ is $\bar z = J^T \bar r$; the cotangent of $J$, which needs second derivatives,
    is dropped.
    """

    def value_and_matrix(z):
        def twice(z):  # with `has_aux` the value comes from the same evaluation as the Jacobian
            value = fn(z)
            return value, value

        jac, value = jacobian_of(twice, has_aux=True)(z)
        return value, jac

    @jax.custom_vjp
    def call(z):
        return value_and_matrix(z)

    def forward(z):
        value, jac = value_and_matrix(z)
        return (value, jac), jac

    def backward(jac, cotangents):
        return (cotangents[0] @ jac,)

    call.defvjp(forward, backward)
    return call(z)


def _refused(trace: Callable[[], Any]) -> Exception | None:
    """Returns None if `trace` can be traced, and the error otherwise."""
    try:
        jax.eval_shape(trace)
    except (TypeError, ValueError, NotImplementedError) as error:
        return error
    return None


def _check_signature(residuals: Callable) -> None:
    try:
        inspect.signature(residuals).bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"`residuals` is called as `residuals(model, data)`, but its signature does not allow this: {error}. Add "
            "a second argument `data` (None if `fit` got no data)."
        ) from None
    except ValueError:  # no signature to be had, as of some built-in functions
        return


def pose(
    model: Any, data: Any, selection: ParameterSelection, residuals: Callable, by_jacobians: bool
) -> tuple[LeastSquaresProblem, Any]:
    """Checks what `residuals` returns and by which modes it can be differentiated.

    Reverse mode is tried only if it is used where it works: a trace of a solve's gradient takes a second.

    Args:
        model: The model.
        data: The second argument of `residuals`.
        selection: The fitted leaves.
        residuals: The residuals.
        by_jacobians: Whether the optimiser only needs Jacobians, and no gradient of the loss.

    Returns:
        The problem, and the narrowest floating dtype among parameters and residuals, which limits the precision of the
        fit.

    Raises:
        TypeError: If a residual is not a floating-point array.
        ValueError: If there are no residuals, or neither mode of differentiation works.
    """
    _check_signature(residuals)
    z = selection.flatten(model)
    out = eqx.filter_eval_shape(lambda model, data: residuals(model, data), model, data)
    shapes = jtu.tree_leaves(out)
    for leaf in shapes:
        if not isinstance(leaf, jax.ShapeDtypeStruct) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            got = f"dtype {leaf.dtype}" if isinstance(leaf, jax.ShapeDtypeStruct) else type(leaf).__name__
            raise TypeError(
                f"`residuals` must return floating-point arrays, but one of its outputs is of {got}. Return the "
                "scaled differences `(prediction - observation) / sigma`."
            )
    size = sum(int(np.prod(s.shape)) * (2 if jnp.issubdtype(s.dtype, jnp.complexfloating) else 1) for s in shapes)
    if size == 0:
        raise ValueError("`residuals` returned an empty array, but must return one residual per observation.")
    if size == 1 < z.size:
        raise ValueError(
            f"`residuals` returned one number for {z.size} fitted parameters. "
            "Return one residual per observation, not the sum of their squares; a prior is one more residual."
        )
    if [s.shape for s in shapes] == [()]:
        warn(
            "`residuals` returned one number of shape (), whose square is minimised. If it is a loss, return the terms "
            "before they are squared and summed; if it is the only residual, return it with shape (1,).",
        )
    problem = LeastSquaresProblem(model, data, selection, residuals, size=size)
    # A lone jvp through a rule that has no forward mode is refused only when compiled, a batched one when traced.
    no_forward = _refused(lambda: jax.jacfwd(problem.residual)(z))
    without_reverse = by_jacobians and no_forward is None and z.size <= size
    no_reverse = None if without_reverse else _refused(lambda: jax.jacrev(problem.residual)(z))
    if no_forward is not None and no_reverse is not None:
        reasons = (f"{type(error).__name__}: {error}".splitlines()[0] for error in (no_forward, no_reverse))
        raise ValueError(
            "`residuals` can be differentiated neither in forward nor in reverse mode.\n"
            "  forward: {}\n  reverse: {}".format(*reasons)
        ) from no_reverse
    reverse = no_reverse is None and not without_reverse
    problem = LeastSquaresProblem(model, data, selection, residuals, no_forward is None, reverse, size)
    dtypes = [*selection.dtypes, *(s.dtype for s in shapes)]
    return problem, min(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)


@filter_jit
def evaluate(problem: LeastSquaresProblem, zs: Float[Array, "starts p"]) -> Float[Array, "starts m"]:
    """Returns the residuals at each start, compiled; a single one runs without a batch axis."""
    return problem.residual(zs[0])[None] if zs.shape[0] == 1 else jax.vmap(problem.residual)(zs)


def residual_at(problem: LeastSquaresProblem) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the residuals as a function of a NumPy vector; NaN where the model raises."""

    def residual(z: np.ndarray) -> np.ndarray:
        try:
            return np.asarray(evaluate(problem, jnp.asarray(z, problem.selection.dtype)[None])[0])
        except (SolveError, eqx.EquinoxRuntimeError):  # a solve at parameters that no solver reaches
            return np.full(problem.size, np.nan)

    return residual


def failed_solve(problem: LeastSquaresProblem, z: Float[Array, " p"]) -> str:
    """Returns how a solve within the residuals fails, as a sentence to append; empty if none reports a failure.

    Compiled programs cannot raise, so it evaluates once more without compiling all of it.
    """
    try:
        problem.residual(z)
    except SolveError as error:
        return f" A solve within `residuals` fails there: {error}"
    except Exception:  # what is only meant to be compiled
        return ""
    return ""


@filter_jit
def jacobian(problem: LeastSquaresProblem, z: Float[Array, " p"]) -> Float[Array, "m p"]:
    """Returns the Jacobian of the residuals, compiled."""
    return problem.residual_and_jacobian(z)[1]


def check_start(problem: LeastSquaresProblem, zs: Float[Array, "starts p"]) -> None:
    """Checks that the loss is finite at one start at least.

    Raises:
        ValueError: Naming which residuals are not finite.
    """
    rows = np.asarray(evaluate(problem, zs))
    with np.errstate(over="ignore", invalid="ignore"):
        losses = 0.5 * np.sum(rows**2, axis=1)
    if np.isfinite(losses).any():
        return
    bad = np.flatnonzero(~np.isfinite(rows[0]))
    if bad.size == 0:
        raise ValueError(
            "the initial sum of squares overflows although every residual is finite. Scale the residuals by the "
            "observations' standard deviations."
        )
    shown = ", ".join(map(str, bad[:10])) + (", ..." if bad.size > 10 else "")
    many = f" The loss is not finite at any of the {len(zs)} starts." if len(zs) > 1 else ""
    missing = sum(
        int(np.isnan(np.asarray(leaf)).sum()) for leaf in jtu.tree_leaves(problem.data) if eqx.is_inexact_array(leaf)
    )
    cause = (
        f"The data contain {missing} NaN: drop missing observations in `residuals`, for example with `jnp.where`."
        if missing
        else failed_solve(problem, zs[0]).strip()
        or "The model may blow up or leave its domain at the initial parameters (the logarithm of a negative "
        "prediction, a solve that fails): start from other values, or constrain them with `positive` or `bounds`."
    )
    raise ValueError(
        f"{bad.size} of {rows.shape[1]} residuals are not finite at the initial parameters (residuals {shown}).{many} "
        f"{cause}"
    )
