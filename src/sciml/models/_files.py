"""Models in files: their structure, then their numbers."""

import inspect
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import IO, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..stores._atomic import replace

_FORMAT = "sciml model 1"


def save(path: str | os.PathLike, model: PyTree, hyperparameters: Mapping[str, Any] | None = None) -> None:
    """Writes a model, or any PyTree of arrays, to one file.

    Its first line is a JSON description of its contents: the names, shapes and dtypes of all leaves, the other parts of
    the model, and the hyperparameters. The numbers follow, by `eqx.tree_serialise_leaves`. The file is either complete
    or absent; its permissions follow the process's umask, like any new file.

    Args:
        path: The file.
        model: The model. Functions in it are not written: they come from `like` of `load`.
        hyperparameters: The arguments with which `load` calls a class or function to build such a model: numbers,
            strings, lists and so on.

    Raises:
        TypeError: If JSON cannot represent the hyperparameters.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import models
        from sciml.models.neural import NeuralODE

        sizes = dict(size=2, width=8, depth=1)
        model = NeuralODE(**sizes, key=jax.random.key(0))
        models.save("spiral.model", model, sizes)

        again = models.load("spiral.model", NeuralODE)
        y = jnp.ones(2)
        assert (again(0.0, y, None) == model(0.0, y, None)).all()
        ```
    """
    known = None if hyperparameters is None else dict(hyperparameters)
    try:
        head = json.dumps(dict(format=_FORMAT, **_described(model), hyperparameters=known))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`save(hyperparameters=...)` must be JSON data (numbers, strings, lists and dictionaries): {error}."
        ) from None

    def fill(file: IO[bytes]) -> None:
        file.write((head + "\n").encode())
        eqx.tree_serialise_leaves(file, model)

    replace(pathlib.Path(path), fill)


def load(path: str | os.PathLike, like: Callable[..., Any] | PyTree) -> Any:
    """Returns a model from a file that `save` wrote.

    Args:
        path: The file.
        like: A model of the same structure, whose numbers do not matter; or a class or function that makes one of the
            hyperparameters in the file, and of a `key`, if it takes one.

    Returns:
        The model, with the numbers of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file contains another structure or dtype, or no model; the message lists the differences.

    Example:
        ```python
        from sciml import models

        models.save("rates.model", models.LotkaVolterra(alpha=0.7))
        assert models.load("rates.model", models.LotkaVolterra()).alpha == 0.7
        ```
    """
    with open(path, "rb") as file:
        head = _head(file.readline(), path)
        mine = "`like`"
        if isinstance(like, type) or (callable(like) and not isinstance(like, eqx.Module)):
            mine = f"the model built from the hyperparameters in the file, {head['hyperparameters']}"
            like = _made(like, head["hyperparameters"], path)
        _check_same(head, _described(like), path, mine)
        try:
            return eqx.tree_deserialise_leaves(file, like)
        except (RuntimeError, EOFError, ValueError, OSError) as error:
            raise ValueError(f"{str(path)!r} is damaged or truncated: {error}") from error


def _head(line: bytes, path: Any) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        raise ValueError(f"{str(path)!r} does not contain a model written by `sciml.models.save`.")
    return head


def _made(make: Callable[..., Any], hyperparameters: Any, path: Any) -> Any:
    if hyperparameters is None:
        raise ValueError(
            f"{str(path)!r} contains no hyperparameters to build a model from. Pass a model of the same structure to "
            "`load`, or `save` the hyperparameters."
        )
    takes_key = "key" in inspect.signature(make).parameters and "key" not in hyperparameters
    extra = dict(key=jax.random.key(0)) if takes_key else {}
    return eqx.filter_eval_shape(lambda: make(**hyperparameters, **extra))


def _described(model: PyTree) -> dict[str, Any]:
    """Returns the leaves of a model by name, and its other parts."""
    leaves = {}
    for path, x in jax.tree_util.tree_leaves_with_path(model):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "model"
        leaves[name] = f"{x.dtype}{list(x.shape)}" if hasattr(x, "shape") and hasattr(x, "dtype") else _word(x)
    return dict(leaves=leaves, made_of=_parts(model, "model"))


def _word(x: Any) -> str:
    if isinstance(x, bool | int | float | complex | str | None):
        return type(x).__name__
    return getattr(x, "__qualname__", None) or getattr(x, "__name__", None) or type(x).__name__


def _parts(node: Any, name: str) -> dict[str, str]:
    """Returns the parts of a PyTree of modules that are not leaves: classes, and static fields."""
    found = {}
    if isinstance(node, eqx.Module):
        found[name] = type(node).__qualname__
        for field in node.__dataclass_fields__.values():
            value = getattr(node, field.name, None)
            if field.metadata.get("static", False):
                found[f"{name}.{field.name}"] = _static(value)
            else:
                found |= _parts(value, f"{name}.{field.name}")
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            found |= _parts(value, f"{name}.{i}")
    elif isinstance(node, dict):
        for key, value in node.items():
            found |= _parts(value, f"{name}.{key}")
    return found


def _static(value: Any) -> str:
    """Returns a value as text that is the same in another process."""
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_static, value)) + ")"
    if isinstance(value, bool | int | float | str | type(None)):
        return repr(value)
    if isinstance(value, np.dtype | jax.tree_util.PyTreeDef):
        return str(value)
    return _word(value)


def _check_same(file: dict[str, Any], like: dict[str, Any], path: Any, mine: str) -> None:
    """Checks that two descriptions agree.

    Raises:
        ValueError: If they do not; the message names the first that differs.
    """
    for part, what in (("leaves", "leaf"), ("made_of", "part")):
        here, there = like[part], file[part]
        for name in [*there, *here]:
            if there.get(name) == here.get(name):
                continue
            if name not in here or name not in there:
                owner = "the file" if name in there else mine
                problem = f"only {owner} has a {what} `{name}`, {(there | here)[name]}"
            else:
                problem = f"`{name}` is {there[name]} in the file and {here[name]} in {mine}"
            shapes = [str(x.get(name)).partition("[")[2] for x in (there, here)]
            advice = ""
            if shapes[0] and shapes[0] == shapes[1]:
                advice = (
                    " Load it in the precision in which it was written (`jax_enable_x64`), or cast `like` "
                    "(`with_dtype`)."
                )
            raise ValueError(f"{str(path)!r} contains a model of another structure: {problem}.{advice}")
