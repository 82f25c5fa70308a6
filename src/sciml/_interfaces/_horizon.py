"""`Horizon`: the time over which gradients through a solution are meaningful; `inspect.horizon` computes it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Horizon(eqx.Module):
    """The growth of a small change of the start, and the time after which nothing of the initial information is left.

    Attributes:
        time: The time from which a gradient with respect to earlier values is meaningless; infinite if it is never
            reached.
        rate: How fast changes grow, 1/time: the slope of the logarithm of `growth`. In the long run this is the largest
            Lyapunov exponent; see `lyapunov_exponents`.
        ts: Times, from the start to the end.
        growth: The factor by which the fastest-growing change has grown until then.
        status: A code of `sciml.Status`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        oscillator = lambda t, y, args: jnp.stack([y[1], -y[0]])
        found = inspect.horizon(oscillator, jnp.array([1.0, 0.0]), t1=50.0)
        assert found.time == jnp.inf and abs(found.rate) < 1e-3
        ```
    """

    time: Float[Array, "*members"]
    rate: Float[Array, "*members"]
    ts: Float[Array, "*members times"]
    growth: Float[Array, "*members times"]
    status: Array

    @property
    def doubling_time(self) -> Float[Array, "*members"]:
        """How long it takes until a change is twice as large; infinite if it does not grow."""
        grows = self.rate > 0
        return jnp.where(grows, jnp.log(2.0).astype(self.rate.dtype) / jnp.where(grows, self.rate, 1), jnp.inf)
