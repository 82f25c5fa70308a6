"""The standard numbers of the flow around a cylinder."""

from typing import NamedTuple


class CylinderTable(NamedTuple):
    """What `cylinder_table` returns, each the least and the largest that is published.

    Attributes:
        drag: The mean drag over half of the density, the speed squared and the diameter, for a unit of length.
        strouhal: The number of pairs of vortices in the time in which the fluid goes a diameter; None where the flow is
            steady.
    """

    drag: tuple[float, float]
    strouhal: tuple[float, float] | None


_PUBLISHED = {20: CylinderTable((2.00, 2.05), None), 100: CylinderTable((1.32, 1.36), (0.163, 0.167))}


def cylinder_table(reynolds: int = 100) -> CylinderTable:
    """Returns what is published of a cylinder across a stream that is wide.

    Walls, or a box that is narrow or short, raise the drag.

    Args:
        reynolds: The Reynolds number by the diameter: 20, where two steady vortices lie behind it, or 100, where they
            are shed.

    Raises:
        ValueError: If it is another.

    Source:
        S. C. R. Dennis, G.-Z. Chang, J. Fluid Mech. 42:471, 1970, and B. Fornberg, J. Fluid Mech. 98:819, 1980, for 20;
        C. H. K. Williamson, J. Fluid Mech. 206:579, 1989, and O. Posdziech, R. Grundmann, J. Fluids Struct. 23:479,
        2007, for 100.

    Example:
        ```python
        from sciml import verify

        low, high = verify.reference("cylinder_table", 20).drag
        assert 2.0 <= low < high < 2.1 and verify.reference("cylinder_table", 20).strouhal is None
        ```
    """
    if reynolds not in _PUBLISHED:
        raise ValueError(f"`cylinder_table(reynolds=...)` knows {sorted(_PUBLISHED)}, but got {reynolds!r}.")
    return _PUBLISHED[reynolds]
