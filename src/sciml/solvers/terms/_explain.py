"""Messages for a user's model that cannot be called or traced."""

import contextlib
import re
import traceback
from collections.abc import Iterator
from typing import Any

import diffrax
import jax
import numpy as np

from ..._checks import check_call
from ..._interfaces._dae import AbstractDAE
from ..._interfaces._delayed import AbstractDelayed
from ..._interfaces._reactions import AbstractReactions
from ..._interfaces._stochastic import AbstractStochastic
from ..._source_lines import is_internal, is_library, is_own

_NOTE = "sciml: the model or an event raised this while JAX traced it"


def check_callable(model: Any) -> None:
    """Checks that a model can be called as `model(t, y, args)`.

    Raises:
        TypeError: If it is not a function, or accepts another number of arguments.
    """
    what = "`model` must be callable as `model(t, y, args)`, but"
    if isinstance(model, diffrax.ODETerm):
        raise TypeError(f"{what} is diffrax's `ODETerm`. Pass its `vector_field`.")
    if isinstance(model, diffrax.AbstractTerm):
        name = type(model).__name__
        raise TypeError(f"{what} is diffrax's `{name}`, which only `sciml.solve` with a diffrax solver supports.")
    if isinstance(model, AbstractDelayed):
        raise TypeError(f"{what} is a `sciml.Delayed`, whose rate depends on the past; only `sciml.solve` supports it.")
    if isinstance(model, AbstractDAE):
        raise TypeError(f"{what} is a `sciml.DAE`, which gives no rate explicitly; only `sciml.solve` supports it.")
    if isinstance(model, AbstractStochastic | AbstractReactions):
        raise TypeError(
            f"{what} is {type(model).__name__}, a model with noise. Use `sciml.solve(model, y0, key=...)`, or pass its "
            f"`{'drift' if isinstance(model, AbstractStochastic) else 'rate_equations'}`, which is a vector field."
        )
    if not callable(model):
        raise TypeError(f"{what} is {model!r}.")
    if isinstance(model, type):
        raise TypeError(f"{what} {model.__name__} is a class: make an instance.")
    check_call(model, "model(t, y, args)", "`model`")


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Adds a note to an error of a block that traces functions of the model; see `explain`."""
    try:
        yield
    except Exception as error:
        explain(error)
        raise


def explain(error: Exception) -> None:
    """Adds a note with the user's line and a cure to an error that the model raised while it was traced."""
    if any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
        return
    place = _users_line(error)
    where = f", at {place}" if place else ""
    error.add_note(f"{_NOTE}{where}.{_cure(error)}")


def _cure(error: Exception) -> str:
    """Returns the remedy, after a space; empty if sciml has raised the error, whose message contains it."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, TypeError | ValueError) and frames and is_own(frames[-1].filename):
        return ""
    return f" {_cure_of(error)}"


def _cure_of(error: Exception) -> str:
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return (
            "Python control flow (`if`, `while`, `and`, `max`) cannot depend on a traced value. Use "
            "`jnp.where(condition, a, b)`, or `jax.lax.cond` if one branch is expensive."
        )
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            "NumPy and SciPy cannot compute with a traced value. Use the same function of `jax.numpy` or `jax.scipy`; "
            "for one that JAX does not have, `jax.pure_callback`."
        )
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerIntegerConversionError):
        return (
            "A traced value cannot be converted to a Python number. Remove `float()`, `int()` and `math`, and compute "
            "with `jax.numpy`."
        )
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return (
            "It closes over a value of a `jax.jit` or `jax.vmap` that has ended, for example because dense output is "
            "evaluated outside of it. Pass such values to the model as `args` or as leaves of a module."
        )
    if (
        isinstance(error, AttributeError)
        and isinstance(error.obj, tuple | list | dict)
        and hasattr(np.ndarray, str(error.name))
    ):
        return (
            f"The model uses a {type(error.obj).__name__} as if it were an array. Combine the parts of the state with "
            "`jnp.stack([...])`."
        )
    if isinstance(error, TypeError) and re.search(r"'str'|<class 'str'>|\bstr\b.*valid JAX type", str(error)):
        return "The model computes with a string where it needs a number. Check `args` and the fields of the model."
    if isinstance(error, ValueError) and "setting an array element" in str(error):
        return "An array of NumPy cannot hold traced values. Combine the components with `jnp.stack([...])`."
    if isinstance(error, IndexError | TypeError) and re.search("0-dimensional|0-d (array|tensor)", str(error)):
        return (
            "The model indexes a single number. The first argument is the time, as in `model(t, y, args)`: check the "
            "order of the arguments and the shape of `y0`."
        )
    if isinstance(error, TypeError) and "NoneType" in str(error):
        return "`args` is None because it was not given. Pass `args=...` to the call."
    return (
        "Use `jax.numpy` instead of `numpy`, `jnp.where` instead of `if`, and expect `y` to have the structure of `y0`."
    )


def _users_line(error: Exception) -> str:
    """Returns the innermost line that belongs neither to the library nor to one of the libraries it is built on."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not is_library(frame.filename) and not is_internal(frame.filename):
            code = f" `{frame.line}`" if frame.line else ""
            return f"{frame.filename}:{frame.lineno}{code}"
    return ""
