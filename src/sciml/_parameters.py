"""Parameters of models: differentiable leaves that follow the precision of the state."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

Parameter: TypeAlias = Float[Array, "..."]
"""A parameter: a scalar, or an array whose leading axes are meant for `jax.vmap` over models."""

_Tree = TypeVar("_Tree")


def parameter(value: Any) -> Array:
    """Makes a number a parameter: a floating-point array, which JAX can differentiate and batch.

    It is meant as the converter of a field, `eqx.field(converter=sciml.parameter)`. A Python number
    becomes a weakly typed array: it is a leaf, so `jax.grad` sees it, and it still combines with
    float32 and with float64 states under strict dtype promotion, as the number would. An array
    keeps its dtype, and integers become the default floating type.

    Args:
        value: A number, or an array or nested list of numbers of any shape.

    Returns:
        `value` as a JAX array of floating (or complex) dtype.

    Raises:
        TypeError: If `value` is not a number or an array of numbers, or is boolean; as a converter it names the field.

    Example:
        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import sciml

        class Decay(sciml.AbstractModel):
            rate: jax.Array = eqx.field(default=2, converter=sciml.parameter)

            def __call__(self, t, y, args):
                return -self.rate * y

        gradient = jax.grad(lambda model: model(0.0, jnp.float32(3.0), None))(Decay())
        assert gradient.rate == -3.0
        ```
    """
    if isinstance(value, int | float) and not isinstance(value, bool | np.generic):
        return jnp.asarray(float(value))  # weakly typed, which jnp.asarray(value, dtype) is not
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        array = None
    if array is None or not jnp.issubdtype(array.dtype, jnp.number):
        got = f"{value!r:.60}, {type(value).__name__}" if array is None else f"an array of dtype {array.dtype}"
        raise TypeError(
            f"{_converted()} must be a number or an array of numbers, but got {got}. To choose "
            "leaves of a model (say, for `in_axes`), use `eqx.tree_at` or `eqx.filter_vmap`."
        )
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        array = array.astype(jnp.result_type(float))
    return array


def _converted() -> str:
    """Returns the name of the field that a model in the making converts, which nothing else tells a converter."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("equinox."):
        frame = frame.f_back
    values = {} if frame is None else frame.f_locals
    name = next((x.name for x in values.values() if isinstance(x, dataclasses.Field)), None)
    if name is None or "self" not in values:
        return "a parameter"
    return f"`{name}` of `{type(values['self']).__name__}`"


def with_dtype(tree: _Tree, dtype: DTypeLike) -> _Tree:
    """Returns `tree` with every floating-point array in `dtype`; all other leaves are kept.

    Vector fields use it to compute in the precision of their state, whatever the precision of
    their parameters has become: an optimiser, a loaded file or a random draw makes weakly typed
    parameters strongly typed. Gradients come back in the parameter's own dtype.

    Args:
        tree: A model, or any PyTree.
        dtype: A floating dtype, usually `y.dtype`. Complex leaves are not made real.

    Returns:
        A PyTree of the same structure.

    Raises:
        TypeError: If `dtype` is not a floating (or complex) dtype.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import with_dtype
        from sciml.models import Lorenz63

        model = with_dtype(Lorenz63(), jnp.float32)
        assert model.rho.dtype == jnp.float32
        ```
    """
    if not jnp.issubdtype(dtype, jnp.inexact):
        raise TypeError(
            f"`dtype` must be a floating dtype, but got {jnp.dtype(dtype)}. If this is the dtype "
            "of a state, make the state floating: `jnp.asarray(y0, float)`."
        )

    def cast(leaf):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            return leaf  # a Python number takes the dtype of what it meets
        if not jnp.issubdtype(leaf.dtype, jnp.inexact) or leaf.dtype == dtype:
            return leaf
        if jnp.iscomplexobj(leaf) and not jnp.issubdtype(dtype, jnp.complexfloating):
            return leaf  # casting would drop the imaginary part in silence
        return jnp.asarray(leaf, dtype)

    return jax.tree.map(cast, tree)


class _Marker:
    """Stands for one leaf of the model while a selector runs."""

    def __init__(self, index: int):
        self.index = index


def indices_of(model: Any, selector: Callable, argument: str) -> list[int]:
    """Returns the positions among the model's leaves that `selector` picks, which may name whole subtrees."""
    leaves, treedef = jax.tree_util.tree_flatten(model)
    try:
        markers = jax.tree_util.tree_leaves(
            selector(jax.tree_util.tree_unflatten(treedef, map(_Marker, range(len(leaves)))))
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"`{argument}` could not be applied to the model: {error}. It must select nodes of the model without "
            "computing anything, as in `eqx.tree_at`: `lambda model: (model.alpha, model.beta)`."
        ) from error
    if not markers or not all(isinstance(marker, _Marker) for marker in markers):
        found = [type(m).__name__ for m in markers if not isinstance(m, _Marker)]
        raise ValueError(
            f"`{argument}` must select leaves or subtrees of the model, as in `eqx.tree_at`, but it returned "
            f"{'no leaf' if not found else found[0]}."
        )
    return sorted({marker.index for marker in markers})
