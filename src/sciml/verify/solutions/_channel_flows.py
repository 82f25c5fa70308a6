"""Flow between two plates."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def poiseuille(
    y: Float[Array, "..."],
    *,
    slope: float | Array = 1.0,
    viscosity: float | Array = 1.0,
    height: float | Array = 1.0,
) -> Float[Array, "..."]:
    r"""Returns the velocity between two plates at rest that pressure drives, $\tfrac{G}{2 \nu} y (h - y)$.

    Args:
        y: The distance from the lower plate.
        slope: $G$, by how much the pressure over the density falls in a unit of length: an acceleration.
        viscosity: $\nu$.
        height: $h$, the distance of the plates.

    Source:
        G. K. Batchelor, An Introduction to Fluid Dynamics, Cambridge, 1967, section 4.2.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        assert verify.reference("poiseuille", jnp.array(0.5), slope=8.0) == 1.0
        ```
    """
    slope, viscosity, height = (jnp.asarray(value, y.dtype) for value in (slope, viscosity, height))
    return slope / (2 * viscosity) * y * (height - y)


def couette(
    y: Float[Array, "..."],
    t: float | Array = math.inf,
    *,
    speed: float | Array = 1.0,
    viscosity: float | Array = 1.0,
    height: float | Array = 1.0,
    terms: int = 200,
) -> Float[Array, "..."]:
    r"""Returns the velocity between two plates, of which the upper one starts to move at $t = 0$.

    $$u = U \frac{y}{h} + \frac{2 U}{\pi} \sum_{n=1}^\infty \frac{(-1)^n}{n} e^{-n^2 \pi^2 \nu t / h^2}
      \sin \frac{n \pi y}{h}$$

    Args:
        y: The distance from the plate at rest.
        t: The time; by default the flow that has become steady, $U y / h$.
        speed: $U$, of the upper plate.
        viscosity: $\nu$.
        height: $h$, the distance of the plates.
        terms: How many terms of the series; 200 are exact to rounding for $\nu t > 10^{-4} h^2$.

    Source:
        G. K. Batchelor, An Introduction to Fluid Dynamics, Cambridge, 1967, section 4.3.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        y = jnp.linspace(0.0, 1.0, 5)
        assert jnp.allclose(verify.reference("couette", y, 1e-3)[:4], 0.0, atol=1e-6)  # nothing has come that far
        assert jnp.allclose(verify.reference("couette", y, 10.0), verify.reference("couette", y))
        ```
    """
    speed, viscosity, height, t = (jnp.asarray(value, y.dtype) for value in (speed, viscosity, height, t))
    n = np.arange(1, terms + 1)
    numbers = jnp.asarray(n.reshape(-1, *(1,) * y.ndim), y.dtype)
    signs = jnp.asarray(((-1.0) ** n / n).reshape(numbers.shape), y.dtype)
    share = (y / height)[None]
    decays = jnp.exp(-((numbers * math.pi / height) ** 2) * viscosity * t)
    return speed * (share[0] + 2 / math.pi * jnp.sum(signs * decays * jnp.sin(numbers * math.pi * share), axis=0))
