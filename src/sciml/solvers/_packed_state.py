"""States of many small leaves as one array for each dtype, so that programs do not grow with their number.

A method does the same to every leaf. Written out for a hundred scalars that is hundreds of operations a stage, and the
time to compile them grows faster than their number. In one array they are one operation.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._choices import choices
from .._jax._vma import on_explicit_axes, promote
from .._types import Args, RealScalarLike, Y
from .control._pid import Tolerances, spread
from .terms._field import check_like, literals_as_arrays


class Packing:
    """The leaves of a state that share one array; compared by value.

    Attributes:
        treedef: The structure of the state.
        kinds: The shape and dtype of each leaf that is packed, None for others.
    """

    def __init__(self, treedef: Any, kinds: tuple):
        self.treedef, self.kinds = treedef, kinds
        self.dtypes = tuple(dict.fromkeys(kind[1] for kind in kinds if kind is not None))

    def __hash__(self) -> int:
        return hash((self.treedef, self.kinds))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packing) and (self.treedef, self.kinds) == (other.treedef, other.kinds)

    def pack(self, y: Y) -> tuple[list[Array], list[Array]]:
        """Returns a state as one array for each dtype, and the leaves that are not small."""
        leaves = self.treedef.flatten_up_to(y)
        rows = []
        for dtype in self.dtypes:
            parts = [jnp.ravel(x) for x, kind in zip(leaves, self.kinds) if kind is not None and kind[1] == dtype]
            size = sum(x.size for x in parts)
            # lanes take smaller arrays apart, of which all parts are computed one by one
            more = max(choices().lanes.stay_unstacked_at_most + 1 - size, 0)
            rows.append(jnp.concatenate(promote([*parts, jnp.zeros(more, parts[0].dtype)]))[:size])
        return rows, [x for x, kind in zip(leaves, self.kinds) if kind is None]

    def unpack(self, packed: tuple[list[Array], list[Array]]) -> Y:
        """Returns the state; other axes of the arrays may come first."""
        rows, rest = dict(zip(self.dtypes, packed[0])), iter(packed[1])
        at, leaves = dict.fromkeys(self.dtypes, 0), []
        for kind in self.kinds:
            if kind is None:
                leaves.append(next(rest))
                continue
            shape, dtype = kind
            row, size = rows[dtype], math.prod(shape)
            part = jax.lax.slice_in_dim(row, at[dtype], at[dtype] + size, axis=row.ndim - 1)
            leaves.append(part.reshape(row.shape[:-1] + shape))
            at[dtype] += size
        return jax.tree.unflatten(self.treedef, leaves)

    def tolerances(self, tolerances: Tolerances | None, y0: Y) -> Tolerances | None:
        """Returns tolerances for the packed state."""
        if tolerances is None:
            return None

        def of(tolerance: PyTree) -> PyTree:
            leaves = jax.tree.leaves(tolerance)
            if len(leaves) == 1 and jnp.ndim(leaves[0]) == 0:
                return tolerance
            each = zip(spread(tolerance, self.treedef), jax.tree.leaves(y0), self.kinds)
            whole = [tol if kind is None else _in_the_form_of(x, tol) for tol, x, kind in each]
            return self.pack(jax.tree.unflatten(self.treedef, whole))

        return Tolerances(*map(of, tolerances))


def _in_the_form_of(x: Array, tolerance: Any) -> Array:
    """Returns a tolerance for each number of an array."""
    return jnp.broadcast_to(jnp.asarray(tolerance, jnp.finfo(x.dtype).dtype), x.shape)


class PackedModel(eqx.Module):
    """A model of the packed state."""

    model: Callable
    packing: Packing = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: tuple, args: Args) -> tuple:
        """Returns the rates, packed."""
        y = self.packing.unpack(y)
        out = literals_as_arrays(self.model(t, y, args), y)
        check_like(y, jax.tree.map(jnp.asarray, out))
        return self.packing.pack(out)


def packing_of(y0: Y) -> Packing | None:
    """Returns how a state of many small leaves is packed; None for others."""
    leaves, treedef = jax.tree.flatten(y0)
    small = [x.size <= choices().lanes.unstacked_at_most for x in leaves]
    if sum(small) < choices().batching.packed_from or on_explicit_axes(y0):
        return None
    return Packing(treedef, tuple((x.shape, x.dtype) if s else None for x, s in zip(leaves, small)))
