"""Conditions at walls as kernels apply them: ghost cells that are weighted sums of the layers nearest to the wall.

A kernel keeps a tile for several steps and computes the ghost cells of its walls again after each. It gets the weights
from the condition itself: `ghosts` of a single layer that is one, for every layer. The boundary is any object with
`sides`, `offsets` and `grid.spacing` like `sciml.spatial.Boundaries`; only the reference supports others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax.programs import used_inputs
from ._update import StencilUpdate


class GhostWeights(NamedTuple):
    """The ghost cells beyond one wall: `constant[q] + sum(weights[q, m] * layer[m])`, nearest first.

    Attributes:
        weights: Of shape `(width, points)`.
        constant: Of shape `(width,)`.
    """

    weights: Array
    constant: Array

    def ghost(self, q: int, layer: Callable[[int], Array]) -> Array:
        """Returns ghost cells `q` beyond the wall, of the layers before it."""
        return sum((self.weights[q, m] * layer(m) for m in range(self.weights.shape[1])), self.constant[q])


Sides = tuple[tuple[GhostWeights, GhostWeights] | None, ...]
"""The weights of the lower and the upper wall for each axis; None along periodic axes."""


class NotForKernelsError(Exception):
    """Why an update has no kernel, or a model no update.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels.stencil import NotForKernelsError
        from sciml.models import Diffusion
        from sciml.spatial import Dirichlet, Grid

        model = Diffusion(Grid((8, 8)), Dirichlet(0.0), diffusivity=jnp.eye(2))
        try:
            model.stencil(jnp.zeros((8, 8)))
        except NotForKernelsError as error:
            assert "tensor" in str(error)
        ```
    """


def ghost_weights_of(update: StencilUpdate, ndim: int, dtype: Any) -> tuple[Sides, ...]:
    """Returns the weights of all walls for each field.

    Raises:
        NotForKernelsError: If a boundary is not made of such conditions.
    """
    return tuple(_sides_of(b, update, ndim, dtype) for b in update.boundaries)


def check_coefficients(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> None:
    """Checks that no coefficient is read beyond a wall, where kernels do not extrapolate.

    Raises:
        NotForKernelsError: If one is.
    """
    if all(pair is None for pair in _sides_of(update.boundaries[0], update, ndim, dtype)):
        return
    for shift, names in update.reads(ndim, dtype, params).items():
        if any(shift) and (read := set(names) & set(update.coefficients)):
            raise NotForKernelsError(f"the coefficient {min(read)!r} is read at neighbours, and so beyond walls")


def _sides_of(boundary: Any, update: StencilUpdate, ndim: int, dtype: Any) -> Sides:
    if boundary is None:
        return (None,) * ndim
    if not all(hasattr(boundary, name) for name in ("sides", "offsets", "periodic", "grid")):
        raise NotForKernelsError(f"its boundary is a {type(boundary).__name__}, not a `sciml.spatial.Boundaries`")
    found = []
    for axis, (pair, periodic) in enumerate(zip(boundary.sides, boundary.periodic)):
        spacing, offsets = boundary.grid.spacing[axis], boundary.offsets(axis)
        weights = None
        if not periodic:
            weights = tuple(_weights_of(side, offset, spacing, update, dtype) for side, offset in zip(pair, offsets))
        found.append(weights)
    return tuple(found)


def _weights_of(side: Any, offset: float, spacing: float, update: StencilUpdate, dtype: Any) -> GhostWeights:
    name = type(side).__name__
    if any(jnp.ndim(x) for x in jax.tree.leaves(side)):
        raise NotForKernelsError(f"a value of `{name}` varies along its side")
    points = side.points(offset, update.accuracy)
    if points > update.radius + 1:
        raise NotForKernelsError(
            f"`{name}` of accuracy {update.accuracy} reads {points} layers, more than `radius` + 1, {update.radius + 1}"
        )

    def ghosts(layers: Array) -> Array:
        rest = {"axis": 0, "spacing": spacing, "offset": offset, "accuracy": update.accuracy}
        return side.ghosts(layers, update.radius, **rest)

    zero = jnp.zeros(points, dtype)
    jaxpr = jax.make_jaxpr(lambda x, dx: jax.jvp(ghosts, (x,), (dx,))[1])(zero, zero).jaxpr
    # where the derivative still reads the layers, the ghosts are not linear in them
    if used_inputs(jaxpr)[0]:
        raise NotForKernelsError(f"the ghost values of `{name}` are not a weighted sum of the layers")
    constant = ghosts(zero)
    # a layer's weights are the ghosts for that layer set to one and all others to zero
    columns = [ghosts(zero.at[m].set(1)) - constant for m in range(points)]
    return GhostWeights(jnp.stack(columns, 1), constant)
