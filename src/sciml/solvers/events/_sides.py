"""The sides of an event: rates strictly before it and strictly after it, where a vector field may jump.

A field jumps at a time or where the state crosses a surface, and its program may count the time or the surface to
either side, `t < a` or `t <= a`. So no rate is evaluated there. The rate before is extrapolated along its tangent from
a place within the step; the rate after is evaluated a few roundings of the time later.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax.programs import _names as names, equations
from ..._types import RealScalarLike, Y
from ..methods._stepper import AbstractStepper
from ._closed_events import BoundFieldWithEvents, Clock
from ._landing import NEAR, Attempt


def may_jump(field: Any, t: Any, y: Y) -> bool:
    """Returns whether the program of a field has an operation that may make it jump; sums, products and sines do not.

    Args:
        field: A function of time and state.
        t: A time.
        y: A state.
    """
    program = jax.make_jaxpr(field)(t, y).jaxpr
    return any(eqn.primitive.name in names.JUMPS or _truncates(eqn) for eqn in equations(program))


def _has_tangents(field: Any, t: Any, y: Y) -> bool:
    """Returns whether a field has derivatives in forward mode: no function of `jax.custom_vjp` has."""
    program = jax.make_jaxpr(field)(t, y).jaxpr
    return not any(eqn.primitive.name == "custom_vjp_call" for eqn in equations(program))


def _truncates(eqn: Any) -> bool:
    if eqn.primitive.name != "convert_element_type":
        return False
    before, after = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
    return jnp.issubdtype(before, jnp.inexact) and not jnp.issubdtype(after, jnp.inexact)


_BESIDE = 3 * NEAR
"""How far before and beyond the end of a step its sides are looked at, of its length: an event is nearer."""

_ROUNDINGS = 16
"""How many resolutions of the time that is at least."""

_CHANGE = 1.0
"""A rate jumps that changes there by more than this, of its change over the same time before."""

_SMALLEST_JUMP = 1e-6
"""How large a jump is at least, of the rate; a smooth rate is off its straight line by the square of `_BESIDE`."""

_JUMP_ROUNDINGS = 64
"""How many roundings of the rate that is at least."""

BEYOND = 8
"""How many resolutions of the time are strictly after an event, which is known within half as many."""


def knows_rate(base: AbstractStepper) -> bool:
    """Returns whether the state of a method moves at a rate that is known."""
    return base.traits.knows_rate and not base.traits.jumps and not base.traits.rough


def beside(clock: Clock, t: Array, later: RealScalarLike) -> Array:
    """Returns a time strictly after an event, where `later` is 1, or strictly before, where it is -1."""
    return t + jax.lax.stop_gradient(later * BEYOND * clock.direction * clock.resolution)


def rate_beside(base: AbstractStepper, field: BoundFieldWithEvents, t: Array, y: Y, later: RealScalarLike) -> Y:
    """Returns the rate of a state strictly after or before a time; see `beside`."""
    return base.coordinates.rate(field.base, beside(field.clock, t, later), y)


def advanced(y: Y, rate: Y, later: Array) -> Y:
    """Returns a state that moves on at a rate: what a change of an event's time makes of a state before it.

    After the event the time is later by as much, which the next step makes up for at the rate that it has. With both, a
    jump of the rate contributes (before - after) times the change.
    """
    return jax.tree.map(lambda x, r: x + later.astype(x.dtype) * r, y, rate)


def one_sided(attempt: Attempt) -> Attempt:
    """Returns a step with the rate from before its end, where the field jumps there.

    Stages at the end of a step may be on the other side. Error control makes such a step so short that its state is
    right, but not its slope, by which the time of an event has derivatives; and not the algebraic variables, of which
    there are those before an event and those after it.
    """
    base, field = attempt.base, attempt.field
    if all(field.booleans) and base.traits.field_is_rate or not knows_rate(base):
        return attempt
    if not may_jump(field.base, attempt.end, attempt.y):
        return attempt
    one, h, end = jnp.ones_like(attempt.t), attempt.h, attempt.step.y1
    # above 1 in a step of few resolutions, whose sides are looked at before its start
    part = jnp.maximum(_BESIDE * one, _ROUNDINGS * attempt.clock.resolution / attempt.size)

    def on_line(y: Y, change: Y, factor: Array) -> Y:
        return jax.tree.map(lambda x, r: x + factor.astype(x.dtype) * r, y, change)

    def state(y: Y, change: Y, places: float | Array) -> Y:
        """The state at a number of parts before the end, with algebraic variables that are consistent there."""
        there = on_line(y, change, places * part)
        if base.traits.field_is_rate:
            return there
        return base.coordinates.after_event(field.base, attempt.end + places * part * h, there, attempt.shown(there))[0]

    def rate(y: Y, places: float | Array) -> Y:
        found = base.coordinates.rate(field.base, attempt.end + places * part * h, y)
        return jax.tree.map(lambda r: r * h.astype(r.dtype), found)

    # on the chord, whose start is before the event whatever the last stages made of the path
    chord = jax.tree.map(lambda a, b: b - a, attempt.y, end)
    along = rate(state(end, chord, -1.0), -1.0)
    # a step of few resolutions ends beyond the event by as much as it is long, at whatever rate its stages had there
    anchor = jax.tree.map(lambda x, a, b: jnp.where(part < 1, x, a + b), end, attempt.y, along)
    near, far = state(anchor, along, -1.0), state(anchor, along, -2.0)
    if base.traits.field_is_rate and _has_tangents(field.base, attempt.end, attempt.y):
        # in steps of few resolutions, a difference of two rates is rounding, and so would second derivatives be
        last, change = jax.jvp(lambda places: rate(state(anchor, along, places), places), (-one,), (one,))
    else:
        last, earlier = rate(near, -1.0), rate(far, -2.0)
        change = jax.tree.map(jnp.subtract, last, earlier)
    before = jax.tree.map(jnp.add, last, change)
    ahead = state(end, before, 1.0)
    beyond = rate(ahead, 1.0)

    def jumps(before: Array, change: Array, beyond: Array) -> Array:
        least = max(_SMALLEST_JUMP, _JUMP_ROUNDINGS * float(jnp.finfo(before.dtype).eps))
        size = jnp.maximum(jnp.abs(before), jnp.abs(beyond))
        return jnp.abs(beyond - before - change) > _CHANGE * jnp.abs(change) + least * size

    jump = jax.tree.map(jumps, before, change, beyond)
    if not base.traits.field_is_rate:  # algebraic variables jump themselves, and are at the end as before it
        end = jax.tree.map(lambda a, b: 2 * a - b, near, far)
        step = jax.tree.map(jnp.subtract, near, far)
        jump = jax.tree.map(jnp.logical_or, jump, jax.tree.map(jumps, end, step, ahead))

    def path(place: Array) -> Y:
        def of_leaf(x: Array, rate: Array, change: Array, end: Array, jump: Array) -> Array:
            back = (place - 1).astype(x.dtype)
            line = end + back * (rate + back / (2 * part.astype(x.dtype)) * change)
            return jnp.where(jump & (place > 1 - part), line, x)

        return jax.tree.map(of_leaf, attempt.path(place), before, change, end, jump)

    return attempt._replace(path=path)
