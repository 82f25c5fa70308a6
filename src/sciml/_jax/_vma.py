"""Varying manual axes: what `jax.shard_map` with `check_vma=True` demands of loops and custom rules.

Inside `shard_map` every array's type says over which mesh axes it varies. A loop's carry must keep its type, and a
custom rule's cotangent must have the type of its input, so loops and rules promote what they take to the axes that any
of it varies over. Only this file uses JAX's interface for that, which is young and has changed its names.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

_T = TypeVar("_T")


def _axes(x: Any) -> frozenset:
    if not hasattr(x, "dtype"):  # Python scalars vary over nothing
        return frozenset()
    is_array = isinstance(x, jax.Array | np.ndarray | np.generic)
    return _axes_of_type(jax.typeof(x) if is_array else x)  # or the type of one


def _axes_of_type(kind: Any) -> frozenset:
    manual = getattr(kind, "manual_axis_type", None)  # the newer name of what was `vma`
    return frozenset((getattr(kind, "vma", None) or ()) if manual is None else manual.varying)


def _leaf_to_varying(x: Any, axes: frozenset) -> Any:
    missing = axes - _axes(x)
    if not missing or not hasattr(x, "dtype") or isinstance(x, np.generic):
        return x  # NumPy scalars are constants of the program, the same everywhere
    if isinstance(x, jax.ShapeDtypeStruct):
        return struct(x.shape, x.dtype, axes | _axes(x))
    return jax.lax.pcast(x, tuple(sorted(missing)), to="varying")


def vma_of(tree: Any) -> frozenset:
    """Returns the manual mesh axes over which any leaf of `tree` varies."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return frozenset()  # outside `shard_map`, where most programs are traced
    return frozenset().union(*map(_axes, jax.tree.leaves(tree)))


def to_varying(tree: _T, axes: Any) -> _T:
    """Returns `tree` with every array leaf varying over at least `axes`."""
    axes = frozenset((axes,) if isinstance(axes, str) else axes)
    if not axes:
        return tree
    return jax.tree.map(lambda x: _leaf_to_varying(x, axes), tree)


def promote(tree: _T) -> _T:
    """Returns `tree` with every array leaf varying over the axes that any of its leaves varies over."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return tree
    return to_varying(tree, vma_of(tree))


def match(tree: _T, like: Any) -> _T:
    """Returns `tree` with every array leaf varying over the axes that `like` varies over."""
    return to_varying(tree, vma_of(like))


def as_traced(values: Iterable[Any], atoms: Sequence[Any]) -> list:
    """Returns values that vary over at least the axes over which the operands of an equation do."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return list(values)
    return [to_varying(x, _axes_of_type(v.aval)) for x, v in zip(values, atoms, strict=True)]


def closed_over(fn: Callable, *args: Any) -> list:
    """Returns what a function closes over, for what varies among it; nothing outside `jax.shard_map`."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return []
    return jax.make_jaxpr(fn)(*args).consts


def typed_sharding(x: Any) -> jax.sharding.NamedSharding | None:
    """Returns the sharding on a mesh with explicit axes that is part of an array's type, None if there is none."""
    sharding = getattr(jax.typeof(x) if isinstance(x, jax.Array) else x, "sharding", None)
    if sharding is None or jax.sharding.AxisType.Explicit not in getattr(sharding.mesh, "axis_types", ()):
        return None
    return sharding


def on_explicit_axes(tree: Any) -> bool:
    """Returns whether an array is on a mesh with explicit axes, by its type."""
    return any(typed_sharding(x) is not None for x in jax.tree.leaves(tree))


def rows_like(count: int, item: jax.ShapeDtypeStruct | jax.Array, filling: float = 0) -> jax.Array:
    """Returns a number of rows for arrays like a given one, each sharded according to its type."""
    rows, sharding = jnp.full((count, *item.shape), filling, item.dtype), typed_sharding(item)
    if sharding is None or jax.sharding.get_abstract_mesh().manual_axes:
        return rows
    spec = jax.sharding.PartitionSpec(None, *sharding.spec)
    return jax.sharding.reshard(rows, jax.sharding.NamedSharding(sharding.mesh, spec))


def struct(
    shape: tuple[int, ...], dtype: Any, axes: frozenset, sharding: jax.sharding.NamedSharding | None = None
) -> jax.ShapeDtypeStruct:
    """Returns the type of an array that varies over the given manual axes or is sharded over explicit ones."""
    if not axes:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    # the argument of `ShapeDtypeStruct` for it changed its name too, so a promoted array is asked for its type
    return jax.eval_shape(lambda: to_varying(jax.lax.empty(shape, dtype), axes))


def jax_version() -> tuple[int, ...]:
    """Returns JAX's version as numbers, for the tables of where kernels are tested."""
    return tuple(jax.__version_info__)
