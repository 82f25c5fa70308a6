r"""Fields that are sharded over devices: one exchange of ghost layers for several steps.

The boundary is then a `sciml.parallel.Domain`, or an object with the same methods. Before $k$ steps of radius $r$ every
device fetches the $k r$ outermost layers of its neighbours, and also computes their next values, a layer of width $r$
less after each step. Results are the same as with an exchange before every step.

A kernel takes these steps on the block with its layers as it does on a field, with the conditions of the whole field at
the ends of the block. Wrong values there move inwards by $r$ cells a step, through the layers that are then cut off.
One program serves all devices, so the block of one that has a wall is moved to that end of the array: there the
condition is right, and at the other end are as many layers more that are cut off.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._kernel import AbstractStencilKernel
from ._reference import behind_barriers, named, reader, window
from ._update import Fields, StencilUpdate


def is_sharded(update: StencilUpdate) -> bool:
    """Returns whether the boundary of all fields is one that exchanges ghost layers."""
    return hasattr(update.boundary, "map")


def several_steps(update: StencilUpdate, state: Fields, params: PyTree, wide: Fields, steps: int) -> Fields:
    """Returns the state some steps on, by XLA with one exchange.

    Args:
        update: The update.
        state: The fields.
        params: The parameters.
        wide: The coefficients with at least as many ghost layers as all stages read.
        steps: The number of steps.
    """
    ndim, r, count = state[0].ndim, update.radius, len(update.fields)
    stages, passed_on = iter(range(steps * update.stages)), [jnp.zeros_like(state[0])] * len(update.inner)

    def middle(x: Array, shape: tuple[int, ...]) -> Array:
        return window(x, tuple((m - n) // 2 for m, n in zip(x.shape, shape)), shape)

    def stencil(padded: Fields) -> Fields:
        number = next(stages)
        one, padded = update.stage(number), behind_barriers(padded)
        whole = padded[0].shape
        shape = tuple(n - 2 * r for n in whole)
        # layers are cut off stage by stage, also of coefficients and of values passed between stages
        rest = tuple(middle(c, whole) for c in wide)
        read = reader(one, named(one, (*padded, *rest)), (r,) * ndim, shape)

        def nb(name: str, *shift: int) -> Any:
            one.check_shift(name, shift, ndim)
            if name not in one.inner:
                return read(name, *shift)
            value = passed_on[one.inner.index(name)]
            return middle(value, shape) if number else jnp.zeros(shape, value.dtype)  # nothing is passed to the first

        new = one.new_values(nb, params, jax.ShapeDtypeStruct(shape, padded[0].dtype))
        passed_on[:] = new[count:]
        return new[:count]

    how = {"width": r, "steps_per_exchange": steps * update.stages, "accuracy": update.accuracy}
    return update.boundary.map(stencil, **how)(state)


def sharded_axes(update: StencilUpdate) -> tuple[bool, ...]:
    """Returns which axes are sharded, over more than one device, where the code runs that is traced."""
    domain = update.boundary
    return tuple(bool(name) and domain.inside and jax.lax.axis_size(name) > 1 for name in domain.axes)


def update_of_block(update: StencilUpdate) -> StencilUpdate:
    """Returns the update of a block with the layers of its neighbours."""
    boundary = update.boundary.boundary
    boundary = None if boundary is None or all(boundary.periodic) else boundary
    return eqx.tree_at(lambda u: u.boundary, update, boundary, is_leaf=lambda x: x is None)


def with_halo(shape: tuple[int, ...], sharded: tuple[bool, ...], width: int) -> tuple[int, ...]:
    """Returns the shape of a block with layers at both ends of the axes that are sharded."""
    return tuple(n + 2 * width * cut for n, cut in zip(shape, sharded))


class HaloBlock:
    """The position of this device's block among its layers.

    Along an axis that is sharded it has `width` layers at either end; where it ends at a wall, twice as many at the
    other end and none there.
    """

    def __init__(self, update: StencilUpdate, shape: tuple[int, ...], width: int):
        """Finds the place of this device.

        Args:
            update: The update, of a field that is sharded.
            shape: The shape of the block.
            width: The number of layers.
        """
        self.domain = update.boundary
        self.shape = shape
        self.width = width
        self.sharded = sharded_axes(update)
        walls = self.domain.boundary
        self.starts: list[Any] = [width * cut for cut in self.sharded]
        self.moves = [cut and walls is not None and not walls.periodic[axis] for axis, cut in enumerate(self.sharded)]
        for axis, moves in enumerate(self.moves):
            if moves:
                # one program runs on all devices, so each computes where its block starts
                name = self.domain.axes[axis]
                place, last = jax.lax.axis_index(name), jax.lax.axis_size(name) - 1
                self.starts[axis] = jnp.where(place == 0, 0, jnp.where(place == last, 2 * width, width))

    def padded(self, u: Array) -> Array:
        """Returns the block with its layers, from the neighbours; beyond walls they are of no meaning, but finite."""
        w = self.width
        u = self.domain.extend(u, w)
        u = window(u, tuple(0 if cut else w for cut in self.sharded), with_halo(self.shape, self.sharded, w))
        for axis, moves in enumerate(self.moves):
            if moves:
                # a window of the rolled array: the block that has a wall moves to that end, others stay
                n, cut = u.shape[axis], partial(jax.lax.slice_in_dim, u, axis=axis)
                rolled = jnp.concatenate([cut(n - w, n), u, cut(0, w)], axis)
                u = jax.lax.dynamic_slice_in_dim(rolled, 2 * w - self.starts[axis], n, axis)
        return u

    def inner(self, u: Array) -> Array:
        """Returns the block without its layers."""
        return jax.lax.dynamic_slice(u, self.starts, self.shape)


def several_steps_by_kernel(
    update: StencilUpdate,
    state: Fields,
    params: PyTree,
    wide: Fields,
    steps: int,
    plan: Any,
    kernel: AbstractStencilKernel,
    interpreted: bool,
) -> Fields:
    """Returns the state some steps on, by a kernel with one exchange.

    Args:
        update: The update.
        state: The fields.
        params: The parameters.
        wide: The coefficients with the layers of the neighbours.
        steps: The number of steps.
        plan: The kernel's plan for the block with its layers.
        kernel: The kernel.
        interpreted: Whether it is interpreted.
    """
    blocks = HaloBlock(update, state[0].shape, plan.steps * update.radius)
    padded = tuple(map(blocks.padded, state))
    found = kernel.advance(update_of_block(update), params, padded, wide, steps * update.stages, plan, interpreted)
    return tuple(map(blocks.inner, found))
