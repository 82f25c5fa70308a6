"""The Laplace approximation at the optimum of a least-squares fit."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# A direction is followed where one standard error is more than this part of a parameter's own scale ...
_WIDE = 0.5
# ... up to this many of them, the widest, and believed where the loss rises by this factor more or less than promised.
_MOST_DIRECTIONS = 8
_FACTOR = 4.0
# A standard error that is more than this many times a parameter's own scale is told.
_LOOSE = 100.0


class Laplace(NamedTuple):
    r"""A normal approximation in the free variables.

    Attributes:
        sigma: Standard deviation of one residual.
        factor: A matrix $F$ with $F F^T$ the covariance, or None where there is no such matrix.
        covariance: $p \times p$; infinite in rows and columns that the data do not determine.
        undetermined: Which parameters the data do not determine.
        rough: Which parameters have standard errors that the loss contradicts, see `compared_with_loss`.
    """

    sigma: float
    factor: np.ndarray | None
    covariance: np.ndarray
    undetermined: np.ndarray
    rough: np.ndarray


def laplace(jacobian: np.ndarray, loss: float, sigma: float | None, eps: float) -> Laplace:
    r"""Returns $s^2 (J^T J)^{-1}$ with $s^2 = 2\,\text{loss}/(m - p)$, or with the given $s$.

    Near the optimum the log-likelihood of residuals with standard deviation $s$ is
    $-\lVert r \rVert^2 / 2 s^2$, and its Hessian is $-J^T J / s^2$ where the curvature of the
    residuals is neglected (Gauss-Newton). The singular value decomposition of $J$, with its columns
    scaled to unit length, tells directions that the data do not determine from those whose units
    are merely small.

    Args:
        jacobian: $J$, shape `(m, p)`.
        loss: Half the sum of squares.
        sigma: The residuals' known standard deviation, or None to estimate it.
        eps: Relative rounding error of the residuals.
    """
    m, p = jacobian.shape
    if sigma is None:
        sigma = float(np.sqrt(2 * loss / (m - p))) if m > p else float("nan")
    jacobian = np.asarray(jacobian, np.float64)
    if not np.isfinite(jacobian).all() or not np.isfinite(sigma):
        return Laplace(sigma, None, np.full((p, p), np.nan), np.zeros(p, bool), np.zeros(p, bool))
    lengths = np.linalg.norm(jacobian, axis=0)
    units = np.where(lengths > 0, lengths, 1)
    _, s, vt = np.linalg.svd(jacobian / units)  # full: vt is p by p even where m < p
    s = np.concatenate([s, np.zeros(p - len(s))])
    good = s > 10 * eps * max(m, p) * max(s[0], np.finfo(float).tiny)
    factor = sigma * (vt.T / np.where(good, s, 1))[:, good] / units[:, None]
    covariance = factor @ factor.T
    undetermined = (np.abs(vt[~good]) > np.sqrt(eps)).any(axis=0)
    covariance[undetermined] = np.inf
    covariance[:, undetermined] = np.inf
    return Laplace(sigma, factor if good.all() else None, covariance, undetermined, np.zeros(p, bool))


def compared_with_loss(
    found: Laplace, z: np.ndarray, scale: np.ndarray, residual: Callable[[np.ndarray], np.ndarray]
) -> Laplace:
    r"""Compares the widest directions with the loss itself, and shortens those along which it rises sooner.

    One standard error along a column $f$ of the factor promises a loss that is higher by $s^2 / 2$. Where two
    parameters do the same thing, as two rates that are equal, the Jacobian sees nothing of their difference and
    promises far more room than there is: such a column is shortened to the distance at which the loss has
    risen by $s^2 / 2$, on the side where that is nearer.

    Args:
        found: The approximation by the Jacobian.
        z: The optimum, in the free variables.
        scale: What is a large change of each free variable.
        residual: The residuals as a function of the free variables; not finite where the model fails.

    Returns:
        The same with other columns and covariance, where `rough` tells the parameters that this concerns.
    """
    if found.factor is None or found.sigma == 0:
        return found
    factor, rough = found.factor.copy(), found.rough.copy()
    widths = np.max(np.abs(factor) / scale[:, None], axis=0)
    promised = 0.5 * found.sigma**2
    start = np.asarray(residual(z), np.float64)

    def rise(step: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            change = np.asarray(residual(z + step), np.float64) - start
            value = float(change @ (start + 0.5 * change))  # no difference of two large sums
        return value if np.isfinite(value) else np.inf

    for k in np.argsort(-widths)[:_MOST_DIRECTIONS]:
        if not widths[k] > _WIDE:
            break
        column = factor[:, k].copy()
        sides = {sign: rise(sign * column) for sign in (1.0, -1.0)}
        if all(promised / _FACTOR <= found_rise <= promised * _FACTOR for found_rise in sides.values()):
            continue
        lengths = [_length(rise, sign * column, promised) for sign, value in sides.items() if value > promised]
        factor[:, k] = min(lengths, default=1.0) * column
        share = np.abs(column) / scale
        rough |= share > 0.1 * share.max()
    return found._replace(factor=factor, covariance=factor @ factor.T, rough=rough)


def loose(found: Laplace, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tells parameters whose standard errors are a hundred times their own scale.

    The loss may well be the parabola that these stand for, as of a linear model of which two terms are nearly the same.

    Args:
        found: The approximation.
        scale: What is a large change of each free variable, at the optimum or at the start, whichever is larger.

    Returns:
        Which parameters these are, and the widest direction, in units of the scales.
    """
    if found.factor is None:
        return np.zeros(len(scale), bool), np.zeros(len(scale))
    relative = found.factor / scale[:, None]
    wide = np.linalg.norm(relative, axis=1) > _LOOSE
    return wide & ~found.rough, np.linalg.svd(relative)[0][:, 0]


def _length(rise: Callable[[np.ndarray], float], step: np.ndarray, promised: float) -> float:
    """Returns the part of a step at which the loss has risen as promised, to some percent."""
    low, high = 1e-12, 1.0
    while high / low > 1.05:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if rise(middle * step) > promised else (middle, high)
    return float(np.sqrt(low * high))
