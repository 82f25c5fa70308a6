r"""Fields that are divided over devices: one exchange of ghost layers for several steps.

The boundary is then a `sciml.parallel.Domain`, or an object with the same methods. Before $k$ steps of radius $r$ every
device fetches the $k r$ outermost layers of its neighbours, and computes what they become as well, a layer of width $r$
less after each step. Results are those of an exchange before every step.
"""

import jax
from jaxtyping import PyTree

from ._reference import behind_barriers, named, reader, window
from ._update import Fields, StencilUpdate


def is_divided(update: StencilUpdate) -> bool:
    """Returns whether the boundary of all fields is one that exchanges ghost layers."""
    return hasattr(update.boundary, "map")


def several(update: StencilUpdate, state: Fields, params: PyTree, wide: Fields, steps: int) -> Fields:
    """Returns the state some steps on, by XLA with one exchange.

    Args:
        update: The update.
        state: The fields.
        params: The parameters.
        wide: The coefficients with at least `steps * radius` ghost layers.
        steps: The number of steps.
    """
    ndim, r = state[0].ndim, update.radius

    def stencil(padded: Fields) -> Fields:
        padded = behind_barriers(padded)
        whole = padded[0].shape
        shape = tuple(n - 2 * r for n in whole)
        rest = tuple(window(c, tuple((m - n) // 2 for m, n in zip(c.shape, whole)), whole) for c in wide)
        nb = reader(update, named(update, (*padded, *rest)), (r,) * ndim, shape)
        return update.new_values(nb, params, jax.ShapeDtypeStruct(shape, padded[0].dtype))

    return update.boundary.map(stencil, width=r, steps_per_exchange=steps, accuracy=update.accuracy)(state)
