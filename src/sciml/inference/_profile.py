"""`profile_likelihood`: intervals of parameters by fitting all others again."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_count
from .._jax._loops import scan
from .._parameters import indices_of
from .._same_code import filter_jit
from .._types import RealScalarLike
from .._warn import warn
from ..training._directions import listed
from ..training._selection import leaf_names
from ._climb import ascend, principal
from ._maximum import FlatFunction, Maximum, flat, maximum as find_maximum

# How far beyond the threshold a profile is followed, in roots of the deviance, and by how much a step may grow.
_BEYOND = 1.1
_GROWTH = 2.0
# A step that lands further beyond is taken again, this much shorter; the longest one, in scales of the parameter.
_TOO_FAR = 1.4
_SHORTER = 0.4
_LONGEST = 2.0
# The first step, in scales of the parameter, where the curvature would promise a far longer one.
_FIRST = 0.5


class ProfileLikelihood(eqx.Module):
    r"""Profiles of the likelihood and the intervals that they give; returned by `profile_likelihood`.

    Attributes:
        names: The parameters' names, in the order of the first axis.
        values: The points of the profiles, in the parameters' own units and ascending, shape `(k, 2 points + 1)`; NaN
            beyond the required points.
        deviances: $2 (\log L_{\max} - \log L)$ there, with all other parameters fitted again.
        best: The values of the maximum, shape `(k,)`.
        intervals: Lower and upper ends, where the deviance has risen to `threshold`, shape `(k, 2)`; the end of the
            parameter's range, such as infinity, on a side where it never does.
        threshold: The quantile of $\chi^2$ with one degree of freedom at `level`.
        level: The level of confidence.
        open_ended: Names of parameters that the data do not bound on some side.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[np.ndarray, "k points"]
    deviances: Float[np.ndarray, "k points"]
    best: Float[np.ndarray, " k"]
    intervals: Float[np.ndarray, "k 2"]
    threshold: float = eqx.field(static=True)
    level: float = eqx.field(static=True)
    open_ended: tuple[str, ...] = eqx.field(static=True)

    def summary(self) -> str:
        """Returns a table of the values at the maximum with their intervals."""
        width = max(9, *(len(name) for name in self.names))
        title = f"{100 * self.level:g}% interval"
        lines = [f"{'parameter':<{width}}  {'maximum':>12}  {title:>27}"]
        for name, best, (low, high) in zip(self.names, self.best, self.intervals, strict=True):
            lines.append(f"{name:<{width}}  {best:>12.6g}  {low:>12.6g} - {high:>12.6g}")
        if self.open_ended:
            lines.append(f"the data do not bound {listed(self.open_ended)} on at least one side")
        return "\n".join(lines)

    def plot(self, **options: Any) -> Any:
        """Draws the deviance along each parameter, the threshold, and the interval, which ends with an arrow if open.

        Args:
            options: `title`, and `columns`: the most panels side by side, four by default.

        Returns:
            The `matplotlib.axes.Axes` of the parameters, shape `(k,)`, of a new figure.
        """
        from ..plot._parameters import profiles

        return profiles(self, **options)


class Lane(eqx.Module):
    """One side of one parameter: its number, its steps, and the frame in which the others are fitted."""

    index: Any
    first: Any  # the first step of the parameter, with its sign
    tangent: Any  # how the others follow, for a unit of it
    frame: Any  # (p, p - 1), in which the others' Hessian is minus one
    longest: Any  # the longest step of the parameter
    begin: Any  # where the parameter begins: at the maximum, or off a bound that the maximum lies on
    end: Any  # where it ends at the latest: at a bound, or at infinity


def profile_likelihood(
    density: Any,
    maximum: Maximum | None = None,
    *,
    where: Callable[[Any], Any] | None = None,
    level: RealScalarLike = 0.95,
    n: int = 16,
    max_steps: int = 100,
    rtol: float | None = None,
) -> ProfileLikelihood:
    r"""Follows the likelihood along each parameter with all others fitted again, and returns intervals of confidence.

    The profile of a parameter is $\max \log L$ over all others; its interval holds the values whose deviance
    $2 (\log L_{\max} - \log L)$ is below the quantile of $\chi^2$. Unlike standard errors it needs no parabola, does
    not depend on the units, and is open if the data do not bound a parameter. Both sides of all parameters are lanes of
    one program, which starts each fit at the previous result and chooses steps in which the root of the deviance grows
    evenly.

    Args:
        density: A `LogDensity`. With `Improper` priors this is the likelihood; others penalise it.
        maximum: The maximum, from `density.maximum()`, which is called if None.
        where: Picks leaves whose profiles are wanted; all by default.
        level: The level of confidence.
        n: The most points on each side; steps that land too far and are taken again count as well.
        max_steps: The most steps of each fit.
        rtol: Tolerance of the fits, by default 1e-8 in float64 and 1e-4 in float32.

    Returns:
        A `ProfileLikelihood`.

    Raises:
        ValueError: If an argument makes no sense, or a leaf is picked that is not sampled.
        SolveError: If there is no maximum.

    Warns:
        UserWarning: If a profile rises above the maximum, which then was none.

    Source:
        A. Raue and others, Structural and practical identifiability analysis of partially observed dynamical models by
        exploiting the profile likelihood, Bioinformatics 25:1923, 2009.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inference
        from sciml.training import Positive

        model = {"rate": jnp.array(2.0)}
        priors = [(lambda m: m["rate"], inference.Improper(Positive()))]
        counts = jnp.array([3.0, 1.0, 4.0])
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m["rate"]), counts, priors)
        found = inference.profile_likelihood(density)
        print(found.summary())
        assert 1.1 < found.intervals[0, 0] < 1.3 and 4.9 < found.intervals[0, 1] < 5.0
        ```
    """
    points, max_steps = check_count(n, "n", "profile_likelihood"), check_count(max_steps, "max_steps", "fit")
    level, threshold = level_and_threshold(level, "profile_likelihood")
    chosen = _chosen(density, where)
    if maximum is None:
        options = {"starts": 1, "key": None, "max_steps": 500, "rtol": rtol, "throw": True}
        maximum = find_maximum(density, None, **options)
    z = density.ravel(maximum.position)
    hessian = np.asarray(maximum.hessian, np.float64)
    root, step = root_and_step(threshold, points)
    scales = np.asarray(density._selection.scale(z), np.float64)
    best = np.asarray(z)
    inside = np.asarray(density._selection.inside(z, density._selection.flatten(density.model)))
    lanes = [
        lane_of(-hessian, k, sign * step, scales[k], inside[k] if sign * (inside[k] - best[k]) > 0 else best[k])
        for k in chosen
        for sign in (-1.0, 1.0)
    ]
    default = 1e-8 if jnp.finfo(z.dtype).bits == 64 else 1e-4
    tolerance = default if rtol is None else float(rtol)
    function = flat(density, own_units=True)
    found = _follow_all(function, z, stacked(lanes, z.dtype), points, max_steps, tolerance, step, root)
    result, rise = collected(density.names, chosen, z, found, lambda *x: _natural(density, *x), threshold, level)
    if rise > 5e-4:
        warn(
            f"`profile_likelihood`: a profile rises {rise:.3g} above the given maximum. Find a better maximum first, "
            "with `density.maximum(starts=..., key=...)`.",
        )
    return result


def level_and_threshold(level: RealScalarLike, of: str) -> tuple[float, float]:
    """Returns a level of confidence that was checked, and the deviance up to which values are within it."""
    import scipy.stats  # takes half a second, which `import sciml` need not pay

    level = float(level)
    if not 0 < level < 1:
        raise ValueError(f"`{of}(level=...)` must be between 0 and 1, but is {level!r}.")
    return level, float(scipy.stats.chi2.ppf(level, 1))


def root_and_step(threshold: float, points: int) -> tuple[float, float]:
    """Returns the root of the deviance at the threshold, and by how much a point raises it."""
    root = float(np.sqrt(threshold))
    return root, _BEYOND * root / max(0.7 * points, 1)


def stacked(lanes: list[Lane], dtype: Any) -> Lane:
    """Returns lanes side by side."""
    every = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *lanes)
    return jax.tree.map(lambda x: x if x.dtype == jnp.int32 else x.astype(dtype), every)


def _chosen(density: Any, where: Callable | None) -> list[int]:
    if where is None:
        return list(range(density.size))
    selection = density._selection
    wanted = set(indices_of(density.model, where, "where"))
    if wrong := wanted - set(selection.indices):
        name = leaf_names(density.model)[min(wrong)]
        raise ValueError(f"`where` selects `{name}`, which is not sampled because it has no prior.")
    sizes = [int(np.prod(shape)) for shape in selection.shapes]
    owners = np.repeat(selection.indices, sizes)
    return [i for i, owner in enumerate(owners) if owner in wanted]


def lane_of(information: np.ndarray, k: int, step: float, scale: float, begin: float, end: float | None = None) -> Lane:
    """Returns the prediction of the parabola at the maximum for one side, which begins at a value of the parameter."""
    p = len(information)
    others = [i for i in range(p) if i != k]
    frame, tangent, own = np.zeros((p, max(p - 1, 1))), np.zeros(p), information[k, k]
    if others:
        block = information[np.ix_(others, others)]
        curvatures, directions, units = principal(block)
        # what is flat is given a length of about one
        safe = np.maximum(curvatures, 1e-6 * max(curvatures.max(), 1e-300))
        factor = units[:, None] * directions / np.sqrt(safe)
        size = np.linalg.norm(factor, axis=0)
        frame[others] = factor / np.maximum(size, 1.0)
        inverse = (units[:, None] * directions / safe) @ (units[:, None] * directions).T
        follow = -inverse @ information[others, k]
        tangent[others] = follow if np.abs(follow).max() < 1e3 else 0.0
        own = information[k, k] + information[k, others] @ tangent[others]
    width = abs(step) / np.sqrt(own) if own > 0 else np.inf
    first = min(width, _FIRST * scale) if width > 10 * scale else width
    end = np.sign(step) * np.inf if end is None else end
    return Lane(np.int32(k), np.sign(step) * first, tangent, frame, max(_LONGEST * scale, 4 * first), begin, end)


@filter_jit
def _follow_all(
    function: FlatFunction,
    z: Float[Array, " p"],
    lanes: Lane,
    points: int,
    max_steps: int,
    rtol: float,
    step: float,
    end: float,
) -> tuple[Array, Array]:
    top, selection = function(z), function.density._selection
    usual = selection.flatten(function.density.model)

    def follow_lane(lane):
        def climbed(guess):
            w, _ = ascend(lambda w: function(guess + lane.frame @ w), jnp.zeros_like(z[1:]), max_steps, rtol)
            there = guess + lane.frame @ w
            return there, function(there)

        def fit(guess, last, _):
            if z.size == 1:
                return guess, function(guess)
            if not selection.has_bounds:
                return climbed(guess)
            # one that lies on a bound stays there, whatever the others are, unless it is moved off
            off = selection.inside(last, usual).at[lane.index].set(guess[lane.index])
            there, found = jax.vmap(climbed)(jnp.stack([guess, off]))
            better = jnp.argmax(jnp.where(jnp.isnan(found), -jnp.inf, found))
            return there[better], found[better]

        return follow(fit, z, top, lane, points, step, end)

    return jax.vmap(follow_lane)(lanes)


def follow(
    fit: Callable[[Array, Array, Array], tuple[Array, Array]],
    z: Float[Array, " p"],
    top: Float[Array, ""],
    lane: Lane,
    points: int,
    step: float,
    end: float,
) -> tuple[Array, Array]:
    """Returns values and deviances along one side; NaN for steps that are taken again and beyond the threshold.

    Args:
        fit: `fit(guess, last, done)` returns the parameters with all but the lane's own fitted, and the likelihood
            there, from a guess and the fit before; if `done`, nobody needs them.
        z: The maximum.
        top: The likelihood there.
        lane: The side.
        points: The most points.
        step: By how much a point is to raise the root of the deviance.
        end: The root of the deviance at the threshold.
    """

    def one(carry, _):
        here, before, change, root, done = carry
        value = here[lane.index] + change
        value = jnp.where(change > 0, jnp.minimum(value, lane.end), jnp.maximum(value, lane.end))
        change = value - here[lane.index]
        # straight on from the last two
        last = here[lane.index] - before[lane.index]
        slope = jnp.where(last == 0, lane.tangent, (here - before) / jnp.where(last == 0, 1, last))
        there, found = fit((here + slope * change).at[lane.index].set(value), here, done)
        deviance = 2 * (top - found)
        new_root = jnp.sqrt(jnp.maximum(deviance, 0))
        gain = (new_root - root) / jnp.abs(change)
        wanted = jnp.where(gain > 0, step / jnp.where(gain > 0, gain, 1), jnp.inf)
        size = jnp.clip(wanted, 0.25 * jnp.abs(change), _GROWTH * jnp.abs(change))
        size = jnp.sign(change) * jnp.minimum(size, lane.longest)
        again = ~(new_root <= _TOO_FAR * end) & ~(new_root - root <= 2.5 * step)  # also where the model fails
        lost = done | again
        out = jnp.where(lost, jnp.nan, value), jnp.where(lost, jnp.nan, deviance)
        kept = here, before, _SHORTER * change, root, done
        moved = there, here, size, new_root, done | (new_root > _BEYOND * end) | (value == lane.end)
        return jax.tree.map(lambda a, b: jnp.where(again, a, b), kept, moved), out

    begin = z.at[lane.index].set(lane.begin)
    start = (begin, begin, lane.first, jnp.zeros_like(top), jnp.asarray(False))
    return scan(one, start, length=points)[1]


def collected(
    names: Sequence[str],
    chosen: list[int],
    z: Array,
    found: tuple[Array, Array],
    own_unit: Callable[[np.ndarray, int, np.ndarray], np.ndarray],
    threshold: float,
    level: float,
) -> tuple[ProfileLikelihood, float]:
    """Returns the profiles of both sides of parameters, and how far they rise above the maximum.

    Args:
        names: The names of all parameters.
        chosen: The parameters that have profiles.
        z: The maximum.
        found: Values and deviances by `follow`: for each parameter two rows.
        own_unit: `own_unit(z, k, values)` returns values of parameter `k` in its own unit.
        threshold: The deviance at the level.
        level: The level of confidence.
    """
    at, deviances = (_nan_last(np.asarray(x, np.float64)) for x in found)
    best = np.asarray(z, np.float64)
    rows, heights, ends, open_ended = [], [], [], []
    for number, k in enumerate(chosen):
        low, high = 2 * number, 2 * number + 1
        rows.append(np.concatenate([at[low][::-1], [best[k]], at[high]]))
        heights.append(np.concatenate([deviances[low][::-1], [0.0], deviances[high]]))
        both = [_crossing(float(best[k]), at[side], deviances[side], np.sqrt(threshold)) for side in (low, high)]
        ends.append([np.nan_to_num(both[0], nan=-np.inf), np.nan_to_num(both[1], nan=np.inf)])
        if np.isnan(both).any():
            open_ended.append(names[k])
    own = [own_unit(best, k, np.stack([*rows[i], *ends[i], best[k]])) for i, k in enumerate(chosen)]
    count = rows[0].size
    values, intervals = np.stack([x[:count] for x in own]), np.stack([x[count : count + 2] for x in own])
    order = np.sign(intervals[:, 1:] - intervals[:, :1])  # a transform may decrease
    flip = order[:, 0] < 0
    values[flip], intervals[flip] = values[flip, ::-1], intervals[flip, ::-1]
    heights = np.stack(heights)
    heights[flip] = heights[flip, ::-1]
    at_best, own_names = np.array([x[-1] for x in own]), tuple(names[k] for k in chosen)
    result = ProfileLikelihood(own_names, values, heights, at_best, intervals, threshold, level, tuple(open_ended))
    return result, -0.5 * float(np.nanmin(heights))


def _nan_last(rows: np.ndarray) -> np.ndarray:
    """Returns rows with the values that are not NaN first, in their order."""
    order = np.argsort(np.isnan(rows), axis=1, kind="stable")
    return np.take_along_axis(rows, order, axis=1)


def _natural(density: Any, z: np.ndarray, k: int, values: np.ndarray) -> np.ndarray:
    """Returns values of one free variable in the parameter's own unit."""
    selection = density._selection
    rows = np.repeat(z[None], len(values), axis=0)
    rows[:, k] = values
    return np.asarray(jax.vmap(selection.natural)(jnp.asarray(rows, selection.dtype)), np.float64)[:, k]


def _crossing(best: float, at: np.ndarray, deviances: np.ndarray, root: float) -> float:
    """Returns where the deviance's root is as large as the threshold's, along a smooth curve; NaN if nowhere."""
    import scipy.interpolate

    there = np.isfinite(deviances)
    roots = np.concatenate([[0.0], np.sqrt(np.maximum(deviances[there], 0))])
    at = np.concatenate([[best], at[there]])
    keep = np.concatenate([[True], np.diff(np.maximum.accumulate(roots)) > 0])
    roots, at = roots[keep], at[keep]
    if roots[-1] < root or len(roots) < 2:
        return np.nan
    return (
        float(scipy.interpolate.PchipInterpolator(roots, at)(root))
        if len(roots) > 2
        else float(np.interp(root, roots, at))
    )
