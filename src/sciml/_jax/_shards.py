"""Programs over members that every device runs for its own, where an array of members is sharded over devices.

A loop over a sharded axis under `jax.jit` runs on all devices until the slowest member of all is done, and the devices
communicate at every iteration. Members have nothing to do with each other, so here each device gets the loop over its
own. On a mesh with automatic axes only the compiler knows the sharding: it asks, by `custom_partitioning`, for the
program of one device. With explicit axes the sharding is part of the type, and the program stands in a `jax.shard_map`.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ._interpreters import ClosedJaxpr, Jaxpr, jaxpr_as_fun, take_current_trace
from ._vma import typed_sharding
from .programs import _names as names, equations, evaluate, programs_held, run_equation, with_programs

Program = Callable[[int], Callable[..., PyTree[Array]]]
"""`program(count)`: a function of arrays, of which some have `count` members in the last axis."""


_NO_MESH = jax.sharding.AbstractMesh((), ())


def shardable() -> bool:
    """Whether programs that are traced now may run on several devices, each with members of its own.

    Not on a mesh of one device, as for a block of a sweep: its program is the same for any number of devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    alone = bool(mesh.axis_names) and mesh.size == 1
    return jax.device_count() > 1 and not alone and not mesh.manual_axes


def mesh_of_whole(arrays: Iterable[Any]) -> Any:
    """Returns the mesh with explicit axes on which every device has arrays as a whole; None where it is another way."""
    found = [x for x in map(typed_sharding, arrays) if x is not None]
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if not found or manual or any(part is not None for x in found for part in x.spec):
        return None
    return found[0].mesh


def on_every_device(fn: Callable[..., PyTree[Array]]) -> Callable[..., PyTree[Array]]:
    """Returns a function of arrays that are whole on every device of a mesh with explicit axes, if they are on one.

    New arrays are on no mesh, and JAX refuses to put the two together, as in the carry of a loop. Within a
    `jax.shard_map` no array is on a mesh.
    """

    def run(*arrays):
        mesh = mesh_of_whole(arrays)
        if mesh is None:
            return fn(*arrays)
        whole = PartitionSpec()
        placed = [jax.sharding.reshard(x, NamedSharding(mesh, whole)) for x in arrays]
        return jax.shard_map(fn, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)(*placed)

    return run


def sign_of(condition: Array, dtype: Any) -> Array:
    """Returns 1 where a condition holds, else -1, by arithmetic: on the mesh that the condition is on.

    A choice between constants, which are on no mesh, would be on none. If the condition depends on members that are
    mapped over, JAX would then not find the axis by which these are sharded.
    """
    return 2 * condition.astype(dtype) - 1


def on_mesh_of(like: Any, tree: PyTree) -> PyTree:
    """Returns a PyTree with its arrays on the mesh with explicit axes that another is on, if that is on one.

    Values that members share are not on a mesh. Handed out of `jax.vmap` for each member, it would not be sharded as
    members are.
    """
    sharding = typed_sharding(like)
    if sharding is None or jax.sharding.get_abstract_mesh().manual_axes:
        return tree

    def placed(x: Any) -> Any:
        if not isinstance(x, jax.Array) or typed_sharding(x) is not None:
            return x
        return jax.sharding.reshard(x, NamedSharding(sharding.mesh, PartitionSpec()))

    return jax.tree.map(placed, tree)


def members_alike(tree: PyTree[Array], *, last: bool = False) -> PyTree[Array]:
    """Returns arrays with members first, all sharded over the axes over which the first of them is by its type.

    Cotangents of what no member depends on are not sharded: JAX makes them of constants.

    Args:
        tree: The arrays.
        last: Whether members are last.
    """
    axis = -1 if last else 0
    for sharding in filter(None, map(typed_sharding, jax.tree.leaves(tree))):
        if sharding.spec and sharding.spec[axis] is not None:
            mesh, axes = sharding.mesh, sharding.spec[axis]
            break
    else:
        return tree

    def placed(x: Array) -> Array:
        others = [None] * (x.ndim - 1)
        spec = PartitionSpec(*others, axes) if last else PartitionSpec(axes, *others)
        return jax.sharding.reshard(x, NamedSharding(mesh, spec))

    return jax.tree.map(placed, tree)


def on_no_mesh() -> Any:
    """Returns a block in which new arrays are on no mesh, whatever the program around it is traced on.

    This includes values that a library computes at once while it is traced, as Equinox does for its enumerations: JAX
    puts them on the mesh that `jax.set_mesh` has set, and sets another only where it sees no trace. JAX 0.10 sees one
    within `jax.vmap` all the same; there `off_mesh` takes them from it.
    """
    with take_current_trace():
        try:
            return jax.set_mesh(cast(Any, None))  # which it takes, though its type does not say so
        except ValueError:
            return jax.sharding.use_abstract_mesh(_NO_MESH)


def on_mesh_of_arguments(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose new arrays are on the mesh with explicit axes that its arguments are on, if on one.

    For programs that JAX differentiates itself: it transposes zeros that are on no mesh, and does not batch a `jit` of
    them where members are sharded by their type. `jax.set_mesh` has the same effect; where a mesh is set, it stays.
    """

    @functools.wraps(fn)
    def run(*arguments: Any) -> Any:
        mesh = mesh_of_whole(jax.tree.leaves(arguments)) if jax.sharding.get_abstract_mesh().empty else None
        with contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh):
            return fn(*arguments)

    return run


def off_explicit_axes() -> Any:
    """Returns a block in which new arrays are on no mesh where they would be on one with explicit axes.

    For programs of arrays that are on none: JAX refuses operands of which one is, as where a `cond` is transposed.
    """
    mesh = jax.sharding.get_abstract_mesh()
    explicit = AxisType.Explicit in mesh.axis_types and not mesh.manual_axes
    return on_no_mesh() if explicit else contextlib.nullcontext()


def traced_on_no_mesh(fn: Callable, *arguments: PyTree) -> tuple[ClosedJaxpr, PyTree]:
    """Returns a function's program and the shapes of its results, traced on no mesh where its arguments allow it.

    A program that is traced on a mesh with explicit axes names that mesh wherever it makes an array, and would not run
    within a `jax.shard_map`. Arguments that are sharded keep it there.
    """
    explicit = AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types
    shardings = [typed_sharding(x) for x in jax.tree.leaves(arguments)]
    sharded = any(part is not None for x in shardings if x is not None for part in x.spec)
    if sharded or not (explicit or any(x is not None for x in shardings)):
        return jax.make_jaxpr(fn, return_shape=True)(*arguments)
    with on_no_mesh():
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*jax.tree.map(_on_no_mesh, arguments))
        return off_mesh(closed), shapes


def _on_no_mesh(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.Array | jax.ShapeDtypeStruct) else x


_PARTS: contextvars.ContextVar[int] = contextvars.ContextVar("_PARTS", default=1)


def parts_of_members() -> int:
    """Returns into how many parts the members have been cut, of which the program that is being traced runs one.

    Code that determines the shapes of results from the number of members must use the number of all members.
    """
    return _PARTS.get()


@contextlib.contextmanager
def as_one_of_many() -> Iterator[None]:
    """A block in which members are not counted: what one member leaves does not depend on how many others there are."""
    token = _PARTS.set(1)
    try:
        yield
    finally:
        _PARTS.reset(token)


def over_shards(
    program: Program,
    count: int,
    flags: Sequence[bool],
    flags_of: Callable[[PyTree], PyTree[bool]],
    *arrays: Any,
    sums: bool = False,
) -> PyTree[Array]:
    """Runs a program over members, separately for the members of each device.

    Args:
        program: The program; its results for some members must not depend on the others.
        count: The number of members.
        flags: The arrays that have members in the last axis.
        flags_of: `flags_of(results)`: which of the results have.
        arrays: The arrays.
        sums: Whether the other results are sums over members; else they depend on none.
    """
    whole = program(count)
    by_type = any(has and _axes_of_members(x) is not None for x, has in zip(arrays, flags))  # on one device, too
    if not (shardable() or by_type) or not any(flags):
        return whole(*arrays)
    with on_no_mesh():  # as each device will see it
        closed, shapes = jax.make_jaxpr(whole, return_shape=True)(*map(_on_no_mesh, arrays))
    if closed.effects:  # which `custom_partitioning` would lose
        return whole(*arrays)
    if not by_type and places_arrays(closed.jaxpr):  # over all devices, where that of one runs on its own
        return whole(*arrays)
    treedef = jax.tree.structure(shapes)
    results = jax.tree.leaves(flags_of(shapes))
    consts = list(closed.consts)  # it may close over nothing
    inputs = (*consts, *arrays)
    has_members = (*(False for _ in consts), *flags)

    def plain(*inputs):
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, inputs[: len(consts)]))(*inputs[len(consts) :])

    def of_device(parts: int, axes: tuple[str, ...]) -> Callable[..., list[Array]]:
        def run(*inputs):
            token = _PARTS.set(parts)
            try:
                out = jax.tree.leaves(program(count // parts)(*inputs[len(consts) :]))
            finally:
                _PARTS.reset(token)
            if not sums:
                return out
            return [x if has else jax.lax.psum(x, axes) for x, has in zip(out, results, strict=True)]

        return run

    run = _typed(of_device, has_members, results, shapes, inputs)
    if run is None:
        run = _partitioned(plain, of_device, count, has_members, results, shapes, inputs)
    return jax.tree.unflatten(treedef, _transformed(run, plain)(*inputs))


def asks_for_devices() -> tuple[ClosedJaxpr, ...]:
    """Returns what a primitive names among its programs, so that JAX lowers it for devices that are known.

    JAX looks for `custom_partitioning` in programs among the parameters of primitives. With its new rules for custom
    derivatives (`jax_custom_vjp3`) the program of such a function is not a parameter, and its cuts are not found.
    """
    return (_cut_nowhere(),) if shardable() and getattr(jax.config, "jax_custom_vjp3", False) else ()


@functools.cache
def _cut_nowhere() -> ClosedJaxpr:
    run = custom_partitioning(lambda x: x)
    run.def_partition(partition=lambda mesh, args, out: (mesh, lambda x: x, out.sharding, args), sharding_rule="i -> i")
    with on_no_mesh():
        return jax.make_jaxpr(run)(jax.ShapeDtypeStruct((1,), "float32"))


def _transformed(run: Callable, plain: Callable) -> Callable:
    """Returns `run` for programs that nothing transforms; where `jax.vmap` or a derivative does, the plain program."""
    one = custom_vmap(run)

    @one.def_vmap
    def _(size, in_batched, *inputs):
        out = jax.vmap(plain, in_axes=[0 if b else None for b in in_batched], axis_size=size)(*inputs)
        return out, [True] * len(out)

    whole = jax.custom_jvp(one)
    whole.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    return whole


def _last(ndim: int, has: bool, axes: Any) -> PartitionSpec:
    return PartitionSpec(*[None] * (ndim - 1), axes) if has else PartitionSpec()


def _axes_of_members(x: Array) -> Any:
    """Returns the axes of a mesh over which the last axis of an array is sharded by its type, or None."""
    sharding = typed_sharding(x)
    return sharding.spec[-1] if sharding is not None and len(sharding.spec) == x.ndim > 0 else None


def _names(axes: Any) -> tuple[str, ...]:
    return axes if isinstance(axes, tuple) else (axes,)


def _typed(of_device: Callable, has_members: Any, results: Any, shapes: Any, inputs: Any) -> Callable | None:
    """Returns the program in a `jax.shard_map` where the types of arrays say over which axes members are sharded."""
    for x, has in zip(inputs, has_members):
        axes = _axes_of_members(x) if has else None
        if axes is not None:
            break
    else:
        return None
    sharding = typed_sharding(x)
    assert sharding is not None  # it has axes
    mesh, names = sharding.mesh, _names(axes)
    local = of_device(math.prod(mesh.shape[name] for name in names), names)

    def run(*inputs):
        specs = tuple(_last(x.ndim, has, axes) for x, has in zip(inputs, has_members))
        placed = [jax.sharding.reshard(x, NamedSharding(mesh, spec)) for x, spec in zip(inputs, specs)]
        out_specs = [_last(x.ndim, has, axes) for x, has in zip(jax.tree.leaves(shapes), results)]
        # no derivative goes through it, so that nothing has to be known of what varies
        return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(*placed)

    return run


def _partitioned(
    plain: Callable, of_device: Callable, count: int, has_members: Any, results: Any, shapes: Any, inputs: Any
) -> Callable:
    """Returns the program for the compiler to cut where it finds that members are sharded."""

    def partition(mesh, arg_shapes, result_shapes):
        axes = None
        given = zip((*arg_shapes, *result_shapes), (*has_members, *results))
        for x, has in given:
            spec = x.sharding.spec if has and isinstance(x.sharding, NamedSharding) else ()
            if len(spec) == len(x.shape) > 0 and spec[-1] is not None:
                axes = spec[-1]
                break
        parts = 1 if axes is None else math.prod(mesh.shape[name] for name in _names(axes))
        if count % parts:
            axes, parts = None, 1

        def placed(shapes, flags):
            return tuple(NamedSharding(mesh, _last(len(x.shape), has, axes)) for x, has in zip(shapes, flags))

        run = plain if axes is None else of_device(parts, _names(axes))
        return mesh, run, list(placed(result_shapes, results)), placed(arg_shapes, has_members)

    number = iter(range(10**6))

    def factors(x: Any, has: bool) -> tuple[str, ...]:
        own = tuple(f"d{next(number)}" for _ in range(len(x.shape) - has))
        return (*own, "members") if has else own

    def value(x: Any, has: bool) -> str:
        return " ".join(factors(x, has))

    rule = ", ".join(map(value, inputs, has_members)) + " -> " + ", ".join(map(value, jax.tree.leaves(shapes), results))
    run = custom_partitioning(plain)
    run.def_partition(partition=partition, sharding_rule=rule)
    return run


# Programs of arrays on no mesh that name one all the same.
#
# A library may compute a constant at once while it is traced, as Equinox does for its enumerations. JAX puts it on the
# mesh that is set, even where the program around it is traced on none, and so types what depends on it. JAX 0.10 sets
# no other within `jax.vmap`, as `on_no_mesh` would; from 0.11 on no such constant is left. And a model may say of its
# state that every device has the whole of it, which is so for arrays on no mesh.


def places_arrays(jaxpr: Jaxpr) -> bool:
    """Returns whether a program says anywhere how an array is to be sharded."""
    return any(map(_places, equations(jaxpr)))


def _places(eqn: Any) -> bool:
    # JAX itself makes whole arrays of what it computes on no mesh, by `reshard`, which says nothing to automatic axes
    return eqn.primitive.name in names.PLACEMENTS and not (eqn.primitive.name == "reshard" and _is_whole(eqn))


def off_mesh(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a program with its constants on no mesh, and its arrays where they are; itself where that is so.

    Args:
        closed: The program, whose inputs are on no mesh. To be called where new arrays are on none.
    """
    return _rewritten(closed) if _is_on_mesh(closed) else closed


def _is_on_mesh(closed: ClosedJaxpr) -> bool:
    visited = list(equations(closed.jaxpr, lambda eqn: [x.jaxpr for x in _programs(eqn)]))
    consts = (c for x in (closed, *(x for eqn in visited for x in _programs(eqn))) for c in x.consts)
    return any(map(_is_typed, consts)) or any(map(_is_whole, visited))


def _is_whole(eqn: Any) -> bool:
    """Whether an equation says that every device is to have the whole of an array."""
    target = next((eqn.params[name] for name in ("dst_sharding", "sharding") if name in eqn.params), None)
    return eqn.primitive.name in names.PLACEMENTS and all(part is None for part in getattr(target, "spec", "?"))


def _is_typed(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and typed_sharding(x) is not None


def _programs(eqn: Any) -> list[ClosedJaxpr]:
    return [eqn.params["jaxpr"]] if eqn.primitive.name in names.JITS else programs_held(eqn)


def _rewritten(closed: ClosedJaxpr) -> ClosedJaxpr:
    avals = [v.aval for v in closed.jaxpr.invars]
    kinds = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in avals]
    return jax.make_jaxpr(lambda *args: _run(closed, args))(*kinds)


def _run(closed: ClosedJaxpr, args: Iterable[Any]) -> list:
    consts = [np.asarray(x) if _is_typed(x) else x for x in closed.consts]
    return evaluate(closed.jaxpr, (*consts, *args), _off_mesh)


def _off_mesh(eqn: Any, inputs: list) -> list:
    if eqn.primitive.name in names.JITS:
        return _run(eqn.params["jaxpr"], inputs)
    return inputs if _is_whole(eqn) else run_equation(with_programs(eqn, _rewritten), inputs)
