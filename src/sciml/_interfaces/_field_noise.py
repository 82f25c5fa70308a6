"""Noise of fields: a grid of independent Brownian motions for an equation."""

import abc

import equinox as eqx
from jaxtyping import Array, Inexact


class AbstractFieldNoise(eqx.Module):
    r"""Brownian motions of the points of a field, as many as there are points, independent or not.

    `noise=` of a `sciml.Stochastic` accepts one instead of a word: then the diffusion, an array like the state or a
    number, multiplies the noise point by point. `sciml.spatial.WhiteNoise` and `sciml.spatial.ColouredNoise` are there.
    A custom noise defines the size of the noise at each point, and how to compute it from independent numbers. The last
    axes of the state are the axes of the field; each entry of the leading axes, such as members and components, has
    independent noise.

    Attributes:
        size: How large the noise of each point is: the root of its variance in a unit of time, a number or an array
            that broadcasts to the field.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        class Moving(sciml.AbstractFieldNoise):
            '''Noise that neighbours on a ring share, by a moving mean of two.'''

            size = 1.0

            def correlated(self, white):
                return (white + jnp.roll(white, 1, -1)) / 2**0.5

        ring = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: 0.1, noise=Moving())
        sol = sciml.solve(ring, jnp.zeros(16), t0=0.0, t1=1.0, dt=0.01, key=jax.random.key(0))
        assert sol.ys.shape == (1, 16)
        ```
    """

    size: eqx.AbstractVar[Array | float]

    @abc.abstractmethod
    def correlated(self, white: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns numbers of variance one for all points, of independent ones in their places; linear."""
