"""Members as a PyTree with a leading axis: checks, and taking some of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._structure_words import structure_words
from ._generated import Generated
from ._grid import ParameterGrid


def is_array(x: Any) -> bool:
    """Whether `x` is an array, JAX's or NumPy's; Python numbers are not."""
    return eqx.is_array(x) or isinstance(x, (np.ndarray, np.generic))


def numbers_as_array(params: Any) -> Any:
    """Returns a list or tuple of Python numbers as an array, one for each member; anything else as it is."""
    if type(params) in (list, tuple) and params and all(type(x) in (bool, int, float, complex) for x in params):
        return jnp.asarray(params)
    return params


def count_members(params: Any, *, where: str) -> int:
    """Returns the length of the leading axis that all arrays of `params` share.

    Leaves that are neither arrays nor numbers (activation functions, names) belong to all members.
    """
    if isinstance(params, (ParameterGrid, Generated)):
        return len(params)
    lengths = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = "params" + jax.tree_util.keystr(path)
        if is_array(leaf) and getattr(leaf.dtype, "kind", "f") in "OSUM":
            raise TypeError(
                f"`{where}`: `{name}` must contain numbers, but has dtype {leaf.dtype}. Replace names or choices by "
                "integers, and look them up inside the function."
            )
        if is_array(leaf) and leaf.ndim:
            lengths[name] = leaf.shape[0]
        elif is_array(leaf) or isinstance(leaf, (bool, int, float, complex)):
            raise ValueError(
                f"`{where}`: `{name}` is a scalar, but every leaf of `params` needs a leading axis with one entry "
                "per member. Pass values that all members share as `shared`."
            )
    if not lengths:
        raise ValueError(f"`{where}`: `params` contains no array, so there is no member to run.{_remedy(params)}")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"`{name}` has {n}" for name, n in lengths.items())
        raise ValueError(
            f"`{where}`: the leading axes differ in length: {listed}. Every leaf of `params` needs "
            "the same leading axis; pass values that all members share as `shared`."
        )
    n = next(iter(lengths.values()))
    if n == 0:
        raise ValueError(f"`{where}`: `params` is empty (its leading axis has length 0). Pass at least one member.")
    return n


def _remedy(params: Any) -> str:
    """Returns what to do about params that are something else than a PyTree of arrays."""
    leaves = jax.tree.leaves(params)
    columns = [x for x in leaves if hasattr(x, "columns") and hasattr(x, "to_numpy")]
    if columns:
        return " Pass the columns of a data frame as arrays: `{name: frame[name].to_numpy() for name in frame}`."
    if leaves:
        kinds = ", ".join(sorted({type(x).__name__ for x in leaves}))
        return f" It contains only {kinds}. Pass a dictionary of arrays, one entry per member."
    return ""


def expand(params: Any) -> Any:
    """Returns `params` as a PyTree with a leading axis of members, which a grid holds by its axes only."""
    return params.params if isinstance(params, (ParameterGrid, Generated)) else params


def take(params: Any, ids: np.ndarray) -> Any:
    """Returns the members `ids` of `params`, on the host where they are there."""
    if isinstance(params, (ParameterGrid, Generated)):
        return params.take(ids)
    return jax.tree.map(lambda x: x[ids] if is_array(x) else x, params)


def to_host(tree: Any) -> Any:
    """Returns `tree` with its arrays as NumPy arrays; typed random keys are unchanged."""

    def fetch(x):
        return x if not is_array(x) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)

    return jax.tree.map(fetch, tree)


def say_what_member_is(error: Exception, where: str, params: Any) -> None:
    """Adds a note with the argument of `fn` to its error, which shows a wrong key or index."""
    error.add_note(f"sciml: `{where}` called `fn` with one member of `params`, {structure_words(params)}.")
