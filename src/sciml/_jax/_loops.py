"""The loops of the whole library: silent (no host callbacks) and clean under `jax.shard_map`.

A loop whose carry starts out the same on every device and then meets data that differ by device
changes its type on the way, which `shard_map` refuses. Here every carry is promoted, before the first
iteration and after each, to the axes over which the carry, the inputs and everything named in `like` vary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from ._vma import rows_like, to_varying, vma_of

_Carry = TypeVar("_Carry")


def while_loop(
    cond: Callable[[_Carry], Bool[Array, ""]],
    body: Callable[[_Carry], _Carry],
    init: _Carry,
    *,
    like: Any = (),
    collective: tuple[str, ...] = (),
    at_a_time: int = 1,
) -> _Carry:
    """`jax.lax.while_loop` whose carry is promoted to the axes that it or `like` varies over.

    Args:
        cond: Says whether to go on; must not depend on values that differ between members.
        body: One iteration.
        init: The carry, a PyTree of arrays.
        like: Values that `cond` and `body` close over.
        collective: Mesh axes over which `body` communicates, so that devices along them must run the same number
            of iterations: as many as the slowest of them needs. Devices along the other axes run as many too,
            though they exchange nothing with these, because XLA makes all devices meet at some of its
            collectives; those that are done keep their carry.
        at_a_time: After how many iterations `cond` is asked again, so that some may follow the last one needed.
    """
    axes = vma_of((init, like))
    init = to_varying(init, axes)

    def going(carry):
        """Whether any of the devices that this one communicates with has to go on."""
        here = cond(carry)
        # `psum` makes the type say that the value is the same along these axes, which `shard_map` checks
        return _any(here, tuple(name for name in collective if name in vma_of(here)))

    once = body if at_a_time == 1 else jax.jit(body, inline=True)  # traced once

    def iterations(carry):
        for _ in range(at_a_time):
            carry = once(carry)
        return to_varying(carry, axes)  # a constant that a body puts into its carry varies over no axis

    others = _axes_of_others(collective) if collective else ()
    if not others:
        return jax.lax.while_loop(going, iterations, init)

    def iterate(state):
        here, carry = state
        # `body` runs on every device, whose collectives must match; where a device is done its result is dropped
        carry = jax.tree.map(partial(jnp.where, here), iterations(carry), carry)
        return going(carry), carry

    return jax.lax.while_loop(lambda state: _any(state[0], others), iterate, (going(init), init))[1]


def packed_while_loop(
    cond: Callable[[_Carry], Bool[Array, ""]],
    body: Callable[[_Carry], _Carry],
    init: _Carry,
    *,
    like: Any = (),
    collective: tuple[str, ...] = (),
    at_a_time: int = 1,
) -> _Carry:
    """`while_loop` that carries scalars of one floating-point dtype in one array.

    On CPUs XLA copies a carry at every iteration by a call for each array, which for many scalars takes as long as
    small steps themselves.
    """
    init = to_varying(init, vma_of((init, like)))
    leaves, treedef = jax.tree.flatten(init)
    kinds = [x.dtype.name if x.shape == () and jnp.issubdtype(x.dtype, jnp.floating) else None for x in leaves]
    dtypes = list(dict.fromkeys(kind for kind in kinds if kind is not None))

    def pack(carry):
        leaves = jax.tree.leaves(carry)
        rows = [jnp.stack([x for x, kind in zip(leaves, kinds) if kind == dtype]) for dtype in dtypes]
        return rows, [x for x, kind in zip(leaves, kinds) if kind is None]

    def unpack(packed):
        rows, rest = packed
        scalars, rest = {dtype: iter(list(row)) for dtype, row in zip(dtypes, rows)}, iter(rest)
        return jax.tree.unflatten(treedef, [next(rest) if kind is None else next(scalars[kind]) for kind in kinds])

    found = while_loop(
        lambda packed: cond(unpack(packed)),
        lambda packed: pack(body(unpack(packed))),
        pack(init),
        like=like,
        collective=collective,
        at_a_time=at_a_time,
    )
    return unpack(found)


def _axes_of_others(collective: tuple[str, ...]) -> tuple[str, ...]:
    """The mesh axes along which there are devices that this one does not communicate with."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple(sorted(name for name in set(mesh.manual_axes) - set(collective) if mesh.shape[name] > 1))


def _any(going: Bool[Array, ""], names: tuple[str, ...]) -> Bool[Array, ""]:
    """Returns whether it holds on any device along some mesh axes."""
    return jax.lax.psum(going.astype(jnp.int32), names) > 0 if names else going


def scan(
    body: Callable[[_Carry, PyTree], tuple[_Carry, PyTree]],
    init: _Carry,
    xs: PyTree = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    like: Any = (),
) -> tuple[_Carry, PyTree]:
    """`jax.lax.scan` whose carry is promoted to the axes that it, `xs` or `like` varies over.

    Args:
        body: One iteration, `(carry, x) -> (carry, y)`.
        init: The carry, a PyTree of arrays.
        xs: Inputs with the loop's axis first, or None.
        length: The number of iterations, where `xs` is None.
        reverse: Whether to run from the last input to the first.
        unroll: How many iterations to write out per iteration of the compiled loop.
        like: Values that `body` closes over.
    """
    axes = vma_of((init, xs, like))

    def iterate(carry, x):
        carry, y = body(carry, x)
        return to_varying(carry, axes), y

    return jax.lax.scan(iterate, to_varying(init, axes), xs, length=length, reverse=reverse, unroll=unroll)


def for_loop(
    body: Callable[[Array, _Carry], _Carry],
    init: _Carry,
    length: int,
    *,
    reverse: bool = False,
    unroll: int = 1,
    like: Any = (),
) -> _Carry:
    """`jax.lax.fori_loop` from zero or down to it, whose carry is promoted to the axes that it or `like` varies over.

    It carries its number. By one of an array of numbers, which `scan` would take, XLA reads other arrays more slowly.

    Args:
        body: One iteration, `(number, carry) -> carry`.
        init: The carry, a PyTree of arrays.
        length: The number of iterations.
        reverse: Whether to count down.
        unroll: How many iterations to write out per iteration of the compiled loop.
        like: Values that `body` closes over.
    """

    def iterate(state, _):
        number, carry = state
        return (number - 1 if reverse else number + 1, to_varying(body(number, carry), axes)), None

    first, axes = jnp.full((), length - 1 if reverse else 0, jnp.int32), vma_of((init, like))
    return jax.lax.scan(iterate, (first, to_varying(init, axes)), None, length=length, unroll=unroll)[0][1]


def scan_to_end(
    advance: Callable[[_Carry, PyTree, Bool[Array, ""]], _Carry],
    emit: Callable[[_Carry, PyTree], PyTree],
    init: _Carry,
    xs: PyTree,
    *,
    reverse: bool = False,
    like: Any = (),
) -> tuple[_Carry, PyTree]:
    """`scan` over `xs` and one iteration beyond them, which emits nothing: a loop to every stop and on to the end.

    The body, with all the loops in it, is compiled once. A `scan` and a separate last iteration would compile it twice.

    Args:
        advance: `(carry, x, beyond) -> carry`; in the iteration beyond, `x` is the `x` of the iteration before.
        emit: The kept output of an iteration, `(carry, x) -> y`.
        init: The carry, a PyTree of arrays.
        xs: Inputs with the loop's axis first, one at least.
        reverse: Whether to run from the last input to the first.
        like: Values that `advance` and `emit` close over.
    """
    init = to_varying(init, vma_of((init, xs, like)))
    count = jax.tree.leaves(xs)[0].shape[0]

    def read(tree, number):
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, number, 0, False), tree)

    def iterate(state, number):
        carry, ys = state
        beyond = (number < 0) | (number >= count)
        number = jnp.clip(number, 0, count - 1)  # beyond, the row is read and written back as it was
        x = read(xs, number)
        carry = advance(carry, x, beyond)
        rows = jax.tree.map(lambda y, old: jnp.where(beyond, old, y), emit(carry, x), read(ys, number))
        ys = jax.tree.map(lambda all, y: jax.lax.dynamic_update_index_in_dim(all, y, number, 0), ys, rows)
        return (carry, ys), None

    item = jax.eval_shape(emit, init, read(xs, 0))
    blank = jax.tree.map(lambda y: rows_like(count, y), item)
    numbers = jnp.arange(-1, count) if reverse else jnp.arange(count + 1)
    (carry, ys), _ = scan(iterate, (init, blank), numbers.astype(jnp.int32), reverse=reverse, like=(xs, like))
    return carry, ys
