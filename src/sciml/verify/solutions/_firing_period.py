"""How often an integrate-and-fire neuron fires."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...models import IntegrateAndFire


def firing_period(neuron: IntegrateAndFire) -> Float[Array, ""]:
    r"""Returns the time from one spike to the next, $\tau \ln \frac{E + R I - V_r}{E + R I - \theta}$.

    Args:
        neuron: The neuron.

    Returns:
        The period; infinite where the current is too weak to reach the threshold.

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
