"""The Kepler problem, solved through Kepler's equation."""

import jax.numpy as jnp
from jax.typing import DTypeLike

from ..._parameters import with_dtype
from ..._types import RealScalarLike
from ...models import Kepler
from ._problem import Problem, elapsed, floating


def kepler(eccentricity: float | int = 0.5, *, t1: RealScalarLike = 6.0, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns an ellipse of semi-major axis 1 from its pericentre; the period is $2\pi$.

    The exact solution holds for any ellipse and starting point, so it may be differentiated with
    respect to the initial state and to `mu`.

    Args:
        eccentricity: From 0, the circle, to 0.9.
        t1: The end time; the default is just short of one period, where the speed is high.
        dtype: The dtype of the state; the default floating type if None.

    Raises:
        ValueError: If `eccentricity` is not between 0 and 0.9.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        circle = verify.problem("kepler", eccentricity=0.0)
        assert jnp.allclose(circle.solution(jnp.pi), jnp.array([-1.0, 0.0, 0.0, -1.0]), atol=1e-5)
        ```
    """
    if not 0 <= eccentricity <= 0.9:
        raise ValueError(f"`eccentricity` must lie between 0 and 0.9, but got {eccentricity}.")
    speed = ((1 + eccentricity) / (1 - eccentricity)) ** 0.5
    dtype = floating(dtype)
    return Problem(
        model=Kepler(),
        y0=jnp.asarray([1 - eccentricity, 0.0, 0.0, speed], dtype),
        t0=0.0,
        t1=t1,
        exact=_ellipse,
        name=f"Kepler, eccentricity {eccentricity}",
        source="exact: Lagrange's coefficients, R. H. Battin, Astrodynamics, section 4.3",
    )


def _ellipse(problem, t):
    r"""Returns the state at `t`.

    With $s = r_0 \cdot v_0 / \sqrt{\mu a}$ and $\chi$ the change of the eccentric anomaly,
    Kepler's equation between two points of an ellipse reads
    $$n (t - t_0) = \chi - (1 - r_0/a) \sin\chi + s (1 - \cos\chi).$$
    """
    y0 = problem.y0
    mu = with_dtype(problem.model, y0.dtype).mu
    time = elapsed(problem, t, y0.dtype)
    q, v = y0[:2], y0[2:]
    r0 = jnp.sqrt(jnp.sum(q**2))
    a = 1 / (2 / r0 - jnp.sum(v**2) / mu)
    mean_motion = jnp.sqrt(mu / a) / a
    c = 1 - r0 / a
    s = jnp.sum(q * v) / jnp.sqrt(mu * a)
    mean = mean_motion * time
    # From this side of the root Newton's method cannot overshoot if y0 is the pericentre.
    chi = mean + c * jnp.sign(jnp.sin(mean))
    for _ in range(12):
        kepler_equation = chi - c * jnp.sin(chi) + 2 * s * jnp.sin(chi / 2) ** 2 - mean
        chi = chi - kepler_equation / (1 - c * jnp.cos(chi) + s * jnp.sin(chi))
    rise = 2 * jnp.sin(chi / 2) ** 2  # 1 - cos(chi), without cancellation
    r = a * (1 - c * jnp.cos(chi) + s * jnp.sin(chi))
    f = 1 - a / r0 * rise
    g = time - (chi - jnp.sin(chi)) / mean_motion
    df = -jnp.sqrt(mu * a) / (r * r0) * jnp.sin(chi)
    dg = 1 - a / r * rise
    return jnp.concatenate([f * q + g * v, df * q + dg * v])
