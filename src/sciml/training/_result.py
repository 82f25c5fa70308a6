"""The result of a fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._interfaces._horizon import Horizon
from .._status import Status
from .._types import Key
from ._selection import ParameterSelection

_ROWS = 30


class Fit(eqx.Module):
    r"""A fitted model with its uncertainty; returned by `sciml.fit`.

    Attributes:
        model: The model with its fitted leaves at the best parameters found.
        loss: Half the sum of squared residuals there, shape `()`.
        sigma: The residuals' standard deviation: the known one, or $s = \sqrt{2\,\text{loss}/(m - p)}$ for $m$
            residuals and $p$ parameters (NaN if $m \le p$).
        parameters: The $p$ fitted numbers in their own units, in the order of `names`.
        covariance: $s^2 (J^T J)^{-1}$, shape `(p, p)`, in the parameters' own units; infinite for parameters that the
            data do not determine, NaN if $s$ is unknown and for parameters that ended on a bound (the others assume
            that these stay there, and so do samples), None if it was not computed.
        standard_errors: Square roots of the covariance's diagonal, in the structure of the model with
            None at leaves that were not fitted: `fit.standard_errors.alpha`. None if it was not computed.
        history: The loss before every step, and last the loss at the end, shape `(n_steps + 1,)`.
        status: How the optimiser ended; `Status.beyond_horizon` if it met its tolerance, but gradients are not
            meaningful up to the end of the solution.
        n_steps: The number of steps taken, rejected ones included.
        message: The same in words.
        names: The fitted numbers' names, such as `alpha` or `y0[1]`.
        start_losses: The lowest loss of every start, shape `(starts,)`.
        start_statuses: Codes of `Status`, shape `(starts,)`.
        horizon: The time up to which gradients through the solution of the fitted model are meaningful, if it was
            requested; otherwise None.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        t = jnp.linspace(0.0, 2.0, 30)
        observed = 3.0 * jnp.exp(-1.5 * t) + 0.01 * jnp.sin(40 * t)
        fit = sciml.fit(
            {"size": jnp.array(1.0), "rate": jnp.array(1.0)},
            lambda model, data: model["size"] * jnp.exp(-model["rate"] * t) - data,
            observed,
            positive=True,
            progress=False,
        )
        print(fit.summary())
        halves = jax.vmap(lambda model: jnp.log(2) / model["rate"])(fit.sample(jax.random.key(0), 100))
        assert halves.shape == (100,)
        ```
    """

    model: PyTree
    loss: Float[Array, ""]
    sigma: Float[Array, ""]
    parameters: Float[Array, " p"]
    covariance: Float[Array, "p p"] | None
    standard_errors: PyTree
    history: Float[Array, " steps"]
    status: Status = eqx.field(static=True)
    n_steps: int = eqx.field(static=True)
    message: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    start_losses: Float[Array, " starts"]
    start_statuses: Int[Array, " starts"]
    horizon: Horizon | None
    _selection: ParameterSelection
    _z: Float[Array, " p"]
    _factor: Float[Array, "p p"] | None
    _no_factor: str = eqx.field(static=True)

    def __str__(self) -> str:
        return self.summary()

    @property
    def converged(self) -> bool:
        """Whether the optimiser met its tolerance, with meaningful gradients if `horizon` was requested."""
        return self.status == Status.successful

    def sample(self, key: Key, n: int) -> PyTree:
        r"""Draws models from the estimated uncertainty, for an ensemble.

        The draws are normal in the transformed space, with mean and covariance from the optimum there
        (Laplace's approximation), so that positive parameters stay positive and bounded ones in bounds.
        Draw $i$ comes from `fold_in(key, i)`: it does not depend on `n`.

        Args:
            key: A random key.
            n: The number of draws.

        Returns:
            The model with a leading axis of length `n` on every array leaf, fitted or not, so that
            `jax.vmap(f)(fit.sample(key, n))` calls `f` with one model at a time. Leaves that are not
            arrays (functions, Python numbers) are kept; with such leaves use `eqx.filter_vmap(f)`.

        Raises:
            ValueError: If there is no finite covariance to sample from, or `n` is not positive.

        Example:
            ```python
            import jax
            import jax.numpy as jnp
            import sciml

            x = jnp.arange(10.0)
            fit = sciml.fit(jnp.ones(2), lambda m, y: m[0] + m[1] * x - y, jnp.cos(x), progress=False)
            lines = jax.vmap(lambda m: m[0] + m[1] * x)(fit.sample(jax.random.key(0), 1000))
            assert lines.shape == (1000, 10)
            ```
        """
        if self._factor is None:
            raise ValueError(f"`sample` requires a covariance: {self._no_factor}")
        if n < 1:
            raise ValueError(f"`n` must be at least 1, but got {n}.")
        factor = self._factor

        def draw(member):
            noise = jax.random.normal(jax.random.fold_in(key, member), self._z.shape, self._z.dtype)
            model = self._selection.replace(self.model, self._z + factor @ noise)
            return eqx.filter(model, eqx.is_array)

        return eqx.combine(jax.vmap(draw)(jnp.arange(n)), eqx.filter(self.model, eqx.is_array, inverse=True))

    def summary(self) -> str:
        """Returns a table of the estimates with their standard errors, and how the fit ended.

        Example:
            ```python
            import jax.numpy as jnp
            import sciml

            x = jnp.arange(10.0)
            fit = sciml.fit({"a": jnp.array(0.0)}, lambda m, y: m["a"] - y, x, progress=False)
            assert "4.5" in fit.summary()
            ```
        """
        width = max(9, *(len(name) for name in self.names[:_ROWS]))
        lines = [f"{'parameter':<{width}}  {'estimate':>12}  {'std. error':>12}  {'relative':>9}"]
        values = np.asarray(self.parameters)
        errors = np.full(values.shape, np.nan)
        if self.covariance is not None:
            errors = np.sqrt(np.diagonal(np.asarray(self.covariance)))
        for name, value, error in zip(self.names[:_ROWS], values, errors, strict=False):
            relative = abs(error / value) if value else np.nan
            lines.append(f"{name:<{width}}  {value:>12.6g}  {error:>12.3g}  {relative:>9.2%}")
        if len(self.names) > _ROWS:
            lines.append(f"... and {len(self.names) - _ROWS} more")
        lines.append(f"loss {float(self.loss):.6g}, residual standard deviation {float(self.sigma):.4g}")
        if len(self.start_losses) > 1:
            same = int(np.sum(np.asarray(self.start_losses) <= float(self.loss) * 1.01))
            lines.append(f"{same} of {len(self.start_losses)} starts ended within 1% of this loss")
        lines.append(self.message)
        if self._factor is None and self._no_factor not in self.message:
            lines.append(f"No standard errors: {self._no_factor}")
        return "\n".join(lines)
