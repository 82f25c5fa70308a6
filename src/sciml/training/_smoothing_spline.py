r"""Natural cubic smoothing splines, their smoothing chosen by generalised cross-validation.

With knots at the times, second derivatives $\gamma$ at the inner ones and $h_i$ between them, the spline that minimises
$\sum (y_i - s_i)^2 + \lambda \int \ddot s^2$ has

$$(R + \lambda Q^T Q) \gamma = Q^T y, \qquad s = y - \lambda Q \gamma,$$

where $R$ has three bands and $Q^T Q$ five. Residuals, and the trace of the map from $y$ to $s$, take a number of
operations in proportion to the number of measurements, here for many $\lambda$ side by side.

Source:
    C. H. Reinsch, Smoothing by spline functions, Numer. Math. 10:177, 1967; M. F. Hutchinson and F. R. de Hoog,
    Smoothing noisy data with spline functions, Numer. Math. 47:99, 1985.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_PER_DECADE = 4


class SplineBands(NamedTuple):
    """The bands of the matrices, for knots at some times.

    Attributes:
        r: $R$: its diagonal, and the band beside it, shape `(2, n - 2)`.
        qq: $Q^T Q$: its diagonal, and the two bands beside it, shape `(3, n - 2)`.
        q: $Q$: the three numbers of each of its columns, shape `(3, n - 2)`.
    """

    r: np.ndarray
    qq: np.ndarray
    q: np.ndarray


def bands_of(ts: np.ndarray) -> SplineBands:
    """Returns the bands for knots at times."""
    h = np.diff(ts)
    a, c = 1 / h[:-1], 1 / h[1:]
    q = np.stack([a, -(a + c), c])
    n = q.shape[1]
    r, qq = np.zeros((2, n)), np.zeros((3, n))
    r[0], r[1, :-1] = (h[:-1] + h[1:]) / 3, h[1:-1] / 6
    qq[0] = np.sum(q**2, axis=0)
    qq[1, :-1] = q[1, :-1] * q[0, 1:] + q[2, :-1] * q[1, 1:]
    qq[2, :-2] = q[2, :-2] * q[0, 2:]
    return SplineBands(r, qq, q)


def smoothed(bands: SplineBands, y: np.ndarray, smoothing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns splines at their knots, and the traces, for several $\lambda$ at once.

    Args:
        bands: The matrices.
        y: The measurements, shape `(n,)`.
        smoothing: $\lambda$, shape `(m,)`.

    Returns:
        The splines, shape `(n, m)`, and the traces of the maps from measurements to splines, shape `(m,)`.
    """
    n, m = bands.q.shape[1], len(smoothing)
    main = bands.r[0][:, None] + bands.qq[0][:, None] * smoothing
    first = bands.r[1][:, None] + bands.qq[1][:, None] * smoothing
    second = bands.qq[2][:, None] * smoothing
    # L D L^T with two bands below the diagonal of ones
    d, l1, l2 = np.empty((n + 2, m)), np.zeros((n + 2, m)), np.zeros((n + 2, m))
    x = np.zeros((n + 2, m))
    right = bands.q[0] * y[:-2] + bands.q[1] * y[1:-1] + bands.q[2] * y[2:]
    zero, one = np.zeros(m), np.ones(m)
    for i in range(n):
        d1, m1 = (d[i - 1], l1[i - 1]) if i > 0 else (one, zero)
        d2, m2 = (d[i - 2], l2[i - 2]) if i > 1 else (one, zero)
        d[i] = main[i] - d1 * m1**2 - d2 * m2**2
        l1[i] = (first[i] - d1 * m1 * (l2[i - 1] if i > 0 else zero)) / d[i]
        l2[i] = second[i] / d[i]
        x[i] = right[i] - (m1 * x[i - 1] if i > 0 else 0) - (m2 * x[i - 2] if i > 1 else 0)
    # back; and the five middle bands of the inverse, from its lower right corner
    inverse = np.zeros((3, n + 2, m))  # its diagonal, and the two bands beside it
    for i in reversed(range(n)):
        x[i] = x[i] / d[i] - l1[i] * x[i + 1] - l2[i] * x[i + 2]
        inverse[1, i] = -l1[i] * inverse[0, i + 1] - l2[i] * inverse[1, i + 1]
        inverse[2, i] = -l1[i] * inverse[1, i + 1] - l2[i] * inverse[0, i + 2]
        inverse[0, i] = 1 / d[i] - l1[i] * inverse[1, i] - l2[i] * inverse[2, i]
    gamma = x[:n]
    curve = np.repeat(y[:, None], m, axis=1)
    for k in range(3):
        curve[k : k + n] -= smoothing * bands.q[k][:, None] * gamma
    twice = np.array([1.0, 2.0, 2.0])
    products = np.einsum("k,ki,kim->m", twice, bands.qq, inverse[:, :n])
    return curve, len(y) - smoothing * products


def smoothing_spline(ts: np.ndarray, y: np.ndarray, smoothing: float | None = None) -> Callable:
    r"""Returns the smoothing spline through measurements, a `scipy.interpolate.CubicSpline`.

    Args:
        ts: Times, which ascend.
        y: Measurements, finite.
        smoothing: $\lambda$, or None to choose it by generalised cross-validation, from values a quarter of a decade
            apart, between a curve through all measurements and a straight line.
    """
    from scipy.interpolate import CubicSpline

    spacing = (ts[-1] - ts[0]) / (len(ts) - 1)
    unit = ts / spacing
    bands = bands_of(unit)
    if smoothing is None:
        low, high = -6.0, 4 * np.log10(len(ts))
        tried = np.logspace(low, high, int((high - low) * _PER_DECADE) + 1)
    else:
        tried = np.array([smoothing / spacing**3])
    curves, traces = smoothed(bands, y, tried)
    if smoothing is None:
        free = np.maximum(len(y) - traces, 1e-9 * len(y))
        residuals = np.sum((y[:, None] - curves) ** 2, axis=0)
        curve = curves[:, np.argmin(residuals / free**2)]
    else:
        curve = curves[:, 0]
    return CubicSpline(ts, curve, bc_type="natural")
