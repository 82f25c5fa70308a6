"""The arrays of a run's inputs that have one entry per member, as in `in_axes` of `jax.vmap`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._jax._vma import on_explicit_axes
from ...solvers._stable_step import longest_step


class Inputs(eqx.Module):
    """Model, initial state and args, split by whether members share them.

    Attributes:
        own: Arrays with members first; None elsewhere.
        shared: All other arrays.
        static: The parts that are not arrays.
        members: The number of members, or None where there is one that has no axis.
    """

    own: PyTree
    shared: PyTree
    static: Any = eqx.field(static=True)
    members: int | None = eqx.field(static=True)

    def take(self, ids: Any) -> "Inputs":
        """Returns the inputs of some members."""
        own = jax.tree.map(lambda x: x[ids], self.own)
        return Inputs(own, self.shared, self.static, len(ids))

    def one(self) -> tuple[Any, Any, Any]:
        """Returns model, initial state and args of the first member."""
        own = self.own if self.members is None else jax.tree.map(lambda x: x[0], self.own)
        return self.whole(own)

    def whole(self, own: PyTree) -> tuple[Any, Any, Any]:
        """Returns model, initial state and args from one member's own arrays."""
        return eqx.combine(own, self.shared, _plain(self.static))


class _Static:
    """The parts that are not arrays, compared by value if possible, else by identity, as in `eqx.filter_jit`."""

    def __init__(self, tree: PyTree):
        self.leaves, self.structure = jax.tree.flatten(tree)

    def __hash__(self) -> int:
        return hash((tuple(self.leaves), self.structure))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and (self.leaves, self.structure) == (other.leaves, other.structure)


def _plain(static: _Static) -> PyTree:
    return jax.tree.unflatten(static.structure, static.leaves)


def read_axes(model: Any, y0: PyTree, args: PyTree, in_axes: Any) -> Inputs:
    """Splits the inputs.

    Args:
        model: The model.
        y0: The initial state.
        args: The args.
        in_axes: None for one member, or which of the three have members first: a tuple of 0 and None, or of PyTrees of
            these that are prefixes of the inputs.

    Raises:
        ValueError: If `in_axes` is invalid, the axes are of unequal length, or members are sharded over explicit axes.
    """
    values = (model, y0, args)
    if in_axes is None:
        arrays, static = eqx.partition(values, eqx.is_array)
        return Inputs(jax.tree.map(lambda x: None, values), arrays, _Static(static), None)
    if not isinstance(in_axes, tuple) or len(in_axes) != 3:
        raise ValueError(
            f"`in_axes` must be a tuple for (model, y0, args), such as (None, 0, None), but is {in_axes!r}."
        )

    def spread(axis: Any, tree: PyTree) -> PyTree:
        if axis is not None and (isinstance(axis, bool) or axis != 0):
            raise ValueError(
                f"`in_axes` may contain 0, for members in the first axis, and None, but contains {axis!r}."
            )
        return jax.tree.map(lambda x: axis == 0 and eqx.is_array(x), tree)

    try:
        flags = tuple(
            jax.tree.map(spread, axis, value, is_leaf=lambda x: x is None) for axis, value in zip(in_axes, values)
        )
    except ValueError as error:
        if "`in_axes`" in str(error):
            raise
        raise ValueError(f"`in_axes`={in_axes!r} does not fit (model, y0, args): {error}.") from error
    own, rest = eqx.partition(values, flags)
    lengths = {
        ("model", "y0", "args")[path[0].idx] + jax.tree_util.keystr(path[1:]): np.shape(x)[:1]
        for path, x in jax.tree_util.tree_leaves_with_path(own)
    }
    if not lengths:
        raise ValueError(f"`in_axes`={in_axes!r} maps no array over the members. For one member leave it out.")
    if len(set(lengths.values())) > 1 or () in lengths.values() or (0,) in lengths.values():
        listed = ", ".join(f"`{name}`: {shape[0] if shape else 'none'}" for name, shape in lengths.items())
        raise ValueError(
            "Members must be in the first axis of every mapped array, with equal lengths, but the lengths are "
            f"{listed}."
        )
    if on_explicit_axes(own):
        raise ValueError(
            "`simulate(in_axes=...)` does not support members sharded over explicit mesh axes. Shard them over "
            "automatic axes: `jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,))`."
        )
    (count,) = next(iter(lengths.values()))
    shared, static = eqx.partition(rest, eqx.is_array)
    y0_own = jax.tree.leaves(own[1])
    if not y0_own:  # every member gets its own state to advance
        own = (own[0], jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), shared[1]), own[2])
        shared = (shared[0], jax.tree.map(lambda x: None, shared[1]), shared[2])
    return Inputs(own, shared, _Static(static), count)


@eqx.filter_jit
def shared_limit(inputs: Inputs, start: Any, end: Any, stepper: Any, stability: Any) -> tuple[Array, Array]:
    """Returns the longest step that is stable for all members, and which of them it is that limits it.

    Members whose eigenvalues are not finite do not count: they fail on their own.
    """
    found = jax.vmap(lambda own: longest_step(*inputs.whole(own), start, end, stepper, stability))(inputs.own)
    found = jnp.where(jnp.isnan(found), jnp.inf, found)
    return jnp.min(found), jnp.argmin(found)
