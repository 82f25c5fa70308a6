"""What absorbing layers throw back."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def reflection_level(heard: Float[Array, "..."], reference: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Returns how loud what absorbing layers throw back is, in decibels below the wave itself.

    $$20 \log_{10} \frac{\max |u - u_\infty|}{\max |u_\infty|}$$

    where $u$ was computed in a box with layers and $u_\infty$ in one so large that nothing comes back in time.

    Args:
        heard: $u$, at any places and times.
        reference: $u_\infty$, at the same ones.

    Raises:
        ValueError: If the two have different shapes.

    Source:
        A. Taflove, S. C. Hagness, Computational Electrodynamics, Artech House, 2005, section 7.11.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        wave = jnp.sin(jnp.linspace(0.0, 6.0, 50))
        assert abs(verify.reference("reflection_level", 1.001 * wave, wave) + 60) < 0.1
        ```
    """
    if heard.shape != reference.shape:
        raise ValueError(f"`heard` has the shape {heard.shape}, but `reference` has {reference.shape}.")
    return 20 * jnp.log10(jnp.max(jnp.abs(heard - reference)) / jnp.max(jnp.abs(reference)))
