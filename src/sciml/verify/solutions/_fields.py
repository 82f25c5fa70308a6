"""Exact solutions of partial differential equations, as functions of place and time."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import RealScalarLike


def burgers_cole_hopf(
    x: Float[Array, "..."], t: RealScalarLike, viscosity: RealScalarLike, *, points: int = 100
) -> Float[Array, "..."]:
    r"""Returns the solution of Burgers' equation from $-\sin \pi x$ on $[-1, 1]$ with $u = 0$ at both ends.

    By the transformation of Cole and Hopf,

    $$u = -\frac{\int \sin(\pi (x - \eta))\, f(x - \eta)\, e^{-\eta^2 / 4 \nu t}\, d\eta}
    {\int f(x - \eta)\, e^{-\eta^2 / 4 \nu t}\, d\eta}, \qquad f(y) = e^{-\cos(\pi y) / 2 \pi \nu}$$

    with the integrals by the quadrature of Gauss and Hermite.

    Args:
        x: Places, any shape.
        t: The time, positive.
        viscosity: $\nu$, down to about $0.01 / \pi$.
        points: The points of the quadrature; more where the shock is sharp.

    Returns:
        $u$ at the places.

    Source:
        C. Basdevant et al., Computers & Fluids 14:23, 1986: at $\nu = 0.01/\pi$ the slope at $x = 0$ reaches
        152.00516 at $t = 1.6037 / \pi$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("burgers_cole_hopf", jnp.array([0.1, 0.25, 0.5]), 0.25, 0.01 / jnp.pi)
        assert jnp.allclose(u, jnp.array([-0.7949744, -0.9920816, -0.8031984]), atol=1e-4)
        ```
    """
    roots, weights = np.polynomial.hermite.hermgauss(points)
    keep = weights > 1e-300  # of many points the outermost have none
    roots, weights = (jnp.asarray(v[keep], x.dtype).reshape((1,) * x.ndim + (-1,)) for v in (roots, np.log(weights)))
    places = x[..., None] - roots * jnp.sqrt(jnp.asarray(4 * viscosity * t, x.dtype))
    exponent = weights - jnp.cos(jnp.pi * places) / (2 * jnp.pi * viscosity)
    share = jax.nn.softmax(exponent, axis=-1)
    return -jnp.sum(jnp.sin(jnp.pi * places) * share, axis=-1)


def fisher_kpp_front(
    x: Float[Array, "..."], t: RealScalarLike, diffusivity: RealScalarLike = 1.0, rate: RealScalarLike = 1.0
) -> Float[Array, "..."]:
    r"""Returns the front of the Fisher-KPP equation with the speed $\tfrac{5}{\sqrt 6} \sqrt{r D}$.

    $$u = \left(1 + e^{\sqrt{r / 6 D}\, x - \tfrac56 r t}\right)^{-2}$$

    Args:
        x: Places, any shape.
        t: The time.
        diffusivity: $D$.
        rate: $r$.

    Returns:
        $u$ at the places, between 0 and 1.

    Source:
        M. J. Ablowitz and A. Zeppetella, Bull. Math. Biol. 41:835, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        assert verify.reference("fisher_kpp_front", jnp.zeros(()), 0.0) == 0.25
        ```
    """
    phase = jnp.sqrt(jnp.asarray(rate / (6 * diffusivity), x.dtype)) * x - 5 / 6 * rate * t
    return jnp.square(jax.nn.sigmoid(-phase))


def gray_scott_steady_states(feed: RealScalarLike, kill: RealScalarLike) -> Float[Array, "3 2"]:
    r"""Returns the uniform steady states $(u, v)$ of the Gray-Scott model.

    They are $(1, 0)$ and, where $F \ge 4 (F + k)^2$, the two with
    $u = \tfrac12 (1 \mp \sqrt{1 - 4 (F + k)^2 / F})$ and $v = F (1 - u) / (F + k)$; elsewhere those are NaN.

    Args:
        feed: $F$.
        kill: $k$.

    Returns:
        The states, one a row.

    Source:
        J. E. Pearson, Science 261:189, 1993.

    Example:
        ```python
        from sciml import verify

        u, v = verify.reference("gray_scott_steady_states", 0.04, 0.05)[1]
        assert abs(float(u * v * v - 0.04 * (1 - u))) < 1e-6
        ```
    """
    feed, kill = jnp.asarray(feed, jnp.result_type(float)), jnp.asarray(kill, jnp.result_type(float))
    root = jnp.sqrt(1 - 4 * (feed + kill) ** 2 / feed)
    u = jnp.stack([jnp.ones_like(root), (1 - root) / 2, (1 + root) / 2])
    return jnp.stack([u, feed * (1 - u) / (feed + kill)], axis=1)
