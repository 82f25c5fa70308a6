"""What a stack of layers lets through and throws back: the coefficients of Fresnel and of thin films."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex

from ..._types import RealScalarLike


class Fresnel(NamedTuple):
    """What becomes of a plane wave of amplitude one.

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
    r"""Returns what a stack of layers makes of a plane wave, with time as $e^{-i \omega t}$ and a speed of light of 1.

    By the product of the layers' matrices, with $\cos k_z d$ on the diagonal and $-i \sin(k_z d) / q$ and
    $-i q \sin k_z d$ beside it, $k_z = \sqrt{\varepsilon \omega^2 - k_x^2}$, where $q$ is $k_z / \omega$ for the
    polarisation `"s"`, with the electric field along the layers, and $\varepsilon\, \omega / k_z$ for `"p"`.
    Without layers these are Fresnel's coefficients of a surface. It can be differentiated by everything, so that a
    stack can be designed with it.

    Args:
        omega: $\omega$, the angular frequency, real.
        permittivity: $\varepsilon$ of the medium before the stack, which must not absorb, of each layer, and of the
            medium after it; complex where it absorbs.
        thickness: $d$, of each layer.
        angle: The angle of incidence, from the normal.
        polarization: `"s"` or `"p"`.

    Returns:
        The coefficients; for `"p"` the amplitudes are those of the field along the layers.

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
