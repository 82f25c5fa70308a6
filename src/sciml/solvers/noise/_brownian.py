r"""Brownian motion as a function of a key and an interval of time: over counted steps, or on a tree of halves.

Counted steps take the numbers that belong to the number of the step: one draw for each Brownian motion and step. A tree
gives any interval its increment, so that steps of any length, also those that are rejected, see one path. For a node of
length $l$ it stores the increment $W$ and the space-time Levy area $H$, which determine $W$ and $H$ of its halves
together with two normal numbers $Z \sim N(0, l/16)$ and $N \sim N(0, l/12)$:

$$W_\pm = \tfrac12 W \pm (\tfrac32 H + Z), \qquad H_\pm = \tfrac14 H - \tfrac12 Z \pm \tfrac12 N$$

Source:
    J. Foster, T. Lyons, H. Oberhauser, An optimal polynomial approximation of Brownian motion, SIAM Journal on
    Numerical Analysis 58 (2020) 1393.
"""

import abc
import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from ..._checks import check_key, check_time, concrete
from ..._interfaces._levy_process import AbstractLevy
from ..._jax._loops import for_loop
from ..._types import RealScalarLike
from ._levy import area_of, joined, numbers_for, wedge
from ._random_bits import normals, pairs_of_normals, uniforms, words_of

DEPTH = 18
"""The default number of successive halvings of the interval of a solve."""

STORED_DEPTH = 12
"""The default number of halvings of a path with Levy areas, whose points are stored."""

_DEEPEST_STORED = 16

_DEEPEST = 30  # places are counted in 32 bits
_SAME = 1e-2  # of the distance of two points of a path, within which a time is at one
_ROUNDINGS = 4  # of a time, within which it is the start of a step
_OFF = 0.125  # by how much of a step rounding may move a time for the number of its step to be known


class AbstractBrownian(eqx.Module):
    """Independent Brownian motions, each a function of time."""

    @abc.abstractmethod
    def over(
        self, t: Array, h: Array, count: int, dtype: Any, with_area: bool
    ) -> tuple[Float[Array, " count"], Float[Array, " count"] | None]:
        """Returns increments over a step from `t` to `t + h` and, if requested, their space-time Levy areas."""

    @abc.abstractmethod
    def with_levy(
        self, t: Array, h: Array, count: int, dtype: Any
    ) -> tuple[Float[Array, " count"], Float[Array, "count count"]]:
        """Returns increments over a step and their Levy areas, see `_levy`."""

    def for_levy(self, count: int, dtype: Any) -> "AbstractBrownian":
        """Returns the same motions, with what `with_levy` needs computed before the steps; by default these."""
        del count, dtype
        return self

    def aligned(self, t: Array, h: Array) -> Array:
        """Returns the length of a step, near a given one, that ends where the path has a point; by default that."""
        del t
        return h

    def rest(self, t: Array, h: Array) -> Array:
        """Returns the length of a fixed step: what remains of a step that an event has cut; by default the whole."""
        del t
        return h

    @abc.abstractmethod
    def refuses(self, t0: Array, t1: Array) -> Array:
        """Returns whether the path is not known over an interval."""

    @abc.abstractmethod
    def why(self) -> str:
        """Returns why the path is not known over an interval, and what to do."""


class CountedSteps(AbstractBrownian):
    """Brownian motion over steps of a fixed length from a start.

    An event cuts a step in two. It was found on the line between both ends of the step, so the path is also a line
    there: the rest of the step has the remaining part of its increment. So an event that changes nothing has no
    influence on the state after the step.

    Attributes:
        words: The key.
        t0: The start.
        dt: The length of the steps, signed.
        t1: The end of the last step, which may be shorter; None if no event cuts steps.
        driver: A process in place of Brownian motion, or None.
    """

    words: UInt32[Array, " 2"]
    t0: Float[Array, ""]
    dt: Float[Array, ""]
    t1: Float[Array, ""] | None = None
    driver: AbstractLevy | None = None

    def over(
        self, t: Array, h: Array, count: int, dtype: Any, with_area: bool
    ) -> tuple[Float[Array, " count"], Float[Array, " count"] | None]:
        """Returns increments over a step, which may be shorter than the others; see `AbstractBrownian.over`."""
        number, root, part = self._step(t, h)
        w, area = self._drawn(number, root, count, dtype, with_area)
        if part is None:
            return w, area
        # a line has no area
        return w * part.astype(dtype), None if area is None else jnp.where(part < 1, jnp.zeros_like(area), area)

    def with_levy(
        self, t: Array, h: Array, count: int, dtype: Any
    ) -> tuple[Float[Array, " count"], Float[Array, "count count"]]:
        """Returns increments over a step and their Levy areas."""
        number, root, part = self._step(t, h)
        w, area = self._drawn(number, root, count, dtype, True)
        assert area is not None
        numbers = normals(self.words, _as_word(number), 2, numbers_for(count), dtype)
        levy = area_of(w, area, numbers, root.astype(dtype))
        if part is None:
            return w, levy
        return w * part.astype(dtype), jnp.where(part < 1, jnp.zeros_like(levy), levy)

    def _step(self, t: Array, h: Array) -> tuple[Array, Array, Array | None]:
        """Returns the number of a step, the root of its length, and which part of it this is if events cut steps."""
        if self.t1 is None:
            return jnp.round((t - self.t0) / self.dt), _root(h * jnp.sign(self.dt)), None
        number, cut = self._place(t)
        # numbers that all members of an ensemble share, so that no step of theirs takes a root or divides
        last, shorter = self._last
        whole = shorter == 0
        each = 1 / self.dt, jnp.where(whole, jnp.zeros_like(shorter), 1 / jnp.where(whole, self.dt, shorter))
        rate = jnp.where(number >= last, each[1], each[0])
        root = jnp.where(number >= last, _root(shorter), _root(self.dt))
        return number, root, jnp.where(cut, h * rate, jnp.ones_like(h))

    def rest(self, t: Array, h: Array) -> Array:
        """Returns the length of a step, or the remaining length of a step that an event has cut."""
        if self.t1 is None:
            return h
        number, cut = self._place(t)
        return jnp.where(cut, self.t0 + (number + 1) * self.dt - t, h)

    @property
    def _rounding(self) -> Array:
        """By how much rounding moves a time, of the length of a step."""
        assert self.t1 is not None
        largest = jnp.maximum(jnp.abs(self.t0), jnp.abs(self.t1)) + jnp.abs(self.t1 - self.t0)
        return jax.lax.stop_gradient(_ROUNDINGS * jnp.finfo(self.t0.dtype).eps * largest / self.dt)

    @property
    def _last(self) -> tuple[Array, Array]:
        """The number of the last step and its length."""
        assert self.t1 is not None
        number = jnp.maximum(jnp.ceil((self.t1 - self.t0) / self.dt - self._rounding) - 1, 0)
        number = jax.lax.stop_gradient(number)
        return number, self.t1 - (self.t0 + number * self.dt)

    def _place(self, t: Array) -> tuple[Array, Array]:
        """Returns the number of the step that a time is in, and whether it is within it, not at its start."""
        place = jax.lax.stop_gradient((t - self.t0) * (1 / self.dt))
        number = jnp.floor(place + self._rounding)
        return number, place - number > self._rounding

    def _drawn(
        self, number: Array, root: Array, count: int, dtype: Any, with_area: bool
    ) -> tuple[Float[Array, " count"], Float[Array, " count"] | None]:
        """Returns the increments of a step, the root of whose length is given, and areas if requested."""
        place, root = _as_word(number), root.astype(dtype)
        area = None
        if self.driver is not None:
            uniform = [uniforms(self.words, place, count, dtype, stream) for stream in range(self.driver.draws)]
            length, some = root**2, root > 0
            found = self.driver.increment(jnp.where(some, length, jnp.ones_like(length)), *uniform)
            return jnp.where(some, found, jnp.zeros_like(found)), None
        if with_area:
            area = root * math.sqrt(1 / 12) * normals(self.words, place, 1, count, dtype)
        return root * normals(self.words, place, 0, count, dtype), area

    def refuses(self, t0: Array, t1: Array) -> Array:
        """Returns whether rounding prevents the distinction of steps."""
        rounding = jnp.finfo(t0.dtype).eps * (jnp.maximum(jnp.abs(t0), jnp.abs(t1)) + jnp.abs(t1 - t0))
        return (rounding > _OFF * jnp.abs(self.dt)) & (t1 != t0)

    def why(self) -> str:
        """Returns why that is so."""
        return (
            f"The noise of a step depends on its index, but the resolution of {self.t0.dtype} is too coarse to "
            "distinguish the steps. Shift time to begin near zero, use fewer steps in one solve, or enable float64."
        )


class PairedSteps(AbstractBrownian):
    """Brownian motion over steps that each span two steps of a finer solve, on the same path.

    Attributes:
        fine: The motion over the steps of the finer solve.
    """

    fine: CountedSteps

    def over(
        self, t: Array, h: Array, count: int, dtype: Any, with_area: bool
    ) -> tuple[Float[Array, " count"], Float[Array, " count"] | None]:
        """Returns increments over a step; see `AbstractBrownian.over`."""
        (w1, area1), (w2, area2) = (self.fine.over(s, h / 2, count, dtype, with_area) for s in (t, t + h / 2))
        if not with_area:
            return w1 + w2, None
        assert area1 is not None and area2 is not None
        return w1 + w2, (area1 + area2) / 2 + (w1 - w2) / 4

    def with_levy(
        self, t: Array, h: Array, count: int, dtype: Any
    ) -> tuple[Float[Array, " count"], Float[Array, "count count"]]:
        """Returns increments over a step and their Levy areas."""
        first, second = (self.fine.with_levy(s, h / 2, count, dtype) for s in (t, t + h / 2))
        return joined(first, second)

    def refuses(self, t0: Array, t1: Array) -> Array:
        """Returns whether rounding prevents the distinction of steps."""
        return self.fine.refuses(t0, t1)

    def why(self) -> str:
        """Returns why that is so."""
        return self.fine.why()


def _as_word(number: Array) -> UInt32[Array, ""]:
    return jax.lax.stop_gradient(number).astype(jnp.int32).astype(jnp.uint32)


def _root(length: Array) -> Array:
    """Returns the root of a length; the root of zero has no derivative, and a negative length has no root."""
    root = jnp.where(length > 0, jnp.sqrt(jnp.where(length > 0, length, jnp.ones_like(length))), 0 * length)
    return jnp.where(length < 0, jnp.nan, root)


class _Piece(NamedTuple):
    """Brownian motion over an interval: its length, its increment and its integral from the start of the interval."""

    length: Array
    w: Array
    integral: Array

    def then(self, other: "_Piece") -> "_Piece":
        """Returns that over this interval and one that follows."""
        integral = self.integral + self.w * other.length + other.integral
        return _Piece(self.length + other.length, self.w + other.w, integral)

    def if_(self, condition: Array) -> "_Piece":
        """Returns this one, or one of no length where a condition does not hold."""
        return _Piece(*(jnp.where(condition, x, jnp.zeros_like(x)) for x in self))

    def part(self, fraction: Array) -> "_Piece":
        """Returns a part of it on a line."""
        length, w = self.length * fraction, self.w * fraction
        return _Piece(length, w, length * w / 2)


class BrownianPath(AbstractBrownian):
    r"""A path of Brownian motion, a function of its key and of time only.

    `sciml.solve(..., key=path)` uses the same path with steps of any length and with any method, for example with `dt`
    and `dt / 2`, and a test can evaluate an exact solution on it. The interval is halved `depth` times; between the
    resulting points the path is linear, so steps should be many times longer than $(t_1 - t_0) / 2^\mathrm{depth}$.
    The same key gives different paths in float32 and in float64.

    Attributes:
        words: The words of the key.
        t0: The start of the interval.
        t1: Its end.
        depth: The number of halvings. For noise that does not commute, `sciml.solvers.PlatenWeak2` stores the points:
            2**12 by default, at most 2**16.

    Raises:
        TypeError: If the key is not a key.
        ValueError: If the interval has no length, or the depth is not between 1 and 30.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        path = sciml.BrownianPath(jax.random.key(0), 0.0, 1.0)
        growth = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: 0.2 * y)
        sol = sciml.solve(growth, 1.0, t0=0.0, t1=1.0, dt=2.0**-10, key=path)
        assert abs(sol.ys[-1] - jnp.exp((0.1 - 0.2**2 / 2) * 1.0 + 0.2 * path.increment(0.0, 1.0))) < 1e-2
        ```
    """

    words: UInt32[Array, " 2"]
    t0: Float[Array, ""]
    t1: Float[Array, ""]
    depth: int = eqx.field(static=True)

    def __init__(self, key: Any, t0: Any, t1: Any, depth: int = DEPTH):
        self.words = words_of(check_key(key, "BrownianPath"))
        dtype = jnp.result_type(float)
        self.t0, self.t1 = check_time(t0, "t0", dtype), check_time(t1, "t1", dtype)
        if concrete(self.t0) and concrete(self.t1) and not self.t1 > self.t0:
            raise ValueError(f"`t1` of a `BrownianPath` must come after `t0`={t0}, but is {t1}.")
        if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= _DEEPEST:
            raise ValueError(f"`depth` of a `BrownianPath` must be between 1 and {_DEEPEST}, but is {depth!r}.")
        self.depth = depth

    def increment(self, s: RealScalarLike, t: RealScalarLike, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Returns $W_t - W_s$ of as many Brownian motions as an array of a shape has elements.

        Args:
            s: The earlier time.
            t: The later time.
            shape: The shape. For a state of several leaves the elements count one leaf after another.
        """
        s, t = (jnp.asarray(x, self.t0.dtype) for x in (s, t))
        return self.over(s, t - s, math.prod(shape), self.t0.dtype, False)[0].reshape(shape)

    def over(
        self, t: Array, h: Array, count: int, dtype: Any, with_area: bool
    ) -> tuple[Float[Array, " count"], Float[Array, " count"] | None]:
        """Returns increments over a step; see `AbstractBrownian.over`."""
        leaves = 2**self.depth
        t0, t1, start, end = jax.lax.stop_gradient((self.t0, self.t1, t, t + h))
        span = t1 - t0
        first, last = (jnp.clip((x - t0) / span * leaves, 0, leaves) for x in (start, end))
        # an end belongs to the leaf before it
        left = jnp.minimum(jnp.floor(first), leaves - 1)
        right = jnp.maximum(jnp.ceil(last) - 1, left)
        fractions = 1 - (first - left), last - right
        left, right = (x.astype(jnp.int32).astype(jnp.uint32) for x in (left, right))
        w, area = pairs_of_normals(self.words, jnp.zeros((), jnp.uint32), count, dtype)
        root = (w, area * math.sqrt(1 / 12))
        none = _Piece(jnp.zeros((), dtype), jnp.zeros_like(w), jnp.zeros_like(w))

        def descend(level, carry):
            (from_left, behind), (from_right, ahead), parted = carry
            level = level.astype(jnp.uint32)
            bits = [(x >> (self.depth - 1 - level)) & 1 == 1 for x in (left, right)]
            width = jnp.exp2(-level.astype(dtype))
            on_left, left_halves = self._descend(from_left, left, level, bits[0], width, count, dtype)
            on_right, right_halves = self._descend(from_right, right, level, bits[1], width, count, dtype)
            behind = left_halves[1].if_(parted & ~bits[0]).then(behind)
            ahead = ahead.then(right_halves[0].if_(parted & bits[1]))
            return (on_left, behind), (on_right, ahead), parted | (bits[0] != bits[1])

        carry = ((root, none), (root, none), jnp.zeros((), bool))
        carry = for_loop(descend, carry, self.depth, like=(t, h, self))
        (from_left, behind), (from_right, ahead), parted = carry
        width = jnp.asarray(2.0**-self.depth, dtype)
        one = _piece(*from_left, width)
        within = one.part((fractions[0] + fractions[1] - 1).astype(dtype))
        across = one.part(fractions[0].astype(dtype)).then(behind).then(ahead)
        across = across.then(_piece(*from_right, width).part(fractions[1].astype(dtype)))
        found = _Piece(*(jnp.where(parted, a, b) for a, b in zip(across, within)))
        scale = jnp.sqrt(span).astype(dtype)
        length = jnp.where(found.length > 0, found.length, jnp.ones_like(found.length))
        area = scale * (found.integral / length - found.w / 2) if with_area else None
        return scale * found.w, area

    def with_levy(
        self, t: Array, h: Array, count: int, dtype: Any
    ) -> tuple[Float[Array, " count"], Float[Array, "count count"]]:
        """Returns increments over a step and their Levy areas; of several steps see `for_levy`."""
        return self.for_levy(count, dtype).with_levy(t, h, count, dtype)

    @property
    def stored_depth(self) -> int:
        """The number of halvings if points are stored, for Levy areas."""
        return STORED_DEPTH if self.depth == DEPTH else self.depth

    def for_levy(self, count: int, dtype: Any) -> "StoredPath":
        """Returns the path with its points and their Levy areas as arrays; if its depth is the default, a lower one.

        Raises:
            ValueError: If there are too many points.
        """
        depth = self.stored_depth
        if depth > _DEEPEST_STORED:
            raise ValueError(
                f"Levy areas are stored for each of the 2**depth intervals of a path, and this `BrownianPath` has "
                f"`depth={depth}`. Use at most {_DEEPEST_STORED}, such as `BrownianPath(key, t0, t1, "
                f"depth={STORED_DEPTH})`."
            )
        return StoredPath(self, _points(self.words, depth, count, dtype))

    def aligned(self, t: Array, h: Array) -> Array:
        """Returns the length of a step from `t` to the last point of the path within `h`, or to the next one."""
        return _to_point(self.t0, (self.t1 - self.t0) * 2.0**-self.depth, t, h)

    def refuses(self, t0: Array, t1: Array) -> Array:
        """Returns whether an interval is not within the interval of the path."""
        slack = 4 * jnp.finfo(t0.dtype).eps * jnp.maximum(jnp.abs(self.t0), jnp.abs(self.t1))
        return (t0 < self.t0 - slack) | (t1 > self.t1 + slack)

    def why(self) -> str:
        """Returns why the path is not known over an interval."""
        return f"The `sciml.BrownianPath` covers {self.t0} to {self.t1}, but the solve exceeds this interval."

    def _descend(
        self, node: tuple[Array, Array], leaf: Array, level: Array, right: Array, width: Array, count: int, dtype: Any
    ) -> tuple[tuple[Array, Array], tuple[_Piece, _Piece]]:
        """Returns one half of the node that contains a leaf, the right one if requested, and both as pieces."""
        place = (jnp.uint32(1) << level) + (leaf >> (self.depth - level))
        halves = _halves(*node, *pairs_of_normals(self.words, place, count, dtype), width)
        pieces = _piece(*halves[0], width / 2), _piece(*halves[1], width / 2)
        one = tuple(jnp.where(right, b, a) for a, b in zip(*halves))
        return (one[0], one[1]), pieces


def _to_point(t0: Array, leaf: Array, t: Array, h: Array) -> Array:
    """Returns the length of a step from `t` to the last of equally distant points within `h`, or to the next one."""
    here, there = ((x - t0) / leaf for x in (t, t + h))
    # to the point after the one that `t` is near, at least
    number = jnp.maximum(jnp.floor(there + _SAME), jnp.floor(here + _SAME) + 1)
    return jax.lax.stop_gradient(t0 + number * leaf - t)


def _piece(w: Array, area: Array, length: Array) -> _Piece:
    return _Piece(length, w, length * (area + w / 2))


def _halves(w: Array, area: Array, z: Array, n: Array, width: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Returns the increments and areas of both halves of a node, by its normal numbers."""
    z, n = z * jnp.sqrt(width / 16), n * jnp.sqrt(width / 12)
    bend, common = 1.5 * area + z, 0.25 * area - 0.5 * z
    return (0.5 * w + bend, common + 0.5 * n), (0.5 * w - bend, common - 0.5 * n)


class StoredPath(AbstractBrownian):
    """A path whose points are arrays: increments and Levy areas over any interval are those from the start, joined.

    Between points all of them are lines, so the areas of intervals of any length add up. No scheme of halves that keeps
    this, and the law, is known for areas that are drawn from the whole to its parts.

    Attributes:
        path: The path.
        points: The increments and areas from the start to each point, of a path over an interval of length one.
    """

    path: BrownianPath
    points: Float[Array, "points numbers"]

    def over(
        self, t: Array, h: Array, count: int, dtype: Any, with_area: bool
    ) -> tuple[Float[Array, " count"], Float[Array, " count"] | None]:
        """Returns increments over a step, and space-time Levy areas as the path has them."""
        return self.path.over(t, h, count, dtype, with_area)

    def with_levy(
        self, t: Array, h: Array, count: int, dtype: Any
    ) -> tuple[Float[Array, " count"], Float[Array, "count count"]]:
        """Returns increments over a step and their Levy areas."""
        t0, t1, start, end = jax.lax.stop_gradient((self.path.t0, self.path.t1, t, t + h))
        span = t1 - t0
        last = self.points.shape[0] - 1

        def until(time: Array) -> tuple[Array, Array]:
            place = jnp.clip((time - t0) / span * last, 0, last)
            before = jnp.minimum(jnp.floor(place), last - 1)
            part, before = (place - before).astype(dtype), before.astype(jnp.int32)
            here, there = self.points[before], self.points[before + 1]
            found = here + part * (there - here)
            return found[:count], found[count:].reshape(count, count)

        (w0, levy0), (w1, levy1) = until(start), until(end)
        w = w1 - w0
        return jnp.sqrt(span).astype(dtype) * w, span.astype(dtype) * (levy1 - levy0 - 0.5 * wedge(w0, w))

    def aligned(self, t: Array, h: Array) -> Array:
        """Returns the length of a step from `t` to the last point of the path within `h`, or to the next one."""
        return _to_point(self.path.t0, (self.path.t1 - self.path.t0) / (self.points.shape[0] - 1), t, h)

    def refuses(self, t0: Array, t1: Array) -> Array:
        """Returns whether an interval is not within the interval of the path."""
        return self.path.refuses(t0, t1)

    def why(self) -> str:
        """Returns why the path is not known over an interval."""
        return self.path.why()


@partial(jax.jit, static_argnums=(1, 2, 3))
def _points(words: UInt32[Array, " 2"], depth: int, count: int, dtype: Any) -> Float[Array, "points numbers"]:
    """Returns the increments and Levy areas from the start of a path to each of its points; its length is one."""
    # all numbers by one call: a program of twelve of them takes seconds to compile
    nodes = jax.vmap(lambda place: pairs_of_normals(words, place, count, dtype))(jnp.arange(2**depth, dtype=jnp.uint32))
    w, area = nodes[0][:1], nodes[1][:1] * math.sqrt(1 / 12)
    for level in range(depth):
        z, n = (x[2**level : 2 ** (level + 1)] for x in nodes)
        halves = _halves(w, area, z, n, jnp.asarray(2.0**-level, dtype))
        w, area = (jnp.stack(x, axis=1).reshape(2 ** (level + 1), count) for x in zip(*halves))
    places = jnp.uint32(2**depth) + jnp.arange(2**depth, dtype=jnp.uint32)
    numbers = jax.vmap(lambda place: normals(words, place, 2, numbers_for(count, 1), dtype))(places)
    root = jnp.asarray(2.0 ** (-depth / 2), dtype)
    levy = jax.vmap(lambda w, area, numbers: area_of(w, area, numbers, root, 1))(w, area, numbers)
    until = jnp.concatenate([jnp.zeros((1, count), dtype), jnp.cumsum(w, axis=0)])
    levy = jnp.cumsum(levy + 0.5 * jax.vmap(wedge)(until[:-1], w), axis=0)
    levy = jnp.concatenate([jnp.zeros((1, count**2), dtype), levy.reshape(-1, count**2)])
    return jnp.concatenate([until, levy], axis=1)
