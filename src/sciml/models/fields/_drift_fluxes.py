r"""Fluxes of what drifts and diffuses, exact between two cells where the force is the same all the way.

Down a potential $V$, with the diffusivity $D$, the flux from one centre to the next at the distance $h$ is

$$J = \frac{D}{h} \big( B(p) u_0 - B(-p) u_1 \big), \qquad p = \frac{V_1 - V_0}{D}, \qquad B(p) = \frac{p}{e^p - 1}.$$

It vanishes where $u_1 / u_0 = e^{-p}$, whatever the distance; both weights are positive, so that what is positive stays
so; and for small $p$ it is the central difference, of second order. These are the fluxes of D. L. Scharfetter and H. K.
Gummel, IEEE Trans. Electron Devices 16:64, 1969, and those of J. S. Chang and G. Cooper, J. Comput. Phys. 6:1, 1970.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...spatial._abstract_grid import AbstractGrid
from ...spatial.geometry import _metric
from ...spatial.geometry._flux_form import alike, ends, gathered, in_fluid, over, strip, surface_of

_SMALL = 1e-2
"""Below this the weight is the polynomial of its first terms, right to rounding."""


def weights(p: Array) -> tuple[Array, Array]:
    """Returns $B(p)$ and $B(-p)$."""
    size = jnp.abs(p)
    small = size < _SMALL
    safe = jnp.where(small, 1.0, size)
    larger = safe / -jnp.expm1(-safe)
    lower, upper = larger * jnp.exp(-safe), larger  # of B(|p|) and B(-|p|)
    even = 1 + jnp.square(jnp.where(small, p, 0.0)) / 12
    odd = jnp.where(small, p, 0.0) / 2
    down = jnp.where(small, even - odd, jnp.where(p > 0, lower, upper))
    up = jnp.where(small, even + odd, jnp.where(p > 0, upper, lower))
    return down, up


def geometric_mean(p: Array) -> Array:
    r"""Returns $\sqrt{B(p) B(-p)} = (p / 2) / \sinh(p / 2)$."""
    size = jnp.abs(p)
    small = size < _SMALL
    safe = jnp.where(small, 1.0, size)
    return jnp.where(
        small, 1 - jnp.square(jnp.where(small, p, 0.0)) / 24, safe * jnp.exp(-safe / 2) / -jnp.expm1(-safe)
    )


def drifted(boundary: Any, grid: AbstractGrid, u: Array, potential: Array, diffusivity: Array) -> Array:
    r"""Returns $\nabla \cdot (D \nabla u + u \nabla V)$ of a field and a potential that have one ghost layer.

    Nothing flows through the surface of a body.

    Args:
        boundary: The boundary.
        grid: The grid.
        u: The field.
        potential: $V$, of the axes of the grid alone or those of the field.
        diffusivity: $D$, a number.
    """
    total = None
    for axis in range(grid.ndim):
        before, after = ends(strip(u, axis, grid.ndim), axis, grid.ndim)
        low, high = ends(strip(potential, axis, grid.ndim), axis, grid.ndim)
        down, up = (over(x, before) for x in weights((high - low) / diffusivity))
        flux = jax.lax.optimization_barrier(diffusivity * (up * after - down * before))  # it is read twice
        at = flux.ndim - grid.ndim + axis
        if alike(boundary):
            n = flux.shape[at] - 1
            change = jax.lax.slice_in_dim(flux, 1, n + 1, axis=at) - jax.lax.slice_in_dim(flux, 0, n, axis=at)
            term = change * (1 / grid.spacing[axis] ** 2)
        else:
            spans = _metric.inverse(_metric.distances(grid, axis, boundary.periodic[axis]))
            flux = _metric.times(flux, grid.ndim, spans)
            faces = surface_of(boundary, axis, flux.dtype)
            if faces is not None:
                flux = jnp.where(over(faces.open, flux), flux, 0)
            term = gathered(boundary, flux, axis)
        total = term if total is None else total + term
    assert total is not None
    return in_fluid(boundary, total)
