"""`fit`: chosen leaves of a model to data, by least squares."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from .._option_names import knows_other_names
from .._progress import ProgressOption, check_progress
from .._status import SolveError, Status
from .._types import Key, RealScalarLike
from .._warn import warn
from ._directions import in_words
from ._drive import drive
from ._gradients_reach import HorizonOption, check_horizon, reach, status_within, warned_at_start
from ._optimisers import AbstractOptimiser, as_optimiser, takes_jacobians
from ._problem import LeastSquaresProblem, failed_solve, jacobian, pose, residual_at
from ._result import Fit
from ._selection import ParameterSelection, listed, select

# A direction is followed where one standard error is more than this part of a parameter's own scale ...
_WIDE = 0.5
# ... up to this many of them, the widest, and believed where the loss rises by this factor more or less than promised.
_MOST_DIRECTIONS = 8
_FACTOR = 4.0
# A standard error that is more than this many times a parameter's own scale is reported.
_LOOSE = 100.0


class Laplace(NamedTuple):
    r"""A normal approximation in the free variables.

    Attributes:
        sigma: Standard deviation of one residual.
        factor: A matrix $F$ with covariance $F F^T$, or None if there is no such matrix.
        covariance: $p \times p$; infinite in rows and columns that the data do not determine.
        undetermined: The parameters that the data do not determine.
        rough: The parameters whose standard errors the loss contradicts, see `compared_with_loss`.
    """

    sigma: float
    factor: np.ndarray | None
    covariance: np.ndarray
    undetermined: np.ndarray
    rough: np.ndarray


def laplace(jacobian: np.ndarray, loss: float, sigma: float | None, eps: float) -> Laplace:
    r"""Returns $s^2 (J^T J)^{-1}$ with $s^2 = 2\,\text{loss}/(m - p)$, or with the given $s$.

    Near the optimum the log-likelihood of residuals with standard deviation $s$ is $-\lVert r \rVert^2 / 2 s^2$, and
    its Hessian is $-J^T J / s^2$ where the curvature of the residuals is neglected (Gauss-Newton). The singular value
    decomposition of $J$, with its columns scaled to unit length, separates directions that the data do not determine
    from directions whose units are merely small.

    Args:
        jacobian: $J$, shape `(m, p)`.
        loss: Half the sum of squares.
        sigma: The residuals' known standard deviation, or None to estimate it.
        eps: Relative rounding error of the residuals.
    """
    m, p = jacobian.shape
    if sigma is None:
        sigma = float(np.sqrt(2 * loss / (m - p))) if m > p else float("nan")
    jacobian = np.asarray(jacobian, np.float64)
    if not np.isfinite(jacobian).all() or not np.isfinite(sigma):
        return Laplace(sigma, None, np.full((p, p), np.nan), np.zeros(p, bool), np.zeros(p, bool))
    lengths = np.linalg.norm(jacobian, axis=0)
    units = np.where(lengths > 0, lengths, 1)
    _, s, vt = np.linalg.svd(jacobian / units)  # full: vt is p by p even where m < p
    s = np.concatenate([s, np.zeros(p - len(s))])
    good = s > 10 * eps * max(m, p) * s.max(initial=np.finfo(float).tiny)
    factor = sigma * (vt.T / np.where(good, s, 1))[:, good] / units[:, None]
    covariance = factor @ factor.T
    undetermined = (np.abs(vt[~good]) > np.sqrt(eps)).any(axis=0)
    covariance[undetermined] = np.inf
    covariance[:, undetermined] = np.inf
    return Laplace(sigma, factor if good.all() else None, covariance, undetermined, np.zeros(p, bool))


def among(found: Laplace, free: np.ndarray) -> Laplace:
    """Returns the approximation of some parameters as one of all, in which the other parameters have no variance.

    Args:
        found: The approximation of the free parameters.
        free: The indices of these parameters among all parameters. Samples leave the others where they are; their
            covariances are NaN.
    """
    rows, size = np.flatnonzero(free), len(free)
    block = np.ix_(rows, rows)
    covariance, factor = np.full((size, size), np.nan), np.zeros((size, size))
    undetermined, rough = np.zeros(size, bool), np.zeros(size, bool)
    covariance[block], undetermined[rows], rough[rows] = found.covariance, found.undetermined, found.rough
    if found.factor is None:
        return Laplace(found.sigma, None, covariance, undetermined, rough)
    factor[block] = found.factor
    return Laplace(found.sigma, factor, covariance, undetermined, rough)


def compared_with_loss(
    found: Laplace, z: np.ndarray, scale: np.ndarray, residual: Callable[[np.ndarray], np.ndarray]
) -> Laplace:
    r"""Compares the widest directions with the loss itself, and shortens those along which it rises sooner.

    One standard error along a column $f$ of the factor promises a loss that is higher by $s^2 / 2$. If two parameters
    have the same effect, such as two equal rates, the Jacobian does not resolve their difference and promises a much
    wider range than the loss allows. Such a column is shortened to the distance at which the loss has risen by
    $s^2 / 2$, on the nearer side.

    Args:
        found: The approximation by the Jacobian.
        z: The optimum, in the free variables.
        scale: The size of a large change of each free variable.
        residual: The residuals as a function of the free variables; not finite where the model fails.

    Returns:
        The same with other columns and covariance, where `rough` marks the affected parameters.
    """
    if found.factor is None or found.sigma == 0 or not z.size:
        return found
    factor, rough = found.factor.copy(), found.rough.copy()
    widths = np.max(np.abs(factor) / scale[:, None], axis=0)
    if not (widths > _WIDE).any():  # nothing to compare, and no program of the residuals alone to compile
        return found
    promised = 0.5 * found.sigma**2
    start = np.asarray(residual(z), np.float64)

    def rise(step: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            change = np.asarray(residual(z + step), np.float64) - start
            value = float(change @ (start + 0.5 * change))  # no difference of two large sums
        return value if np.isfinite(value) else np.inf

    for k in np.argsort(-widths)[:_MOST_DIRECTIONS]:
        if not widths[k] > _WIDE:
            break
        column = factor[:, k].copy()
        sides = {sign: rise(sign * column) for sign in (1.0, -1.0)}
        if all(promised / _FACTOR <= found_rise <= promised * _FACTOR for found_rise in sides.values()):
            continue
        lengths = [_length(rise, sign * column, promised) for sign, value in sides.items() if value > promised]
        factor[:, k] = min(lengths, default=1.0) * column
        share = np.abs(column) / scale
        rough |= share > 0.1 * share.max()
    return found._replace(factor=factor, covariance=factor @ factor.T, rough=rough)


def loose(found: Laplace, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tells parameters whose standard errors are a hundred times their own scale.

    The loss may well be the parabola that they assume, as for a linear model with two nearly equal terms.

    Args:
        found: The approximation.
        scale: The size of a large change of each free variable, at the optimum or at the start, whichever is larger.

    Returns:
        These parameters, and the widest direction, in units of the scales.
    """
    if found.factor is None:
        return np.zeros(len(scale), bool), np.zeros(len(scale))
    relative = found.factor / scale[:, None]
    wide = np.linalg.norm(relative, axis=1) > _LOOSE
    return wide & ~found.rough, np.linalg.svd(relative)[0][:, 0]


def _length(rise: Callable[[np.ndarray], float], step: np.ndarray, promised: float) -> float:
    """Returns the part of a step at which the loss has risen as promised, to some percent."""
    low, high = 1e-12, 1.0
    while high / low > 1.05:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if rise(middle * step) > promised else (middle, high)
    return float(np.sqrt(low * high))


_MOST_PARAMETERS = 1000


@knows_other_names
def fit(
    model: PyTree,
    residuals: Callable[[Any, Any], PyTree],
    data: PyTree = None,
    *,
    where: Callable[[Any], Any] | None = None,
    positive: bool | Callable[[Any], Any] | None = None,
    bounds: Sequence = (),
    transforms: Sequence = (),
    solver: Any = None,
    max_steps: int = 1000,
    rtol: RealScalarLike | None = None,
    atol: RealScalarLike | None = None,
    starts: int = 1,
    spread: RealScalarLike = 1.0,
    key: Key | None = None,
    sigma: RealScalarLike | None = None,
    covariance: bool | None = None,
    horizon: HorizonOption = None,
    progress: ProgressOption = True,
    throw: bool = True,
) -> Fit:
    r"""Fits selected leaves of a model to data by least squares.

    `fit` minimises $\tfrac12 \sum_i r_i^2$ over the parameters. The residuals $r$ = `residuals(model, data)` are
    already scaled: $(\text{prediction} - \text{observation})/\sigma$ for normal noise,
    $\log(\text{prediction}/\text{observation})$ for log-normal noise. A prior is one more residual,
    $(\theta - \mu)/\tau$.

    `fit` is a host loop around compiled segments of steps: call it outside of `jit` and `vmap`. The residuals may
    contain `sciml.solve` with any adjoint. Jacobians and gradients use forward or reverse mode, whichever the residuals
    support with fewer passes: forward mode (`adjoint=sciml.adjoints.Direct()`) costs one pass per parameter, reverse
    mode one per residual. The optimiser computes in the default floating dtype; the model keeps its own dtype.

    Args:
        model: The model with its initial parameters: any PyTree, such as an `eqx.Module` or a tuple of a module and an
            initial state.
        residuals: `residuals(model, data)`, which returns a PyTree of floating-point arrays, $m$ numbers in total.
        data: The second argument of `residuals`; NumPy arrays become JAX arrays.
        where: Selects the leaves (or subtrees) to fit, as in `eqx.tree_at`. None fits every floating-point array.
        positive: Selects the fitted leaves that must stay positive, or True for all of them. They are fitted as
            logarithms.
        bounds: Tuples `(selector, lower, upper)`; None for an open side. Bounds are numbers, or arrays that broadcast
            against the leaf, in its unit.
        transforms: Tuples `(selector, transform)` with an instance of `sciml.training.AbstractTransform`, for other
            constraints.
        solver: None for Levenberg-Marquardt; an optimistix least-squares solver (`LevenbergMarquardt`, `GaussNewton`,
            `Dogleg`) or minimiser (`BFGS`, ...) with its own tolerances; or an optax optimiser (`optax.adam(1e-2)`,
            `optax.lbfgs()`), which gets the gradient of the loss in the transformed space. Least-squares solvers scale
            the parameters so that the columns of the first Jacobian have equal lengths.
        max_steps: The maximum number of steps per start. Reaching it is a failure for an optimistix solver, and a
            normal end for an optax optimiser.
        rtol: Relative tolerance, by default `1e-8` in float64 and `1e-4` in float32. Levenberg-Marquardt stops when a
            step changes every parameter and every residual by less than `atol + rtol * |value|`. Every optimistix
            solver stops when the loss has not decreased by this fraction in 30 steps. An optax optimiser stops when
            $|g_i| \max(|z_i|, 1)$ is at most `atol + rtol * loss` for every transformed parameter $z_i$ and its
            gradient $g_i$.
        atol: Absolute tolerance, with the same default as `rtol`.
        starts: The number of initial points. The first is the given model; all starts run in one `vmap`, and the lowest
            loss wins.
        spread: Standard deviation of the other initial points around the first, in the transformed space: in units of
            the parameter's magnitude for a free parameter, of a factor $e$ for a positive one, of the logit for a
            bounded one.
        key: A random key, required if `starts > 1`. Start $i$ uses `fold_in(key, i)`.
        sigma: The standard deviation of the residuals if it is known (1 for residuals in units of their standard
            errors). None estimates $s^2 = 2\,\text{loss}/(m - p)$.
        covariance: Whether to compute $s^2 (J^T J)^{-1}$. None computes it for up to 1000 parameters.
        horizon: A function of the model that returns `sciml.inspect.horizon(...)` of its solution, over the interval
            that the residuals use. It is evaluated before the first and after the last step; `fit` warns if gradients
            become meaningless before the end of the solution.
        progress: Whether to show a progress bar, or a function that is called with a `Progress` twice a second.
        throw: Whether to raise an error if the optimiser fails; otherwise check `Fit.status`.

    Returns:
        A `Fit`: the fitted model, its covariance and standard errors, the loss history, and `Fit.sample`, which draws
        models from the estimated uncertainty.

    Raises:
        ValueError: If nothing is selected, an initial value is outside of its range, the residuals are not finite at
            the start, or an argument is invalid.
        TypeError: If a selected leaf or a residual is not a floating-point array, or `fit` is called under a transform.
        SolveError: If `throw` is set and the optimiser fails.

    Warns:
        UserWarning: If the data do not determine some parameters, or only so weakly that standard errors are not
            reliable or a hundred times larger than the parameters; if the residuals are one number of shape `()`, which
            is usually a loss; or if the solution extends beyond its `horizon`.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        import sciml

        class Decay(sciml.AbstractModel):
            rate: jnp.ndarray

            def __call__(self, t, y, args):
                return -self.rate * y

        times = jnp.linspace(0.1, 2.0, 12)
        data = 2.0 * np.exp(-1.5 * np.asarray(times)) * np.exp(0.01 * np.cos(9 * np.arange(12)))

        def residuals(model, data):
            decay, y0 = model
            sol = sciml.solve(decay, y0, t0=0.0, t1=2.0, saveat=times)
            return jnp.log(sol.ys) - jnp.log(data)

        fit = sciml.fit((Decay(jnp.array(1.0)), jnp.array(1.0)), residuals, data, positive=True, progress=False)
        decay, y0 = fit.model
        assert abs(float(decay.rate) - 1.5) < 0.03 and abs(float(y0) - 2.0) < 0.03
        ```
    """
    if not callable(residuals):
        got = type(residuals).__name__
        raise TypeError(
            f"`residuals`, the second argument of `fit`, must be a function `residuals(model, data)`, got {got}."
        )
    check_progress(progress, where="fit")
    check_horizon(horizon, "fit")
    _check_arguments(model, data, max_steps, starts, spread, key, sigma)
    data = jtu.tree_map(_as_array, data)
    model, selection = select(jtu.tree_map(_as_array, model), where, positive, bounds, transforms)
    problem, narrowest = pose(model, data, selection, residuals, takes_jacobians(solver))
    default = 1e-8 if jnp.finfo(narrowest).bits >= 64 else 1e-4
    rtol = _check_tolerance("rtol", default if rtol is None else _float(rtol))
    atol = _check_tolerance("atol", default if atol is None else _float(atol))
    sigma = None if sigma is None else _float(sigma)
    optimiser = as_optimiser(solver, rtol, atol)
    zs = _initial_points(selection, selection.flatten(model), starts, _float(spread), key if starts > 1 else None)
    warned_at_start(horizon, model, "fit")
    outcome = drive(problem, optimiser, zs, max_steps=max_steps, rtol=rtol, progress=progress)
    losses = outcome.losses
    best = outcome.best
    status = Status(int(outcome.codes[best]))
    message = _message(optimiser, status, int(outcome.steps[best]), max_steps)
    z = outcome.zs[best]
    if status in (Status.nonfinite, Status.max_steps_reached):
        message += failed_solve(problem, z)
    found, beyond = reach(horizon, selection.replace(model, z), "fit")
    message = f"{message} {beyond}" if beyond else message
    if throw and status != Status.successful:
        if status != Status.max_steps_reached or optimiser.unfinished_is_failure:
            raise SolveError(message, outcome.codes)
    if beyond:
        warn(f"`fit`: {beyond}")
    wanted = selection.size <= _MOST_PARAMETERS if covariance is None else covariance
    jac = None
    if wanted:  # the one at the last but one point differs by less than the tolerance
        if outcome.jacobians is not None and status == Status.successful:
            jac = outcome.jacobians[best]
        else:
            jac = np.asarray(jacobian(problem, z))
    return _result(
        problem,
        z,
        sigma,
        jac,
        narrowest,
        loss=float(losses[best]),
        message=message,
        status=status_within(found, status),
        horizon=found,
        n_steps=int(outcome.steps[best]),
        history=outcome.history[best, : outcome.steps[best] + 1],
        start_losses=losses,
        start_statuses=outcome.codes,
    )


def _as_array(leaf: Any) -> Any:
    numeric = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biufc"
    return jnp.asarray(leaf) if numeric else leaf


def _float(value: RealScalarLike) -> float:
    return float(np.asarray(value))


def _check_arguments(model: Any, data: Any, max_steps: Any, starts: Any, spread: Any, key: Any, sigma: Any) -> None:
    if any(isinstance(leaf, Tracer) for leaf in jtu.tree_leaves((model, data))):
        raise TypeError(
            "`fit` was called under a JAX transform, but it is a host loop around compiled steps: call it outside of "
            "`jit`, `vmap` and `grad`. For several initial points use `starts`."
        )
    for name, value in (("max_steps", max_steps), ("starts", starts)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer, but got {value!r}.")
    if starts > 1 and key is None:
        raise ValueError(f"`starts={starts}` draws random initial points and requires `key=jax.random.key(0)`.")
    if not (np.isfinite(spread) and spread > 0):
        raise ValueError(f"`spread` must be a positive number, but got {spread!r}.")
    if sigma is not None and not (np.isfinite(sigma) and sigma > 0):
        raise ValueError(f"`sigma` must be a positive number or None, but got {sigma!r}.")


def _check_tolerance(name: str, value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"`{name}` must be a finite nonnegative number, but got {value!r}.")
    return value


def _initial_points(
    selection: ParameterSelection, z: Float[Array, " p"], starts: int, spread: float, key: Key | None
) -> Float[Array, "starts p"]:
    """Returns the given point first, then perturbed ones."""
    if key is None:
        return z[None]
    scale = spread * selection.scale(z)
    noise = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), z.shape, z.dtype))(jnp.arange(starts))
    return (z[None] + scale[None] * noise).at[0].set(z)


def _message(optimiser: AbstractOptimiser, status: Status, steps: int, max_steps: int) -> str:
    if status == Status.successful:
        return f"{optimiser.name} converged in {steps} steps."
    if status == Status.max_steps_reached:
        advice = "Raise `max_steps`, loosen the tolerances, scale the parameters, or start closer."
        return f"{optimiser.name} used all `max_steps={max_steps}` steps without meeting its tolerance. {advice}"
    if status == Status.nonfinite:
        cause = "The loss, its gradient or a parameter became NaN or infinite"
        advice = "Lower the learning rate, constrain parameters with `positive` or `bounds`, or start closer."
        return f"{optimiser.name} failed in step {steps}. {cause}. {advice}"
    return f"{optimiser.name} failed in step {steps}. {optimiser.on_divergence}"


def _towards_bound(jacobian: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Returns the parameters whose Gauss-Newton step leads beyond their only bound, which has no free variable.

    The free variable is the logarithm of the distance from the bound: if it falls by more than 1, so does the linear
    model of the parameter. At an optimum that is merely close to the bound this step vanishes.
    """
    jacobian, residuals = np.asarray(jacobian, np.float64), np.asarray(residuals, np.float64)
    with np.errstate(all="ignore"):
        step = -(jacobian.T @ residuals) / np.sum(jacobian**2, axis=0)
    return ~(step >= -1)


def _result(
    problem: LeastSquaresProblem,
    z: Float[Array, " p"],
    sigma: float | None,
    jac: np.ndarray | None,
    narrowest: Any,
    *,
    message: str,
    loss: float,
    history: np.ndarray,
    start_losses: np.ndarray,
    start_statuses: np.ndarray,
    **fields: Any,
) -> Fit:
    """Adds the uncertainty to the result of the optimiser."""
    selection = problem.selection
    dtype = selection.dtype
    names = selection.names
    model = selection.replace(problem.model, z)
    cov = errors = factor = None
    reason = "it was not requested; pass `covariance=True`."
    freedom = problem.size - selection.size
    s = sigma if sigma is not None else (np.sqrt(2 * loss / freedom) if freedom > 0 else np.nan)
    if jac is not None:
        # a parameter on a bound is held there, since the loss is not a parabola across it; the others get their errors
        # so
        at_bound, at = selection.at_bound(z), np.asarray(z, np.float64)
        scale, whole = np.asarray(selection.scale(z), np.float64), residual_at(problem)
        near = selection.near_only_bound(z, selection.flatten(problem.model))
        if near.any():
            at_bound |= near & _towards_bound(jac, whole(at))
        free, held = ~at_bound, at_bound.any()

        def residual(part: np.ndarray) -> np.ndarray:
            moved = at.copy()
            moved[free] = part
            return whole(moved)

        found = laplace(jac[:, free], float(loss), float(s) if held else sigma, float(jnp.finfo(narrowest).eps))
        found = among(compared_with_loss(found, at[free], scale[free], residual), free)
        slope = np.asarray(selection.slope(z), np.float64)
        with np.errstate(invalid="ignore"):  # an infinite variance times a slope of zero
            natural = found.covariance * np.outer(slope, slope)
        cov = jnp.asarray(natural, dtype)
        errors = selection.tree(model, jnp.asarray(np.sqrt(np.diagonal(natural)), dtype))
        factor = None if found.factor is None else jnp.asarray(found.factor, dtype)
        if held:
            shown = listed(names, at_bound)
            message = (
                f"{message} Note: {shown} ended on a bound and has no standard error; the standard errors of the other "
                "parameters assume that it stays there."
            )
        if found.rough.any():
            doubt = (
                f"the data hardly determine {listed(names, found.rough)}: the loss around the optimum is not the "
                "parabola that standard errors assume. Their reported errors are the distance along a straight line "
                "over which the loss rises by as much as one standard error. Fix some of them with `where`, or add "
                "priors as residuals."
            )
            message = f"{message} Note: {doubt}"
            warn(f"`fit`: {doubt}")
        widest = np.maximum(scale, np.asarray(selection.scale(selection.flatten(problem.model)), np.float64))
        wide, direction = loose(found, widest)
        if wide.any():
            worst = np.nanmax(np.sqrt(np.diagonal(found.covariance)) / widest)
            doubt = (
                f"the data determine {listed(names, wide)} only within standard errors of up to {worst:.1e} times "
                f"their own size. The least certain combination is {in_words(direction, names)} (relative values). Fix "
                "some of them with `where`, or add priors as residuals; see `sciml.inference.identifiability` for "
                "details."
            )
            message = f"{message} Note: {doubt}"
            warn(f"`fit`: {doubt}")
        if found.undetermined.any():
            shown = listed(names, found.undetermined)
            reason = f"the data do not determine {shown}. Fix some of them with `where`, or add priors as residuals."
            message = f"{message} Note: {reason}"
            warn(f"`fit`: {reason}")
        elif not np.isfinite(s):
            reason = (
                f"{problem.size} residuals for {selection.size} parameters do not allow an estimate of the residuals' "
                "standard deviation. Pass `sigma`."
            )
        elif factor is None:
            reason = "the Jacobian of the residuals is not finite at the fitted parameters."
            reason += failed_solve(problem, z) or (
                " A solve that fails, for example with `max_steps_reached`, has no derivative: check `Solution.status` "
                "at `fit.model`."
            )
    return Fit(
        model=model,
        loss=jnp.asarray(loss, dtype),
        sigma=jnp.asarray(s, dtype),
        parameters=selection.natural(z),
        covariance=cov,
        standard_errors=errors,
        history=jnp.asarray(history, dtype),
        message=message,
        names=names,
        start_losses=jnp.asarray(start_losses, dtype),
        start_statuses=jnp.asarray(start_statuses, jnp.int32),
        _selection=selection,
        _z=z,
        _factor=factor,
        _no_factor=reason,
        **fields,
    )
