"""Makes `jax.vmap` of a function one call over lanes, however many `vmap`s are nested."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import zero_from_primal

from ._differentiable import differentiable
from ._merged_lanes import merging_of
from ._shards import mesh_of_whole, on_every_device, over_shards
from ._tangents import moves


def batched(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function over lanes into a function of one member that `jax.vmap` runs over lanes.

    Args:
        fn: `fn(count, flags, *arrays)` where `flags` says which of the arrays have members in a last
            axis of length `count`; the others are shared by all. Returns a PyTree of arrays, all with
            members last. Called with `count=None` and no flag set for one member. Must not close over
            traced values.

    Returns:
        A function of one member's arrays. Nested `vmap`s merge into one lane axis. Forward mode goes through it,
        over lanes too; reverse mode does not.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.kernels._lanes import batched

        seen = []

        def double(count, flags, x):
            seen.append((count, x.shape))
            return 2 * x

        out = jax.vmap(jax.vmap(batched(double)))(jnp.ones((4, 5, 3)))
        assert out.shape == (4, 5, 3) and seen[-1] == (20, (3, 20))
        ```
    """
    return _batched(fn, _all)


def _batched(fn, lanes_of: Callable[..., Any]) -> Callable[..., Any]:
    """See `batched`; `lanes_of(flags, out)` says which of the results have lanes where these of the arrays have."""

    @on_every_device
    def alone(*arrays):
        return fn(None, (False,) * len(arrays), *arrays)

    single = custom_vmap(alone)

    @single.def_vmap
    def _(size, in_batched, *arrays):
        if not any(in_batched):
            return _of_no_batch(alone(*arrays))
        arrays = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(arrays, in_batched)]
        flags = tuple(in_batched)
        out = _over_lanes(fn, lanes_of, size, flags)(*arrays)
        return out, lanes_of(flags, out)

    def make(count, flags):
        return alone if count is None else merging(fn, count, flags)

    def run(*arrays):
        # of members that are sharded by their type, `custom_vmap` would trace one where JAX refuses many a program
        by_type = lanes_of is _all and mesh_of_whole(arrays) is not None
        return (differentiable(make) if by_type else single)(*arrays)

    # `custom_vmap` has a rule of its own for forward mode, which leaves the lanes where not everything is batched
    member = jax.custom_jvp(run)

    def jvp(primals, tangents):
        moved = tuple(moves(t) for t in tangents)
        arrays = primals + tuple(t for t, m in zip(tangents, moved) if m)
        out, rates = _batched(*_with_tangents(fn, lanes_of, moved))(*arrays)
        rates = iter(rates)
        leaves, treedef = jax.tree.flatten(out)
        rates = [next(rates) if _inexact(x) else zero_from_primal(x, symbolic_zeros=True) for x in leaves]
        return out, jax.tree.unflatten(treedef, rates)

    member.defjvp(jvp, symbolic_zeros=True)
    return member


def merging(fn: Callable[..., Any], count: int, flags: tuple[bool, ...]) -> Callable[..., Any]:
    """Returns a function over lanes into whose lanes another `jax.vmap` merges.

    Args:
        fn: As for `batched`.
        count: The number of lanes.
        flags: The arrays that have lanes.
    """

    def run(*arrays):
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), _over_lanes(fn, _all, count, flags)(*arrays))

    return run


def _all(flags: Any, out: Any) -> Any:
    """Says that every result has lanes."""
    del flags
    return jax.tree.map(lambda _: True, out)


def _over_lanes(fn, lanes_of, count: int, flags: tuple[bool, ...]) -> Callable[..., Any]:
    def plain(*arrays):
        program = lambda count: lambda *arrays: fn(count, flags, *arrays)  # noqa: E731
        out = over_shards(program, count, flags, lambda out: lanes_of(flags, out), *arrays)
        return jax.tree.map(lambda x, has: jnp.moveaxis(x, -1, 0) if has else x, out, lanes_of(flags, out))

    run = custom_vmap(plain)

    @run.def_vmap
    def _(size, in_batched, *arrays):
        if not any(in_batched):
            return _of_no_batch(plain(*arrays))
        lanes = merging_of(arrays, flags, in_batched, count, size)
        merged = list(map(lanes.merge, arrays, flags, in_batched))
        both = tuple(old or new for old, new in zip(flags, in_batched))
        out = _over_lanes(fn, lanes_of, count * size, both)(*merged)

        def split(x, has, inner, outer):
            if not has:
                return jnp.broadcast_to(x, (size,) * outer + (count,) * inner + x.shape)
            x = lanes.split(x)
            x = x if outer else x[0]
            return x if inner else x[:, 0] if outer else x[0]

        outer = lanes_of(tuple(in_batched), out)
        return jax.tree.map(split, out, lanes_of(both, out), lanes_of(flags, out), outer), outer

    return run


def _of_no_batch(out: Any) -> tuple[Any, Any]:
    """Returns the unbatched result of a rule: `custom_vmap` in forward mode, if only tangents have members."""
    return out, jax.tree.map(lambda _: False, out)


def _with_tangents(fn, lanes_of, moved: tuple[bool, ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns a function over lanes like `fn` that takes and returns tangents too, and which results have lanes.

    Args:
        fn: As for `batched`.
        lanes_of: As for `_batched`.
        moved: The arrays that have a tangent; the tangents follow the arrays. Of the results the inexact leaves have.
    """
    size = len(moved)

    def with_partners(flags):
        """Returns for each array whether it or its tangent has lanes."""
        theirs = iter(flags[size:])
        partners = [next(theirs) if m else False for m in moved]
        return tuple(own or partner for own, partner in zip(flags[:size], partners))

    def lanes(flags, out):
        if any(flags[:size]):
            primal = lanes_of(with_partners(flags), out[0])
            leaves = zip(jax.tree.leaves(out[0]), jax.tree.leaves(primal))
            return primal, [has for x, has in leaves if _inexact(x)]
        return jax.tree.map(lambda _: False, out[0]), [True] * len(out[1])

    def push(count, flags, *arrays):
        primals, tangents = arrays[:size], arrays[size:]

        def along(count, flags, primals, tangents):
            def run(*free):
                free = iter(free)
                return fn(count, flags, *(next(free) if m else x for x, m in zip(primals, moved)))

            out, rates = jax.jvp(run, [x for x, m in zip(primals, moved) if m], list(tangents))
            pairs = zip(jax.tree.leaves(out), jax.tree.leaves(rates))
            return out, [rate for x, rate in pairs if _inexact(x)]

        own, theirs = flags[:size], flags[size:]
        if any(theirs) and not any(own):  # many tangents of one member, as in `jax.jacfwd`: its primal runs once
            axes = tuple(-1 if f else None for f in theirs)
            one = lambda *ts: along(None, own, primals, ts)  # noqa: E731
            return jax.vmap(one, in_axes=axes, out_axes=(None, -1), axis_size=count)(*tangents)
        both = with_partners(flags)
        primals = [_spread(x, count) if b and not a else x for x, a, b in zip(primals, own, both)]
        wanted = [b for b, m in zip(both, moved) if m]
        tangents = [_spread(t, count) if b and not a else t for t, a, b in zip(tangents, theirs, wanted)]
        return along(count, both, primals, tangents)

    return push, lanes


def _spread(x: Any, count: int | None) -> Any:
    return jnp.broadcast_to(x[..., None], (*x.shape, count))


def _inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)
