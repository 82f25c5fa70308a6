"""Frames as an xarray dataset whose values are read from the blocks when they are needed."""

from typing import Any

import numpy as np

from ._frames import Leaf


def to_dataset(
    leaves: dict[str, Leaf],
    ts: np.ndarray,
    members: int | None,
    space: dict[str, list[float]] | None,
    attributes: dict[str, Any],
) -> Any:
    """Returns a dataset with one lazily read variable for each leaf.

    Args:
        leaves: By name.
        ts: The times.
        members: The number of members, or None.
        space: The coordinates of a field by axis, or None.
        attributes: What the dataset says about itself.

    Raises:
        ImportError: If xarray is not installed.
    """
    try:
        import xarray
        from xarray.backends import BackendArray
        from xarray.core import indexing
    except ImportError as error:
        raise ImportError("`to_xarray` needs xarray: `pip install 'sciml-jax[io]'`.") from error

    class Lazy(BackendArray):
        def __init__(self, leaf: Leaf):
            self.leaf, self.shape, self.dtype = leaf, leaf.shape, leaf.dtype

        def __getitem__(self, key: Any) -> Any:
            support = indexing.IndexingSupport.BASIC
            return indexing.explicit_indexing_adapter(key, self.shape, support, self.leaf.__getitem__)

    space = {} if space is None else space
    if len(leaves) == 1 and set(space) & set(leaves):  # the one array of a state is called y, as an axis may be
        leaves = {"u": leaf for leaf in leaves.values()}
    space = {} if set(space) & set(leaves) else space
    extents = tuple(map(len, space.values()))
    variables: dict[str, Any] = {}
    coordinates = {"time": ts} if members is None else {"time": ts, "member": np.arange(members)}
    for name, leaf in leaves.items():
        lead = 1 if members is None else 2
        is_field = bool(space) and leaf.shape[lead:][-len(extents) :] == extents
        dims = [*coordinates][:lead]
        dims += [f"{name}_{i}" for i in range(len(leaf.shape) - lead - (len(extents) if is_field else 0))]
        dims += list(space) if is_field else []
        variables[name] = xarray.Variable(dims, indexing.LazilyIndexedArray(Lazy(leaf)))
        coordinates |= {axis: np.asarray(x) for axis, x in space.items()} if is_field else {}
    return xarray.Dataset(variables, coordinates, attributes)
