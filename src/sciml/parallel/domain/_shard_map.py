"""Running a function once on every device, each with its block of the fields."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec
from jaxtyping import PyTree

from ..._jax._vma import vma_of
from .._blocks import split_static
from ..members._pytree import is_array
from ._sharding import Axes, place, spec_of


@eqx.filter_jit
def run_split(
    fn: Callable[..., PyTree],
    fields: PyTree,
    shared: PyTree,
    *,
    axes: Axes,
    mesh: Mesh | AbstractMesh,
    out_specs: PyTree,
) -> PyTree:
    """Runs `fn(fields, shared)` on every device; see `Domain.run`.

    `check_vma` is on: the types prove that what is returned as one number for all devices is one, and
    that loops with messages in them iterate equally often everywhere. A derivative by what is shared is
    summed over the devices, inside `fn` as well as outside of it, because the devices compute one
    result between them.

    Where the results lie is read from their types, for which `fn` is traced once before.
    """
    ambient = jax.sharding.get_abstract_mesh()
    names = frozenset(mesh.axis_names) - frozenset(ambient.manual_axes)
    fields, fields_static = eqx.partition(jax.tree.map(_as_array, fields), is_array)
    common, common_static = eqx.partition((fn, shared), is_array)
    fields = jax.tree.map(jnp.asarray, fields)
    static = None

    def on_device(fields, common):
        nonlocal static
        fn, shared = eqx.combine(common, common_static)
        fields = eqx.combine(fields, fields_static)
        out, static = split_static(fn(fields) if shared is None else fn(fields, shared))
        return out

    def call(body, specs):
        return jax.shard_map(
            body,
            mesh=None if ambient.manual_axes else mesh,
            in_specs=(jax.tree.map(lambda x: spec_of(axes, x.ndim), fields), PartitionSpec()),
            out_specs=specs,
            axis_names=names,
        )

    if not ambient.manual_axes:
        fields = place(fields, mesh, axes)
    elif AxisType.Explicit in ambient.axis_types:  # a field's type says where it lies, and its cotangent's type too
        fields = place(fields, ambient, axes)
    if out_specs is None:
        found = None

        def look(fields, common):
            nonlocal found
            blocks = {x.shape[x.ndim - len(axes) :] for x in jax.tree.leaves(fields)}
            out = on_device(fields, common)
            found = jax.tree_util.tree_map_with_path(lambda path, x: _spec(path, x, axes, blocks), out)
            return ()

        jax.eval_shape(call(look, ()), fields, common)
        out_specs = found
    return eqx.combine(call(on_device, out_specs)(fields, common), static)


def _as_array(x: Any) -> Any:
    return jnp.asarray(x) if eqx.is_array_like(x) else x


def _spec(path: Any, x: jax.Array, axes: Axes, blocks: set) -> PartitionSpec:
    """Returns where a result lies: whole if the same on all devices, else like a field."""
    if not vma_of(x) & {axis for axis in axes if axis}:
        return PartitionSpec()
    where = "the result" + jax.tree_util.keystr(path)
    if x.ndim < len(axes):
        raise ValueError(
            f"`Domain.run`: {where} of `fn` has shape {x.shape} and differs between devices, but is no field. Combine "
            "the devices' parts, by `Domain.sum`, `mean`, `max` or `norm`, or give `out_specs`."
        )
    if x.shape[x.ndim - len(axes) :] not in blocks:
        raise ValueError(
            f"`Domain.run`: {where} of `fn` has shape {x.shape} on each device, and the blocks of the fields end with "
            f"{' or '.join(map(str, sorted(blocks)))}. Say with `out_specs` where it lies; for a spectrum give "
            "`out_specs=PartitionSpec(*domain.spectral_axes)`."
        )
    return spec_of(axes, x.ndim)
