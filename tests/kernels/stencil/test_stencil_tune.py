"""The tuner of stencil kernels: what it times, what it keeps, and what `select` makes of that."""

import json
import logging

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import kernels, parallel
from sciml.kernels import _cache_file, select
from sciml.kernels.stencil import StencilUpdate, _tune, tune
from sciml.kernels.stencil._run import transposed
from sciml.kernels.stencil.mosaic._kernel import AbstractMosaicKernel
from sciml.models import Diffusion, Lorenz63
from sciml.solvers import RKC2, tune_stencil
from sciml.solvers.integrate._stencil_kernel import step_of
from sciml.solvers.methods.explicit._runge_kutta import from_diffrax
from sciml.spatial import Boundaries, Dirichlet, Grid, Periodic

from ..running import evolve
from .stencil_cases import heat

pytestmark = pytest.mark.x64
U = jnp.linspace(0, 1, 300, dtype=jnp.float32)
FEW = dict(steps_per_pass=(1, 3), rows=(256, 512), n_steps=3, repeats=1)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The file that plans are kept in."""
    path = tmp_path / "folder" / "plans.json"
    monkeypatch.setenv(_cache_file.VARIABLE, str(path))
    _cache_file.warn_unused.cache_clear()
    return path


@pytest.fixture
def timed(monkeypatch):
    """Times that are known: three steps for each pass in tiles of 512 are the fastest."""

    def timing(chosen, update, params, fields, rest, tiling, n_steps, repeats):
        return _tune.Timing(tiling.steps // update.stages, tiling.rows, 1.0 if tiling == (3, 512) else 2.0)

    monkeypatch.setattr(_tune, "_timed", timing)


def chosen(update=None, u=U, params=0.1, impl="pallas", interpret=True, **how):
    found = select(heat(1) if update is None else update, u, params, impl=impl, interpret=interpret, **how)
    return found.plan.steps, found.plan.rows


def test_the_plans_of_a_kernel_are_timed_and_the_fastest_is_kept(cache):
    with kernels.use("pallas", interpret=True):
        tried = tune(heat(1), U, 0.1, **FEW)
    assert {t[:2] for t in tried} == {(1, 256), (1, 512), (3, 256), (3, 512)}
    assert all(0 < a.seconds <= b.seconds < np.inf and not a.failure for a, b in zip(tried, tried[1:]))
    assert chosen() == tried[0][:2]
    found, expected = (evolve(heat(1), U, 4, 0.1, impl=impl) for impl in ("interpret", "xla"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    (entry,) = json.loads(cache.read_text())["plans"].values()
    assert entry["seconds"] == tried[0].seconds


def test_what_is_kept_holds_for_updates_that_are_alike(cache, timed, tmp_path):
    before = chosen()
    tune(heat(1), U, 0.1, impl="pallas", interpret=True, cache=tmp_path / "other.json", **FEW)
    assert chosen() == before != (3, 512) and not cache.exists()
    tune(heat(1), U, 0.1, impl="pallas", interpret=True, **FEW)
    assert chosen() == chosen(params=0.2) == chosen(u=jax.ShapeDtypeStruct((300,), jnp.float32)) == (3, 512)
    assert chosen(heat(1, 1, Boundaries(Grid((300,)), Periodic()))) == (3, 512)
    assert "tuned" in select(heat(1), U, 0.1, impl="pallas", interpret=True).reason
    assert chosen(steps_per_pass=2)[0] == 2
    others = [
        chosen(heat(1, 1, Boundaries(Grid((300,)), Dirichlet(0.0)))),
        chosen(heat(1, 2)),
        chosen(StencilUpdate(lambda nb, p: nb("u", 1) - p * nb("u") * nb("u"))),
        chosen(u=U[:299]),
        chosen(u=U.astype(jnp.float64)),
        chosen(impl="mosaic_gpu", interpret=False),
    ]
    assert (3, 512) not in others
    tune(heat(1, 2), U, 0.1, impl="pallas", interpret=True, **FEW)  # beside the first
    assert chosen() == chosen(heat(1, 2)) == (3, 512)
    assert [p.name for p in cache.parent.iterdir()] == ["plans.json"]


def test_the_steps_of_a_model(cache, timed):
    model = Diffusion(Grid((300,)), Dirichlet(0.0), diffusivity=0.1)
    rates, update, rest = step_of(from_diffrax(diffrax.Euler()), model, U, jnp.float32(1e-3))
    assert rates.fields_of(U) == (U,) and not rest["coefficients"]
    assert chosen(update, params=rest["params"]) != (3, 512)
    tried = tune_stencil(model, U, solver=diffrax.Euler(), impl="pallas", interpret=True, **FEW)
    assert tried[0][:2] == (3, 512)
    assert chosen(update, params=rest["params"]) == (3, 512)
    with pytest.raises(TypeError, match=r"`model` must have a method `stencil\(y\)`, but `Lorenz63` does not"):
        tune_stencil(Lorenz63(), U)
    with pytest.raises(ValueError, match="`Diffusion` with RKC2: its method is not an explicit"):
        tune_stencil(model, U, solver=RKC2())
    with pytest.raises(ValueError, match="`Diffusion` with Kvaerno5: its method is not an explicit"):
        tune_stencil(model, U, solver=diffrax.Kvaerno5())


def test_the_transpose_takes_what_was_tuned(cache, timed, monkeypatch):
    plans = []
    advance = AbstractMosaicKernel.advance
    monkeypatch.setattr(AbstractMosaicKernel, "advance", lambda *args: plans.append(args[6]) or advance(*args))
    tune(heat(1), U, 0.1, impl="pallas", interpret=True, **FEW)

    assert (default := chosen(transposed(heat(1), 1, U.dtype, jnp.float32(0.1)))) != (3, 512), default

    def slope(impl):
        return jax.grad(lambda u: jnp.sum(evolve(heat(1), u, 4, 0.1, impl=impl) ** 2))(U)

    np.testing.assert_allclose(slope("interpret"), slope("xla"), rtol=1e-5)
    assert {(plan.steps, plan.rows) for plan in plans} == {(3, 512)} and len(plans) == 2


def test_blocks_of_a_sharded_field_take_what_was_tuned_for_their_size(cache, timed):
    mesh = parallel.mesh(member=1, x=2, devices=jax.devices()[:2])
    domain = parallel.Domain(("x",), boundary=Boundaries(Grid((600,)), Dirichlet(0.0)), mesh=mesh)

    def chosen_for_blocks():
        def look(u):  # anew each time, since JAX knows again what it has traced
            found.append(select(heat(1, 1, domain), u, 0.1, impl="mosaic_gpu"))
            return u

        found = []
        jax.eval_shape(lambda u: domain.run(look, u), jnp.zeros(600, jnp.float32))
        return found[0]

    assert "tuned" not in chosen_for_blocks().reason
    tune(heat(1, 1, Boundaries(Grid((300,)), Dirichlet(0.0))), U, 0.1, impl="mosaic_gpu", **FEW)
    found = chosen_for_blocks()
    assert (found.plan.steps, found.plan.rows) == (3, 512) and "tuned" in found.reason


def change(entry, **values):
    def write(text):
        whole = json.loads(text)
        for plan in whole["plans"].values():
            plan.update(values)
        return json.dumps(whole | entry)

    return write


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-9],
        lambda text: "[]",
        lambda text: b"\xff\xfe".decode("latin1"),
        change({"format": 2}),
        change({}, steps="3"),
        change({}, rows=-1),
        change({}, rows=300),
        change({}, steps=1000),
        change({"plans": {"a": 3}}),
    ],
)
def test_what_is_damaged_is_ignored_with_one_line(damage, cache, timed, caplog):
    before = chosen()
    tune(heat(1), U, 0.1, impl="pallas", interpret=True, **FEW)
    cache.write_text(damage(cache.read_text()))
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        assert chosen() == chosen() == before
    (record,) = caplog.records
    assert record.levelname == "WARNING" and str(cache) in record.getMessage()
    tune(heat(1), U, 0.1, impl="pallas", interpret=True, **FEW)
    assert chosen() == (3, 512)


def test_a_file_that_cannot_be_written_is_a_warning(cache, timed, caplog, tmp_path):
    cache.parent.write_text("no folder")
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        tried = tune(heat(1), U, 0.1, impl="pallas", interpret=True, **FEW)
    assert tried[0][:2] == (3, 512) and "cannot be written" in caplog.text


def test_where_plans_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv(_cache_file.VARIABLE, raising=False)
    monkeypatch.setattr(_cache_file.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _cache_file.cache_file() == tmp_path / "sciml" / "stencils.json"
    monkeypatch.setenv(_cache_file.VARIABLE, str(tmp_path / "mine.json"))
    assert _cache_file.cache_file() == tmp_path / "mine.json"
    assert _cache_file.cache_file(tmp_path / "this.json") == tmp_path / "this.json"


def test_errors(cache, monkeypatch):
    update = heat(1)
    with pytest.raises(ValueError, match="requires a GPU or a TPU"):
        tune(update, U, 0.1)
    with pytest.raises(ValueError, match="nothing to tune"):
        tune(update, U, 0.1, impl="xla")
    with pytest.raises(ValueError, match=r"no tile of `rows`=\[300\].*Tiles may have \(1024"):
        tune(update, U, 0.1, impl="pallas", interpret=True, rows=[300])
    with pytest.raises(TypeError, match="outside of `jax.jit`"):
        jax.jit(lambda u: tune(update, u, 0.1, impl="pallas", interpret=True)[0].seconds)(U)
    with pytest.raises(TypeError, match="n_steps"):
        tune(update, U, 0.1, impl="pallas", interpret=True, n_steps=1.5)
    with pytest.raises(RuntimeError, match="none of the 4 tilings"):
        tune(update, U, 0.1, impl="mosaic_gpu", **FEW)  # there is no such machine
    assert not cache.exists()


def test_one_number_to_try_may_stand_alone(cache, timed):
    (one,) = tune(heat(1), U, 0.1, impl="pallas", interpret=True, steps_per_pass=4, rows=256)
    assert (one.steps_per_pass, one.rows) == (4, 256)
