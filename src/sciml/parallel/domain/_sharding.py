"""The layout of a field on a mesh: the mesh axis of each of its dimensions, and the limits of splitting."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ...spatial import Boundaries, OrthogonalGrid, Sides
from .._mesh import describe, without_explicit_axes

Axes = tuple[str | None, ...]
"""For each of a field's last dimensions the mesh axis that splits it, or None."""


def spec_of(axes: Axes, ndim: int) -> PartitionSpec:
    """Returns the layout of a field of `ndim` dimensions; `axes` name the last of them."""
    return PartitionSpec(*(None,) * (ndim - len(axes)), *axes)


def manual_axes() -> frozenset:
    """Returns the mesh axes over which the code being traced runs once per device."""
    return frozenset(jax.sharding.get_abstract_mesh().manual_axes)


def are_manual(axes: Axes) -> bool:
    """Returns whether code is being traced that runs once per device, with that device's block of a field.

    Raises:
        ValueError: If it does so over some of the axes that split the field, and not over others.
    """
    names = {name for name in axes if name}
    found = manual_axes() & names
    if found and found != names:
        missing = sorted(names - found)
        raise ValueError(f"`Domain`: inside a `jax.shard_map` over {sorted(found)}, but not over {missing}.")
    return bool(found)


def part_of(values: Array, name: str | None, at: int) -> Array:
    """Returns the part along an axis of an array that belongs to this device; all where no mesh axis splits it."""
    if name is None:
        return values
    size = values.shape[at] // jax.lax.axis_size(name)
    return jax.lax.dynamic_slice_in_dim(values, jax.lax.axis_index(name) * size, size, at)


def gathered(u: Array, axes: Axes) -> Array:
    """Returns all of a field of which every device holds a block; `axes` name its last dimensions."""
    for at, name in enumerate(axes, u.ndim - len(axes)):
        u = u if name is None else jax.lax.all_gather(u, name, axis=at, tiled=True)
    return u


def along(values: Array, name: str | None, cells: int) -> Array:
    """Returns the part of a vector along an axis that belongs to this device: of its cells, or of the faces of these.

    Args:
        values: A number for each of the cells of the whole axis, or for each face, of which there is one more.
        name: The mesh axis that splits it, or None.
        cells: The number of cells.
    """
    if name is None:
        return values
    size = cells // jax.lax.axis_size(name)
    start = jax.lax.axis_index(name) * size
    return jax.lax.dynamic_slice_in_dim(values, start, size + len(values) - cells, 0)


def choose_domain_mesh(given: Mesh | AbstractMesh | None, axes: Axes) -> Mesh | AbstractMesh:
    """Returns the mesh of the context (`jax.set_mesh`), or else the one given.

    Raises:
        ValueError: If there is none, it lacks an axis, or the two differ.
    """
    ambient = jax.sharding.get_abstract_mesh()
    chosen = without_explicit_axes(given) if ambient.empty else ambient
    if chosen is None:
        sizes = ", ".join(f"{name}=..." for name in axes if name)
        raise ValueError(
            f"`Domain` has no mesh. Pass `mesh=parallel.mesh(member=1, {sizes})`, or set one with `jax.set_mesh`."
        )
    missing = [name for name in axes if name and name not in chosen.axis_names]
    if missing:
        raise ValueError(f'`Domain`: the mesh has no axis named "{missing[0]}"; its axes are {describe(chosen)}.')
    if given is not None and dict(given.shape) != dict(chosen.shape):
        raise ValueError(
            f"`Domain`: `mesh` has axes {describe(given)}, but the mesh of the context has {describe(chosen)}, and JAX "
            "does not allow another mesh inside it. Leave `mesh` out, or call outside of it."
        )
    return chosen


def check_field(shape: tuple[int, ...], axes: Axes, mesh: Mesh | AbstractMesh, *, name: str) -> None:
    """Checks that a field can be split evenly.

    Raises:
        ValueError: If it has too few dimensions, or an extent that the mesh does not divide.
    """
    if len(shape) < len(axes):
        raise ValueError(
            f"`Domain.run`: `{name}` has shape {shape}, but a field must have at least the {len(axes)} dimensions of "
            f"`axes={axes}`. Pass values that every device needs whole as `shared`."
        )
    extents = shape[len(shape) - len(axes) :]
    for dim, (extent, axis) in enumerate(zip(extents, axes)):
        if axis is None or extent % mesh.shape[axis] == 0:
            continue
        at = len(shape) - len(axes) + dim
        raise ValueError(
            f"`Domain.run`: `{name}` has {extent} cells along dimension {at}, which mesh axis "
            f'"{axis}" cannot divide into {mesh.shape[axis]} equal parts. {suggestion(extents, axes, mesh, 1)}'
        )


def check_cells(boundary: Boundaries | Sides, axes: Axes) -> None:
    """Refuses what blocks of a grid whose cells differ have no form for.

    Raises:
        ValueError: If unknowns are not at centres, or angles around the axis are split.
    """
    grid = boundary.grid
    assert isinstance(grid, OrthogonalGrid)
    if isinstance(boundary, Boundaries) and set(boundary.location) != {"center"}:
        raise ValueError(
            f"`Domain`: on an `OrthogonalGrid` unknowns must be at centres, but they are at {boundary.location}."
        )
    if grid.on_axis and grid.turns and axes[1] is not None:
        raise ValueError(
            f"`Domain`: around the axis r = 0 opposite cells are neighbours, so angles cannot be split, but "
            f"`axes={axes}`. Split the radius."
        )


def halo_error(width: int, local: int, dim: int, axis: str | None, devices: int) -> ValueError:
    """Returns the error of a halo wider than a device's block."""
    extent = local * devices
    if axis is None:
        return ValueError(f"A halo requires {width} layers of dimension {dim}, but the field has {extent}.")
    most = max((k for k in range(1, devices) if extent % k == 0 and extent // k >= width), default=0)
    advice = f"split it over at most {most} devices" if most else f"{extent} cells are too few to split"
    return ValueError(
        f"A halo of width {width} is wider than the {local} cells of dimension {dim} that each device holds ({extent} "
        f'cells over the {devices} devices of mesh axis "{axis}"): {advice}, or exchange more often '
        "(`steps_per_exchange`)."
    )


def suggestion(extents: Sequence[int], axes: Axes, mesh: Mesh | AbstractMesh, halo: int) -> str:
    """Names the mesh of at most as many devices that divides the extents, with the least to exchange."""
    names = [axis for axis in axes if axis]
    budget = math.prod(mesh.shape[name] for name in names)
    sizes = [extent for extent, axis in zip(extents, axes) if axis]

    def meshes(sizes, budget):
        if not sizes:
            yield ()
            return
        for k in range(1, budget + 1):
            if sizes[0] % k == 0 and sizes[0] // k >= halo:
                for rest in meshes(sizes[1:], budget // k):
                    yield (k, *rest)

    def surface(counts):
        local = [n / k for n, k in zip(sizes, counts)]
        return sum(math.prod(local) / n for n, k in zip(local, counts) if k > 1)

    found = list(meshes(sizes, budget))
    if not found:
        return f"Make every extent a multiple of its axis, and at least {halo} times as large."
    best = min(found, key=lambda counts: (-math.prod(counts), surface(counts)))
    shape = ", ".join(f"{name}={k}" for name, k in zip(names, best))
    used = math.prod(best)
    few = "" if used == budget else f", devices=jax.devices()[:{used}]"
    return f"`parallel.mesh(member=1, {shape}{few})` would divide it, and so would extents that are multiples."


def place(tree: PyTree, mesh: Mesh | AbstractMesh, axes: Axes) -> PyTree:
    """Declares in a traced program that fields are split over the mesh."""
    explicit = any(kind == AxisType.Explicit for kind in mesh.axis_types)
    put: Any = jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint
    return jax.tree.map(lambda x: put(x, NamedSharding(mesh, spec_of(axes, x.ndim))), tree)
