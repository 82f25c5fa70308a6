"""Columns of a Jacobian that are computed at once, since no row has entries in two of them."""

from typing import NamedTuple

import numpy as np

from ._sparse import SparseArray, sp


class Colouring(NamedTuple):
    """Columns in groups.

    Attributes:
        pattern: The possible entries, an array of booleans of shape `(n, n)`.
        colours: The group of each column.
        directions: The sum of the unit vectors of each group, of shape `(groups, n)`.
    """

    pattern: SparseArray
    colours: np.ndarray
    directions: np.ndarray


def colour(pattern: SparseArray, order: np.ndarray) -> Colouring:
    """Groups columns one after another, each into the first group that it fits in.

    Args:
        pattern: The possible entries.
        order: The order of the columns; along a band it gives as few groups as a row has entries.

    Source:
        A. R. Curtis, M. J. D. Powell, J. K. Reid, On the estimation of sparse Jacobian matrices, IMA J. Appl. Math.
        13:1 (1974).
    """
    n = pattern.shape[1]
    counts = pattern.astype(np.int32)
    meet = sp.csr_array(counts.T @ counts)
    colours = np.full(n, -1)
    for column in order:
        taken = colours[meet.indices[meet.indptr[column] : meet.indptr[column + 1]]]
        free = np.ones(taken.size + 1, bool)
        free[taken[(taken >= 0) & (taken <= taken.size)]] = False
        colours[column] = np.argmax(free)
    directions = np.zeros((colours.max() + 1, n))
    directions[colours, np.arange(n)] = 1.0
    return Colouring(pattern, colours, directions)
