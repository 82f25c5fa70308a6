"""Exact results for models with events or a delay: bounces, a neuron that fires, the start of oscillations."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import with_dtype
from ..._types import RealScalarLike
from ...models import BouncingBall, IntegrateAndFire, MackeyGlass


def mackey_glass_onset(model: MackeyGlass) -> Float[Array, ""]:
    r"""Returns the delay above which the Mackey-Glass equation is no longer at rest.

    $$\tau^* = \frac{\arccos(\gamma / b)}{\sqrt{b^2 - \gamma^2}}, \qquad
    b = \frac{\mathrm{d}}{\mathrm{d}x} \frac{\beta x}{1 + x^n} \text{ at } x^n = \beta / \gamma - 1$$

    There a pair of eigenvalues of the equation about its state of rest passes the imaginary axis, at
    $\pm i \sqrt{b^2 - \gamma^2}$.

    Args:
        model: The equation; its delay does not matter.

    Returns:
        The delay; infinite if no delay makes it oscillate, as where $b > -\gamma$.

    Source:
        N. D. Hayes, J. London Math. Soc. 25:226, 1950.

    Example:
        ```python
        from sciml import models, verify

        assert abs(verify.reference("mackey_glass_onset", models.MackeyGlass()) - 4.7082) < 1e-3
        ```
    """
    ratio = model.production / model.loss  # 1 + x^n at rest
    slope = model.loss * (1 - model.exponent * (ratio - 1) / ratio)
    oscillates = (slope < -model.loss) & (ratio > 1)
    known = jnp.where(oscillates, slope, -2 * model.loss)
    onset = jnp.arccos(model.loss / known) / jnp.sqrt(known**2 - model.loss**2)
    return jnp.where(oscillates, onset, jnp.inf)


def firing_period(neuron: IntegrateAndFire) -> Float[Array, ""]:
    r"""Returns the time from one spike to the next, $\tau \ln \frac{E + R I - V_r}{E + R I - \theta}$.

    Args:
        neuron: The neuron.

    Returns:
        The period; infinite if the current is too weak to reach the threshold.

    Source:
        P. Dayan and L. F. Abbott, Theoretical Neuroscience, 2001, equation 5.11.

    Example:
        ```python
        from sciml import models, verify

        assert abs(verify.reference("firing_period", models.IntegrateAndFire(current=2.0)) - 13.862944) < 1e-4
        assert verify.reference("firing_period", models.IntegrateAndFire(current=1.0)) == float("inf")
        ```
    """
    driven = neuron.rest + neuron.resistance * neuron.current
    above = driven - neuron.threshold
    fires = above > 0
    period = neuron.time_constant * jnp.log((driven - neuron.reset) / jnp.where(fires, above, 1))
    return jnp.where(fires, period, jnp.inf)


def bounce_times(ball: BouncingBall, y0: Float[Array, " 2"], count: int) -> Float[Array, " count"]:
    r"""Returns when a ball bounces first, for the second time, and so on.

    $$t_1 = \frac{v_0 + w}{g}, \qquad t_n = t_1 + \frac{2 w}{g} \sum_{k=1}^{n-1} e^k,
    \qquad w = \sqrt{v_0^2 + 2 g h_0}$$

    Args:
        ball: The ball.
        y0: Height and velocity at the start, at time zero.
        count: How many times to return.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import models, verify

        ball = models.BouncingBall(gravity=10.0, restitution=0.5)
        times = verify.reference("bounce_times", ball, jnp.array([5.0, 0.0]), 3)
        assert jnp.allclose(times, jnp.array([1.0, 2.0, 2.5]))
        ```
    """
    p = with_dtype(ball, y0.dtype)
    first, speed = _first(p, y0)
    return first + 2 * speed / p.gravity * _flights(p.restitution, jnp.arange(count, dtype=y0.dtype))


def bouncing_ball(
    ball: BouncingBall, y0: Float[Array, " 2"], t: RealScalarLike | Float[Array, "*times"]
) -> Float[Array, "*times 2"]:
    """Returns height and velocity of a bouncing ball at any time, at rest on the floor after its last bounce.

    Args:
        ball: The ball.
        y0: Height and velocity at the start, at time zero.
        t: Times, none of them negative, of any shape.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import models, verify

        ball = models.BouncingBall(gravity=10.0, restitution=0.5)
        path = verify.reference("bouncing_ball", ball, jnp.array([5.0, 0.0]), jnp.array([0.5, 1.5, 10.0]))
        assert jnp.allclose(path, jnp.array([[3.75, -5.0], [1.25, 0.0], [0.0, 0.0]]), atol=1e-5)
        ```
    """
    p, t = with_dtype(ball, y0.dtype), jnp.asarray(t, y0.dtype)
    first, speed = _first(p, y0)
    flies = p.restitution < 1
    e = jnp.where(flies, p.restitution, 0.5)
    passed = jnp.maximum((t - first) * p.gravity / (2 * speed), 0)  # in flights as long as one without a loss
    left = 1 - passed * (1 - e) / e  # of all flights that there are
    bounces = jnp.where(flies, jnp.floor(jnp.log(jnp.maximum(left, 1e-30)) / jnp.log(e)), jnp.floor(passed))
    begin = first + 2 * speed / p.gravity * _flights(p.restitution, bounces)
    up = speed * p.restitution ** (bounces + 1)
    falls = t < first
    origin, height, velocity = (jnp.where(falls, a, b) for a, b in ((0, begin), (y0[0], 0), (y0[1], up)))
    time = t - origin
    path = jnp.stack([height + velocity * time - p.gravity * time**2 / 2, velocity - p.gravity * time], axis=-1)
    rests = flies & (left <= 0) & ~falls
    return jnp.where(rests[..., None], jnp.zeros_like(path), path)


def _first(p: BouncingBall, y0: Array) -> tuple[Array, Array]:
    """Returns when the first bounce is, and how fast the ball is then."""
    speed = jnp.sqrt(y0[1] ** 2 + 2 * p.gravity * y0[0])
    return (y0[1] + speed) / p.gravity, speed


def _flights(e: Array, count: Array) -> Array:
    """Returns the sum of the first powers of the restitution: the duration of a number of flights."""
    less = jnp.where(e < 1, e, 0.5)
    return jnp.where(e < 1, less * (1 - less**count) / (1 - less), count)
