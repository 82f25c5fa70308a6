"""Members in fixed blocks: the unit of execution, and what decides the last bit of a result.

The number of members in a loop determines how XLA groups members into vector registers, and with that the last bit of
the results. Chaotic systems make that bit visible. Here every device runs whole blocks of exactly `block` members, one
after another, and a member always has the same neighbours; so results depend on `block` and the order of the members,
and not on how many devices there are.

XLA adds an exception: it compiles a program for several devices through more passes than one for a
single device, and may then, say, divide by a number in one and multiply by its reciprocal in the other.
So `sweep`, and `ensemble` called from Python, run a program for a single device on each (_per_device.py);
`run_blocks`, for an ensemble inside a larger program, cannot.
"""

import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from .._choices import choices
from ._mesh import MEMBER, is_explicit


def check_block(block: Any, *, where: str) -> int:
    """Returns `block` as an int."""
    try:
        if isinstance(block, (bool, np.bool_)):
            raise TypeError
        size = operator.index(block)
    except TypeError:
        raise TypeError(
            f"`{where}`: `block`, the number of members in a block, must be an integer, got {block!r}."
        ) from None
    if size <= 0:
        raise ValueError(f"`{where}`: `block`, the number of members in a block, must be positive, got {size}.")
    return size


def default_block(n: int, platform: str) -> int:
    """Returns the block size of a sweep over `n` members.

    It depends only on the number of members and the platform, so that the number of devices does not affect the
    results. About eight blocks keep up to eight devices busy; a CPU core is fastest with some hundreds of members at a
    time and an accelerator needs thousands to fill it.
    """
    table = choices().batching
    low, high = table.cpu_block if platform == "cpu" else table.accelerator_block
    return min(n, max(low, min(high, -(-n // 8))))


def run_blocks(
    member: Callable[[PyTree, PyTree], PyTree],
    params: PyTree,
    shared: PyTree,
    *,
    n: int,
    block: int,
    mesh: Mesh | AbstractMesh | None,
) -> PyTree:
    """Runs `member(one_members_params, shared)` for `n` members, in blocks, over the mesh.

    Must be traced (called under `jax.jit`).

    `check_vma` is off, and that is what makes the gradients right. The types that it adds tell what differs between
    devices from what does not, and differentiating with respect to something that does not differ sums over the
    devices. A member must never see that: a constant that it creates, such as the starting point of a Newton iteration,
    does not differ between devices, and its Jacobian would silently be the sum over all devices' members. With the
    types off, every device's code is differentiated separately, and `shared` gets its sum where it enters, because
    every input that is not split over the axis is transposed to a `psum` there. The error that the types guard against,
    an output declared equal on all devices that is not, cannot occur: every output is split over the axis.

    Args:
        member: The function to run; returns a PyTree of arrays.
        params: Arrays with a leading axis of `n`.
        shared: A PyTree of arrays, the same for all members.
        n: The number of members.
        block: The number of members of a block, which run side by side.
        mesh: The devices; None to run on the spot.
    """
    devices = 1 if mesh is None else mesh.shape[MEMBER]
    slabs = -(-n // (block * devices))  # blocks a device
    total = slabs * block * devices

    def on_device(params, shared):
        def one_block(params):
            return jax.vmap(member, in_axes=(0, None))(params, shared)

        if slabs == 1:
            return one_block(params)
        params = jax.tree.map(lambda x: x.reshape((slabs, block) + x.shape[1:]), params)
        # A gradient keeps each block's inputs and runs it again, so that it needs the memory of one block.
        out = jax.lax.map(jax.checkpoint(one_block, prevent_cse=False), params)
        return jax.tree.map(lambda x: x.reshape((slabs * block,) + x.shape[2:]), out)

    if mesh is None:
        padded = jax.tree.map(lambda x: _pad(x, total), params)
        return jax.tree.map(lambda x: x[:n], on_device(padded, shared))

    split = PartitionSpec(MEMBER)
    run = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(split, PartitionSpec()),
        out_specs=split,
        axis_names={MEMBER},
        check_vma=False,
    )
    if n == total:
        return run(_place(params, mesh, split), shared)
    # Whole copies are cut and padded without asking other devices; the results are gathered once.
    padded = jax.tree.map(lambda x: _pad(x, total), _place(params, mesh, PartitionSpec()))
    out = run(_place(padded, mesh, split), shared)
    return jax.tree.map(lambda x: x[:n], _place(out, mesh, PartitionSpec()))


def _pad(x: Any, total: int) -> Any:
    # The last member again: zeros or NaN could take more steps than any real member, or warn.
    missing = total - x.shape[0]
    return x if missing == 0 else jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing,) + x.shape[1:])])


def _place(tree: PyTree, mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> PyTree:
    sharding = NamedSharding(mesh, spec)
    place = jax.sharding.reshard if is_explicit(mesh) else jax.lax.with_sharding_constraint
    return jax.tree.map(lambda x: place(x, sharding), tree)


def split_static(tree: PyTree) -> tuple[PyTree, PyTree]:
    """Splits `tree` into its arrays, Python numbers among them, and the rest."""
    tree = jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array_like(x) else x, tree)
    return eqx.partition(tree, eqx.is_array)
