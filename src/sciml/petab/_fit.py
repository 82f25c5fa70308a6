r"""Fits of a problem from many starts.

The least value of a function between bounds, by steps within a trust region.

With the gradient $g$ and the curvature $H$, in units of the distances between the bounds, a step is the least of

$$g \cdot s + \tfrac12 s^T H s \quad \text{for} \quad |s| \le \Delta,$$

in which variables that would pass a bound stay there, and the others go on. The radius $\Delta$ grows where
the function falls as the parabola says, and shrinks where it does not.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import check_count
from .._jax._loops import scan, while_loop
from .._types import Key
from ._expansion import Expansion

# In units of the distances between the bounds.
_FIRST_RADIUS, _LARGEST_RADIUS = 0.05, 1.0
# This number of steps with hardly any change ends a search.
_PATIENCE = 6
_HALVINGS = 40
_ROUNDS = 3  # in which variables are found that end at a bound


class LeastValue(NamedTuple):
    """The end of a search.

    Attributes:
        x: The vector.
        value: The function there; infinite if it had no value at the start.
        n_steps: The number of steps.
        converged: Whether steps had come to change next to nothing.
    """

    x: Float[Array, " p"]
    value: Float[Array, ""]
    n_steps: Int[Array, ""]
    converged: Bool[Array, ""]


class _Search(NamedTuple):
    x: Array
    here: Expansion
    radius: Array
    idle: Array
    n_steps: Array


def least(
    function: Callable[[Array], Expansion],
    x: Float[Array, " p"],
    lower: Float[Array, " p"],
    upper: Float[Array, " p"],
    max_steps: int | Int[Array, ""],
    rtol: float | Float[Array, ""],
) -> LeastValue:
    """Returns where a function is least near a start; this is for use under `jit` and `vmap`.

    Args:
        function: Returns its value, gradient and curvature.
        x: The start, between the bounds.
        lower: The bounds below.
        upper: The bounds above; a variable with twice the same bound is held there.
        max_steps: The most steps.
        rtol: Changes below this part of the value, or of one where it is smaller, are next to nothing.
    """
    ranges = upper - lower  # weights of networks have no bounds, and a variable that is held has no range
    width = jnp.where(jnp.isfinite(ranges) & (ranges > 0), ranges, 1.0)
    zero = jnp.zeros((), jnp.int32)

    def goes_on(s: _Search) -> Array:
        more = jnp.isfinite(s.here.value) & (s.idle < _PATIENCE) & (s.n_steps < max_steps)
        return more | (s.n_steps < 0)

    def step(s: _Search) -> _Search:
        slope = s.here.gradient * width
        curvature = s.here.curvature * jnp.outer(width, width)
        taken = step_between(slope, curvature, s.radius, (lower - s.x) / width, (upper - s.x) / width)
        x = jnp.clip(s.x + width * taken, lower, upper)
        size = jnp.linalg.norm(taken)
        promised = -(slope @ taken) - 0.5 * taken @ curvature @ taken
        there = function(x)
        gained = s.here.value - there.value
        better = (gained > 0) & jnp.isfinite(there.value)
        share = jnp.where(better, gained, -1.0) / jnp.where(promised > 0, promised, jnp.inf)
        shrunk = jnp.maximum(0.25 * size, 1e-12)
        grown = jnp.where(size > 0.8 * s.radius, jnp.minimum(2 * s.radius, _LARGEST_RADIUS), s.radius)
        radius = jnp.where(share < 0.25, shrunk, jnp.where(share > 0.75, grown, s.radius))
        x, here = jax.tree.map(lambda new, old: jnp.where(better, new, old), (x, there), (s.x, s.here))
        little = rtol * jnp.maximum(jnp.abs(here.value), 1.0)
        idle = jnp.where(better & (gained > little), zero, s.idle + 1)
        idle = jnp.where((promised <= 0.01 * little) & (size < 0.8 * s.radius) & (s.n_steps >= 0), _PATIENCE, idle)
        return _Search(x, here, radius, idle.astype(jnp.int32), s.n_steps + 1)

    # the first step goes nowhere, and evaluates the function: before the loop this would be compiled a second time
    nothing = Expansion(jnp.asarray(jnp.inf, x.dtype), jnp.zeros_like(x), jnp.zeros((x.size, x.size), x.dtype))
    first = _Search(x, nothing, jnp.asarray(_FIRST_RADIUS, x.dtype), zero, zero - 1)
    last = while_loop(goes_on, step, first)
    return LeastValue(last.x, last.here.value, last.n_steps, last.idle >= _PATIENCE)


def step_between(
    slope: Float[Array, " p"], curvature: Float[Array, "p p"], radius: Float[Array, ""], lower: Array, upper: Array
) -> Float[Array, " p"]:
    """Returns the least of a parabola within a radius and between bounds.

    Variables that pass a bound are held there, and the step of the others is computed again.
    """

    def again(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        held, step = carry
        step = jnp.where(held, step, jnp.zeros_like(step))
        pulled = jnp.where(held, jnp.zeros_like(slope), slope + curvature @ step)
        own = jnp.where(held[:, None] | held[None], jnp.diag(held.astype(slope.dtype)), curvature)
        step = step + step_within(pulled, own, radius)
        held = held | (step < lower) | (step > upper)
        return (held, jnp.clip(step, lower, upper)), None

    held = ((lower >= 0) & (slope > 0)) | ((upper <= 0) & (slope < 0))
    (_, step), _ = scan(again, (held, jnp.zeros_like(slope)), None, length=_ROUNDS)
    return step


def step_within(slope: Float[Array, " p"], curvature: Float[Array, "p p"], radius: Float[Array, ""]) -> Array:
    r"""Returns the least of a parabola within a radius.

    In the directions of the curvature the step is $-g_i / (h_i + \mu)$ with the least $\mu \ge 0$ that makes it short
    enough. It is at most $|g| / \Delta$, and is found by halving the range of its logarithm.
    """
    h, directions = jnp.linalg.eigh(curvature)
    h = jnp.maximum(h, jnp.finfo(h.dtype).eps * jnp.max(h))  # what rounding makes negative
    g = slope @ directions
    most = jnp.linalg.norm(g) / radius

    def scaled(mu: Array) -> Array:
        total = h + mu
        return g / jnp.where(total > 0, total, 1)

    def halve(ends: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        enough, little = ends
        middle = 0.5 * (enough + little)
        long = jnp.linalg.norm(scaled(most * jnp.exp(-middle))) > radius
        return (jnp.where(long, enough, middle), jnp.where(long, middle, little)), None

    ends = (jnp.zeros_like(most), jnp.full_like(most, -jnp.log(jnp.finfo(h.dtype).tiny) / 2))
    (power, _), _ = scan(halve, ends, None, length=_HALVINGS)
    whole = scaled(jnp.zeros_like(most))
    fits = jnp.linalg.norm(whole) <= radius
    return -(directions @ jnp.where(fits, whole, scaled(most * jnp.exp(-power))))


@runtime_checkable
class Fitted(Protocol):
    """A posterior of parameters between bounds, as a fit needs it; a `PEtabProblem` is one."""

    names: Any
    lower: Any
    upper: Any
    nominal: Any

    def draw(self, key: Key, starts: int) -> Float[Array, "starts p"]:
        """Returns vectors between the bounds."""
        ...

    def parameters(self, x: Float[Array, " p"]) -> dict[str, Float[Array, ""]]:
        """Returns the parameters in their own units."""
        ...

    def expansion(self, x: Float[Array, " p"]) -> Expansion:
        """Returns minus the logarithm of the posterior about a vector."""
        ...


class PEtabFit(eqx.Module):
    """The ends of the starts of a fit, the best first, returned by `PEtabProblem.fit`.

    Attributes:
        x: The best parameters on their scales, of shape `(p,)`.
        xs: The parameters of all starts, of shape `(starts, p)`.
        log_posteriors: Their likelihoods times priors, as logarithms, falling; minus infinity where a start failed.
        starts: The initial points, in the same order.
        n_steps: How many steps each took.
        converged: Whether each met the tolerance.
        parameters: The best parameters in their own units, by name.
        names: The names of the parameters.

    Example:
        ```python
        import sciml

        def ten_best(path, key):
            problem = sciml.petab.read_petab(path)
            found = problem.fit(starts=100, key=key)
            found.plot()
            return found.log_posteriors[:10]
        ```
    """

    x: Float[np.ndarray, " p"]
    xs: Float[np.ndarray, "starts p"]
    log_posteriors: Float[np.ndarray, " starts"]
    starts: Float[np.ndarray, "starts p"]
    n_steps: Any
    converged: Any
    parameters: dict[str, float]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def log_posterior(self) -> float:
        """The largest likelihood times prior, as a logarithm."""
        return float(self.log_posteriors[0])

    def reached(self, within: float = 0.1) -> int:
        """Returns how many starts came as high as the best, to a difference of the logarithm."""
        return int(np.sum(self.log_posteriors >= self.log_posterior - within))

    def plot(self, **options: Any) -> Any:
        """Draws the waterfall of the starts; options are passed to `sciml.plot.waterfall`."""
        from ..plot import waterfall

        return waterfall(-self.log_posteriors, **options)

    def to_hdf5(self, path: str | os.PathLike) -> None:
        """Writes the starts to a new file that `pypesto.store.read_result(path, problem=False)` reads.

        The objective of pyPESTO is minus the logarithm of likelihood times prior, and vectors have the parameters on
        their scales, in the order of `names`.

        Args:
            path: The path of the file.

        Raises:
            ImportError: If h5py is not installed.
            FileExistsError: If there is a file.
        """
        try:
            import h5py  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError("`to_hdf5` requires h5py: `pip install 'sciml-jax[sbml]'`.") from error
        with h5py.File(path, "x") as file:
            for number, x in enumerate(self.xs):
                group = file.create_group(f"optimization/results/{number}")
                group.create_dataset("x", data=np.asarray(x, np.float64))
                group.create_dataset("x0", data=np.asarray(self.starts[number], np.float64))
                group.attrs["id"] = str(number)
                group.attrs["fval"] = -float(self.log_posteriors[number])
                group.attrs["n_fval"] = group.attrs["n_grad"] = int(self.n_steps[number]) + 1
                group.attrs["exitflag"] = 0 if self.converged[number] else 1
                group.attrs["message"] = "converged" if self.converged[number] else "not converged"


@eqx.filter_jit
def _searched(problem: Fitted, xs: Array, lower: Array, upper: Array, max_steps: int, rtol: float) -> LeastValue:
    def one(x: Array) -> LeastValue:
        return least(problem.expansion, x, lower, upper, max_steps, rtol)

    return jax.vmap(one)(xs) if len(xs) > 1 else jax.tree.map(lambda x: x[None], one(xs[0]))


def fit_problem(
    problem: Fitted, *, starts: int | Array, key: Key | None, max_steps: int, rtol: float | None
) -> PEtabFit:
    """`PEtabProblem.fit`."""
    max_steps = check_count(max_steps, "max_steps", "fit")
    lower, upper = problem.lower, problem.upper
    if np.ndim(starts) > 0:
        drawn = jnp.asarray(starts, lower.dtype)
        if drawn.ndim != 2 or drawn.shape[1] != lower.size or not len(drawn):
            raise ValueError(
                f"`fit(starts=...)` must be a number, or initial points of shape (starts, {lower.size}), but has the "
                f"shape {drawn.shape}."
            )
    elif (starts := check_count(starts, "starts", "fit")) == 1:
        drawn = problem.nominal[None]
    elif key is None:
        raise ValueError(f"`fit(starts={starts})` draws random starts and requires `key=jax.random.key(0)`.")
    else:
        drawn = problem.draw(key, starts)
    drawn = jax.vmap(lambda x: jnp.clip(x, lower, upper))(drawn)
    wrong = ~(np.asarray(upper) > np.asarray(lower)) | ~np.isfinite(np.asarray(drawn)).all(0)
    if wrong.any():
        name = problem.names[int(np.argmax(wrong))]
        raise ValueError(
            f"`fit` requires finite bounds for every parameter, except that weights of networks need only a finite "
            f"start; the bounds or the start of `{name}` are not finite."
        )
    default = 1e-6 if jnp.finfo(drawn.dtype).bits == 64 else 1e-4
    found = _searched(problem, drawn, lower, upper, max_steps, default if rtol is None else float(rtol))
    tops = -np.asarray(found.value, np.float64)
    if not np.isfinite(tops).any():
        raise ValueError("`fit`: the simulations fail at every start, so the likelihood is not defined there.")
    order = np.argsort(-tops, kind="stable")
    xs = np.asarray(found.x)[order]
    parameters = problem.parameters(jnp.asarray(xs[0]))
    return PEtabFit(
        x=xs[0],
        xs=xs,
        log_posteriors=tops[order],
        starts=np.asarray(drawn)[order],
        n_steps=np.asarray(found.n_steps)[order],
        converged=np.asarray(found.converged)[order],
        parameters={name: float(value) for name, value in parameters.items()},
        names=problem.names,
    )
