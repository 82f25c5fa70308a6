"""Pictures of population models show what they are given."""

import numpy as np
import pytest

from sciml import plot

pytestmark = pytest.mark.x64  # nothing of it depends on the dtype


def study():
    rng = np.random.default_rng(1)
    times = np.broadcast_to(np.array([1.0, 2.0, 4.0, 8.0]), (20, 4))
    pred = np.exp(-0.2 * times)
    simulated = pred * np.exp(0.3 * rng.normal(size=(200, 20, 4)))
    dv = simulated[0].copy()
    dv[3, 2] = np.nan
    return times, dv, pred, simulated[1:]


def test_goodness_of_fit():
    _, dv, pred, _ = study()
    ax = plot.goodness_of_fit(dv, pred, ipred=np.sqrt(pred * dv), log=True, title="fit")
    assert [len(line.get_xdata()) for line in ax.lines] == [79, 79, 2]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    with pytest.raises(ValueError, match=r"one shape, but `dv` has \(20, 4\), `PRED` has \(4,\)"):
        plot.goodness_of_fit(dv, pred[0])
    with pytest.raises(ValueError, match="must have finite numbers at the same places"):
        plot.goodness_of_fit(np.full(3, np.nan), np.ones(3))


def test_individual_fits():
    times, dv, pred, _ = study()
    axes = plot.individual_fits(times, dv, pred, pred=pred, ids=range(20), log=True, title="fits")
    assert axes.shape == (20,) and axes[7].get_title() == "7" and len(axes[0].lines) == 3
    with pytest.raises(ValueError, match="`ids` must name the 20 subjects, but has 2"):
        plot.individual_fits(times, dv, pred, ids=["a", "b"])
    with pytest.raises(ValueError, match="leading axis"):
        plot.individual_fits(times[0], dv[0], pred[0])


def test_predictive_check():
    """Quantiles are those of each bin; a prediction-corrected one is the same where predictions are alike in a bin."""
    times, dv, pred, simulated = study()
    ax = plot.predictive_check(times, dv, simulated, bins=[0.5, 1.5, 3.0, 6.0, 9.0], title="check")
    corrected = plot.predictive_check(times, dv, simulated, pred=pred, bins=[0.5, 1.5, 3.0, 6.0, 9.0], log=True)
    for one, other, q in zip(ax.lines, corrected.lines, (0.1, 0.5, 0.9), strict=False):
        np.testing.assert_allclose(one.get_ydata()[:2], np.quantile(dv[:, :2], q, axis=0))
        np.testing.assert_allclose(other.get_ydata(), one.get_ydata())
        np.testing.assert_allclose(one.get_xdata(), [1, 2, 4, 8])
    low, high = ax.collections[1].get_datalim(ax.transData).intervaly
    assert low < np.exp(-1.6) and high > np.exp(-0.2)
    by_time = plot.predictive_check(times, dv, simulated)
    np.testing.assert_allclose(by_time.lines[0].get_ydata(), ax.lines[0].get_ydata())
    wide = plot.predictive_check(times, dv, simulated, bins=2)
    np.testing.assert_allclose(wide.lines[0].get_xdata(), [1.5, 6.0], atol=2.0)
    with pytest.raises(ValueError, match=r"`simulated` must have shape \(replicates, 20, 4\)"):
        plot.predictive_check(times, dv, simulated[0])
    with pytest.raises(ValueError, match="finite numbers to draw"):
        plot.predictive_check(times, np.nan * dv, simulated)


def test_residuals_and_etas():
    times, _, _, simulated = study()
    values = simulated[0] - 1
    values[2, 1] = np.nan
    ax = plot.weighted_residuals(times, values, title="residuals")
    assert len(ax.lines[0].get_xdata()) == 79
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.nanmedian(values, axis=0))
    with pytest.raises(ValueError, match="finite numbers to draw"):
        plot.weighted_residuals(times, np.nan * values)
    weights = np.linspace(50, 90, 20)
    axes = plot.etas(values[:, 0], 0.5, covariates={"WT": weights}, names=["CL"], title="effects")
    shrinkage = 1 - np.std(values[:, 0], ddof=1) / 0.5
    assert axes.shape == (1, 2) and axes[0, 0].get_title() == f"shrinkage {100 * shrinkage:.0f}%"
    slope, _ = np.polyfit(weights, values[:, 0], 1)
    np.testing.assert_allclose(np.diff(axes[0, 1].lines[2].get_ydata()), 40 * slope)
    with pytest.raises(ValueError, match=r"4 effects of 20 subjects require `scale` of shape \(4,\)"):
        plot.etas(values, [0.5, 0.5])
