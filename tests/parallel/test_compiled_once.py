"""A sweep compiles its program once, however many devices run it."""

import functools as ft
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import sciml
from sciml import parallel
from sciml._jax import _executables

from .common import devices, same_bits


@pytest.fixture(autouse=True)
def without_a_cache_on_disk():
    """What comes from there cannot be loaded elsewhere, and is compiled for each device."""
    folder = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()


quiet = ft.partial(parallel.sweep, progress=False, block=8)
MEMBERS = np.linspace(0.5, 2.0, 61)


def compiled(caplog, run):
    """Returns what a call returns, and how often it compiled the program of a block."""
    jax.clear_caches()
    caplog.clear()
    jax.config.update("jax_log_compiles", True)  # in all threads
    with caplog.at_level(logging.WARNING):
        result = run()
    jax.config.update("jax_log_compiles", False)
    return result, sum("XLA compilation" in line and "_run_block" in line for line in caplog.messages)


def chain(k):
    """A program that calls LAPACK, has constants of its own, and random keys."""
    matrix = np.diag(np.arange(1.0, 6.0)) + 0.1
    field = lambda t, y, k: -k * (jnp.asarray(matrix, y.dtype) @ y)  # noqa: E731
    options = dict(solver=sciml.solvers.Rosenbrock23(), rtol=1e-3, atol=1e-4, throw=False)
    return sciml.solve(field, jnp.ones(5), t0=0.0, t1=1.0, args=k, **options).ys[-1]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_one_compilation(caplog, count):
    result, times = compiled(caplog, lambda: quiet(chain, MEMBERS, mesh=devices(count)))
    assert times == 1
    assert same_bits(result.values, quiet(chain, MEMBERS, mesh=devices(1)).values)


def test_keys_and_reductions(caplog):
    def noisy(k, key):
        return k * jax.random.normal(key)

    run = lambda count: quiet(noisy, MEMBERS, key=jax.random.key(3), reduce=parallel.Mean(), mesh=devices(count))  # noqa: E731
    result, times = compiled(caplog, lambda: run(4))
    assert times == 1
    np.testing.assert_allclose(result.reduced, run(1).reduced, rtol=1e-6)


def test_what_calls_python_is_compiled_for_each_device(caplog):
    """A compiled program that calls Python holds the address of what it calls."""

    def called(k):
        return jax.pure_callback(lambda x: np.sin(x), jax.ShapeDtypeStruct((), k.dtype), k, vmap_method="expand_dims")

    result, times = compiled(caplog, lambda: quiet(called, MEMBERS, mesh=devices(4)))
    assert times == 4
    np.testing.assert_allclose(result.values, np.sin(MEMBERS), rtol=1e-6)


def test_a_jax_that_cannot_load_it_elsewhere_compiles(caplog, monkeypatch):
    def refuse(*_):
        raise ValueError("another format")

    monkeypatch.setattr(_executables.serialize_executable, "serialize", refuse)
    result, times = compiled(caplog, lambda: quiet(chain, MEMBERS, mesh=devices(3)))
    assert times == 3
    assert same_bits(result.values, quiet(chain, MEMBERS, mesh=devices(1)).values)


def test_with_a_cache_on_disk_every_device_has_its_own(caplog, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    for _ in range(2):  # compiled, then read from the disk
        result, times = compiled(caplog, lambda: quiet(chain, MEMBERS, mesh=devices(2)))
        assert times == 2
        assert same_bits(result.values, quiet(chain, MEMBERS, mesh=devices(1)).values)
