"""The table of choices: its names, blocks that change it, and the programs that follow."""

import pathlib
import re

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import inspect
from sciml._choices import Choices, choices, names
from sciml._jax.programs import equations
from sciml.inspect._program_facts import facts_of
from tests.choices_page import WRITTEN, page

SRC = pathlib.Path(sciml.__file__).parent
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


def decay(t, y, args):
    return jax.tree.map(jnp.negative, y)


def stops(t, y, args):
    return y[0] - 0.5


MANY = jnp.ones((64, 2))
FEW_STAGES = dict(rtol=1e-3, solver=diffrax.Bosh3())
LARGE = {f"y{i}": jnp.ones(()) for i in range(3)}


@pytest.mark.parametrize(
    "name, value, y0, options",
    [
        ("batching.one_by_one_from", 2, MANY, dict(dt=0.1)),
        ("batching.packed_from", 2, jax.tree.map(lambda x: jnp.ones(64), LARGE), dict(dt=0.1)),
        ("loops.two_steps_from", 2, MANY, dict(**FEW_STAGES)),
        ("saves.step_work", 0, MANY, dict(**FEW_STAGES, saveat=jnp.array([0.3, 1.0]))),
        ("refill.lanes_at_least", 8, MANY, dict(**FEW_STAGES, batching="refill")),
        ("events.gather_from", 2, MANY, dict(**FEW_STAGES, events=sciml.Event(stops))),
    ],
)
def test_a_report_says_what_selected_a_program(name, value, y0, options):
    def run(y0):
        return sciml.solve(decay, y0, t0=0.0, t1=1.0, throw=False, **options).ys

    def selected(value):
        with inspect.choose({name: value}):
            return facts_of(jax.make_jaxpr(jax.vmap(run))(y0)).choices

    assert selected(value)[name] == value
    assert name not in selected(0 if name.endswith("at_most") else 10**9)


def test_a_report_prints_the_reason():
    found = inspect.report(jax.jit(jax.vmap(end)), RATES, jax.ShapeDtypeStruct((3, 2048), RATES.dtype))
    assert "batching.one_by_one_from = 1024 elements of a state. On a CPU, members with larger states" in str(found)


def test_marks_are_of_entries():
    found = {
        name for path in SRC.rglob("*.py") for name in re.findall(r'(?<!def )\bchosen\("([\w.]+)"\)', path.read_text())
    }
    assert len(found) > 8 and found <= set(names())


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
    with inspect.choose({"loops.two_steps_from": 0}):
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


def test_programs_of_the_set_small_are_smaller():
    def size(changes):
        with inspect.choose(changes):
            run = lambda y0: sciml.solve(sciml.models.HIRES(), y0, t0=0.0, t1=1.0, solver=sciml.solvers.Rodas5P()).ys  # noqa: E731
            return sum(1 for _ in equations(jax.make_jaxpr(run)(jnp.ones(8)).jaxpr))

    assert size("small") < 0.75 * size({})
    with pytest.raises(ValueError, match="write one of 'small'"):
        with inspect.choose("fast"):
            pass


def test_the_page_is_of_this_table():
    assert WRITTEN.read_text() == page(), "run `python -m tests.choices_page`"
