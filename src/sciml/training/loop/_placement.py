"""Placement of batches and weights: batches over the first axis of a mesh, weights as the user placed them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


class MeshPlacement(NamedTuple):
    """The devices of a training.

    Attributes:
        mesh: With automatic axes; None for one device, or for wherever the arrays are.
    """

    mesh: Mesh | None = None

    @property
    def parts(self) -> int:
        """Into how many parts a batch is cut."""
        return 1 if self.mesh is None else self.mesh.devices.shape[0]

    def _over_batch(self, ndim: int) -> NamedSharding:
        assert self.mesh is not None
        return NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names[0]) if ndim else PartitionSpec())

    def batch(self, tree: PyTree) -> PyTree:
        """Returns a batch on the devices: cut along its first axis, or whole on each where that cannot be cut."""
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, tree)
        rows = {np.shape(x)[0] for x in jax.tree.leaves(tree) if np.ndim(x)}
        if any(n % self.parts for n in rows):
            return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))
        return jax.tree.map(lambda x: jax.device_put(x, self._over_batch(np.ndim(x))), tree)

    def constrained(self, tree: PyTree) -> PyTree:
        """The same for a batch that the program itself makes."""
        if self.mesh is None:
            return tree

        def place(x: Any) -> Any:
            cut = x.ndim > 0 and x.shape[0] % self.parts == 0
            return jax.lax.with_sharding_constraint(x, self._over_batch(x.ndim if cut else 0))

        return jax.tree.map(place, tree)

    def sharding_of(self, x: Any) -> NamedSharding:
        """Returns where a weight belongs: where it is, if it is on this mesh, or else on every device."""
        assert self.mesh is not None
        sharding, spec = getattr(x, "sharding", None), PartitionSpec()
        if isinstance(sharding, NamedSharding) and _same(sharding.mesh, self.mesh):
            spec = sharding.spec
        return NamedSharding(self.mesh, spec)

    def weights(self, tree: PyTree) -> PyTree:
        """Returns a model whose arrays are on the mesh."""
        if self.mesh is None:
            return tree
        return jax.tree.map(lambda x: jax.device_put(x, self.sharding_of(x)) if _is_array(x) else x, tree)

    def returned(self, tree: PyTree, given: PyTree) -> PyTree:
        """Returns a model whose arrays have the placement of the given model: on the mesh, or on one device."""
        if self.mesh is None:
            return tree

        def place(x: Any, like: Any) -> Any:
            if not _is_array(x):
                return x
            spread = isinstance(like, jax.Array) and len(like.sharding.device_set) > 1
            return jax.device_put(x, like.sharding) if spread else jnp.asarray(np.asarray(x))

        return jax.tree.map(place, tree, given)

    def layout(self, state: PyTree, free: PyTree) -> PyTree:
        """Returns the shardings of a state: parts with the structure and shapes of the weights are placed like them.

        Args:
            state: Arrays, or their shapes.
            free: The weights, on the mesh.
        """
        assert self.mesh is not None
        structure, everywhere = jax.tree.structure(free), NamedSharding(self.mesh, PartitionSpec())

        def like_weights(tree: Any) -> bool:
            return jax.tree.structure(tree) == structure

        def one(x: Any, weight: Any) -> NamedSharding:
            return self.sharding_of(weight) if x.shape == weight.shape else everywhere

        def place(tree: Any) -> Any:
            if like_weights(tree):
                return jax.tree.map(one, tree, free)
            return everywhere

        return jax.tree.map(place, state, is_leaf=like_weights)


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray)


def _same(one: Any, other: Mesh) -> bool:
    return one.axis_names == other.axis_names and isinstance(one, Mesh) and np.array_equal(one.devices, other.devices)


def placement_of(mesh: Any, model: PyTree, data: PyTree = None) -> MeshPlacement:
    """Returns the devices of a training: the given mesh, the mesh of `jax.set_mesh`, or the mesh of sharded arrays.

    Its axes become automatic ones: weights and batches are placed from outside, so that the loss does not depend on it.

    Args:
        mesh: The mesh, or None.
        model: The model.
        data: Arrays, or None.

    Raises:
        TypeError: If `mesh` is not a mesh.
        ValueError: If the weights are on another mesh, or the mesh spans processes.
    """
    if mesh is not None and not isinstance(mesh, Mesh):
        raise TypeError(
            "`train`: `mesh` must be a `jax.sharding.Mesh`, such as `sciml.parallel.mesh()`, got "
            f"{type(mesh).__name__}."
        )
    meshes = _meshes(model)
    if mesh is None and not jax.sharding.get_abstract_mesh().empty:
        mesh = jax.sharding.get_mesh()
    if mesh is None:
        mesh = next(iter(meshes or _meshes(data)), None)
    if mesh is None:
        return MeshPlacement()
    if mesh.is_multi_process:
        raise ValueError(
            "`train`: `mesh` spans several processes, but a training runs in one process. Pass a mesh of "
            "`jax.local_devices()`."
        )
    other = [m for m in meshes if not _same(m, mesh)]
    if other:
        raise ValueError(
            f"`train`: `mesh` is {dict(mesh.shape)}, but a weight of the model is on another mesh, "
            f"{dict(other[0].shape)}. Shard the weights over the axes of `mesh`."
        )
    if any(kind == AxisType.Explicit for kind in mesh.axis_types):
        mesh = Mesh(mesh.devices, mesh.axis_names)
    return MeshPlacement(mesh)


def _meshes(tree: PyTree) -> list[Any]:
    """Returns the meshes over which arrays are cut."""
    shardings = [x.sharding for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    return [s.mesh for s in shardings if isinstance(s, NamedSharding) and not s.is_fully_replicated]
