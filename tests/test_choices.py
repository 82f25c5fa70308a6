"""The table of choices: its names, blocks that change it, and the programs that follow."""

import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import inspect
from sciml._choices import Choices, choices, names
from tests.choices_page import WRITTEN, page

RATES = jnp.linspace(1.0, 2.0, 3)


def end(rate, y0=jnp.ones(4)):
    return sciml.solve(lambda t, y, args: -rate * y, y0, t0=0.0, t1=1.0, dt=0.1, throw=False).ys


def test_a_block_changes_the_table():
    assert "events.gather_from" in names() and choices() == Choices()
    with inspect.choose({"events.gather_from": 2}) as table:
        assert choices() is table and table.events.gather_from == 2
        with inspect.choose({"events.gather_share": 3}):
            assert choices().events.gather_from == 2 and choices().events.gather_share == 3
        assert choices() is table
    assert choices() == Choices()


def test_programs_are_those_of_their_block():
    """Also of a function that has been compiled before: the table is in the key."""
    traced = []

    @jax.jit
    def member(rate):
        traced.append(choices().batching.one_by_one_from)
        return end(rate)

    batch = jax.vmap(member)
    expected = batch(RATES)
    for _ in range(2):
        with inspect.choose({"batching.one_by_one_from": 4}):
            ways = inspect.report(jax.jit(batch), RATES).program.ways
            assert jnp.allclose(batch(RATES), expected)
        assert any("one after another" in way for way in ways)
    batch(RATES)
    assert traced == [1024, 4]
    with inspect.choose({"batching.one_by_one_from": 1024}):  # the default
        batch(RATES)
    assert traced == [1024, 4]


def test_calls_from_python_that_are_remembered(monkeypatch):
    """A repeated call of `solve` is decided once for each table."""
    found = []
    one = sciml.solvers._solve._solve
    monkeypatch.setattr(sciml.solvers._solve, "_solve", lambda *args: (found.append(1), one(*args))[1])
    model = sciml.models.LotkaVolterra()

    def call():
        return sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, throw=False).ys

    call(), call()
    assert len(found) == 1
    with inspect.choose({"loops.one_call_at_most": 0}):
        call(), call()
        assert len(found) == 2
    call()
    assert len(found) == 2


@pytest.mark.parametrize(
    "name, value, error, words",
    [
        ("events.gather_fro", 1, ValueError, "write 'events.gather_from'"),
        ("gather_from", 1, ValueError, "no choice 'gather_from'"),
        ("events.gather_from", -1, ValueError, "must not be negative"),
        ("events.gather_from", 1.5, TypeError, "like its default, 1024"),
        ("events.gather_from", True, TypeError, "like its default, 1024"),
        ("kernels.volumes_rows", 32, TypeError, r"like its default, \(32, 16, 8\)"),
    ],
)
def test_wrong_entries(name, value, error, words):
    with pytest.raises(error, match=words):
        with inspect.choose({name: value}):
            pass


def test_the_page_is_of_this_table():
    assert WRITTEN.read_text() == page(), "run `python -m tests.choices_page`"
