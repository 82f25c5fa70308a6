"""The series of Burgers' equation between walls."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def burgers_series(
    x: Float[Array, "..."], t: RealScalarLike, viscosity: RealScalarLike, *, points: int = 128
) -> Float[Array, "..."]:
    r"""Returns the solution of Burgers' equation from $\sin \pi x$ on $[0, 1]$ with $u = 0$ at both ends.

    By the transformation of Cole and Hopf, with the modified Bessel functions $I_n$ of $z = 1 / 2 \pi \nu$,

    $$u = 4 \pi \nu\, \frac{\sum_{n \ge 1} n\, I_n(z)\, e^{-n^2 \pi^2 \nu t} \sin n \pi x}
    {I_0(z) + 2 \sum_{n \ge 1} I_n(z)\, e^{-n^2 \pi^2 \nu t} \cos n \pi x}$$

    The values $e^{-z} I_n(z)$ are the Fourier coefficients of $e^{z (\cos \theta - 1)}$. `burgers_cole_hopf` is the
    same solution, shifted by 1, by another formula; it also serves small viscosities.

    Args:
        x: Places, any shape.
        t: The time, not negative.
        viscosity: $\nu$, at least about 0.03: below, the denominator loses its digits.
        points: Twice the number of terms.

    Returns:
        $u$ at the places.

    Source:
        J. D. Cole, Quart. Appl. Math. 9:225, 1951.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("burgers_series", jnp.array([0.25, 0.5, 0.75]), 0.25, 1.0)
        assert jnp.allclose(u, jnp.array([0.0592178, 0.0845376, 0.0603471]), atol=1e-5)
        ```
    """
    nu, time = (jnp.asarray(q, x.dtype) for q in (viscosity, t))
    angle = 2 * jnp.pi / points * jnp.arange(points, dtype=x.dtype)
    bessel = jnp.fft.rfft(jnp.exp((jnp.cos(angle) - 1) / (2 * jnp.pi * nu))).real.astype(x.dtype) / points
    n = jnp.arange(bessel.shape[0], dtype=x.dtype)
    terms = bessel * jnp.exp(-jnp.square(n * jnp.pi) * nu * time)
    n, terms = (v.reshape((1,) * x.ndim + (-1,)) for v in (n, terms))
    phase = jnp.pi * n * x[..., None]
    below = 2 * jnp.sum(terms * jnp.cos(phase), axis=-1) - terms.reshape(-1)[0]
    return 4 * jnp.pi * nu * jnp.sum(n * terms * jnp.sin(phase), axis=-1) / below
