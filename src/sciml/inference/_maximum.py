"""The maximum of a posterior or of a likelihood."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import check_count, check_key
from .._status import SolveError, Status
from .._types import Key
from ..training._selection import listed
from ._climb import Peak, climb


class Maximum(eqx.Module):
    """The maximum of likelihood times prior, returned by `LogDensity.maximum`.

    Attributes:
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
        ```
    """

    model: PyTree
    position: PyTree
    log_joint: Float[Array, ""]
    hessian: Float[Array, "p p"]
    names: tuple[str, ...] = eqx.field(static=True)
    status: Status = eqx.field(static=True)
    n_steps: int = eqx.field(static=True)
    message: str = eqx.field(static=True)


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
        check_peak(peak, "maximum")
    z = jnp.asarray(peak.z, density.dtype)
    position = density.unravel(z)
    message = f"The search ended after {peak.n_steps} steps with status {peak.status.name}."
    at_bound = density._selection.at_bound(z)
    if at_bound.any():
        message = (
            f"{message} Note: {listed(density.names, at_bound)} ended on a bound, so its rows of `hessian` vanish. "
            "`profile_likelihood` returns its one-sided interval."
        )
    return Maximum(
        model=density.constrain(position),
        position=position,
        log_joint=jnp.asarray(peak.value, density.dtype),
        hessian=jnp.asarray(peak.hessian, density.dtype),
        names=density.names,
        status=peak.status,
        n_steps=peak.n_steps,
        message=message,
    )


def check_peak(peak: Peak, what: str) -> None:
    """Raises where the search ended nowhere.

    Raises:
        SolveError: Naming what happened.
    """
    if peak.status == Status.successful:
        return
    cause = (
        "derivatives are not finite where it ended"
        if peak.status == Status.nonfinite
        else f"the density still increases after {peak.n_steps} steps"
    )
    raise SolveError(
        f"`{what}` did not find a maximum: {cause}. Start closer, use several `starts`, or use narrower priors; with "
        "improper priors a maximum may not exist.",
        np.asarray(int(peak.status)),
    )
