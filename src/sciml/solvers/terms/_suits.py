"""Whether an initial state fits one of the library's own models, and the message if it does not."""

import contextlib
import dataclasses
import functools
import inspect
import re
import traceback
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..._interfaces._model import AbstractSecondOrder
from ..._source_lines import is_internal, is_library, is_own
from ..._structure_words import structure_words
from ..._types import Y

_STATES = {"__call__": "y", "drift": "y", "rate": "y", "propensities": "x", "transform": "y"}
"""The methods of models that have a state as an argument, and the name of that argument."""

_OF_THE_STATE = re.compile(r"\b(state|field must|counts must|fields of shape)\b")


def check_suits(model: Any, y0: Y, many: str = "`jax.vmap` of the solve") -> None:
    """Checks that a state has the axes that a model of the library declares, which others would read as something else.

    Args:
        model: The model.
        y0: The state of one member.
        many: The way to solve a batch of states, for the message.

    Raises:
        ValueError: If it has others.
        TypeError: If it is several arrays, and should be one.
    """
    if not _is_of_the_library(model):
        return
    name = type(model).__name__
    if isinstance(model, AbstractSecondOrder) and type(model).__call__ is AbstractSecondOrder.__call__:
        if not isinstance(y0, tuple) or len(y0) != 2:
            raise TypeError(
                f"`y0` must be a pair `(q, v)` of position and velocity for `{name}`, but is {structure_words(y0)}."
            )
        axes: Any = getattr(_declared(type(model), "acceleration", "q"), "dim_str", None)
        if axes is not None:
            for x in y0:
                _check_axes(x, axes, name, y0, many)
        return
    for method, argument in _STATES.items():
        declared = _declared(type(model), method, argument)
        if getattr(declared, "dim_str", None) is not None:
            return _check_axes(y0, declared.dim_str, name, y0, many)
        made = hasattr(model, "start")  # others say themselves how theirs is made
        if isinstance(declared, type) and made and not isinstance(y0, declared):
            raise TypeError(
                f"`y0` must be a `{declared.__name__}`, as returned by `{name}.start()`, but is {structure_words(y0)}."
            )


def _check_axes(x: Any, axes: str, name: str, y0: Y, many: str) -> None:
    takes = f"as `{name}` takes {'it' if x is y0 else 'both'}, but"
    if not jax.tree_util.all_leaves([x]):
        raise TypeError(f"`y0` must be one array, {takes} is {structure_words(y0)}.")
    words = axes.split()
    if any(not re.fullmatch(r"\w+", word) for word in words):  # as "..." and "*shape": any number of axes
        return
    shape = np.shape(x)
    if len(shape) == len(words) and all(not w.isdigit() or int(w) == n for w, n in zip(words, shape)):
        return
    comma = "," if len(words) == 1 else ""
    batch = f" For a batch of states use {many}." if len(shape) > len(words) else ""
    raise ValueError(f"`y0` must have shape ({', '.join(words)}{comma}), {takes} is {structure_words(y0)}.{batch}")


@functools.lru_cache(maxsize=1024)
def _declared(kind: type, method: str, argument: str) -> Any:
    """Returns the type that a method declares for its state: `Float[Array, " 3"]`, a class, or something else."""
    function = getattr(kind, method, None)
    parameter = None if function is None else inspect.signature(function).parameters.get(argument)
    return None if parameter is None else parameter.annotation


@contextlib.contextmanager
def blaming_state(model: Any, y0: Y) -> Iterator[None]:
    """Says that `y0` does not suit a model of the library where that fails by it, and nothing of the user's does.

    Raises:
        ValueError: Instead of the error of a model.
        TypeError: The same.
    """
    try:
        yield
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        if not _is_of_the_library(model) or "`y0`" in str(error).split("The vector field must")[0]:
            raise
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if is_own(frame.filename)]
        of_user = any(not is_library(frame.filename) and not is_own(frame.filename) for frame in frames)
        refused = is_own(frames[-1].filename) and (frames[-1].line or "").startswith("raise")
        by_state = _OF_THE_STATE.search(str(error)) if refused else any(not is_internal(x.filename) for x in own)
        if of_user or not (by_state or _off_grid(model, y0)):
            raise
        if (several := _parameters_of_many(model)) is not None:
            name, shape = several
            raise _made(
                type(error) if isinstance(error, TypeError | ValueError) else ValueError,
                f"`{name}` of `{type(model).__name__}`, of shape {shape}, does not suit `y0`, {structure_words(y0)}: "
                f"{error} For many values of a parameter use `jax.vmap` over models: "
                f"`jax.vmap(lambda {name}: sciml.solve({type(model).__name__}({name}={name}), y0, ...))`.",
            ) from error
        kind = type(error) if isinstance(error, TypeError | ValueError) else ValueError
        raise _made(kind, f"`y0`, {structure_words(y0)}, does not suit `{type(model).__name__}`: {error}") from error


def _parameters_of_many(model: Any) -> tuple[str, tuple[int, ...]] | None:
    """Returns the first parameter whose default is one number and which is an array of several, with its shape."""
    for field in dataclasses.fields(model) if dataclasses.is_dataclass(model) else ():
        shape = np.shape(getattr(model, field.name, None)) if isinstance(field.default, int | float) else ()
        if shape:
            return field.name, shape
    return None


def _made(kind: type, message: str) -> Exception:
    """Returns an error of the builtin kind: errors of libraries may have other arguments."""
    return TypeError(message) if issubclass(kind, TypeError) else ValueError(message)


def _off_grid(model: Any, y0: Y) -> bool:
    """Whether a state is one array whose last axes differ from the model's grid, or from an operator's grid in it."""
    parts = (model, *vars(model).values())
    shape = next((part.grid.shape for part in parts if hasattr(getattr(part, "grid", None), "shape")), None)
    return shape is not None and hasattr(y0, "shape") and tuple(y0.shape[-len(shape) :]) != tuple(shape)


def _is_of_the_library(model: Any) -> bool:
    return type(model).__module__.startswith("sciml.models.")
