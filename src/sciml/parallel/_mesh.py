"""Devices as named axes, and which of them an ensemble runs on."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

MEMBER = "member"
"""The mesh axis over which members are spread."""


def mesh(*, member: int = -1, devices: Sequence[Any] | np.ndarray | None = None, **axes: int) -> Mesh:
    """Arranges devices into a mesh with an axis named "member", and optional further axes.

    The axes are `Auto`: JAX chooses the placement of computations outside of `ensemble`, so the mesh can be used with
    any code. (`jax.make_mesh` makes `Explicit` axes, which most code written for one device does not support.)

    Args:
        member: The number of devices, or groups of devices, that share the members; -1 for all remaining devices.
        devices: The devices to use; all of `jax.devices()` by default.
        axes: Further named axes, for members that each span several devices.

    Returns:
        A mesh with the axes "member" first, then `axes` in the order given.

    Raises:
        ValueError: If the sizes do not use all the devices, if more than one is -1, or if there is no device.
        TypeError: If a size is not an integer, or something in `devices` is not a device.

    Example:
        ```python
        import jax
        from sciml import parallel

        assert parallel.mesh().shape["member"] == len(jax.devices())
        assert parallel.mesh(devices=jax.devices()[:1]).shape["member"] == 1
        ```
    """
    grid = np.asarray(jax.devices() if devices is None else devices, dtype=object).reshape(-1)
    sizes = {name: _size(name, size) for name, size in {MEMBER: member, **axes}.items()}
    if any(not isinstance(device, jax.Device) for device in grid):
        raise TypeError(f"`mesh(devices=...)` must be devices, such as `jax.devices()[:2]`, but is {devices!r}.")
    if grid.size == 0:
        raise ValueError("`mesh` got no devices. Leave `devices` out to use all of `jax.devices()`.")
    if len(set(grid)) != grid.size:
        raise ValueError("`mesh` got the same device twice in `devices`, but each may appear only once.")
    free = [name for name, size in sizes.items() if size == -1]
    known = math.prod(size for size in sizes.values() if size != -1)
    asked = ", ".join(f"{name}={size}" for name, size in sizes.items())
    if len(free) > 1:
        raise ValueError(f"`mesh({asked})`: at most one axis may be -1 (all remaining devices), got {len(free)}.")
    if free:
        if grid.size % known:
            raise ValueError(
                f"`mesh({asked})`: {grid.size} devices cannot be divided into groups of {known}. "
                "Choose sizes that divide the number of devices, or pass fewer `devices`."
            )
        sizes[free[0]] = grid.size // known
    elif known != grid.size:
        raise ValueError(
            f"`mesh({asked})` requires {known} devices, but got {grid.size}. "
            f"Pass that number, such as `devices=jax.devices()[:{known}]`, or set one axis to -1."
        )
    return Mesh(grid.reshape(tuple(sizes.values())), tuple(sizes))


def _size(name: str, size: Any) -> int:
    try:
        if isinstance(size, (bool, np.bool_)):
            raise TypeError
        size = operator.index(size)
    except TypeError:
        raise TypeError(f"`mesh`: the size of axis `{name}` must be an integer, got {size!r}.") from None
    if size == 0 or size < -1:
        raise ValueError(
            f"`mesh`: the size of axis `{name}` must be positive, or -1 for all remaining devices, got {size}."
        )
    return size


def choose_mesh(given: Mesh | AbstractMesh | None, *, where: str) -> Mesh | AbstractMesh | None:
    """Returns the mesh that `where` is to run on; None to run in place.

    The mesh of the context (`jax.set_mesh`) comes first, because JAX allows no other inside it;
    then the one given; then all devices. Inside a `jax.shard_map` over the axis "member" the
    caller has already been given its device: there is nothing left to spread.
    """
    ambient = jax.sharding.get_abstract_mesh()
    if given is not None and not isinstance(given, (Mesh, AbstractMesh)):
        raise TypeError(f"`{where}`: `mesh` must be a `jax.sharding.Mesh`, got {type(given).__name__}.")
    if ambient.empty:
        chosen = mesh() if given is None else given
        _require_member(chosen, "`mesh`", where=where)
        return without_explicit_axes(chosen)
    if MEMBER in ambient.manual_axes:
        return None
    _require_member(ambient, "the mesh set by `jax.set_mesh`", where=where)
    if given is not None and dict(given.shape) != dict(ambient.shape):
        raise ValueError(
            f"`{where}`: `mesh` has axes {describe(given)}, but the mesh set by `jax.set_mesh` has "
            f"{describe(ambient)}, and JAX does not allow another mesh inside it. Leave `mesh` out, or call outside of "
            "it."
        )
    return ambient


def concrete_mesh(given: Mesh | None, *, where: str) -> Mesh:
    """Returns the mesh that `where`, called from Python, puts its arrays on."""
    chosen = choose_mesh(given, where=where)
    if isinstance(chosen, Mesh):
        return chosen
    if chosen is None:
        raise ValueError(f"`{where}` cannot be called inside `jax.shard_map`. Use `ensemble` there.")
    return jax.sharding.get_mesh()


def member_groups(chosen: Mesh) -> list[Mesh]:
    """Cuts a mesh along "member": one mesh of `Auto` axes for each place that runs members."""
    at = chosen.axis_names.index(MEMBER)
    return [Mesh(np.take(chosen.devices, [i], axis=at), chosen.axis_names) for i in range(chosen.shape[MEMBER])]


def is_explicit(chosen: Mesh | AbstractMesh) -> bool:
    """Whether arrays carry their place on the axis "member" in their type."""
    return dict(zip(chosen.axis_names, chosen.axis_types, strict=True))[MEMBER] == AxisType.Explicit


def without_explicit_axes(chosen: Any) -> Any:
    """Returns a mesh with `Auto` axes: without `jax.set_mesh` arrays do not carry others, so nothing is lost."""
    if isinstance(chosen, Mesh) and any(kind == AxisType.Explicit for kind in chosen.axis_types):
        return Mesh(chosen.devices, chosen.axis_names)
    return chosen


def _require_member(chosen: Mesh | AbstractMesh, what: str, *, where: str) -> None:
    if MEMBER not in chosen.axis_names:
        raise ValueError(
            f'`{where}`: {what} must have an axis named "{MEMBER}", got {describe(chosen)}. '
            "Create it with `sciml.parallel.mesh`."
        )


def describe(chosen: Mesh | AbstractMesh) -> str:
    """Returns the axes of a mesh with their sizes, for a message."""
    return "(" + ", ".join(f"{name}={size}" for name, size in chosen.shape.items()) + ")"
