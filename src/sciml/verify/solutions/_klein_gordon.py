"""Exact solutions of the Klein-Gordon and sine-Gordon equations."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def klein_gordon_wave(
    x: Float[Array, "..."],
    t: RealScalarLike,
    wavenumber: RealScalarLike,
    speed: RealScalarLike = 1.0,
    mass: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns $\cos(k x - \omega t)$ with $\omega = \sqrt{c^2 k^2 + m^2}$, a wave of the linear Klein-Gordon equation.

    Args:
        x: Places, any shape; in several dimensions $k \cdot x / |k|$.
        t: The time.
        wavenumber: $k$.
        speed: $c$.
        mass: $m$.

    Source:
        O. Klein, Z. Phys. 37:895, 1926; W. Gordon, Z. Phys. 40:117, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        assert jnp.allclose(reference("klein_gordon_wave", jnp.zeros(()), jnp.pi / 5, wavenumber=3.0, mass=4.0), -1.0)
        ```
    """
    k, c, m, time = (jnp.asarray(value, x.dtype) for value in (wavenumber, speed, mass, t))
    return jnp.cos(k * x - jnp.sqrt((c * k) ** 2 + m**2) * time)


def sine_gordon_breather(
    x: Float[Array, "..."], t: RealScalarLike, frequency: RealScalarLike = 0.5
) -> Float[Array, "..."]:
    r"""Returns a breather of the sine-Gordon equation $\partial_{tt} u = \partial_{xx} u - \sin u$.

    $$u = 4 \arctan\left(\frac{\kappa}{\omega} \frac{\sin \omega t}{\cosh \kappa x}\right), \qquad
      \kappa = \sqrt{1 - \omega^2}$$

    It stays in place, and its energy is $16 \kappa$. For other $c$ and $m$ give $m x / c$ and $m t$.

    Args:
        x: Places, any shape.
        t: The time; at 0 the field is flat and moves fastest.
        frequency: $\omega$, between 0 and 1.

    Source:
        M. J. Ablowitz, D. J. Kaup, A. C. Newell and H. Segur, Phys. Rev. Lett. 30:1262, 1973.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        top = reference("sine_gordon_breather", jnp.zeros(()), jnp.pi, frequency=0.5)
        assert jnp.allclose(top, 4 * jnp.pi / 3)
        ```
    """
    omega, time = jnp.asarray(frequency, x.dtype), jnp.asarray(t, x.dtype)
    kappa = jnp.sqrt(1 - omega**2)
    return 4 * jnp.arctan(kappa / omega * jnp.sin(omega * time) / jnp.cosh(kappa * x))


def sine_gordon_kink(x: Float[Array, "..."], t: RealScalarLike, velocity: RealScalarLike = 0.0) -> Float[Array, "..."]:
    r"""Returns a kink of the sine-Gordon equation $\partial_{tt} u = \partial_{xx} u - \sin u$.

    $$u = 4 \arctan e^{\gamma (x - v t)}, \qquad \gamma = 1 / \sqrt{1 - v^2}$$

    It rises once from 0 to $2 \pi$, with the energy $8 \gamma$. For other $c$ and $m$ give $m x / c$ and $m t$.

    Args:
        x: Places, any shape.
        t: The time.
        velocity: $v$, between -1 and 1.

    Source:
        J. K. Perring and T. H. R. Skyrme, Nucl. Phys. 31:550, 1962.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        assert jnp.allclose(reference("sine_gordon_kink", jnp.array(1.0), 2.0, velocity=0.5), jnp.pi)
        ```
    """
    v, time = jnp.asarray(velocity, x.dtype), jnp.asarray(t, x.dtype)
    return 4 * jnp.arctan(jnp.exp((x - v * time) / jnp.sqrt(1 - v**2)))
