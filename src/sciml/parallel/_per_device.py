"""An ensemble as programs for one device each, where it is called from Python.

This is for the last bit of the results. XLA compiles a program for several devices through other
passes than a program for one, and the two may differ in the last bit; but one program for a single
device, compiled for each of them, is the same program however many there are.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from .._same_code import first_of_same_code
from ._blocks import split_static
from ._lapack import must_run_alone
from ._mesh import MEMBER, member_groups
from .members._pytree import is_array, take, to_host


def is_tracing() -> bool:
    """Whether a function is being traced, by `jax.jit`, `jax.grad`, `jax.vmap` or another transform."""
    try:
        with jax.set_mesh(Mesh(np.asarray(jax.local_devices()[:1]), (MEMBER,))):
            return False
    except ValueError:  # JAX sets meshes from Python only, and has no public question for it
        return True


def can_run_per_device(mesh: Mesh | AbstractMesh) -> bool:
    """Whether the call comes from Python and uses devices of this process."""
    if is_tracing():
        return False
    mesh = mesh if isinstance(mesh, Mesh) else jax.sharding.get_mesh()
    return all(device.process_index == jax.process_index() for device in mesh.devices.flat)


def run_per_device(
    fn: Callable, params: PyTree, shared: PyTree, *, n: int, block: int, mesh: Mesh | AbstractMesh
) -> PyTree | None:
    """Runs `fn` for `n` members in blocks; None where it returns typed random keys, which cannot be assembled."""
    mesh = mesh if isinstance(mesh, Mesh) else jax.sharding.get_mesh()
    groups = member_groups(mesh)
    slabs = -(-n // (block * len(groups)))
    count = -(-n // block)
    params = to_host(params)
    common = [put((fn, shared), group) for group in groups[: -(-count // slabs)]]
    blocks: list[list[Any]] = [[] for _ in groups]
    static, alone = None, None
    for slab in range(slabs):
        for at, group in enumerate(groups):
            number = at * slabs + slab
            if number >= count:
                continue
            ids = np.minimum(np.arange(number * block, (number + 1) * block), n - 1)
            with jax.set_mesh(group):
                fn, shared = common[at]
                mine = put(take(params, ids), group)
                if alone is None:
                    alone = count > 1 and _must_run_alone(fn, shared, mine, groups)
                out, static = eqx.partition(_one_block(first_of_same_code(fn), shared, mine), is_array)
                if alone:
                    jax.block_until_ready(out)
            if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in jax.tree.leaves(out)):
                return None
            blocks[at].append(out)
    return eqx.combine(_assemble(blocks, groups, mesh, n, block * slabs), static)


def _must_run_alone(fn: Any, shared: Any, params: Any, groups: list[Mesh]) -> bool:
    def program() -> str:
        return _one_block.lower(fn, shared, params).as_text()

    return len(groups) > 1 and must_run_alone(program, groups[0].devices.flat[0].platform)


def _run_block(fn: Any, shared: Any, params: Any) -> Any:
    params, params_static = eqx.partition(params, is_array)
    static = None

    def member(params):
        nonlocal static
        params = eqx.combine(params, params_static)
        out, static = split_static(fn(params) if shared is None else fn(params, shared))
        return out

    return eqx.combine(jax.vmap(member)(params), static)


_one_block: Any = eqx.filter_jit(_run_block)


def _assemble(blocks: list[list[Any]], groups: list[Mesh], mesh: Mesh, n: int, rows: int) -> PyTree:
    """Makes one array, split over "member", of every device's blocks; cuts it to `n` rows."""
    like, treedef = jax.tree.flatten(blocks[0][0])
    leaves = []
    for i, leaf in enumerate(like):
        pieces = []
        for at, group in enumerate(groups):
            with jax.set_mesh(group):
                mine = [jax.tree.leaves(out)[i] for out in blocks[at]]
                missing = rows - sum(x.shape[0] for x in mine)
                if missing:
                    mine.append(put(np.zeros((missing,) + leaf.shape[1:], leaf.dtype), group))
                whole = put(jnp.concatenate(mine) if len(mine) > 1 else mine[0], group)
            pieces += [shard.data for shard in whole.addressable_shards]
        shape = (rows * len(groups),) + leaf.shape[1:]
        split = NamedSharding(mesh, PartitionSpec(MEMBER))
        leaves.append(jax.make_array_from_single_device_arrays(shape, split, pieces))
    whole = jax.tree.unflatten(treedef, leaves)
    return whole if n == rows * len(groups) else jax.tree.map(lambda x: x[:n], put(whole, mesh))


def put(tree: Any, mesh: Mesh) -> Any:
    """Copies the arrays of `tree` to every device of `mesh`."""
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda x: jax.device_put(x, sharding) if is_array(x) else x, tree)
