"""The report on the environment names what is set and what is wrong, and soon."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import inspect
from sciml.inspect import _environment
from tests import conftest


def test_it_says_what_is_set(monkeypatch):
    monkeypatch.setenv("JAX_SOME_SETTING", "seen")
    monkeypatch.setattr(_environment, "_TESTS", ())
    found = inspect.environment()
    assert found.versions["jax"] == jax.__version__ and found.versions["numpy"] == np.__version__
    assert found.devices == {jax.devices()[0].device_kind: jax.device_count()}
    assert found.settings["jax_enable_x64"] == conftest.X64
    assert found.variables["JAX_SOME_SETTING"] == "seen" and "XLA_FLAGS" in found.variables
    assert found.healthy == (not found.known)
    text = str(found)
    assert f"jax {jax.__version__}" in text and f"enable_x64={conftest.X64}" in text and "JAX_SOME_SETTING=seen" in text


@pytest.mark.optimised
def test_canaries_in_two_seconds():
    inspect.environment()  # what imports and first programs take
    jax.clear_caches()
    start = time.process_time()
    found = inspect.environment()
    assert time.process_time() - start < 4  # of all threads; seldom more than one
    by_source = {canary.source: canary for canary in found.canaries}
    assert {"openxla/xla#49176", "openxla/xla#49118", "jax-ml/jax#40101"} <= by_source.keys()
    assert "openxla/xla#49119" not in by_source  # it concerns GPUs
    assert by_source["jax-ml/jax#40101"].healthy  # this jaxlib is not 0.11.1
    for canary in found.canaries:
        assert str(canary) in str(found)


def test_what_is_right_without_compilation_is_right():
    """Operation by operation no fault of the compiler shows: what a canary is compared with is right."""
    with jax.disable_jit():
        for test in _environment._TESTS:
            of_one_operation = test.run is _environment._lost_nan  # which is wrong by itself
            if test.effect == "wrong numbers" and test.devices == 1 and not of_one_operation:
                assert test.run(), test.name


def test_a_sick_canary_says_what_to_do(monkeypatch):
    sick = _environment._Test("a sum", lambda: False, "wrong numbers", "somewhere#1", "Add by hand.")
    elsewhere = sick._replace(platforms=("tpu",))
    monkeypatch.setattr(_environment, "_TESTS", (sick, elsewhere))
    found = inspect.environment()
    assert not found.healthy and len(found.canaries) == 1
    assert "canary: a sum: WRONG NUMBERS (somewhere#1). Add by hand." in str(found)


def test_products_of_few_digits_are_found():
    def rounded(x):
        x = x.astype(jnp.bfloat16)
        return jnp.matmul(x, x, preferred_element_type=jnp.float32)

    assert _environment._product() and not _environment._product(rounded)
