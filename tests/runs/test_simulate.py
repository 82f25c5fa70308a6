"""Long runs: the steps of `solve`, in segments that are resumed to the last bit."""

import errno
import os
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import sciml
from sciml import SolveError, Status
from sciml.runs import SteadyState, WallTime, read_run
from sciml.spatial import Grid, Laplacian, Neumann
from sciml.stores import NpzStore, StoreError, _atomic
from tests.stores.test_stores import FullDisk

LORENZ = sciml.models.Lorenz63()
QUIET = dict(progress=False)


def decay(t, y, args):
    return -y


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.asarray(x).tobytes() == np.asarray(y).tobytes(), a, b))


@pytest.mark.parametrize("options", [dict(rtol=1e-4, atol=1e-4), dict(dt=0.01)], ids=["adaptive", "fixed"])
def test_frames_are_those_of_solve(options, dtype):
    ts, y0 = np.linspace(0, 10, 201), jnp.ones(3, dtype)
    model = sciml.with_dtype(LORENZ, dtype)
    run = sciml.simulate(model, y0, t0=0.0, t1=10.0, saveat=ts, segment_steps=37, **QUIET, **options)
    sol = sciml.solve(model, y0, t0=0.0, t1=10.0, saveat=ts, **options)
    assert same(run.values, sol.ys)
    assert same(run.y, sol.ys[-1]) and run.accepted == sol.stats.accepted and run.rejected == sol.stats.rejected
    assert run.t_reached == 10.0 and run.status == 0 and run.finished and run.reason == "reached t1 = 10"
    assert run.accepted > 3 * 37  # there were several segments


@pytest.mark.x64
def test_backwards_and_without_frames():
    options = dict(t0=1.0, t1=-1.0, rtol=1e-8, atol=1e-10, **QUIET)
    run = sciml.simulate(decay, jnp.ones(2), save_every=0.3, segment_steps=5, **options)
    np.testing.assert_allclose(run.ts, 1.0 - 0.3 * np.arange(7))
    np.testing.assert_allclose(run.values[:, 0], np.exp(1 - run.ts), rtol=1e-6)
    alone = sciml.simulate(decay, jnp.ones(2), **options)
    assert len(alone) == 0 and len(list(alone)) == 0
    np.testing.assert_allclose(alone.y, np.exp(2.0), rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver",
    [
        sciml.solvers.Rosenbrock23(),
        diffrax.Kvaerno3(),
        diffrax.ImplicitEuler(),
    ],
    ids=lambda s: type(s).__name__,
)
def test_any_solver(solver):
    stiff = lambda t, y, args: -200.0 * (y - jnp.cos(t))  # noqa: E731
    ts = np.linspace(0, 1, 11)
    options = dict(t0=0.0, t1=1.0, rtol=1e-4, atol=1e-5, solver=solver, saveat=ts)
    run = sciml.simulate(stiff, jnp.zeros(1), segment_steps=20, **options, **QUIET)
    sol = sciml.solve(stiff, jnp.zeros(1), **options)
    if isinstance(solver, sciml.solvers.Rosenbrock23):
        assert same(run.values, sol.ys)
    else:
        np.testing.assert_allclose(run.values, sol.ys, atol=1e-3)
        assert abs(int(run.accepted) - int(sol.stats.accepted)) <= 0.05 * run.accepted
    assert run.accepted > 20


def varying(t, y, rate):
    return -rate * y * (1 + 0.5 * jnp.sin(7 * t))


def low(t, y, rate):
    return y[0] < 0.1


RATES = jnp.linspace(0.1, 4.0, 40).at[7].set(jnp.nan)
MANY = dict(t0=0.0, t1=8.0, rtol=1e-4, atol=1e-6, throw=False)


def ensemble(folder=None, stop=low):
    """Forty decays, of which one is NaN, and most reach the threshold early."""
    options = dict(in_axes=(None, 0, 0), save_every=0.1, segment_steps=4, store=folder, stop=stop) | QUIET
    return sciml.simulate(varying, jnp.ones((40, 2)), args=RATES, **options, **MANY)


@pytest.mark.x64
def test_an_ensemble_whose_members_end_apart():
    run = ensemble()
    sol = jax.vmap(lambda rate: sciml.solve(varying, jnp.ones(2), args=rate, saveat=jnp.asarray(run.ts), **MANY))(RATES)
    whole = np.asarray(sol.ys).swapaxes(0, 1)
    assert run.values.shape == whole.shape == (len(run), 40, 2)
    for i in range(40):
        below = whole[:, i, 0] < 0.1
        count = (np.argmax(below) + 1) if below.any() else len(run)
        count = 1 if i == 7 else count  # what is NaN there is the rate
        np.testing.assert_allclose(run.values[:count, i], whole[:count, i], rtol=1e-9)
        assert np.isnan(run.values[count:, i]).all()
        if i != 7:
            np.testing.assert_allclose(run.t_reached[i], run.ts[count - 1] if below.any() else 8.0, rtol=1e-6)
            np.testing.assert_allclose(run.y[i], whole[count - 1, i], rtol=1e-9)
    assert run.status[7] == Status.nonfinite and np.count_nonzero(run.status) == 1
    assert "1 failed (nonfinite)" in run.reason and "stopped by `low`" in run.reason and "reached t1" in run.reason
    with pytest.raises(SolveError, match="1 of 40 members failed"):
        run.raise_if_failed()


@pytest.mark.x64
def test_interrupted_again_and_again(tmp_path, monkeypatch, choose):
    """Every call takes one segment and is stopped; the last one finds the same bits as an undisturbed run."""
    choose({"runs.frames": 2**12})  # several blocks
    whole = ensemble(tmp_path / "whole")
    sizes = []
    take = sciml.runs._execute.ActiveMembers._choose

    def count(self, ids, index):
        sizes.append(len(ids))
        take(self, ids, index)

    monkeypatch.setattr(sciml.runs._execute.ActiveMembers, "_choose", count)
    calls = 0
    while not (run := ensemble(tmp_path / "parts", stop=[low, WallTime(0.0)])).finished:
        assert "wall time" in run.reason
        calls += 1
    assert calls > 5 and {16, 8} <= set(sizes)
    assert len(whole.store.numbers()) > 2
    assert whole.store.numbers() == run.store.numbers()
    for number in whole.store.numbers():
        assert same(whole.store.get(number), run.store.get(number))
    assert same((whole.y, whole.status, whole.t_reached), (run.y, run.status, run.t_reached))
    assert "checkpoints" in os.listdir(tmp_path / "parts")


@pytest.mark.x64
def test_what_ends_a_run():
    options = dict(t0=0.0, save_every=0.5, rtol=1e-5, segment_steps=10, **QUIET)
    run = sciml.simulate(decay, jnp.ones(1), t1=100.0, stop=SteadyState(rtol=0.0, atol=1e-3), **options)
    assert run.reason == "stopped at t = 7 by steady state" and run.t_reached == 7.0 and len(run) == 15
    assert same(run.y, run[-1]) and run.finished

    first = lambda t, y, args: y[0] < 0.5  # noqa: E731
    run = sciml.simulate(decay, jnp.ones(1), t1=100.0, stop=[SteadyState(atol=1e-3), first], **options)
    assert run.reason == "stopped at t = 1 by `<lambda>`" and len(run) == 3

    blow_up = lambda t, y, args: y**2  # noqa: E731
    run = sciml.simulate(blow_up, jnp.ones(1), t1=2.0, throw=False, **(options | dict(save_every=0.3)))
    assert run.status != 0 and 0.99 < run.t_reached < 1.01 and "failed at t = 1" in run.reason
    assert len(run) == 4 and np.isfinite(run.values).all() and run.finished
    with pytest.raises(SolveError, match="`simulate` failed at t = 1"):
        sciml.simulate(blow_up, jnp.ones(1), t1=2.0, **options)

    run = sciml.simulate(decay, jnp.ones(1), t1=1.0, max_steps=3, throw=False, rtol=1e-8, **QUIET, t0=0.0)
    assert run.status == Status.max_steps_reached


@pytest.mark.x64
def test_frames_are_read_when_they_are_asked_for(tmp_path, monkeypatch, choose):
    choose({"runs.frames": 2**9})
    y0 = {"x": jnp.ones(2), "v": jnp.zeros(2)}

    def wave(t, y, args):
        return {"x": y["v"], "v": -y["x"]}

    def energy(t, y, args):
        return {"energy": jnp.sum(y["x"] ** 2 + y["v"] ** 2) / 2, "t": t, "big": y["x"] > 0}

    options = dict(t0=0.0, t1=6.0, dt=0.01, save_every=0.1, store=tmp_path, **QUIET)
    run = sciml.simulate(wave, y0, output=energy, **options)
    assert len(run) == 61 and len(run.store.numbers()) > 1
    for found in (run, read_run(tmp_path), sciml.simulate(wave, y0, output=energy, **options)):
        np.testing.assert_allclose(found.values["energy"], 1.0, rtol=1e-6)
        np.testing.assert_allclose(found.values["t"], found.ts)
        assert found[-1]["t"] == 6.0 and found[3:40:2]["t"].shape == (19,) and found[::-1]["t"][0] == 6.0
        assert found[5]["big"].dtype == bool and found.reason == "reached t1 = 6" and len(list(found)) == 61
        assert same(found[[0, 5, -1]], jax.tree.map(lambda x: x[np.array([0, 5, 60])], found.values))
        with pytest.raises(IndexError, match="61 frames"):
            found[61]
    counted = []
    get = NpzStore.get
    monkeypatch.setattr(NpzStore, "get", lambda self, n, like=None: (counted.append(n), get(self, n, like))[1])
    load_run = sciml.simulate(wave, y0, output=energy, **options)
    counted.clear()
    load_run[7]
    assert len(counted) == 1


@pytest.mark.x64
def test_frames_as_a_dataset(tmp_path):
    xarray = pytest.importorskip("xarray")
    y0 = jnp.ones((3, 2)) * jnp.array([[1.0], [2.0], [3.0]])
    run = sciml.simulate(
        decay, y0, t0=0.0, t1=2.0, dt=0.1, save_every=0.5, in_axes=(None, 0, None), store=tmp_path, **QUIET
    )
    found = run.to_xarray()
    assert isinstance(found, xarray.Dataset) and dict(found.sizes) == {"time": 5, "member": 3, "y_0": 2}
    later = found.sel(time=slice(1.0, 2.0)).isel(member=-1)
    np.testing.assert_allclose(later.y, np.stack([3 * np.exp(-later.time.values)] * 2, 1), rtol=1e-5)
    np.testing.assert_array_equal(found.y.values, run.values)
    np.testing.assert_array_equal(read_run(tmp_path).to_xarray().y[2], run[2])


def test_members_take_a_step_that_is_stable_for_all():
    """As `solve` does for one: the most diffusive member decides, and a longer step is an error that names it."""
    grid = Grid(12)
    (x,) = grid.centers
    y0 = 1.0 + 0.1 * jnp.cos(6.28 * x)

    def heat(coefficients):
        return jax.vmap(lambda d: sciml.models.Diffusion(grid, Neumann(0.0), d))(jnp.asarray(coefficients))

    options = dict(t0=0.0, t1=0.105, solver=diffrax.Euler(), in_axes=(0, None, None)) | QUIET
    run = sciml.simulate(heat([0.1, 1.0, np.nan]), y0, throw=False, **options)
    limit = 2 / float(Laplacian(grid, Neumann(0.0)).spectral_radius)
    steps = np.asarray(run.accepted)
    assert steps[0] == steps[1] == np.ceil(0.105 / (0.9 * limit))
    assert run.status[1] == 0 and float(jnp.max(jnp.abs(run.y[1] - 1.0))) < 0.1
    with pytest.raises(ValueError, match=r"at most 0.00347\d* for member 1\. Use a shorter step"):
        sciml.simulate(heat([0.1, 1.0]), y0, dt=0.01, **options)


@pytest.mark.x64
def test_fields_have_the_coordinates_of_their_grid(tmp_path):
    pytest.importorskip("xarray")
    grid = sciml.spatial.Grid((6, 4), upper=(3.0, 1.0))
    model = sciml.models.Diffusion(grid, {"x": sciml.spatial.Periodic(), "y": sciml.spatial.Neumann(0.0)})
    keep = lambda t, u, args: {"u": u, "profile": u[:, 0]}  # noqa: E731
    options = dict(t0=0.0, t1=0.02, dt=0.01, save_every=0.01, output=keep, store=tmp_path, **QUIET)
    run = sciml.simulate(model, jnp.ones(grid.shape), **options)
    for found in (run.to_xarray(), read_run(tmp_path).to_xarray()):
        assert found.u.dims == ("time", "x", "y") and found.profile.dims == ("time", "profile_0")
        for name, x in zip(grid.names, grid.coordinates(model.laplacian.boundary.location)):
            np.testing.assert_allclose(found[name], np.ravel(x))
        assert found.u.sel(x=1.3, method="nearest").shape == (3, 4)
    bare = sciml.simulate(model, jnp.ones(grid.shape), **(options | {"store": None, "output": None})).to_xarray()
    assert bare.u.dims == ("time", "x", "y")  # a state of one array, named y, is no axis


@pytest.mark.x64
def test_a_run_that_is_being_written_can_be_read(tmp_path):
    seen = []

    def look(progress):
        found = read_run(tmp_path)
        assert not found.finished and (len(found) == 0 or found.values.shape == (len(found), 2))
        seen.append(len(found))

    options = dict(dt=0.01, save_every=0.1, segment_steps=50, checkpoint_every=0.0, store=tmp_path)
    run = sciml.simulate(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=5.0, **options, progress=look)
    assert any(0 < n < len(run) for n in seen) and seen == sorted(seen)
    np.testing.assert_array_equal(read_run(tmp_path).values, run.values)


@pytest.mark.x64
def test_an_interrupted_run_says_how_to_go_on(tmp_path):
    def stop(progress):
        if progress.done >= 1.0:
            raise KeyboardInterrupt

    def call(progress=False, store=tmp_path):
        times = dict(t0=0.0, t1=5.0, dt=0.01, save_every=0.1, segment_steps=50, store=store)
        return sciml.simulate(lambda t, y, args: -y, jnp.ones(2), **times, progress=progress)

    with pytest.raises(KeyboardInterrupt) as stopped:
        call(stop)
    (note,) = stopped.value.__notes__
    assert note == f"`simulate`: the run so far is in {NpzStore(tmp_path)}; the same call resumes from there."
    went_on = []
    call(lambda progress: went_on.append(progress.done))
    assert went_on[0] >= 1.0  # the first second is not repeated
    with pytest.raises(KeyboardInterrupt) as stopped:
        call(stop, None)
    assert not hasattr(stopped.value, "__notes__")


@pytest.mark.x64
def test_another_run_is_refused(tmp_path):
    def call(rate=1.0, **options):
        given = dict(t0=0.0, t1=1.0, dt=0.1, save_every=0.5, store=tmp_path, **QUIET)
        return sciml.simulate(lambda t, y, args: -rate * y, jnp.ones(2), **(given | options))

    call()
    assert call().finished
    with pytest.raises(StoreError, match="already contains a run"):
        call(resume=False)
    message = r"(?s)different run.*\n  `model`: the description is the same .*\nUse another path"
    with pytest.raises(StoreError, match=message):
        call(rate=2.0)
    with pytest.raises(StoreError, match=r"`t1`: 1.0 before, 2.0 now"):
        call(t1=2.0)
    with pytest.raises(StoreError, match=r"cannot be resumed:\n  `segment_steps`: None before, 7 now\nUse"):
        call(segment_steps=7)
    with pytest.raises(StoreError, match="does not contain a run"):
        read_run(tmp_path / "nothing")
    assert call(stop=WallTime(100.0)).finished  # a limit of time does not make it another run


@pytest.mark.x64
def test_a_full_disk_and_an_unwritable_folder(tmp_path, monkeypatch, choose):
    choose({"runs.frames": 2**9})
    options = dict(t0=0.0, t1=10.0, dt=0.01, save_every=0.1, checkpoint_every=0.0, **QUIET)
    whole = sciml.simulate(decay, jnp.ones(2), store=tmp_path / "whole", **options)
    with monkeypatch.context() as changed:
        changed.setattr(_atomic, "open", FullDisk(30_000), raising=False)
        with pytest.raises(
            StoreError, match=r"the disk is full.*Everything written before is intact: repeat the same call"
        ):
            sciml.simulate(decay, jnp.ones(2), store=tmp_path / "full", **options)
    store = NpzStore(tmp_path / "full")
    written = store.numbers()
    assert 0 < len(written) < len(whole.store.numbers())
    for n in written:  # the last one as far as it was filled at a checkpoint
        found, expected = store.get(n), whole.store.get(n)
        count = len(found["time"])
        assert count == len(expected["time"]) or (n == written[-1] and count > 0)
        assert same(found, {name: x[:count] for name, x in expected.items()})
    again = sciml.simulate(decay, jnp.ones(2), store=tmp_path / "full", **options)
    assert same(again.values, whole.values)

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(pathlib.Path, "touch", refuse)
    with pytest.raises(StoreError, match="writing there is not permitted. Use a folder that this user may write to"):
        sciml.simulate(decay, jnp.ones(2), store=tmp_path / "locked", **options)


@pytest.mark.x64
def test_progress(capsys, tmp_path):
    seen = []
    options = dict(t0=0.0, t1=1.0, dt=0.01, segment_steps=10)
    sciml.simulate(decay, jnp.ones(1), progress=lambda p: seen.append((p.done, p.total)), **options)
    assert len(seen) == 10 and seen == sorted(seen) and seen[-1] == (1.0, 1.0)
    sciml.simulate(decay, jnp.ones(1), **options)
    *earlier, last = capsys.readouterr().err.split("\r")
    assert "compiling" in "".join(earlier) and "simulate: 100%" in last and "compiling" not in last
    for _ in range(2):  # the second call finds that nothing is left to do
        sciml.simulate(lambda t, y, args: jnp.nan * y, jnp.ones(1), throw=False, store=tmp_path, **options)
        assert "compiling" not in capsys.readouterr().err.split("\r")[-1]


@pytest.mark.x64
@pytest.mark.parametrize(
    "options, error, said",
    [
        (dict(save_every=-1.0), ValueError, "`save_every` must be positive"),
        (dict(save_every=1.0, saveat=[1.0]), ValueError, "either as `save_every` or as `saveat`"),
        (dict(saveat=diffrax.SaveAt(t1=True)), TypeError, "`saveat` must be an array of times"),
        (dict(saveat=[3.0]), ValueError, "must be within"),
        (dict(stop=SteadyState()), ValueError, "Pass `save_every` or `saveat`"),
        (dict(stop=3), TypeError, "`stop` must be a function"),
        (dict(stop=lambda t, y, args: y > 0, save_every=1.0), TypeError, "one boolean per member"),
        (dict(stop=WallTime(-1.0)), ValueError, "must not be negative"),
        (dict(in_axes=0), ValueError, "must be a tuple for|parameter 'in_axes'"),
        (dict(in_axes=(None, 1, None)), ValueError, "may contain 0"),
        (dict(in_axes=(None, None, None)), ValueError, "maps no array"),
        (dict(in_axes=(None, 0, 0), args=jnp.ones(3)), ValueError, "the lengths are `y0`: 2, `args`: 3"),
        (dict(store=3), TypeError, "`store` must be a path|parameter 'store'"),
        (dict(store="x", checkpoints="y"), TypeError, "`checkpoints` must be a store|parameter 'checkpoints'"),
        (dict(output=3), TypeError, "`output` must be callable|parameter 'output'"),
        (dict(checkpoint_every=-1.0), ValueError, "`checkpoint_every` must be"),
        (dict(segment_steps=0), ValueError, "segment_steps"),
        (dict(progress=3), TypeError, "`progress` must be|parameter 'progress'"),
        (
            dict(stepsize_controller=diffrax.ClipStepSizeController(diffrax.PIDController(1e-3, 1e-3))),
            ValueError,
            "segments",
        ),
        (dict(solver=diffrax.ImplicitEuler(), dt=0.1), ValueError, "requires tolerances for its nonlinear solver"),
        (dict(solver=diffrax.Sil3(), rtol=1e-3), TypeError, "its own split terms"),
    ],
)
def test_bad_arguments(options, error, said):
    with pytest.raises((error, jaxtyping.TypeCheckError), match=said):
        sciml.simulate(decay, jnp.ones(2), **(dict(t0=0.0, t1=2.0, progress=False) | options))


@pytest.mark.x64
def test_a_traced_call_is_refused():
    with pytest.raises(TypeError, match="`simulate` must be called from Python"):
        jax.grad(lambda y: sciml.simulate(decay, y, t0=0.0, t1=1.0).y.sum())(jnp.ones(2))


@pytest.mark.x64
@pytest.mark.parametrize("steps", [{"dt": 0.25}, {"rtol": 1e-6, "atol": 1e-8}], ids=["fixed", "adaptive"])
def test_a_method_that_holds_modes_between_its_steps(steps):
    model = sciml.models.KuramotoSivashinsky(32, 22.0)
    x = model.x()
    y0 = jnp.cos(2 * jnp.pi * x / 22.0) * (1 + jnp.sin(2 * jnp.pi * x / 22.0))
    options = dict(t0=0.0, t1=5.0, **steps)
    run = sciml.simulate(model, y0, save_every=0.7, segment_steps=6, **options, **QUIET)
    sol = sciml.solve(model, y0, saveat=0.7 * jnp.arange(8.0), **options)
    np.testing.assert_allclose(run.values, sol.ys, rtol=1e-9, atol=1e-9)
    assert run.y.shape == (32,) and run.y.dtype == y0.dtype
    several = sciml.simulate(
        model, jnp.stack([y0, 2 * y0]), save_every=0.7, in_axes=(None, 0, None), **options, **QUIET
    )
    np.testing.assert_allclose(several.values[:, 0], sol.ys, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(several.y[0], run.y, rtol=1e-7, atol=1e-8)


def test_amounts_stay_above_zero():
    """Two tanks run dry, (sqrt(y0) - t / 2)**2 until then; in frames between steps, too."""

    def tank(t, y, args):
        wet = y > 0
        return -jnp.where(wet, jnp.sqrt(jnp.where(wet, y, 1.0)), 0.0)

    y0, ts = jnp.array([[1.0, 0.5], [0.3, 0.2]]), np.linspace(0, 3, 13)
    options = dict(t0=0.0, t1=3.0, save_every=0.25, positive=True, rtol=1e-4, atol=1e-6, **QUIET)
    run = sciml.simulate(tank, y0, in_axes=(None, 0, None), **options)
    values = np.moveaxis(np.asarray(run.values), 0, 1) if run.values.shape[0] == 2 else np.asarray(run.values)
    assert values.min() == 0.0 and np.all(np.asarray(run.y) == 0.0)
    left = np.maximum(np.sqrt(np.asarray(y0, float)) - ts[:, None, None] / 2, 0) ** 2
    np.testing.assert_allclose(values, left, atol=2e-4)
    with pytest.raises(ValueError, match="`y0` has negative elements, which `positive`"):
        sciml.simulate(tank, -y0, in_axes=(None, 0, None), **options)
    with pytest.raises(ValueError, match=r"`domain\(y0\)` is False"):
        sciml.simulate(decay, jnp.ones(2), t0=0.0, t1=1.0, domain=lambda y: y[0] < 0.5, **QUIET)
    with pytest.raises(TypeError, match="an option of `sciml.solve`, which goes on by `resume=`"):
        sciml.simulate(decay, jnp.ones(2), t0=0.0, t1=1.0, project=lambda y: y[0], **QUIET)
    with pytest.raises(TypeError, match="`steady_state` has no option `positive`: it is an option of `sciml.solve`"):
        sciml.steady_state(decay, jnp.ones(2), positive=True)
