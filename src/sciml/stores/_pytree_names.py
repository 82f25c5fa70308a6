"""PyTrees of arrays as arrays by name, in dtypes that NumPy's file formats support, and back."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._atomic import StoreError

_MARK = "|"  # between a name and what its array was before it became one that NumPy knows
_ROOT = "value"
_RESERVED = dict.fromkeys(map(ord, ("/", _MARK, "\0")), "_")  # a zip file cuts names at a zero


def to_named(tree: PyTree) -> dict[str, np.ndarray]:
    """Returns the leaves of a PyTree of arrays and numbers by name, such as "u" or "layers/0/weight".

    Random keys are stored as their data, and types that NumPy does not support, such as bfloat16, as bytes, which is
    marked in the name after a bar.

    Raises:
        TypeError: If a leaf is neither an array nor a number.
        ValueError: If two leaves have the same name.

    Example:
        ```python
        import numpy as np
        from sciml.stores import to_named

        assert set(to_named({"u": np.zeros(3), "layers": [np.ones(2)]})) == {"u", "layers/0"}
        ```
    """
    named: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = name_of(path)
        if not isinstance(leaf, (np.ndarray, np.generic, jax.Array, bool, int, float, complex)):
            raise TypeError(f"Only arrays and numbers can be stored, but `{name}` is a {type(leaf).__name__}.")
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            name, leaf = f"{name}{_MARK}key {jax.random.key_impl(leaf)}", jax.random.key_data(leaf)
        x = np.asarray(leaf)
        if x.dtype.kind not in "biufc":
            name, x = f"{name}{_MARK}{x.dtype}", x.view(f"u{x.dtype.itemsize}")
        if name in named:
            raise ValueError(_same_name(name))
        named[name] = x
    return named


def from_named(named: Mapping[str, np.ndarray | jax.Array], like: PyTree = None, *, where: str = "the store") -> PyTree:
    """Returns the PyTree that `to_named` was given.

    Args:
        named: Arrays by name.
        like: A PyTree of the structure to return, of arrays or `jax.ShapeDtypeStruct`, or of other leaves where
            shape and dtype may be any; with None, the arrays by name, or the array if the tree was a single array.
        where: The source, for errors.

    Raises:
        StoreError: If the leaves differ from the leaves of `like`.

    Example:
        ```python
        import numpy as np
        from sciml.stores import from_named, to_named

        tree = {"u": np.zeros(3), "layers": [np.ones(2)]}
        named = to_named(tree)
        assert from_named(named, tree)["layers"][0].tolist() == [1.0, 1.0]
        assert from_named(named, {"u": np.zeros(3)})["u"].shape == (3,)  # a part of it
        ```
    """
    arrays = {}
    for name, x in named.items():
        name, _, mark = name.partition(_MARK)
        if mark.startswith("key "):
            arrays[name] = jax.random.wrap_key_data(jnp.asarray(x), impl=mark[4:])
        else:
            arrays[name] = np.asarray(x).view(jnp.dtype(mark)) if mark else x
    if like is None:
        return arrays[_ROOT] if list(arrays) == [_ROOT] else arrays
    leaves, treedef = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = name_of(path)
        if name not in arrays:
            raise StoreError(f"{where} does not contain `{name}`, only {sorted(arrays)}: it belongs to another run.")
        x = arrays[name]
        if hasattr(leaf, "dtype") and (x.shape != leaf.shape or x.dtype != leaf.dtype):
            raise StoreError(
                f"{where} contains `{name}` as {x.dtype}{list(x.shape)}, but {leaf.dtype}{list(leaf.shape)} was "
                "expected: it belongs to another run."
            )
        found.append(x)
    return jax.tree.unflatten(treedef, found)


def name_of(path: tuple) -> str:
    """Returns the name of a leaf: its path, with slashes between."""
    return "/".join(str(_entry(key)) for key in path) or _ROOT


def check_names(tree: PyTree) -> None:
    """Checks that the leaves of a PyTree have distinct names, before a run that will store it.

    Raises:
        ValueError: If two leaves have the same name.
    """
    seen: dict[str, tuple] = {}
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        other = seen.setdefault(name_of(path), path)
        if other != path:
            raise ValueError(_same_name(name_of(path)))


def _same_name(name: str) -> str:
    return f"Two arrays would both be stored as `{name}`. Rename the key of one of them."


def base_of(name: str) -> str:
    """Returns the name of a leaf from the name of its array."""
    return name.partition(_MARK)[0]


def _entry(key: Any) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute)).translate(_RESERVED)
    return key
