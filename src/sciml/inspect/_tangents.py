"""How small changes of a state grow along a solution."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import time_dtype
from .._types import Args, RealScalarLike, Y
from ..solvers._read_diffrax import default_tolerances
from ..solvers._solve import solve
from ..solvers.adjoints._direct import Direct
from ..solvers.methods._ravel import flattened, unflattened


def pushed(
    model: Callable, y: Float[Array, " n"], changes: Float[Array, "n k"], like: Y, **options: Any
) -> tuple[Array, Array, Array]:
    """Returns states at the saved times, how `changes` of the start have grown by then, and the status.

    Args:
        model: The model.
        y: The initial state, as a vector.
        changes: Its changes, a column each.
        like: A state, for its structure.
        options: As for `solve`. With error control the changes are part of the state, so that their errors also count:
            when the state is at rest, its own errors would not limit the steps.
    """
    if options.get("dt") is None:
        return _controlled(model, y, changes, like, **options)

    def states(y: Array) -> tuple[Array, Array]:
        sol = solve(model, unflattened(y, like), throw=False, adjoint=Direct(), **options)
        return jax.vmap(flattened)(sol.ys), sol.status

    def along(change: Array) -> tuple[Array, Array, Array]:
        ys, grown, status = jax.jvp(states, (y,), (change,), has_aux=True)
        return ys, grown, status

    return jax.vmap(along, in_axes=1, out_axes=(None, 2, None))(changes)


class _WithChanges(eqx.Module):
    """A model with the linear equations of small changes."""

    model: Any

    @property
    def stiff(self) -> bool:
        """The horizon that the model declares."""
        return getattr(self.model, "stiff", False)

    def __call__(self, t: RealScalarLike, state: tuple[Y, Y], args: Args) -> tuple[Y, Y]:
        y, changes = state

        def along(change: Y) -> tuple[Y, Y]:
            return jax.jvp(lambda y: self.model(t, y, args), (y,), (change,))

        return jax.vmap(along, out_axes=(None, 0))(changes)


def _controlled(
    model: Callable, y: Float[Array, " n"], changes: Float[Array, "n k"], like: Y, **options: Any
) -> tuple[Array, Array, Array]:
    def of_both(name: str, make: Callable) -> None:
        if options.get(name) is not None:
            options[name] = make(options[name])

    def of_columns(x: Any, of_state: Any) -> Any:
        return (x if jax.tree.structure(x) == jax.tree.structure(like) else jax.tree.map(lambda _: x, like), of_state)

    start = unflattened(y, like)
    columns = jax.vmap(lambda change: unflattened(change, like), in_axes=1)(changes)
    rtol, atol = default_tolerances(time_dtype(start))
    # changes have lengths of about one, whatever the unit of the state
    of_both("atol", lambda x: of_columns(x, jax.tree.map(lambda _: atol, like)))
    of_both("rtol", lambda x: of_columns(x, jax.tree.map(lambda _: x if jnp.ndim(x) == 0 else rtol, like)))
    of_both("positive", lambda x: of_columns(x, jax.tree.map(lambda _: False, like)))
    of_both("domain", lambda domain: lambda state: domain(state[0]))
    of_both("norm", lambda norm: lambda state: jnp.maximum(norm(state[0]), jnp.max(jax.vmap(norm)(state[1]))))
    both = solve(_WithChanges(model), (start, columns), throw=False, adjoint=Direct(), **options)
    ys, grown = both.ys
    return jax.vmap(flattened)(ys), jnp.moveaxis(jax.vmap(jax.vmap(flattened))(grown), 1, 2), both.status
