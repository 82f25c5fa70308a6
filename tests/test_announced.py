"""The line that says what is compiled, where somebody waits."""

import sys
import time

import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import _announced


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(_announced, "_SECONDS", 0.01)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)


def slow(rate):
    def field(t, y, args):
        time.sleep(0.05)
        return -rate * jnp.cos(y)

    return field


def test_a_long_compilation_is_announced_once_with_the_line_of_the_call(soon, capsys):
    model = slow(1.5)
    sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0)  # this line
    said = capsys.readouterr().err
    assert said.count("sciml compiles line") == 1 and "# this line" in said and "test_announced.py" in said
    sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0)
    assert "sciml compiles" not in capsys.readouterr().err


def test_a_gradient_is_announced_once(soon, capsys):
    model = slow(2.5)
    jax.grad(lambda y0: jnp.sum(sciml.solve(model, y0, t0=0.0, t1=1.0).ys))(jnp.ones(2))
    assert capsys.readouterr().err.count("sciml compiles line") == 1


def test_nothing_is_announced_below_a_bar_or_in_a_script(soon, capsys, monkeypatch):
    def fit(rate, **options):
        residuals = lambda k, data: sciml.solve(slow(rate), k, t0=0.0, t1=1.0).ys[-1] - data  # noqa: E731
        sciml.fit(jnp.ones(1), residuals, jnp.ones(1), covariance=False, throw=False, max_steps=2, **options)

    fit(3.5, progress=False)
    assert 1 <= capsys.readouterr().err.count("sciml compiles") <= 2  # of its programs, those of one line once
    fit(4.0, progress=True)
    _, bar, after = capsys.readouterr().err.partition("fit (")
    assert bar and "sciml compiles" not in after
    monkeypatch.delattr(sys, "ps1")
    sciml.solve(slow(4.5), jnp.ones(2), t0=0.0, t1=1.0)
    assert "sciml compiles" not in capsys.readouterr().err


def test_an_error_while_tracing_ends_the_wait(soon, capsys):
    def field(t, y, args):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        sciml.solve(field, jnp.ones(2), t0=0.0, t1=1.0)
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == "" and _announced._WAIT.timer is None
