"""One function over all members, inside a computation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from .._checks import check_call, concrete
from .._jax._vma import typed_sharding
from .._option_names import knows_other_names
from .._same_code import first_of_same_code
from .._status import raise_for_status
from ._blocks import check_block, run_blocks, split_static
from ._lapack import must_run_alone
from ._member_status import status_of
from ._mesh import MEMBER, choose_mesh
from ._per_device import can_run_per_device, run_per_device
from .members._pytree import count_members, expand, is_array, numbers_as_array


@knows_other_names
def ensemble(
    fn: Callable[..., PyTree],
    params: PyTree,
    shared: PyTree = None,
    *,
    mesh: Mesh | AbstractMesh | None = None,
    block: int | None = None,
    throw: bool = False,
) -> PyTree:
    """Runs `fn` for every member, spread over the devices: $y_i = f(p_i, s)$.

    A `jax.vmap` that uses all devices. It works in `jax.jit`, `jax.grad` and `jax.vmap`, and can be called directly.
    Devices do not communicate while members run, so each one runs at its own pace: a loop whose length depends on the
    member stops on each device when that device's members are done. The gradient with respect to `shared` is summed
    over the devices once, at the end.

    Results stay split over the devices if the number of members is a multiple of `block` times the number of devices.
    Otherwise the last member is repeated to fill up the last block, and the results are gathered on every device
    without the copies.

    Args:
        fn: The function to run: `fn(one_members_params)`, or `fn(one_members_params, shared)` if `shared` is given. May
            return any PyTree; parts that are not arrays or numbers (functions, strings) are returned unchanged.
        params: The members: a PyTree of arrays with a leading axis of length `n`, or a `ParameterGrid`. Random keys,
            typed or raw, are also arrays.
        shared: Values that all members share, a PyTree.
        mesh: The devices, from `sciml.parallel.mesh`; by default the mesh set by `jax.set_mesh`, or else all devices.
            Only its axis "member" is used; `fn` may use the others.
        block: The number of members that run side by side. The default is `n` over the number of devices, rounded up,
            which is fastest, but then the last bit of a result depends on the number of devices. For bitwise identical
            results on any number of devices, pass a number: called from Python, every device then runs one program for
            a single device, block by block. Inside `jax.jit` or `jax.grad` there is one program for all devices, and
            the bits are the same from two devices up; a program for one device is compiled through other passes and may
            differ in the last bit. Smaller blocks also need less memory, and so does their gradient: it runs each block
            once more, and keeps the values of one block. Some hundreds of members are a good block on a CPU.
        throw: Whether to raise an error if a member failed: by the status of its `Solution`, or without one by NaN and
            infinite numbers, as in `sweep`. Under a transformation check these yourself.

    Returns:
        The results of `fn`, every array with a leading axis of length `n`.

    Raises:
        ValueError: If `params` is empty or its leaves' leading axes differ, if `block` is not positive, or if the mesh
            has no axis "member" or is not the one in use.
        TypeError: If `fn` cannot be called, or `block` is not an integer.
        SolveError: If a member failed and `throw` is set.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import parallel

        def loss(scale):
            ys = parallel.ensemble(lambda p, s: s * p["x"] ** 2, {"x": jnp.arange(5.0)}, scale, block=2)
            return jnp.sum(ys)

        assert jnp.allclose(jax.grad(loss)(jnp.array(3.0)), 30.0)
        ```
    """
    if not callable(fn):
        raise TypeError(f"`ensemble`: `fn` must be callable, got {type(fn).__name__}.")
    check_call(fn, "fn(params)" if shared is None else "fn(params, shared)", "`ensemble`: `fn`")
    out = _run(fn, params, shared, mesh, block)
    if throw:
        status = _status(*eqx.partition(out, is_array))
        if concrete(status):
            raise_for_status(status, where="ensemble")
    return out


def _run(fn: Callable[..., PyTree], params: PyTree, shared: PyTree, mesh: Any, block: int | None) -> PyTree:
    params = numbers_as_array(params)
    n = count_members(params, where="ensemble")
    chosen = choose_mesh(mesh, where="ensemble")
    params, shared = _off_other_meshes(params, chosen), _off_other_meshes(shared, chosen)
    if block is not None:
        block = check_block(block, where="ensemble")
        if chosen is not None and can_run_per_device(chosen):
            out = run_per_device(fn, params, shared, n=n, block=block, mesh=chosen)
            if out is not None:
                return out
    size = -(-n // (1 if chosen is None else chosen.shape[MEMBER])) if block is None else block
    given = (fn, expand(params), shared, n, size, chosen)
    if block is None and isinstance(chosen, Mesh) and chosen.size > 1 and can_run_per_device(chosen):
        if must_run_alone(lambda: _ensemble.lower(*given).as_text(), chosen.devices.flat[0].platform):
            out = run_per_device(fn, params, shared, n=n, block=size, mesh=chosen)
            if out is not None:
                return out
    return _ensemble(*first_of_same_code(given))


def _off_other_meshes(tree: PyTree, mesh: Any) -> PyTree:
    """Returns a PyTree whose arrays are on no other mesh, or other devices, which JAX would not mix with these."""
    devices = set(mesh.devices.flat) if isinstance(mesh, Mesh) else None

    def belongs(x: Any) -> bool:
        if not isinstance(x, jax.Array):
            return True
        typed = typed_sharding(x)
        if typed is not None:
            return typed.mesh in (mesh, getattr(mesh, "abstract_mesh", mesh))
        return not concrete(x) or len(x.devices()) == 1 or devices is None or x.devices() == devices

    def moved(x: Any) -> Any:
        if belongs(x):
            return x
        if not concrete(x):
            raise ValueError(
                f"`ensemble`: an array of shape {x.shape} is sharded on a mesh with explicit axes, {jax.typeof(x)}. "
                "Use `jax.vmap`, which runs the members where they are, or pass an array that is not on a mesh."
            )
        return jax.device_put(x, jax.devices()[0] if devices is None else NamedSharding(mesh, PartitionSpec()))

    return jax.tree.map(moved, tree)


def _run_all(fn: Any, params: Any, shared: Any, n: int, block: int, mesh: Any) -> Any:
    params, params_static = eqx.partition(params, is_array)
    common, common_static = eqx.partition((fn, shared), is_array)
    static = None

    def member(params, common):
        nonlocal static
        fn, shared = eqx.combine(common, common_static)
        params = eqx.combine(params, params_static)
        out, static = split_static(fn(params) if shared is None else fn(params, shared))
        return out

    params = jax.tree.map(jnp.asarray, params)
    out = run_blocks(member, params, common, n=n, block=block, mesh=mesh)
    return eqx.combine(out, static)


_ensemble: Any = eqx.filter_jit(_run_all)


@eqx.filter_jit
def _status(arrays: PyTree, static: Any) -> Array:
    """Returns a code of every member, from its results."""

    def one(arrays):
        returned = eqx.combine(arrays, static)
        return status_of(returned, returned)

    return jax.vmap(one)(arrays)
