"""A flux of finite volumes that a network corrects."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import no_instance
from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._parameters import with_dtype
from ..._types import Key
from ...spatial import AbstractFlux
from ._network import Network
from ._term import sizes


class LearnedFlux(AbstractFlux):
    r"""A numerical flux with a correction that is learnt: what is conserved stays so, to rounding.

    $$F = F_0(w_L, w_R) - D_\theta(w_L, w_R) \, (u_R - u_L)$$

    Whatever the network says, what leaves a cell enters its neighbour; and where both states are equal the flux is
    that of the law, so that constant states stay constant. $D$ is a matrix over the components of the state. It may
    be negative: the network can sharpen what $F_0$ smears, and so can make it unstable.

    Attributes:
        base: $F_0$.
        net: The network of $D_\theta$.
        scale: The size of each primitive variable.

    Args:
        base: A flux, such as `sciml.spatial.Rusanov()`.
        components: The number of components of the state, 1 for a law of one quantity.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        scale: The size of the primitive variables, a number or one for each.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        TypeError: If `base` is no flux.
        ValueError: If a number is not positive, or the state has another number of components.

    Source:
        The idea of a learned flux in a conservative scheme: D. Kochkov et al., Machine learning-accelerated
        computational fluid dynamics, PNAS 118:e2101784118, 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import InviscidBurgers
        from sciml.models.neural import LearnedFlux
        from sciml.spatial import Grid, Periodic, Rusanov

        grid = Grid(32)
        law = InviscidBurgers(grid, Periodic(), flux=LearnedFlux(Rusanov(), key=jax.random.key(0)))
        rates = law(0.0, jnp.sin(2 * jnp.pi * grid.centers[0]), None)
        assert abs(rates.sum()) < 1e-4
        ```
    """

    base: AbstractFlux
    net: Network
    scale: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        base: Any,
        components: int = 1,
        width: int = 16,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        gain: float = 0.1,
        key: Key,
    ):
        if not isinstance(base, AbstractFlux):
            raise TypeError(f"`base` must be a flux such as `sciml.spatial.Rusanov()`, but {no_instance(base)}.")
        self.base, self.scale = base, sizes(scale, components, "scale")
        self.net = Network(2 * components, components**2, width, depth, activation=activation, gain=gain, key=key)

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        count = len(self.scale)
        jump = law.conserved(right) - law.conserved(left)
        rows = (
            [x.reshape(count, -1) for x in (left, right, jump)]
            if count > 1
            else [x.reshape(1, -1) for x in (left, right, jump)]
        )
        scale = jnp.asarray(self.scale, jump.dtype)[:, None]
        net = with_dtype(self.net, jump.dtype)
        told = jnp.concatenate([rows[0] / scale, rows[1] / scale])
        matrices = jax.vmap(net, in_axes=1, out_axes=1)(told).reshape(count, count, -1)
        return self.base(law, left, right, axis) - jnp.sum(matrices * rows[2][None], axis=1).reshape(jump.shape)
