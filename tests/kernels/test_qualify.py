"""Kernels that qualify themselves: `impl="auto"` takes what was seen to be right and faster, and nothing else."""

import json
import logging
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import kernels
from sciml.kernels import _cache_file, _qualify, _verdicts, select
from sciml.kernels._volumes import _trial as volumes_trial
from sciml.kernels.ensemble import _trial as ensemble_trial
from sciml.kernels.stencil import AbstractStencilKernel, StencilUpdate, Tiling, _select, _trial, evolve
from sciml.kernels.stencil._reference import step

UPDATE = StencilUpdate(lambda nb, p: nb("u") + p * (nb("u", 1, 0) - 2 * nb("u") + nb("u", -1, 0)))
U = jnp.linspace(0.0, 1.0, 48, dtype=jnp.float32).reshape(8, 6)


class Reference(AbstractStencilKernel):
    """A kernel that is right, since it is the reference."""

    name: ClassVar[str] = "mosaic_gpu"
    sizes: ClassVar[tuple[int, ...]] = (1,)

    def plan(self, update, params, shape, dtype, steps=None, rows=None):
        return Tiling(steps or 1, rows or 1)

    def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
        for _ in range(n_stages):
            state = step(update, state, params, coefficients)
        return state


class Wrong(Reference):
    """One whose last step is missing."""

    def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
        return super().advance(update, params, state, coefficients, n_stages - 1, plan)


class WrongAtWalls(Reference):
    """One that takes every field for periodic."""

    def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
        loose = StencilUpdate(update.fn, fields=update.fields, coefficients=update.coefficients)
        return super().advance(loose, params, state, coefficients, n_stages, plan)


class Infinite(Reference):
    """One that leaves a cell as it found it in memory."""

    def advance(self, *args, **kwargs):
        return tuple(u.at[..., -1].set(jnp.nan) for u in super().advance(*args, **kwargs))


class Broken(Reference):
    """One that the compiler refuses."""

    def advance(self, *args, **kwargs):
        raise NotImplementedError("Mosaic has no layout for this\nand says so at length")


class Interpreted(Reference):
    """The kernel for GPUs, in the interpreter."""

    def __init__(self, ndim):
        self.kernel = kernel_of("mosaic_gpu", ndim)

    kernel: AbstractStencilKernel

    def plan(self, *args, **kwargs):
        return self.kernel.plan(*args, **kwargs)

    def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
        return self.kernel.advance(update, params, state, coefficients, n_stages, plan, True)


class VolumesByXla:
    """A kernel of finite volumes that is right where fields are periodic, since it is the reference."""

    def __init__(self, problem, operands, shape, dtype):
        self.problem = problem

    def __call__(self, y, ghosts, operands):
        return volumes_trial._by_xla(self.problem, operands, y)


kernel_of = _select.kernel_of


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """As if this machine were a GPU that nothing is known of; fields are small."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(_verdicts, "_KNOWN", {})
    monkeypatch.setattr(_trial, "_SMALL", {1: (131,), 2: (21, 35), 3: (9, 10, 12)})
    monkeypatch.setattr(_trial, "_LARGE", {1: (256,), 2: (32, 64), 3: (16, 16, 16)})
    monkeypatch.setattr(_trial, "_STEPS", 5)
    monkeypatch.setattr(volumes_trial, "_SMALL", _trial._SMALL)
    monkeypatch.setattr(volumes_trial, "_LARGE", _trial._LARGE)
    monkeypatch.setattr(ensemble_trial, "_MANY_MEMBERS", 40)
    monkeypatch.setattr(ensemble_trial, "_FEW_MEMBERS", 20)
    monkeypatch.setenv(_cache_file.VARIABLE, str(tmp_path / "kernels.json"))
    return tmp_path / "kernels.json"


def install(monkeypatch, kernel, by_kernel=1.0, by_xla=2.0):
    """Makes a kernel the machine's, and its times known; returns the list of what is timed."""
    timed = []
    make = kernel if isinstance(kernel, type) and kernel is Interpreted else lambda ndim: kernel()
    monkeypatch.setattr(_select, "kernel_of", lambda name, ndim: make(ndim))
    monkeypatch.setattr(_qualify, "kernel_of", lambda name, ndim: make(ndim))
    monkeypatch.setattr(_verdicts, "_times", lambda runs, args: timed.append(1) or [by_kernel, by_xla])
    return timed


def test_what_is_right_and_faster_is_taken(monkeypatch, caplog, machine):
    timed = install(monkeypatch, Reference)
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        chosen = select(UPDATE, U, 0.1)
    assert chosen.backend == "mosaic_gpu" and "2.00 times as fast on cpu with JAX" in chosen.reason
    assert [r.getMessage().partition(" ")[0] for r in caplog.records] == ["trying", "mosaic_gpu"]
    np.testing.assert_allclose(evolve(UPDATE, U, 3, 0.1), evolve(UPDATE, U, 3, 0.1, impl="xla"), rtol=1e-6)
    assert len(timed) == 1


@pytest.mark.parametrize(
    ("kernel", "times", "reason"),
    [
        (Wrong, (1.0, 2.0), "differs from XLA by"),
        (WrongAtWalls, (1.0, 2.0), "differs from XLA by"),
        (Infinite, (1.0, 2.0), "differs from XLA by inf"),
        (Broken, (1.0, 2.0), r"does not run \(NotImplementedError: Mosaic has no layout for this\)"),
        (Reference, (3.0, 2.0), "0.67 times as fast"),
        (Reference, (2.0, 2.0), "1.00 times as fast"),
    ],
)
def test_what_is_not_is_left(monkeypatch, caplog, kernel, times, reason):
    install(monkeypatch, kernel, *times)
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        for _ in range(2):
            chosen = select(UPDATE, U, 0.1)
            assert chosen.backend == "xla"
            with pytest.raises(AssertionError, match=reason):
                raise AssertionError(chosen.reason)
    assert sum("trying" in r.getMessage() for r in caplog.records) == 1
    assert select(UPDATE, U, 0.1, impl="pallas").backend == "mosaic_gpu"  # who asks for it gets it
    np.testing.assert_allclose(evolve(UPDATE, U, 3, 0.1), evolve(UPDATE, U, 3, 0.1, impl="xla"), rtol=1e-6)


def test_verdicts_are_kept_by_kind(monkeypatch, machine):
    timed = install(monkeypatch, Reference)
    select(UPDATE, U, 0.1)
    monkeypatch.setattr(_verdicts, "_KNOWN", {})  # another process
    assert select(UPDATE, U, 0.1).backend == "mosaic_gpu" and len(timed) == 1
    select(
        StencilUpdate(lambda nb, p: nb("u", 1) * p), jnp.ones(8, jnp.float32), 0.1
    )  # one dimension is another kernel
    assert len(timed) == 2
    kept = json.loads(machine.read_text())["verdicts"]
    assert [entry["what"] for entry in kept.values()] == [
        "stencils in 1 dimension, float32",
        "stencils in 2 dimensions, float32",
    ]
    monkeypatch.setattr(_verdicts, "jax_version", lambda: (99, 0))  # another JAX
    monkeypatch.setattr(_verdicts, "_KNOWN", {})
    select(UPDATE, U, 0.1)
    assert len(timed) == 3


@pytest.mark.parametrize("entry", [3, {}, {"kernel": "mosaic_gpu", "taken": "yes"}])
def test_a_damaged_verdict_is_no_verdict(monkeypatch, machine, caplog, entry):
    timed = install(monkeypatch, Reference)
    select(UPDATE, U, 0.1)
    whole = json.loads(machine.read_text())
    whole["verdicts"] = {key: entry for key in whole["verdicts"]}
    machine.write_text(json.dumps(whole))
    monkeypatch.setattr(_verdicts, "_KNOWN", {})
    _cache_file.warn_unused.cache_clear()
    with caplog.at_level(logging.WARNING, "sciml.kernels"):
        assert select(UPDATE, U, 0.1).backend == "mosaic_gpu"
    assert len(timed) == 2 and sum("are not used" in r.getMessage() for r in caplog.records) == 1


def test_in_the_middle_of_a_trace(monkeypatch):
    timed = install(monkeypatch, Reference)

    @jax.jit
    def run(u):
        return jax.vmap(lambda u: evolve(UPDATE, u, 2, 0.1))(jnp.stack([u, 2 * u]))

    def loss(u):
        return jnp.sum(run(u) ** 2)

    with jax.set_mesh(jax.make_mesh((2,), ("x",))):
        found = jax.grad(loss)(U)
    assert len(timed) == 1
    with kernels.use("xla"):
        jax.clear_caches()
        np.testing.assert_allclose(found, jax.grad(loss)(U), rtol=1e-5, atol=1e-6)


def test_ahead_of_time(monkeypatch):
    timed = install(monkeypatch, Reference)
    monkeypatch.setattr(ensemble_trial, "run", broken_run)
    monkeypatch.setattr(_qualify, "volumes_of", lambda name: VolumesByXla)
    found = kernels.qualify()
    kinds = ["float32", "float64"] if jax.config.jax_enable_x64 else ["float32"]
    fields = [f"stencils in {n}, {kind}" for kind in kinds for n in ("1 dimension", "2 dimensions", "3 dimensions")]
    volumes = [what.replace("stencils", "finite volumes") for what in fields]
    assert [v.what for v in found] == [*fields, "ensembles", *volumes]
    assert [v.taken for v in found] == [True] * len(fields) + [False] + [True] * len(volumes)
    assert str(found[0]).startswith("mosaic_gpu for stencils in 1 dimension, float32: used, it agrees with XLA to")
    broken = found[len(fields)]
    assert "does not run (RuntimeError: no such instruction)" in str(broken) and np.isnan(broken.speedup)
    before = len(timed)
    assert kernels.qualify() == found and len(timed) == before
    kernels.qualify(again=True)
    assert len(timed) == 2 * before


def broken_run(*args, **kwargs):
    raise RuntimeError("no such instruction")


def test_nothing_to_qualify_on_a_cpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert kernels.qualify() == ()


@pytest.mark.parametrize("others", [True, False])
def test_several_processes_have_to_agree(monkeypatch, others):
    install(monkeypatch, Reference)
    monkeypatch.setattr(ensemble_trial, "run", broken_run)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    chosen = select(UPDATE, U, 0.1)
    assert chosen.backend == "xla" and "call `sciml.kernels.qualify()` in each of them" in chosen.reason
    from jax.experimental import multihost_utils

    monkeypatch.setattr(multihost_utils, "process_allgather", lambda mine: np.array([mine, others]))
    kernels.qualify()
    assert select(UPDATE, U, 0.1).backend == ("mosaic_gpu" if others else "xla")


@pytest.mark.x64
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_trial_of_stencils_in_the_interpreter(monkeypatch, ndim):
    """The kernel for GPUs passes its own trial, walls, odd sizes and all."""
    install(monkeypatch, Interpreted)
    found = _verdicts._tried("mosaic_gpu", _trial.trial_of(ndim, jnp.float32, lambda name, ndim: Interpreted(ndim)))
    assert found.taken and found.error < 1e-6, found


def test_the_trial_of_ensembles_in_the_interpreter(monkeypatch):
    run = ensemble_trial.run
    monkeypatch.setattr(ensemble_trial, "run", lambda body, members: run(body, members, True))
    monkeypatch.setattr(_verdicts, "_times", lambda runs, args: [1.0, 2.0])
    found = _verdicts._tried("mosaic_gpu", ensemble_trial.trial())
    assert found.taken and found.error < 1e-3, found


def test_an_ensemble_takes_what_was_tried(monkeypatch):
    model, y, rho = sciml.models.Lorenz63(), jnp.ones(3, jnp.float32), None
    monkeypatch.setattr(ensemble_trial, "run", broken_run)
    assert "no such instruction" in kernels.select(model, jnp.float32(0), y, rho).reason
    monkeypatch.setattr(_verdicts, "_KNOWN", {})
    run = ensemble_trial.run
    del run
    monkeypatch.setattr(_verdicts, "_kept", lambda key: None)
    good = _verdicts.Verdict("mosaic_gpu", "ensembles", True, "it is right", 0.0, 2.0)
    monkeypatch.setattr(_verdicts, "_tried", lambda kernel, trial: good)
    assert kernels.select(model, jnp.float32(0), y, rho).backend == "mosaic_gpu"
