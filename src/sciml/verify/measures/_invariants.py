"""Measures of quantities that a solution should conserve or transmit: invariants, balances, reflections."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._jax._largest import largest
from ..._types import RealScalarLike, Y


def reflection_level(heard: Float[Array, "..."], reference: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Returns the level of the reflection from absorbing layers, in decibels relative to the wave.

    $$20 \log_{10} \frac{\max |u - u_\infty|}{\max |u_\infty|}$$

    where $u$ was computed in a box with layers and $u_\infty$ in one so large that nothing comes back in time.

    Args:
        heard: $u$, at any places and times.
        reference: $u_\infty$, at the same ones.

    Raises:
        ValueError: If the two have different shapes.

    Source:
        A. Taflove, S. C. Hagness, Computational Electrodynamics, Artech House, 2005, section 7.11.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        wave = jnp.sin(jnp.linspace(0.0, 6.0, 50))
        assert abs(verify.reference("reflection_level", 1.001 * wave, wave) + 60) < 0.1
        ```
    """
    if heard.shape != reference.shape:
        raise ValueError(f"`heard` must have the shape of `reference`, {reference.shape}, but has {heard.shape}.")
    return 20 * jnp.log10(jnp.max(jnp.abs(heard - reference)) / jnp.max(jnp.abs(reference)))


def conserved(
    quantity: Callable[[Y], Array], trajectory: Y, *, scale: RealScalarLike | None = None
) -> Float[Array, ""]:
    r"""Returns the largest relative drift $\max_n |Q(y_n) - Q(y_0)| / |Q(y_0)|$.

    Args:
        quantity: The quantity that should be constant, a function of one state, such as `Kepler().energy`. For a vector
            the largest elements count.
        trajectory: States, time first on every leaf, such as `sol.ys`.
        scale: The divisor instead of $|Q(y_0)|$, for a quantity that is nearly zero at the start, such as the mass of a
            field of mean zero.

    Returns:
        The drift; zero if nothing changes, infinite if a zero value changes, NaN if a state has a NaN.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import verify

        problem = verify.problem("kepler", eccentricity=0.3)
        orbit = jax.vmap(problem.solution)(jnp.linspace(0.0, 6.0, 7))
        assert verify.conserved(problem.model.energy, orbit) < 1e-5
        ```
    """
    values = jax.vmap(quantity)(trajectory)
    size = jnp.max(jnp.abs(values[0])) if scale is None else jnp.asarray(scale, values.dtype)
    drift = largest(jnp.abs(values - values[:1]))
    return jnp.where(drift == 0, drift, drift / size)


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
