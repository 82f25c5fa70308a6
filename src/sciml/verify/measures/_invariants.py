"""What is known of solutions without a formula: shifts of solitons, the balance of an energy."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def kdv_phase_shifts(fast: RealScalarLike, slow: RealScalarLike) -> Float[Array, "2"]:
    r"""Returns how far two solitons of the Korteweg-de Vries equation are moved by passing through one another.

    $$\Delta_1 = \frac{1}{\sqrt{c_1}} \ln \left(\frac{\sqrt{c_1} + \sqrt{c_2}}{\sqrt{c_1} - \sqrt{c_2}}\right)^2, \qquad
    \Delta_2 = -\frac{1}{\sqrt{c_2}} \ln \left(\frac{\sqrt{c_1} + \sqrt{c_2}}{\sqrt{c_1} - \sqrt{c_2}}\right)^2$$

    Args:
        fast: The speed $c_1$ of the faster one.
        slow: The speed $c_2$ of the other.

    Returns:
        The shifts, forwards and backwards.

    Source:
        C. S. Gardner, J. M. Greene, M. D. Kruskal, R. M. Miura, Phys. Rev. Lett. 19:1095, 1967.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        shifts = verify.reference("kdv_phase_shifts", 9.0, 2.25)
        assert jnp.allclose(shifts, jnp.log(9.0) * jnp.array([1 / 3, -1 / 1.5]))
        ```
    """
    first, second = (jnp.sqrt(jnp.asarray(c, jnp.result_type(float))) for c in (fast, slow))
    shift = 2 * jnp.log((first + second) / (first - second))
    return jnp.stack([shift / first, -shift / second])


def kuramoto_sivashinsky_production(
    u: Float[Array, " points"], length: RealScalarLike, viscosity: RealScalarLike = 1.0
) -> Float[Array, ""]:
    r"""Returns the rate at which the Kuramoto-Sivashinsky equation changes the energy $\tfrac12 \langle u^2 \rangle$.

    $$\frac{d}{dt} \tfrac12 \langle u^2 \rangle = \langle u_x^2 \rangle - \nu \langle u_{xx}^2 \rangle$$

    with the mean $\langle \cdot \rangle$ over the box: the product $u u_x$ moves energy between the modes and makes
    none. In the mean over a long time the two terms are equal.

    Args:
        u: The field, periodic, on equally spaced points.
        length: The length of the box.
        viscosity: $\nu$.

    Source:
        J. M. Hyman, B. Nicolaenko, Physica D 18:113, 1986.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = jnp.sin(jnp.arange(32.0) * 2 * jnp.pi / 32)  # one wave in the box: k = 1 / 2
        growth = verify.reference("kuramoto_sivashinsky_production", u, 4 * jnp.pi)
        assert abs(growth - (0.5**2 - 0.5**4) / 2) < 1e-6
        ```
    """
    points = u.shape[0]
    modes = jnp.fft.rfft(u) / points
    n = jnp.arange(modes.shape[0], dtype=u.dtype)
    twice = jnp.where((n == 0) | (2 * n == points), 1.0, 2.0).astype(u.dtype)
    k = 2 * jnp.pi / jnp.asarray(length, u.dtype) * n
    growth = jnp.square(k) - jnp.asarray(viscosity, u.dtype) * k**4
    return jnp.sum(twice * growth * (jnp.square(modes.real) + jnp.square(modes.imag)))
