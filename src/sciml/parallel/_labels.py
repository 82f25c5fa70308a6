"""Results labelled by parameter, for xarray."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._status import Status
from ._grid import Grid
from ._members import expand, is_array


def to_dataset(result: Any) -> Any:
    """Returns the values of a `SweepResult`, its status and attempts as an `xarray.Dataset`.

    Raises:
        ImportError: If xarray is not installed.
        ValueError: If the sweep kept no values of its members.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError("`to_xarray` needs xarray: `pip install sciml[io]`, or `pip install xarray`.") from error
    if result.values is None:
        raise ValueError("`to_xarray`: this sweep kept no values of its members: see `reduced`.")
    variables = {"attempts": result.attempts, **_named(result.values, "value"), "status": result.status}
    members = result.members
    if isinstance(members, Grid) and all(np.ndim(x) == 1 for x in members.axes.values()):
        dims = list(members.axes)
        coords = {name: np.asarray(x) for name, x in members.axes.items()}
        variables = {name: members.on_grid(x) for name, x in variables.items()}
    else:
        dims, coords = ["member"], {"member": np.arange(result.n)}
        for name, x in _named(expand(members), "parameter").items():
            if x.ndim == 1 and name != "member":
                coords[name] = ("member", x)
    found = {}
    for name, x in variables.items():
        name = f"{name}_value" if name in coords else name
        found[name] = (dims + [f"{name}_{i}" for i in range(x.ndim - len(dims))], x)
    dataset = xarray.Dataset(found, coords=coords)
    # the names of the codes, as the CF conventions have them
    dataset["status_value" if "status" in coords else "status"].attrs |= {
        "flag_values": np.array([int(code) for code in Status], np.int32),
        "flag_meanings": " ".join(code.name for code in Status),
    }
    return dataset


def _named(tree: Any, alone: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a PyTree by the way to them, with points between."""
    found = {}
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if is_array(x) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            found[jax.tree_util.keystr(path, simple=True, separator=".") or alone] = np.asarray(x)
    return found
