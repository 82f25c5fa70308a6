"""Newton's iteration with the factors of one matrix, which ends by the tolerances or by rounding."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, Real

from ..._jax._largest import largest
from ..._jax._loops import while_loop
from ..._jax._vma import match
from ..._types import Y
from ..control._criterion import Criterion
from ._ravel import flattened, unflattened

_MOST = 4
"""How many iterations are tried where the tolerances end them."""

_MOST_TO_ROUNDING = 20
"""How many are where rounding does."""

_SHARE = 0.03
"""What the iteration leaves is at most this share of the tolerances."""

_STILL = 4.0
"""A correction of so many roundings of the state is none."""

_CLOSE = 0.7
"""Where corrections no longer shrink, they have to be below this power of the rounding."""


class Judgement(NamedTuple):
    """What is said of a correction.

    Attributes:
        size: How large it is.
        done: Whether it is the last one that is needed.
        hopeless: Whether more of them would not help.
    """

    size: Real[Array, ""]
    done: Bool[Array, ""]
    hopeless: Bool[Array, ""]


class ByTolerance(eqx.Module):
    """Ends the iteration where what is left, by the rate of convergence, is a small part of the tolerances.

    Attributes:
        criterion: The tolerances.
        y0: The state at the start of the step.
        y1: A guess of that at its end.
    """

    criterion: Criterion
    y0: Y
    y1: Y
    most: ClassVar[int] = _MOST

    def __call__(self, count: Int[Array, ""], correction: Float[Array, " n"], before: Real[Array, ""]) -> Judgement:
        """Judges the correction of a number, after one of a size; infinity where it is the first."""
        size = self.criterion.size(unflattened(correction, self.y0), self.y0, self.y1)
        rtol = self.criterion.rtol.astype(size.dtype)
        enough = jnp.maximum(10 * jnp.finfo(correction.dtype).eps / rtol, jnp.minimum(_SHARE, jnp.sqrt(rtol)))
        rate = size / before  # zero for the first, which comes after infinity
        left = jnp.where(rate < 1, rate / jnp.where(rate < 1, 1 - rate, jnp.ones_like(rate)), jnp.inf) * size
        at_the_end = left * rate ** (self.most - 1 - count).astype(rate.dtype)
        later = count > 0
        # where the rounding of one unknown is much of the tolerance of another, corrections shrink no further
        noise = (size <= _SHARE) & (size >= 0.1 * before) & _is_small(correction, flattened(self.y1))
        done = (size == 0) | (later & (left < enough)) | noise
        return Judgement(size, done, later & ~(at_the_end <= enough))


class ByRounding(eqx.Module):
    """Ends the iteration where corrections are below rounding, or no longer shrink.

    Attributes:
        x: The state at the start of the step.
    """

    x: Float[Array, " n"]
    most: ClassVar[int] = _MOST_TO_ROUNDING

    def __call__(self, count: Int[Array, ""], correction: Float[Array, " n"], before: Real[Array, ""]) -> Judgement:
        """Judges the correction of a number, after one of a size; infinity where it is the first."""
        del count
        eps, tiny = (float(getattr(jnp.finfo(correction.dtype), name)) for name in ("eps", "tiny"))
        size = largest(jnp.abs(correction) / (jnp.abs(self.x) + jnp.abs(correction) + tiny))  # each by its own size
        done = (size <= _STILL * eps) | ((size >= before) & _is_small(correction, self.x))
        return Judgement(size, done, jnp.zeros_like(done))


def _is_small(correction: Float[Array, " n"], x: Float[Array, " n"]) -> Bool[Array, ""]:
    """Returns whether a correction is near rounding."""
    return largest(jnp.abs(correction)) <= float(jnp.finfo(x.dtype).eps) ** _CLOSE * largest(jnp.abs(x))


class Frozen(NamedTuple):
    """A function of a vector, constant to derivatives.

    Attributes:
        run: The function of the vector and of the constants.
        consts: What it closed over.
    """

    run: Callable
    consts: list

    @classmethod
    def of(cls, function: Callable[[Array], Array], x: Float[Array, " n"]) -> "Frozen":
        """Returns a function for vectors like `x`, which may close over what is differentiated."""
        run, consts = jax.closure_convert(function, jax.lax.stop_gradient(x))
        return cls(run, jax.lax.stop_gradient(list(consts)))

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the value."""
        return self.run(x, *self.consts)


class Found(NamedTuple):
    """A root as an iteration has left it.

    Attributes:
        root: The root.
        converged: Whether the iteration did.
        iterations: How many there were.
    """

    root: Float[Array, " n"]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]


def newton(
    residual: Frozen,
    guess: Float[Array, " n"],
    divide: Callable[[PyTree, Array], Array],
    factors: PyTree,
    judge: ByTolerance | ByRounding,
) -> Found:
    """Returns a root of a function, without derivatives.

    Args:
        residual: The function.
        guess: Where to begin.
        divide: `divide(factors, b)`, about the solution of the linearised system.
        factors: What it reads.
        judge: What ends the iteration.
    """
    guess, factors, judge = jax.lax.stop_gradient((guess, factors, judge))

    def iterate(carry: tuple) -> tuple:
        count, z, before, _, _ = carry
        correction = divide(factors, residual(z))
        size, done, hopeless = judge(count, correction, before)
        return count + 1, z - correction, size.astype(z.dtype), done, ~done & ~hopeless & jnp.isfinite(size)

    like: Any = (guess, residual.consts, factors, judge)
    false = jnp.zeros((), bool)
    start = (jnp.zeros((), jnp.int32), guess, jnp.full((), jnp.inf, guess.dtype), false, ~false)
    found = while_loop(lambda c: c[4] & (c[0] < judge.most), iterate, match(start, like), like=like)
    return Found(found[1], found[3], found[0])
