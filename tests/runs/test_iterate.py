"""Long runs of the user's own steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.runs import SteadyState, WallTime, iterate, read_run
from sciml.stores import NpzStore, StoreError

pytestmark = pytest.mark.x64

KEY = jax.random.key(7)


def ising(state, key):
    """One sweep of the two-dimensional Ising model, black cells then white ones."""
    spins, flips = state["spins"], state["flips"]
    black = (jnp.arange(8)[:, None] + jnp.arange(8)[None, :]) % 2 == 0
    for cells, k in zip((black, ~black), jax.random.split(key)):
        around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
        gain = 2.0 * (spins * around).astype(jnp.float32)
        flip = cells & (jax.random.uniform(k, spins.shape, jnp.float32) < jnp.exp(-0.5 * gain))
        spins, flips = jnp.where(flip, -spins, spins), flips + jnp.sum(flip, dtype=flips.dtype)
    return {"spins": spins, "flips": flips}


def start():
    return {"spins": jnp.ones((8, 8), jnp.int8), "flips": jnp.zeros((), jnp.int32)}


def call(**options):
    return iterate(ising, start(), 103, **(dict(key=KEY, save_every=10, progress=False) | options))


@pytest.fixture(scope="module")
def by_hand():
    state, frames = start(), []
    step = jax.jit(ising)
    for n in range(103):
        frames.append(state)
        state = step(state, jax.random.fold_in(KEY, n))
    return frames[::10], state


def test_frames_are_those_of_a_loop(by_hand):
    run = call()
    assert run.ts.tolist() == list(range(0, 101, 10)) and run.finished and run.reason == "reached step = 103"
    for frame, other in zip(run, by_hand[0], strict=True):
        jax.tree.map(np.testing.assert_array_equal, frame, other)
    jax.tree.map(np.testing.assert_array_equal, run.y, by_hand[1])
    assert int(run.accepted) == 103 and int(run.t_reached) == 103


def test_resumed_has_the_same_bits(tmp_path, choose, by_hand):
    choose({"runs.frames": 2**9})  # many blocks
    calls = 1
    options = dict(store=tmp_path / "run", segment_steps=7, checkpoint_every=0.0)
    while not (run := call(**options, stop=WallTime(0.0))).finished:
        calls += 1
    assert calls > 10 and len(run.store.numbers()) > 1
    for found in (run, read_run(tmp_path / "run")):
        assert len(found) == 11
        for frame, other in zip(found, by_hand[0], strict=True):
            jax.tree.map(np.testing.assert_array_equal, frame, other)
    assert int(run.y["flips"]) == int(by_hand[1]["flips"])
    with pytest.raises(StoreError, match="`key`"):
        call(**options | dict(key=jax.random.key(8)))


def test_without_frames_or_key():
    run = iterate(lambda n: n + 1, jnp.asarray(0), 10**5, progress=False)
    assert int(run.y) == 10**5 and len(run) == 0


def test_ends(tmp_path):
    run = call(output=lambda s: s["flips"], stop=lambda s: s["flips"] > 100)
    assert "stopped at step = " in run.reason and run.values[-1] > 100 and (run.values[:-1] <= 100).all()
    assert int(run.t_reached) == run.ts[-1]
    run = iterate(jnp.sqrt, jnp.asarray(4.0), 50, save_every=2, progress=False)
    assert len(run) == 26
    run = iterate(lambda x: jnp.log(x), jnp.asarray(4.0), 50, save_every=2, progress=False, throw=False, store=tmp_path)
    assert sciml.Status(int(run.status)) is sciml.Status.nonfinite and run.ts.tolist() == [0, 2]
    assert NpzStore(tmp_path).read_manifest()["kind"] == "iterate" and np.isfinite(run.values).all()
    with pytest.raises(sciml.SolveError, match="simulate|iterate"):
        iterate(lambda x: x * jnp.nan, jnp.asarray(4.0), 5, progress=False)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(state={"a": "x"}), TypeError, r"`state\['a'\]` must be an array"),
        (dict(state=()), ValueError, "`state` contains no array"),
        (dict(n_steps=0), ValueError, r"`iterate\(n_steps="),
        (dict(save_every=0), ValueError, r"`iterate\(save_every="),
        (dict(step=lambda s: s[:1]), ValueError, r"int32\[2\] and becomes int32\[1\]"),
        (dict(step=lambda s: (s, s)), ValueError, "`step` must return the structure of `state`"),
        (dict(stop=SteadyState(), save_every=1), TypeError, "`SteadyState` requires a vector field"),
        (dict(stop=3, save_every=1), TypeError, r"stop\(state\) -> bool"),
        (dict(state=jax.random.key(0), step=lambda s: s, save_every=1), TypeError, "`output`"),
    ],
)
def test_refusals(change, error, words):
    given = dict(step=lambda s: s, state=jnp.zeros(2, jnp.int32), n_steps=3, progress=False) | change
    with pytest.raises(error, match=words):
        iterate(given.pop("step"), given.pop("state"), given.pop("n_steps"), **given)
