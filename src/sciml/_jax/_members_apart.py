"""Whole programs of which `jax.vmap` runs one for each member, on a mesh with explicit axes too.

If an array's members are sharded by its type, JAX checks operation by operation that operands are sharded alike, and
many of its rules for `jax.vmap` create operands that are not: an index, a buffer that is written to, a factorisation.
Members have nothing to do with each other, so there each device gets the program over its own, in a `jax.shard_map`. A
derivative of one member is such a program of its own: that is why a primitive is needed, which no function with a
custom rule can stand for, as `jax.vmap` goes through none that has both modes.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from ._ad_modes import never_computed
from ._differentiable import Call, bind, counts, primitive_over_lanes, zero
from ._interpreters import ClosedJaxpr, ad
from ._promoted import as_promoted_function
from ._shards import on_every_device, over_shards, traced_on_no_mesh
from ._tangents import along
from ._vma import struct, typed_sharding, vma_of

Flat = Callable[..., list[Array]]
"""A function of arrays."""


def members_apart(fn: Callable[..., PyTree[Array]], no_forward_mode: str | None = None) -> Callable[..., PyTree[Array]]:
    """Returns a function of PyTrees that keeps to one device's members where these are sharded by their type.

    Reverse mode of one member, as in `jax.vmap(jax.grad(f))`, runs the function once more.

    Args:
        fn: The function. The values that it closes over may be traced, but not on a mesh with explicit axes.
        no_forward_mode: The error of forward mode, if the function only has reverse-mode rules.
    """

    def run(*args: PyTree) -> PyTree[Array]:
        arrays, rest = eqx.partition(args, eqx.is_array)
        if not any(isinstance(x, Tracer) for x in jax.tree.leaves(arrays)):
            return fn(*args)
        closed, shapes = traced_on_no_mesh(lambda arrays: fn(*eqx.combine(arrays, rest)), arrays)
        consts = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in closed.consts]

        def one(*arrays: Any) -> list[Array]:
            held, given = arrays[: len(consts)], arrays[len(consts) :]
            return as_promoted_function(ClosedJaxpr(closed.jaxpr, held))(*given)

        given = (*consts, *jax.tree.leaves(arrays))
        out = bind(_apart, Call(_Apart(one, message=no_forward_mode), None, (False,) * len(given)), given)
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    return run


class _Apart:
    """A function of one member's arrays, and the function over lanes that it makes; see `_differentiable.Make`.

    Attributes:
        one: The function.
        pull: The function of primals and cotangents that is the transpose, where `one` is linear in its last arrays.
        linear: In how many.
        message: The error of forward mode; None if the function supports it.
    """

    def __init__(self, one: Flat, pull: Flat | None = None, linear: int = 0, message: str | None = None):
        self.one, self.pull, self.linear, self.message = one, pull, linear, message

    def __call__(self, count: int | None, flags: tuple[bool, ...]) -> Flat:
        if count is None:
            return on_every_device(self.one)
        axes = tuple(-1 if has else None for has in flags)

        def program(count: int) -> Flat:
            return jax.vmap(self.one, in_axes=axes, out_axes=-1, axis_size=count)

        return lambda *arrays: over_shards(program, count, flags, lambda out: [True for _ in out], *arrays)


def _push(primals: Any, tangents: Any, *, call: Call, programs: Any) -> tuple[list, list]:
    make: Any = call.make
    moved = counts(tangents)
    if not any(moved):
        out = _apart.bind(*primals, call=call, programs=programs)
        return out, [zero(x) for x in out]
    if make.linear or not (call.count is None or any(map(typed_sharding, primals))):
        out, rates = along(call.run, primals, tangents, moved)
    else:
        out = _apart.bind(*primals, call=call, programs=programs)
        free = [t for t, m in zip(tangents, moved) if m]
        flags = (*call.flags, *(has for has, m in zip(call.flags, moved) if m))
        make = _derivative(make, list(map(_of_member, primals, call.flags)), moved)
        rates = iter(bind(_apart, Call(make, call.count, flags), (*primals, *free)))
        rates = [next(rates) if jnp.issubdtype(x.dtype, jnp.inexact) else x for x in out]
    return out, [r if jnp.issubdtype(x.dtype, jnp.inexact) else zero(x) for x, r in zip(out, rates)]


def _of_member(x: Array | np.ndarray, has: bool) -> jax.ShapeDtypeStruct:
    if has:
        return struct(x.shape[:-1], x.dtype, vma_of(x))
    return struct(x.shape, x.dtype, vma_of(x), typed_sharding(x))


def _derivative(make: _Apart, primals: list, moved: list[bool]) -> _Apart:
    """Returns the function of primals and tangents that gives the tangents of the inexact results.

    Both it and its transpose are traced once, and every call over lanes, for all members or the members of a device,
    uses these programs.

    Args:
        make: The function of one member.
        primals: The types of its arrays.
        moved: The ones that have a tangent.
    """
    size, one, message = len(moved), make.one, make.message

    def inexact(xs: Any) -> list:
        return [x for x in xs if jnp.issubdtype(x.dtype, jnp.inexact)]

    def push(*arrays: Any) -> list[Array]:
        if message is not None:
            return never_computed(inexact(jax.eval_shape(one, *arrays[:size])), message)
        given = iter(arrays[size:])
        tangents = [next(given) if m else None for m in moved]
        return along(lambda *xs: inexact(one(*xs)), arrays[:size], tangents, moved)[1]

    def pull(*arrays: Any) -> list[Array]:
        primals = arrays[:size]

        def of_moved(*free: Any) -> list[Array]:
            rest = iter(free)
            return inexact(one(*(next(rest) if m else x for x, m in zip(primals, moved))))

        return list(jax.vjp(of_moved, *(x for x, m in zip(primals, moved) if m))[1](list(arrays[size:])))

    free = [x for x, m in zip(primals, moved) if m]
    forward, out = traced_on_no_mesh(push, *primals, *free)
    program: list[Flat] = []

    def backward(*arrays: Any) -> list[Array]:
        if not program:
            program.append(as_promoted_function(traced_on_no_mesh(pull, *primals, *out)[0]))
        return program[0](*arrays)

    return _Apart(as_promoted_function(forward), backward, sum(moved))


def _transpose(cotangents: Any, *arrays: Any, call: Call, programs: Any) -> list:
    del programs
    make: Any = call.make
    size = len(arrays) - make.linear
    primals, free = arrays[:size], arrays[size:]
    assert not any(map(ad.is_undefined_primal, primals)) and all(map(ad.is_undefined_primal, free))
    out = [ad.instantiate_zeros(c) if isinstance(c, ad.Zero) else c for c in cotangents]
    flags, shared = call.flags[:size], [not has for has in call.flags[size:]]
    back = Call(_Apart(make.pull), call.count, (*flags, *(call.count is not None for _ in out)))
    found = bind(_apart, back, (*primals, *out))
    if call.count is not None:
        found = [jnp.sum(x, axis=-1) if of_all else x for x, of_all in zip(found, shared)]
    return [None] * size + list(found)


_apart = primitive_over_lanes("members_apart", _push)
ad.primitive_transposes[_apart] = _transpose
