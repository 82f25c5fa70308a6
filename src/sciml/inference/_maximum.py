"""The maximum of a posterior or of a likelihood."""

import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._checks import check_count, check_key
from .._same_code import filter_jit
from .._status import SolveError, Status
from .._types import Key
from ..training._selection import listed
from ._climb import Peak, climb, inverse_curvature

# A log density that changes by less than this part of a unit when a free variable moves by one is flat.
_VANISHES = 1e-3


class Maximum(eqx.Module):
    r"""The maximum of likelihood times prior, returned by `LogDensity.maximum`.

    `standard_errors` and `intervals` are asymptotic: they are accurate if data are many. `robust=True` replaces the
    inverse of minus the Hessian $H$ by the sandwich $H^{-1} S H^{-1}$, where $S$ is the sum of $s_i s_i^T$ with the
    gradients $s_i$ of the log-likelihood of each datum, or of each subject of `hierarchical`. It remains valid if the
    distribution of the data is wrong. Subjects, or data, must be independent, and many more than parameters.

    Attributes:
        density: The density.
        model: The model there.
        position: The same as free variables.
        log_joint: The logarithm of likelihood times prior there; of the likelihood where priors are `Improper`.
        hessian: Second derivatives of `log_joint` by the free variables, shape `(p, p)`.
        names: The parameters' names, in the order of the Hessian.
        status: How the search ended.
        n_steps: The number of steps.
        message: How the search ended, in words, with the names of parameters that ended on a bound.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = jnp.array(1.0)
        priors = [(lambda m: m, inference.Gamma(2.0, 1.0))]
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m), jnp.array([3.0, 4.0]), priors)
        found = density.maximum()
        assert abs(float(found.model) - 8 / 3) < 1e-3 and found.names == ("model",)
        assert abs(float(found.standard_errors()) - (8 / 3**2) ** 0.5) < 1e-3
        ```
    """

    density: Any
    model: PyTree
    position: PyTree
    log_joint: Float[Array, ""]
    hessian: Float[Array, "p p"]
    names: tuple[str, ...] = eqx.field(static=True)
    status: Status = eqx.field(static=True)
    n_steps: int = eqx.field(static=True)
    message: str = eqx.field(static=True)

    def __str__(self) -> str:
        low, high = self.intervals()
        columns = [numbers(x) for x in (self.density.sampled(self.model), self.standard_errors(), low, high)]
        width = max(9, *(len(name) for name in self.names[:30]))
        lines = [f"{'parameter':<{width}}  {'maximum':>12}  {'std. error':>10}  {'RSE':>6}  95% interval"]
        for name, best, error, a, b in list(zip(self.names, *columns, strict=True))[:30]:
            relative = 100 * error / abs(best) if best else np.inf
            lines.append(f"{name:<{width}}  {best:>12.6g}  {error:>10.3g}  {relative:>5.3g}%  {a:.4g} to {b:.4g}")
        lines += [f"... and {len(self.names) - 30} more"] if len(self.names) > 30 else []
        return "\n".join([*lines, f"log_joint {float(self.log_joint):.6g}, {self.status.name}"])

    def covariance(self, *, robust: bool = False) -> Float[Array, "p p"]:
        """Returns the covariance matrix of the estimates of the free variables, in the order of `names`.

        Rows and columns of variables that data and priors do not determine are infinite.

        Args:
            robust: Whether to compute the sandwich.
        """
        return jnp.asarray(_covariance(self, robust), self.density.dtype)

    def standard_errors(self, of: Callable[[Any], PyTree] | Any = None, *, robust: bool = False) -> PyTree:
        """Returns standard errors of the parameters in their own units, or of functions of them (delta method).

        Args:
            of: A function of the model, such as `lambda model: model["spread"] ** 2`. By default it returns the
                parameters: the model with None at leaves that are not sampled.
            robust: Whether to compute the sandwich.

        Returns:
            The standard errors, in the structure of the values of `of`.
        """
        values, unravel = ravel_pytree((of or self.density.sampled)(self.model))
        slopes = np.asarray(_slopes(self.density, of, self.density.ravel(self.position)), np.float64)
        covariance = _covariance(self, robust)
        lost = np.isinf(np.diagonal(covariance))
        variances = np.einsum("ij,jk,ik->i", slopes, np.where(np.isinf(covariance), 0, covariance), slopes)
        errors = np.where((slopes[:, lost] != 0).any(axis=1), np.inf, np.sqrt(variances))
        return unravel(jnp.asarray(errors, values.dtype))

    def intervals(self, level: float = 0.95, *, robust: bool = False) -> tuple[PyTree, PyTree]:
        """Returns the ends of confidence intervals of the parameters in their own units.

        They are symmetric in free variables, so that intervals of positive parameters are positive.

        Args:
            level: The confidence level.
            robust: Whether to compute the sandwich.

        Returns:
            The lower and upper ends, in the structure of the model with None at leaves that are not sampled.

        Raises:
            ValueError: If `level` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"`intervals(level)` must be between 0 and 1, but is {level!r}.")
        density, z = self.density, self.density.ravel(self.position)
        far = jnp.sqrt(jnp.diagonal(self.covariance(robust=robust))) * statistics.NormalDist().inv_cdf(
            0.5 + 0.5 * level
        )
        ends = [density.sampled(density.constrain(density.unravel(z + sign * far))) for sign in (-1, 1)]
        return jax.tree.map(jnp.minimum, *ends), jax.tree.map(jnp.maximum, *ends)


def _covariance(found: Maximum, robust: bool) -> np.ndarray:
    density = found.density
    inverse = inverse_curvature(np.asarray(found.hessian, np.float64), found.names, density.dtype)
    if not robust:
        return inverse.covariance()
    scores = np.asarray(_scores(density, density.ravel(found.position)), np.float64)
    return inverse.covariance(scores.T @ scores)


@filter_jit
def _scores(density: Any, z: Float[Array, " p"]) -> Float[Array, "n p"]:
    """Returns the gradient of the log-likelihood of each datum, or of each subject."""

    def each(z: Array) -> Array:
        parts = jax.tree.leaves(density.pointwise(density.constrain(density.unravel(z))))
        return jnp.concatenate([part.reshape(-1).astype(z.dtype) for part in parts])

    return jax.jacfwd(each)(z)


@filter_jit
def _slopes(density: Any, of: Callable | None, z: Float[Array, " p"]) -> Float[Array, "n p"]:
    """Returns the derivatives of functions of the model with respect to the free variables."""
    function = of or density.sampled
    return jax.jacfwd(lambda z: ravel_pytree(function(density.constrain(density.unravel(z))))[0])(z)


def numbers(tree: PyTree) -> list[float]:
    """Returns all numbers of a PyTree."""
    return [float(number) for x in jax.tree.leaves(tree) for number in np.ravel(x)]


class FlatFunction(eqx.Module):
    """A log density as a function of one vector: in the parameters' own units, or of the free variables.

    One program serves both: the power of the Jacobian is an argument of it.
    """

    density: Any
    jacobian: Array

    def __call__(self, z: Float[Array, " p"]) -> Float[Array, ""]:
        """Returns the logarithm of the density."""
        return self.density._value(z, self.jacobian)


def flat(density: Any, *, own_units: bool) -> FlatFunction:
    """Returns a log density as a function of one vector."""
    return FlatFunction(density, jnp.asarray(0.0 if own_units else 1.0, density.dtype))


def find(
    density: Any,
    start: PyTree,
    *,
    own_units: bool,
    starts: int,
    key: Key | None,
    max_steps: int,
    rtol: float | None,
    what: str,
) -> Peak:
    """Checks arguments, and climbs."""
    starts, max_steps = check_count(starts, "starts", what), check_count(max_steps, "max_steps", what)
    position = density.unconstrain(density.model if start is None else start)
    zs = density.ravel(position)[None]
    if starts > 1:
        if key is None:
            raise ValueError(f"`{what}(starts={starts})` draws random starts and requires `key=jax.random.key(0)`.")
        keys = jax.random.split(check_key(key, what), starts - 1)
        drawn = jax.vmap(lambda k: density.ravel(density.initial(k)))(keys)
        zs = jnp.concatenate([zs, drawn])
    default = 1e-8 if jnp.finfo(zs.dtype).bits == 64 else 1e-4
    rtol = default if rtol is None else float(rtol)
    if not (np.isfinite(rtol) and rtol > 0):
        raise ValueError(f"`{what}(rtol=...)` must be a positive number, but is {rtol!r}.")
    function, selection = flat(density, own_units=own_units), density._selection
    usual = selection.flatten(density.model)
    return climb(function, zs, max_steps=max_steps, rtol=rtol, what=what, inside=lambda z: selection.inside(z, usual))


def maximum(
    density: Any, start: PyTree, *, starts: int, key: Key | None, max_steps: int, rtol: float | None, throw: bool
) -> Maximum:
    """`LogDensity.maximum`."""
    peak = find(density, start, own_units=True, starts=starts, key=key, max_steps=max_steps, rtol=rtol, what="maximum")
    if throw:
        check_peak(peak, density, "maximum")
    z = jnp.asarray(peak.z, density.dtype)
    position = density.unravel(z)
    message = f"The search ended after {peak.n_steps} steps with status {peak.status.name}."
    if peak.status != Status.successful:
        message = f"{message} {_cause(peak, density)}."
    at_bound = _on_bounds(peak, density)
    if at_bound.any():
        message = (
            f"{message} Note: {listed(density.names, at_bound)} ended on a bound, so its rows of `hessian` vanish. "
            "`profile_likelihood` returns its one-sided interval."
        )
    return Maximum(
        density=density,
        model=density.constrain(position),
        position=position,
        log_joint=jnp.asarray(peak.value, density.dtype),
        hessian=jnp.asarray(peak.hessian, density.dtype),
        names=density.names,
        status=peak.status,
        n_steps=peak.n_steps,
        message=message,
    )


def check_peak(peak: Peak, density: Any, what: str) -> None:
    """Raises where the search ended nowhere.

    Raises:
        SolveError: Naming what happened.
    """
    if peak.status == Status.successful:
        return
    on_bounds = _on_bounds(peak, density)
    also = f", and {listed(density.names, on_bounds)} ended on a bound" if on_bounds.any() else ""
    raise SolveError(
        f"`{what}` did not find a maximum: {_cause(peak, density)}{also}. Start closer, use several `starts`, or use "
        "narrower priors; with improper priors a maximum may not exist.",
        np.asarray(int(peak.status)),
    )


def _cause(peak: Peak, density: Any) -> str:
    """Returns why the end of a search is not a maximum, with the names of the parameters."""
    if peak.status == Status.nonfinite:
        return (
            f"derivatives with respect to {listed(density.names, np.isinf(peak.rises))} are not finite where it ended"
        )
    rising = listed(density.names, peak.rises > 0.1 * peak.rises.max())
    return f"the density still increases along {rising} after {peak.n_steps} steps"


def _on_bounds(peak: Peak, density: Any) -> np.ndarray:
    """Returns the parameters that have reached a bound, one of two or their only one, shape `(p,)`."""
    selection, z = density._selection, jnp.asarray(peak.z, density.dtype)
    # a positive parameter may also be much smaller than its start, and determined by the data
    vanishes = np.abs(np.diagonal(peak.hessian)) < _VANISHES
    return selection.at_bound(z) | (vanishes & selection.near_only_bound(z, selection.flatten(density.model)))
