"""Exact solutions of the shallow-water equations: what becomes of a jump, with water or without on one side."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_ITERATIONS = 40


class _Water(NamedTuple):
    """The water at one side, with velocities counted towards the other side."""

    depth: Array
    velocity: Array
    wave: Array  # the speed of a small wave


def riemann_shallow_water(
    left: Float[Array, "2"], right: Float[Array, "2"], speed: Float[Array, "..."], gravity: float | Array = 9.81
) -> Float[Array, "2 ..."]:
    r"""Returns the exact solution of the Riemann problem: a jump of depth and velocity over a level bed.

    Two waves leave it, each a bore or a rarefaction; only one if a side is dry. Everything depends only on
    $\xi = x / t$, with $x$ measured from the jump. Without water, depth and velocity are zero.

    Args:
        left: Depth and velocity for $x < 0$ at the start; a depth of zero for a dry bed.
        right: The same for $x > 0$.
        speed: $\xi$.
        gravity: $g$.

    Returns:
        Depth and velocity at each $\xi$, of shape `(2, *speed.shape)`. It can be differentiated with respect to the
        states, $\xi$ and $g$.

    Source:
        E. F. Toro, Shock-Capturing Methods for Free-Surface Shallow Flows, Wiley, 2001, chapters 5 and 6.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        states = jnp.array([10.0, 0.0]), jnp.array([5.0, 0.0])
        depth, velocity = verify.reference("riemann_shallow_water", *states, jnp.array([0.0]))
        assert abs(depth[0] - 7.269204) < 1e-4 and abs(velocity[0] - 2.919933) < 1e-4
        ```
    """
    dtype = jnp.result_type(left, right, speed)
    left, right, speed = (jnp.asarray(x, dtype) for x in (left, right, speed))
    gravity = jnp.asarray(gravity, dtype)
    sides = _water(left, gravity, 1.0), _water(right, gravity, -1.0)
    apart = -(sides[0].velocity + sides[1].velocity)
    dry = (apart >= 2 * (sides[0].wave + sides[1].wave)) | (sides[0].depth <= 0) | (sides[1].depth <= 0)
    depth = _depth(sides, gravity, dry)
    middle = (left[1] + right[1] + _rise(sides[1], depth, gravity) - _rise(sides[0], depth, gravity)) / 2
    found = []
    for side, sign in zip(sides, (1.0, -1.0)):
        front = sign * (side.velocity + 2 * side.wave)
        shore = jnp.where(dry, front, middle)
        found.append((_beside(side, depth, sign * shore, sign * speed, gravity, sign), shore))
    (from_left, low), (from_right, high) = found
    bare = jnp.stack([jnp.zeros_like(speed)] * 2)
    low = jnp.where(sides[0].depth > 0, low, -jnp.inf)
    high = jnp.where(sides[1].depth > 0, high, jnp.inf)
    inner = jnp.where(speed <= low, from_left, from_right)
    return jnp.where(dry & (speed > low) & (speed < high), bare, inner)


def dam_break(
    x: Float[Array, "..."],
    t: float | Array,
    upstream: float | Array,
    downstream: float | Array = 0.0,
    gravity: float | Array = 9.81,
) -> Float[Array, "2 ..."]:
    r"""Returns depth and velocity after a dam at $x = 0$ broke: Stoker's solution, or Ritter's over a dry bed.

    Over a dry bed the depth is $h = (2 c - x / t)^2 / 9 g$ and the velocity $\tfrac23 (c + x / t)$ between $-c t$ and
    the front at $2 c t$, with $c^2 = g h_0$.

    Args:
        x: The position, from the dam.
        t: The time since it broke, positive.
        upstream: The depth for $x < 0$ at the start.
        downstream: That for $x > 0$, less than upstream; zero for a dry bed.
        gravity: $g$.

    Returns:
        Depth and velocity, of shape `(2, *x.shape)`.

    Source:
        A. Ritter, Z. Ver. Dtsch. Ing. 36:947, 1892; J. J. Stoker, Water Waves, Interscience, 1957, section 10.8.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        depth, velocity = verify.reference("dam_break", jnp.array([0.0]), 1.0, upstream=9.0)
        assert jnp.allclose(depth, 4.0)  # four ninths
        ```
    """
    x = jnp.asarray(x)
    still = jnp.zeros((), x.dtype)
    left, right = (jnp.stack([jnp.asarray(depth, x.dtype), still]) for depth in (upstream, downstream))
    return riemann_shallow_water(left, right, x / jnp.asarray(t, x.dtype), gravity)


def _water(state: Array, gravity: Array, sign: float) -> _Water:
    depth, velocity = state
    wet = depth > 0
    return _Water(
        depth, sign * velocity, jnp.where(wet, jnp.sqrt(gravity * jnp.where(wet, depth, jnp.ones_like(depth))), 0)
    )


def _rise(side: _Water, depth: Array, gravity: Array) -> Array:
    """By how much a wave that leads to a depth changes the velocity."""
    own = jnp.where(side.depth > 0, side.depth, jnp.ones_like(depth))
    bore = (depth - own) * jnp.sqrt(gravity / 2 * (1 / depth + 1 / own))
    return jnp.where(depth > own, bore, 2 * (jnp.sqrt(gravity * depth) - side.wave))


def _depth(sides: tuple[_Water, _Water], gravity: Array, dry: Array) -> Array:
    """The depth between both waves, by Newton's method; derivatives come from one more iteration."""

    def excess(depth, sides, gravity):
        rises = [_rise(side, depth, gravity) - side.velocity for side in sides]
        return rises[0] + rises[1]

    slope = jax.grad(excess)
    fixed, constant = jax.lax.stop_gradient((sides, gravity))

    def iterate(_, depth):
        return jnp.maximum(depth - excess(depth, fixed, constant) / slope(depth, fixed, constant), depth / 10)

    start = jnp.minimum(fixed[0].depth, fixed[1].depth)
    start = jnp.where(dry, jnp.ones_like(start), start)
    found = jax.lax.stop_gradient(jax.lax.fori_loop(0, _ITERATIONS, iterate, start))
    refined = found - excess(found, sides, gravity) / jax.lax.stop_gradient(slope(found, fixed, constant))
    return jnp.where(dry, jnp.full_like(found, jnp.finfo(found.dtype).tiny), refined)


def _beside(side: _Water, depth: Array, shore: Array, speed: Array, gravity: Array, sign: float) -> Array:
    """The state between the undisturbed water of a side and the middle, with speeds counted towards the other side."""
    bore = depth > side.depth
    own = jnp.where(side.depth > 0, side.depth, jnp.ones_like(depth))
    bore_speed = side.velocity - jnp.sqrt(gravity * depth / 2 * (depth + own) / own)
    wave = jnp.maximum((side.velocity + 2 * side.wave - speed) / 3, 0)
    tail = shore - jnp.sqrt(gravity * depth)
    undisturbed = jnp.where(bore, speed < bore_speed, speed < side.velocity - side.wave)
    within = ~bore & (speed < tail)
    parts = [
        jnp.where(undisturbed, mine, jnp.where(within, inside, after))
        for mine, inside, after in zip((side.depth, side.velocity), (wave**2 / gravity, speed + wave), (depth, shore))
    ]
    return jnp.stack([parts[0], sign * parts[1]])
