"""The Laplace approximation at the optimum of a least-squares fit."""

from typing import NamedTuple

import numpy as np


class Laplace(NamedTuple):
    r"""A normal approximation in the free variables.

    Attributes:
        sigma: Standard deviation of one residual.
        factor: A matrix $F$ with $F F^T$ the covariance, or None where there is no such matrix.
        covariance: $p \times p$; infinite in rows and columns that the data do not determine.
        undetermined: Which parameters the data do not determine.
    """

    sigma: float
    factor: np.ndarray | None
    covariance: np.ndarray
    undetermined: np.ndarray


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
        return Laplace(sigma, None, np.full((p, p), np.nan), np.zeros(p, bool))
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
    return Laplace(sigma, factor if good.all() else None, covariance, undetermined)
