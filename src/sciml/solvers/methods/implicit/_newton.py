r"""Newton's iteration with the factors of one matrix: the rule by which it ends, for all implicit methods.

Corrections $d_k$ are measured such that corrections of size one are small enough. They shrink at the rate
$\theta = |d_k| / |d_{k-1}|$, and the error after one is about $\theta / (1 - \theta)\, |d_k|$: if that is small enough,
the iteration has converged. It diverges where corrections grow twofold, or would not come to an end in the iterations
that are allowed. Without a rate, to rounding or with a measure that changes between corrections, it continues until
corrections are small enough or no longer shrink.

Source:
    E. Hairer, G. Wanner, Solving Ordinary Differential Equations II (1996), section IV.8.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, Real

from ...._jax._largest import largest
from ...._jax._loops import while_loop
from ...._jax._vma import closed_over, match
from ...._types import Y
from ...control._criterion import Criterion
from .._ravel import flattened, unflattened

_STILL = 4.0
"""A correction of this number of roundings of the state counts as zero."""

_CLOSE = 0.7
"""If corrections no longer shrink, they must be below this power of the rounding."""

_NOTHING = 1e-3
"""A first correction below this size is believed, whatever the iteration's rate."""

_SHRINKS = 0.1
"""If their rate counts, corrections that do not shrink to this part no longer shrink."""

_DIVERGES = 2.0
"""Corrections that grow so much at once end the iteration."""

_SHARE_OF_TOLERANCES = 0.03
"""The remaining error of a step is at most this share of the tolerances."""


@dataclasses.dataclass(frozen=True)
class Ending:
    """By what an iteration ends.

    Attributes:
        size: `size(correction, root)`: how large a correction is, one where it is just small enough.
        sizes: `sizes(root)`: how large each unknown is, for its rounding.
        most: The maximum number of iterations.
        by_rate: Whether the rate of the corrections counts; otherwise it continues as long as they shrink.
        bearable: Near rounding, corrections up to this size are accepted where they no longer shrink.
        like: The arrays that the functions close over.
    """

    size: Callable[[Array, Array], Real[Array, ""]]
    sizes: Callable[[Array], Array]
    most: int
    by_rate: bool
    bearable: Any
    like: PyTree

    def is_rounding(self, correction: Array, root: Array) -> Bool[Array, ""]:
        """Returns whether a correction is near rounding; of NaN anything, since its size is NaN."""
        eps = float(jnp.finfo(correction.dtype).eps)
        return jnp.max(jnp.abs(correction)) <= eps**_CLOSE * jnp.max(self.sizes(root))


def by_rounding(x: Float[Array, " n"], most: int, rounding: float | None = None) -> Ending:
    """Returns the ending at rounding.

    Args:
        x: The state at the start of the step; roots are increments to it, of one or of more stages.
        most: How many iterations are made at most.
        rounding: The rounding of an unknown relative to its size; None for the rounding of its type.
    """
    x = jax.lax.stop_gradient(x)
    tolerated = None if rounding is None else lambda root: rounding * (jnp.abs(x) + _of_all_stages(root))
    return by_tolerated(x, tolerated, most, by_rate=False, like=None if rounding is None else x)


def by_tolerated(
    x: Float[Array, " n"],
    tolerated: Callable[[Array], Float[Array, " n"]] | None,
    most: int,
    by_rate: bool = True,
    like: PyTree = None,
) -> Ending:
    """Returns the stopping rule by the tolerated error of each unknown, except for rounding.

    Args:
        x: The state at the start of the step; roots are increments to it, of one or of more stages.
        tolerated: `tolerated(root)`, or None for rounding only.
        most: How many iterations are made at most.
        by_rate: As of an `Ending`.
        like: The values that `tolerated` closes over.
    """
    x, like = jax.lax.stop_gradient((x, like))
    eps, tiny = float(jnp.finfo(x.dtype).eps), float(jnp.finfo(x.dtype).tiny)

    def sizes(root: Array) -> Array:
        # of each unknown separately, because their magnitudes may differ; the rounding of zero is also a number
        return jnp.abs(x) + _of_all_stages(root) + tiny / eps

    def size(correction: Array, root: Array) -> Array:
        enough = _STILL * eps * sizes(root)
        if tolerated is not None:
            enough = jnp.maximum(tolerated(root), enough)
        return largest(_of_all_stages(correction) / enough)

    return Ending(size, sizes, most, by_rate, 1.0 if by_rate else jnp.inf, (x, like))


def by_criterion(criterion: Criterion, y0: Y, y1: Y, most: int) -> Ending:
    """Returns the ending at a small part of the tolerances, measured as the error of the step is.

    Args:
        criterion: The tolerances.
        y0: The state at the start of the step.
        y1: A guess of that at its end, to which roots are increments, of one or of more stages.
        most: How many iterations are made at most.
    """
    criterion, y0, y1 = jax.lax.stop_gradient((criterion, y0, y1))
    eps = float(jnp.finfo(flattened(y1).dtype).eps)

    def enough(like: Array) -> Array:
        rtol = criterion.rtol.astype(like.dtype)
        return jnp.maximum(10 * eps / rtol, jnp.minimum(_SHARE_OF_TOLERANCES, jnp.sqrt(rtol)))

    def size(correction: Array, root: Array) -> Array:
        del root
        found = criterion.size(unflattened(_of_all_stages(correction), y0), y0, y1)
        return found / enough(found)

    bearable = _SHARE_OF_TOLERANCES / enough(jnp.ones((), jnp.result_type(criterion.rtol)))
    return Ending(size, lambda root: jnp.abs(flattened(y1)), most, True, bearable, (criterion, y0, y1))


def _of_all_stages(x: Array) -> Array:
    return jnp.abs(x) if x.ndim == 1 else jnp.max(jnp.abs(x), axis=tuple(range(x.ndim - 1)))


class Frozen(NamedTuple):
    """A function of an array, constant to derivatives.

    Attributes:
        run: The function of the array and of the constants.
        consts: The values it closed over.
    """

    run: Callable
    consts: list

    @classmethod
    def of(cls, function: Callable[[Array], Array], x: Array) -> "Frozen":
        """Returns a function for arrays like `x`, which may close over differentiated values."""
        x = jax.lax.stop_gradient(x)
        # a root varies over the axes that anything varies over, and the program is kept for such
        run, consts = jax.closure_convert(function, match(x, closed_over(function, x)))
        return cls(run, jax.lax.stop_gradient(list(consts)))

    def __call__(self, x: Array) -> Array:
        """Returns the value."""
        return self.run(x, *self.consts)


class Found(NamedTuple):
    """A root as an iteration has left it.

    Attributes:
        root: The root.
        converged: Whether the iteration did.
        iterations: How many there were.
        rate: By how much corrections shrank at last.
    """

    root: Array
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    rate: Float[Array, ""]


def newton(
    residual: Frozen,
    guess: Array,
    divide: Callable[[PyTree, Array], Array],
    factors: PyTree,
    ending: Ending,
    rate: Array | None = None,
) -> Found:
    """Returns a root of a function, without derivatives.

    Args:
        residual: The function.
        guess: The start.
        divide: `divide(factors, b)`, about the solution of the linearised system.
        factors: The values it reads.
        ending: The stopping rule of the iteration.
        rate: By how much corrections shrank in a like iteration before; None where that is not known.
    """
    guess, factors, rate = jax.lax.stop_gradient((guess, factors, rate))
    one = jnp.ones((), guess.dtype)

    def iterate(carry: tuple) -> tuple:
        count, root, before, rate, _, _ = carry
        correction = divide(factors, residual(root))
        root = root - correction
        size = ending.size(correction, root).astype(guess.dtype)
        done, hopeless, rate = _judged(ending, count, correction, root, size, before, rate)
        return count + 1, root, size, rate, done, ~done & ~hopeless & jnp.isfinite(size)

    like: Any = (guess, residual.consts, factors, ending.like, rate)
    false = jnp.zeros((), bool)
    start = (jnp.zeros((), jnp.int32), guess, jnp.inf * one, one if rate is None else rate, false, ~false)
    found = while_loop(lambda c: c[5] & (c[0] < ending.most), iterate, match(start, like), like=like)
    return Found(found[1], found[4], found[0], found[3])


def _judged(
    ending: Ending, count: Array, correction: Array, root: Array, size: Array, before: Array, rate: Array
) -> tuple[Bool[Array, ""], Bool[Array, ""], Float[Array, ""]]:
    """Returns whether a correction is the last one that is needed, whether more would not help, and the rate.

    Args:
        ending: The stopping rule of the iteration.
        count: How many corrections came before.
        correction: The correction.
        root: The root with it.
        size: How large it is.
        before: How large the one before was; infinity where it is the first.
        rate: The rate before.
    """
    later = count > 0
    stalls = size >= (_SHRINKS if ending.by_rate else 1.0) * before
    noise = stalls & (size <= jnp.asarray(ending.bearable, size.dtype)) & ending.is_rounding(correction, root)
    if not ending.by_rate:
        return (size <= 1) | noise, jnp.zeros_like(later), rate
    eps = float(jnp.finfo(size.dtype).eps)
    now = jnp.where(later, size / before, jnp.maximum(rate, eps) ** 0.8)
    converges = now < 1
    left = jnp.where(converges, now / jnp.where(converges, 1 - now, now), jnp.inf) * size
    at_the_end = left * now ** (ending.most - 1 - count).astype(now.dtype)
    done = (size <= _NOTHING) | (left <= 1) | noise
    hopeless = later & ((now >= _DIVERGES) | (converges & (at_the_end > 1)))
    return done, hopeless, jnp.where(later, now, rate)
