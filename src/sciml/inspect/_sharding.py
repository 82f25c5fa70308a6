"""The placement of the parts of arrays, drawn with the numbers of the devices that hold them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from .._jax._vma import typed_sharding

_MOST = 16  # parts along an axis of a drawing


class Placement(NamedTuple):
    """The placement of an array.

    Attributes:
        name: Its place in the tree, empty for a single array.
        kind: Its dtype and shape.
        words: How it is split.
        devices: The numbers of the devices that hold each part, along the axes that are split; None if there are no
            devices to name, as within `jax.jit`.
    """

    name: str
    kind: str
    words: str
    devices: np.ndarray | None

    def __str__(self) -> str:
        """Name and words, and the parts as cells."""
        head = f"{self.name or 'array'}  {self.kind}: {self.words}"
        return head if self.devices is None or self.devices.ndim == 0 else "\n".join([head, *_drawn(self.devices)])


class Placements(NamedTuple):
    """The placement of the arrays of a tree; prints as a drawing.

    Attributes:
        arrays: A `Placement` for each.
    """

    arrays: tuple[Placement, ...]

    def __str__(self) -> str:
        """One drawing below the other."""
        return "\n".join(map(str, self.arrays)) or "no arrays"


def sharding(tree: PyTree) -> Placements:
    """Draws how the arrays of a tree are spread over devices; prints that, and returns it.

    Each cell is a part, with the numbers of the devices that hold it: more than one if the part is replicated.

    Args:
        tree: Any PyTree of arrays, or of `jax.ShapeDtypeStruct`s with a sharding. Within `jax.jit` the types of arrays
            on a mesh with explicit axes define how they are split, and no devices are named.

    Returns:
        The `Placements`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec
        from sciml import inspect

        mesh = jax.make_mesh((len(jax.devices()),), ("members",))
        members = NamedSharding(mesh, PartitionSpec("members"))
        y0 = jax.device_put(jnp.ones((8 * mesh.size, 3)), members)
        found = inspect.sharding({"y0": y0, "rate": jnp.ones(3)})
        assert found.arrays[1].name == "['y0']"
        ```
    """
    found = Placements(tuple(_placements(tree)))
    print(found)
    return found


def _placements(tree: PyTree) -> Iterator[Placement]:
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if not isinstance(x, jax.Array | jax.ShapeDtypeStruct):
            continue
        kind = f"{x.dtype}{list(x.shape)}"
        name = jax.tree_util.keystr(path)
        typed = typed_sharding(x)
        if isinstance(x, Tracer) or getattr(x, "sharding", None) is None:
            words = "not known here" if typed is None else _split(typed.spec, typed.mesh.shape)
            yield Placement(name, kind, words, None)
            continue
        where = x.sharding
        parts = where.devices_indices_map(x.shape)
        words = _words(where, x.shape, len(parts))
        yield Placement(name, kind, words, _devices(parts, x.shape))


def _words(where: Any, shape: tuple[int, ...], count: int) -> str:
    if count == 1:
        (device,) = where.device_set
        return f"whole, on {device.platform} {device.id}"
    if isinstance(where, jax.sharding.NamedSharding):
        return _split(where.spec, where.mesh.shape)
    pieces = math.prod(n // m for n, m in zip(shape, where.shard_shape(shape)) if m)
    return f"{pieces} parts on {count} devices" if pieces > 1 else f"whole on each of {count} devices"


def _split(spec: Any, sizes: Any) -> str:
    parts = []
    used = set()
    for axis, names in enumerate(spec):
        names = () if names is None else names if isinstance(names, tuple) else (names,)
        if names:
            used |= set(names)
            count = math.prod(sizes[name] for name in names)
            parts.append(f"axis {axis} in {count} by {' and '.join(map(repr, names))}")
    copies = math.prod(n for name, n in sizes.items() if name not in used)
    if not parts:
        return f"whole on each of {copies} devices"
    return ", ".join(parts) + (f"; each part {copies} times" if copies > 1 else "")


def _devices(parts: Mapping[Any, Any], shape: tuple[int, ...]) -> np.ndarray:
    """Returns the devices of each part, as text, along the axes that are split."""
    starts = [sorted({s[axis].start or 0 for s in parts.values()}) for axis in range(len(shape))]
    split = [axis for axis, found in enumerate(starts) if len(found) > 1]
    cells = np.full([len(starts[axis]) for axis in split], "", dtype=object)
    for device, place in sorted(parts.items(), key=lambda x: x[0].id):
        at = tuple(starts[axis].index(place[axis].start or 0) for axis in split)
        cells[at] = f"{cells[at]} {device.id}".strip()
    return cells


def _drawn(cells: np.ndarray) -> Iterator[str]:
    if cells.ndim > 2:
        yield f"  {' x '.join(map(str, cells.shape))} parts; shown are the first along all axes but two:"
        cells = cells.reshape(-1, *cells.shape[-2:])[0]
    rows = cells.reshape(1, -1) if cells.ndim == 1 else cells
    few = [row[:_MOST] for row in rows[:_MOST]]
    width = max(len(cell) for row in few for cell in row)
    rule = "  +" + ("-" * (width + 2) + "+") * len(few[0])
    yield rule
    for row in few:
        yield "  |" + "".join(f" {cell:^{width}} |" for cell in row) + (" ..." if rows.shape[1] > _MOST else "")
        yield rule
    if rows.shape[0] > _MOST:
        yield "  ..."
