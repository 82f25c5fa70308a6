"""Checks of a concrete initial state and concrete parameters, with which a solve could not even begin."""

import contextlib
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._checks import concrete
from .._status import Status
from .._types import Y
from ._request import Request
from ._solution import Solution
from .methods.around._admissible import read_admissible


def wrong_start(sol: Solution, model: Any, y0: Y, request: Request) -> str | None:
    """Returns what is wrong with the values that a failed solve of one member was given; None where that is not known.

    Args:
        sol: The solve.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
    """
    code = int(sol.status) if np.ndim(sol.status) == 0 else None
    if code == Status.invalid_argument:
        return _not_admissible(y0, request)
    if code != Status.nonfinite or not concrete(sol.t_reached) or float(sol.t_reached) != float(request.t0):
        return None
    values = (("y0", y0), ("args", request.args), ("model", eqx.filter(model, eqx.is_array)))
    return next((said for name, tree in values if (said := _not_finite(name, tree)) is not None), None)


@contextlib.contextmanager
def naming_texts(args: Any) -> Iterator[None]:
    """Adds to what a model raised a note with the texts in `args`, where there are some.

    Raises:
        TypeError: The error of the model.
    """
    try:
        yield
    except TypeError as error:
        for path, x in jax.tree_util.tree_flatten_with_path(args)[0]:
            if isinstance(x, str):
                place = f"`args{jax.tree_util.keystr(path)}`"
                error.add_note(f"sciml: {place} is the string {x!r:.60}, but a model computes with numbers and arrays.")
        raise


def _not_finite(name: str, tree: Any) -> str | None:
    for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not _known_numbers(x) or np.all(finite := np.isfinite(np.asarray(x))):
            continue
        place, value = _first(~finite, x)
        return (
            f"`{name}{jax.tree_util.keystr(path)}{place}` is {value}, but a solve needs finite numbers. Likely causes "
            "are a division by zero, a logarithm or root of a negative number, or missing data."
        )
    return None


def _not_admissible(y0: Y, request: Request) -> str | None:
    if not all(_known_numbers(x) for x in jax.tree.leaves(y0)):
        return None
    arrays = jax.tree.map(jnp.asarray, y0)
    admissible = read_admissible(request.positive, request.domain, arrays)
    if admissible is None:
        return None
    paths = jax.tree_util.tree_flatten_with_path(arrays)[0]
    for (path, x), flag in zip(paths, admissible.flags(), strict=True):
        if flag is not None and np.any(wrong := flag & (np.asarray(x) < 0)):
            place, value = _first(wrong, x)
            return (
                f"`y0{jax.tree_util.keystr(path)}{place}` is {value}, but `positive` requires a state without negative "
                "elements. Start at zero or above, or exclude this element: `positive` accepts a PyTree of booleans "
                "like `y0`."
            )
    if not bool(admissible.holds(arrays)):
        return "`domain(y0)` is False, but the initial state must satisfy `domain` like all later states."
    return None


def _known_numbers(x: Any) -> bool:
    if isinstance(x, float | complex):
        return True
    numbers = isinstance(x, np.ndarray | np.generic | jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
    return numbers and concrete(x) and getattr(x, "is_fully_addressable", True)


def _first(wrong: Any, x: Any) -> tuple[str, Any]:
    """Returns the place of the first element that is wrong, as an index, and its value."""
    x = np.asarray(x)
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if x.ndim else ()
    return (f"[{', '.join(map(str, at))}]" if at else ""), x[at].item()
