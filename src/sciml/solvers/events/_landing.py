"""Location of events within a step and at its end: a step that passes over an event is repeated.

The crossing of a condition within a step.

Its values at the ends of the step and at two places between make a cubic. Of the first of the three intervals in which
its sign changes as asked for, a few safeguarded Newton iterations give a zero of the cubic. That is accurate enough:
the step is repeated up to there, its cubic improves with shorter steps, and the last correction is Newton's method for
the condition itself.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..._jax._vma import match
from ..._types import Y
from ..integrate._interpolation import interpolation_of
from ..methods._stepper import AbstractStepper, Step, within_step
from ..terms._field import BoundField
from ._closed_events import BoundFieldWithEvents, Clock
from ._event_state import Detection, derivatives_alone

PLACES = (1 / 3, 2 / 3)
"""The evaluation of a condition within a step."""

_CLEARLY = 1e-3
"""How far a cubic has to come back beyond zero, of the value at the start, to be looked at more closely."""

_ZERO = 1e-6
"""How small a condition is where it is just leaving zero, of its size in the step."""

_CUBIC_ITERATIONS = 4
_HALVINGS = 40


Direction = int | np.ndarray
"""In which direction a condition has to pass through zero, 1 or -1; 0 for both. An array where conditions differ."""


def stacked(values: Sequence[Array], numbers: Sequence[int]) -> Array:
    """Returns some of the values as one array, so that the program does not grow with their number; one as it is."""
    chosen = [values[number] for number in numbers]
    return chosen[0] if len(chosen) == 1 else jnp.stack(chosen)


def unstacked(values: Array, count: int) -> list[Array]:
    """Returns the values of an array that `stacked` made."""
    return [values] if count == 1 else [jax.lax.index_in_dim(values, i, 0, False) for i in range(count)]


def _heads(sign: Array, direction: Direction) -> Bool[Array, "..."]:
    """Returns whether a sign is the direction asked for."""
    if isinstance(direction, int):
        return sign == direction if direction else jnp.ones(sign.shape, bool)
    return (direction == 0) | (sign == direction.astype(sign.dtype))


class Crossing(NamedTuple):
    """The first passing of a condition through zero within a step; of several conditions, arrays.

    Attributes:
        found: Whether it passes.
        place: The place, from 0 to 1.
        late: Whether after the last place within the step.
        side: Its sign at the end of the step.
    """

    found: Bool[Array, ""]
    place: Array
    late: Bool[Array, ""]
    side: Array


def first_crossing(
    values: tuple[Array, Array, Array, Array],
    side: Array,
    direction: Direction,
    boolean: Callable[[Array], Array] | None,
) -> Crossing:
    """Returns where a condition first passes through zero, or each of several.

    Args:
        values: Its values at the start, at `PLACES` and at the end.
        side: Its sign before, twice that since it has been zero; 0 where that is not known.
        direction: In which direction it has to pass; 0 for both.
        boolean: For one that jumps, its value at a place; else None.
    """
    edges, cubic = (0.0, *PLACES, 1.0), _cubic(values)
    leaves = (jnp.abs(side) != 1) & (jnp.abs(values[0]) <= _ZERO * _largest(values))
    side = before = jnp.where(side == 0, jnp.sign(cubic[1]), jnp.sign(side))
    found = jnp.zeros(side.shape, bool)
    low, high, after, late = jnp.zeros_like(side), jnp.ones_like(side), jnp.zeros_like(side), found
    for number in range(1, 4):
        here = jnp.sign(values[number])
        passes = (here * side < 0) & ~found & _heads(here, direction)
        low = jnp.where(passes, jnp.full_like(low, edges[number - 1]), low)
        high = jnp.where(passes, jnp.full_like(high, edges[number]), high)
        after, late = jnp.where(passes, here, after), passes if number == 3 else late
        found = found | passes
        side = jnp.where(here == 0, side, here)
    if boolean is not None:
        return Crossing(found, _jump(boolean, low, high), late, side)
    for turn in _turns(cubic):  # it may pass and come back between two places
        beyond = _value(cubic, turn)
        passes = (beyond * before < -_CLEARLY * jnp.abs(values[0])) & ~found & (turn > 0) & (turn < 1)
        passes = passes & _heads(-before, direction)
        low = jnp.where(passes, jnp.floor(3 * turn) / 3, low)
        high, after = jnp.where(passes, turn, high), jnp.where(passes, -before, after)
        found = found | passes
    place = _zero_of_cubic(cubic, low, high, after)
    # a cubic that starts at zero may have no other zero, while the condition first moves away from it
    place = jnp.where(leaves & (low == 0), jnp.maximum(place, high / 20), place)
    return Crossing(found, place, late, side)


def _largest(values: Sequence[Array]) -> Array:
    """Returns the largest size of the values of a condition."""
    return functools.reduce(jnp.maximum, map(jnp.abs, values))


def _cubic(values: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    """Returns the coefficients of the cubic with these values, of ascending powers."""
    a, b, c, d = values
    c1 = (-11 * a + 18 * b - 9 * c + 2 * d) / 2
    c2 = 9 * (2 * a - 5 * b + 4 * c - d) / 2
    c3 = 9 * (-a + 3 * b - 3 * c + d) / 2
    return a, c1, c2, c3


def _value(cubic: tuple[Array, Array, Array, Array], place: Array) -> Array:
    a, c1, c2, c3 = cubic
    return a + place * (c1 + place * (c2 + place * c3))


def _turns(cubic: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
    """Returns where the slope of a cubic is zero; places out of reach where it is nowhere."""
    _, c1, c2, c3 = cubic
    square = c2 * c2 - 3 * c1 * c3
    root = jnp.sqrt(jnp.maximum(square, jnp.zeros_like(square)))
    sum_ = -(c2 + jnp.where(c2 >= 0, root, -root))  # no digits cancel
    none = -jnp.ones_like(c1)
    first = jnp.where(c3 != 0, sum_ / jnp.where(c3 != 0, 3 * c3, none), none)
    second = jnp.where(sum_ != 0, c1 / jnp.where(sum_ != 0, sum_, none), none)
    real = square > 0
    return jnp.where(real, jnp.minimum(first, second), none), jnp.where(real, jnp.maximum(first, second), none)


def _zero_of_cubic(cubic: tuple[Array, Array, Array, Array], low: Array, high: Array, after: Array) -> Array:
    """Returns a zero between two places, after which the cubic has a given sign."""
    _, c1, c2, c3 = cubic
    place = (low + high) / 2
    for _ in range(_CUBIC_ITERATIONS):
        value = _value(cubic, place)
        slope = c1 + place * (2 * c2 + place * (3 * c3))
        beyond = value * after >= 0
        low, high = jnp.where(beyond, low, place), jnp.where(beyond, place, high)
        steep = slope * after > 0
        guess = place - value / jnp.where(steep, slope, jnp.ones_like(slope))
        place = jnp.where(steep & (guess > low) & (guess <= high), guess, (low + high) / 2)
    return place


def _jump(condition: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Returns where a condition has just become true, by halving."""

    def halve(carry, _):
        low, high = carry
        middle = (low + high) / 2
        true = condition(middle) > 0
        return (jnp.where(true, low, middle), jnp.where(true, middle, high)), None

    (_, high), _ = jax.lax.scan(halve, (low, high), None, length=_HALVINGS)
    return high


NEAR = 1e-5
"""How near to an event a step has to end, of its length; two corrections by Newton's method leave nothing of it."""

_CORRECTIONS = 2
"""How often Newton's method corrects where an event is within a step that passes over it."""

_OFF = 0.05
"""How far the cubic of a condition may be off its zero, of the length of the step."""

_LEFT = 1e-6
"""The size of a condition after its event, of that before, up to which it counts as zero."""

_STEEP = 1e-9
"""The slope of a condition over a step, of its size there, that is more than rounding."""

_GRAZES = 1e-6
"""A condition only grazes zero where a change of the state by so much of its size would make the event vanish."""


class Attempt(NamedTuple):
    """A step of a method, within which events are sought.

    Attributes:
        base: The method.
        field: The vector field with its events.
        t: The time at its start.
        h: Its length, signed.
        y: The state at its start, in the variables of the method.
        step: The result of the method.
        path: The solution within it, a function of the place from 0 to 1.
        clock: The event times so far.
    """

    base: AbstractStepper
    field: BoundFieldWithEvents
    t: Array
    h: Array
    y: Y
    step: Step
    path: Callable[[Array], Y]
    clock: Clock

    @classmethod
    def of(cls, base: AbstractStepper, field: BoundFieldWithEvents, t: Array, h: Array, y: Y, step: Step) -> "Attempt":
        """Returns an attempt."""
        return cls(base, field, t, h, y, step, _path(base, field.base, t, h, y, step), field.clock)

    @property
    def end(self) -> Array:
        """The time at its end."""
        return self.t + self.h

    @property
    def size(self) -> Array:
        """Its length, positive."""
        return self.clock.direction * self.h

    def shown(self, y: Y) -> Y:
        """Returns the model's state of one in the variables of the method; linear."""
        return self.base.coordinates.finish(self.field.base, y) if self.base.traits.transforms_state else y

    def conditions(self, place: Array) -> tuple[Array, ...]:
        """Returns the conditions at a place."""
        return self.field.conditions(self.t + place * self.h, self.shown(self.path(place)))

    def at(self, place: Array) -> tuple[Y, Y]:
        """Returns the state at a place, in the variables of the method, and its derivative by the place."""
        return jax.jvp(self.path, (place,), (jnp.ones_like(place),))

    def slopes(self, place: Array, y: Y, rate: Y) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Returns the conditions at a place with such a state, and their derivatives by the place."""
        now = self.t + place * self.h
        return jax.jvp(self.field.conditions, (now, self.shown(y)), (self.h, self.shown(rate)))


def _path(base: AbstractStepper, field: BoundField, t: Array, h: Array, y: Y, step: Step) -> Callable[[Array], Y]:
    """Returns the solution within a step: if it is a polynomial, by its coefficients, which many places share."""
    polynomial = None if base.hooks.within is not None else interpolation_of(base)
    if polynomial is None:
        return within_step(base, field, t, h, y, step)
    structure = jax.tree.structure(y)
    terms = zip(*(structure.flatten_up_to(x) for x in (y, step.y1, *step.dense)))
    powers = [polynomial.powers(h, *x) for x in terms]

    def path(place: Array) -> Y:
        def of_leaf(powers: tuple[Array, ...]) -> Array:
            x = place.astype(powers[0].dtype)
            return functools.reduce(lambda total, power: total * x + power, reversed(powers))

        return jax.tree.unflatten(structure, map(of_leaf, powers))

    return path


class Landing(NamedTuple):
    """The events found in a step.

    Attributes:
        lands: Whether the event is where it ends.
        early: Whether it comes before that.
        place: The place where it comes, from 0 to 1.
        delay: How much later than the end it is, in time.
        side: The sign of its condition at the end.
        after: The sign of its condition after an event that is where it ends.
        zero: The range of the condition that counts as zero.
        grazes: Whether its condition only grazes zero at the end.
    """

    lands: Bool[Array, ""]
    early: Bool[Array, ""]
    place: Array
    delay: Array
    side: Array
    after: Array
    zero: Array
    grazes: Bool[Array, ""]


def passing(attempt: Attempt, detection: Detection) -> Bool[Array, ""]:
    """Returns whether a step may pass over an event whose condition is sought, or end at one: where not, it does not.

    The sign of a condition is looked at in the places where `landings` looks for it, and the coefficients of its cubic
    in Bernstein's polynomials, between the smallest and the largest of which the cubic stays, tell whether it may come
    back from beyond zero in between. If a shorter step would find another solution, the signs are enough.

    Args:
        attempt: The step.
        detection: The data of the events.
    """
    if not detection.sides:
        return jnp.zeros((), bool)
    ends = [attempt.field.conditions(attempt.end, attempt.shown(attempt.step.y1))]
    if attempt.base.traits.jumps:
        ends.append(attempt.conditions(jnp.ones_like(attempt.t)))
    between = [attempt.conditions(jnp.full_like(attempt.t, place)) for place in PLACES]
    start = attempt.field.conditions(attempt.t, attempt.shown(attempt.y))
    found = jnp.zeros((), bool)
    for numbers, boolean in _groups(attempt):
        a, b, c, *rest = (stacked(values, numbers) for values in (start, *between, *ends))
        d, side = rest[-1], stacked(detection.sides, numbers)
        signs = [b, c, *rest]
        if not (attempt.base.traits.rough or boolean):
            signs += [18 * b - 5 * a - 9 * c + 2 * d, 18 * c - 5 * d - 9 * b + 2 * a]
        stays = functools.reduce(jnp.logical_and, [x * side > 0 for x in signs])
        found = found | ~jnp.all(stays)
    return found | (detection.sought > 0)


def _groups(attempt: Attempt) -> list[tuple[list[int], bool]]:
    """Returns the numbers of the conditions that are real numbers, and of those that are booleans."""
    booleans = attempt.field.booleans
    groups = [([i for i, x in enumerate(booleans) if x == boolean], boolean) for boolean in (False, True)]
    return [(numbers, boolean) for numbers, boolean in groups if numbers]


def landings(
    attempt: Attempt, detection: Detection, directions: list[int], due: Bool[Array, ""] | None = None
) -> list[Landing]:
    """Returns what a step finds of each event whose condition is sought.

    Args:
        attempt: The step.
        detection: The data of the events.
        directions: In which direction each condition has to pass; 0 for both.
        due: Whether the step ends at a given time, with which a zero within rounding then counts as one time.
    """
    if not directions:
        return []
    if not attempt.base.traits.jumps:
        return _crossings(attempt, detection, directions, due)
    # while a state waits for its next jump, a condition may pass by time only
    still = attempt._replace(step=attempt.step._replace(y1=attempt.path(jnp.ones_like(attempt.t))))
    before = _crossings(still, detection, directions)
    after = attempt.field.conditions(attempt.end, attempt.shown(attempt.step.y1))
    return [
        _with_jump(x, value, 1 if boolean else direction, boolean)
        for x, value, direction, boolean in zip(before, after, directions, attempt.field.booleans)
    ]


def _with_jump(found: Landing, value: Array, direction: int, boolean: bool) -> Landing:
    """Returns a landing where the state jumps at the end of the step: onto zero or across it, there is an event.

    Args:
        found: The events found before the jump.
        value: The condition after it.
        direction: In which direction it has to pass; 0 for both.
        boolean: Whether it is a boolean.
    """
    side, now = jnp.sign(found.side), jnp.sign(value)
    passes = (side != 0) & (now * side < 0 if boolean else now != side) & ~found.lands & ~found.early
    if direction:
        passes = passes & (side == -direction)
    nothing = jnp.zeros_like(found.delay)
    return found._replace(
        lands=found.lands | passes,
        delay=jnp.where(passes, nothing, found.delay),
        side=jnp.where(now == 0, found.side, now),
        after=jnp.where(now == 0, -side, now),
        zero=jnp.where(passes, nothing, found.zero),
        grazes=jnp.zeros((), bool),
    )


def _crossings(
    attempt: Attempt, detection: Detection, directions: list[int], due: Bool[Array, ""] | None = None
) -> list[Landing]:
    """Returns what a step finds of each event where its state moves on a path; see `landings`."""
    size, resolution = attempt.size, attempt.clock.resolution
    start = attempt.field.conditions(attempt.t, attempt.shown(attempt.y))
    between = [attempt.conditions(jnp.full_like(attempt.t, place)) for place in PLACES]
    one = jnp.ones_like(attempt.t)
    values, slopes = attempt.slopes(one, attempt.step.y1, attempt.at(one)[1])
    # the step ends where an event was found
    aimed = (detection.sought > 0) & (size >= detection.stop - resolution)
    tiny = size <= 8 * resolution
    found: dict[int, Landing] = {}
    for numbers, boolean in _groups(attempt):
        side, value, slope = (stacked(x, numbers) for x in (detection.sides, values, slopes))
        asked = {1} if boolean else {directions[number] for number in numbers}
        direction = asked.pop() if len(asked) == 1 else np.array([directions[number] for number in numbers])
        # the place of an event only depends on the landing
        mine = jax.lax.stop_gradient(tuple(stacked(x, numbers) for x in (start, *between, values)))
        jump = functools.partial(_booleans, attempt, numbers) if boolean else None
        crossing, scale = first_crossing(mine, side, direction, jump), _largest(mine)
        if boolean:
            lands = crossing.found & ((crossing.late & aimed) | tiny)
            # its time stays where it is
            delay = jnp.broadcast_to(derivatives_alone(-attempt.end), value.shape)
            after, grazes = crossing.side, jnp.zeros(value.shape, bool)
        else:
            steep = jnp.abs(slope) > _STEEP * scale
            away = -value / jnp.where(steep, slope, jnp.ones_like(slope))
            near = steep & (jnp.abs(away) * size <= jnp.maximum(NEAR * size, 2 * resolution)) | (value == 0)
            heads = jnp.sign(slope)
            ends = aimed if due is None else aimed | (due & (jnp.abs(away) * size <= 8 * resolution))
            ahead = ends & (heads * crossing.side < 0) & _heads(heads, direction)
            lands = near & ((crossing.found & crossing.late) | (~crossing.found & ahead)) | (crossing.found & tiny)
            delay = jnp.where(lands & near & steep, away, jnp.zeros_like(away)) * attempt.h
            after = jax.lax.stop_gradient(jnp.where(near & steep, heads, crossing.side))
            grazes = _grazes(attempt, numbers, mine[0], jax.lax.stop_gradient(slope))
        rounding = jnp.abs(slope) * (16 * resolution / size)
        zero = jax.lax.stop_gradient(jnp.maximum(_LEFT * scale, rounding))
        if attempt.base.traits.rough:
            lands, delay = crossing.found, (crossing.place - 1) * attempt.h
        early = crossing.found & ~lands
        several = Landing(lands, early, crossing.place, delay, crossing.side, after, zero, grazes)
        each = zip(*(unstacked(x, len(numbers)) for x in several))
        found |= {number: Landing(*x) for number, x in zip(numbers, each)}
    in_order = [found[number] for number in range(len(values))]
    return _first_alone(in_order) if attempt.base.traits.rough else in_order


def _booleans(attempt: Attempt, numbers: list[int], places: Array) -> Array:
    """Returns the values of booleans, each at a place of its own."""
    if len(numbers) == 1:
        return attempt.conditions(places)[numbers[0]]
    all_of_them = jax.vmap(lambda place: jnp.stack([attempt.conditions(place)[number] for number in numbers]))(places)
    return jnp.diagonal(all_of_them)


def cut_at_first(attempt: Attempt, found: list[Landing], stop: Array) -> Array:
    """Returns the length of a step up to the first event that the attempted one has passed over.

    Newton's method on the solution within the step corrects where it is, so that the next step most often ends there.

    Args:
        attempt: The step.
        found: The events found in it; at least one comes early.
        stop: The longest step that is allowed.
    """
    size, far = attempt.size, jnp.full_like(attempt.h, 2)
    first = functools.reduce(jnp.minimum, (jnp.where(x.early, x.place, far) for x in found), far)
    place = first
    for _ in range(_CORRECTIONS * (not all(attempt.field.booleans))):
        numbers = _groups(attempt)[0][0]
        value, slope = (stacked(x, numbers) for x in attempt.slopes(place, *attempt.at(place)))
        early, places = (stacked(x, numbers) for x in ([one.early for one in found], [one.place for one in found]))
        mine = early & (places == first) & (slope != 0)
        changes = jnp.where(mine, value / jnp.where(mine, slope, jnp.ones_like(slope)), jnp.zeros_like(slope))
        change = jnp.sum(changes) / jnp.maximum(jnp.sum(mine, dtype=changes.dtype), jnp.ones_like(place))
        # never onto the start or before: a step that is too long is only taken once more
        better = jnp.maximum(place - change, place / 4)
        place = jnp.where(jnp.abs(better - first) < _OFF, better, place)  # false for NaN
    cut = jnp.where(first < far, place * size, jnp.full_like(size, jnp.finfo(size.dtype).max))
    cut = jnp.minimum(jnp.maximum(cut, 2 * attempt.clock.resolution), (1 - 1e-6) * size)
    return jax.lax.stop_gradient(jnp.minimum(cut, stop))


def _grazes(attempt: Attempt, numbers: list[int], first: Array, slope: Array) -> Bool[Array, "..."]:
    """Returns whether conditions that are zero at the end of a step only graze zero there.

    Args:
        attempt: The step.
        numbers: The indices of the conditions.
        first: Their values at the start.
        slope: Their slopes at the end, over the step.
    """
    y = jax.lax.stop_gradient(attempt.shown(attempt.step.y1))
    values, pull = jax.vjp(lambda y: stacked(attempt.field.conditions(attempt.end, y), numbers), y)

    def size(tree: Y) -> Array:
        squares = [jnp.sum(jnp.abs(x) ** 2).astype(slope.dtype) for x in jax.tree.leaves(tree)]
        return jnp.sqrt(sum(squares[1:], squares[0]))

    of_one = lambda weights: size(pull(match(weights, values))[0])  # noqa: E731
    gradients = (
        of_one(jnp.ones_like(slope)) if not slope.ndim else jax.vmap(of_one)(jnp.eye(len(numbers), dtype=slope.dtype))
    )
    change = max(_GRAZES, float(jnp.finfo(slope.dtype).eps) ** 0.5)
    # the parabola through both ends turns at this far beyond zero
    depth_times_curvature, curvature = slope**2 / 4, jnp.abs(first + slope)
    return jax.lax.stop_gradient(depth_times_curvature < change * gradients * size(y) * curvature)


def _first_alone(found: list[Landing]) -> list[Landing]:
    """Returns of landings on the line within a step the first; what comes later is found from there."""
    places = jnp.stack([jnp.where(x.lands, x.place, jnp.full_like(x.place, jnp.inf)) for x in found])
    return [x._replace(lands=x.lands & (x.place <= jnp.min(places))) for x in found]


class Arrival(NamedTuple):
    """The times of the events at which a step ends, with first derivatives; the first event also has second ones.

    Attributes:
        t: The time of the first of them.
        y: The state then, in the variables of the method.
        rate: The rate of the state just before it.
        times: When each event whose condition is sought happens by itself.
    """

    t: Array
    y: Y
    rate: Y
    times: tuple[Array, ...]


def arrival(attempt: Attempt, delay: Array, first: list[Bool[Array, ""]]) -> Arrival:
    """Returns where the events happen that a step ends at.

    Args:
        attempt: The step that ends there.
        delay: How much later the first event is, by a first correction.
        first: The condition whose event it is; none if it comes at a given time.
    """
    place = 1 + delay / attempt.h
    y, rate = attempt.at(place)
    if attempt.base.traits.jumps:
        y1, still = attempt.step.y1, attempt.path(jnp.ones_like(place))
        jumped = jnp.stack([jnp.any(a != b) for a, b in zip(jax.tree.leaves(y1), jax.tree.leaves(still))]).any()
        y = jax.tree.map(lambda a, b: jnp.where(jumped, a, b), y1, y)
    more, offsets = jnp.zeros_like(place), [jnp.zeros_like(place)] * len(first)
    if not all(attempt.field.booleans):
        numbers = _groups(attempt)[0][0]
        value, slope, mine = (stacked(x, numbers) for x in (*attempt.slopes(place, y, rate), first))
        away = -value / jnp.where(slope != 0, slope, jnp.ones_like(slope))
        away = jnp.where(slope != 0, away, jnp.zeros_like(away))
        more = jnp.sum(jnp.where(mine, away, jnp.zeros_like(away)))
        for number, offset in zip(numbers, unstacked(away, len(numbers))):
            offsets[number] = offset
    y = jax.tree.map(lambda x, r: x + more.astype(x.dtype) * r, y, rate)
    rate = jax.tree.map(lambda r: r / attempt.h.astype(r.dtype), rate)
    times = [attempt.t + (place + away) * attempt.h for away in offsets]
    times = tuple(jax.lax.stop_gradient(x) if boolean else x for x, boolean in zip(times, attempt.field.booleans))
    return Arrival(attempt.t + (place + more) * attempt.h, y, rate, times)


def leaving(field: BoundFieldWithEvents, t: Array, shown: Y, rate: Y | None) -> tuple[Array, ...]:
    """Returns to which side each condition leaves its zero, times two, or zero where that is not known.

    Args:
        field: The vector field with its events.
        t: The time.
        shown: The model's state.
        rate: The rate at which that changes; None where it is not known.
    """
    if not field.booleans:
        return ()
    if rate is None:
        return tuple(jnp.zeros_like(t) for _ in field.booleans)
    _, slopes = jax.jvp(field.conditions, (t, shown), (jnp.ones_like(t), rate))
    count = len(slopes)
    signs = jax.lax.stop_gradient(2 * field.clock.direction * jnp.sign(stacked(slopes, range(count))))
    return tuple(unstacked(signs, count))
