"""What is around a device's block of a flow that has its neighbours' cells with it: one exchange for several stages.

Each stage of a method reads a few cells further, so a block with as many layers as all stages read needs no neighbour
until the step ends. What the layers become is computed twice, by both devices that hold them. At the outermost ones a
stage has no cells to read: what is wrong there moves inwards with every stage, through the layers that are then cut
off. Layers beyond a side of the whole grid are made anew by its condition for every stage.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._types import Args, RealScalarLike
from ...spatial._abstract_grid import AbstractGrid
from ...spatial.finite_volumes._sides import AbstractSides, ends
from . import _halo
from ._flow_sides import SplitSides, next_to
from ._sharding import part_of


class WideSides(AbstractSides):
    """The sides of a block with layers of its neighbours' cells along the axes that are split.

    Attributes:
        grid: The whole grid.
        split: The sides of the block without them.
        depth: The number of layers.
    """

    grid: AbstractGrid
    split: SplitSides
    depth: int = eqx.field(static=True)

    @property
    def depths(self) -> tuple[int, ...]:
        """The number of layers at either end of each axis."""
        halo = self.split.halo()
        return tuple(self.depth * (halo.devices(axis) > 1) for axis in range(self.grid.ndim))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the block with its layers."""
        return tuple(n + 2 * d for n, d in zip(self.split.shape, self.depths))

    def widened(self, law: AbstractConservationLaw, y: Float[Array, "..."], t: RealScalarLike, args: Args) -> Array:
        """Returns a block's conserved state with the layers of its neighbours, and at sides those of its conditions."""
        halo, lead = self.split.halo(), law.volumes.lead(y)
        for axis, depth in enumerate(self.depths):
            if depth:
                closed = self._closed(axis)
                low, high = _halo.neighbours(y, depth, axis, halo, closed)
                if closed:
                    # zeros came from beyond the sides, which no law takes for a state; the next stage makes them anew
                    first, last = ends(y, 1, lead + axis)
                    still = (jnp.broadcast_to(first, low.shape), jnp.broadcast_to(last, high.shape))
                    low, high = _halo.at_edges(still, (low, high), axis, halo)
                y = jnp.concatenate([low, y, high], axis=lead + axis)
        return y

    def cut(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the block without its layers."""
        for axis, depth in enumerate(self.depths):
            at = y.ndim - self.grid.ndim + axis
            y = jax.lax.slice_in_dim(y, depth, y.shape[at] - depth, axis=at)
        return y

    def pad(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> Float[Array, "..."]:
        """Returns primitive states with ghost cells along one axis, and layers beyond sides anew."""
        at = w.ndim - self.grid.ndim + axis
        if self.depths[axis] and self._closed(axis):
            depth = self.depths[axis]
            inner = jax.lax.slice_in_dim(w, depth, w.shape[at] - depth, axis=at)
            made = self._made(law, inner, axis, depth, t, args)
            low, high = _halo.at_edges(made, ends(w, depth, at), axis, self.split.halo())
            w = jnp.concatenate([low, inner, high], axis=at)
        low, high = self.around(law, w, axis, width, t, args)
        return jnp.concatenate([low, w, high], axis=at)

    def around(
        self, law: AbstractConservationLaw, w: Float[Array, "..."], axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """Returns the ghost cells beyond both ends of an axis; beyond layers they are of no meaning, but states."""
        at = w.ndim - self.grid.ndim + axis
        if self.depths[axis]:
            return tuple(jnp.repeat(end, width, axis=at) for end in ends(w, 1, at))  # type: ignore[return-value]
        if self._closed(axis):
            return self._made(law, w, axis, width, t, args)
        first, last = ends(w, width, at)
        return last, first

    def renewed(self, law: AbstractConservationLaw, y: Float[Array, "..."], t: RealScalarLike, args: Args) -> Array:
        """Returns a conserved state with layers beyond sides anew, for kernels, which make none."""
        for axis, depth in enumerate(self.depths):
            if depth and self._closed(axis):
                at = law.volumes.lead(y) + axis
                inner = jax.lax.slice_in_dim(y, depth, y.shape[at] - depth, axis=at)
                near = law.primitive(jnp.concatenate(ends(inner, depth, at), axis=at))
                made = self._made(law, near, axis, depth, t, args)
                made = tuple(law.conserved(x) for x in made)
                low, high = _halo.at_edges(made, ends(y, depth, at), axis, self.split.halo())
                y = jnp.concatenate([low, inner, high], axis=at)
        return y

    def local(self, values: Array) -> Array:
        """Returns the part of an array over the whole grid that lies along the block with its layers."""
        for axis in range(self.grid.ndim):
            values = self._part(values, axis, values.ndim - self.grid.ndim + axis)
        return values

    def largest(self, x: Float[Array, "..."]) -> Float[Array, ""]:
        """Returns the largest number over all devices, NaN if one is."""
        return self.split.largest(x)

    def everywhere(self, holds: Bool[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether something holds on all devices."""
        return self.split.everywhere(holds)

    def _closed(self, axis: int) -> bool:
        return not self.split.sides.periodic[axis]

    def _made(
        self, law: AbstractConservationLaw, w: Array, axis: int, width: int, t: RealScalarLike, args: Args
    ) -> tuple[Array, Array]:
        """The ghost cells that the conditions make at both ends of an axis."""
        lead = w.ndim - self.grid.ndim

        def here(value: Array) -> Array:
            return next_to(value, axis, lead, self.grid.ndim, self._part)

        return self.split.sides.ghosts(law, w, axis, width, t, args, here)

    def _part(self, values: Array, axis: int, at: int) -> Array:
        """The part along one axis."""
        depth, name = self.depths[axis], self.split.axes[axis]
        if not depth or name is None:
            return part_of(values, self.split.halo().axes[axis], at)
        n, devices = values.shape[at], jax.lax.axis_size(name)
        room = [(depth, depth) if k == at else (0, 0) for k in range(values.ndim)]
        values = jnp.pad(values, room, mode="edge" if self._closed(axis) else "wrap")
        size = n // devices
        return jax.lax.dynamic_slice_in_dim(values, jax.lax.axis_index(name) * size, size + 2 * depth, at)
