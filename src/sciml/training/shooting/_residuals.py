"""Common parts of losses over windows of records."""

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._checks import concrete
from ...solvers._solve import solve
from ._windows import Windows, filled


def mean_square(found: PyTree, wanted: PyTree, there: PyTree, scale: PyTree) -> Float[Array, ""]:
    """Returns the mean square of the differences between observations and predictions, in units of `scale`."""
    one = jax.tree.structure(scale) != jax.tree.structure(found)
    scale = jax.tree.map(lambda y: scale, found) if one else scale
    scales = jax.tree.leaves(jax.tree.map(lambda y, s: jnp.broadcast_to(s, y.shape), found, scale))
    squares: Any = 0.0
    count: Any = 0
    leaves = (jax.tree.leaves(x) for x in (found, wanted, there))
    for f, w, seen, s in zip(*leaves, scales, strict=True):
        residual = jnp.where(seen, (f - w) / s.astype(f.dtype), 0)
        squares, count = squares + jnp.sum(residual**2), count + jnp.sum(seen)
    return squares / jnp.maximum(count, 1).astype(squares.dtype)


def conditions_of(conditions: PyTree, windows: Windows) -> PyTree:
    """Returns the conditions of each window, taken from its experiment."""
    return jax.tree.map(lambda x: x[windows.experiment], conditions)


def check_solve_options(options: dict[str, Any], where: str) -> None:
    """Checks the names of options for `sciml.solve`.

    Raises:
        TypeError: If one is unknown, or is set by the caller itself.
    """
    known = set(inspect.signature(solve).parameters) - {"model"}
    for name in options:
        if name in ("t0", "t1", "saveat", "throw", "y0"):
            raise TypeError(f"`{where}` sets `{name}` itself. Leave it out.")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(
                f"Neither `{where}` nor `sciml.solve`, to which it passes other options, has an argument `{name}`."
                f"{f' Did you mean `{near[0]}`?' if near else ''}"
            )


def check_scale(scale: Any, where: str) -> PyTree:
    """Returns the unit of observations as arrays.

    Raises:
        ValueError: If it is known and not positive.
    """
    found = jax.tree.map(lambda s: jnp.asarray(s, jnp.result_type(float)), scale)
    for x in jax.tree.leaves(found):
        if concrete(x) and not np.all(np.asarray(x) > 0):
            raise ValueError(f"`{where}`: `scale`, the unit of the observations, must be positive, but is {x}.")
    return found


def check_weight(value: Any, name: str, where: str) -> Array:
    """Returns a number as an array.

    Raises:
        ValueError: If it is known and negative or not finite.
    """
    found = jnp.asarray(value, jnp.result_type(float))
    if concrete(found) and not 0 <= float(found) < np.inf:
        raise ValueError(f"`{where}`: `{name}` must be finite and not negative, but is {value}.")
    return found


def check_conditions(conditions: PyTree, count: int, options: dict[str, Any], where: str) -> PyTree:
    """Returns conditions as arrays.

    Raises:
        ValueError: If there is not a row for each experiment.
        TypeError: If `args` is also given.
    """
    if conditions is None:
        return None
    if "args" in options:
        raise TypeError(
            f"`{where}` accepts either `args`, shared by all experiments, or `conditions`, one for each experiment, "
            "not both."
        )
    conditions = jax.tree.map(jnp.asarray, conditions)
    for x in jax.tree.leaves(conditions):
        if x.ndim == 0 or len(x) != count:
            raise ValueError(
                f"`{where}`: `conditions` must have a row for each of the {count} experiments, but has shape {x.shape}."
            )
    return conditions


def starts_of(records: Sequence[tuple[np.ndarray, PyTree]], stride: int, where: str) -> PyTree:
    """Returns observations at the starts of windows, on lines between their neighbours where they are missing."""
    each = [
        jax.tree.map(lambda y, t=times: filled(t, y, where)[: len(t) - 1 : stride], values) for times, values in records
    ]
    return jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *each)


def itself(y: PyTree) -> PyTree:
    """Returns a state: all of it is seen."""
    return y
