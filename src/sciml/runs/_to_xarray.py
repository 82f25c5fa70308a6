"""Frames as an xarray dataset whose values are read from the blocks when they are needed."""

from typing import Any

import numpy as np

from ._frames import Leaf


def to_dataset(leaves: dict[str, Leaf], ts: np.ndarray, members: int | None, attributes: dict[str, Any]) -> Any:
    """Returns a dataset with one lazily read variable for each leaf.

    Args:
        leaves: By name.
        ts: The times.
        members: The number of members, or None.
        attributes: What the dataset says about itself.

    Raises:
        ImportError: If xarray is not installed.
    """
    try:
        import xarray
        from xarray.backends import BackendArray
        from xarray.core import indexing
    except ImportError as error:
        raise ImportError("`to_xarray` needs xarray: `pip install 'sciml[io]'`.") from error

    class Lazy(BackendArray):
        def __init__(self, leaf: Leaf):
            self.leaf, self.shape, self.dtype = leaf, leaf.shape, leaf.dtype

        def __getitem__(self, key: Any) -> Any:
            support = indexing.IndexingSupport.BASIC
            return indexing.explicit_indexing_adapter(key, self.shape, support, self.leaf.__getitem__)

    variables = {}
    for name, leaf in leaves.items():
        dims = ["time"] if members is None else ["time", "member"]
        dims += [f"{name}_{i}" for i in range(len(leaf.shape) - len(dims))]
        variables[name] = xarray.Variable(dims, indexing.LazilyIndexedArray(Lazy(leaf)))
    coordinates = {"time": ts} if members is None else {"time": ts, "member": np.arange(members)}
    return xarray.Dataset(variables, coordinates, attributes)
