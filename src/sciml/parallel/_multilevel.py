r"""Multilevel Monte Carlo: means of functions of paths, from many coarse paths and few fine ones.

With $2^l$ times the steps of the coarsest level, $P_l$ is a function of a path. Its mean is a sum of corrections,

$$E[P_L] = E[P_0] + \sum_{l = 1}^L E[P_l - P_{l - 1}],$$

each estimated from independent pairs of a fine and a coarse path with the same noise. The variance of a pair falls with
its level, so fine levels need few samples. With $V_l$ the variance and $C_l$ the steps of a sample, the least work for
a given variance of the sum takes numbers of samples in proportion to $\sqrt{V_l / C_l}$.

Source:
    M. B. Giles, Multilevel Monte Carlo path simulation, Operations Research 56 (2008) 607; Multilevel Monte Carlo
    methods, Acta Numerica 24 (2015) 259, algorithm 1.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from .._checks import check_call, check_key
from .._jax.programs._reading import used_inputs
from .._status import Status
from .._types import Key
from ..solvers.noise._brownian import CountedSteps, PairedSteps
from ..solvers.noise._random_bits import words_of
from ._blocks import check_block
from ._ensemble import ensemble
from ._per_device import is_tracing

_BIAS_SHARE = 0.25  # of the square of the error, for the bias: its estimate is within a factor of two
_FIRST_LEVELS = 3  # the least from which a rate can be estimated
_SLOWEST_RATE = 0.5  # of the bias, as of the Euler method with a function that jumps
_LEAST_FALL = 0.5  # of a mean or variance from level to level, in case a sample makes it too small by chance


class MultilevelResult(NamedTuple):
    """The result of `multilevel`.

    Attributes:
        mean: The estimate, with the structure of the function's result.
        standard_error: The standard error of each mean, from the variances of the levels.
        bias: The estimated error of each mean by the steps of the finest level.
        status: `Status.successful`; `Status.max_steps_reached` if the finest level allowed has too large a bias, and
            `Status.nonfinite` if a sample was not finite.
        samples: The number of samples of each level.
        variances: The variance of a sample of each level, a PyTree of arrays whose first axis is over levels.
        n_steps: The number of steps of all paths.
    """

    mean: PyTree
    standard_error: PyTree
    bias: PyTree
    status: Status
    samples: np.ndarray
    variances: PyTree
    n_steps: int


def multilevel(
    fn: Callable[..., PyTree],
    shared: PyTree = None,
    *,
    key: Key,
    error: PyTree,
    t1: float,
    t0: float = 0.0,
    steps: int = 1,
    levels: int = 10,
    block: int = 512,
    mesh: Mesh | None = None,
) -> MultilevelResult:
    r"""Estimates means of functions of noisy paths to a given error, by multilevel Monte Carlo.

    `fn` solves a stochastic equation in steps of `dt` on a path, `sciml.solve(..., dt=dt, key=path)`, and returns
    numbers. It runs on many paths with few steps and on few paths with many steps; a fine path and a coarse one share
    their noise. The numbers of samples and levels are chosen for the least work. With methods of strong order 1 the
    work is $O(\varepsilon^{-2})$ for an error $\varepsilon$, as if paths were exact. Standard Monte Carlo needs
    $O(\varepsilon^{-3})$ with `diffrax.Euler()`.

    For derivatives of the mean, return them: `jax.value_and_grad` within `fn` gives pathwise derivatives, with their
    own errors. They need a function without jumps. The samples do not depend on the number of devices, to the last bit.

    Args:
        fn: The function, `fn(path, dt)`, or `fn(path, dt, shared)` if `shared` is given. It must pass both arguments to
            `sciml.solve`, with `t0` and `t1` as here, and without events.
        shared: Values that all samples share, a PyTree.
        key: A random key.
        error: The root mean square error of the estimates, positive: one number, or a PyTree like the result of `fn`.
        t1: The end of the paths.
        t0: The start of the paths.
        steps: The number of steps of the coarsest paths.
        levels: The number of times that steps may be halved.
        block: The number of samples that run side by side; the number of samples of each level is a multiple.
        mesh: The devices, from `sciml.parallel.mesh`; by default all.

    Returns:
        A `MultilevelResult`.

    Raises:
        ValueError: If `error`, `steps`, `levels` or `block` is not positive, `t1` not after `t0`, or the result of `fn`
            depends on no path or on no step.
        TypeError: If `fn` is not callable, or the call is traced.

    Example:
        ```python
        import diffrax
        import jax
        import jax.numpy as jnp
        import sciml

        def price(path, dt, volatility):
            stock = sciml.Stochastic(lambda t, y, args: 0.05 * y, lambda t, y, args: args * y)
            sol = sciml.solve(
                stock, 1.0, t0=0.0, t1=1.0, dt=dt, args=volatility, key=path, solver=diffrax.ItoMilstein()
            )
            return jnp.exp(-0.05) * jnp.maximum(sol.ys[-1] - 1.0, 0.0)

        found = sciml.parallel.multilevel(
            lambda path, dt: jax.value_and_grad(lambda v: price(path, dt, v))(0.2),
            key=jax.random.key(0), error=0.005, t1=1.0,
        )
        value, vega = found.mean
        assert abs(value - 0.1045) < 0.02 and abs(vega - 0.3752) < 0.02
        ```
    """
    if not callable(fn):
        raise TypeError(f"`multilevel`: `fn` must be callable, got {type(fn).__name__}.")
    check_call(fn, "fn(path, dt)" if shared is None else "fn(path, dt, shared)", "`multilevel`: `fn`")
    if is_tracing():
        raise TypeError("`multilevel` chooses its samples from Python: call it outside of `jax.jit` and `jax.grad`.")
    for name, value in (("steps", steps), ("levels", levels)):
        if isinstance(value, bool) or operator.index(value) < 1:
            raise ValueError(f"`multilevel`: `{name}` must be a positive number, got {value!r}.")
    if not float(t1) > float(t0):
        raise ValueError(f"`multilevel`: `t1` must come after `t0`={t0!r}, got {t1!r}.")
    key = check_key(key, "multilevel")
    run = _Levels(fn, shared, key, float(t0), float(t1), steps, check_block(block, where="multilevel"), mesh)
    run.check_inputs()
    blocks = [1] * min(_FIRST_LEVELS, levels + 1)
    while True:
        run.fill(blocks)
        tolerance = run.tolerance(error)
        means, variances = run.means(), run.variances()
        if not all(np.isfinite(x).all() for x in (means, variances)):
            return run.result(Status.nonfinite, np.full(means.shape[1], np.nan))
        rate = _rate(np.abs(means / tolerance).max(axis=1))
        spread = _regular((variances / tolerance**2).max(axis=1), 2 * rate)
        work = run.work(len(blocks))
        wanted = np.sqrt(spread / work) * np.sqrt(spread * work).sum() / (1 - _BIAS_SHARE)
        wanted = [max(have, math.ceil(n / run.block)) for have, n in zip(blocks, wanted)]
        if any(n > 1.01 * have for n, have in zip(wanted, blocks)):
            blocks = wanted
            continue
        last = np.abs(means[-1]), np.abs(means[-2]) / 2**rate if len(means) > 2 else 0.0
        bias = np.maximum(*last) / (2**rate - 1)
        if np.all(bias <= math.sqrt(_BIAS_SHARE) * tolerance):
            return run.result(Status.successful, bias)
        if len(blocks) > levels:
            return run.result(Status.max_steps_reached, bias)
        blocks = [*wanted, 1]


def _rate(means: np.ndarray) -> float:
    """Returns the power of the step size by which corrections fall, from their sizes."""
    sizes = np.log2(np.maximum(means[1:], np.finfo(float).tiny))
    if len(sizes) < 2:
        return 1.0
    return max(_SLOWEST_RATE, -float(np.polyfit(np.arange(len(sizes)), sizes, 1)[0]))


def _regular(sizes: np.ndarray, rate: float) -> np.ndarray:
    """Returns numbers of levels, of which none falls much faster than the rate allows."""
    sizes = sizes.copy()
    for level in range(2, len(sizes)):
        sizes[level] = max(sizes[level], _LEAST_FALL * sizes[level - 1] / 2**rate)
    return sizes


class _Pair(eqx.Module):
    """A sample of a level: the difference between a fine and a coarse path, or the coarsest path."""

    fn: Any
    t0: float = eqx.field(static=True)
    coarsest: bool = eqx.field(static=True)

    def __call__(self, number: Any, common: Any) -> PyTree:
        key, dt, shared = common
        fine = CountedSteps(words_of(jax.random.fold_in(key, number)), jnp.full_like(dt, self.t0), dt)
        more = () if shared is None else (shared,)
        found = self.fn(fine, dt, *more)
        if self.coarsest:
            return found
        return jax.tree.map(jnp.subtract, found, self.fn(PairedSteps(fine), 2 * dt, *more))


class _Levels:
    """The samples of all levels, as sums of numbers and of their squares."""

    def __init__(self, fn, shared, key, t0, t1, steps, block, mesh):
        self.fn, self.shared, self.key, self.mesh = fn, shared, key, mesh
        self.t0, self.t1, self.steps, self.block = t0, t1, steps, block
        self.sums: list[np.ndarray] = []
        self.squares: list[np.ndarray] = []
        self.counts: list[int] = []
        self.like: Any = None

    def check_inputs(self) -> None:
        """Checks that what the function returns depends on the path and on the step.

        Raises:
            ValueError: If it does not.
        """
        dt, more = self._step(0), () if self.shared is None else (self.shared,)
        path = CountedSteps(words_of(self.key), jnp.full_like(dt, self.t0), dt)
        program = jax.make_jaxpr(lambda path, dt: self.fn(path, dt, *more))(path, dt)
        *by_path, by_step = used_inputs(program.jaxpr)
        for used, name, why in (
            (any(by_path), "path", "a sample is not random"),
            (by_step, "dt", "all levels would take the same steps"),
        ):
            if not used:
                raise ValueError(
                    f"`multilevel`: the result of `fn` must depend on `{name}`, but does not, so that {why}. Pass both "
                    "to the solve: `sciml.solve(..., dt=dt, key=path)`."
                )

    def _step(self, level: int) -> jax.Array:
        """Returns the step of a level."""
        return jnp.asarray((self.t1 - self.t0) / (self.steps * 2**level))

    def _run(self, level: int, first: int, count: int) -> np.ndarray:
        """Returns samples of a level as rows of numbers."""
        dt = self._step(level)
        common = jax.random.fold_in(self.key, level), dt, self.shared
        numbers = np.arange(first, first + count, dtype=np.uint32)
        found = ensemble(_Pair(self.fn, self.t0, level == 0), numbers, common, mesh=self.mesh, block=self.block)
        leaves, structure = jax.tree.flatten(found)
        self.like = structure, [x.shape[1:] for x in leaves]
        return np.concatenate([np.asarray(x, np.float64).reshape(count, -1) for x in leaves], axis=1)

    def fill(self, blocks: list[int]) -> None:
        """Draws samples until each level has its number of blocks."""
        for level, wanted in enumerate(blocks):
            if level == len(self.counts):
                self.counts.append(0)
                self.sums.append(np.zeros(()))
                self.squares.append(np.zeros(()))
            have = self.counts[level]
            if wanted * self.block > have:
                rows = self._run(level, have, wanted * self.block - have)
                self.sums[level] = self.sums[level] + rows.sum(axis=0)
                self.squares[level] = self.squares[level] + (rows**2).sum(axis=0)
                self.counts[level] += len(rows)

    def tolerance(self, error: PyTree) -> np.ndarray:
        """Returns the error of each number.

        Raises:
            ValueError: If one of them is not positive, or they do not fit the result of the function.
        """
        structure, shapes = self.like
        each = jax.tree.leaves(error)
        if len(each) == 1:
            each = each * len(shapes)
        if len(each) != len(shapes):
            raise ValueError(
                f"`multilevel`: `error` must be one number or one for each of the {len(shapes)} leaves of the result "
                f"of `fn`, got {len(each)}."
            )
        each = [np.broadcast_to(np.asarray(x, np.float64), shape).reshape(-1) for x, shape in zip(each, shapes)]
        found = np.concatenate(each)
        if not np.all(found > 0):
            raise ValueError(f"`multilevel`: `error` must be positive, got {error!r}.")
        return found

    def means(self) -> np.ndarray:
        """Returns the means of all levels, a row for each."""
        return np.stack([total / count for total, count in zip(self.sums, self.counts)])

    def variances(self) -> np.ndarray:
        """Returns the variances of the samples of all levels, a row for each."""
        squares = np.stack([total / count for total, count in zip(self.squares, self.counts)])
        return np.maximum(squares - self.means() ** 2, 0.0)

    def work(self, levels: int) -> np.ndarray:
        """Returns the number of steps of a sample of each level."""
        fine = self.steps * 2.0 ** np.arange(levels)
        return fine + np.where(np.arange(levels) > 0, fine / 2, 0.0)

    def result(self, status: Status, bias: np.ndarray) -> MultilevelResult:
        """Returns the estimate, with what is known of its error."""
        structure, shapes = self.like
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

        def shaped(numbers: np.ndarray) -> PyTree:
            parts = np.split(numbers, ends, axis=-1)
            rows = numbers.shape[:-1]
            return jax.tree.unflatten(structure, [x.reshape(rows + shape) for x, shape in zip(parts, shapes)])

        counts, variances = np.array(self.counts), self.variances()
        return MultilevelResult(
            shaped(self.means().sum(axis=0)),
            shaped(np.sqrt((variances / counts[:, None]).sum(axis=0))),
            shaped(bias),
            status,
            counts,
            shaped(variances),
            int((counts * self.work(len(counts))).sum()),
        )
