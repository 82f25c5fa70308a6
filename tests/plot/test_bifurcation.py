"""Diagrams of branches."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from sciml import plot

plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.x64


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def branch(members=()):
    """An S of nine points, unstable in the middle, with one fold."""
    y = np.broadcast_to(np.linspace(-1.0, 1.0, 9), (*members, 9))
    p = np.where(np.abs(y) > 0.9, np.nan, y**3 - y / 2)
    nan = np.full((*members, 1), np.nan)
    special = SimpleNamespace(
        kind=np.broadcast_to(np.array([1, 0]), (*members, 2)),
        parameter=np.concatenate([0 * nan + 0.136, nan], axis=-1) if members else np.array([0.136, np.nan]),
        y={"a": np.broadcast_to(np.array([-0.41, np.nan]), (*members, 2)), "b": np.zeros((*members, 2, 3))},
    )
    ys = {"a": y, "b": np.zeros((*members, 9, 3))}
    return SimpleNamespace(parameter=p, ys=ys, stable=np.abs(y) > 0.3, eigenvalues=y, special=special)


def lines(ax, style):
    return [line for line in ax.lines if line.get_linestyle() == style]


def test_stable_lines_are_solid_and_unstable_ones_dashed():
    ax = plot.bifurcation(branch(), parameter="signal", title="switch")
    (solid,), (dashed,) = lines(ax, "-"), lines(ax, "--")
    pieces = [np.isfinite(line.get_xdata()[1:] + line.get_xdata()[:-1]).sum() for line in (solid, dashed)]
    # one on either side of the middle, none at the bounds; the change at the fold is at the fold itself
    assert pieces == [3, 5] and 0.136 in solid.get_xdata() and 0.136 in dashed.get_xdata()
    assert ax.get_xlabel() == "signal" and ax.get_ylabel() == "a" and ax.get_title("left") == "switch"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["fold"]
    marked = [line for line in ax.lines if line.get_marker() == "s"]
    np.testing.assert_allclose(marked[0].get_xdata(), [0.136])


def test_several_branches_and_members():
    ax = plot.bifurcation([branch(), branch((3,))], "b[1]", members=2)
    assert len(lines(ax, "-")) == 3 and len({line.get_color() for line in lines(ax, "-")}) == 2
    assert ax.get_ylabel() == "b[1]"


def test_a_function_of_the_state():
    ax = plot.bifurcation(branch(), lambda y: jnp.max(jnp.abs(y["b"])) + 1.0, labels="size")
    assert ax.get_ylabel() == "size"
    (solid,) = lines(ax, "-")
    assert (solid.get_ydata()[np.isfinite(solid.get_ydata())] == 1).all()


def test_bad_input():
    with pytest.raises(ValueError, match="y must be a component, one of .*'a'.* got 'c'"):
        plot.bifurcation(branch(), "c")
    with pytest.raises(ValueError, match="y must return one number"):
        plot.bifurcation(branch(), lambda y: y["b"])
