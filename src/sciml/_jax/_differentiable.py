"""Makes `jax.vmap` of a function with a reverse-mode rule one call over lanes, whose rule has access to all members.

`batched` has no reverse mode, so that a rule has to stand around it, and sees one member: what members share then gets
a cotangent from each of them before JAX adds these up, as many copies of a network's weights as there are members. Here
`jax.vmap` meets a primitive and puts the function over lanes in its place, and what is differentiated is that function.
If each member has its own gradient, as in `jax.vmap(jax.grad(f))`, the function of one member is used.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import zero_from_primal
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ._interpreters import ClosedJaxpr, Primitive, ad, batching, jaxpr_as_fun, mlir
from ._merged_lanes import merging_of
from ._shards import asks_for_devices, mesh_of_whole, on_no_mesh
from ._tangents import along, moves
from ._vma import struct, typed_sharding, vma_of

Make = Callable[[int | None, tuple[bool, ...]], Callable[..., PyTree]]
"""`make(count, flags)`: a function of arrays, those with a flag with `count` members last, as all of its results."""


def differentiable(make: Make) -> Callable[..., PyTree]:
    """Makes a function of one member that `jax.vmap` runs over lanes and that has the derivatives of what runs.

    Args:
        make: Called with None and no flag set for one member. Its result must not close over traced values, and must
            support differentiation in the mode that JAX uses for it.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.kernels._lanes import differentiable

        seen = []

        def make(count, flags):
            seen.append((count, flags))
            return lambda w, x: w * x

        product = differentiable(make)
        gradient = jax.grad(lambda w: jnp.sum(jax.vmap(product, in_axes=(None, 0))(w, jnp.ones(3))))(2.0)
        assert seen[-1] == (3, (False, True)) and gradient == 3.0
        ```
    """

    def member(*arrays: Any) -> PyTree:
        return bind(_members, Call(make, None, (False,) * len(arrays)), arrays)

    return member


def adding_up(fn: Callable[..., PyTree], apart: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Returns a function of arrays that adds up over its members, and runs as another one where it is transformed.

    Args:
        fn: The function.
        apart: The same, which `jax.vmap` and forward mode go through.
    """
    return _transformed_as(fn, apart)


def as_one_operation(fn: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Returns a function of arrays that is one operation of a program until it is batched or differentiated.

    Args:
        fn: The function. It must not close over traced values.
    """
    return _transformed_as(fn, fn)


def _transformed_as(fn: Callable[..., PyTree], apart: Callable[..., PyTree]) -> Callable[..., PyTree]:
    run = custom_vmap(fn)

    @run.def_vmap
    def _(size, in_batched, *arrays):
        axes = [0 if b else None for b in in_batched]
        out = jax.vmap(apart, in_axes=axes, axis_size=size)(*arrays)
        return out, jax.tree.map(lambda _: True, out)

    whole = jax.custom_jvp(run)

    def jvp(primals, tangents):
        return along(apart, primals, tangents, [moves(t) for t in tangents])

    whole.defjvp(jvp, symbolic_zeros=True)
    return whole


class Call:
    """A function over a number of lanes, and its program."""

    def __init__(self, make: Make, count: int | None, flags: tuple[bool, ...]):
        self.make, self.count, self.flags = make, count, flags
        self.structure: Any = None
        self._programs: dict[Any, ClosedJaxpr] = {}

    def run(self, *arrays: Any) -> list:  # literals of JAX among them
        """Returns the leaves of the results."""
        leaves, self.structure = jax.tree.flatten(self.make(self.count, self.flags)(*arrays))
        return leaves

    def program(self, avals: Any) -> ClosedJaxpr:
        """Returns the program of `run` for arrays of such types, traced once."""
        key = tuple((x.shape, x.dtype, vma_of(x), typed_sharding(x)) for x in avals)
        if key not in self._programs:
            self._programs[key] = jax.make_jaxpr(self.run)(*(struct(*kind) for kind in key))
        return self._programs[key]

    def types(self, avals: Any) -> tuple[list, Any, ClosedJaxpr]:
        """Returns the types of the results for arrays of such types, their effects, and a program to be read.

        If members are sharded by their type, `jax.vmap` requests the types of one member. It takes the axes that these
        are sharded over from every `jax.shard_map` within, where JAX refuses many a program: it is traced on no mesh.
        """
        mesh = mesh_of_whole(avals)
        if self.count is not None or mesh is None:
            closed = self.program(avals)
            return closed.out_avals, closed.effects, closed
        with on_no_mesh():
            closed = self.program([struct(x.shape, x.dtype, vma_of(x)) for x in avals])
        whole, results = NamedSharding(mesh, PartitionSpec()), cast(Any, closed.out_avals)
        kinds = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole) for x in results]
        return jax.make_jaxpr(lambda *xs: xs)(*kinds).out_avals, closed.effects, closed


def bind(primitive: Any, call: Call, arrays: Any) -> PyTree:
    """Returns what a call over lanes gives, as one operation of a program."""
    # the program is for who reads it, in a tuple: JAX 0.12 asks programs among parameters for a lowering of their own
    arrays = _as_arrays(arrays)
    programs = (call.types(arrays)[-1], *asks_for_devices())
    out = primitive.bind(*arrays, call=call, programs=programs)
    return jax.tree.unflatten(call.structure, out)


def _as_arrays(values: Any) -> list:
    """Returns Python's numbers as arrays: within a gradient JAX has literals for them, which lack a shape."""
    numbers = (bool, int, float, complex)
    return [jnp.asarray(x, getattr(x, "dtype", None)) if isinstance(x, numbers) else x for x in values]


def _abstract(*avals: Any, call: Call, programs: Any) -> tuple[list, Any]:
    del programs  # inputs may vary over other axes by now
    out, effects, _ = call.types(avals)
    return out, effects


def _run(*arrays: Any, call: Call, programs: Any) -> list:
    del programs
    return jaxpr_as_fun(call.program(arrays))(*arrays)


def _run_now(*arrays: Any, call: Call, programs: Any) -> list:
    """Runs outside of any program: on a mesh with explicit axes within one, because that requires an abstract mesh."""
    run, arrays = functools.partial(_run, call=call, programs=programs), _as_arrays(arrays)
    return (jax.jit(run) if any(map(typed_sharding, arrays)) else run)(*arrays)


def _batch(primitive: Any, arrays: Any, axes: Any, *, call: Call, programs: Any) -> tuple[list, list[int]]:
    del programs
    new = tuple(axis is not None for axis in axes)
    size = next(x.shape[axis] for x, axis in zip(arrays, axes) if axis is not None)
    first = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes)]
    if call.count is None:
        whole = Call(call.make, size, new)
        out = jax.tree.leaves(bind(primitive, whole, [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(first, new)]))
    else:
        whole = Call(call.make, call.count * size, tuple(a or b for a, b in zip(call.flags, new)))
        lanes = merging_of(first, call.flags, new, call.count, size)
        merged = list(map(lanes.merge, first, call.flags, new))
        out = [jnp.moveaxis(x, -1, 0) for x in jax.tree.leaves(bind(primitive, whole, merged))]
        out = [jnp.moveaxis(lanes.split(x), 1, -1) for x in out]
        call.structure = whole.structure
        return out, [0 for _ in out]
    call.structure = whole.structure
    return out, [x.ndim - 1 for x in out]


def _push(primals: Any, tangents: Any, *, call: Call, programs: Any) -> tuple[list, list]:
    moved = counts(tangents)
    if not any(moved):
        out = _members.bind(*primals, call=call, programs=programs)
        return out, [zero(x) for x in out]

    out, rates = along(call.run, primals, tangents, moved)
    inexact = [jnp.issubdtype(x.dtype, jnp.inexact) for x in out]
    return out, [rate if i else zero(x) for x, rate, i in zip(out, rates, inexact)]


def counts(tangents: Any) -> list[bool]:
    """Returns which of the tangents that a primitive's rule is given may differ from zero."""
    return [not isinstance(t, ad.Zero) and t.dtype != jax.dtypes.float0 for t in tangents]


def zero(x: Array) -> ad.Zero:
    """Returns the tangent of what does not move."""
    return ad.Zero(zero_from_primal(x, symbolic_zeros=True).aval)


def primitive_over_lanes(name: str, push: Callable) -> Any:
    """Returns a primitive for calls over lanes, into which `jax.vmap` merges more of them.

    Args:
        name: Its name in programs.
        push: Its rule of forward mode.
    """
    new = Primitive(name)
    new.multiple_results = True
    new.def_impl(_run_now)
    new.def_effectful_abstract_eval(_abstract)
    ad.primitive_jvps[new] = lambda primals, tangents, **given: push(_as_arrays(primals), tangents, **given)
    batching.primitive_batchers[new] = functools.partial(_batch, new)
    mlir.register_lowering(new, mlir.lower_fun(_run, multiple_results=True))
    return new


_members = primitive_over_lanes("members", _push)
