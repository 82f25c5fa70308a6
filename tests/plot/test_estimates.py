"""Pictures of fits show what they are given."""

import numpy as np
import pytest

from sciml import plot

pytestmark = pytest.mark.x64  # nothing of it depends on the dtype


def test_parameters():
    xs, losses = np.array([[1.0, 2.0], [1.5, -1.0], [1.0, 2.1], [9.0, 9.0]]), np.array([3.0, 8.0, 3.05, np.inf])
    ax = plot.parameters(xs, losses, names=["a", "b"], lower=[-3, -3], upper=[3, 3], reference=[1.1, 2.0], label="log")
    lines = [line.get_xdata().tolist() for line in ax.lines]
    assert lines[:3] == [xs[1].tolist(), xs[2].tolist(), xs[0].tolist()]  # the best is the last
    assert ax.lines[0].get_color() == "0.75" and ax.lines[1].get_color() == plot._style.PALETTE[0]
    assert lines[3] == xs[0].tolist() and lines[4:] == [[-3, -3], [3, 3], [1.1, 2.0]]
    assert ax.get_xlabel() == "log" and ax.yaxis_inverted()
    with pytest.raises(ValueError, match=r"`lower` must have one entry for each of the 2 parameters"):
        plot.parameters(xs, losses, lower=[1.0])
    with pytest.raises(ValueError, match="`xs` and `losses` must have shapes"):
        plot.parameters(xs, losses[:2])
    with pytest.raises(ValueError, match="at least one finite"):
        plot.parameters(xs, np.nan * losses)


def test_observables():
    times = np.array([2.0, 1.0, np.inf, 1.0, 2.0])
    data, mean = np.arange(5.0), np.arange(5.0) + 0.5
    names, conditions = ["A", "A", "A", "B", "A"], ["low", "low", "low", "low", "high"]
    band = (mean - 1, mean + 1)
    axes = plot.observables(names, times, data, mean, band=band, conditions=conditions, labels=("t", "y"), title="fit")
    assert [ax.get_title() for ax in axes] == ["A", "B"] and len(axes[0].lines) == 4 and len(axes[1].lines) == 2
    curve, points = axes[0].lines[:2]
    assert curve.get_xdata().tolist() == [1, 2] and curve.get_ydata().tolist() == [1.5, 0.5]
    assert points.get_ydata().tolist() == [1, 0] and len(axes[0].collections) == 2
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == ["low", "high"]
    with pytest.raises(ValueError, match=r"`predicted` must have shape \(5,\)"):
        plot.observables(names, times, data, mean[:2])
