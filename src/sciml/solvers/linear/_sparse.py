"""SciPy's sparse arrays, imported when a pattern is first read: it takes time, and adds a filter of warnings."""

import importlib
from typing import TYPE_CHECKING, Any, TypeAlias

SparseArray: TypeAlias = Any
"""A `scipy.sparse.csr_array`; annotations are read at run time, and are not to import it."""


class _Late:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


if TYPE_CHECKING:
    import scipy.sparse as sp
    from scipy.sparse import csgraph
else:
    sp, csgraph = _Late("scipy.sparse"), _Late("scipy.sparse.csgraph")
