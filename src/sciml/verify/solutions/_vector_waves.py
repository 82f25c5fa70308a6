"""Exact solutions for elastic waves along a surface and for Maxwell's equations."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..._jax._loops import scan
from ..._types import RealScalarLike


def rayleigh_speed(
    lame: RealScalarLike = 1.0, shear: RealScalarLike = 1.0, density: RealScalarLike = 1.0
) -> Float[Array, ""]:
    r"""Returns the speed of Rayleigh's wave along the free surface of an elastic half space.

    The root $c$ between 0 and $c_s$ of

    $$\Big(2 - \frac{c^2}{c_s^2}\Big)^2 = 4 \sqrt{1 - \frac{c^2}{c_p^2}} \sqrt{1 - \frac{c^2}{c_s^2}}, \qquad
      c_p^2 = \frac{\lambda + 2 \mu}{\rho}, \quad c_s^2 = \frac{\mu}{\rho}$$

    Args:
        lame: $\lambda$.
        shear: $\mu$.
        density: $\rho$.

    Returns:
        $c$; it can be differentiated.

    Source:
        Lord Rayleigh, Proc. Lond. Math. Soc. 17:4, 1885.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("rayleigh_speed", 1.0, 1.0, 1.0) - 0.9194017) < 1e-6  # (2 - 2 / 3**0.5)**0.5
        ```
    """
    dtype = jnp.result_type(float)
    stiffness, mu, rho = (jnp.asarray(x).astype(dtype) for x in (lame, shear, density))
    ratio = mu / (stiffness + 2 * mu)

    def equation(x: Array, ratio: Array) -> Array:
        """For the square of the speed over the shear speed, without roots: x^3 - 8 x^2 + (24 - 16 r) x = 16 (1 - r)."""
        return ((x - 8) * x + 24 - 16 * ratio) * x - 16 * (1 - ratio)

    def halve(ends: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        low, high = ends
        middle = (low + high) / 2
        below = equation(middle, ratio) < 0
        return (jnp.where(below, middle, low), jnp.where(below, high, middle)), None

    (low, high), _ = scan(halve, (jnp.zeros_like(ratio), jnp.ones_like(ratio)), length=60, like=ratio)
    x = jax.lax.stop_gradient((low + high) / 2)
    slope = jax.lax.stop_gradient((3 * x - 16) * x + 24 - 16 * ratio)
    x = x - equation(x, ratio) / slope  # a step of Newton's method has the derivative
    return jnp.sqrt(x * mu / rho)


def rayleigh_wave(
    name: str,
    coordinates: Sequence[Float[Array, "..."]],
    t: RealScalarLike,
    *,
    wave_number: RealScalarLike,
    lame: RealScalarLike = 1.0,
    shear: RealScalarLike = 1.0,
    density: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns a field of Rayleigh's wave in the half space $y < 0$ below a free surface.

    With $a^2 = 1 - c^2 / c_p^2$, $b^2 = 1 - c^2 / c_s^2$ and $\theta = k (x - c t)$

    $$v_x = \Big(e^{k a y} - \frac{1 + b^2}{2} e^{k b y}\Big) \cos \theta, \qquad
      v_y = \Big(a e^{k a y} - \frac{1 + b^2}{2 b} e^{k b y}\Big) \sin \theta$$

    Args:
        name: The field: `"vx"`, `"vy"`, `"sxx"`, `"syy"` or `"sxy"`.
        coordinates: $x$ and $y$, arrays that broadcast against each other.
        t: The time.
        wave_number: $k$.
        lame: $\lambda$.
        shear: $\mu$.
        density: $\rho$.

    Raises:
        ValueError: If there is no such field.

    Source:
        L. D. Landau, E. M. Lifshitz, Theory of Elasticity, Pergamon, 1986, section 24.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        x = jnp.linspace(0.0, 1.0, 5)
        pull = verify.reference("rayleigh_wave", "syy", (x, 0 * x), 0.2, wave_number=6.0)
        assert jnp.allclose(pull, 0.0, atol=1e-5)  # the surface is free
        ```
    """
    x, y = coordinates
    dtype = x.dtype
    c = rayleigh_speed(lame, shear, density).astype(dtype)
    k, stiffness, mu, rho = (jnp.asarray(q).astype(dtype) for q in (wave_number, lame, shear, density))
    a, b = jnp.sqrt(1 - c**2 * rho / (stiffness + 2 * mu)), jnp.sqrt(1 - c**2 * rho / mu)
    theta = k * (x - c * jnp.asarray(t, dtype))
    deep, shallow = jnp.exp(k * a * y), jnp.exp(k * b * y)
    half = (1 + b**2) / 2
    across, along = deep - half * shallow, a * deep - half / b * shallow  # of v_x and v_y
    if name == "vx":
        return across * jnp.cos(theta)
    if name == "vy":
        return along * jnp.sin(theta)
    # the rates of stress over k; the integral of sin(theta) over time is cos(theta) / k c
    by_x, by_y = -across, a**2 * deep - half * shallow
    if name in ("sxx", "syy"):
        own, other = (by_x, by_y) if name == "sxx" else (by_y, by_x)
        return ((stiffness + 2 * mu) * own + stiffness * other) * jnp.cos(theta) / c
    if name == "sxy":
        return -mu * (2 * a * deep - half * (b + 1 / b) * shallow) * jnp.sin(theta) / c
    raise ValueError(f"there is no field {name!r} of Rayleigh's wave: they are vx, vy, sxx, syy, sxy.")


class Fresnel(NamedTuple):
    """The response to a plane wave of amplitude one.

    Attributes:
        reflected: The amplitude of the electric field that comes back, at the first surface.
        transmitted: That which leaves, at the last surface.
        reflectance: The part of the power that comes back.
        transmittance: The part of the power that leaves.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("layered_medium", 1.0, [1.0, 2.25]).reflectance - 0.04) < 1e-6  # glass
        ```
    """

    reflected: Complex[Array, ""]
    transmitted: Complex[Array, ""]
    reflectance: Array
    transmittance: Array


def layered_medium(
    omega: RealScalarLike,
    permittivity: Sequence[Any],
    thickness: Sequence[Any] = (),
    *,
    angle: RealScalarLike = 0.0,
    polarization: str = "s",
) -> Fresnel:
    r"""Returns the response of a stack of layers to a plane wave $\propto e^{-i \omega t}$, with a speed of light of 1.

    By the product of the layers' matrices, with $\cos k_z d$ on the diagonal and $-i \sin(k_z d) / q$ and
    $-i q \sin k_z d$ off the diagonal, $k_z = \sqrt{\varepsilon \omega^2 - k_x^2}$, where $q$ is $k_z / \omega$ for the
    polarisation `"s"`, with the electric field along the layers, and $\varepsilon\, \omega / k_z$ for `"p"`. Without
    layers these are Fresnel's coefficients of a surface. It can be differentiated by everything, so that a stack can be
    designed with it.

    Args:
        omega: $\omega$, the angular frequency, real.
        permittivity: $\varepsilon$ of the medium before the stack, which must not absorb, of each layer, and of the
            medium after it; complex where it absorbs.
        thickness: $d$, of each layer.
        angle: The angle of incidence, from the normal.
        polarization: `"s"` or `"p"`.

    Returns:
        The coefficients; for `"p"` the amplitudes of the field along the layers.

    Raises:
        ValueError: If there are not two permittivities more than thicknesses, or the polarisation is unknown.

    Source:
        M. Born, E. Wolf, Principles of Optics, Cambridge University Press, 1999, section 1.6.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        quarter = jnp.pi / 2 / jnp.sqrt(1.5)  # of a wave within
        coated = verify.reference("layered_medium", 1.0, [1.0, 1.5, 2.25], [quarter])
        assert coated.reflectance < 1e-9  # nothing comes back
        ```
    """
    if len(permittivity) != len(thickness) + 2:
        raise ValueError(
            f"`permittivity` must have two more than the {len(thickness)} layers, for the media on both sides, but has "
            f"{len(permittivity)}."
        )
    if polarization not in ("s", "p"):
        raise ValueError(f"`polarization` must be 's' or 'p', but is {polarization!r}.")
    real = jnp.result_type(float)
    kind = np.result_type(real, np.complex64)
    w = jnp.asarray(omega).astype(real)
    epsilon = [jnp.asarray(x).astype(kind) for x in permittivity]
    along = jnp.sqrt(epsilon[0]) * jnp.sin(jnp.asarray(angle).astype(real)).astype(kind)
    across = [jnp.sqrt(x - along**2) for x in epsilon]
    q = across if polarization == "s" else [x / a for x, a in zip(epsilon, across)]
    rows = [[jnp.ones((), kind), jnp.zeros((), kind)], [jnp.zeros((), kind), jnp.ones((), kind)]]
    for number, d in enumerate(thickness, start=1):
        phase = across[number] * w.astype(kind) * jnp.asarray(d).astype(kind)
        c, s = jnp.cos(phase), -1j * jnp.sin(phase)
        rows = [[a * c + b * s * q[number], a * s / q[number] + b * c] for a, b in rows]
    electric = rows[0][0] + rows[0][1] * q[-1]
    magnetic = rows[1][0] + rows[1][1] * q[-1]
    total = q[0] * electric + magnetic
    r, t = (q[0] * electric - magnetic) / total, 2 * q[0] / total
    return Fresnel(r, t, _square(r), _square(t) * jnp.real(q[-1]) / jnp.real(q[0]))


def _square(x: Array) -> Array:
    return jax.lax.real(x) ** 2 + jax.lax.imag(x) ** 2


def cavity_frequency(
    lengths: Sequence[float],
    mode: Sequence[int],
    *,
    permittivity: RealScalarLike = 1.0,
    permeability: RealScalarLike = 1.0,
) -> Float[Array, ""]:
    r"""Returns the angular frequency of a mode of a box of perfect conductors in one to three dimensions.

    $$\omega = \frac{\pi}{\sqrt{\varepsilon \mu}} \sqrt{\sum_i (m_i / L_i)^2}$$

    Args:
        lengths: $L_i$, the lengths of the box.
        mode: $m_i$, the half waves along each axis.
        permittivity: $\varepsilon$.
        permeability: $\mu$.

    Raises:
        ValueError: If there is not one number of half waves for each length.

    Source:
        D. M. Pozar, Microwave Engineering, Wiley, 2012, section 6.3.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        light = 299792458.0
        omega = verify.reference("cavity_frequency", (1.0, 1.0, 1.0), (1, 1, 0), permittivity=1 / light**2)
        assert abs(omega / (2 * jnp.pi) / 211.98528e6 - 1) < 1e-6  # hertz
        ```
    """
    k = jnp.asarray(np.linalg.norm(_wave_numbers(lengths, mode)), jnp.result_type(float))
    return k / jnp.sqrt(jnp.asarray(permittivity, k.dtype) * jnp.asarray(permeability, k.dtype))


def cavity_mode(
    name: str,
    coordinates: Sequence[Float[Array, "..."]],
    t: RealScalarLike,
    *,
    lengths: Sequence[float],
    mode: Sequence[int],
    amplitude: Sequence[float],
    permittivity: RealScalarLike = 1.0,
    permeability: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns a component of a standing wave in a box of perfect conductors, in one to three dimensions.

    With $k_i = \pi m_i / L_i$ for the axes there are, and 0 for the others,

    $$E_i = A_i \cos(k_i x_i) \prod_{j \ne i} \sin(k_j x_j) \cos \omega t, \qquad
      H_i = -\frac{(k \times A)_i}{\omega \mu} \sin(k_i x_i) \prod_{j \ne i} \cos(k_j x_j) \sin \omega t$$

    where factors of missing axes are 1. $A$ is made perpendicular to $k$.

    Args:
        name: The component, of $E_x$ to $H_z$: `"Ex"` and so on.
        coordinates: $x_i$, from a corner of the box, for each axis an array that broadcasts against the others.
        t: The time.
        lengths: $L_i$.
        mode: $m_i$.
        amplitude: $A$, three numbers.
        permittivity: $\varepsilon$.
        permeability: $\mu$.

    Raises:
        ValueError: If there is no such component, or not one number of half waves for each length.

    Source:
        D. M. Pozar, Microwave Engineering, Wiley, 2012, section 6.3.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        x = jnp.linspace(0.0, 1.0, 5)
        e = verify.reference("cavity_mode", "Ey", (x,), 0.0, lengths=(1.0,), mode=(1,), amplitude=(0.0, 1.0, 0.0))
        assert jnp.allclose(e, jnp.sin(jnp.pi * x), atol=1e-6)
        ```
    """
    k = _wave_numbers(lengths, mode)
    a = np.asarray(amplitude, float)
    a = a - k * (a @ k) / (k @ k)
    omega = cavity_frequency(lengths, mode, permittivity=permittivity, permeability=permeability)
    i, electric = _component(name)
    own, others = (jnp.cos, jnp.sin) if electric else (jnp.sin, jnp.cos)
    x = coordinates[0]
    size = jnp.asarray(a[i], x.dtype)
    phase = omega.astype(x.dtype) * jnp.asarray(t, x.dtype)
    if electric:
        total = size * jnp.cos(phase)
    else:
        turned = jnp.asarray(np.cross(k, a)[i], x.dtype) / (omega.astype(x.dtype) * jnp.asarray(permeability, x.dtype))
        total = -turned * jnp.sin(phase)
    for j, x in enumerate(coordinates):
        total = total * (own if j == i else others)(jnp.asarray(k[j], x.dtype) * x)
    return total


def electromagnetic_plane_wave(
    name: str,
    coordinates: Sequence[Float[Array, "..."]],
    t: RealScalarLike,
    *,
    wave_vector: Sequence[float] | np.ndarray,
    amplitude: Sequence[float],
    permittivity: RealScalarLike = 1.0,
    permeability: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns a component of a plane wave in a uniform medium.

    $$E = A \cos(k \cdot x - \omega t), \qquad H = \frac{k \times A}{\omega \mu} \cos(k \cdot x - \omega t), \qquad
      \omega = \frac{|k|}{\sqrt{\varepsilon \mu}}$$

    $A$ is made perpendicular to $k$.

    Args:
        name: The component, `"Ex"` to `"Hz"`.
        coordinates: For each axis an array that broadcasts against the others.
        t: The time.
        wave_vector: $k$, a number for each axis.
        amplitude: $A$, three numbers.
        permittivity: $\varepsilon$.
        permeability: $\mu$.

    Raises:
        ValueError: If there is no such component, or not one number of the wave vector for each axis.

    Source:
        J. D. Jackson, Classical Electrodynamics, Wiley, 1999, section 7.1.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        x = jnp.linspace(0.0, 1.0, 5)
        wave = dict(wave_vector=(6.0,), amplitude=(0.0, 1.0, 0.0), permittivity=4.0)
        e, h = (verify.reference("electromagnetic_plane_wave", name, (x,), 0.3, **wave) for name in ("Ey", "Hz"))
        assert jnp.allclose(h, 2 * e)  # the impedance is 1 / 2
        ```
    """
    if len(wave_vector) != len(coordinates):
        raise ValueError(
            f"`wave_vector` must have a number for each of {len(coordinates)} axes, but has {len(wave_vector)}."
        )
    k = np.zeros(3)
    k[: len(wave_vector)] = wave_vector
    a = np.asarray(amplitude, float)
    a = a - k * (a @ k) / (k @ k)
    dtype = coordinates[0].dtype
    epsilon, mu = (jnp.asarray(q, dtype) for q in (permittivity, permeability))
    omega = jnp.asarray(np.linalg.norm(k), dtype) / jnp.sqrt(epsilon * mu)
    i, electric = _component(name)
    size = jnp.asarray(a[i], dtype) if electric else jnp.asarray(np.cross(k, a)[i], dtype) / (omega * mu)
    phase = -omega * jnp.asarray(t, dtype)
    for wave_number, x in zip(k, coordinates):
        phase = phase + jnp.asarray(wave_number, dtype) * x
    return size * jnp.cos(phase)


def _component(name: str) -> tuple[int, bool]:
    if name not in ("Ex", "Ey", "Ez", "Hx", "Hy", "Hz"):
        raise ValueError(f"there is no component {name!r}: they are Ex, Ey, Ez, Hx, Hy, Hz.")
    return "xyz".index(name[1]), name[0] == "E"


def _wave_numbers(lengths: Any, mode: Any) -> np.ndarray:
    if len(lengths) != len(mode) or not 1 <= len(mode) <= 3 or not any(mode):
        raise ValueError(
            f"`mode` must be one number of half waves for each of the lengths {tuple(lengths)}, not all zero, but is "
            f"{tuple(mode)}."
        )
    k = np.zeros(3)
    k[: len(mode)] = math.pi * np.asarray(mode, float) / np.asarray(lengths, float)
    return k
