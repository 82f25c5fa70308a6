"""Fits of a problem from many starts."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_count
from .._types import Key
from ._expansion import expansion
from ._trust_region import LeastValue, least

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
def _searched(
    problem: "PEtabProblem", xs: Array, lower: Array, upper: Array, max_steps: int, rtol: float
) -> LeastValue:
    def one(x: Array) -> LeastValue:
        return least(lambda x: expansion(problem, x), x, lower, upper, max_steps, rtol)

    return jax.vmap(one)(xs) if len(xs) > 1 else jax.tree.map(lambda x: x[None], one(xs[0]))


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
    drawn = jax.vmap(lambda x: jnp.clip(x, lower, upper))(drawn)
    default = 1e-6 if jnp.finfo(drawn.dtype).bits == 64 else 1e-4
    found = _searched(problem, drawn, lower, upper, max_steps, default if rtol is None else float(rtol))
    tops = -np.asarray(found.value, np.float64)
    if not np.isfinite(tops).any():
        raise ValueError("`fit`: no start has a likelihood: the simulations fail there.")
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
