"""Descriptions of the structure of a PyTree for messages: containers, keys, dtypes and shapes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, GetAttrKey

IsLeaf = Callable[[Any], bool] | None

_MOST = 6  # children of one container that are written out
_DEEPEST = 3


class _Node(NamedTuple):
    """One level of a PyTree: its type, and the keys and the values below it."""

    kind: type
    keys: list[Any]
    children: list[Any]


def structure_words(tree: Any, is_leaf: IsLeaf = None) -> str:
    """Returns a description of a PyTree, such as `{'x': float64[3], 'v': float64[3]}`.

    Args:
        tree: Any PyTree, of arrays or of what has their shape and dtype.
        is_leaf: As in `jax.tree.map`.
    """
    return _words(tree, is_leaf, 0)


def first_difference(wanted: Any, got: Any, is_leaf: IsLeaf = None, arrays: bool = False) -> str:
    """Returns a sentence, after a space, about the first difference of two PyTrees; empty if that is the top.

    Args:
        wanted: The PyTree that would be right.
        got: The one that came.
        is_leaf: As in `jax.tree.map`.
        arrays: Whether leaves of other shapes and dtypes also differ.
    """
    found = _difference(wanted, got, is_leaf, arrays, "")
    if found is None or not found[0]:
        return ""
    return f" The first difference is at `{found[0]}`: {found[1]}."


def _node(tree: Any, is_leaf: IsLeaf) -> _Node | None:
    """Returns one level of a PyTree; None for a leaf."""
    if jax.tree_util.all_leaves([tree], is_leaf=is_leaf) and tree is not None:
        return None
    below = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)[0] if tree is not None else []
    return _Node(type(tree), [path[0] for path, _ in below], [x for _, x in below])


def _words(tree: Any, is_leaf: IsLeaf, depth: int) -> str:
    if tree is None:
        return "None"
    node = _node(tree, is_leaf)
    if node is None:
        return _leaf_words(tree)
    name, named = node.kind.__name__, hasattr(tree, "_fields")
    before, after = {tuple: ("(", ")"), list: ("[", "]"), dict: ("{", "}")}.get(node.kind, (f"{name}(", ")"))
    if depth == _DEEPEST and node.children:
        return f"{before}...{after}"
    parts = [
        _labelled(key, _words(child, is_leaf, depth + 1), named or isinstance(key, GetAttrKey))
        for key, child in zip(node.keys[:_MOST], node.children)
    ]
    if more := len(node.children) - _MOST:
        parts += [f"... {more} more"] if more > 0 else []
    if node.kind is tuple and len(node.children) == 1:
        parts += [""]  # as Python writes a tuple of one
    return before + ", ".join(parts).rstrip() + after


def _labelled(key: Any, words: str, attribute: bool) -> str:
    if isinstance(key, DictKey):
        return f"{key.key!r}: {words}"
    if attribute and isinstance(key, GetAttrKey):
        return f"{key.name}={words}"
    return words


def _leaf_words(leaf: Any) -> str:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return f"{leaf.dtype}{list(leaf.shape)}"
    return type(leaf).__name__


def _difference(wanted: Any, got: Any, is_leaf: IsLeaf, arrays: bool, path: str) -> tuple[str, str] | None:
    """Returns the position and the contents of the first difference of two PyTrees."""
    right, found = _node(wanted, is_leaf), _node(got, is_leaf)
    if right is None and found is None:
        unlike = arrays and _kind(wanted) != _kind(got)
        return (path, _in_place(wanted, got, is_leaf)) if unlike else None
    if right is None or found is None or right.kind is not found.kind:
        return path, _in_place(wanted, got, is_leaf)
    for key in right.keys:
        if key not in found.keys:
            return path + str(key), "it is missing"
    for key in found.keys:
        if key not in right.keys:
            return path + str(key), "it was not expected"
    for key, a, b in zip(right.keys, right.children, found.children):
        if below := _difference(a, b, is_leaf, arrays, path + str(key)):
            return below
    if jax.tree.structure(wanted, is_leaf=is_leaf) != jax.tree.structure(got, is_leaf=is_leaf) and not any(
        map(_holds_more, right.children)
    ):
        return path, "its fields that are not arrays differ"  # such as a module's static fields
    return None


def _holds_more(child: Any) -> bool:
    return not jax.tree_util.all_leaves([child])


def _kind(leaf: Any) -> Any:
    return np.shape(leaf), jnp.result_type(leaf)


def _in_place(wanted: Any, got: Any, is_leaf: IsLeaf) -> str:
    return f"{_words(got, is_leaf, 1)} instead of {_words(wanted, is_leaf, 1)}"
