"""What is known exactly of phases and patterns: walls at rest, and how fast small waves grow."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def phase_wall(x: Float[Array, "..."], width: RealScalarLike = 1.0) -> Float[Array, "..."]:
    r"""Returns $\tanh(x / (\sqrt 2 \epsilon))$, a wall at rest between the phases $\pm 1$.

    It solves the Allen-Cahn and the Cahn-Hilliard equation, $u^3 - u - \epsilon^2 u'' = 0$. Its energy
    $\int \tfrac12 \epsilon^2 u'^2 + \tfrac14 (1 - u^2)^2$ is $\tfrac{2 \sqrt 2}{3} \epsilon$.

    Args:
        x: The distance from the middle of the wall, any shape.
        width: $\epsilon$.

    Source:
        J. W. Cahn and J. E. Hilliard, J. Chem. Phys. 28:258, 1958.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import AllenCahn
        from sciml.spatial import Grid, Neumann
        from sciml.verify import reference

        grid = Grid(128, -1.0, 1.0)
        model = AllenCahn(grid, Neumann(0.0), width=0.1)
        assert jnp.max(jnp.abs(model(0.0, reference("phase_wall", grid.centers[0], 0.1), None))) < 5e-3
        ```
    """
    return jnp.tanh(x / jnp.asarray(jnp.sqrt(2.0) * width, x.dtype))


def cahn_hilliard_growth(
    wavenumber: Float[Array, "..."],
    width: RealScalarLike = 0.01,
    mobility: RealScalarLike = 1.0,
    mean: RealScalarLike = 0.0,
) -> Float[Array, "..."]:
    r"""Returns the rate at which a small wave on a mixture grows, $\sigma = M k^2 (1 - 3 m^2 - \epsilon^2 k^2)$.

    Mixtures with $3 m^2 < 1$ separate. The fastest wave has $\epsilon^2 k^2 = (1 - 3 m^2) / 2$.

    Args:
        wavenumber: $|k|$, any shape.
        width: $\epsilon$.
        mobility: $M$.
        mean: $m$, the mean of the field.

    Source:
        J. W. Cahn, Acta Metall. 9:795, 1961.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        rates = reference("cahn_hilliard_growth", jnp.array([0.0, 5.0, 10.0]), width=0.1)
        assert jnp.allclose(rates, jnp.array([0.0, 18.75, 0.0]), atol=1e-3)
        ```
    """
    square = jnp.square(wavenumber)
    width, mobility, mean = (jnp.asarray(value, square.dtype) for value in (width, mobility, mean))
    return mobility * square * (1 - 3 * mean**2 - width**2 * square)


def swift_hohenberg_growth(
    wavenumber: Float[Array, "..."], rate: RealScalarLike = 0.2, critical: RealScalarLike = 1.0
) -> Float[Array, "..."]:
    r"""Returns the rate at which a small wave of the Swift-Hohenberg equation grows, $\sigma = r - (q^2 - k^2)^2$.

    All decay where $r < 0$; above this threshold waves of $k \approx q$ grow first.

    Args:
        wavenumber: $|k|$, any shape.
        rate: $r$.
        critical: $q$, the wavenumber of the pattern.

    Source:
        J. Swift and P. C. Hohenberg, Phys. Rev. A 15:319, 1977.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        assert jnp.argmax(reference("swift_hohenberg_growth", jnp.array([0.5, 1.0, 1.5]))) == 1
        ```
    """
    square = jnp.square(wavenumber)
    rate, critical = jnp.asarray(rate, square.dtype), jnp.asarray(critical, square.dtype)
    return rate - jnp.square(critical**2 - square)
