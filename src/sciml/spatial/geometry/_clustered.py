"""Faces that are denser in regions of interest."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..._checks import check_count


def stretched_faces(
    n: int, mapping: Callable[[Float[np.ndarray, " faces"]], Float[np.ndarray, " faces"]]
) -> tuple[float, ...]:
    r"""Returns the faces of `n` cells by a mapping: $x_i = m(i / n)$.

    Solutions keep second order if the mapping is smooth, for any slope of it.

    Args:
        n: The number of cells.
        mapping: $m$, which grows from one end of the axis to the other, a function of NumPy arrays over $[0, 1]$.

    Raises:
        ValueError: If the faces do not grow.

    Example:
        ```python
        import numpy as np
        from sciml.spatial import stretched_faces

        faces = stretched_faces(8, lambda s: s**2)
        assert faces[0] == 0.0 and faces[-1] == 1.0 and np.all(np.diff(faces, 2) > 0)
        ```
    """
    check_count(n, "n", "stretched_faces")
    faces = np.asarray(mapping(np.arange(n + 1) / n), np.float64)
    if faces.shape != (n + 1,) or not np.all(np.diff(faces) > 0):
        raise ValueError(
            f"`stretched_faces(mapping=...)` must increase over [0, 1] and keep the shape, but returns {faces}."
        )
    return tuple(faces.tolist())


def clustered_faces(
    n: int, lower: float = 0.0, upper: float = 1.0, *, strength: float = 2.0, widest: float = 0.5
) -> tuple[float, ...]:
    r"""Returns the faces of `n` cells that are finer at the ends of an interval, by a hyperbolic tangent.

    $$x(s) = l + (u - l)\, \frac{\tanh(\beta (s - c)) + \tanh(\beta c)}{\tanh(\beta (1 - c)) + \tanh(\beta c)}$$

    Cells are widest where $s = c$: with $c = \tfrac12$ both ends are equally fine, with $c = 1$ only the lower end,
    with $c = 0$ only the upper one. The widest is about $\cosh^2(\beta \max(c, 1 - c))$ times as wide as the finest.

    Args:
        n: The number of cells.
        lower: $l$.
        upper: $u$.
        strength: $\beta$, positive; cells of equal width as it goes to zero.
        widest: $c$, from 0 to 1: where the cells are widest. 0 refines the upper end, 1 the lower end, 0.5 both.

    Raises:
        ValueError: If the ends are not in order, `strength` is not positive, or `widest` is not from 0 to 1.

    Source:
        M. Vinokur, J. Comput. Phys. 50:215, 1983.

    Example:
        ```python
        import numpy as np
        from sciml.spatial import clustered_faces

        widths = np.diff(clustered_faces(16, 0.0, 2.0, strength=3.0))
        assert np.isclose(widths[0], widths[-1]) and widths.max() > 4 * widths[0]
        assert np.all(np.diff(np.diff(clustered_faces(16, widest=1.0))) > 0)  # fine at the lower end
        ```
    """
    if not lower < upper:
        raise ValueError(f"`clustered_faces` requires lower < upper, but they are {lower} and {upper}.")
    if not strength > 0:
        raise ValueError(f"`clustered_faces(strength=...)` must be positive, but is {strength}.")
    if not 0 <= widest <= 1:
        raise ValueError(f"`clustered_faces(widest=...)` must be from 0 to 1, but is {widest}.")
    start, end = np.tanh(strength * widest), np.tanh(strength * (1 - widest))

    def mapping(s: Float[np.ndarray, " faces"]) -> Float[np.ndarray, " faces"]:
        share = (np.tanh(strength * (s - widest)) + start) / (end + start)
        return np.where(s == 1, upper, lower + (upper - lower) * share)  # the end to the last digit

    return stretched_faces(n, mapping)
