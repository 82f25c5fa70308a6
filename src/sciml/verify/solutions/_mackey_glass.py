"""Where the Mackey-Glass equation begins to oscillate."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...models import MackeyGlass


def mackey_glass_onset(model: MackeyGlass) -> Float[Array, ""]:
    r"""Returns the delay above which the Mackey-Glass equation is no longer at rest.

    $$\tau^* = \frac{\arccos(\gamma / b)}{\sqrt{b^2 - \gamma^2}}, \qquad
    b = \frac{\mathrm{d}}{\mathrm{d}x} \frac{\beta x}{1 + x^n} \text{ at } x^n = \beta / \gamma - 1$$

    There a pair of eigenvalues of the equation about its state of rest passes the imaginary axis, at
    $\pm i \sqrt{b^2 - \gamma^2}$.

    Args:
        model: The equation; its delay does not matter.

    Returns:
        The delay; infinite where no delay makes it oscillate, as where $b > -\gamma$.

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
