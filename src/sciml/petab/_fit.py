"""Fits of a problem from many starts."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float

from .._checks import check_count
from .._types import Key
from ..training import Bounded

if TYPE_CHECKING:
    from ._problem import PEtabProblem


class PEtabFit(eqx.Module):
    """Where the starts of a fit ended, the best first; what `PEtabProblem.fit` returns.

    Attributes:
        x: The best parameters on their scales, of shape `(p,)`.
        xs: The parameters of all starts, of shape `(starts, p)`.
        log_posteriors: Their likelihoods times priors, as logarithms, falling; minus infinity where a start failed.
        starts: Where they began, in the same order.
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
        """Draws the waterfall of the starts; options are those of `sciml.plot.waterfall`."""
        from ..plot import waterfall

        return waterfall(-self.log_posteriors, **options)


@eqx.filter_jit
def _descended(
    problem: "PEtabProblem", free: Bounded, zs: Array, max_steps: int, rtol: float
) -> tuple[Array, Array, Array]:
    def one(z: Array) -> tuple[Array, Array, Array]:
        solver = optimistix.BFGS(rtol, rtol)
        found = optimistix.minimise(
            lambda z, _: -problem.log_posterior(free.inverse(z)), solver, z, max_steps=max_steps, throw=False
        )
        x = free.inverse(found.value)
        return x, jnp.asarray(found.stats["num_steps"]), found.result == optimistix.RESULTS.successful

    return jax.vmap(one)(zs)


@eqx.filter_jit
def _values(problem: "PEtabProblem", xs: Array) -> Array:
    return jax.vmap(problem.log_posterior)(xs)


def fit_problem(
    problem: "PEtabProblem", *, starts: int, key: Key | None, max_steps: int, rtol: float | None
) -> PEtabFit:
    """`PEtabProblem.fit`."""
    starts, max_steps = check_count(starts, "starts", "fit"), check_count(max_steps, "max_steps", "fit")
    lower, upper = problem.lower, problem.upper
    wrong = ~(np.asarray(upper) > np.asarray(lower)) | ~np.isfinite(np.asarray(lower)) | ~np.isfinite(np.asarray(upper))
    if wrong.any():
        name = problem.names[int(np.argmax(wrong))]
        raise ValueError(f"`fit` needs finite bounds for every parameter, but those of `{name}` are not.")
    if starts == 1:
        drawn = problem.nominal[None]
    elif key is None:
        raise ValueError(f"`fit(starts={starts})` draws starts, which needs `key`, such as `jax.random.key(0)`.")
    else:
        drawn = problem.draw(key, starts)
    inside = 1e-4 * (upper - lower)  # at a bound a free variable is infinite
    drawn = jax.vmap(lambda x: jnp.clip(x, lower + inside, upper - inside))(drawn)
    default = 1e-6 if jnp.finfo(drawn.dtype).bits == 64 else 1e-4
    tolerance = default if rtol is None else float(rtol)
    before = np.asarray(_values(problem, drawn), np.float64)
    if not np.isfinite(before).any():
        raise ValueError("`fit`: no start has a likelihood: the simulations fail there.")
    free = Bounded(lower, upper)
    ends, steps, good = _descended(problem, free, jax.vmap(free.forward)(drawn), max_steps, tolerance)
    tops = np.asarray(_values(problem, ends), np.float64)
    # where a search was lost, its start counts
    better = np.nan_to_num(tops, nan=-np.inf) >= np.nan_to_num(before, nan=-np.inf)
    xs = np.where(better[:, None], np.asarray(ends), np.asarray(drawn))
    tops = np.nan_to_num(np.where(better, tops, before), nan=-np.inf)
    order = np.argsort(-tops, kind="stable")
    best = jnp.asarray(xs[order[0]], drawn.dtype)
    return PEtabFit(
        x=xs[order[0]],
        xs=xs[order],
        log_posteriors=tops[order],
        starts=np.asarray(drawn)[order],
        n_steps=np.asarray(steps)[order],
        converged=np.asarray(good)[order],
        parameters={name: float(value) for name, value in problem.parameters(best).items()},
        names=problem.names,
    )
