"""Selection of the fitted leaves of a model, and their flat vector of free variables."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from .._checks import concrete
from .._parameters import indices_of
from ._transforms import AbstractTransform, Bounded, Identity, Positive

# A parameter between two bounds whose free variable is beyond this is within 1e-4 of the range from a bound.
_EDGE = 9.2


def _name(path: tuple) -> str:
    return jtu.keystr(path, simple=True, separator=".") or "model"


def leaf_names(model: Any) -> list[str]:
    """Returns the names of all leaves of a model, in their order."""
    return [_name(path) for path, _ in jtu.tree_flatten_with_path(model)[0]]


_NEAR = 7.0
"""A parameter is near a bound where its distance from it is less by a factor of about a thousand than a usual one."""


def _inside(transform: AbstractTransform, z: Array, usual: Array) -> Array:
    if _has_range(transform):
        return jnp.clip(z, -_NEAR, _NEAR)
    return jnp.maximum(z, usual - _NEAR) if isinstance(transform, Bounded | Positive) else z


def _has_range(transform: AbstractTransform) -> bool:
    return isinstance(transform, Bounded) and transform.lower is not None and transform.upper is not None


class ParameterSelection(eqx.Module):
    """The fitted leaves of a model, each with its transform.

    Attributes:
        transforms: One transform per fitted leaf.
        indices: The fitted leaves' positions among all leaves of the model.
        paths: Their names.
        shapes: Their shapes.
        dtypes: Their dtypes.
        dtype: The dtype of the flat vector: the default floating dtype, in which the optimiser computes.
    """

    transforms: tuple[AbstractTransform, ...]
    indices: tuple[int, ...] = eqx.field(static=True)
    paths: tuple[str, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    dtypes: tuple[Any, ...] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The number of free variables."""
        return sum(map(int, map(np.prod, self.shapes)))

    @property
    def names(self) -> tuple[str, ...]:
        """One name per free variable, such as `alpha` or `y0[1]`."""
        return tuple(
            path + (f"[{','.join(map(str, position))}]" if shape else "")
            for path, shape in zip(self.paths, self.shapes, strict=True)
            for position in np.ndindex(*shape)
        )

    def split(self, flat: Array) -> list[Array]:
        """Returns the pieces of one vector, in the shapes of their leaves."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        pieces = jnp.split(flat, ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def join(self, pieces: Sequence[Array]) -> Float[Array, " p"]:
        """Returns one vector of pieces."""
        return jnp.concatenate([piece.reshape(-1) for piece in pieces])

    def flatten(self, model: Any) -> Float[Array, " p"]:
        """Returns the free variables of the model's fitted leaves."""
        leaves = jtu.tree_leaves(model)
        chosen = [leaves[i].astype(self.dtype) for i in self.indices]
        return self.join([t.forward(x) for t, x in zip(self.transforms, chosen, strict=True)])

    def natural(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """Returns the parameters in their own units, still as one vector."""
        return self.join([t.inverse(x) for t, x in zip(self.transforms, self.split(z), strict=True)])

    def slope(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """Returns $dx/dz$, elementwise."""
        return jax.jvp(self.natural, (z,), (jnp.ones_like(z),))[1]

    def scale(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """Returns what one unit of `spread` is for each free variable."""
        return self.join([t.scale(x) for t, x in zip(self.transforms, self.split(z), strict=True)])

    def at_bound(self, z: Float[Array, " p"]) -> np.ndarray:
        """Returns the parameters between two bounds that have reached one of them, shape `(p,)`."""
        bounded = self.join(
            [
                jnp.full(piece.shape, _has_range(transform), piece.dtype)
                for transform, piece in zip(self.transforms, self.split(z), strict=True)
            ]
        )
        return np.asarray(bounded * jnp.abs(z)) > _EDGE

    def near_only_bound(self, z: Float[Array, " p"], usual: Float[Array, " p"]) -> np.ndarray:
        """Returns the parameters with one bound whose distance from it is a thousandth of a usual one, shape `(p,)`."""
        one_sided = [isinstance(t, Bounded | Positive) and not _has_range(t) for t in self.transforms]
        only = self.join([jnp.full(x.shape, one, x.dtype) for one, x in zip(one_sided, self.split(z), strict=True)])
        return np.asarray(only * (usual - z)) > _NEAR

    def inside(self, z: Float[Array, " p"], usual: Float[Array, " p"]) -> Float[Array, " p"]:
        """Returns the free variables with parameters that have run into a bound moved off it.

        There the parameter hardly depends on its free variable, so that no gradient leads away from the bound.

        Args:
            z: The free variables.
            usual: Others, whose distances from bounds are usual ones; between two bounds it is half of their distance.
        """
        pieces = zip(self.transforms, self.split(z), self.split(usual), strict=True)
        return self.join([_inside(transform, x, other) for transform, x, other in pieces])

    @property
    def has_bounds(self) -> bool:
        """Whether any parameter has a bound that it may run into."""
        return any(isinstance(transform, Bounded | Positive) for transform in self.transforms)

    def replace(self, model: Any, z: Float[Array, " p"]) -> Any:
        """Returns the model with its fitted leaves set from the free variables."""
        leaves, treedef = jtu.tree_flatten(model)
        for i, value, dtype in zip(self.indices, self.split(self.natural(z)), self.dtypes, strict=True):
            leaves[i] = value.astype(dtype)
        return jtu.tree_unflatten(treedef, leaves)

    def picked(self, model: Any) -> Any:
        """Returns the model with None at leaves that are not fitted."""
        leaves, treedef = jtu.tree_flatten(model)
        return jtu.tree_unflatten(treedef, [x if i in self.indices else None for i, x in enumerate(leaves)])

    def free(self, model: Any) -> Any:
        """Returns the free variables in the place of their leaves, in their dtypes, with None at leaves that stay."""
        values, treedef = jtu.tree_flatten(self.picked(model))
        return jtu.tree_unflatten(treedef, [t.forward(x) for t, x in zip(self.transforms, values, strict=True)])

    def rest(self, model: Any) -> Any:
        """Returns the model without its fitted leaves, with None in their place."""
        leaves, treedef = jtu.tree_flatten(model)
        for i in self.indices:
            leaves[i] = None
        return jtu.tree_unflatten(treedef, leaves)

    def joined(self, rest: Any, free: Any) -> Any:
        """Returns the model of the free variables that `free` gives and of the leaves that stay."""
        values, treedef = jtu.tree_flatten(free)
        given = zip(self.transforms, values, self.dtypes, strict=True)
        return eqx.combine(jtu.tree_unflatten(treedef, [t.inverse(x).astype(dtype) for t, x, dtype in given]), rest)

    def tree(self, model: Any, flat: Float[Array, " p"]) -> Any:
        """Returns the pieces of `flat` in the structure of the model, with None at leaves that are not fitted."""
        count = len(jtu.tree_leaves(model))
        leaves: list[Any] = [None] * count
        for i, piece in zip(self.indices, self.split(flat), strict=True):
            leaves[i] = piece
        return jtu.tree_unflatten(jtu.tree_structure(model), leaves)


def _chosen_transforms(model: Any, fitted: list[int], positive: Any, bounds: Any, transforms: Any) -> dict:
    """Reads the three ways of naming a constraint into one transform per fitted leaf."""
    pairs: list[tuple[str, Any, AbstractTransform]] = []
    whole = positive is True
    if positive is not None and positive is not False:
        selector = (lambda tree: tree) if whole else positive
        if not callable(selector):
            raise TypeError(
                f"`positive` must be True (all fitted leaves) or a selector such as `lambda model: model.alpha`, "
                f"but got {type(positive).__name__}."
            )
        pairs.append(("positive", selector, Positive()))
    for argument, entries, length in (("bounds", bounds, 3), ("transforms", transforms, 2)):
        for entry in entries:
            if not (isinstance(entry, Sequence) and len(entry) == length and callable(entry[0])):
                form = "(selector, lower, upper)" if length == 3 else "(selector, transform)"
                raise TypeError(f"each entry of `{argument}` must be a tuple `{form}`, but got {entry!r}.")
            transform = Bounded(entry[1], entry[2]) if length == 3 else entry[1]
            if not isinstance(transform, AbstractTransform):
                raise TypeError(f"`transforms` needs instances of `AbstractTransform`, but got {transform!r}.")
            pairs.append((argument, entry[0], transform))
    paths = leaf_names(model)
    found: dict[int, tuple[str, AbstractTransform]] = {}
    for argument, selector, transform in pairs:
        for i in indices_of(model, selector, argument):
            if i not in fitted:
                if whole and argument == "positive":
                    continue
                raise ValueError(f"`{argument}` names `{paths[i]}`, which is not one of the fitted leaves.")
            if i in found:
                raise ValueError(f"`{paths[i]}` is constrained twice, by `{found[i][0]}` and by `{argument}`.")
            found[i] = (argument, transform)
    return {i: transform for i, (_, transform) in found.items()}


def select(
    model: Any, where: Callable | None, positive: Any, bounds: Sequence, transforms: Sequence, *, kinds: str = "real"
) -> tuple[Any, ParameterSelection]:
    """Returns the model with its fitted leaves as JAX arrays, and the selection of them.

    Args:
        model: The model.
        where: Picks the leaves to fit, or None for all.
        positive: The leaves that stay positive.
        bounds: The leaves with bounds.
        transforms: The leaves with other constraints.
        kinds: "real" for real leaves only, or "complex" to include complex leaves, which cannot be constrained.

    Raises:
        TypeError: If a selected leaf is not a floating-point array of these kinds.
        ValueError: If nothing is selected, or a value is outside of the range of its constraint.
    """
    flat, treedef = jtu.tree_flatten_with_path(model)
    paths = [_name(path) for path, _ in flat]
    leaves = [leaf for _, leaf in flat]
    if where is None:
        fitted = [i for i, leaf in enumerate(leaves) if is_inexact(leaf) and not np.isscalar(leaf)]
        if not fitted:
            raise ValueError(
                "the model has no floating-point array leaves, so there is nothing to fit. Make its parameters "
                "arrays, `jnp.array(0.3)` instead of 0.3 (in a module, use "
                "`eqx.field(converter=sciml.parameter)`), or select them with `where`."
            )
    else:
        fitted = indices_of(model, where, "where")
        if where_ints := [i for i in fitted if not is_inexact(leaves[i])]:
            i = where_ints[0]
            # A selected subtree may contain functions and integers next to its weights: these are not changed.
            fitted = [i for i in fitted if i not in where_ints]
            if not fitted:
                raise TypeError(
                    f"`where` selects `{paths[i]}`, which is {described(leaves[i])}; only floating-point leaves can be "
                    "fitted. Make it a float array."
                )
    for i in fitted:
        leaves[i] = jnp.asarray(leaves[i])
        if jnp.iscomplexobj(leaves[i]) and kinds == "real":
            raise TypeError(
                f"`{paths[i]}` is {described(leaves[i])}; only real leaves can be fitted. Store its real and "
                "imaginary parts as two leaves."
            )
    model = jtu.tree_unflatten(treedef, leaves)
    chosen = _chosen_transforms(model, fitted, positive, bounds, transforms)
    selection = ParameterSelection(
        transforms=tuple(chosen.get(i, Identity()) for i in fitted),
        indices=tuple(fitted),
        paths=tuple(paths[i] for i in fitted),
        shapes=tuple(leaves[i].shape for i in fitted),
        dtypes=tuple(leaves[i].dtype for i in fitted),
        dtype=jnp.result_type(float),
    )
    for path, i, transform in zip(selection.paths, fitted, selection.transforms, strict=True):
        if jnp.iscomplexobj(leaves[i]):
            if not isinstance(transform, Identity):
                raise TypeError(f"`{path}` is {described(leaves[i])}, which cannot be constrained to a range.")
            continue
        if not concrete(leaves[i]):
            continue
        with jax.ensure_compile_time_eval():  # a model may be chosen from while JAX traces a function of its data
            inside = np.asarray(transform.contains(leaves[i].astype(selection.dtype)))
        if not inside.all():
            bad = np.asarray(leaves[i])[~inside].reshape(-1)[0] if leaves[i].shape else np.asarray(leaves[i])
            limits = f" ({transform.lower}, {transform.upper})" if isinstance(transform, Bounded) else ""
            raise ValueError(
                f"the initial value of `{path}` must be {transform.domain}{limits}, but it is {bad}. "
                "Start inside the range, or relax the constraint."
            )
    return model, selection


def is_inexact(leaf: Any) -> bool:
    """Whether something is floating-point; `is_inexact_array_like` does not support traced values."""
    return eqx.is_inexact_array(leaf) if isinstance(leaf, jax.Array) else eqx.is_inexact_array_like(leaf)


def described(leaf: Any) -> str:
    """Returns a description of a leaf, in words."""
    if isinstance(leaf, jax.Array | np.ndarray):
        return f"an array of dtype {leaf.dtype}"
    return f"a {type(leaf).__name__}"


def listed(names: Sequence[str], chosen: np.ndarray) -> str:
    """Returns the names of some parameters for a message."""
    found = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
    return ", ".join(f"`{name}`" for name in found[:10]) + (", ..." if len(found) > 10 else "")
