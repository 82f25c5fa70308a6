"""The standard numbers of the flow in a box under a lid that moves."""

from typing import NamedTuple

import numpy as np

_PLACES = (
    (1.0, 0.9766, 0.9688, 0.9609, 0.9531, 0.8516, 0.7344, 0.6172, 0.5, 0.4531, 0.2813, 0.1719, 0.1016, 0.0703, 0.0625,
     0.0547, 0.0),
    (1.0, 0.9688, 0.9609, 0.9531, 0.9453, 0.9063, 0.8594, 0.8047, 0.5, 0.2344, 0.2266, 0.1563, 0.0938, 0.0781, 0.0703,
     0.0625, 0.0),
)  # fmt: skip
_VELOCITIES = {
    100: (
        (1.0, 0.84123, 0.78871, 0.73722, 0.68717, 0.23151, 0.00332, -0.13641, -0.20581, -0.21090, -0.15662, -0.10150,
         -0.06434, -0.04775, -0.04192, -0.03717, 0.0),
        (0.0, -0.05906, -0.07391, -0.08864, -0.10313, -0.16914, -0.22445, -0.24533, 0.05454, 0.17527, 0.17507, 0.16077,
         0.12317, 0.10890, 0.10091, 0.09233, 0.0),
    ),
    1000: (
        (1.0, 0.65928, 0.57492, 0.51117, 0.46604, 0.33304, 0.18719, 0.05702, -0.06080, -0.10648, -0.27805, -0.38289,
         -0.29730, -0.22220, -0.20196, -0.18109, 0.0),
        (0.0, -0.21388, -0.27669, -0.33714, -0.39188, -0.51550, -0.42665, -0.31966, 0.02526, 0.32235, 0.33075, 0.37095,
         0.32627, 0.30353, 0.29012, 0.27485, 0.0),
    ),
}  # fmt: skip


class CavityTable(NamedTuple):
    """What `cavity_table` returns.

    Attributes:
        y: Heights, from the lid down.
        u: The velocity along the lid at `x = 0.5` and these heights.
        x: Places, from the right.
        v: The velocity across the lid at `y = 0.5` and these places.
    """

    y: np.ndarray
    u: np.ndarray
    x: np.ndarray
    v: np.ndarray


def cavity_table(reynolds: int = 100) -> CavityTable:
    """Returns the velocities on the centre lines of a square of length 1 whose lid moves with the velocity 1.

    They are of multigrid on 129 by 129 points. At a Reynolds number of 1000 spectral solutions (O. Botella, R. Peyret,
    Computers & Fluids 27:421, 1998) differ from them by up to 0.0185, so that no comparison closer than 0.02 means
    anything there.

    Args:
        reynolds: The Reynolds number, the inverse of the viscosity: 100 or 1000.

    Raises:
        ValueError: If it is another.

    Source:
        U. Ghia, K. N. Ghia, C. T. Shin, J. Comput. Phys. 48:387, 1982, tables I and II.

    Example:
        ```python
        from sciml import verify

        table = verify.reference("cavity_table", 100)
        assert table.u[0] == 1.0 and table.u.min() == -0.2109 and table.y[8] == 0.5
        ```
    """
    if reynolds not in _VELOCITIES:
        raise ValueError(f"`cavity_table(reynolds=...)` knows {sorted(_VELOCITIES)}, but got {reynolds!r}.")
    (y, x), (u, v) = _PLACES, _VELOCITIES[reynolds]
    return CavityTable(np.array(y), np.array(u), np.array(x), np.array(v))
