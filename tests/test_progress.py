"""Progress of long work: one bar and one record, whoever reports."""

import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import parallel
from sciml._progress import Progress


def sweep(**options):
    parallel.sweep(lambda x: jnp.log(x), np.array([-1.0, 1.0, 2.0, 3.0, 4.0]), block=2, **options)


def simulate(**options):
    sciml.simulate(lambda t, y, args: -y, jnp.ones(2), t0=1.0, t1=3.0, dt=0.125, segment_steps=4, **options)


def iterate(**options):
    sciml.runs.iterate(lambda x: x + 1, jnp.zeros(()), 10, segment_steps=4, **options)


def fit(**options):
    x = jnp.arange(10.0)
    sciml.fit(jnp.ones(2), lambda m, y: m[0] + m[1] * x - y, 2.0 + 3.0 * x, **options)


def train(**options):
    def loss(model, batch, key):
        return (model - 1.0) ** 2

    sciml.training.train(jnp.array(0.0), loss, steps=10, check_every=4, **options)


WORK = {"sweep": sweep, "simulate": simulate, "iterate": iterate, "fit": fit, "train": train}
UNITS = {"sweep": "member", "simulate": "time", "iterate": "step", "fit": "step", "train": "step"}
TOTALS = {"sweep": 5, "simulate": 2.0, "iterate": 10, "fit": None, "train": 10}


@pytest.mark.parametrize("name", WORK)
def test_a_function_gets_a_record_after_every_piece(name):
    seen = []
    WORK[name](progress=seen.append)
    assert len(seen) > 1 and all(isinstance(x, Progress) for x in seen)
    done, seconds = [x.done for x in seen], [x.seconds for x in seen]
    assert done == sorted(done) and done[0] > 0 and seconds == sorted(seconds)
    assert {x.unit for x in seen} == {UNITS[name]} and {x.total for x in seen} == {TOTALS[name]}
    assert TOTALS[name] is None or done[-1] == TOTALS[name]
    last = seen[-1]
    assert last.rate == pytest.approx(last.done / last.seconds, rel=0.01)
    assert (last.loss is None) == (name not in ("fit", "train"))
    assert (last.steps is None) == (name not in ("simulate", "iterate"))
    assert last.failed == (1 if name == "sweep" else 0)
    assert name != "simulate" or last.steps == 16


@pytest.mark.parametrize("name", WORK)
def test_a_bar_says_compiling_and_then_what_is_done(name, capsys):
    WORK[name](progress=True)
    *earlier, last = capsys.readouterr().err.split("\r")
    assert "compiling" in "".join(earlier) and "compiling" not in last
    assert name in last and {"sweep": "failed=1", "fit": "loss", "train": "loss"}.get(name, "steps") in last
    WORK[name](progress=False)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("name", WORK)
def test_anything_else_is_refused(name):
    with pytest.raises(TypeError, match="`progress` must be|parameter 'progress'"):
        WORK[name](progress=3)


def test_a_run_that_goes_on_counts_from_where_it_was(tmp_path):
    seen = []
    options = dict(store=tmp_path, checkpoint_every=0.0)
    iterate(stop=sciml.runs.WallTime(0.0), **options, progress=False)
    iterate(**options, progress=seen.append)
    assert seen[0].done > 4 and seen[-1].done == 10 and seen[-1].rate < 10 / seen[-1].seconds
