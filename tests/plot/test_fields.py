"""Pictures of solutions on grids: what is drawn is what was given, where it belongs."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import plot
from sciml.spatial import Grid

plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.x64

TIMES = np.linspace(0.0, 2.0, 9)
LINE = Grid(20, upper=4.0)
PLANE = Grid((12, 8), upper=(3.0, 2.0))
BOX = Grid((6, 5, 4))


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def solution(ys, status=0, ts=TIMES):
    return SimpleNamespace(ts=ts, ys=ys, status=np.asarray(status))


def values_on(grid, *lead):
    return np.random.default_rng(0).normal(size=(TIMES.size, *lead, *grid.shape))


def image(ax):
    (picture,) = ax.collections
    return picture


def test_space_time_shows_each_component_over_space_and_time():
    ys = {"u": values_on(LINE), "v": values_on(LINE, 2)}
    axes = plot.space_time(solution(ys), LINE)
    for ax, values in zip(axes, (ys["u"], ys["v"][:, 0], ys["v"][:, 1]), strict=True):
        np.testing.assert_array_equal(image(ax).get_array().reshape(TIMES.size, 20), values)
    assert axes[0].get_xlim() == pytest.approx((0.0, 4.0))
    assert (axes[0].get_xlabel(), axes[0].get_ylabel()) == ("x", "t")


def test_frames_stand_at_the_nearest_saved_times_and_share_their_colours():
    ys = values_on(PLANE)
    axes = plot.frames(solution(ys), PLANE, times=[0.0, 0.6, 2.0])
    assert [ax.get_title() for ax in axes[0]] == ["t = 0", "t = 0.5", "t = 2"]
    for ax, i in zip(axes[0], (0, 2, 8), strict=True):
        np.testing.assert_array_equal(image(ax).get_array().reshape(8, 12), ys[i].T)
    limits = {image(ax).get_clim() for ax in axes[0]}
    shown = np.abs(ys[[0, 2, 8]]).max()
    assert limits == {(-shown, shown)}  # the sign changes: white is zero
    assert plot.frames(solution(ys**2), PLANE, times=3).shape == (1, 3)


def test_slices_go_through_the_point():
    ys = values_on(BOX)
    axes = plot.slices(solution(ys), BOX, time=0.5, through=(0.1, 0.9, 0.4))
    cuts = ys[2][:, :, 1], ys[2][:, 4, :], ys[2][0]
    for ax, plane in zip(axes[0], cuts, strict=True):
        np.testing.assert_array_equal(image(ax).get_array().reshape(plane.T.shape), plane.T)


def test_a_function_of_the_state_and_a_location():
    grid = Grid(5)
    ys = np.exp(1j * np.linspace(0, 1, TIMES.size))[:, None] * np.ones(6)
    (ax,) = plot.space_time(solution({"psi": ys}), grid, of=lambda y: jnp.real(y["psi"]), at="node")
    np.testing.assert_allclose(image(ax).get_array().reshape(TIMES.size, 6), ys.real)


def test_what_is_not_finite_is_left_out():
    ys = values_on(LINE)
    ys[3:] = np.nan
    (ax,) = plot.space_time(solution(ys), LINE)
    assert image(ax).get_array().reshape(TIMES.size, 20).mask[3:].all()
    assert np.isfinite(image(ax).get_clim()).all()


def test_arrows():
    u, v = np.ones(PLANE.shape), np.zeros(PLANE.shape)
    ax = plot.quiver(u, v, PLANE, arrows=4)
    arrows = image(ax)
    assert arrows.N == 4 * 3 and set(arrows.U) == {1.0} and set(arrows.V) == {0.0}


@pytest.mark.parametrize("grid", [LINE, PLANE], ids=["line", "plane"])
def test_films_have_a_frame_for_each_time(grid, tmp_path):
    from PIL import Image

    open_before = plt.get_fignums()

    path = plot.animate(
        solution(values_on(grid, 2)), grid, tmp_path / "film.gif", dpi=30, cmap="magma", vmax=1.0, title="film"
    )
    with Image.open(path) as film:
        assert film.n_frames == TIMES.size
    assert plt.get_fignums() == open_before


def test_a_solution_draws_itself(tmp_path):
    sol = sciml.solve(lambda t, y, args: -y, jnp.ones(LINE.shape), t0=0.0, t1=1.0, dt=0.1, saveat=[0.0, 0.5, 1.0])
    (ax,) = sol.plot(LINE)
    assert ax.get_ylabel() == "t"
    assert sol.animate(LINE, tmp_path / "film.gif", dpi=30).exists()


@pytest.mark.parametrize(
    "draw",
    [
        lambda **options: plot.space_time(solution(values_on(LINE, 2)), LINE, **options)[0],
        lambda **options: plot.frames(solution(values_on(PLANE, 2)), PLANE, times=2, **options)[0, 0],
        lambda **options: plot.slices(solution(values_on(BOX, 2)), BOX, **options)[0, 0],
        lambda **options: plot.field(values_on(PLANE, 2)[0], PLANE, **options)[0],
        lambda **options: plot.field(values_on(BOX, 2)[0], BOX, **options)[0, 0],
    ],
    ids=["space_time", "frames", "slices", "field", "field in space"],
)
def test_colours_labels_and_title_are_the_same_options_everywhere(draw):
    ax = draw(labels=["T [K]", "p [Pa]"], title="steam", cmap="magma", vmin=[-0.1, 0.0], vmax=0.2)
    assert image(ax).get_cmap().name == "magma"
    assert image(ax).get_clim() == (-0.1, 0.2)
    assert ax.figure.get_suptitle().startswith("steam")
    bars = [other for other in ax.figure.axes if other.get_label() == "<colorbar>"]
    assert [bar.get_ylabel() for bar in bars] == ["T [K]", "p [Pa]"]
    assert {bar._colorbar.extend for bar in bars} == {"both"}  # what lies beyond the limits is not hidden


def test_limits_that_are_not_given_are_those_of_the_field():
    ys = values_on(PLANE)
    (ax,) = plot.field(ys[0], PLANE, vmin=-9.0)
    assert image(ax).get_clim() == (-9.0, ys[0].max())
    assert image(ax).get_cmap().name == "viridis"  # white would not be at zero
    (ax,) = plot.field(ys[0], PLANE, vmin=-1.0, vmax=1.0)
    assert image(ax).get_cmap().name == "RdBu_r"
    (ax,) = plot.field(ys[0], PLANE)
    assert image(ax).get_clim()[0] == -image(ax).get_clim()[1]
    (ax,) = plot.field(ys[0], PLANE, cmap="magma")
    assert image(ax).get_clim() == (ys[0].min(), ys[0].max())
    (ax,) = plot.field(np.ones(PLANE.shape), PLANE)
    low, high = image(ax).get_clim()
    assert low < 1.0 < high


def test_a_field_without_time():
    u = values_on(PLANE)[0]
    _, ax = plt.subplots()
    (found,) = plot.field(jnp.asarray(u), PLANE, ax=ax, title="a plate")
    assert found is ax and ax.get_title() == "a plate"
    np.testing.assert_array_equal(image(ax).get_array().reshape(8, 12), u.T)
    (ax,) = plot.field({"u": np.arange(20.0), "v": np.ones(20)}, LINE, cmap="magma", vmin=-3.0)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.arange(20.0))
    assert ax.get_ylim()[0] == -3.0 and ax.lines[1].get_color() == plt.get_cmap("magma")(1.0)
    axes = plot.field(values_on(BOX)[0], BOX, through=(0.1, 0.9, 0.4))
    np.testing.assert_array_equal(image(axes[0, 0]).get_array().reshape(5, 6), values_on(BOX)[0][:, :, 1].T)


@pytest.mark.parametrize(
    "draw, match",
    [
        (lambda path: plot.space_time(solution(values_on(PLANE)), PLANE), r"grid must have 1 axes.*`frames`"),
        (lambda path: plot.space_time(solution(values_on(LINE), [0, 0]), LINE), r"batch of shape \(2,\)"),
        (lambda path: plot.space_time(solution(values_on(LINE)), LINE, at="node"), r"axes \(21,\).*\(9, 20\)"),
        (lambda path: plot.space_time(solution(values_on(LINE) * 1j), LINE), r"complex"),
        (lambda path: plot.space_time(solution(values_on(LINE)[:1], ts=TIMES[:1]), LINE), r"two saved times"),
        (lambda path: plot.frames(solution(values_on(PLANE)), PLANE, times=0), r"times must be"),
        (lambda path: plot.slices(solution(values_on(BOX)), BOX, through=(0.5, 0.5)), r"three coordinates"),
        (lambda path: plot.quiver(np.ones(3), np.ones(3), PLANE), r"shape \(12, 8\)"),
        (lambda path: plot.field(np.ones((2, 12, 8)), PLANE, ax=plt.figure().gca()), r"ax holds one.*has 2"),
        (lambda path: plot.field(np.ones((12, 8)), PLANE, vmin=2.0, vmax=1.0), r"vmin must be below vmax, got 2 and 1"),
        (lambda path: plot.field(np.ones((12, 8)), PLANE, vmin=[0.0, 1.0]), r"vmin must be a number.*1 components"),
        (lambda path: plot.field(np.ones((2, 20)), LINE, vmin=[0.0, 1.0]), r"vmin must be one number"),
        (lambda path: plot.field(np.ones((12, 8)), PLANE, labels=["a", "b"]), r"each of the 1 components, got 2"),
        (lambda path: plot.animate(solution(values_on(LINE)), LINE, path / "film.avi"), r"\.gif or \.mp4.*film\.avi"),
    ],
)
def test_bad_input_is_named(draw, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        draw(tmp_path)
