"""Results labelled by parameter, for xarray."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._status import Status
from ..members._grid import ParameterGrid
from ..members._pytree import expand, is_array

Axes = Mapping[str, Any]
"""The axes of some values behind those of the members: for each value a mapping of names to coordinates, in order."""


def to_dataset(result: Any, axes: Axes) -> Any:
    """Returns the values of a `SweepResult`, its status and attempts as an `xarray.Dataset`.

    Raises:
        ImportError: If xarray is not installed.
        ValueError: If the sweep kept no values of its members, or `axes` do not fit them.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError("`to_xarray` needs xarray: `pip install 'sciml-jax[io]'` or `pip install xarray`.") from error
    if result.values is None:
        raise ValueError("`to_xarray`: this sweep kept no values of its members: see `reduced`.")
    values = _named(result.values, "value")
    variables = {"attempts": result.attempts, **values, "status": result.status}
    members = result.members
    if isinstance(members, ParameterGrid) and all(np.ndim(x) == 1 for x in members.axes.values()):
        dims = list(members.axes)
        coords = {name: np.asarray(x) for name, x in members.axes.items()}
        variables = {name: members.on_grid(x) for name, x in variables.items()}
    else:
        dims, coords = ["member"], {"member": np.arange(result.n)}
        for name, x in _named(expand(members), "parameter").items():
            if x.ndim == 1 and name != "member":
                coords[name] = ("member", x)
    coords |= _coordinates(axes, {name: variables[name].shape[len(dims) :] for name in values}, [*coords, *variables])
    found = {}
    for name, x in variables.items():
        own = list(axes.get(name, ()))
        name = f"{name}_value" if name in coords else name
        found[name] = (dims + own + [f"{name}_{i}" for i in range(len(own), x.ndim - len(dims))], x)
    dataset = xarray.Dataset(found, coords=coords)
    # the names of the codes, as the CF conventions have them
    dataset["status_value" if "status" in coords else "status"].attrs |= {
        "flag_values": np.array([int(code) for code in Status], np.int32),
        "flag_meanings": " ".join(code.name for code in Status),
    }
    return dataset


def _named(tree: Any, alone: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a PyTree by their paths, with points between."""
    found = {}
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if is_array(x) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            found[jax.tree_util.keystr(path, simple=True, separator=".") or alone] = np.asarray(x)
    return found


def _coordinates(axes: Axes, shapes: dict[str, tuple[int, ...]], taken: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns the coordinates along the axes that were named, which must fit the values.

    Args:
        axes: Names and coordinates of the first axes of some values.
        shapes: The shape of each value behind the members.
        taken: Names that mean something else.
    """
    found: dict[str, np.ndarray] = {}
    for value, own in axes.items():
        if value not in shapes or not isinstance(own, Mapping):
            example = f"`axes={{{next(iter(shapes), 'y')!r}: {{'time': ts}}}}`"
            raise ValueError(
                f"`to_xarray(axes=...)` takes the axes of a value by the value's name, as in {example}; the values are "
                f"{list(shapes)}, got {value!r}: {own!r}."
            )
        lengths = tuple(np.size(x) for x in own.values())
        if lengths != shapes[value][: len(own)]:
            raise ValueError(
                f"`to_xarray(axes=...)`: the value {value!r} of a member has the shape {shapes[value]}, but its axes "
                f"{list(own)} were given {list(lengths)} coordinates."
            )
        for name, x in own.items():
            if name in taken or not np.array_equal(found.setdefault(name, np.asarray(x)), x):
                raise ValueError(
                    f"`to_xarray(axes=...)`: the axis {name!r} of {value!r} has the name of a parameter, of a value or "
                    "of an axis with other coordinates. Choose another."
                )
    return found
