"""How well a reversible solve can be run backwards, measured."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Y
from ._solve import solve
from .adjoints.reversible._adjoint import Retraced


def reversal_error(model: Callable, y0: Y, *, coupling: float = 0.999, **options: Any) -> Float[Array, ""]:
    r"""Returns how far `adjoint=Reversible(coupling)` misses the initial state when it runs backwards.

    The solve runs to its end and back, without a gradient, at the cost of two. With $\tilde y_0$ and
    $\tilde z_0$ the copies of the state that come back,

    $$\max\big(\lVert \tilde y_0 - y_0 \rVert_\infty, \lVert \tilde z_0 - y_0 \rVert_\infty\big)
      \,\big/\, \max_n \lVert y_n \rVert_\infty,$$

    the largest of all leaves of the state. The error of a gradient through `Reversible` is about this error times the
    sensitivity to the states. The gradient is NaN if this error exceeds the cube root of the dtype's precision.

    Args:
        model: As for `sciml.solve`.
        y0: As for `sciml.solve`.
        coupling: As for `Reversible`.
        options: The other arguments of `sciml.solve`, without `adjoint`.

    Returns:
        The error; infinite or NaN if the solve failed, forwards or backwards.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        wave = lambda t, y, args: jnp.stack([y[1], -y[0]])
        damped = lambda t, y, args: jnp.stack([-y[0], -50 * y[1]])
        options = {"t0": 0.0, "t1": 1.0, "dt": 0.01}
        assert sciml.solvers.reversal_error(wave, jnp.ones(2), **options) < 1e-5
        assert not sciml.solvers.reversal_error(damped, jnp.ones(2), **options) < 1e-2
        ```
    """
    errors = solve(model, y0, adjoint=Retraced(coupling), throw=False, **options).ys
    return jnp.stack([x.reshape(-1)[0] for x in jax.tree.leaves(errors)]).max()
