"""The exact solution of Riemann problems of an ideal gas."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_ITERATIONS = 40


class _Side(NamedTuple):
    """A gas at one side, with velocities counted away from the other side."""

    density: Array
    velocity: Array
    pressure: Array
    sound: Array


def riemann_euler(
    left: Float[Array, "3"], right: Float[Array, "3"], speed: Float[Array, "..."], gamma: float | Array = 1.4
) -> Float[Array, "3 ..."]:
    r"""Returns what becomes of a jump between two states of an ideal gas, exactly.

    Two waves, each a shock or a rarefaction, leave the jump, with a contact between them. All depends on $\xi = x / t$
    alone, with $x$ from where the jump was. Where the states part so fast that a vacuum opens, density and pressure
    are zero there, and the velocity is $\xi$.

    Args:
        left: Density, velocity and pressure for $x < 0$ at the start.
        right: The same for $x > 0$.
        speed: $\xi$.
        gamma: The ratio of specific heats.

    Returns:
        Density, velocity and pressure at each $\xi$, of shape `(3, *speed.shape)`. It can be differentiated by the
        states, $\xi$ and $\gamma$.

    Source:
        E. F. Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, Springer, 2009, chapter 4.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        sod = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.125, 0.0, 0.1])
        density, velocity, pressure = verify.reference("riemann_euler", *sod, jnp.array([0.0, 1.5, 1.8]))
        assert abs(pressure[0] - 0.3031302) < 1e-6 and abs(velocity[1] - 0.9274526) < 1e-6
        assert density[2] == 0.125  # ahead of the shock
        ```
    """
    dtype = jnp.result_type(left, right, speed)
    left, right, speed = (jnp.asarray(x, dtype) for x in (left, right, speed))
    gamma = jnp.asarray(gamma, dtype)
    sides = _side(left, gamma, 1.0), _side(right, gamma, -1.0)
    apart = -(sides[0].velocity + sides[1].velocity)  # both towards the other side
    room = 2 / (gamma - 1) * (sides[0].sound + sides[1].sound)
    vacuum = apart >= room
    pressure = _pressure(sides, gamma, vacuum)
    middle = (left[1] + right[1] + _rise(sides[1], pressure, gamma) - _rise(sides[0], pressure, gamma)) / 2
    found = []
    for side, sign in zip(sides, (1.0, -1.0)):
        # a rarefaction into a vacuum leaves its own speed at its tail
        escape = sign * (side.velocity + 2 / (gamma - 1) * side.sound)
        contact = jnp.where(vacuum, escape, middle)
        found.append((_beside(side, pressure, sign * contact, sign * speed, gamma, sign), contact))
    (from_left, low), (from_right, high) = found
    empty = jnp.stack([jnp.zeros_like(speed), speed, jnp.zeros_like(speed)])
    inner = jnp.where(speed <= low, from_left, from_right)
    return jnp.where(vacuum & (speed > low) & (speed < high), empty, inner)


def _side(state: Array, gamma: Array, sign: float) -> _Side:
    density, velocity, pressure = state
    return _Side(density, sign * velocity, pressure, jnp.sqrt(gamma * pressure / density))


def _rise(side: _Side, pressure: Array, gamma: Array) -> Array:
    """By how much a wave that leads to a pressure changes the velocity."""
    ratio = pressure / side.pressure
    a = 2 / ((gamma + 1) * side.density)
    b = (gamma - 1) / (gamma + 1) * side.pressure
    shock = (pressure - side.pressure) * jnp.sqrt(a / (pressure + b))
    fan = 2 * side.sound / (gamma - 1) * (ratio ** ((gamma - 1) / (2 * gamma)) - 1)
    return jnp.where(ratio > 1, shock, fan)


def _pressure(sides: tuple[_Side, _Side], gamma: Array, vacuum: Array) -> Array:
    """The pressure between both waves, by Newton's method; derivatives are those of one more iteration."""

    def excess(pressure, sides, gamma):
        rises = [_rise(side, pressure, gamma) - side.velocity for side in sides]
        return rises[0] + rises[1]

    slope = jax.grad(excess)
    fixed_sides, fixed_gamma = jax.lax.stop_gradient((sides, gamma))

    def iterate(_, pressure):
        step = excess(pressure, fixed_sides, fixed_gamma) / slope(pressure, fixed_sides, fixed_gamma)
        return jnp.maximum(pressure - step, pressure / 10)

    start = jnp.minimum(fixed_sides[0].pressure, fixed_sides[1].pressure)
    found = jax.lax.stop_gradient(jax.lax.fori_loop(0, _ITERATIONS, iterate, start))
    refined = found - excess(found, sides, gamma) / jax.lax.stop_gradient(slope(found, fixed_sides, fixed_gamma))
    return jnp.where(vacuum, jnp.finfo(found.dtype).tiny * jnp.ones_like(found), jnp.maximum(refined, found / 10))


def _beside(side: _Side, pressure: Array, contact: Array, speed: Array, gamma: Array, sign: float) -> Array:
    """The state between the undisturbed gas of a side and the contact, with speeds counted towards the other side."""
    ratio = pressure / side.pressure
    g = (gamma - 1) / (gamma + 1)
    shock_speed = side.velocity - side.sound * jnp.sqrt((gamma + 1) / (2 * gamma) * (ratio - 1) + 1)
    behind_shock = side.density * (ratio + g) / (g * ratio + 1)
    behind_fan = side.density * ratio ** (1 / gamma)
    tail = contact - side.sound * ratio ** ((gamma - 1) / (2 * gamma))
    head = side.velocity - side.sound
    # within a rarefaction
    sound = jnp.maximum(2 / (gamma + 1) * (side.sound + (gamma - 1) / 2 * (side.velocity - speed)), 0)
    expanded = sound / side.sound
    fan = (
        side.density * expanded ** (2 / (gamma - 1)),
        speed + sound,
        side.pressure * expanded ** (2 * gamma / (gamma - 1)),
    )
    shocked = ratio > 1
    star = jnp.where(shocked, behind_shock, behind_fan), contact, pressure
    undisturbed = jnp.where(shocked, speed < shock_speed, speed < head)
    within = ~shocked & (speed < tail)
    parts = [
        jnp.where(undisturbed, own, jnp.where(within, inside, after))
        for own, inside, after in zip((side.density, side.velocity, side.pressure), fan, star)
    ]
    return jnp.stack([parts[0], sign * parts[1], parts[2]])
