"""Exact states of a quantum particle in a harmonic trap."""

import math

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Complex, Float

from ..._types import RealScalarLike
from ...models import GrossPitaevskii
from ...spatial import Grid, Periodic
from ._problem import Problem, floating


def oscillator_state(
    x: Float[Array, "..."], t: RealScalarLike, level: int = 0, frequency: RealScalarLike = 1.0
) -> Complex[Array, "..."]:
    r"""Returns the state of level $n$ of the Schroedinger equation in the trap $V = \tfrac12 \omega^2 x^2$.

    $$\psi_n = \sqrt[4]{\tfrac{\omega}{\pi}} \frac{1}{\sqrt{2^n n!}}\, H_n(\sqrt\omega x)\, e^{-\omega x^2 / 2}\,
      e^{-i E_n t}, \qquad E_n = (n + \tfrac12)\, \omega$$

    with the Hermite polynomials $H_n$, in units where $\hbar$ and the mass are one. $\int |\psi_n|^2 = 1$. In several
    dimensions products of such states are states.

    Args:
        x: Places, any shape.
        t: The time.
        level: $n$.
        frequency: $\omega$.

    Raises:
        ValueError: If the level is negative.

    Source:
        E. Schroedinger, Ann. Phys. 384:489, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        x = jnp.linspace(-8.0, 8.0, 161)
        psi = reference("oscillator_state", x, jnp.pi / 5, level=2)  # rotated by pi / 2
        assert jnp.max(jnp.abs(psi.real)) < 1e-5
        assert abs(0.1 * jnp.sum(jnp.abs(psi) ** 2) - 1) < 1e-5
        ```
    """
    if level < 0:
        raise ValueError(f"`level` must be at least zero, but is {level}.")
    omega, time = jnp.asarray(frequency, x.dtype), jnp.asarray(t, x.dtype)
    s = jnp.sqrt(omega) * x
    before, size = jnp.zeros_like(s), (omega / math.pi) ** 0.25 * jnp.exp(-s * s / 2)
    for n in range(level):  # of the normalised functions, which do not grow
        before, size = size, math.sqrt(2 / (n + 1)) * s * size - math.sqrt(n / (n + 1)) * before
    phase = (level + 0.5) * omega * time
    return jax.lax.complex(size * jnp.cos(phase), -size * jnp.sin(phase))


def coherent_state(
    x: Float[Array, "..."], t: RealScalarLike, amplitude: RealScalarLike = 1.0, frequency: RealScalarLike = 1.0
) -> Complex[Array, "..."]:
    r"""Returns the ground state of a harmonic trap, displaced by $a$: it oscillates and keeps its shape.

    $$\psi = \sqrt[4]{\tfrac{\omega}{\pi}} \exp\left(-\tfrac\omega2 (x - x_c)^2 + i p_c (x - \tfrac{x_c}2)
      - \tfrac{i}{2} \omega t\right), \qquad x_c = a \cos \omega t, \quad p_c = -a \omega \sin \omega t$$

    Args:
        x: Places, any shape.
        t: The time.
        amplitude: $a$.
        frequency: $\omega$.

    Source:
        E. Schroedinger, Naturwissenschaften 14:664, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        x = jnp.linspace(-8.0, 8.0, 161)
        density = jnp.abs(reference("coherent_state", x, jnp.pi / 3, amplitude=2.0)) ** 2
        assert abs(x[jnp.argmax(density)] - 1.0) < 0.06
        ```
    """
    omega, a, time = (jnp.asarray(value, x.dtype) for value in (frequency, amplitude, t))
    center, momentum = a * jnp.cos(omega * time), -a * omega * jnp.sin(omega * time)
    size = (omega / math.pi) ** 0.25 * jnp.exp(-omega / 2 * (x - center) ** 2)
    phase = momentum * (x - center / 2) - omega * time / 2
    return jax.lax.complex(size * jnp.cos(phase), size * jnp.sin(phase))


def schroedinger_level(
    level: int = 0, *, points: int = 64, t1: RealScalarLike = 2.0, dtype: DTypeLike | None = None
) -> Problem:
    r"""Returns a level of the harmonic trap, which rotates as $e^{-i (n + 1/2) t}$; see `oscillator_state`.

    The box is 20 long and periodic; the potential $\tfrac12 x^2$.

    Args:
        level: $n$, up to about 10 in this box.
        points: The number of points.
        t1: The end time.
        dtype: The dtype of the state, complex; the default if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("schroedinger_level", 1)
        assert abs(problem.model.energy(problem.y0) - 1.5) < 1e-4
        ```
    """
    dtype = jnp.zeros((), floating(None)).astype(complex).dtype if dtype is None else dtype
    (x,) = Grid(points, -10.0, 10.0).centers
    x = x.astype(jnp.finfo(dtype).dtype)
    model = GrossPitaevskii(Grid(points, -10.0, 10.0), Periodic(), potential=x**2 / 2, coupling=0.0)

    def exact(problem, t):
        return oscillator_state(x.astype(problem.y0.real.dtype), t, level)

    return Problem(
        model=model,
        y0=oscillator_state(x, 0.0, level),
        t0=0.0,
        t1=t1,
        exact=exact,
        accuracy=1e-10,
        name=f"level {level} of a harmonic trap",
        source="exact",
    )
