"""Changes of variables that map a constrained parameter to an unconstrained one.

An optimiser moves freely in the transformed space; whatever it does there, the parameter stays in
its range.
"""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Inexact

from .._checks import concrete

if TYPE_CHECKING:  # type checkers do not know the abstract kind
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar


class AbstractTransform(eqx.Module):
    """An elementwise, increasing or decreasing map between a parameter $x$ and a free variable $z$.

    Example:
        ```python
        import equinox as eqx
        import jax.numpy as jnp
        import sciml
        from sciml.training import AbstractTransform

        class AboveOne(AbstractTransform):
            domain = "greater than 1"

            def forward(self, x):
                return jnp.log(x - 1)

            def inverse(self, z):
                return 1 + jnp.exp(z)

            def contains(self, x):
                return x > 1

            def log_slope(self, z):
                return z

            def scale(self, z):
                return jnp.ones_like(z)

        transform = AboveOne()
        assert abs(float(transform.inverse(transform.forward(jnp.array(3.0)))) - 3) < 1e-5
        ```
    """

    domain: AbstractClassVar[str]
    """The range of $x$ in words, for error messages."""

    @abc.abstractmethod
    def forward(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the free variable $z$ of the parameter $x$, elementwise."""

    @abc.abstractmethod
    def inverse(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the parameter $x$ of the free variable $z$, elementwise."""

    @abc.abstractmethod
    def log_slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Returns $\log |dx / dz|$, elementwise, by which densities of $x$ become densities of $z$."""

    @abc.abstractmethod
    def contains(self, x: Float[Array, "..."]) -> Bool[Array, "..."]:
        """Returns whether $x$ is strictly within the range, elementwise."""

    @abc.abstractmethod
    def scale(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the distance in $z$ that counts as one unit of `spread` between starts."""


class Identity(AbstractTransform):
    """No constraint: $x = z$, which may be complex. One unit of `spread` is its magnitude, or one where it is zero.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.training._transforms import Identity

        assert Identity().inverse(jnp.array(-2.0)) == -2.0
        ```
    """

    domain = "any number"

    def forward(self, x: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns `x`."""
        return x

    def inverse(self, z: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns `z`."""
        return z

    def log_slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns zeros."""
        return jnp.zeros_like(z)

    def contains(self, x: Float[Array, "..."]) -> Bool[Array, "..."]:
        """Returns where `x` is finite."""
        return jnp.isfinite(x)

    def scale(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns $|z|$, and one where $z = 0$."""
        return jnp.where(z == 0, jnp.ones_like(z), jnp.abs(z))


class Positive(AbstractTransform):
    """A positive parameter, $x = e^z$; uncertainties of $z$ are relative uncertainties of $x$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.training import Positive

        assert Positive().inverse(jnp.array(-30.0)) > 0
        ```
    """

    domain = "greater than 0"

    def forward(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Returns $\log x$."""
        return jnp.log(x)

    def inverse(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns $e^z$."""
        return jnp.exp(z)

    def log_slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns `z`."""
        return z

    def contains(self, x: Float[Array, "..."]) -> Bool[Array, "..."]:
        """Returns where $0 < x < ∞$."""
        return (x > 0) & jnp.isfinite(x)

    def scale(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns ones: a unit of `spread` is a factor of $e$."""
        return jnp.ones_like(z)


class Bounded(AbstractTransform):
    r"""A parameter between bounds: $x = a + (b - a)\,/\,(1 + e^{-z})$; one-sided $x = a + e^z$ or $x = b - e^z$.

    An optimum on a bound is approached but never reached, and the uncertainty there, which assumes an optimum in the
    interior, is meaningless.

    Args:
        lower: Lower bound in the parameter's unit, a number or an array that broadcasts against
            the parameter; None for no bound.
        upper: Upper bound, likewise.

    Raises:
        ValueError: If both bounds are None, or if `lower` is not below `upper`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.training import Bounded

        transform = Bounded(0.0, 10.0)
        assert transform.inverse(jnp.array(0.0)) == 5.0
        ```
    """

    lower: Float[Array, "..."] | None
    upper: Float[Array, "..."] | None

    domain = "strictly between its bounds"

    def __init__(self, lower: ArrayLike | None = None, upper: ArrayLike | None = None):
        if lower is None and upper is None:
            raise ValueError("`Bounded` needs `lower`, `upper` or both, but both are None; use `Identity()` instead.")
        dtype = jnp.result_type(float)
        self.lower = None if lower is None else jnp.asarray(lower, dtype)
        self.upper = None if upper is None else jnp.asarray(upper, dtype)

    def __check_init__(self) -> None:
        """Checks that the bounds enclose something."""
        bounds = [np.asarray(x) for x in (self.lower, self.upper) if x is not None and concrete(x)]
        if len(bounds) == 2 and not np.all(bounds[0] < bounds[1]):
            raise ValueError(f"`lower` must be below `upper`, but got {self.lower} and {self.upper}.")

    def _bounds(self, x: Array) -> tuple[Any, Any]:
        like = (None if b is None else b.astype(x.dtype) for b in (self.lower, self.upper))
        lower, upper = (None if b is None else jnp.broadcast_to(b, x.shape) for b in like)
        return lower, upper

    def forward(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the logit of the position between the bounds, or the log of the distance to the only one."""
        lower, upper = self._bounds(x)
        above = jnp.zeros_like(x) if lower is None else jnp.log(x - lower)
        below = jnp.zeros_like(x) if upper is None else jnp.log(upper - x)
        return below if lower is None else above - below

    def inverse(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the parameter between the bounds."""
        lower, upper = self._bounds(z)
        if lower is None:
            return upper - jnp.exp(z)
        if upper is None:
            return lower + jnp.exp(z)
        # Rounding may carry the sum just past a bound.
        return jnp.clip(lower + (upper - lower) * jax.nn.sigmoid(z), lower, upper)

    def log_slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Returns $\log (b - a) - \log(1 + e^z) - \log(1 + e^{-z})$ between two bounds, `z` where there is one."""
        lower, upper = self._bounds(z)
        if lower is None or upper is None:
            return z
        return jnp.log(upper - lower) - jax.nn.softplus(z) - jax.nn.softplus(-z)

    def contains(self, x: Float[Array, "..."]) -> Bool[Array, "..."]:
        """Returns whether the parameter is strictly within the bounds."""
        lower, upper = self._bounds(x)
        inside = jnp.isfinite(x)
        if lower is not None:
            inside = inside & (x > lower)
        if upper is not None:
            inside = inside & (x < upper)
        return inside

    def scale(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns ones."""
        return jnp.ones_like(z)
