r"""Adaptive multilevel splitting: probabilities of events that are too rare to be simulated.

$N$ paths run to the end. In each round those that have come least far, by the largest score on their way, are
discarded: about half of them, all up to a score $L$. Each is replaced by a copy of one of the others, chosen at random,
up to where that one first passed $L$, and runs from there with new noise. When $L$ passes the level, with $K_i$
discarded of $N$ in round $i$ and $R$ that reach it in the end,

$$P \approx \frac{R}{N} \prod_i \Big(1 - \frac{K_i}{N}\Big).$$

The mean of this estimate is $P$ for any score; its variance is least if the score grows as the probability does.

Source:
    F. Cerou, A. Guyader, Adaptive multilevel splitting for rare event analysis, Stochastic Analysis and Applications 25
    (2007) 417. No bias, also with ties and at given times: C.-E. Brehier, M. Gazeau, L. Goudenege, T. Lelievre,
    M. Rousset, The Annals of Applied Probability 26 (2016) 3559.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._checks import check_call, check_count, check_key, check_state, concrete
from .._jax._ad_modes import not_differentiated
from .._jax._loops import scan, while_loop
from .._same_code import filter_jit
from .._status import Status
from .._types import Key, RealScalarLike, Y
from ._ensemble import ensemble

_KEPT = 0.5
"""The share of the paths that a round keeps, about. More kept take more rounds; the error hardly depends on it."""

_NO_DERIVATIVE = (
    "The estimate of `splitting` has no useful derivative: which paths are copied does not change with a small change "
    "of a parameter. Estimate it at two values with the same key, or differentiate `FokkerPlanck.quasi_stationary`."
)


class SplittingResult(NamedTuple):
    """The result of `splitting`.

    Attributes:
        probability: The estimate.
        standard_error: Its standard error, from the repeats; NaN for one.
        ys: The paths in the end, a PyTree like the state with repeats, paths and times first.
        reached: Which of them reach the level: they have the law of paths given that they do.
        rounds: The number of rounds of each repeat.
        status: `Status.successful`; `Status.max_steps_reached` if the rounds did not suffice, and `Status.nonfinite` if
            a score or the level was NaN.
    """

    probability: Float[Array, ""]
    standard_error: Float[Array, ""]
    ys: PyTree
    reached: Bool[Array, "repeats paths"]
    rounds: Int[Array, " repeats"]
    status: Int[Array, ""]


def splitting(
    advance: Callable[[RealScalarLike, Y, Key], Y],
    y0: Y,
    score: Callable[[RealScalarLike, Y], RealScalarLike],
    *,
    level: RealScalarLike,
    ts: Float[Array, " times"],
    key: Key,
    paths: int = 256,
    repeats: int = 8,
    max_rounds: int = 1000,
    mesh: Mesh | None = None,
) -> SplittingResult:
    r"""Estimates the probability that a random path passes a level, also if it is tiny: importance splitting.

    $$P\big(\max_i s(t_i, y(t_i)) \ge \mathrm{level}\big)$$

    Paths that have come far are copied, and the others discarded, until paths reach the level. The work grows with the
    logarithm of the probability, and not with its reciprocal. The estimate has no bias for any score.

    A score that increases with the chance of success gives a small error. If the standard error is not small, take more
    `paths`: if there are several ways to the level, all must be found by chance.

    Args:
        advance: `advance(t, y, key)` returns the state at the next of `ts`; usually it solves a stochastic model.
        y0: The state at the first time.
        score: `score(t, y)`, a number that grows as a state comes nearer to the event.
        level: The score from which the event has happened.
        ts: The times at which the score is read, of shape `(times,)`, evenly spaced or not. An event between two of
            them is missed.
        key: A random key.
        paths: The number of paths that run side by side.
        repeats: How often all is repeated, for the standard error.
        max_rounds: The most rounds of a repeat. Each halves the probability, about.
        mesh: The devices over which repeats are spread; see `ensemble`.

    Returns:
        A `SplittingResult`.

    Raises:
        ValueError: If a number is not positive, `ts` does not ascend or has one time, the score is an array, the level
            is NaN, or `advance` returns another kind of state.
        TypeError: If `advance` or `score` is not callable, or the result is differentiated.

    Example:
        ```python
        import diffrax
        import jax
        import jax.numpy as jnp
        import sciml

        particle = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: jnp.sqrt(2.0))

        def advance(t, y, key):
            return sciml.solve(particle, y, t0=t, t1=t + 0.1, dt=0.05, key=key, solver=diffrax.Euler()).ys[-1]

        found = sciml.parallel.splitting(
            advance, jnp.array(0.0), lambda t, y: y, level=4.0, ts=jnp.linspace(0.0, 2.0, 21), key=jax.random.key(0)
        )
        assert 1e-4 < found.probability < 6e-4
        ```
    """
    for fn, name, call in ((advance, "advance", "advance(t, y, key)"), (score, "score", "score(t, y)")):
        if not callable(fn):
            raise TypeError(f"`splitting`: `{name}` must be callable, got {type(fn).__name__}.")
        check_call(fn, call, f"`splitting`: `{name}`")
    y0, ts = check_state(y0), jnp.asarray(ts)
    ts = ts if jnp.issubdtype(ts.dtype, jnp.floating) else ts.astype(jnp.result_type(float))
    if ts.ndim != 1 or len(ts) < 2:
        raise ValueError(f"`splitting`: `ts` must have shape `(times,)` with at least two times, got shape {ts.shape}.")
    if concrete(ts) and not np.all(np.diff(np.asarray(ts, np.float64)) > 0):
        raise ValueError("`splitting`: `ts` must be finite and ascending.")
    shape = jnp.shape(jax.eval_shape(score, ts[0], y0))
    if shape != ():
        raise ValueError(f"`splitting`: `score` must return one number, but returns an array of shape {shape}.")
    paths, repeats, rounds = (
        check_count(value, name, "splitting")
        for value, name in ((paths, "paths"), (repeats, "repeats"), (max_rounds, "max_rounds"))
    )
    if paths < 2:
        raise ValueError("`splitting`: `paths` must be at least 2: paths that are discarded are replaced by others.")
    keys = jax.random.split(check_key(key, "splitting"), repeats)
    level = jnp.asarray(level, jnp.result_type(float))
    if level.ndim or concrete(level) and np.isnan(level):
        raise ValueError(f"`splitting`: `level` must be a number, but is {level}.")
    kinds = [
        [(x.shape, x.dtype.name) for x in jax.tree.leaves(state)]
        for state in (y0, jax.eval_shape(advance, ts[0], y0, keys[0]))
    ]
    if kinds[0] != kinds[1]:
        raise ValueError(f"`splitting`: `advance` must return a state like `y0`, {kinds[0]}, but returns {kinds[1]}.")
    return _splitting(advance, y0, score, (level, ts), keys, (paths, rounds), mesh)


@filter_jit
def _splitting(
    advance: Callable, y0: Y, score: Callable, numbers: tuple, keys: Array, options: tuple, mesh: Any
) -> SplittingResult:
    level, ts = numbers

    def one(key: Key, shared: tuple) -> _Round:
        return _one(advance, score, *shared, key, *options)

    last = ensemble(one, keys, (y0, level, ts), mesh=mesh)
    reached = last.best >= level
    found = last.share * jnp.mean(reached.astype(last.share.dtype), axis=1)
    bad = jnp.any(jnp.isnan(last.best)) | jnp.isnan(level)
    short = jnp.any(~last.ended)
    status = jnp.where(bad, int(Status.nonfinite), jnp.where(short, int(Status.max_steps_reached), 0))
    mean = jnp.where(status == 0, jnp.mean(found), jnp.nan)
    count = len(keys)
    error = jnp.std(found, ddof=1) / count**0.5 if count > 1 else jnp.full_like(mean, jnp.nan)
    numbers = not_differentiated((mean, jnp.where(status == 0, error, jnp.nan), last.ys), _NO_DERIVATIVE)
    return SplittingResult(*numbers, reached, last.number, status.astype(jnp.int32))


class _Round(NamedTuple):
    """The paths after a round.

    Attributes:
        ys: Their states, with paths and times first.
        scores: The scores there.
        best: The largest score of each.
        share: The share of all paths that they stand for.
        number: The number of rounds.
        ended: Whether none is needed any more, or none is left.
        key: The key of the next round.
    """

    ys: PyTree
    scores: Array
    best: Array
    share: Array
    number: Array
    ended: Array
    key: Key


def _one(advance: Callable, score: Callable, y0: Y, level: Array, ts: Array, key: Key, paths: int, most: int) -> _Round:
    """Runs paths until enough of them reach the level."""
    kept = jax.tree.map(lambda y: jnp.broadcast_to(y, (paths, len(ts), *jnp.shape(y))), y0)
    read = jax.vmap(jax.vmap(score), (None, 0))
    discarded = max(1, round((1 - _KEPT) * paths))

    def run(key: Key, until: Array, old: PyTree) -> PyTree:
        """Returns a path that follows another one up to a row, and then goes its own way."""

        def step(y: Y, row: tuple) -> tuple[Y, Y]:
            number, t, known = row
            new = advance(t, y, jax.random.fold_in(key, number))
            new = jax.tree.map(lambda a, b: jnp.where(number < until, b, jnp.asarray(a, b.dtype)), new, known)
            return new, new

        first = jax.tree.map(lambda y: y[0], old)
        rows = (jnp.arange(len(ts) - 1, dtype=jnp.int32), ts[:-1], jax.tree.map(lambda y: y[1:], old))
        _, rest = scan(step, first, rows, like=(key, until, y0))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)

    def after(key: Key, until: Array, old: PyTree, share: Array, number: Array, gone: Array | None) -> _Round:
        key, own = jax.random.split(key)
        new = jax.vmap(run)(jax.random.split(own, paths), until, old)
        scores = read(ts, new).astype(level.dtype)
        best = jnp.max(scores, axis=1)
        lost = jnp.zeros((), bool) if gone is None else gone
        ended = lost | (jnp.sort(best)[discarded - 1] >= level) | jnp.any(jnp.isnan(best))
        return _Round(new, scores, best, share, number, ended, key)

    def again(c: _Round) -> _Round:
        passed = jnp.sort(c.best)[discarded - 1]
        stay = c.best > passed
        count = jnp.sum(stay, dtype=jnp.int32)
        key, choice = jax.random.split(c.key)
        survivors = jnp.argsort(~stay, stable=True).astype(jnp.int32)
        chosen = survivors[jax.random.randint(choice, (paths,), 0, jnp.maximum(count, 1), jnp.int32)]
        parent = jnp.where(stay, jnp.arange(paths, dtype=jnp.int32), chosen)
        branched = jnp.argmax(c.scores[parent] > passed, axis=1).astype(jnp.int32)
        until = jnp.where(stay, len(ts), branched)
        old = jax.tree.map(lambda y: y[parent], c.ys)
        share = c.share * count.astype(c.share.dtype) / paths
        return after(key, until, old, share, c.number + 1, count == 0)

    start = after(key, jnp.zeros(paths, jnp.int32), kept, jnp.ones_like(level), jnp.zeros((), jnp.int32), None)
    return while_loop(lambda c: ~c.ended & (c.number < most), again, start, like=(key, y0, level, ts))
