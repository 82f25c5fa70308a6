"""A strong explosion in a gas at rest."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_BISECTIONS = 60
_SURFACES = {1: 2.0, 2: 2 * math.pi, 3: 4 * math.pi}
"""The surface of the unit ball: of a plane explosion, its two faces."""


class _Profile(NamedTuple):
    """What the flow behind the shock is in units of that right behind it, at shares of the shock's radius."""

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

    the flow is a function of $r / R$ alone; $\alpha$ follows from the energy that is there.

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
    the parameter here, as its logarithm: it is sought where the radius is the one asked for.
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
