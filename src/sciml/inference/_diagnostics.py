"""`residual_diagnostics`: whether the residuals of a fit look like noise."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import ArrayLike, Float


class ResidualDiagnostics(eqx.Module):
    r"""Diagnostics of residuals, returned by `residual_diagnostics`.

    Attributes:
        residuals: The residuals in their order, without those that are NaN, shape `(n,)`.
        at: The position of each, shape `(n,)`.
        mean: Their mean.
        deviation: Their standard deviation.
        runs: How many runs of one sign there are: few where the model is off for a while, many where it overshoots.
        runs_expected: How many of independent ones.
        runs_p: How probable a number at least as far from that is (Wald and Wolfowitz).
        autocorrelation: Their correlation with those some places later, shape `(lags,)`, from lag 1.
        ljung_box_p: How probable such correlations are of independent residuals.
        quantiles: The quantiles of a standard normal distribution for the sorted residuals, shape `(n,)`.
        normal_p: How probable such a shape is of normal residuals (Shapiro and Wilk).
    """

    residuals: Float[np.ndarray, " n"]
    at: Float[np.ndarray, " n"]
    mean: float = eqx.field(static=True)
    deviation: float = eqx.field(static=True)
    runs: int = eqx.field(static=True)
    runs_expected: float = eqx.field(static=True)
    runs_p: float = eqx.field(static=True)
    autocorrelation: Float[np.ndarray, " lags"]
    ljung_box_p: float = eqx.field(static=True)
    quantiles: Float[np.ndarray, " n"]
    normal_p: float = eqx.field(static=True)

    def summary(self) -> str:
        """Returns the findings in words, including features that are improbable for noise."""
        n = len(self.residuals)
        rows = [
            f"{n} residuals of mean {self.mean:.3g} and standard deviation {self.deviation:.3g}",
            f"{self.runs} runs of one sign, {self.runs_expected:.3g} expected: p = {self.runs_p:.2g}",
            f"correlation with the next residual {self.autocorrelation[0]:.2f}, over {len(self.autocorrelation)} lags: "
            f"p = {self.ljung_box_p:.2g}",
            f"normal: p = {self.normal_p:.2g}",
        ]
        doubts = []
        if self.runs_p < 0.01 or self.ljung_box_p < 0.01:
            doubts.append("they are correlated, so the model misses an effect and the standard errors are too small")
        if self.normal_p < 0.01:
            doubts.append("they are not normal, because of another noise distribution or outliers")
        return "\n".join([*rows, *doubts])

    def plot(self, **options: Any) -> Any:
        """Draws the residuals over time, their correlations by lag, and their quantiles against normal quantiles.

        Args:
            options: `title`, and `label`: the name of the axis of time, with its unit.

        Returns:
            The three `matplotlib.axes.Axes`, of a new figure.
        """
        from ..plot._errors import residuals

        return residuals(self, **options)


def residual_diagnostics(residuals: ArrayLike, at: ArrayLike | None = None) -> ResidualDiagnostics:
    r"""Asks whether residuals look like independent normal noise: by runs, by correlations, by quantiles.

    Args:
        residuals: The residuals of one series in the order of time, in any unit, shape `(n,)`: of a fit,
            or Pearson's of `LogDensity.residuals`. Those that are NaN are left out.
        at: The position of each, shape `(n,)`; their numbers by default. They are sorted by it.

    Returns:
        A `ResidualDiagnostics`, which `plot` draws.

    Raises:
        ValueError: If there are fewer than eight, or shapes differ, or all are the same.

    Source:
        A. Wald and J. Wolfowitz, Ann. Math. Stat. 11:147, 1940; G. M. Ljung and G. E. P. Box, Biometrika 65:297, 1978;
        S. S. Shapiro and M. B. Wilk, Biometrika 52:591, 1965.

    Example:
        ```python
        import numpy as np
        from sciml import inference

        slow = np.sin(np.linspace(0.0, 6.0, 40))
        found = inference.residual_diagnostics(slow)
        assert found.runs_p < 1e-4 and "depend on each other" in found.summary()
        ```
    """
    import scipy.stats  # takes half a second, which `import sciml` need not pay

    r = np.asarray(residuals, np.float64)
    if r.ndim != 1:
        raise ValueError(f"`residuals` must be one series, of shape (n,), but have shape {r.shape}.")
    at = np.arange(float(r.size)) if at is None else np.asarray(at, np.float64)
    if at.shape != r.shape:
        raise ValueError(f"`at` must have the shape of the residuals, {r.shape}, but has {at.shape}.")
    order = np.argsort(at, kind="stable")
    r, at = r[order], at[order]
    r, at = r[np.isfinite(r)], at[np.isfinite(r)]
    if r.size < 8 or np.ptp(r) == 0:
        raise ValueError(
            f"`residuals` must contain at least eight different finite values, but has {r.size} finite values."
        )
    runs, expected, runs_p = _runs(r > np.median(r))
    correlations = _autocorrelation(r, min(20, r.size // 3))
    lags = np.arange(1, correlations.size + 1)
    statistic = r.size * (r.size + 2) * np.sum(correlations**2 / (r.size - lags))
    places = (np.arange(1, r.size + 1) - 0.375) / (r.size + 0.25)  # Blom's
    return ResidualDiagnostics(
        residuals=r,
        at=at,
        mean=float(r.mean()),
        deviation=float(r.std(ddof=1)),
        runs=runs,
        runs_expected=expected,
        runs_p=runs_p,
        autocorrelation=correlations,
        ljung_box_p=float(scipy.stats.chi2.sf(statistic, correlations.size)),
        quantiles=scipy.stats.norm.ppf(places),
        normal_p=float(scipy.stats.shapiro(r).pvalue),
    )


def _runs(above: np.ndarray) -> tuple[int, float, float]:
    import scipy.stats

    runs = 1 + int(np.count_nonzero(above[1:] != above[:-1]))
    one, other = float(np.count_nonzero(above)), float(np.count_nonzero(~above))
    n = one + other
    expected = 1 + 2 * one * other / n
    variance = (expected - 1) * (expected - 2) / (n - 1)
    score = abs(runs - expected) / np.sqrt(variance) if variance > 0 else 0.0
    return runs, expected, float(2 * scipy.stats.norm.sf(score))


def _autocorrelation(r: np.ndarray, lags: int) -> np.ndarray:
    away = r - r.mean()
    return np.array([np.sum(away[k:] * away[:-k]) for k in range(1, lags + 1)]) / np.sum(away**2)
