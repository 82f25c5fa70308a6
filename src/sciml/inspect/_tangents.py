"""How small changes of a state grow along a solution."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_state
from .._types import Y
from ..solvers._solve import solve
from ..solvers.adjoints import Direct
from ..solvers.methods._ravel import flattened, unflattened


def check_real_state(y0: Y) -> Y:
    """Returns a state as arrays.

    Raises:
        TypeError: If it is not real.
    """
    y0 = check_state(y0)
    if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(y0)):
        raise TypeError("`y0` must be real, but has a complex leaf. Take its real and imaginary parts as the state.")
    return y0


def pushed(
    model: Callable, y: Float[Array, " n"], changes: Float[Array, "n k"], like: Y, **options: Any
) -> tuple[Array, Array, Array]:
    """Returns states at the saved times, how `changes` of the start have grown by then, and the status.

    Args:
        model: The model.
        y: The initial state, as a vector.
        changes: Its changes, a column each.
        like: A state, for its structure.
        options: As for `solve`.
    """

    def states(y: Array) -> tuple[Array, Array]:
        sol = solve(model, unflattened(y, like), throw=False, adjoint=Direct(), **options)
        return jax.vmap(flattened)(sol.ys), sol.status

    def along(change: Array) -> tuple[Array, Array, Array]:
        ys, grown, status = jax.jvp(states, (y,), (change,), has_aux=True)
        return ys, grown, status

    return jax.vmap(along, in_axes=1, out_axes=(None, 2, None))(changes)
