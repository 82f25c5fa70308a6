"""Exact solutions for an ideal gas: Riemann problems, a vortex that is carried along, a strong explosion."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
    r"""Returns the exact solution of the Riemann problem: a jump between two states of an ideal gas.

    Two waves, each a shock or a rarefaction, leave the jump, with a contact between them. Everything depends only on
    $\xi = x / t$, with $x$ measured from the jump. If the states separate so fast that a vacuum opens, density and
    pressure are zero there, and the velocity is $\xi$.

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
    """The pressure between both waves, by Newton's method; derivatives come from one more iteration."""

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


def isentropic_vortex(
    x: Float[Array, "..."],
    y: Float[Array, "..."],
    t: float | Array = 0.0,
    *,
    velocity: tuple[float, float] = (1.0, 1.0),
    strength: float | Array = 5.0,
    gamma: float | Array = 1.4,
    period: float | None = None,
) -> Float[Array, "4 ..."]:
    r"""Returns a vortex in a uniform wind, an exact smooth solution of the Euler equations.

    With $r$ the distance from its centre $(\bar x, \bar y)$ and $\beta$ its strength,

    $$v = v_\infty + \frac{\beta}{2 \pi} e^{(1 - r^2) / 2} (-\bar y, \bar x), \qquad
      T = 1 - \frac{(\gamma - 1) \beta^2}{8 \gamma \pi^2} e^{1 - r^2}, \qquad
      \rho = T^{1 / (\gamma - 1)}, \qquad p = \rho T.$$

    Args:
        x: From where the centre is at the start, along the first axis.
        y: The same along the second; it broadcasts against `x`.
        t: The time.
        velocity: $v_\infty$.
        strength: $\beta$.
        gamma: The ratio of specific heats.
        period: The length of a periodic box, or None for the plane. In a box of 20 the vortex is zero to rounding at
            the sides; in one of 10, to about 1e-5.

    Returns:
        Density, both velocities and pressure, the primitive variables of `sciml.models.Euler`.

    Source:
        C.-W. Shu, in Advanced Numerical Approximation of Nonlinear Hyperbolic Equations, Lecture Notes in Mathematics
        1697, Springer, 1998, section 5.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        density, _, _, pressure = verify.reference("isentropic_vortex", jnp.zeros(1), jnp.zeros(1))
        assert abs(density[0] - 0.4938073) < 1e-6 and abs(pressure[0] - 0.3723750) < 1e-6
        ```
    """
    dtype = jnp.result_type(x, y)
    beta, gamma, t = (jnp.asarray(value, dtype) for value in (strength, gamma, t))
    offsets = []
    for place, speed in zip((x, y), velocity):
        moved = place - speed * t
        offsets.append(moved if period is None else (moved + period / 2) % period - period / 2)
    across, along = jnp.broadcast_arrays(*offsets)
    decay = jnp.exp((1 - across**2 - along**2) / 2)
    swirl = beta / (2 * jnp.pi) * decay
    temperature = 1 - (gamma - 1) / (8 * gamma) * (beta / jnp.pi * decay) ** 2
    density = temperature ** (1 / (gamma - 1))
    return jnp.stack([density, velocity[0] - swirl * along, velocity[1] + swirl * across, density * temperature])


_BISECTIONS = 60
_SURFACES = {1: 2.0, 2: 2 * math.pi, 3: 4 * math.pi}
"""The surface of the unit ball: of a plane explosion, its two faces."""


class _Profile(NamedTuple):
    """The flow behind the shock relative to the flow right behind it, at shares of the shock's radius."""

    velocity: Array
    density: Array
    pressure: Array


def sedov(
    r: Float[Array, "..."],
    t: float | Array,
    energy: float | Array = 1.0,
    density: float | Array = 1.0,
    *,
    gamma: float | Array = 1.4,
    ndim: int = 3,
) -> Float[Array, "3 ..."]:
    r"""Returns the flow after an explosion in a point, along a line or over a plane, exactly.

    The gas around it is at rest, of density $\rho_0$ and without pressure. Behind a shock of radius

    $$R(t) = \Big( \frac{E}{\alpha \rho_0} \Big)^{1 / (d + 2)} t^{2 / (d + 2)}$$

    the flow is a function of $r / R$ only; $\alpha$ follows from the energy.

    Args:
        r: The distance from the centre.
        t: The time since the explosion, positive.
        energy: $E$; of a unit of length for a line, of area for a plane, both sides of it together.
        density: $\rho_0$.
        gamma: The ratio of specific heats, between 1 and 7, but not 2.
        ndim: $d$, in how many dimensions it spreads: 3 for a point, 2 for a line, 1 for a plane.

    Returns:
        Density, velocity away from the centre and pressure, of shape `(3, *r.shape)`. They can be differentiated by
        all arguments.

    Raises:
        ValueError: If `ndim` is not 1, 2 or 3, or `gamma` is out of range.

    Source:
        L. I. Sedov, Similarity and Dimensional Methods in Mechanics, Academic Press, 1959; the formulas of J. R. Kamm,
        F. X. Timmes, On efficient generation of numerically robust Sedov solutions, LA-UR-07-2849, 2007.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        density, velocity, pressure = verify.reference("sedov", jnp.array([0.0, 0.999, 1.001]), 1.0, energy=0.851072)
        assert abs(density[1] - 6.0) < 0.15 and density[2] == 1.0  # the shock is at 1
        assert density[0] < 1e-3 < pressure[0]
        ```
    """
    if ndim not in _SURFACES:
        raise ValueError(f"`sedov(ndim=...)` must be 1, 2 or 3, but is {ndim!r}.")
    if isinstance(gamma, int | float) and (not 1 < gamma < 7 or gamma == 2):
        raise ValueError(f"`sedov(gamma=...)` must be between 1 and 7, and not 2, but is {gamma}.")
    dtype = jnp.result_type(r, float)
    r, t, energy, density, gamma = (jnp.asarray(x, dtype) for x in (r, t, energy, density, gamma))
    radius = (energy / (_energy(gamma, ndim) * density)) ** (1 / (ndim + 2)) * t ** (2 / (ndim + 2))
    shock = 2 / (ndim + 2) * radius / t
    share = r / radius
    inside = share < 1
    found = _profile(jnp.where(inside, share, jnp.ones_like(share)), gamma, ndim)
    return jnp.stack(
        [
            jnp.where(inside, density * (gamma + 1) / (gamma - 1) * found.density, density),
            jnp.where(inside, 2 / (gamma + 1) * shock * found.velocity, jnp.zeros_like(r)),
            jnp.where(inside, 2 / (gamma + 1) * density * shock**2 * found.pressure, jnp.zeros_like(r)),
        ]
    )


def _energy(gamma: Array, ndim: int) -> Array:
    r"""Returns $\alpha$, the energy behind a shock at 1 after a unit of time in a gas of density 1, by Gauss's rule."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    places = jnp.asarray((nodes + 1) / 2, gamma.dtype)
    found = _profile(places, gamma, ndim)
    kinetic = 2 / (gamma**2 - 1) * found.density * found.velocity**2
    inner = 2 / (gamma**2 - 1) * found.pressure
    shells = jnp.asarray(weights / 2, gamma.dtype) * places ** (ndim - 1)
    return _SURFACES[ndim] * (2 / (ndim + 2)) ** 2 * jnp.sum(shells * (kinetic + inner))


def _profile(share: Array, gamma: Array, ndim: int) -> _Profile:
    """Returns the flow at shares of the shock's radius.

    All of it is powers of four linear functions of the velocity over the radius. The one that vanishes at the centre is
    the parameter here, as its logarithm: it is found for the requested radius.
    """
    j = ndim
    second = -(gamma - 1) / (2 * (gamma - 1) + j)
    first = (j + 2) * gamma / (2 + j * (gamma - 1)) * (2 * j * (2 - gamma) / (gamma * (j + 2) ** 2) - second)
    fourth, fifth = (j + 2) * first / (2 - gamma), -2 / (2 - gamma)
    b, c, e = (gamma + 1) / (gamma - 1), (j + 2) * gamma / 2, (2 + j * (gamma - 1)) / 2
    d = (j + 2) * (gamma + 1) / ((j + 2) * (gamma + 1) - 4 * e)

    def parts(log):
        v = (1 + jnp.exp(log) / b) / c
        return (j + 2) * (gamma + 1) / 4 * v, d * (1 - e * v), b * (1 - c / gamma * v)

    def log_radius(log):
        x1, x3, _ = parts(log)
        return -2 / (j + 2) * jnp.log(x1) - second * log - first * jnp.log(x3)

    least = math.log(float(jnp.finfo(share.dtype).tiny))
    low, high = jnp.full_like(share, 0.9 * least), jnp.zeros_like(share)
    away = share > 0
    # at the centre itself the parameter is the least one, without a derivative
    sought = jnp.maximum(jnp.log(jnp.where(away, share, jnp.ones_like(share))), log_radius(low))
    sought = jnp.where(away, sought, log_radius(low))

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        below = log_radius(middle) < sought
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    found = jax.lax.stop_gradient(jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))[0])
    # one step of Newton's method carries the derivatives
    value, slope = jax.jvp(log_radius, (found,), (jnp.ones_like(found),))
    log = found - (value - sought) / jax.lax.stop_gradient(slope)
    x1, x3, x4 = parts(log)
    return _Profile(
        x1 * share,
        jnp.exp(j / (2 * (gamma - 1) + j) * log) * x3**fourth * x4**fifth,
        x1 ** (2 * j / (j + 2)) * x3 ** (fourth - 2 * first) * x4 ** (1 + fifth),
    )
