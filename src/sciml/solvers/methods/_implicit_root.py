r"""A root whose derivatives are those of the implicit function.

Where $f(y, p) = 0$, the root moves with the parameters by

$$\frac{\partial f}{\partial y} \, dy = - \frac{\partial f}{\partial p} \, dp ,$$

however it was found. Forward mode solves this system, reverse mode its transpose once, and
`jax.lax.custom_root` derives both, and higher derivatives, from one linear solve.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._vma import match
from ..._types import BoolScalarLike, Y
from ..control._pid import Tolerances, scaled_error
from ._ravel import flattened, unflattened


def implicit_root(f: Callable[[Y], Y], y: Y, tolerances: Tolerances) -> Y:
    """Returns `y` with the derivatives of the root of `f`; NaN derivatives where it is no root.

    Args:
        f: A function of the state, which may close over what is differentiated.
        y: The root, as it was found.
        tolerances: How long the Newton step from `y` may be.
    """
    y = jax.lax.stop_gradient(y)
    step = _solved(lambda v: jax.jvp(f, (y,), (v,))[1], jax.lax.stop_gradient(f(y)))
    close = scaled_error(jax.lax.stop_gradient(step), y, y, tolerances) <= 1
    root = jax.lax.custom_root(f, y, lambda _, guess: guess, _solved)
    return jax.tree.map(lambda x: _known(x, close), root)


def _solved(along: Callable[[Y], Y], b: Y) -> Y:
    """Solves a linear system that is given by its product with a state."""
    x = flattened(b)
    unit = match(jnp.eye(x.size, dtype=x.dtype), x)
    matrix = jax.vmap(lambda v: flattened(along(unflattened(v, b))), out_axes=1)(unit)
    return unflattened(jnp.linalg.solve(matrix, x), b)


# NaN in the tangent alone: the value stands, its derivative is not that of a root
@jax.custom_jvp
def _known(x: Array, condition: BoolScalarLike) -> Array:
    del condition
    return x


@_known.defjvp
def _(primals: PyTree, tangents: PyTree) -> tuple[Array, Array]:
    x, condition = primals
    return _known(x, condition), tangents[0] * jnp.where(condition, jnp.ones_like(x), jnp.full_like(x, jnp.nan))
