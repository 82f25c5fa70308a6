r"""Fields that are divided over devices: one exchange of ghost layers for several steps.

The boundary is then a `sciml.parallel.Domain`, or an object with the same methods. Before $k$ steps of radius $r$ every
device fetches the $k r$ outermost layers of its neighbours, and computes what they become as well, a layer of width $r$
less after each step. Results are those of an exchange before every step.

A kernel takes these steps on the block with its layers as it does on a field: along the axes that are divided as on a
periodic one, so that what is wrong at the ends of the block moves inwards by $r$ cells a step, through the layers that
are then cut off. A wall at the end of a divided axis would be in the blocks of some devices alone, so it is for XLA.
"""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from ._reference import behind_barriers, named, reader, window
from ._update import Fields, StencilUpdate
from ._walls import NotForKernelsError


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


class _OfBlock(eqx.Module):
    """The conditions of a block with layers from its neighbours: none at its ends along the axes that are divided."""

    boundaries: Any
    divided: tuple[bool, ...] = eqx.field(static=True)

    @property
    def sides(self) -> Any:
        return self.boundaries.sides

    @property
    def grid(self) -> Any:
        return self.boundaries.grid

    @property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(d or p for d, p in zip(self.divided, self.boundaries.periodic))

    def offsets(self, axis: int) -> Any:
        return self.boundaries.offsets(axis)


def divided_axes(update: StencilUpdate) -> tuple[bool, ...]:
    """Returns which axes are divided where the code runs that is traced."""
    domain = update.boundary
    return tuple(bool(name) and domain.inside for name in domain.axes)


def of_block(update: StencilUpdate) -> StencilUpdate:
    """Returns the update of a block with the layers of its neighbours.

    Raises:
        NotForKernelsError: If the block of some devices has a wall that those of others have not.
    """
    domain, divided = update.boundary, divided_axes(update)
    if update.turns > 1:
        raise NotForKernelsError("its functions take turns on a field that is divided")
    if domain.boundaries is None:
        boundary = None
    else:
        for axis, (cut, periodic) in enumerate(zip(divided, domain.boundaries.periodic)):
            if cut and not periodic:
                raise NotForKernelsError(f"axis {axis} is divided over devices and has walls")
        boundary = _OfBlock(domain.boundaries, divided)
        boundary = None if all(boundary.periodic) else boundary
    return eqx.tree_at(lambda u: u.boundary, update, boundary, is_leaf=lambda x: x is None)


def with_layers(shape: tuple[int, ...], divided: tuple[bool, ...], width: int) -> tuple[int, ...]:
    """Returns the shape of a block with layers at both ends of the axes that are divided."""
    return tuple(n + 2 * width * cut for n, cut in zip(shape, divided))


def middle(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns the middle of an array."""
    return window(x, tuple((m - n) // 2 for m, n in zip(x.shape, shape)), shape)


def several_by_kernel(
    update: StencilUpdate, state: Fields, params: PyTree, wide: Fields, steps: int, plan: Any, advance: Any
) -> Fields:
    """Returns the state some steps on, by a kernel with one exchange.

    Args:
        update: The update.
        state: The fields.
        params: The parameters.
        wide: The coefficients with the layers of the neighbours, of the plan's shape.
        steps: The number of steps.
        plan: The kernel's plan for the block with its layers.
        advance: The kernel.
    """
    width = plan.steps * update.radius
    padded = tuple(middle(update.boundary.pad(u, width, accuracy=update.accuracy), plan.shape) for u in state)
    found = advance(of_block(update), params, padded, wide, steps, plan)
    return tuple(middle(x, state[0].shape) for x in found)
