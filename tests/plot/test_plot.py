"""Pictures: what is drawn is what was given, failures included, and bad input is named."""

import subprocess
import sys
from types import SimpleNamespace

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import plot

plt = pytest.importorskip("matplotlib.pyplot")

TIMES = np.linspace(0.0, 2.0, 21)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def solution(ys, status=0, ts=TIMES):
    return SimpleNamespace(ts=ts, ys=ys, status=np.asarray(status))


def batch(members, status=None):
    ys = np.arange(members)[:, None, None] + np.stack([TIMES, 2 * TIMES], axis=-1)
    status = np.zeros(members, int) if status is None else np.asarray(status)
    return solution(ys, status, np.broadcast_to(TIMES, (members, TIMES.size)))


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def long_lines(ax):
    """The data of the lines that are more than a marker or a legend's stand-in."""
    return [line.get_xydata() for line in ax.lines if len(line.get_xdata()) > 1]


def test_trajectory_draws_every_component_of_a_tree():
    ax = plot.trajectory(solution({"a": jnp.asarray(TIMES), "b": np.stack([TIMES**2, TIMES**3], axis=-1)}))
    assert texts(ax) == ["a", "b[0]", "b[1]"]
    drawn = long_lines(ax)
    for line, values in zip(drawn, (TIMES, TIMES**2, TIMES**3), strict=True):
        np.testing.assert_allclose(line[:, 1], values, rtol=1e-6)
    assert ax.get_xlabel() == "t"


def test_dense_output_is_drawn_between_the_steps():
    dense = diffrax.SaveAt(dense=True)
    sol = sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=2.0, dt=1.0, saveat=dense)
    (line, _) = long_lines(sol.plot())
    assert len(line) == 200 and (line[0, 0], line[-1, 0]) == (0.0, 2.0)
    np.testing.assert_allclose(line[:, 1], np.exp(-line[:, 0]), rtol=0.02)


def test_trajectory_on_given_axes_with_labels():
    _, ax = plt.subplots()
    assert plot.trajectory(solution(TIMES[:, None] * np.ones(2)), ax=ax, labels=["u", "v"]) is ax
    assert texts(ax) == ["u", "v"]


def test_one_component_is_named_on_the_axis():
    ax = plot.trajectory(solution(TIMES))
    assert ax.get_legend() is None
    assert ax.get_ylabel() == "y"


@pytest.mark.parametrize("count", [8, 40])
def test_many_components(count):
    ax = plot.trajectory(solution(TIMES[:, None] * np.arange(count)))
    assert len(long_lines(ax)) == count
    assert (ax.get_legend() is None) == (count == 40)
    assert ("40 components" in ax.get_ylabel()) == (count == 40)


def test_very_many_components_are_an_image_over_time_and_index():
    ys = {"a": np.random.default_rng(0).normal(size=(21, 30, 5)), "b": np.zeros((21, 10))}
    ax = plot.trajectory(solution(ys), labels="T [K]", title="all of them", cmap="magma", vmin=-9.0)
    assert not ax.lines
    (picture,) = ax.collections
    flat = np.concatenate([ys["a"].reshape(21, 150), ys["b"]], axis=1)
    np.testing.assert_array_equal(picture.get_array().reshape(160, 21), flat.T)
    assert picture.get_cmap().name == "magma" and picture.get_clim()[0] == -9.0
    assert (ax.get_title(loc="left"), picture.colorbar.ax.get_ylabel()) == ("all of them", "T [K]")
    huge = plot.trajectory(solution(np.zeros((21, 5000))))
    assert len(huge.collections[0].get_array().reshape(-1, 21)) <= 2048


def test_very_many_components_of_a_batch_are_the_image_of_their_median():
    sol = batch(5, [0, 2, 0, 0, 0])
    sol.ys = np.arange(5.0)[:, None, None] ** 2 + np.zeros((5, 21, 70))
    assert set(np.unique(plot.trajectory(sol).collections[0].get_array())) == {4.0}
    ax = plot.trajectory(sol, members=[3])
    assert set(np.unique(ax.collections[0].get_array())) == {9.0}
    assert ax.get_title(loc="right") == "1 of 5 members failed"


def test_lines_take_limits_a_title_and_colours_from_a_map():
    ax = plot.trajectory(solution(TIMES[:, None] * np.ones(2)), title="two", vmin=-1.0, cmap="magma")
    assert ax.get_ylim()[0] == -1.0 and ax.get_title(loc="left") == "two"
    assert ax.lines[1].get_color() == plt.get_cmap("magma")(1.0)
    top, bottom = plot.rows(solution(TIMES[:, None] * np.ones(2)), vmin=[-1.0, None], vmax=5.0, title="two")
    assert top.get_ylim() == (-1.0, 5.0) and bottom.get_ylim()[0] > -1.0
    ax = plot.surface([0, 1], [0, 1], np.eye(2), vmin=0.5, cmap="magma", title="S")
    assert ax.collections[0].get_clim() == (0.5, 1.0) and ax.get_title(loc="left") == "S"


def test_a_failed_solution_stops_and_says_so():
    values = np.where(TIMES > 1.0, np.nan, TIMES)
    ax = plot.trajectory(solution(values, status=2))
    (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
    np.testing.assert_allclose(cross.get_xydata(), [[1.0, 1.0]])
    assert "failed" in ax.get_title(loc="right")


def test_a_solution_that_never_was_finite_draws_nothing():
    ax = plot.trajectory(solution(np.full(TIMES.size, np.inf), status=2))
    assert "failed" in ax.get_title(loc="right")


def test_few_members_are_lines_and_many_a_fan():
    few = plot.trajectory(batch(4))
    assert len(long_lines(few)) == 8
    assert not few.collections
    many = plot.trajectory(batch(40))
    assert len(many.collections) == 2  # one band for each component
    assert len(long_lines(many)) == 2  # and its median
    np.testing.assert_allclose(long_lines(many)[0][:, 1], 19.5 + TIMES)


def test_members_over_the_fan():
    ax = plot.trajectory(batch(40), members=[3, -1])
    assert len(ax.collections) == 2
    starts = sorted(line[0, 1] for line in long_lines(ax))
    assert starts == [3.0, 3.0, 19.5, 19.5, 39.0, 39.0]


def test_failed_members_leave_the_fan():
    sol = batch(20, status=[2] + [0] * 19)
    sol.ys[0, 10:] = np.nan
    ax = plot.trajectory(sol)
    assert ax.get_title(loc="right") == "1 of 20 members failed"
    median = long_lines(ax)[0][:, 1]
    np.testing.assert_allclose(median[:10] - TIMES[:10], 9.5)
    np.testing.assert_allclose(median[10:] - TIMES[10:], 10.0)


def test_members_with_times_of_their_own_are_lines():
    sol = batch(30)
    sol.ts = np.arange(1, 31)[:, None] * TIMES
    ax = plot.trajectory(sol)
    assert not ax.collections
    assert len(long_lines(ax)) == 60


def test_nested_batches_are_flattened():
    ys = np.ones((2, 3, TIMES.size))
    ax = plot.trajectory(solution(ys, np.zeros((2, 3), int), np.broadcast_to(TIMES, (2, 3, TIMES.size))))
    assert len(long_lines(ax)) == 6


def test_phase_by_index_and_by_name():
    ys = {"q": np.cos(TIMES), "p": -np.sin(TIMES)}
    by_index = plot.phase(solution(ys), 1, 0)
    by_name = plot.phase(solution(ys), "q", "p")
    np.testing.assert_allclose(long_lines(by_index)[0], long_lines(by_name)[0])
    np.testing.assert_allclose(long_lines(by_name)[0], np.stack([np.cos(TIMES), -np.sin(TIMES)], axis=-1))
    assert (by_name.get_xlabel(), by_name.get_ylabel()) == ("q", "p")


def test_phase_of_a_batch_draws_at_most_twenty():
    assert len(long_lines(plot.phase(batch(100)))) == 20
    assert len(long_lines(plot.phase(batch(100), members=3))) == 3


def test_ensemble_quantiles():
    values = np.arange(101.0)[:, None] * np.ones(TIMES.size)
    ax = plot.bands(TIMES, values, quantiles=(0.1, 0.5, 0.9))
    ((_, median),) = {(line[0, 0], line[0, 1]) for line in long_lines(ax)}
    assert median == 50.0
    (band,) = ax.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((10.0, 90.0))
    plot.bands(np.tile(TIMES, (101, 1)), values, ax=ax)  # times as `jax.vmap` returns them
    assert np.array_equal(long_lines(ax)[-1][:, 0], TIMES)


def test_ensemble_with_an_even_number_of_quantiles_and_dead_members():
    values = np.ones((5, TIMES.size, 2))
    values[:, 10:] = np.nan
    ax = plot.bands(TIMES, values, quantiles=(0.25, 0.75))
    assert texts(ax) == ["y[0]", "y[1]"]
    assert len(ax.collections) == 2


def test_surface_keeps_the_orientation_and_greys_out_failures():
    x, y = np.arange(1.0, 5.0), np.arange(10.0, 13.0)
    values = x[:, None] * y
    values[3, 2] = np.nan
    ax = plot.surface(x, y, values, labels=("a", "b", "c"), log=True, levels=3, mark=(2.0, 11.0))
    mesh = ax.collections[0].get_array()
    assert mesh.shape == (3, 4)
    assert mesh[1, 2] == x[2] * y[1]
    assert mesh.mask.sum() == 1 and mesh.mask[2, 3]
    assert ax.get_xlim()[0] < 1.0 < 4.0 < ax.get_xlim()[1]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")


def test_surface_of_a_constant():
    for log in (False, True):
        plot.surface([0, 1], [0, 1], np.ones((2, 2)), log=log, levels=4)


def test_order_states_the_observed_order():
    steps = np.array([0.1, 0.05, 0.025])
    ax = plot.order(steps, {"A": 3 * steps, "B": np.array([1e-2, 2.5e-3, 0.0])}, expected=2)
    assert texts(ax) == ["A, order 1.00", "B, order 2.00", "slope 2"]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert texts(plot.order(steps, jnp.asarray(steps**3))) == ["order 3.00"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.trajectory(solution(TIMES[:1], ts=TIMES[:1])), "two saved times"),
        (lambda: plot.trajectory(solution(TIMES[:5])), r"leaf y must have shape \(21,\)"),
        (lambda: plot.trajectory(solution(TIMES), labels=["a", "b"]), "name each of the 1 components"),
        (lambda: plot.trajectory(solution(TIMES + 1j)), "complex"),
        (lambda: plot.trajectory(solution({})), "at least one array leaf"),
        (lambda: plot.trajectory(batch(20), members=[20]), "indices below 20"),
        (lambda: plot.trajectory(batch(20), members=-1), "number of members"),
        (lambda: plot.phase(solution(TIMES), 0, 1), "y must be the index of one of 1"),
        (lambda: plot.phase(solution(TIMES), "y", "z"), "y must name a component"),
        (lambda: plot.bands(TIMES, np.ones((3, 21)), quantiles=(0.9, 0.1)), "quantiles must increase"),
        (lambda: plot.bands(TIMES[None], np.ones((3, 21))), r"ts must have shape \(times,\)"),
        (lambda: plot.bands(TIMES, np.ones((3, 20))), "must have shape"),
        (lambda: plot.surface([0, 1, 2], [0, 1], np.ones((2, 3))), "transposed"),
        (lambda: plot.surface([0, 2, 1], [0, 1], np.ones((3, 2))), "x must be one-dimensional and strictly monotonic"),
        (lambda: plot.surface([0, 1], [0, 1], -np.ones((2, 2)), log=True), "positive and finite"),
        (lambda: plot.surface([0, 1], [0, 1], np.ones((2, 2)), log=True, vmin=0.0), "vmin must be positive"),
        (lambda: plot.rows(solution(np.zeros((21, 65)))), "`rows` draws at most 64 components, got 65"),
        (lambda: plot.bands(TIMES, np.zeros((3, 21, 65))), "`bands` draws at most 64"),
        (lambda: plot.trajectory(solution(np.zeros((21, 65))), labels=["a", "b"]), "labels must be one name"),
        (lambda: plot.order([0.1, 0.0], [1, 1]), "steps must be positive"),
        (lambda: plot.order([0.1, 0.2], [1, 1, 1]), "shape of steps"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_importing_sciml_plot_does_not_import_matplotlib():
    code = "import sys, sciml.plot; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "sciml-jax\[plot\]"'):
        plot.trajectory(solution(TIMES))


def test_rows_give_each_component_its_own_axes():
    axes = plot.rows(solution({"a": 1e-6 * TIMES, "b": np.stack([TIMES, -TIMES], axis=-1)}))
    assert [ax.get_ylabel() for ax in axes] == ["a", "b[0]", "b[1]"]
    assert axes[0].get_ylim()[1] < 1e-5 < axes[1].get_ylim()[1]
    assert all(len(ax.lines) == 1 for ax in axes)
    assert [ax.get_xlabel() for ax in axes] == ["", "", "t"]


def test_rows_of_a_batch_say_what_failed():
    axes = plot.rows(batch(4, [0, 2, 0, 0]), labels=["x", "y"])
    assert axes.shape == (2,) and axes[0].get_title(loc="right") == "1 of 4 members failed"
    assert len(long_lines(axes[1])) == 4


def with_events(sol, times, before, after):
    sol.events = SimpleNamespace(
        times=np.asarray(times), states_before=np.asarray(before), states_after=np.asarray(after)
    )
    return sol


def rings(ax):
    """The data of the markers of events."""
    return [line.get_xydata() for line in ax.lines if line.get_marker() == "o" and line.get_markersize() == 3.5]


FALLING = np.stack([TIMES, -TIMES], axis=-1)
NEVER = [np.nan, np.nan]


def test_events_are_marked_and_lines_jump_there():
    """What is saved at the time of an event comes after it; rows without an event draw nothing."""
    saved = np.where(TIMES[:, None] >= 1.0, FALLING + 5.0, FALLING)
    times, before, after = [1.0, 1.54, np.nan], [[1.0, -1.0], [6.54, 3.46], NEVER], [[6.0, 4.0], [6.54, 3.4], NEVER]
    ax = plot.trajectory(with_events(solution(saved), times, before, after))
    assert texts(ax) == ["y[0]", "y[1]"]
    line = long_lines(ax)[0]
    there = line[:, 0] == 1.0
    np.testing.assert_allclose(line[there, 1], [1.0, 6.0, 6.0])
    assert len(line) == 21 + 4 and np.all(np.diff(line[:, 0]) >= 0)
    first, second = rings(ax)
    np.testing.assert_allclose(first, [[1.0, 6.0], [1.54, 6.54], NEVER])
    np.testing.assert_allclose(second[:2, 1], [4.0, 3.4])
    path = plot.phase(with_events(solution(saved), times, before, after))
    np.testing.assert_allclose(rings(path)[0][:2], after[:2])
    assert [len(rings(ax)) for ax in plot.rows(with_events(solution(saved), times, before, after))] == [1, 1]


def test_events_of_a_solve_that_ends_and_of_one_that_goes_backwards():
    saved = np.where(TIMES[:, None] > 1.23, np.nan, FALLING)
    ended = plot.trajectory(with_events(solution(saved), [1.23], [[1.23, -1.23]], [[1.23, -1.23]]))
    line = long_lines(ended)[0]
    assert line[np.isfinite(line[:, 1])][-1, 0] == 1.23
    back = with_events(solution(FALLING[::-1], ts=TIMES[::-1]), [1.54, 0.5], np.ones((2, 2)), np.zeros((2, 2)))
    assert np.all(np.diff(long_lines(plot.trajectory(back))[0][:, 0]) <= 0)


def test_events_of_members_are_marked_on_lines_and_not_on_fans():
    def members(count):
        sol = batch(count)
        times = np.where(np.arange(count)[:, None] % 2 == 0, [[0.5, 1.5]], np.nan)
        return with_events(sol, times, np.ones((count, 2, 2)), np.zeros((count, 2, 2)))

    assert len(rings(plot.trajectory(members(4)))) == 4  # two of four, two components
    assert not rings(plot.trajectory(members(20)))
    assert len(rings(plot.trajectory(members(20), members=[0, 1]))) == 2


def test_no_event_draws_no_ring():
    assert not rings(plot.trajectory(with_events(solution(FALLING), [np.nan], [NEVER], [NEVER])))


def test_residuals_and_profiles_draw_what_is_there():
    from sciml import inference
    from sciml.inference._profile import ProfileLikelihood

    noise = np.random.default_rng(0).normal(size=60)
    left, middle, right = inference.residual_diagnostics(noise).plot(label="day")
    np.testing.assert_allclose(left.lines[1].get_ydata(), noise)
    np.testing.assert_allclose(np.sort(noise), right.lines[1].get_ydata())
    assert left.get_xlabel() == "day" and "runs of one sign: p = " in left.get_title() and middle.get_ylim()[1] >= 0.5
    profile = ProfileLikelihood(
        ("a", "b"),
        np.array([[0.0, 1.0, 2.0], [1.0, 2.0, np.nan]]),
        np.array([[4.0, 0.0, 4.0], [5.0, 0.0, np.nan]]),
        np.array([1.0, 2.0]),
        np.array([[0.1, 1.9], [1.2, np.inf]]),
        3.84,
        0.95,
        ("b",),
    )
    closed, open_ended = profile.plot()
    assert [line.get_marker() for line in closed.lines[3:5]] == ["|", "|"]
    assert [line.get_marker() for line in open_ended.lines[3:5]] == ["|", ">"]
